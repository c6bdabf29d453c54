//! One trial of a study, or several on the same records side by side.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use undertone_core::algorithm::{Robust, Run};
use undertone_core::client::{RoundError, Rules};
use undertone_core::graph::Graph;
use undertone_core::names::Names;
use undertone_core::privacy::{ClientBudget, Masking, Masks, Noise};
use undertone_core::problem::Problem;
use undertone_core::records::TRIALS;
use undertone_core::study::{ClientSpec, Study};
use undertone_core::swing::Swing;
use undertone_core::watch::Watch;
use undertone_data::{Closed, Held, trimmed_mean};

use crate::central::{self, Central, CentralError, Losses};
use crate::checkpoint::{Current, Keeper};
use crate::data::Population;
use crate::error::SimError;
use crate::liars::Liars;
use crate::losses::LostClients;
use crate::metrics::{Metrics, Yardstick, mean_point};
use crate::network::{ClientVectors, Ground, Points, Special, Stuck};
use crate::ranks::{Alone, Ranks, Share, share};

/// Trials that are computed together are no more than this: their vectors stay in the cache.
const MOST_TRIALS: usize = 16;

/// Where the records of a trial come from.
pub type Load<'a> = &'a (dyn Fn(&Study, u32) -> Result<Arc<Population>, SimError> + Sync);

/// Central solutions, which depend on the data and the problem but not on the algorithm: found once, used by every run
/// that is given the same `Shared`.
#[derive(Debug, Default)]
pub struct Shared {
    solved: Mutex<HashMap<String, Result<Central, CentralError>>>,
    exact_only: bool,
}

impl Shared {
    /// Does not solve the clipped problems, for runs whose distance to them is not needed.
    pub fn exact_only() -> Self {
        Self { exact_only: true, ..Self::default() }
    }

    /// The solution of a study's pooled problem, computed now if it is not known.
    fn solve(
        &self,
        study: &Study,
        population: &Population,
        problem: &Problem,
        losses: Losses,
        trial: u32,
    ) -> Result<Central, CentralError> {
        let spec = study.spec();
        if !spec.simulation.central {
            return Err(CentralError::NotAsked);
        }
        let clip = study.privacy().filter(|_| losses == Losses::Clipped).map(|p| p.clip());
        let data = (&spec.data, spec.precision, spec.weights);
        let key = format!("{data:?} {problem:?} {clip:?} {} {trial}", spec.seed);
        if let Some(known) = self.solved.lock().expect("no solver panics").get(&key) {
            return known.clone();
        }
        let found = central::solve(population, problem, losses);
        self.solved.lock().expect("no solver panics").insert(key, found.clone());
        found
    }
}

/// How far a run is.
pub struct Work<'a> {
    pub done: AtomicU64,
    pub total: u64,
    pub watch: &'a dyn Watch,
}

impl Work<'_> {
    /// Rounds of so many trials were done before.
    fn add_rounds(&self, rounds: u32, trials: u64) {
        self.done.fetch_add(u64::from(rounds) * trials, Ordering::Relaxed);
    }

    /// One round more of so many trials is done.
    fn add_round(&self, trials: u64) -> Result<(), SimError> {
        let done = self.done.fetch_add(trials, Ordering::Relaxed) + trials;
        // A thousand reports are enough for a progress bar.
        let every = (self.total / 1000).max(1);
        if done / every > (done - trials) / every || done == self.total {
            self.watch.progress(done as f64 / self.total as f64);
        }
        if self.watch.is_cancelled() { Err(SimError::Cancelled) } else { Ok(()) }
    }
}

/// Where the records come from, and which processes share them.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The records of all clients, for one process.
    pub load: Load<'a>,
    pub ranks: &'a dyn Ranks,
    /// Where the state of the run is kept.
    pub keeper: Option<&'a Keeper<'a>>,
}

/// Clients with their records and their graph.
struct Settled {
    population: Arc<Population>,
    graph: Graph,
    share: Option<Share>,
}

