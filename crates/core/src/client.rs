//! One round at one client: the only implementation of it.
//!
//! The simulator calls [`Rules::round`] for thousands of clients laid out flat; a peer on a real network calls it for
//! itself. Given the same study, data and noise they produce the same bits.

use thiserror::Error;

use crate::algorithm::{Algorithm, Facts, Step, StepError, View};
use crate::privacy::{Clip, Noise, NoiseError, NoiseScale, Rho, Schedule, Stream};
use crate::records::{Records, Scratch};

/// A round could not be completed; nothing was released.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RoundError {
    /// The step failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The noise failed.
    #[error(transparent)]
    Noise(#[from] NoiseError),
}

/// What a client does in every round, the same for all clients of a study.
pub struct Rules<'a> {
    /// How w_k(n) is computed.
    pub algorithm: &'a dyn Algorithm,
    /// How it is protected.
    pub protection: Protection<'a>,
}

/// Whether and how releases are protected.
pub enum Protection<'a> {
    /// Not at all: w~ = w.
    Off,
    /// Gradients clipped to `clip`, noise for phi(n).
    On {
        /// c1, the clip with which the records were stored.
        clip: Clip,
        /// phi(n) of a client without a budget of its own.
        schedule: &'a Schedule,
        /// Where noise comes from.
        noise: &'a Noise,
    },
}

/// What one client carries from round to round and what it computes. All but the memory are slices of length P.
pub struct State<'a> {
    /// The algorithm's vectors, such as gamma_k: functions of released points, all zero before the first round.
    pub memory: &'a mut [f64],
    /// w_k(n): private, known to the client alone.
    pub w: &'a mut [f64],
    /// w~_k(n): released.
    pub released: &'a mut [f64],
}

impl Rules<'_> {
    /// Round n at client k: step, noise, release; or, in a round that does not touch the records, mix and release.
    ///
    /// `budget_factor` scales phi(n) for a client with its own phi(1).
    pub fn round(
        &self,
        view: &View,
        records: Records,
        trial: u32,
        budget_factor: f64,
        state: State,
        scratch: &mut Scratch,
    ) -> Result<(), RoundError> {
        if !self.algorithm.touches_records(view.round, view.rounds) {
            self.mix(view, state, scratch);
            return Ok(());
        }
        // Taken out of the scratch space while the step uses the rest of it.
        let mut public = std::mem::take(&mut scratch.public);
        public.resize(state.w.len(), 0.0);
        let step = Step { public: &mut public, private: &mut *state.w };
        self.algorithm.step(view, records, state.memory, scratch, step)?;
        self.release(view, records.len(), trial, budget_factor, state.w, state.released)?;
        for ((w, released), public) in state.w.iter_mut().zip(state.released).zip(&public) {
            *w += public;
            *released += public;
        }
        scratch.public = public;
        Ok(())
    }

    /// Round n at client k without its records: nothing is noised, because nothing needs to be.
    pub fn mix(&self, view: &View, state: State, scratch: &mut Scratch) {
        self.algorithm.mix(view, state.memory, scratch, state.released);
        state.w.copy_from_slice(state.released);
    }

    /// The private part with its noise. The public part is added afterwards, to what is already protected.
    fn release(
        &self,
        view: &View,
        records: usize,
        trial: u32,
        budget_factor: f64,
        private: &[f64],
        released: &mut [f64],
    ) -> Result<(), RoundError> {
        match self.protection {
            Protection::Off => released.copy_from_slice(private),
            Protection::On { clip, schedule, noise } => {
                let facts = Facts {
                    problem: view.problem,
                    clients: view.graph.clients(),
                    rounds: view.rounds,
                    degree: view.slots.len(),
                    records,
                    clip,
                    eta: view.eta,
                };
                let sensitivity = self.algorithm.sensitivity(facts, view.round);
                let phi = Rho::new(schedule.phi(view.round).get() * budget_factor).expect("both are checked");
                let stream = Stream { trial, client: view.client as u32, round: view.round };
                noise.release(stream, NoiseScale::new(sensitivity, phi), private, released)?;
            }
        }
        Ok(())
    }
}
