//! One record can move a step by no more than the sensitivity says, given what was released before.
//!
//! Two neighbouring data sets are run with the same released points. The difference in w_k(n) is what the
//! noise of round n must hide, so it must stay within Delta_k(n); and the worst pair must reach it, or noise is
//! wasted. In a mixing round nothing may differ at all. The same check is then shown to detect
//! planted bugs: an algorithm that keeps anything without noise from round to round fails in the next one.

mod common;

use std::sync::{Arc, Mutex};

use common::{Client, Network};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::algorithm::free_rounds::{FreeRounds, Mixing};
use undertone_core::algorithm::p_admm::PAdmm;
use undertone_core::algorithm::subgradient::Subgradient;
use undertone_core::algorithm::zcdp_nfl::ZcdpNfl;
use undertone_core::algorithm::{Algorithm, Decay, Round, Run, Step, StepError, StepSize};
use undertone_core::client::{Cost, LARGEST_VALUE, Protection, Rules, State};
use undertone_core::graph::Graph;
use undertone_core::knob::Settings;
use undertone_core::loss::{Absolute, AnyLoss, Squared};
use undertone_core::names::Names;
use undertone_core::normal;
use undertone_core::privacy::{Accountant, ClientBudget, Clip, Delta, Noise, Rho, Schedule, Sensitivity};
use undertone_core::problem::Problem;
use undertone_core::records::{Records, Scratch};
use undertone_core::regularizer::Regularizer;

const CLIP: f64 = 0.9;
const RECORDS: usize = 5;
const FEATURES: usize = 3;
const ROUNDS: u32 = 12;
const EDGES: [(u32, u32); 3] = [(0, 1), (0, 2), (1, 2)];

fn problem(loss: AnyLoss, regularizer: Regularizer) -> Problem {
    Problem { loss, regularizer, lambda: 1.0, intercept: false }
}

/// Client 0 gets `record` as its last one; the others, and what is released, depend only on the seed.
fn drive(algorithm: &dyn Algorithm, problem: &Problem, seed: u64, record: (Vec<f64>, f64)) -> Vec<Vec<f64>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut number = move || rng.random_range(-2.0..2.0);
    let clip = Some(Clip::new(CLIP).unwrap());
    let mut row = || ((0..FEATURES).map(|_| number()).collect::<Vec<f64>>(), number());
    let mut own: Vec<_> = (1..RECORDS).map(|_| row()).collect();
    own.push(record);
    let clients = [own, (0..4).map(|_| row()).collect(), (0..7).map(|_| row()).collect()];
    let clients = clients.iter().map(|rows| Client::new(rows, clip)).collect();
    let mut network = Network::new(problem, &EDGES, clients);
    let mut history = Vec::new();
    network.rounds = ROUNDS;
    for round in 1..=ROUNDS {
        history.push(network.step(algorithm, round)[..FEATURES].to_vec());
        network.released = (0..network.released.len()).map(|_| row().1).collect();
    }
    history
}

/// The largest ||w_D(n) - w_D'(n)||/Delta(n) over rounds, random pairs of records and one pair made to be the worst.
fn worst_ratio(algorithm: &dyn Algorithm, problem: &Problem) -> f64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(99);
    let clip = Clip::new(CLIP).unwrap();
    let graph = Graph::from_edges(&Names::numbered(3), &EDGES).unwrap();
    let mut worst: f64 = 0.0;
    for trial in 0..60 {
        let mut record =
            || ((0..FEATURES).map(|_| rng.random_range(-5.0..5.0)).collect::<Vec<f64>>(), rng.random_range(-5.0..5.0));
        let pair = if trial < 50 {
            (record(), record())
        } else {
            // The same features with targets far on either side: gradients of full length in opposite directions.
            let (x, _) = record();
            ((x.clone(), 1e6), (x, -1e6))
        };
        let one = drive(algorithm, problem, trial, pair.0);
        let two = drive(algorithm, problem, trial, pair.1);
        for (round, (a, b)) in (1..).zip(one.iter().zip(&two)) {
            let moved = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
            if !algorithm.touches_records(round, ROUNDS) {
                // A round that costs nothing must reveal nothing.
                worst = if moved > 0.0 { f64::INFINITY } else { worst };
                continue;
            }
            let gradient = Sensitivity::of_clipped_mean(clip, RECORDS);
            let run = Run { rounds: ROUNDS, graph: &graph, problem, robust: None };
            let allowed = algorithm.sensitivity(&run.round(round, 0, None), gradient).get();
            worst = worst.max(moved / allowed);
        }
    }
    worst
}

