//! The algorithms, one file each behind one trait.
//!
//! In a data round, a client computes w_k(n) from them and from public points (what it and its
//! neighbours have released), noise is added, and the sum is released. In a mixing round, it mixes public points
//! and releases the result as it is: the code for this has no access to the records. An algorithm defines which rounds
//! are data rounds, how both kinds are computed, and how far one record can move w_k(n). To add one, write its file and add its line
//! to the list below.

mod robust;
mod round;
mod step_size;

use std::fmt::Debug;
use std::sync::Arc;

use thiserror::Error;

pub use robust::{Robust, Spread};
pub use round::{Round, Run};
pub use step_size::{Decay, StepSize};

use crate::knob::{Knob, Scale, Settings};
use crate::privacy::Sensitivity;
use crate::problem::Problem;
use crate::records::{Records, Scratch};

/// Makes the modules and the registry of a list of algorithms.
macro_rules! algorithms {
    ($($module:ident),* $(,)?) => {
        $(pub mod $module;)*

        /// The entries of all modules of algorithms.
        static MODULES: &[&[Entry]] = &[$($module::ENTRIES),*];
    };
}

algorithms! {
    free_rounds,
    zcdp_nfl,
    subgradient,
    p_admm,
}

/// All algorithms that a study can name.
pub fn registry() -> impl Iterator<Item = &'static Entry> {
    MODULES.iter().copied().flatten()
}

/// How a study finds an algorithm and its parameters.
#[derive(Debug)]
pub struct Entry {
    /// The `algorithm.name` of a study.
    pub name: &'static str,
    /// Its parameters.
    pub knobs: &'static [Knob],
    /// Where tuning looks for tau, by which the budget grows from one data round to the next.
    pub tau: Scale,
    /// Whether it bounds what liars do ([`Robust`]).
    pub bounds_liars: bool,
    /// Makes it from values of its parameters that were checked.
    pub build: fn(&Settings) -> Arc<dyn Algorithm>,
}

/// The entry of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    registry().find(|entry| entry.name == name)
}

/// The step could not be computed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum StepError {
    /// An inner solver did not reach the accuracy that its sensitivity assumes, so nothing may be released.
    #[error(
        "the local problem was not solved to the gradient of {assumed:e} that the sensitivity assumes; raise algorithm.rho \
         or problem.lambda"
    )]
    Inexact {
        /// Norm of the gradient at the end.
        reached: f64,
        /// Norm that the privacy analysis allows.
        assumed: f64,
    },
}

/// One method of learning among peers.
pub trait Algorithm: Debug + Send + Sync {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// The values of its parameters.
    fn settings(&self) -> Settings;

    /// Why this algorithm cannot solve this problem with this number of features and rounds, if it cannot.
    fn refuses(&self, _problem: &Problem, _features: usize, _rounds: u32) -> Option<String> {
        None
    }

    /// Why this algorithm must not run between peers, if it must not: no outcome of a peer that others can see may depend
    /// on records without noise.
    fn refuses_peers(&self) -> Option<&'static str> {
        None
    }

    /// Whether gradients are clipped. Without clipping there is no privacy, whatever the noise.
    fn clips(&self) -> bool {
        true
    }

    /// Whether clients may have their own step sizes. Not allowed where step sizes weight the clients' losses against
    /// each other.
    fn takes_own_eta(&self) -> bool {
        self.settings().get("eta").is_some()
    }

    /// Whether round n of T is a data round. Other rounds cost nothing.
    fn touches_records(&self, _round: u32, _rounds: u32) -> bool {
        true
    }

    /// Whether trials can be computed side by side: whether a step does the same in every coordinate, apart from the gradient.
    fn takes_trials(&self) -> bool {
        true
    }

    /// How many vectors of length P a client carries from round to round besides its released point, all zero at
    /// first. They may be computed from released points only. A dual gamma_k is the first of them. In a robust run, what each edge has carried follows
    /// ([`Study::memory`](crate::study::Study::memory)).
    fn memory(&self) -> usize {
        usize::from(self.dual_weight() > 0.0)
    }

    /// The penalty rho in gamma_k(n) = rho sum_l sum_(m<=n) (w~_k(m) - w~_l(m)); zero for algorithms without a dual.
    ///
    /// A peer uses it to remove an edge's share from its dual when the edge is dropped, and keep its dual up to date
    /// in a round in which it repeats its last release.
    fn dual_weight(&self) -> f64 {
        0.0
    }

    /// The public factor by which the mean clipped gradient enters w_k(n), if that is how it does: such as -1/a_k(n) in zCDP-NFL.
    ///
    /// With it, noise can be added to the gradient before the factor, which is what masks need: they cancel in the sum of gradients.
    fn gain(&self, _round: &Round) -> Option<f64> {
        None
    }

    /// How far replacing one record can move w_k(n) in a data round, given how far it can move the mean clipped gradient.
    ///
    /// # Panics
    /// An algorithm without a gain must say it itself.
    fn sensitivity(&self, round: &Round, gradient: Sensitivity) -> Sensitivity {
        let gain = self.gain(round).expect("an algorithm without a gain states its sensitivity");
        gradient.scaled(gain.abs())
    }

    /// How much further than the sum of its steps a point can go, at most.
    fn amplification(&self) -> f64 {
        1.0
    }

    /// Why noise that cancels between clients cannot protect this algorithm's releases, if it cannot.
    fn refuses_masks(&self) -> Option<&'static str> {
        None
    }

    /// A data round: computes w_k(n) in two parts, w = `public` + `private`, and updates the memory.
    ///
    /// `public` follows from messages already sent; all that depends on records must be in `private`, because only
    /// that is put on the lattice and noised. Rounding in the public part is then the same for neighbouring data.
    fn step(
        &self,
        round: &Round,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError>;

    /// A round without the records: computes w~_k(n) from what was released before, and updates the memory.
    ///
    /// Either the algorithm plans it so, or a peer may not use its records in this round. Unless an algorithm does
    /// otherwise, the dual goes on and the client repeats its last release.
    ///
    /// There is no way to reach the records from here:
    ///
    /// ```
    /// # use undertone_core::{algorithm::{Algorithm, Round}, records::{Records, Scratch}};
    /// fn free(a: &dyn Algorithm, round: &Round, _records: Records, memory: &mut [f64], s: &mut Scratch, out: &mut [f64]) {
    ///     a.mix(round, memory, s, out);
    /// }
    /// ```
    ///
    /// ```compile_fail
    /// # use undertone_core::{algorithm::{Algorithm, Round}, records::{Records, Scratch}};
    /// fn free(a: &dyn Algorithm, round: &Round, records: Records, memory: &mut [f64], s: &mut Scratch, out: &mut [f64]) {
    ///     a.mix(round, records, memory, s, out);
    /// }
    /// ```
    fn mix(&self, round: &Round, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        let weight = self.dual_weight();
        if weight > 0.0 {
            for (gamma, d) in memory.iter_mut().zip(round.disagreement(&mut scratch.vector)) {
                *gamma += weight * d;
            }
        }
        released.copy_from_slice(round.own);
    }
}

/// Where a step is written; both parts have length P and arbitrary contents before.
pub struct Step<'a> {
    /// What follows from messages already sent.
    pub public: &'a mut [f64],
    /// What depends on records: `scale` times the mean clipped gradient, for an algorithm that has a gain.
    pub private: &'a mut [f64],
    /// The gain; 1 if noise is added before it.
    pub scale: f64,
}