impl Source<'_> {
    /// The clients of a trial, divided among the ranks.
    fn settle(&self, study: &Study, trial: u32) -> Result<Settled, SimError> {
        let ranks = self.ranks;
        if ranks.is_alone() {
            let population = (self.load)(study, trial)?;
            let graph = study.build_graph(population.names(), trial)?;
            return Ok(Settled { population, graph, share: None });
        }
        let graph = || {
            let names = match Population::names_of(study)? {
                Some(names) => names,
                None => Population::load(study, trial)?.names().clone(),
            };
            match names.len() < ranks.size() {
                true => Err(SimError::TooManyRanks { ranks: ranks.size(), clients: names.len() }),
                false => Ok(study.build_graph(&names, trial)?),
            }
        };
        let graph = ranks.agree(graph())?;
        let of = ranks.from_first(|| share::cut(&graph, ranks.size(), study.spec().seed));
        let share = Share::new(&graph, &of, ranks.rank());
        let population = self.population(study, trial, Some(&share))?;
        Ok(Settled { population, graph, share: Some(share) })
    }

    /// The records of the clients that are computed here.
    fn population(&self, study: &Study, trial: u32, share: Option<&Share>) -> Result<Arc<Population>, SimError> {
        match share {
            None => (self.load)(study, trial),
            Some(share) => {
                let own = Population::load_own(study, trial, share.own(), self.ranks);
                Ok(Arc::new(self.ranks.agree(own)?))
            }
        }
    }
}

/// The mean over clients of what they release last, on these records and this graph: what becomes the model. Nothing is measured.
pub fn last_release(
    study: &Study,
    problem: &Problem,
    population: &Population,
    graph: &Graph,
    trial: u32,
) -> Result<Vec<f64>, SimError> {
    last_releases(study, problem, (population, graph, None), &Alone, trial).map(|(_, model)| model)
}

/// What the clients here release last, flat, and the mean of it over all clients that are left.
fn last_releases(
    study: &Study,
    problem: &Problem,
    (population, graph, share): (&Population, &Graph, Option<&Share>),
    ranks: &dyn Ranks,
    trial: u32,
) -> Result<(Vec<f64>, Vec<f64>), SimError> {
    let guard = Guard::new(study, population)?;
    let special = special(study, population.names(), &guard)?;
    let losses = LostClients::draw(study, graph, trial)?;
    let liars = Liars::draw(study, graph, trial)?;
    let (losses, liars) = (losses.as_ref(), liars.as_ref());
    let robust = study.robust(graph);
    let robust = robust.as_ref();
    let setting = Setting { study, population, graph, problem, special: &special, losses, liars, robust, ranks, share };
    let ground = setting.ground(&guard, trial, 1);
    let mut vectors = ClientVectors::new(&ground, study, false);
    let mut rounds = || {
        let mut first = Ok(());
        for round in 1..=study.rounds() {
            let done =
                vectors.round(&ground, ranks, round, false).map_err(|stuck| stuck.in_round(round, population.names()));
            first = first.and(done);
            if first.is_err() && ranks.is_alone() {
                break;
            }
        }
        first
    };
    ranks.agree(rounds())?;
    let released = vectors.released().to_vec();
    let model = setting.model(&released);
    match model.iter().all(|v| v.is_finite()) {
        true => Ok((released, model)),
        false => Err(SimError::Diverged { round: study.rounds() }),
    }
}

/// The study's promise of privacy, ready to use; none of it without privacy.
pub struct Guard {
    noise: Option<Noise>,
    budget: Option<ClientBudget>,
    /// What masked noise is made for, and where masks come from; none if nobody is trusted.
    masking: Option<Masking>,
    masks: Option<Masks>,
    /// The largest value that peers would accept.
    largest: f64,
}

impl Guard {
    pub fn new(study: &Study, population: &Population) -> Result<Self, SimError> {
        let mean = || population.total_records() as f64 / population.clients() as f64;
        let masking = study.masking(population.clients(), mean)?;
        let no_masks = |reason| SimError::Round {
            client: population.names().get(0).into_owned(),
            round: 1,
            reason: RoundError::Noise(reason),
        };
        Ok(Self {
            noise: study.noise(),
            budget: study.privacy().map(|privacy| privacy.client_budget(None).masked(masking)),
            masking,
            masks: study.simulated_masks().map_err(no_masks)?,
            largest: study.reach(population.clients()),
        })
    }
}

