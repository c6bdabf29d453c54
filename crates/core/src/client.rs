//! One round at one client: the only implementation of it.
//!
//! The simulator calls [`Rules::round`] for thousands of clients laid out flat; a peer calls it for
//! itself. Given the same study, data and noise they produce the same bits.
//!
//! What comes out is a [`Release`]: the values together with what they cost. Nothing else can make one, and a ledger takes
//! nothing else, so what is recorded is what was spent. The cost is right if the [`Algorithm`] is: its sensitivity and its
//! division into public and private part are trusted, and tested (`tests/sensitivity.rs`).

use thiserror::Error;

use crate::algorithm::{Algorithm, Round, Step, StepError};
use crate::normal::Ahead;
use crate::privacy::{ClientBudget, Noise, NoiseError, NoiseScale, RoundMasks, Spent, Stream};
use crate::records::{Records, Scratch};
use crate::simd::over;

/// Values in a release of any study are no larger than this: beyond it sums of them could overflow. Most studies have a lower limit
/// ([`Study::reach`](crate::study::Study::reach)).
pub const LARGEST_VALUE: f64 = 1e30;

/// A round could not be completed; nothing was released.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum RoundError {
    /// The step failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The noise failed.
    #[error(transparent)]
    Noise(#[from] NoiseError),
    /// The records have no clip, so no noise covers them.
    #[error("the records were stored without a clip, so no noise can protect them; store them with the study's clip")]
    Unclipped,
    /// What was released before gives a step of no sensible size.
    #[error(
        "the step has left the range of numbers that peers exchange: the run has diverged; lower eta, raise rho or lambda"
    )]
    Diverged,
    /// The budget has nothing for this round.
    #[error("the budget has nothing left for this round, which touches the records")]
    Unfunded,
    /// The budget is for masked noise and there are no masks, or there are and it is not; or the step cannot be masked.
    #[error("masks are needed exactly if the study has privacy.colluders, and with an algorithm that takes them")]
    Masks,
}

/// What a client does in every round, the same for all clients of a study.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// How w_k(n) is computed.
    pub algorithm: &'a dyn Algorithm,
    /// The largest value that others accept; beyond it a run has diverged.
    pub largest: f64,
}

/// Whether and how a client's releases are protected.
#[derive(Clone, Copy)]
pub enum Protection<'a> {
    /// Not at all: w~ = w.
    Off,
    /// Noise for phi_k(n), over gradients clipped as the records say.
    On {
        /// What the client may spend.
        budget: &'a ClientBudget,
        /// Where noise comes from.
        noise: &'a Noise,
        /// The masks of this round, exactly if the budget is for masked noise.
        masks: Option<&'a RoundMasks>,
        /// Repetition of a simulation, the first of those side by side; a peer has only trial 0.
        trial: u32,
    },
}

impl Protection<'_> {
    fn is_masked(&self) -> bool {
        matches!(self, Protection::On { masks: Some(_), .. })
    }

    fn is_safe(&self) -> bool {
        matches!(self, Protection::On { noise, .. } if noise.is_safe())
    }
}

/// What one client keeps from round to round and what it computes. All except the memory are slices of length P.
pub struct State<'a, 'r> {
    /// The algorithm's vectors, such as gamma_k: functions of released points, all zero before the first round.
    pub memory: &'a mut [f64],
    /// w_k(n): private, known only to the client.
    pub w: &'a mut [f64],
    /// w~_k(n): released.
    pub released: &'r mut [f64],
}

/// What a release cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cost {
    /// Computed from the records, clipped, and noised safely for these rhos, which are above zero.
    Noised(Spent),
    /// The same in form, but with noise that is not safe to release or a clip that is not enforced: no bound holds.
    Rehearsed(Spent),
    /// Computed from the records without protection: no bound holds.
    Unprotected,
    /// Computed from earlier releases only, in a mixing round. Costs nothing.
    Mixed,
    /// Planned from the records, but computed from earlier releases only. Costs nothing.
    Withheld,
}

/// What a client makes public in a round, and what it cost. Only [`Rules`] makes one.
///
/// It cannot be put together by hand, so a cost cannot be stated for other values:
///
/// ```
/// # use undertone_core::client::{Cost, Release};
/// # fn cost() -> Cost { Cost::Mixed }
/// fn record<'a>(release: &Release<'a>) -> (u32, &'a [f64]) { (release.round(), release.values()) }
/// ```
///
/// ```compile_fail
/// # use undertone_core::client::{Cost, Release};
/// # fn cost() -> Cost { Cost::Mixed }
/// fn record(values: &[f64]) -> Release<'_> { Release { round: 1, values, cost: Cost::Mixed } }
/// ```
#[derive(Debug, PartialEq)]
pub struct Release<'a> {
    round: u32,
    values: &'a [f64],
    cost: Cost,
}

impl<'a> Release<'a> {
    /// n.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// w~_k(n).
    pub fn values(&self) -> &'a [f64] {
        self.values
    }

    /// Moves the mean of the releases before it to that of them and this one.
    pub fn add_to_mean(&self, mean: &mut [f64]) {
        let share = 1.0 / f64::from(self.round);
        over(mean.len(), || {
            mean.iter_mut().zip(self.values).for_each(|(mean, value)| *mean += (value - *mean) * share)
        });
    }

    /// What it cost.
    pub fn cost(&self) -> Cost {
        self.cost
    }
}

