//! Small networks for the tests, driven round by round.
#![allow(dead_code)]

use serde_json::Value;
use undertone_core::algorithm::{Algorithm, Round, Run, Step, StepError};
use undertone_core::client::{LARGEST_VALUE, Protection, Release, Rules, State};
use undertone_core::graph::Graph;
use undertone_core::knob::Settings;
use undertone_core::loss::Squared;
use undertone_core::names::Names;
use undertone_core::privacy::{ClientBudget, Clip, Clipping, Noise, Sensitivity};
use undertone_core::problem::Problem;
use undertone_core::records::{Dataset, Records, Scratch};
use undertone_core::regularizer::Regularizer;

/// Records of one client.
pub struct Client {
    data: Dataset,
    features: usize,
}

impl Client {
    pub fn new(rows: &[(Vec<f64>, f64)], clip: Option<Clip>) -> Self {
        let (x, y): (Vec<Vec<f64>>, Vec<f64>) = rows.iter().cloned().unzip();
        let (features, clipping) = (x[0].len(), clip.map_or(Clipping::Off, Clipping::Enforced));
        Self { data: Dataset::new(&x.concat(), &y, features, clipping), features }
    }

    pub fn records(&self) -> Records<'_> {
        self.data.records()
    }
}

/// A network whose released points the test sets.
pub struct Network<'a> {
    pub problem: &'a Problem,
    pub graph: Graph,
    pub clients: Vec<Client>,
    /// w~, flat.
    pub released: Vec<f64>,
    /// T.
    pub rounds: u32,
    /// The algorithm's memory, client by client; enough for gamma only until a step needs more.
    pub memory: Vec<f64>,
}

impl<'a> Network<'a> {
    pub fn new(problem: &'a Problem, edges: &[(u32, u32)], clients: Vec<Client>) -> Self {
        let graph = Graph::from_edges(&Names::numbered(clients.len()), edges).unwrap();
        let size = clients.len() * clients[0].features;
        Self { problem, graph, clients, released: vec![0.0; size], memory: vec![0.0; size], rounds: 100 }
    }

    /// The public facts.
    pub fn run(&self) -> Run<'_> {
        Run { rounds: self.rounds, graph: &self.graph, problem: self.problem, robust: None }
    }

    /// How far one record of client `k` may move its step in a round.
    pub fn sensitivity(&self, algorithm: &dyn Algorithm, round: u32, k: usize) -> Sensitivity {
        let gradient = self.clients[k].records().gradient_sensitivity().expect("stored with a clip");
        algorithm.sensitivity(&self.run().round(round, k, None), gradient)
    }

    pub fn features(&self) -> usize {
        self.clients[0].features
    }

    /// w_k(n) of all clients, flat; nothing is released yet.
    pub fn step(&mut self, algorithm: &dyn Algorithm, round: u32) -> Vec<f64> {
        let (public, private) = self.parts(algorithm, round);
        public.iter().zip(&private).map(|(public, private)| public + private).collect()
    }

    /// The public and the private part of w_k(n).
    pub fn parts(&mut self, algorithm: &dyn Algorithm, round: u32) -> (Vec<f64>, Vec<f64>) {
        let features = self.features();
        let mut parts = (vec![0.0; self.released.len()], vec![0.0; self.released.len()]);
        let mut scratch = Scratch::default();
        let width = features * algorithm.memory().max(1);
        self.memory.resize(width * self.clients.len(), 0.0);
        for (k, client) in self.clients.iter().enumerate() {
            let own = k * features..(k + 1) * features;
            let run = Run { rounds: self.rounds, graph: &self.graph, problem: self.problem, robust: None };
            let round = run.round(round, k, None).with_points(&self.released[own.clone()], &self.released);
            let scale = algorithm.gain(&round).unwrap_or(1.0);
            let step = Step { public: &mut parts.0[own.clone()], private: &mut parts.1[own.clone()], scale };
            let memory = &mut self.memory[k * width..][..width];
            if algorithm.touches_records(round.number, self.rounds) {
                algorithm.step(&round, client.records(), memory, &mut scratch, step).unwrap();
            } else {
                algorithm.mix(&round, memory, &mut scratch, step.public);
            }
        }
        parts
    }
}

/// The reference file of that name.
pub fn reference(name: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/reference/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A JSON list of numbers.
pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// The rows of a client in a reference file.
pub fn rows(client: &Value) -> Vec<(Vec<f64>, f64)> {
    let x = client["x"].as_array().unwrap().iter().map(numbers);
    x.zip(numbers(&client["y"])).collect()
}

/// A study's text with the tables of a reference case.
pub fn study_text(case: &Value, clients: usize, features: usize) -> String {
    let table = |value: &Value| {
        let lines = value.as_object().unwrap().iter().map(|(key, v)| format!("{key} = {v}\n"));
        lines.collect::<String>()
    };
    format!(
        "rounds = 1\nprivacy = \"off\"\n[problem]\n{}{}[graph]\nkind = \"complete\"\n\
         [data]\nsource = \"synthetic\"\nclients = {clients}\nfeatures = {features}\n[algorithm]\n{}",
        table(&case["loss"]),
        table(&case["regularizer"]),
        if case["algorithm"].is_null() {
            "name = \"zcdp-nfl\"\nrho = 1\neta = 1\n".into()
        } else {
            table(&case["algorithm"])
        }
    )
}

/// An algorithm that releases what a test says: its public part is given, its private part is nothing but noise that is too
/// small to see.
#[derive(Debug)]
struct Scripted(Vec<f64>);

impl Algorithm for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn settings(&self) -> Settings {
        Settings::new()
    }
    fn sensitivity(&self, _: &Round, gradient: Sensitivity) -> Sensitivity {
        gradient.scaled(1e-200)
    }
    fn step(&self, _: &Round, _: Records, _: &mut [f64], _: &mut Scratch, step: Step) -> Result<(), StepError> {
        step.public.copy_from_slice(&self.0);
        step.private.fill(0.0);
        Ok(())
    }
    fn mix(&self, _: &Round, _: &mut [f64], _: &mut Scratch, released: &mut [f64]) {
        released.copy_from_slice(&self.0);
    }
}

/// Mints a release of `values` in a round: noised for what the budget gives to the round, or without the records.
pub fn with_release<T>(
    round: u32,
    values: &[f64],
    budget: Option<&ClientBudget>,
    withheld: bool,
    take: impl FnOnce(&Release) -> T,
) -> T {
    let client = Client::new(&[(vec![1.0; values.len()], 0.0)], Some(Clip::new(1.0).unwrap()));
    let problem = Problem { loss: Squared.into(), regularizer: Regularizer::None, lambda: 0.0, intercept: false };
    let graph = Graph::from_edges(&Names::numbered(2), &[(0, 1)]).unwrap();
    let (algorithm, noise) = (Scripted(values.to_vec()), Noise::secure_with_test_key([1; 32]));
    let (mut w, mut released) = (vec![0.0; values.len()], vec![0.0; values.len()]);
    let state = State { memory: &mut [], w: &mut w, released: &mut released };
    let run = Run { rounds: 1000, graph: &graph, problem: &problem, robust: None };
    let round = run.round(round, 0, None);
    let rules = Rules { algorithm: &algorithm, largest: LARGEST_VALUE };
    let protection =
        budget.map_or(Protection::Off, |budget| Protection::On { budget, noise: &noise, masks: None, trial: 0 });
    let mut scratch = Scratch::default();
    match withheld {
        true => take(&rules.withhold(&round, state, &mut scratch)),
        false => take(&rules.round(&round, client.records(), protection, state, &mut scratch).unwrap()),
    }
}