/// What a trial runs on.
pub struct Trial {
    /// The study, with the typical values that private standardisation gave it.
    pub study: Study,
    pub population: Arc<Population>,
    /// The records of all clients, where they are needed and this process is the first.
    whole: Option<Arc<Population>>,
    pub graph: Graph,
    share: Option<Share>,
    pub problem: Problem,
    pub central: Result<Central, CentralError>,
    pub surrogate: Option<Central>,
    /// The objective of the best model without features.
    pub null: Option<f64>,
    pub special: HashMap<usize, Special>,
    pub losses: Option<LostClients>,
    pub liars: Option<Liars>,
    pub robust: Option<Robust>,
    /// The trial whose data this is.
    pub draw: u32,
}

/// The study with the typical values that its clients' private moments give it, if it asks for that.
fn standardise(study: &Study, trial: u32, source: Source) -> Result<Option<Study>, SimError> {
    let Some(first) = study.moments() else { return Ok(None) };
    let Settled { population, graph, share } = source.settle(&first, trial)?;
    let place = (&*population, &graph, share.as_ref());
    let moments = last_releases(&first, &first.problem(|| 0.0), place, source.ranks, trial)?.1;
    let divisor = population.divisor().expect("records count the same where columns are standardised");
    let trust = first.masking(population.clients(), || divisor)?.map(|masking| masking.trust);
    Ok(Some(study.standardised(&moments, population.clients(), divisor, trust.as_ref())?))
}

/// What one party holding all records would compute.
#[derive(Serialize, Deserialize)]
struct Solved {
    central: Result<Central, CentralError>,
    surrogate: Option<Central>,
    null: Option<f64>,
}

/// The clients that differ from the rest, by index.
fn special(study: &Study, names: &Names, guard: &Guard) -> Result<HashMap<usize, Special>, SimError> {
    let one = |(name, client): (&String, &ClientSpec)| {
        let k = names
            .find(name)
            .ok_or_else(|| SimError::UnknownClient { name: name.clone(), clients: names.to_string() })?;
        let budget = study.client_budget(name).map(|budget| budget.masked(guard.masking));
        Ok((k, Special { eta: client.eta, budget }))
    };
    study.spec().clients.iter().map(one).collect()
}

/// What a run goes on, whatever its noise.
struct Setting<'a> {
    study: &'a Study,
    population: &'a Population,
    graph: &'a Graph,
    problem: &'a Problem,
    special: &'a HashMap<usize, Special>,
    losses: Option<&'a LostClients>,
    liars: Option<&'a Liars>,
    robust: Option<&'a Robust>,
    ranks: &'a dyn Ranks,
    share: Option<&'a Share>,
}

impl<'a> Setting<'a> {
    fn ground(&self, guard: &'a Guard, trial: u32, trials: usize) -> Ground<'a> {
        Ground {
            population: self.population,
            run: Run { rounds: self.study.rounds(), graph: self.graph, problem: self.problem, robust: self.robust },
            rules: Rules { algorithm: self.study.algorithm(), largest: guard.largest },
            special: self.special,
            privacy: guard.budget.as_ref().zip(guard.noise.as_ref()),
            masks: guard.masks.as_ref(),
            losses: self.losses,
            liars: self.liars,
            trial,
            trials,
            share: self.share,
        }
    }

    /// What becomes the model, of points of the clients here: their mean over all clients that are left at the end.
    fn model(&self, points: &[f64]) -> Vec<f64> {
        let features = self.population.features();
        if self.study.liars() > 0 {
            let left: Vec<f64> = left(points, self.population, self.losses).flatten().copied().collect();
            return trimmed_mean(&self.ranks.gather_all(&left).concat(), features, self.study.liars());
        }
        match self.losses {
            Some(_) => self.ranks.mean(left(points, self.population, self.losses), features).0,
            None => mean_point(points, self.population, self.ranks),
        }
    }
}

/// The points of the clients that are left.
fn left<'a>(
    points: &'a [f64],
    population: &'a Population,
    losses: Option<&'a LostClients>,
) -> impl Iterator<Item = &'a [f64]> {
    let is_left = move |place: usize| !losses.is_some_and(|losses| losses.is_lost(population.client(place)));
    let rows = points.chunks_exact(population.features()).enumerate();
    rows.filter(move |(place, _)| is_left(*place)).map(|(_, row)| row)
}

impl Stuck {
    fn in_round(self, round: u32, names: &Names) -> SimError {
        SimError::Round { client: names.get(self.client).into_owned(), round, reason: self.reason }
    }
}