fn zcdp() -> ZcdpNfl {
    ZcdpNfl { rho: 0.4, eta: StepSize { eta: 0.5, decay: Decay::Sqrt }, average: 0.0 }
}

fn free_rounds() -> FreeRounds {
    let eta = StepSize { eta: 0.5, decay: Decay::Sqrt };
    FreeRounds { data_rounds: 4, eta, momentum: 0.4, average: 0.5, prox: true, mixing: Mixing::Chebyshev }
}

#[test]
fn every_algorithm_stays_within_its_sensitivity_and_reaches_it() {
    let subgradient = Subgradient { eta: StepSize { eta: 0.5, decay: Decay::Sqrt } };
    let net = Regularizer::ElasticNet { l1: 0.4, l2: 0.2 };
    let algorithms: [(&dyn Algorithm, Problem); 7] = [
        (&free_rounds(), problem(AnyLoss::Absolute(Absolute), net)),
        (&FreeRounds { prox: false, ..free_rounds() }, problem(AnyLoss::Squared(Squared), net)),
        (&ZcdpNfl { average: 0.5, ..zcdp() }, problem(AnyLoss::Squared(Squared), net)),
        (&zcdp(), problem(AnyLoss::Absolute(Absolute), net)),
        (&zcdp(), problem(AnyLoss::Squared(Squared), net)),
        (&subgradient, problem(AnyLoss::Squared(Squared), net)),
        (&PAdmm { rho: 0.4, clipped: true }, problem(AnyLoss::Squared(Squared), Regularizer::SquaredL2)),
    ];
    for (algorithm, problem) in algorithms {
        let ratio = worst_ratio(algorithm, &problem);
        assert!(ratio <= 1.0 + 1e-9, "{} moves {ratio} times its sensitivity", algorithm.name());
        assert!(ratio > 0.99, "{} reaches only {ratio} of its sensitivity", algorithm.name());
    }
}

/// Planted bugs, one at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mistake {
    /// The sensitivity omits the factor two for the two records.
    MissingFactorTwo,
    /// The step starts from the client's own w instead of its w~.
    OwnStateWithoutNoise,
    /// The dual follows the client's own w instead of its w~.
    DualWithoutNoise,
    /// The regulariser is taken at w instead of w~.
    RegularizerAtW,
}

/// zCDP-NFL with a bug, and the private w that it must not keep.
#[derive(Debug)]
struct Planted {
    mistake: Mistake,
    kept: Mutex<Vec<f64>>,
}

