//! Data of a study's shape, drawn from what is public about it, in place of its records.

use undertone_core::graph::{Graph, GraphSpec};
use undertone_core::names::Names;
use undertone_core::privacy::{Budget, Rho};
use undertone_core::study::{DataSpec, Layout, NoiseKind, Study};

use crate::plan::{MOST_WORK, PlanError};
use undertone_sim::run::{Shared, SimError, run_sharing};

/// Operations of one run beyond which fewer records are made up than the study has.
const GOOD_WORK: f64 = 1e8;
/// Numbers in all made-up records beyond which there are fewer: the central solution is found for each draw of them.
const GOOD_ENTRIES: f64 = 5e4;
/// But not fewer than these.
const FEWEST: usize = 30;
/// Most clients of a study that is planned: their central solution has to be found too.
const MOST_CLIENTS: usize = 5000;
/// Added to the study's seed, so that a simulation of the planned study is not judged by the data it was planned on.
const OTHER_DATA: u64 = 7_777_777;

/// What takes the place of the study's records.
pub(crate) struct MadeUp {
    /// Who the clients are.
    pub names: Names,
    /// The study's own graph.
    pub graph: Graph,
    /// M_k of the study.
    pub records: Vec<usize>,
    data: DataSpec,
    /// By how much fewer records are made up. The noise of a mean of M records has a scale of 1/M, so the same factor is
    /// made up for in the budget: rho grows by its square.
    pub fewer: f64,
    /// Operations of one run, roughly.
    pub work: f64,
}

impl MadeUp {
    pub fn of(study: &Study) -> Result<Self, PlanError> {
        let missing = |message: &str| Err(PlanError::Missing(message.into()));
        if study.privacy.as_ref().is_some_and(|privacy| matches!(privacy.budget, Budget::First(_))) {
            return missing("privacy.phi1 gives every algorithm another total; write privacy.epsilon to compare them");
        }
        if study.clients.values().any(|client| client.phi1.is_some()) {
            return missing(
                "client: a phi1 of its own gives a client another total with every algorithm; name the algorithm, or remove it",
            );
        }
        let count = match &study.data {
            DataSpec::Synthetic { clients, .. } | DataSpec::Files { layout: Layout::Split(clients), .. } => *clients,
            _ => study.plan.as_ref().and_then(|plan| plan.clients).unwrap_or(0),
        };
        // Before so many names and edges are made.
        let least = f64::from(study.rounds) * study.features() as f64 * count as f64 * 20.0;
        if least > MOST_WORK || count > MOST_CLIENTS {
            return Err(PlanError::TooLarge(least));
        }
        let (names, mut data) = stand_in(study)?;
        if let Some(name) = study.clients.keys().find(|name| names.find(name).is_none()) {
            return Err(PlanError::Run(SimError::UnknownClient { name: name.clone(), clients: names.to_string() }));
        }
        let graph = study.build_graph(&names, 0)?;
        let made = match &mut data {
            DataSpec::Synthetic { records, .. } | DataSpec::Files { layout: Layout::StandIn { records, .. }, .. } => {
                records
            }
            DataSpec::Files { .. } => unreachable!("made up above"),
        };
        let records = made.clone();
        let mean = |records: &[usize]| records.iter().sum::<usize>() as f64 / records.len() as f64;
        let work = |records: &[usize]| {
            let (clients, edges) = (graph.clients() as f64, graph.edges() as f64);
            let numbers = 4.0 * clients * mean(records) + 4.0 * edges + 20.0 * clients;
            f64::from(study.rounds) * study.features() as f64 * numbers
        };
        let entries = graph.clients() as f64 * mean(&records) * (study.features() + 4) as f64;
        let share = (GOOD_WORK / work(&records)).min(GOOD_ENTRIES / entries).min(1.0);
        made.iter_mut().for_each(|m| *m = ((*m as f64 * share) as usize).max(FEWEST.min(*m)));
        let (fewer, work) = (mean(&records) / mean(made), work(made));
        if work > MOST_WORK {
            return Err(PlanError::TooLarge(work));
        }
        Ok(Self { names, graph, records, data, fewer, work })
    }