impl Trial {
    pub fn new(study: &Study, shared: &Shared, trial: u32, source: Source) -> Result<Self, SimError> {
        let ranks = source.ranks;
        let standardised = standardise(study, trial, source)?;
        let study = standardised.as_ref().unwrap_or(study);
        let Settled { population, graph, share } = source.settle(study, trial)?;
        let special = special(study, population.names(), &Guard::new(study, &population)?)?;
        let losses = LostClients::draw(study, &graph, trial)?;
        let liars = Liars::draw(study, &graph, trial)?;
        let robust = study.robust(&graph);
        let problem = study.problem(|| population.paper_lambda1_of(ranks));
        let is_wanted = study.spec().simulation.central && central::is_small_enough(&population).is_ok();
        let whole = match ranks.is_alone() {
            true => Some(population.clone()),
            false => {
                // A problem that is small enough to be solved by one process has records that it can hold.
                let load = || Ok(Arc::new(Population::load(study, trial)?));
                ranks.agree((is_wanted && ranks.is_first()).then(load).transpose())?
            }
        };
        let clipped = study.privacy().is_some() && study.algorithm().clips() && !shared.exact_only;
        let Solved { central, surrogate, null } = ranks.from_first(|| {
            let whole = whole.as_deref().unwrap_or(&population);
            let solve = |losses| shared.solve(study, whole, &problem, losses, trial);
            let central = solve(Losses::Exact);
            let surrogate = if clipped && central.is_ok() { solve(Losses::Clipped).ok() } else { None };
            let null = central.is_ok().then(|| central::null_objective(whole, &problem));
            Solved { central, surrogate, null }
        });
        Ok(Self {
            study: study.clone(),
            population,
            whole,
            graph,
            share,
            problem,
            central,
            surrogate,
            null,
            special,
            losses,
            liars,
            robust,
            draw: trial,
        })
    }

    fn setting<'a>(&'a self, ranks: &'a dyn Ranks) -> Setting<'a> {
        Setting {
            study: &self.study,
            population: &self.population,
            graph: &self.graph,
            problem: &self.problem,
            special: &self.special,
            losses: self.losses.as_ref(),
            liars: self.liars.as_ref(),
            robust: self.robust.as_ref(),
            ranks,
            share: self.share.as_ref(),
        }
    }

    /// How many trials may be computed side by side.
    pub fn most_side_by_side(&self, guard: &Guard) -> usize {
        let algorithm = self.study.algorithm();
        let alike = guard.masks.is_none() && guard.noise.as_ref().is_none_or(Noise::takes_trials);
        if !(alike && algorithm.takes_trials()) {
            return 1;
        }
        // Where a network is too large for the cache its vectors take no more memory than its records.
        const FEW: usize = 1 << 22;
        let vectors = self.population.clients() * self.population.features() * (4 + self.study.memory(&self.graph));
        let most = self.population.stored().max(FEW) / vectors / TRIALS * TRIALS;
        most.clamp(1, MOST_TRIALS)
    }

