//! Small networks for the tests, driven round by round.
#![allow(dead_code)]

use serde_json::Value;
use undertone_core::algorithm::{Algorithm, Step, View};
use undertone_core::graph::Graph;
use undertone_core::names::Names;
use undertone_core::privacy::Clip;
use undertone_core::problem::Problem;
use undertone_core::records::{self, Records, Scratch};

/// Records of one client, stored as the kernel wants them.
pub struct Client {
    storage: Vec<f64>,
    count: usize,
    features: usize,
}

impl Client {
    pub fn new(rows: &[(Vec<f64>, f64)], clip: Option<Clip>) -> Self {
        let features = rows[0].0.len();
        let mut storage = vec![0.0; records::size(rows.len(), features)];
        for (j, (x, y)) in rows.iter().enumerate() {
            records::store(&mut storage, rows.len(), j, x, *y, clip);
        }
        Self { storage, count: rows.len(), features }
    }

    pub fn records(&self) -> Records<'_> {
        Records::new(&self.storage, self.count, self.features)
    }
}

/// A network whose released points the test decides.
pub struct Network<'a> {
    pub problem: &'a Problem,
    pub graph: Graph,
    pub clients: Vec<Client>,
    /// w~, flat.
    pub released: Vec<f64>,
    /// T.
    pub rounds: u32,
    /// What the algorithm remembers, client by client; enough for gamma alone until a step asks for more.
    pub memory: Vec<f64>,
}

impl<'a> Network<'a> {
    pub fn new(problem: &'a Problem, edges: &[(u32, u32)], clients: Vec<Client>) -> Self {
        let graph = Graph::from_edges(&Names::numbered(clients.len()), edges).unwrap();
        let size = clients.len() * clients[0].features;
        Self { problem, graph, clients, released: vec![0.0; size], memory: vec![0.0; size], rounds: 100 }
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
            let view = View {
                round,
                rounds: self.rounds,
                client: k,
                graph: &self.graph,
                problem: self.problem,
                eta: None,
                own: &self.released[own.clone()],
                points: &self.released,
                slots: self.graph.neighbours(k),
                ids: self.graph.neighbours(k),
            };
            let step = Step { public: &mut parts.0[own.clone()], private: &mut parts.1[own.clone()] };
            let memory = &mut self.memory[k * width..][..width];
            if algorithm.touches_records(round, self.rounds) {
                algorithm.step(&view, client.records(), memory, &mut scratch, step).unwrap();
            } else {
                algorithm.mix(&view, memory, &mut scratch, step.public);
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