    /// Whether such data can be run and solved centrally at all, and if not, why.
    pub fn check(&self, mut study: Study, shared: &Shared) -> Result<(), PlanError> {
        study.privacy = None;
        let Some(mut study) = self.study(study, 0) else { return Ok(()) };
        study.simulation.metrics_every = study.rounds;
        study.simulation.trials = 1;
        let outcome = run_sharing(&study, shared, &|_| {})?;
        outcome.central.map(|_| ()).map_err(PlanError::Missing)
    }

    /// The study on made-up data and its own graph; `draw` picks the data. None if the budget cannot be made up for.
    pub fn study(&self, mut study: Study, draw: u64) -> Option<Study> {
        study.data = self.data.clone();
        study.graph = GraphSpec::Edges(self.edges());
        study.seed = study.seed.wrapping_add(OTHER_DATA + draw) & i64::MAX as u64;
        study.simulation.central = true;
        if let Some(privacy) = &mut study.privacy {
            privacy.noise = NoiseKind::Fast;
            if let Budget::Epsilon(epsilon) = privacy.budget {
                let rho = privacy.accountant.rho(epsilon, privacy.delta).get() * self.fewer * self.fewer;
                privacy.budget = Budget::Epsilon(privacy.accountant.epsilon(Rho::new(rho).ok()?, privacy.delta));
            }
        }
        study.privacy.is_none_or(|privacy| study.schedule(&privacy).is_ok()).then_some(study)
    }

    /// The edges of the graph, by name.
    fn edges(&self) -> Vec<(String, String)> {
        let name = |k: usize| self.names.get(k).into_owned();
        let of = |k: usize| self.graph.neighbours(k).iter().map(move |&l| (k, l as usize));
        let pairs = (0..self.graph.clients()).flat_map(of).filter(|(k, l)| k < l);
        pairs.map(|(k, l)| (name(k), name(l))).collect()
    }
}

/// Made-up data of the study's shape.
fn stand_in(study: &Study) -> Result<(Names, DataSpec), PlanError> {
    let (layout, schema) = match &study.data {
        DataSpec::Synthetic { clients, .. } => return Ok((Names::numbered(*clients), study.data.clone())),
        DataSpec::Files { layout: Layout::StandIn { clients, .. }, .. } => {
            return Ok((Names::listed(clients.clone()), study.data.clone()));
        }
        DataSpec::Files { layout, schema, .. } => (layout, schema),
    };
    let Some(plan) = &study.plan else {
        return Err(PlanError::Missing(
            "plan.records is missing; planning reads no data, so write about how many records each client has in a table [plan]"
                .into(),
        ));
    };
    let numbered = |count: usize| (1..=count).map(|k| k.to_string()).collect();
    let clients: Vec<String> = match (layout, &study.graph) {
        _ if study.clients.len() >= 2 && study.clients.values().all(|c| c.id.is_some()) => {
            study.clients.keys().cloned().collect()
        }
        (Layout::Split(count), _) => numbered(*count),
        (_, GraphSpec::Edges(edges)) => {
            let mut names: Vec<String> = edges.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
            names.sort();
            names.dedup();
            names
        }
        _ => numbered(plan.clients.ok_or_else(|| {
            PlanError::Missing("plan.clients is missing; write how many clients there will be".into())
        })?),
    };
    if plan.records.len() != 1 && plan.records.len() != clients.len() {
        let (listed, clients) = (plan.records.len(), clients.len());
        return Err(PlanError::Missing(format!(
            "plan.records lists {listed} numbers for {clients} clients; write one for all or one for each"
        )));
    }
    let layout = Layout::StandIn { clients: clients.clone(), records: plan.records.clone(), noise: plan.noise };
    Ok((Names::listed(clients), DataSpec::Files { layout, path: None, schema: schema.clone() }))
}