    /// Some trials on the same records. All ranks call it.
    pub fn run(
        &self,
        guard: &Guard,
        trials: Range<u32>,
        work: &Work,
        source: Source,
    ) -> Result<Vec<Measured>, SimError> {
        let study = &self.study;
        let ranks = source.ranks;
        let setting = self.setting(ranks);
        let count = trials.len();
        // Whole vectors: those beyond the last trial are not looked at.
        let computed = if count == 1 { 1 } else { count.next_multiple_of(TRIALS) };
        let ground = setting.ground(guard, trials.start, computed);
        let yardstick = Yardstick {
            population: &self.population,
            problem: &self.problem,
            central: self.central.as_ref().ok(),
            surrogate: self.surrogate.as_ref(),
            losses: self.losses.as_ref(),
            liars: self.liars.as_ref(),
        };
        let keeps_w = (1..study.rounds()).any(|round| is_measured(study, round));
        let mut vectors = ClientVectors::new(&ground, study, keeps_w);
        let mut metrics = vec![Vec::new(); count];
        let mut swing = Swing::default();
        // What kept this rank from going on; the others learn of it when something is measured.
        let mut so_far = Ok(());
        let mut first = 1;
        if let Some((keeper, current)) = source.keeper.and_then(|keeper| Some((keeper, keeper.current(trials.start)?)))
        {
            let size = vectors.packed(&ground);
            keeper
                .restore(&current, &self.population, ranks, size, |place, row| vectors.unpack(&ground, place, row))?;
            vectors.fetch(&ground, ranks);
            work.add_rounds(current.round, count as u64);
            (first, metrics, swing) = (current.round + 1, current.metrics, current.swing);
        }
        for round in first..=study.rounds() {
            // Of the first trial alone: the others have the same steps.
            if trials.start == 0 && round > 1 && study.algorithm().touches_records(round, study.rounds()) {
                swing.add(&mean_point(&vectors.points(0).released, &self.population, ranks));
            }
            let measured = is_measured(study, round);
            let done = vectors.round(&ground, ranks, round, measured);
            so_far = so_far.and(done.map_err(|stuck| stuck.in_round(round, self.population.names())));
            so_far = so_far.and(work.add_round(count as u64));
            if measured || ranks.is_alone() {
                ranks.agree(std::mem::replace(&mut so_far, Ok(())))?;
            }
            if measured {
                for (trial, metrics) in metrics.iter_mut().enumerate() {
                    let found = yardstick.measure(&vectors.points(trial), round, ranks);
                    if !found.is_finite() {
                        return Err(SimError::Diverged { round });
                    }
                    metrics.push(found);
                }
            }
            if let Some(keeper) = source.keeper
                && round < study.rounds()
                && keeper.is_due(ranks)
            {
                ranks.agree(std::mem::replace(&mut so_far, Ok(())))?;
                let current = Current::new(trials.start, round, metrics.clone(), swing.clone());
                keeper.save(current, &self.population, ranks, |place, row| vectors.pack(&ground, place, row))?;
            }
        }
        let measured = |(at, metrics): (usize, Vec<Metrics>)| {
            let trial = trials.start + at as u32;
            let model = setting.model(&vectors.points(at).released);
            let regret = self.regret(&model);
            let closed = self.close(trial, &model, source)?;
            Ok(Measured { metrics, regret, overshoots: swing.overshoots(), closed, kept: None })
        };
        let mut all: Vec<Measured> = metrics.into_iter().enumerate().map(measured).collect::<Result<_, SimError>>()?;
        if trials.start == 0 {
            let points = vectors.into_points(0);
            let (model, average) = (setting.model(&points.released), setting.model(&points.average));
            all[0].kept = self.collect(points, ranks).map(|points| Kept { model, points, average });
        }
        Ok(all)
    }

    /// The points of all clients without their averages, for the first rank.
    fn collect(&self, own: Points<'static>, ranks: &dyn Ranks) -> Option<Points<'static>> {
        if ranks.is_alone() {
            return Some(own);
        }
        let features = self.population.features();
        let ids: Vec<u32> = (0..self.population.places()).map(|place| self.population.client(place) as u32).collect();
        let ids = ranks.gather_first(&ids);
        // One after the other: the first rank has memory for its own clients and not much more.
        let whole = |own: Cow<'static, [f64]>| {
            let parts = ranks.gather_first(&own.into_owned())?;
            let mut all = vec![0.0; self.population.clients() * features];
            for (ids, part) in ids.as_ref()?.iter().zip(parts) {
                for (&id, point) in ids.iter().zip(part.chunks_exact(features)) {
                    all[id as usize * features..][..features].copy_from_slice(point);
                }
            }
            Some(Cow::Owned(all))
        };
        let (w, released) = (whole(own.w), whole(own.released));
        Some(Points { w: w?, released: released?, average: Cow::Borrowed(&[]) })
    }

    /// What the clients keep out of training, one after the other, for the first rank.
    pub fn held(&self, ranks: &dyn Ranks) -> Option<Vec<Held>> {
        let own = self.population.held();
        if ranks.is_alone() {
            return Some(own.to_vec());
        }
        let own: Vec<(u32, Vec<f64>, Vec<f64>)> = own
            .iter()
            .enumerate()
            .map(|(place, held)| (self.population.client(place) as u32, held.rows.clone(), held.truths.clone()))
            .collect();
        let mut all = ranks.gather_first(&own)?.concat();
        all.sort_unstable_by_key(|(id, ..)| *id);
        Some(all.into_iter().map(|(_, rows, truths)| Held { rows, truths }).collect())
    }