impl Algorithm for Planted {
    fn name(&self) -> &'static str {
        "planted"
    }

    fn settings(&self) -> Settings {
        Settings::new()
    }

    fn gain(&self, round: &Round) -> Option<f64> {
        zcdp().gain(round)
    }

    fn sensitivity(&self, round: &Round, gradient: Sensitivity) -> Sensitivity {
        let right = zcdp().sensitivity(round, gradient);
        if self.mistake == Mistake::MissingFactorTwo { right.scaled(0.5) } else { right }
    }

    fn memory(&self) -> usize {
        1
    }

    fn step(
        &self,
        round: &Round,
        records: Records,
        gamma: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        let mut kept = self.kept.lock().unwrap();
        let private = if round.number == 1 { round.own.to_vec() } else { kept.clone() };
        let Step { public, private: w, scale } = step;
        let right = Step { public: &mut *public, private: &mut *w, scale };
        match self.mistake {
            Mistake::OwnStateWithoutNoise if round.client == 0 => {
                zcdp().step(&round.with_own(&private), records, gamma, scratch, right)?;
            }
            Mistake::DualWithoutNoise if round.client == 0 => {
                for (gamma, (own, public)) in gamma.iter_mut().zip(private.iter().zip(round.own)) {
                    *gamma += zcdp().rho * 2.0 * (own - public);
                }
                zcdp().step(round, records, gamma, scratch, right)?;
            }
            Mistake::RegularizerAtW if round.client == 0 => {
                zcdp().step(round, records, gamma, scratch, right)?;
                let a = 2.0 * zcdp().rho * 2.0 + 1.0 / zcdp().eta.at(round.number, None);
                round.run.problem.add_regularizer_subgradient(-1.0 / a, 3, &private, 1, w);
                round.run.problem.add_regularizer_subgradient(1.0 / a, 3, round.own, 1, w);
            }
            _ => zcdp().step(round, records, gamma, scratch, right)?,
        }
        if round.client == 0 {
            *kept = public.iter().zip(&*w).map(|(public, private)| public + private).collect();
        }
        Ok(())
    }
}

#[test]
fn planted_bugs_are_detected() {
    let problem = problem(AnyLoss::Absolute(Absolute), Regularizer::ElasticNet { l1: 0.4, l2: 3.0 });
    for mistake in
        [Mistake::MissingFactorTwo, Mistake::OwnStateWithoutNoise, Mistake::DualWithoutNoise, Mistake::RegularizerAtW]
    {
        let ratio = worst_ratio(&Planted { mistake, kept: Mutex::new(Vec::new()) }, &problem);
        assert!(ratio > 1.01, "{mistake:?} went unnoticed: {ratio}");
    }
}

/// Planted bugs in free rounds, one at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Leak {
    /// The sensitivity omits the factor two for the two records.
    MissingFactorTwo,
    /// The sensitivity uses the last eta instead of eta(s).
    LastEta,
    /// Mixing starts from the client's own v instead of what it released.
    MixesItsOwn,
    /// Momentum follows the move before the noise.
    MomentumWithoutNoise,
    /// The average takes in the client's own v instead of what it released.
    AveragesItsOwn,
    /// The gradient of a data round is kept and used again in a mixing round.
    GradientKept,
}

/// Free rounds with a bug, and the private v that it must not keep.
#[derive(Debug)]
struct Leaky {
    leak: Leak,
    kept: Mutex<Vec<f64>>,
}

impl Leaky {
    /// Moves part of client 0's memory by what its noise would have hidden.
    fn spoil(&self, round: &Round, memory: &mut [f64], part: usize) {
        let kept = self.kept.lock().unwrap();
        if round.client == 0 && !kept.is_empty() {
            let own = memory[part * FEATURES..][..FEATURES].iter_mut();
            own.zip(kept.iter().zip(round.own)).for_each(|(m, (kept, own))| *m += kept - own);
        }
    }
}

