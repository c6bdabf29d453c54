//! Data sets of a study's shape, made up from public facts, in place of its records.

use rayon::prelude::*;
use undertone_core::graph::{Graph, GraphSpec};
use undertone_core::names::Names;
use undertone_core::privacy::{Accountant, Delta, Epsilon, Rho};
use undertone_core::problem::Problem;
use undertone_core::schema::{Cell, Schema};
use undertone_core::study::{
    AlgorithmSpec, BudgetSpec, DataSpec, Layout, NoiseKind, PlanSpec, Study, StudyError, StudySpec,
};
use undertone_data::{Encoder, Loaded, Model};
use undertone_sim::central::{null_model, objective};
use undertone_sim::data::Population;
use undertone_sim::run::{SimError, last_release};

use crate::ensemble::TableLaw;
use crate::error::{MOST_WORK, PlanError};
use crate::pooled::minimum;

/// Numbers in all records of a made-up set beyond which it has fewer records than the study.
const GOOD_ENTRIES: f64 = 1e4;
/// But not fewer than so many for each feature, in all.
const FEWEST_PER_FEATURE: usize = 40;
/// And not fewer than so many at a client.
const FEWEST: usize = 5;
/// Most clients of a study that is planned.
const MOST_CLIENTS: usize = 5000;
/// Added to the study's seed, so that a simulation of the planned study does not use the data that it was planned on.
const OTHER_DATA: u64 = 7_777_777;
/// A set of tables from which even pooled data gains a smaller share of the objective without features is drawn again, at most so
/// many times: nobody asks for a model of columns that tell nothing.
const LEAST_GAIN: f64 = 0.05;
const REDRAWN: usize = 6;
/// Sets that searches use.
pub(crate) const SEEN: usize = 60;
/// Sets in all. Those beyond [`SEEN`] are used by no search: what is expected is measured on them.
pub(crate) const SETS: usize = 120;
/// For so many records of a client, one new one is drawn to measure what a model is worth.
const FOR_ONE_NEW: usize = 2;

/// The data sets used in place of the study's records.
pub(crate) struct MadeUp {
    /// The clients' names.
    pub names: Names,
    /// The study's own graph.
    pub graph: Graph,
    /// M_k of the study: one number for all, or one for each.
    pub records: Vec<usize>,
    /// The factor by which fewer records are made up. The noise of a mean of M records has a scale of 1/M, so the same
    /// factor is compensated in the budget: the zCDP rho grows by its square.
    pub fewer: f64,
    /// Operations of one run of an algorithm that reads the records in every round, roughly, and of one that seldom does.
    pub work: Work,
    /// The study on made-up records, without privacy: how they are stored and weighed.
    plain: Study,
    sets: Vec<Set>,
}

/// Operations of the two kinds of rounds, all clients together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub data_round: f64,
    pub mixing_round: f64,
}

/// One made-up set, as the study encodes it.
pub(crate) struct Set {
    /// The number of the law that it is drawn by.
    law: usize,
    problem: Problem,
    records: Measured,
    /// New records of the same law, where the set is one to measure on.
    new: Option<Measured>,
}

/// Records, with the objectives of two models of the set on them: of pooled data, and of none but the target.
struct Measured {
    population: Population,
    best: f64,
    null: f64,
}

/// What a study's model loses on a set; see [`Measured::regret`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    /// On the records it learned from.
    pub here: f64,
    /// On new records, if the set has some; else on the same.
    pub new: f64,
}

impl Measured {
    fn of(population: Population, problem: &Problem, best: &[f64], null: &[f64]) -> Self {
        let value = |w: &[f64]| objective(&population, problem, w);
        Self { best: value(best), null: value(null), population }
    }

    /// The share of the objective without features that pooled data gains.
    fn gain(&self) -> f64 {
        (self.null - self.best) / self.null.abs().max(f64::MIN_POSITIVE)
    }

