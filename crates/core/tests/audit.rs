//! An adversary who sees every message and knows all but one record learns exactly as much as the budget allows.
//!
//! Two data sets of client 0 differ in one record, made to be the worst: its gradient has full length in one direction or in
//! the other, wherever it is taken. The adversary replays the run with either data set and adds up the logarithm of
//! the likelihood ratio of what was released. For Gaussian releases of total cost rho that sum has mean rho and variance
//! 2 rho, so its mean over many runs must be rho within the error of the mean: 5.3 standard errors, a significance of
//! about 1e-7 per check. With half the noise it would be four times as large, which the same check is shown to detect.

mod common;

use common::Client;
use undertone_core::algorithm::{Algorithm, Round, Run, Step, StepError};
use undertone_core::client::{Protection, Rules, State};
use undertone_core::graph::Graph;
use undertone_core::knob::Settings;
use undertone_core::names::Names;
use undertone_core::privacy::{Clip, Noise, NoiseScale, Rho, Sensitivity};
use undertone_core::records::{Records, Scratch};
use undertone_core::study::Study;

const FEATURES: usize = 2;
const CONVERSATIONS: u32 = 3000;

fn study(algorithm: &str) -> Study {
    let text = format!(
        "rounds = 12\n[problem]\nloss = \"absolute\"\nregularizer = \"l1\"\nlambda = 0.1\n\
         [data]\nsource = \"synthetic\"\nclients = 3\nfeatures = {FEATURES}\n[graph]\nkind = \"ring\"\n\
         [privacy]\nepsilon = 1\ndelta = 1e-5\nclip = 0.8\ntau = 0.9\n[algorithm]\n{algorithm}\n"
    );
    Study::parse(&text, "audit").unwrap()
}

/// The clients, client 0 with a target far on either side.
fn clients(clip: Clip, target: f64) -> Vec<Client> {
    let rows = |first: f64| {
        vec![(vec![0.6, -0.8], first), (vec![1.0, 0.5], 0.3), (vec![-0.4, 0.9], -0.1), (vec![0.2, 0.2], 0.4)]
    };
    [target, 0.1, 0.5].map(|first| Client::new(&rows(first), Some(clip))).into()
}

/// An algorithm with half the correct sensitivity.
#[derive(Debug)]
struct HalfTheNoise<'a>(&'a dyn Algorithm);

impl Algorithm for HalfTheNoise<'_> {
    fn name(&self) -> &'static str {
        "half the noise"
    }
    fn settings(&self) -> Settings {
        self.0.settings()
    }
    fn touches_records(&self, round: u32, rounds: u32) -> bool {
        self.0.touches_records(round, rounds)
    }
    fn memory(&self) -> usize {
        self.0.memory()
    }
    fn gain(&self, round: &Round) -> Option<f64> {
        self.0.gain(round)
    }
    fn sensitivity(&self, round: &Round, gradient: Sensitivity) -> Sensitivity {
        self.0.sensitivity(round, gradient).scaled(0.5)
    }
    fn step(
        &self,
        round: &Round,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        self.0.step(round, records, memory, scratch, step)
    }
    fn mix(&self, round: &Round, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        self.0.mix(round, memory, scratch, released);
    }
}