impl Algorithm for Leaky {
    fn name(&self) -> &'static str {
        "leaky"
    }

    fn settings(&self) -> Settings {
        Settings::new()
    }

    fn touches_records(&self, round: u32, rounds: u32) -> bool {
        free_rounds().touches_records(round, rounds)
    }

    fn memory(&self) -> usize {
        free_rounds().memory()
    }

    fn gain(&self, round: &Round) -> Option<f64> {
        free_rounds().gain(round)
    }

    fn sensitivity(&self, round: &Round, gradient: Sensitivity) -> Sensitivity {
        let right = free_rounds().sensitivity(round, gradient);
        match self.leak {
            Leak::MissingFactorTwo => right.scaled(0.5),
            Leak::LastEta => free_rounds().sensitivity(&round.run.round(ROUNDS, round.client, None), gradient),
            _ => right,
        }
    }

    fn step(
        &self,
        round: &Round,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        match self.leak {
            Leak::MomentumWithoutNoise => self.spoil(round, memory, 1),
            Leak::AveragesItsOwn => self.spoil(round, memory, 2),
            _ => {}
        }
        let Step { public, private, scale } = step;
        let right = Step { public: &mut *public, private: &mut *private, scale };
        free_rounds().step(round, records, memory, scratch, right)?;
        if round.client == 0 {
            let keep = |(public, private): (&f64, &f64)| match self.leak {
                Leak::GradientKept => *private,
                _ => public + private,
            };
            *self.kept.lock().unwrap() = public.iter().zip(&*private).map(keep).collect();
        }
        Ok(())
    }

    fn mix(&self, round: &Round, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        let mut kept = self.kept.lock().unwrap();
        let own = if round.client == 0 && self.leak == Leak::MixesItsOwn { kept.clone() } else { round.own.to_vec() };
        free_rounds().mix(&round.with_own(&own), memory, scratch, released);
        if round.client == 0 && self.leak == Leak::GradientKept {
            released.iter_mut().zip(kept.drain(..)).for_each(|(r, g)| *r += g);
        }
    }
}

#[test]
fn planted_leaks_of_free_rounds_are_caught() {
    let problem = problem(AnyLoss::Absolute(Absolute), Regularizer::ElasticNet { l1: 0.1, l2: 0.1 });
    for leak in [
        Leak::MissingFactorTwo,
        Leak::LastEta,
        Leak::MixesItsOwn,
        Leak::MomentumWithoutNoise,
        Leak::AveragesItsOwn,
        Leak::GradientKept,
    ] {
        let ratio = worst_ratio(&Leaky { leak, kept: Mutex::new(Vec::new()) }, &problem);
        assert!(ratio > 1.01, "{leak:?} went unnoticed: {ratio}");
    }
}

/// The closed form of P-ADMM does not enforce the clip: its noise hides far less than the effect of one record.
#[test]
fn unclipped_p_admm_breaks_its_own_sensitivity() {
    let unclipped = PAdmm { rho: 0.4, clipped: false };
    assert!(!unclipped.clips());
    let problem = problem(AnyLoss::Squared(Squared), Regularizer::SquaredL2);
    let clients = |y: f64| {
        let rows = vec![(vec![1.0, 0.5, 0.2], y), (vec![0.3, 0.1, 0.9], 1.0), (vec![0.7, 0.2, 0.1], 1.0)];
        vec![Client::new(&rows, None), Client::new(&rows[1..], None)]
    };
    let w = |y| Network::new(&problem, &[(0, 1)], clients(y)).step(&unclipped, 1)[..3].to_vec();
    let moved = w(20.0).iter().zip(w(-20.0)).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    let graph = Graph::from_edges(&Names::numbered(2), &[(0, 1)]).unwrap();
    let run = Run { rounds: 1, graph: &graph, problem: &problem, robust: None };
    let gradient = Sensitivity::of_clipped_mean(Clip::new(CLIP).unwrap(), 3);
    assert!(moved > 3.0 * unclipped.sensitivity(&run.round(1, 0, None), gradient).get());
}

#[test]
fn a_client_may_have_its_own_step_size() {
    let problem = problem(AnyLoss::Absolute(Absolute), Regularizer::None);
    let graph = Graph::from_edges(&Names::numbered(3), &EDGES).unwrap();
    let run = Run { rounds: 9, graph: &graph, problem: &problem, robust: None };
    let gradient = Sensitivity::of_clipped_mean(Clip::new(CLIP).unwrap(), 5);
    let allowed = |eta, round| zcdp().sensitivity(&run.round(round, 0, eta), gradient).get();
    let expected = |eta: f64, n: f64| 2.0 * CLIP / (5.0 * (2.0 * 0.4 * 2.0 + n.sqrt() / eta));
    assert!((allowed(None, 4) - expected(0.5, 4.0)).abs() < 1e-15);
    assert!((allowed(Some(0.1), 4) - expected(0.1, 4.0)).abs() < 1e-15);
}

