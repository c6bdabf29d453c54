//! An adversary who sees every message and knows all but one record learns exactly what the budget says, and no more.
//!
//! Two data sets of client 0 differ in one record, made to be the worst: its gradient has full length in one direction or in
//! the other, wherever it is taken. The adversary replays the conversation with either data set and adds up the logarithm of
//! the likelihood ratio of what was released. For Gaussian releases of total cost rho that sum has mean rho and variance
//! 2 rho, so its mean over many conversations must be rho within the error of the mean: 5.3 standard errors, a significance of
//! about 1e-7 per check. With half the noise it would be four times as large, which the same check is shown to notice.

mod common;

use common::Client;
use undertone_core::algorithm::{Algorithm, Facts, Step, StepError, View};
use undertone_core::client::{Protection, Rules, State};
use undertone_core::graph::Graph;
use undertone_core::names::Names;
use undertone_core::privacy::{Clip, Noise, NoiseScale, Rho, Sensitivity};
use undertone_core::problem::Problem;
use undertone_core::records::{Records, Scratch};
use undertone_core::regularizer::Regularizer;
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

/// The clients, client 0 with a target far on one side or on the other.
fn clients(clip: Clip, target: f64) -> Vec<Client> {
    let rows = |first: f64| {
        vec![(vec![0.6, -0.8], first), (vec![1.0, 0.5], 0.3), (vec![-0.4, 0.9], -0.1), (vec![0.2, 0.2], 0.4)]
    };
    [target, 0.1, 0.5].map(|first| Client::new(&rows(first), Some(clip))).into()
}

/// Free rounds or another, but with a sensitivity that is half of what it should be.
#[derive(Debug)]
struct HalfTheNoise(std::sync::Arc<dyn Algorithm>);

impl Algorithm for HalfTheNoise {
    fn name(&self) -> &'static str {
        "half the noise"
    }
    fn settings(&self) -> toml::Table {
        self.0.settings()
    }
    fn touches_records(&self, round: u32, rounds: u32) -> bool {
        self.0.touches_records(round, rounds)
    }
    fn memory(&self) -> usize {
        self.0.memory()
    }
    fn sensitivity(&self, facts: Facts, round: u32) -> Sensitivity {
        self.0.sensitivity(facts, round).scaled(0.5)
    }
    fn step(
        &self,
        view: &View,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        self.0.step(view, records, memory, scratch, step)
    }
    fn mix(&self, view: &View, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        self.0.mix(view, memory, scratch, released);
    }
}

/// The standard error of the adversary's mean, in units of which it is off from rho, and the total rho.
fn off_by(study: &Study, algorithm: &dyn Algorithm) -> f64 {
    let privacy = study.privacy.as_ref().unwrap();
    let schedule = study.schedule(privacy).unwrap();
    let problem = study.problem(Regularizer::L1);
    let graph = Graph::from_edges(&Names::numbered(3), &[(0, 1), (1, 2), (2, 0)]).unwrap();
    let (truth, other) = (clients(privacy.clip, 1e6), clients(privacy.clip, -1e6));
    let noise = Noise::secure_with_test_key([7; 32]);
    let noised =
        Rules { algorithm, protection: Protection::On { clip: privacy.clip, schedule: &schedule, noise: &noise } };
    let replayed = Rules { algorithm, protection: Protection::Off };
    let total: f64 = (0..CONVERSATIONS)
        .map(|trial| {
            let mut conversation = Conversation::new(&graph, &problem, study.rounds, algorithm.memory());
            let mut ratio = 0.0;
            for round in 1..=study.rounds {
                let views = conversation.clone();
                for (k, client) in truth.iter().enumerate() {
                    let (mut memory, mut released) = (views.memory[k].clone(), vec![0.0; FEATURES]);
                    views.step(&noised, k, client, round, trial, &mut memory, &mut released);
                    if k == 0 {
                        let replay = |client: &Client| {
                            let (mut memory, mut w) = (views.memory[0].clone(), vec![0.0; FEATURES]);
                            views.step(&replayed, 0, client, round, trial, &mut memory, &mut w);
                            w
                        };
                        let facts = Facts {
                            problem: &problem,
                            clients: 3,
                            rounds: study.rounds,
                            degree: 2,
                            records: 4,
                            clip: privacy.clip,
                            eta: None,
                        };
                        ratio += likelihood_ratio(
                            algorithm,
                            facts,
                            round,
                            schedule.phi(round),
                            [&released, &replay(&truth[0]), &replay(&other[0])],
                        );
                    }
                    (conversation.memory[k], conversation.released[k]) = (memory, released);
                }
            }
            ratio
        })
        .sum();
    let rho = schedule.spent(study.rounds).get();
    let standard_error = (2.0 * rho / f64::from(CONVERSATIONS)).sqrt();
    (total / f64::from(CONVERSATIONS) - rho) / standard_error
}