impl Rules<'_> {
    /// Round n at client k: step, noise, release; or, in a mixing round, mix and release.
    pub fn round<'s>(
        &self,
        round: &Round,
        records: Records,
        protection: Protection,
        state: State<'_, 's>,
        scratch: &mut Scratch,
    ) -> Result<Release<'s>, RoundError> {
        if !self.algorithm.touches_records(round.number, round.run.rounds) {
            return Ok(self.without_records(round, state, scratch, Cost::Mixed));
        }
        // Masks cancel in the sum of gradients, so the noise that has them is added before the public factor. Other noise is added after
        // it, as in the paper: the law is the same.
        let gain = self.algorithm.gain(round);
        let masked = protection.is_masked();
        let scale = if masked { 1.0 } else { gain.unwrap_or(1.0) };
        // Moved out of the scratch space while the step uses the other buffers.
        let mut public = std::mem::take(&mut scratch.public);
        public.resize(state.w.len(), 0.0);
        let step = Step { public: &mut public, private: &mut *state.w, scale };
        self.algorithm.step(round, records, state.memory, scratch, step)?;
        let bounded = protection.is_safe();
        // What is public and what is noised have each less than half of the range, so that their sum is inside it.
        let part = self.largest / 4.0;
        if bounded && !public.iter().all(|v| v.abs() <= part) {
            // Decided from released points alone, before anything is noised: that a run ends here reveals nothing about records.
            return Err(RoundError::Diverged);
        }
        let cost = self.protect(round, records, protection, state.w, state.released, &mut scratch.ahead)?;
        if masked {
            let gain = gain.ok_or(RoundError::Masks)?;
            state.w.iter_mut().chain(state.released.iter_mut()).for_each(|v| *v *= gain);
        }
        // From here on there is a noised release, which is recorded and charged whatever it looks like: nothing may end the round. Numbers that
        // others would refuse are moved into the range.
        if bounded {
            state.released.iter_mut().for_each(|v| *v = v.clamp(-part, part));
        }
        // The public part is added to what is already protected.
        over(public.len(), || {
            for ((w, released), public) in state.w.iter_mut().zip(state.released.iter_mut()).zip(&public) {
                *w += public;
                *released += public;
            }
        });
        scratch.public = public;
        Ok(Release { round: round.number, values: state.released, cost })
    }

    /// Round n at client k, which may not use its records in it.
    pub fn withhold<'s>(&self, round: &Round, state: State<'_, 's>, scratch: &mut Scratch) -> Release<'s> {
        let planned = !self.algorithm.touches_records(round.number, round.run.rounds);
        self.without_records(round, state, scratch, if planned { Cost::Mixed } else { Cost::Withheld })
    }

    /// Nothing is noised, because nothing needs to be.
    fn without_records<'s>(
        &self,
        round: &Round,
        state: State<'_, 's>,
        scratch: &mut Scratch,
        cost: Cost,
    ) -> Release<'s> {
        self.algorithm.mix(round, state.memory, scratch, state.released);
        state.w.copy_from_slice(state.released);
        Release { round: round.number, values: state.released, cost }
    }

    /// The private part with its noise.
    fn protect(
        &self,
        round: &Round,
        records: Records,
        protection: Protection,
        private: &[f64],
        released: &mut [f64],
        ahead: &mut Ahead,
    ) -> Result<Cost, RoundError> {
        let Protection::On { budget, noise, masks, trial } = protection else {
            released.copy_from_slice(private);
            return Ok(Cost::Unprotected);
        };
        let gradient = records.gradient_sensitivity().ok_or(RoundError::Unclipped)?;
        let phi = budget.phi(round.number);
        if phi.get() <= 0.0 {
            return Err(RoundError::Unfunded);
        }
        let stream = Stream { trial, client: round.client as u32, round: round.number };
        let spent = match (budget.masking(), masks) {
            (None, None) => {
                let scale = NoiseScale::new(self.algorithm.sensitivity(round, gradient), phi);
                match round.trials {
                    1 => noise.release_ahead(stream, round.upcoming, scale, private, released, ahead)?,
                    trials => noise.release_trials(stream, trials, scale, private, released)?,
                }
                Spent::without_masks(phi)
            }
            (Some(masking), Some(masks)) if round.trials == 1 => {
                if !masks.are_of(round.client, masking.trust.clients(), round.number) {
                    return Err(NoiseError::OtherMasks.into());
                }
                let made = budget.masked_noise(round.number, gradient, private.len());
                let (lattice, own) = made.ok_or(NoiseError::UnrepresentableMask)?;
                noise.release_masked(stream, (&lattice, &own), masks, private, released)?;
                own.spent()
            }
            _ => return Err(RoundError::Masks),
        };
        let secret = masks.is_none_or(RoundMasks::is_paired);
        let safe = noise.is_safe() && secret && records.clipping().enforced().is_some();
        Ok(if safe { Cost::Noised(spent) } else { Cost::Rehearsed(spent) })
    }
}