/// Noise is made for the round as it is: the degree that is left, the own step size, the own budget. Seeded noise shows it exactly.
#[test]
fn noise_is_made_for_the_round_as_it_is() {
    let problem = problem(AnyLoss::Absolute(Absolute), Regularizer::None);
    let graph = Graph::from_edges(&Names::numbered(3), &EDGES).unwrap();
    let run = Run { rounds: ROUNDS, graph: &graph, problem: &problem, robust: None };
    let rows = [(vec![0.3, -0.2, 0.5], 1.0), (vec![0.1, 0.9, -0.4], -2.0)];
    let client = Client::new(&rows, Some(Clip::new(CLIP).unwrap()));
    let schedule = Arc::new(Schedule::geometric_from_first(Rho::new(0.01).unwrap(), ROUNDS, 0.9).unwrap());
    let (points, noise) = ([0.0; 9], Noise::fast(7));
    type Gain = fn(usize, f64, Option<f64>) -> f64;
    let cases: [(&dyn Algorithm, Gain); 2] = [
        (&zcdp(), |degree, n, eta| 1.0 / (2.0 * 0.4 * degree as f64 + n.sqrt() / eta.unwrap_or(0.5))),
        (&Subgradient { eta: StepSize { eta: 3.0, decay: Decay::Constant } }, |_, _, eta| eta.unwrap_or(3.0)),
    ];
    for (algorithm, gain) in cases {
        for own in [None, Some(Rho::new(0.03).unwrap())] {
            let budget = ClientBudget::new(schedule.clone(), own, Accountant::Exact, Delta::new(1e-5).unwrap());
            for (neighbours, eta) in [(&[1u32, 2][..], None), (&[1], None), (&[2], Some(0.1))] {
                for number in [1u32, 5] {
                    let round = run
                        .round(number, 0, eta)
                        .with_points(&points[..FEATURES], &points)
                        .left_with(neighbours, neighbours);
                    let release = |protection: Protection| {
                        let mut memory = vec![0.0; FEATURES * algorithm.memory()];
                        let (mut w, mut released) = (vec![0.0; FEATURES], vec![0.0; FEATURES]);
                        let state = State { memory: &mut memory, w: &mut w, released: &mut released };
                        let rules = Rules { algorithm, largest: LARGEST_VALUE };
                        let scratch = &mut Scratch::default();
                        let cost = rules.round(&round, client.records(), protection, state, scratch).unwrap().cost();
                        (released, cost)
                    };
                    let (noised, cost) =
                        release(Protection::On { budget: &budget, noise: &noise, masks: None, trial: 0 });
                    let (clean, _) = release(Protection::Off);
                    let phi = own.map_or(0.01, Rho::get) * 0.9f64.powi(1 - number as i32);
                    // 2 c1/M with M = 2, times the gain.
                    let sigma = CLIP * gain(neighbours.len(), f64::from(number), eta) / (2.0 * phi).sqrt();
                    let mut drawn = [0.0; FEATURES];
                    normal::fill(7, [0, number, 0], &mut drawn);
                    for ((noised, clean), xi) in noised.iter().zip(&clean).zip(drawn) {
                        let found = (noised - clean) / sigma;
                        assert!((found - xi).abs() < 1e-9, "{}: {found} is not {xi}", algorithm.name());
                    }
                    assert_eq!(cost, Cost::Rehearsed(budget.cost(number)));
                }
            }
        }
    }
}