    /// What a model loses against pooled data, as a share of what pooled data gains over a model without features. Infinite for
    /// one that is not finite.
    fn regret(&self, problem: &Problem, w: &[f64]) -> f64 {
        let lost = objective(&self.population, problem, w) - self.best;
        // Where even pooled data gains next to nothing, what is lost is compared with what could matter.
        let regret = lost / (self.null - self.best).max(LEAST_GAIN * self.null.abs());
        if regret.is_nan() { f64::INFINITY } else { regret }
    }
}

/// Which records of a law.
#[derive(Debug, Clone, Copy)]
enum Rows {
    /// Those that a study learns from.
    Own,
    /// Others.
    New,
}

/// The rows of one set with columns standardised by released moments.
pub(crate) struct Standardised {
    /// The study with the typical values that follow from them.
    study: Study,
    problem: Problem,
    population: Population,
}

impl MadeUp {
    /// All sets, for a study whose parameters are searched for.
    pub fn of(study: &StudySpec) -> Result<Self, PlanError> {
        refuse_own_budgets(study)?;
        let mut made_up = Self::without_sets(study)?;
        made_up.sets = (0..SETS).into_par_iter().map(|index| made_up.set(index)).collect();
        Ok(made_up)
    }

    /// The shape of the sets, and none of them.
    pub fn without_sets(study: &StudySpec) -> Result<Self, PlanError> {
        let count = match &study.data {
            DataSpec::Synthetic { clients, .. } | DataSpec::Files { layout: Layout::Split(clients), .. } => *clients,
            _ => study.plan.as_ref().and_then(|plan| plan.clients).unwrap_or(0),
        };
        // Checked before this many names and edges are made.
        let least = f64::from(study.rounds) * study.features() as f64 * count as f64 * 20.0;
        if least > MOST_WORK || count > MOST_CLIENTS {
            return Err(PlanError::TooLarge(least));
        }
        let (names, records) = clients(study)?;
        if let Some(name) = study.clients.keys().find(|name| names.find(name).is_none()) {
            return Err(PlanError::Run(SimError::UnknownClient { name: name.clone(), clients: names.to_string() }));
        }
        let graph = study.build_graph(&names, 0)?;
        let made = fewer(&records, names.len(), study.features());
        let mean = |records: &[usize]| records.iter().sum::<usize>() as f64 / records.len() as f64;
        let (clients, features) = (graph.clients() as f64, study.features() as f64);
        let work = Work {
            data_round: 4.0 * clients * mean(&made) * features,
            mixing_round: (4.0 * graph.edges() as f64 + 20.0 * clients) * features,
        };
        let all = f64::from(study.rounds) * (work.data_round + work.mixing_round);
        if all > MOST_WORK {
            return Err(PlanError::TooLarge(all));
        }
        let fewer = mean(&records) / mean(&made);
        let plain = plain(study, made).check()?;
        Ok(Self { names, graph, records, fewer, work, plain, sets: Vec::new() })
    }

    /// Whether so many clients can assume what the study does, and be lost.
    pub fn check_trust(&self, spec: &StudySpec) -> Result<(), PlanError> {
        let clients = self.names.len();
        spec.trust(clients)?;
        match losses(spec, clients) {
            lost if lost + 2 > clients => {
                let message = format!("= {lost} of {clients} clients leaves fewer than two; plan for fewer");
                Err(StudyError::at("plan.losses", message).into())
            }
            _ => Ok(()),
        }
    }

    /// Makes set number `index`.
    fn set(&self, index: usize) -> Set {
        let draw = |law: usize| {
            let (population, problem) = self.draw(law);
            let (best, null) = (minimum(&population, &problem), null_model(&population, &problem));
            (law, Measured::of(population, &problem, &best, &null), problem, best, null)
        };
        let tables = self.plain.spec().schema();
        let tells = |records: &Measured| tables.is_none() || records.gain() >= LEAST_GAIN;
        let mut drawn = draw(index);
        for again in 1..REDRAWN {
            if tells(&drawn.1) {
                break;
            }
            drawn = draw(index + again * SETS);
        }
        let (law, records, problem, best, null) = drawn;
        let new = tables.filter(|_| index >= SEEN).map(|schema| {
            let new = Population::from_loaded(&self.plain, self.rows(law, schema, Rows::New));
            Measured::of(new.expect("made-up records are valid"), &problem, &best, &null)
        });
        Set { law, problem, records, new }
    }