    /// The closing release, if the study has one, and what it says.
    fn close(&self, trial: u32, model: &[f64], source: Source) -> Result<Option<Closed>, SimError> {
        let clients = self.population.clients();
        let Some(closing) = self.study.closing(model, clients) else { return Ok(None) };
        let population = source.population(&closing, self.draw, self.share.as_ref())?;
        let place = (&*population, &self.graph, self.share.as_ref());
        let released = last_releases(&closing, &closing.problem(|| 0.0), place, source.ranks, trial)?.0;
        let left = left(&released, &population, self.losses.as_ref());
        let divisor = population.divisor().expect("records count the same where there is a closing release");
        let (mean, present) = source.ranks.mean(left, population.features());
        Ok(Closed::new(&self.study, &closing, &mean, (clients, present), divisor))
    }

    /// What a model loses against pooled data, as a share of what pooled data gains over no features at all; none where that is
    /// nothing.
    fn regret(&self, model: &[f64]) -> Option<f64> {
        let best = self.central.as_ref().ok()?.objective;
        let gain = self.null? - best;
        let lost = central::objective(self.whole.as_deref()?, &self.problem, model) - best;
        (gain > 1e-9 * best.abs().max(gain)).then_some(lost / gain)
    }
}

pub fn is_measured(study: &Study, round: u32) -> bool {
    round.is_multiple_of(study.spec().simulation.metrics_every) || round == study.rounds()
}

/// What came of a trial.
#[derive(Serialize, Deserialize)]
pub struct Measured {
    pub metrics: Vec<Metrics>,
    pub regret: Option<f64>,
    pub overshoots: bool,
    /// What was released after the last round.
    pub closed: Option<Closed>,
    /// Of the first trial, at the first rank.
    #[serde(skip)]
    pub kept: Option<Kept>,
}

/// What is reported of a trial besides its metrics.
#[derive(Serialize, Deserialize)]
pub struct Kept {
    /// The mean of the last releases.
    pub model: Vec<f64>,
    pub points: Points<'static>,
    /// The mean of the averages of releases.
    pub average: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALGORITHMS: [&str; 6] = [
        "name = \"free-rounds\"\ndata_rounds = 7\neta = 0.4\nmomentum = 0.3\naverage = 0.5",
        "name = \"free-rounds\"\ndata_rounds = 7\neta = 0.4\nprox = false\nmixing = \"metropolis\"",
        "name = \"zcdp-nfl\"\nrho = 0.5\neta = 0.4\ndecay = \"sqrt\"",
        "name = \"zcdp-nfl\"\nrho = 0.5\neta = 0.4\naverage = 0.3",
        "name = \"zcdp-grad-nfl\"\neta = 0.3\ndecay = \"inverse\"",
        "name = \"p-admm\"\nrho = 0.8",
    ];
    const LOSSES: [&str; 6] = [
        "loss = \"squared\"\nregularizer = \"l2\"\nlambda = 0.2",
        "loss = \"absolute\"\nregularizer = \"l1\"\nlambda = 0.2",
        "loss = \"huber\"\nthreshold = 0.5\nregularizer = \"l2\"\nlambda = 0.2",
        "loss = \"quantile\"\nlevel = 0.3\nregularizer = \"elastic-net\"\nlambda1 = 0.1\nlambda2 = 0.2\nlambda = 0.5",
        "loss = \"logistic\"\nregularizer = \"l2\"\nlambda = 0.2",
        "loss = \"hinge\"",
    ];
    const SYNTHETIC: &str =
        "source = \"synthetic\"\nclients = 9\nrecords = [21, 8, 13, 20, 5, 17, 18, 9, 11]\nfeatures = 5";
    const TABLES: &str = "source = \"stand-in\"\nclients = [\"1\", \"2\", \"3\", \"4\", \"5\"]\nrecords = 30\nintercept = true\nfeatures = [\"age\", \"sex\"]\n\
         target = \"days\"\nbounds.age = [0, 100]\nbounds.days = [0, 60]\ncategories.sex = [\"f\", \"m\"]";