/// R does not penalise an intercept, so the ridge does not hold it; and the sensitivity covers what the solver may leave.
#[test]
fn an_intercept_of_p_admm_moves_as_far_as_its_sensitivity_says() {
    let algorithm = PAdmm { rho: 0.4, clipped: true };
    let problem = Problem { intercept: true, ..problem(AnyLoss::Squared(Squared), Regularizer::SquaredL2) };
    let network = |y: f64| {
        let client = |y: f64| Client::new(&[(vec![0.0, 0.0, 1.0], y)], Some(Clip::new(CLIP).unwrap()));
        Network::new(&problem, &[(0, 1)], vec![client(y), client(0.0)])
    };
    let w = |y: f64| network(y).step(&algorithm, 1)[..FEATURES].to_vec();
    let moved = w(1e6).iter().zip(w(-1e6)).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    let allowed = network(0.0).sensitivity(&algorithm, 1, 0).get();
    assert!(moved <= allowed && moved > 0.999_999 * allowed, "{moved} of {allowed}");
    // 2 c1/mu, mu = 2 rho d, and twice the error of a gradient of 1e-9.
    let mu = 0.8;
    assert!(allowed - 2.0 * CLIP / mu > 1.99e-9 / mu, "the solver's error is not covered");
}

/// A mixing round releases the same whatever the records are.
#[test]
fn a_mixing_round_is_the_same_whatever_the_records() {
    let problem = problem(AnyLoss::Absolute(Absolute), Regularizer::None);
    let graph = Graph::from_edges(&Names::numbered(3), &EDGES).unwrap();
    let run = Run { rounds: ROUNDS, graph: &graph, problem: &problem, robust: None };
    let algorithm = free_rounds();
    let points: Vec<f64> = (0..9).map(|i| 0.1 * f64::from(i)).collect();
    let release = |target: f64, number: u32| {
        let client = Client::new(&[(vec![1.0, 0.5, -0.5], target)], Some(Clip::new(CLIP).unwrap()));
        let round = run.round(number, 0, None).with_points(&points[..FEATURES], &points);
        let mut memory = vec![0.0; FEATURES * algorithm.memory()];
        let (mut w, mut released) = (vec![0.0; FEATURES], vec![0.0; FEATURES]);
        let state = State { memory: &mut memory, w: &mut w, released: &mut released };
        let (rules, scratch) = (Rules { algorithm: &algorithm, largest: LARGEST_VALUE }, &mut Scratch::default());
        let cost = rules.round(&round, client.records(), Protection::Off, state, scratch).unwrap().cost();
        (released, memory, cost)
    };
    for number in (1..=ROUNDS).filter(|n| !algorithm.touches_records(*n, ROUNDS)) {
        let one = release(1e3, number);
        assert_eq!(one.2, Cost::Mixed);
        assert_eq!(one, release(-1e3, number), "round {number}");
    }
}

/// Only the private part is put on the lattice and noised, so the public one must be the same to the last bit.
#[test]
fn the_public_part_does_not_depend_on_records() {
    let problem = problem(AnyLoss::Squared(Squared), Regularizer::ElasticNet { l1: 0.4, l2: 0.2 });
    let subgradient = Subgradient { eta: StepSize { eta: 0.5, decay: Decay::Sqrt } };
    let algorithms: [&dyn Algorithm; 4] =
        [&free_rounds(), &FreeRounds { prox: false, ..free_rounds() }, &zcdp(), &subgradient];
    for algorithm in algorithms {
        let public = |target: f64, round: u32| {
            let client = |y: f64| Client::new(&[(vec![1.0, 0.5, -0.5], y)], Some(Clip::new(CLIP).unwrap()));
            let mut network = Network::new(&problem, &EDGES, vec![client(target), client(0.1), client(0.2)]);
            network.rounds = ROUNDS;
            network.released = (0..9).map(|i| 0.1 * f64::from(i)).collect();
            network.parts(algorithm, round).0[..FEATURES].iter().map(|v| v.to_bits()).collect::<Vec<u64>>()
        };
        for round in 1..=ROUNDS {
            assert_eq!(public(1e3, round), public(-1e3, round), "{} in round {round}", algorithm.name());
        }
    }
}