/// ln p(released | truth)/p(released | other); nothing where nothing costs.
fn likelihood_ratio(algorithm: &dyn Algorithm, facts: Facts, round: u32, phi: Rho, points: [&[f64]; 3]) -> f64 {
    let [released, truth, other] = points;
    if !algorithm.touches_records(round, facts.rounds) {
        assert!(released == truth && released == other, "a free round tells something");
        return 0.0;
    }
    let sigma = NoiseScale::new(algorithm.sensitivity(facts, round), phi).sigma();
    let square = |w: &[f64]| released.iter().zip(w).map(|(r, w)| (r - w) * (r - w)).sum::<f64>();
    (square(other) - square(truth)) / (2.0 * sigma * sigma)
}

/// Everything that is public in a conversation so far.
#[derive(Clone)]
struct Conversation<'a> {
    graph: &'a Graph,
    problem: &'a Problem,
    rounds: u32,
    released: Vec<Vec<f64>>,
    memory: Vec<Vec<f64>>,
}

impl<'a> Conversation<'a> {
    fn new(graph: &'a Graph, problem: &'a Problem, rounds: u32, memory: usize) -> Self {
        let (released, memory) = (vec![vec![0.0; FEATURES]; 3], vec![vec![0.0; FEATURES * memory]; 3]);
        Self { graph, problem, rounds, released, memory }
    }

    #[allow(clippy::too_many_arguments)]
    fn step(
        &self,
        rules: &Rules,
        client: usize,
        records: &Client,
        round: u32,
        trial: u32,
        memory: &mut [f64],
        released: &mut [f64],
    ) {
        let points = self.released.concat();
        let ids = self.graph.neighbours(client);
        let view = View {
            round,
            rounds: self.rounds,
            client,
            graph: self.graph,
            problem: self.problem,
            eta: None,
            own: &self.released[client],
            points: &points,
            slots: ids,
            ids,
        };
        let state = State { memory, w: &mut [0.0; FEATURES], released };
        rules.round(&view, records.records(), trial, 1.0, state, &mut Scratch::default()).unwrap();
    }
}

#[test]
fn a_whole_conversation_tells_what_its_budget_says() {
    for algorithm in [
        "name = \"free-rounds\"\ndata_rounds = 4\neta = 0.5\ndecay = \"sqrt\"\nmomentum = 0.5\naverage = 0.5",
        "name = \"free-rounds\"\ndata_rounds = 11\neta = 0.5\nprox = false\nmixing = \"metropolis\"",
        "name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5\naverage = 0.5",
        "name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5",
        "name = \"zcdp-grad-nfl\"\neta = 0.5",
    ] {
        let study = study(algorithm);
        let off = off_by(&study, &*study.algorithm);
        assert!(off.abs() < 5.3, "{algorithm}: off by {off} standard errors");
        let half = off_by(&study, &HalfTheNoise(study.algorithm.clone()));
        assert!(half.abs() > 5.3, "{algorithm}: half the noise went unnoticed ({half})");
    }
}
