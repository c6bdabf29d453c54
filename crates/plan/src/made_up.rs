//! Data of a study's shape, drawn from public facts, in place of its records.

use undertone_core::csv_format::CsvFormat;
use undertone_core::graph::{Graph, GraphSpec};
use undertone_core::names::Names;
use undertone_core::privacy::{Accountant, Delta, Epsilon, Rho};
use undertone_core::study::{
    AlgorithmSpec, BudgetSpec, DataSpec, Layout, NoiseKind, Simulation, Study, StudyError, StudySpec,
};
use undertone_core::watch::Unwatched;

use crate::error::{MOST_WORK, PlanError};
use undertone_sim::run::{Shared, SimError, run_sharing};

/// Operations of one run beyond which fewer records are generated than the study has.
const GOOD_WORK: f64 = 1e8;
/// Numbers in all generated records beyond which fewer are generated: the central solution is found for each draw of them.
const GOOD_ENTRIES: f64 = 5e4;
/// But not fewer than these.
const FEWEST: usize = 30;
/// Most clients of a study that is planned: their central solution has to be found too.
const MOST_CLIENTS: usize = 5000;
/// Added to the study's seed, so that a simulation of the planned study does not use the data that it was planned on.
const OTHER_DATA: u64 = 7_777_777;

/// The data used in place of the study's records.
pub(crate) struct MadeUp {
    /// The clients' names.
    pub names: Names,
    /// The study's own graph.
    pub graph: Graph,
    /// M_k of the study.
    pub records: Vec<usize>,
    data: DataSpec,
    /// The factor by which fewer records are generated. The noise of a mean of M records has a scale of 1/M, so the same
    /// factor is compensated in the budget: the zCDP rho grows by its square.
    pub fewer: f64,
    /// Operations of one run, roughly.
    pub work: f64,
}

impl MadeUp {
    pub fn of(study: &StudySpec) -> Result<Self, PlanError> {
        if study.privacy.as_ref().is_some_and(|privacy| matches!(privacy.budget, BudgetSpec::First(_))) {
            return Err(StudyError::at(
                "privacy.phi1",
                "gives every algorithm a different total; write privacy.epsilon to compare them",
            )
            .into());
        }
        if study.clients.values().any(|client| client.phi1.is_some()) {
            return Err(StudyError::at(
                "client",
                "has a phi1 of its own, which gives it a different total with every algorithm; name the algorithm, or remove it",
            )
            .into());
        }
        let count = match &study.data {
            DataSpec::Synthetic { clients, .. } | DataSpec::Files { layout: Layout::Split(clients), .. } => *clients,
            _ => study.plan.as_ref().and_then(|plan| plan.clients).unwrap_or(0),
        };
        // Checked before this many names and edges are made.
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
            DataSpec::Files { .. } => unreachable!("replaced above"),
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

    /// Checks that such data can be run and solved centrally.
    pub fn check(&self, spec: &StudySpec, shared: &Shared) -> Result<(), PlanError> {
        // With an algorithm that suits any study: one of a single round has no free round, and free rounds take no own eta.
        let own_eta = spec.clients.values().any(|client| client.eta.is_some());
        let algorithm = match spec.rounds == 1 || own_eta {
            true => AlgorithmSpec::named("zcdp-nfl").number("rho", 1.0).number("eta", 1.0),
            false => AlgorithmSpec::named("free-rounds").count("data_rounds", 1).number("eta", 1.0),
        };
        let simulation = Simulation { trials: 1, metrics_every: spec.rounds, ..spec.simulation };
        let plain = StudySpec { algorithm, privacy: None, simulation, ..spec.clone() };
        let Some(study) = self.study(plain, 0)? else { return Ok(()) };
        let outcome = run_sharing(&study, shared, &Unwatched)?;
        outcome.central.map(|_| ()).map_err(PlanError::Central)
    }

    /// The study on generated data and its own graph; `draw` selects the data. None if the budget cannot be compensated.
    pub fn study(&self, mut spec: StudySpec, draw: u64) -> Result<Option<Study>, StudyError> {
        spec.data = self.data.clone();
        spec.graph = GraphSpec::Edges(self.edges());
        spec.seed = spec.seed.wrapping_add(OTHER_DATA + draw) & i64::MAX as u64;
        spec.simulation.central = true;
        if let Some(privacy) = &mut spec.privacy {
            privacy.noise = NoiseKind::Fast;
            if let BudgetSpec::Epsilon(epsilon) = &mut privacy.budget {
                let Some(scaled) = self.scaled(*epsilon, privacy.delta, privacy.accountant) else { return Ok(None) };
                *epsilon = scaled;
            }
        }
        spec.check().map(Some)
    }

    /// The epsilon whose rho is larger by the square of what is missing in records.
    fn scaled(&self, epsilon: f64, delta: f64, accountant: Accountant) -> Option<f64> {
        let (epsilon, delta) = (Epsilon::new(epsilon).ok()?, Delta::new(delta).ok()?);
        let rho = accountant.rho(epsilon, delta).get() * self.fewer * self.fewer;
        Some(accountant.epsilon(Rho::new(rho).ok()?, delta).get())
    }

    /// The edges of the graph, by name.
    fn edges(&self) -> Vec<(String, String)> {
        let name = |k: usize| self.names.get(k).into_owned();
        let of = |k: usize| self.graph.neighbours(k).iter().map(move |&l| (k, l as usize));
        let pairs = (0..self.graph.clients()).flat_map(of).filter(|(k, l)| k < l);
        pairs.map(|(k, l)| (name(k), name(l))).collect()
    }
}

/// Generated data of the study's shape.
fn stand_in(study: &StudySpec) -> Result<(Names, DataSpec), PlanError> {
    let (layout, schema) = match &study.data {
        DataSpec::Synthetic { clients, .. } => return Ok((Names::numbered(*clients), study.data.clone())),
        DataSpec::Files { layout: Layout::StandIn { clients, .. }, .. } => {
            return Ok((Names::listed(clients.clone()), study.data.clone()));
        }
        DataSpec::Files { layout, schema, .. } => (layout, schema),
    };
    let Some(plan) = &study.plan else {
        return Err(StudyError::at(
            "plan.records",
            "is missing; planning reads no data, so write about how many records each client has in a table [plan]",
        )
        .into());
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
        _ => numbered(
            plan.clients
                .ok_or_else(|| StudyError::at("plan.clients", "is missing; write how many clients there will be"))?,
        ),
    };
    if plan.records.len() != 1 && plan.records.len() != clients.len() {
        let (listed, clients) = (plan.records.len(), clients.len());
        let message = format!("lists {listed} numbers for {clients} clients; write one for all or one for each");
        return Err(StudyError::at("plan.records", message).into());
    }
    let layout = Layout::StandIn { clients: clients.clone(), records: plan.records.clone(), noise: plan.noise };
    Ok((
        Names::listed(clients),
        DataSpec::Files { layout, path: None, schema: schema.clone(), csv: CsvFormat::default() },
    ))
}