/// The standard error of the adversary's mean, in units of which it is off from rho, and the total rho.
fn off_by(study: &Study, algorithm: &dyn Algorithm) -> f64 {
    let privacy = study.privacy().unwrap();
    let (schedule, budget) = (privacy.schedule(), study.client_budget("1").unwrap());
    let problem = study.public_problem().unwrap();
    let graph = Graph::from_edges(&Names::numbered(3), &[(0, 1), (1, 2), (2, 0)]).unwrap();
    let (truth, other) = (clients(privacy.clip(), 1e6), clients(privacy.clip(), -1e6));
    let noise = Noise::secure_with_test_key([7; 32]);
    let rules = Rules { algorithm };
    let gradient = Sensitivity::of_clipped_mean(privacy.clip(), 4);
    let run = Run { rounds: study.rounds(), graph: &graph, problem: &problem };
    let total: f64 = (0..CONVERSATIONS)
        .map(|trial| {
            let noised = Protection::On { budget: &budget, noise: &noise, masks: None, trial };
            let mut conversation = Conversation::new(run, algorithm.memory());
            let mut ratio = 0.0;
            for round in 1..=study.rounds() {
                let views = conversation.clone();
                for (k, client) in truth.iter().enumerate() {
                    let (memory, released) = views.step(rules, noised, k, client, round);
                    if k == 0 {
                        let replay = |client: &Client| views.step(rules, Protection::Off, 0, client, round).1;
                        let round = run.round(round, 0, None);
                        let sensitivity = algorithm.sensitivity(&round, gradient);
                        let points = [&released[..], &replay(&truth[0]), &replay(&other[0])];
                        ratio += likelihood_ratio(algorithm, &round, sensitivity, schedule.phi(round.number), points);
                    }
                    (conversation.memory[k], conversation.released[k]) = (memory, released);
                }
            }
            ratio
        })
        .sum();
    let rho = schedule.spent(study.rounds()).get();
    let standard_error = (2.0 * rho / f64::from(CONVERSATIONS)).sqrt();
    (total / f64::from(CONVERSATIONS) - rho) / standard_error
}

/// ln p(released | truth)/p(released | other); zero in rounds that cost nothing.
fn likelihood_ratio(
    algorithm: &dyn Algorithm,
    round: &Round,
    sensitivity: Sensitivity,
    phi: Rho,
    points: [&[f64]; 3],
) -> f64 {
    let [released, truth, other] = points;
    if !algorithm.touches_records(round.number, round.run.rounds) {
        assert!(released == truth && released == other, "a mixing round reveals something");
        return 0.0;
    }
    let sigma = NoiseScale::new(sensitivity, phi).sigma();
    let square = |w: &[f64]| released.iter().zip(w).map(|(r, w)| (r - w) * (r - w)).sum::<f64>();
    (square(other) - square(truth)) / (2.0 * sigma * sigma)
}

/// Everything that is public in a run so far.
#[derive(Clone)]
struct Conversation<'a> {
    run: Run<'a>,
    released: Vec<Vec<f64>>,
    memory: Vec<Vec<f64>>,
}

impl<'a> Conversation<'a> {
    fn new(run: Run<'a>, memory: usize) -> Self {
        let (released, memory) = (vec![vec![0.0; FEATURES]; 3], vec![vec![0.0; FEATURES * memory]; 3]);
        Self { run, released, memory }
    }

    /// What a client remembers and releases after a round.
    fn step(
        &self,
        rules: Rules,
        protection: Protection,
        client: usize,
        records: &Client,
        round: u32,
    ) -> (Vec<f64>, Vec<f64>) {
        let points = self.released.concat();
        let round = self.run.round(round, client, None).with_points(&self.released[client], &points);
        let (mut memory, mut released) = (self.memory[client].clone(), vec![0.0; FEATURES]);
        let state = State { memory: &mut memory, w: &mut [0.0; FEATURES], released: &mut released };
        rules.round(&round, records.records(), protection, state, &mut Scratch::default()).unwrap();
        (memory, released)
    }
}

#[test]
fn a_run_reveals_what_its_budget_allows() {
    for algorithm in [
        "name = \"free-rounds\"\ndata_rounds = 4\neta = 0.5\ndecay = \"sqrt\"\nmomentum = 0.5\naverage = 0.5",
        "name = \"free-rounds\"\ndata_rounds = 11\neta = 0.5\nprox = false\nmixing = \"metropolis\"",
        "name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5\naverage = 0.5",
        "name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5",
        "name = \"zcdp-grad-nfl\"\neta = 0.5",
    ] {
        let study = study(algorithm);
        let off = off_by(&study, study.algorithm());
        assert!(off.abs() < 5.3, "{algorithm}: off by {off} standard errors");
        let half = off_by(&study, &HalfTheNoise(study.algorithm()));
        assert!(half.abs() > 5.3, "{algorithm}: half the noise was not detected ({half})");
    }
}