    /// The records of a law, and the problem that they pose.
    fn draw(&self, law: usize) -> (Population, Problem) {
        let population = match &self.plain.spec().data {
            DataSpec::Synthetic { .. } => Population::load(&self.plain, law as u32),
            DataSpec::Files { schema, .. } => Population::from_loaded(&self.plain, self.rows(law, schema, Rows::Own)),
        };
        let population = population.expect("made-up records are valid");
        let problem = self.plain.problem(|| population.paper_lambda1());
        (population, problem)
    }

    /// Records of a law of tables, encoded by a schema.
    fn rows(&self, law: usize, schema: &Schema, which: Rows) -> Vec<Loaded> {
        let spec = self.plain.spec();
        let law_schema = spec.schema().expect("tables have columns");
        let classification = spec.loss.is_classification();
        let law = TableLaw::new(spec.seed, law as u32, law_schema, classification);
        // All that is made up is trained on: what a client keeps out of training was taken off its number of records.
        let schema = &Schema { holdout: 0.0, ..schema.clone() };
        let encoder = Encoder { schema, classification };
        let share = law_schema.holdout;
        let sizes = spec.public_records().expect("given when it was made");
        let sizes: Vec<usize> = sizes.iter().map(|&count| trained(count, share)).collect();
        let client = |k: usize| {
            let mut loaded = Loaded::empty(self.names.get(k));
            let own = sizes[k % sizes.len()];
            let (stream, count) = match which {
                Rows::Own => (k, own),
                Rows::New => (k + self.names.len(), own.div_ceil(FOR_ONE_NEW)),
            };
            law.draw(stream, count, |cells: &[Cell]| {
                encoder.push(cells, &String::new, &mut loaded).expect("drawn inside the public bounds");
            });
            loaded
        };
        (0..self.names.len()).map(client).collect()
    }

    /// The study to run on made-up sets: its budget is compensated for fewer records. None if that is not possible.
    pub fn study(&self, mut spec: StudySpec) -> Option<Study> {
        spec.data = self.plain.spec().data.clone();
        spec.seed = self.plain.spec().seed;
        // The data says it already, and a study says it once.
        spec.clients.values_mut().for_each(|client| client.records = None);
        spec.simulation.losses = losses(&spec, self.names.len());
        // Who lies in a rehearsal says nothing about the parameters.
        spec.simulation.liars = 0;
        if let Some(privacy) = &mut spec.privacy {
            privacy.noise = NoiseKind::Fast;
            match &mut privacy.budget {
                BudgetSpec::Epsilon(epsilon) => *epsilon = self.scaled(*epsilon, privacy.delta, privacy.accountant)?,
                BudgetSpec::First(phi1) => *phi1 *= self.fewer * self.fewer,
            }
        }
        for phi1 in spec.clients.values_mut().filter_map(|client| client.phi1.as_mut()) {
            *phi1 *= self.fewer * self.fewer;
        }
        spec.check().ok()
    }

    /// All sets standardised as the study asks for; none if it does not, or if its moments cannot be released.
    pub fn standardised(&self, study: &Study) -> Option<Vec<Standardised>> {
        let moments = study.moments()?;
        let one = |index: usize| self.standardise(study, &moments, self.sets[index].law, index as u32);
        (0..SETS).into_par_iter().map(one).collect()
    }

    /// The models, in the units of the table, that a study learns on records of one law with two draws of all of its noise; none if one diverges.
    pub fn twice(&self, study: &Study, law: usize) -> Option<[Model; 2]> {
        let (population, problem) = self.draw(law);
        let once = |trial: u32| match study.moments() {
            None => Some(Model::new(study, self.learn(study, &problem, &population, trial)?)),
            Some(moments) => {
                let own = self.standardise(study, &moments, law, trial)?;
                let w = self.learn(&own.study, &own.problem, &own.population, trial)?;
                Some(Model::new(&own.study, w))
            }
        };
        Some([once(law as u32)?, once((law + SETS) as u32)?])
    }