    fn study(algorithm: &str, loss: &str, data: &str, privacy: bool, more: &str) -> Option<Study> {
        let privacy = if privacy { "[privacy]\nepsilon = 3\ndelta = 1e-5\nclip = 0.8\ntau = 0.97" } else { "" };
        let off = if privacy.is_empty() { "privacy = \"off\"" } else { "" };
        let text = format!(
            "seed = 42\nrounds = 20\n{off}\n[problem]\n{loss}\n[data]\n{data}\n[graph]\nkind = \"ring\"\n[algorithm]\n{algorithm}\n{privacy}\n\
             [simulation]\ntrials = 11\nmetrics_every = 5\ncentral = false\n{more}"
        );
        Study::parse(&text, "test").ok()
    }

    /// The vectors of each trial after the last round, computed in groups of so many.
    fn points(study: &Study, each: u32) -> Vec<Vec<u64>> {
        let population = Arc::new(Population::load(study, 0).unwrap());
        let load = |_: &Study, _: u32| Ok(population.clone());
        let source = Source { load: &load, ranks: &Alone, keeper: None };
        let trial = Trial::new(study, &Shared::default(), 0, source).unwrap();
        let guard = Guard::new(study, &population).unwrap();
        let setting = trial.setting(&Alone);
        let mut all = Vec::new();
        for first in (0..11).step_by(each as usize) {
            let computed = if each == 1 { 1 } else { (each as usize).next_multiple_of(TRIALS) };
            let ground = setting.ground(&guard, first, computed);
            let mut vectors = ClientVectors::new(&ground, study, false);
            for round in 1..=study.rounds() {
                vectors.round(&ground, &Alone, round, round == study.rounds()).map_err(|stuck| stuck.reason).unwrap();
            }
            for at in 0..each.min(11 - first) {
                let Points { w, released, average } = vectors.points(at as usize);
                all.push(w.iter().chain(&*released).chain(&*average).map(|v| v.to_bits()).collect());
            }
        }
        all
    }

    /// Every trial has the bits that it has alone: for all algorithms, losses and kinds of data, with and without noise, and with liars expected.
    #[test]
    fn trials_side_by_side_are_the_trials() {
        let mut compared = 0;
        for algorithm in ALGORITHMS {
            let single = format!("{SYNTHETIC}\nprecision = \"single\"");
            for (loss, data) in LOSSES.iter().flat_map(|loss| [SYNTHETIC, TABLES, &single].map(|data| (loss, data))) {
                for (privacy, more) in
                    [(true, ""), (false, ""), (true, "[robust]\nliars = 1\n[client.2]\nphi1 = 1e-3\n")]
                {
                    let Some(study) = study(algorithm, loss, data, privacy, more) else { continue };
                    if !study.algorithm().takes_trials() {
                        continue;
                    }
                    let alone = points(&study, 1);
                    assert!(alone[1] != alone[2] || !privacy, "every trial has noise of its own");
                    for each in [2, 8, 11] {
                        assert!(points(&study, each) == alone, "{algorithm} {loss} {more} in groups of {each}");
                    }
                    compared += 1;
                }
            }
        }
        assert!(compared > 80, "{compared} studies");
    }

    /// Groups are used where they can be, and not where trials differ in more than their noise.
    #[test]
    fn trials_are_grouped_where_they_share_their_records() {
        let most = |study: &Study| {
            let load = |study: &Study, trial: u32| Ok(Arc::new(Population::load(study, trial)?));
            let trial =
                Trial::new(study, &Shared::default(), 0, Source { load: &load, ranks: &Alone, keeper: None }).unwrap();
            trial.most_side_by_side(&Guard::new(study, &trial.population).unwrap())
        };
        let of = |algorithm: &str, more: &str| most(&study(algorithm, LOSSES[0], SYNTHETIC, true, more).unwrap());
        assert_eq!(of(ALGORITHMS[0], ""), MOST_TRIALS);
        assert_eq!(of(ALGORITHMS[5], ""), 1, "a step that finds a minimum");
        let secure = study(ALGORITHMS[0], LOSSES[0], SYNTHETIC, true, "").unwrap();
        let mut spec = secure.spec().clone();
        spec.privacy.as_mut().unwrap().noise = undertone_core::study::NoiseKind::Secure;
        assert_eq!(most(&spec.check().unwrap()), 1, "noise that is safe to release");
    }
}