    /// What the model that a study learns on a set loses. Infinite for a run that diverges.
    pub fn lost(&self, study: &Study, index: usize, standardised: Option<&Standardised>) -> Lost {
        let set = &self.sets[index];
        let learned = match standardised {
            None => self.learn(study, &set.problem, &set.records.population, index as u32),
            Some(Standardised { study: own, problem, population }) => {
                let classification = study.spec().loss.is_classification();
                let schema = own.spec().schema().expect("tables have columns");
                let plain = self.plain.spec().schema().expect("tables have columns");
                let back = |w: Vec<f64>| plain.scaled_units(&schema.original_units(&w, classification), classification);
                self.learn(study, problem, population, index as u32).map(back)
            }
        };
        let Some(w) = learned else { return Lost { here: f64::INFINITY, new: f64::INFINITY } };
        let here = set.records.regret(&set.problem, &w);
        Lost { here, new: set.new.as_ref().map_or(here, |new| new.regret(&set.problem, &w)) }
    }

    fn learn(&self, study: &Study, problem: &Problem, population: &Population, trial: u32) -> Option<Vec<f64>> {
        let clipped = population.with_clipping(study.clipping());
        last_release(study, problem, &clipped, &self.graph, trial).ok()
    }

    /// The rows of a law with columns standardised by released moments; none where they cannot be released.
    fn standardise(&self, study: &Study, moments: &Study, law: usize, trial: u32) -> Option<Standardised> {
        let schema = moments.spec().schema()?;
        let population = Population::from_loaded(moments, self.rows(law, schema, Rows::Own)).ok()?;
        let divisor = population.divisor()?;
        let released = last_release(moments, &moments.problem(|| 0.0), &population, &self.graph, trial).ok()?;
        let trust = moments.masking(self.names.len(), || divisor).ok()?.map(|masking| masking.trust);
        let fitted = study.standardised(&released, self.names.len(), divisor, trust.as_ref()).ok()?;
        let population = Population::from_loaded(&fitted, self.rows(law, fitted.spec().schema()?, Rows::Own)).ok()?;
        let problem = fitted.problem(|| population.paper_lambda1());
        Some(Standardised { study: fitted, problem, population })
    }

    /// The epsilon whose rho is larger by the square of what is missing in records.
    fn scaled(&self, epsilon: f64, delta: f64, accountant: Accountant) -> Option<f64> {
        if self.fewer == 1.0 {
            return Some(epsilon);
        }
        let (epsilon, delta) = (Epsilon::new(epsilon).ok()?, Delta::new(delta).ok()?);
        let rho = accountant.rho(epsilon, delta).get() * self.fewer * self.fewer;
        Some(accountant.epsilon(Rho::new(rho).ok()?, delta).get())
    }
}

/// How many clients are lost in the runs that parameters are chosen on: as the study says, else one where there are masks, which a lost
/// client leaves behind, and three clients or more.
pub(crate) fn losses(spec: &StudySpec, clients: usize) -> usize {
    let masked = spec.privacy.is_some_and(|privacy| privacy.colluders.is_some());
    spec.plan.as_ref().and_then(|plan| plan.losses).unwrap_or(usize::from(masked && clients > 2))
}

/// Budgets of which a plan cannot keep the total.
fn refuse_own_budgets(study: &StudySpec) -> Result<(), StudyError> {
    if study.privacy.as_ref().is_some_and(|privacy| matches!(privacy.budget, BudgetSpec::First(_))) {
        return Err(StudyError::at(
            "privacy.phi1",
            "gives every algorithm a different total; write privacy.epsilon to compare them",
        ));
    }
    if study.clients.values().any(|client| client.phi1.is_some()) {
        return Err(StudyError::at(
            "client",
            "has a phi1 of its own, which gives it a different total with every algorithm; name the algorithm, or remove it",
        ));
    }
    Ok(())
}

/// As many records as a made-up set needs, in the same proportions.
fn fewer(records: &[usize], clients: usize, features: usize) -> Vec<usize> {
    let all: f64 = (0..clients).map(|k| records[k % records.len()] as f64).sum();
    let enough = (GOOD_ENTRIES / (features + 4) as f64).max((FEWEST_PER_FEATURE * features) as f64);
    let share = (enough / all).min(1.0);
    records.iter().map(|&m| ((m as f64 * share) as usize).max(FEWEST.min(m))).collect()
}

/// The study on made-up records without privacy, with an algorithm that suits any study.
fn plain(study: &StudySpec, records: Vec<usize>) -> StudySpec {
    let mut spec = StudySpec {
        algorithm: AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 1.0),
        liars: None,
        privacy: None,
        seed: study.seed.wrapping_add(OTHER_DATA) & i64::MAX as u64,
        ..study.clone()
    };
    spec.clients.values_mut().for_each(|client| client.records = None);
    if let DataSpec::Files { layout: layout @ Layout::StandIn { .. }, .. } = &mut spec.data {
        *layout = Layout::Folder;
    }
    // With those that are kept out of training, as a study states them.
    let kept = 1.0 - spec.schema().map_or(0.0, |schema| schema.holdout);
    spec.records(records.iter().map(|&count| (count as f64 / kept).round() as usize).collect::<Vec<_>>())
}

/// How many of so many records are trained on, about.
fn trained(records: usize, holdout: f64) -> usize {
    ((records as f64 * (1.0 - holdout)).round() as usize).max(1)
}

/// The clients, and how many records they train on: one number for all, or one for each.
pub fn clients(study: &StudySpec) -> Result<(Names, Vec<usize>), PlanError> {
    let (names, mut records) = stated_clients(study)?;
    let share = study.schema().map_or(0.0, |schema| schema.holdout);
    records.iter_mut().for_each(|count| *count = trained(*count, share));
    Ok((names, records))
}

/// The same with the records that are kept out of training.
fn stated_clients(study: &StudySpec) -> Result<(Names, Vec<usize>), PlanError> {
    let layout = match &study.data {
        DataSpec::Synthetic { clients, records, .. } => return Ok((Names::numbered(*clients), records.clone())),
        DataSpec::Files { layout: Layout::StandIn { clients, records, .. }, .. } => {
            return Ok((Names::listed(clients.clone()), records.clone()));
        }
        DataSpec::Files { layout, .. } => layout,
    };
    let Some(records) = study.public_records() else {
        return Err(StudyError::at(
            "data.records",
            "is missing; planning reads no data, so write about how many records each client has",
        )
        .into());
    };
    let numbered = |count: usize| (1..=count).map(|k| k.to_string()).collect();
    let clients: Vec<String> = match (layout, &study.graph, &study.plan) {
        _ if study.clients.len() >= 2 && study.clients.values().all(|c| c.id.is_some() || c.records.is_some()) => {
            study.clients.keys().cloned().collect()
        }
        (Layout::Split(count), ..) => numbered(*count),
        (_, GraphSpec::Edges(edges), _) => {
            let mut names: Vec<String> = edges.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
            names.sort();
            names.dedup();
            names
        }
        (_, _, Some(PlanSpec { clients: Some(count), .. })) => numbered(*count),
        // A list with one number for each client says how many there are.
        _ if records.len() > 1 => numbered(records.len()),
        _ => return Err(StudyError::at("plan.clients", "is missing; write how many clients there will be").into()),
    };
    if records.len() != 1 && records.len() != clients.len() {
        let (listed, clients) = (records.len(), clients.len());
        let message = format!("lists {listed} numbers for {clients} clients; write one for all or one for each");
        return Err(StudyError::at("data.records", message).into());
    }
    Ok((Names::listed(clients), records))
}
