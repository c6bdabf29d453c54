//! Fair tuning: one search for all methods, so that each gets the same effort.
//!
//! The cross-entropy method (Rubinstein 1999): points are drawn from the whole box of a method's parameters, in logarithms where
//! that is natural; then, stage by stage, from a normal distribution fitted to the best sixth of the previous stage, fewer of them in
//! more trials, every stage on its own data. At the end the centre of the best and the few best, of one pass or of several, are
//! compared on data that the search has not used. What [`tune`] minimises is the error after the last round, summed over
//! clients, as the mean over trials; [`Search::least`] takes any measure.

use rand::distr::Distribution;
use undertone_core::algorithm;
use undertone_core::cholesky::Cholesky;
use undertone_core::knob::{self, Knob, Scale, Value};
use undertone_core::normal::Normal;
use undertone_core::privacy::{Accountant, Stream};
use undertone_core::study::{AlgorithmSpec, Reader, Redraw, Simulation, Study, StudyError, StudySpec};
use undertone_core::watch::Unwatched;
use undertone_sim::ranks::each;
use undertone_sim::run::{Shared, run_sharing};

/// A method that can be tuned: an algorithm, what is fixed of it, and what is searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: &'static str,
    /// Its name in the registry.
    pub algorithm: &'static str,
    /// The accountant, if it is not the study's.
    pub accountant: Option<Accountant>,
    /// Values that are not searched.
    pub fixed: &'static [(&'static str, Value)],
    /// What is searched: names of the algorithm's knobs, and "clip" and "tau" of the study's privacy.
    pub searched: &'static [&'static str],
}

/// A parameter that a search decides, and the range in which it looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dial {
    /// What is decided.
    pub knob: Knob,
    /// Whether it belongs to the study's privacy and not to its algorithm.
    pub of_privacy: bool,
    /// Where the search looks.
    pub scale: Scale,
}

impl Candidate {
    /// What is searched, in this order.
    ///
    /// # Panics
    /// If the candidate names an algorithm or a parameter that does not exist or is not searched.
    pub fn dials(&self) -> Vec<Dial> {
        let entry = algorithm::find(self.algorithm).unwrap_or_else(|| panic!("{} is not registered", self.algorithm));
        let dial = |name: &&str| {
            let (knob, of_privacy) = match *name {
                "clip" => (knob::CLIP, true),
                "tau" => (knob::tau(entry.tau), true),
                name => (*entry.knobs.iter().find(|knob| knob.name == name).expect("a knob of the algorithm"), false),
            };
            Dial { knob, of_privacy, scale: knob.search.expect("a knob that is searched") }
        };
        self.searched.iter().map(dial).collect()
    }

    /// The same with theta, where at most `colluders` of `clients` clients collude and two are left.
    pub fn masked_dials(&self, clients: usize, colluders: usize) -> Vec<Dial> {
        let mut dials = self.dials();
        if let Some(honest) = clients.checked_sub(colluders).filter(|honest| *honest >= 2) {
            let knob = knob::theta(honest);
            dials.push(Dial { knob, of_privacy: true, scale: knob.search.expect("theta is searched") });
        }
        dials
    }

    /// Turns a study into one that uses this candidate with these values. What a study without privacy does not have is
    /// left out.
    pub fn apply(&self, parameters: &Parameters, spec: &mut StudySpec) {
        let mut algorithm = AlgorithmSpec::named(self.algorithm);
        for (name, value) in self.fixed {
            algorithm = algorithm.with(name, *value);
        }
        for (dial, value) in &parameters.0 {
            match (dial.of_privacy, *value, &mut spec.privacy) {
                (false, value, _) => algorithm = algorithm.with(dial.knob.name, value),
                (true, Value::Number(value), Some(privacy)) if dial.knob.name == "clip" => privacy.clip = Some(value),
                (true, Value::Number(value), Some(privacy)) if dial.knob.name == "theta" => privacy.theta = Some(value),
                (true, Value::Number(value), Some(privacy)) => privacy.tau = Some(value),
                (true, ..) => {}
            }
        }
        spec.algorithm = algorithm;
        if let (Some(privacy), Some(accountant)) = (&mut spec.privacy, self.accountant) {
            privacy.accountant = accountant;
        }
    }
}

impl Dial {
    /// The key in a study, such as `algorithm.eta`.
    pub fn key(&self) -> String {
        format!("{}.{}", if self.of_privacy { "privacy" } else { "algorithm" }, self.knob.name)
    }

    /// Reads the value from a table of tuned parameters.
    pub fn read(&self, table: &mut Reader) -> Result<Value, StudyError> {
        let value = table.knob(&self.knob)?;
        value.ok_or_else(|| table.error(self.knob.name, format!("is missing; {}", self.knob.domain.expected())))
    }

    /// As written in a table of tuned parameters.
    pub fn written(&self, value: Value) -> String {
        match value {
            Value::Word(word) => format!("{} = \"{word}\"", self.knob.name),
            value => format!("{} = {value}", self.knob.name),
        }
    }
}

/// Tuned values, one for each dial of a candidate, in its order.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters(pub Vec<(Dial, Value)>);

impl Parameters {
    /// The value of that name, if there is one.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(dial, _)| dial.knob.name == name).map(|(_, value)| *value)
    }

    /// The same with the value of this name set to `share` of its range; without that name, the same.
    pub fn with(&self, name: &str, share: f64) -> Self {
        let turn = |(dial, value): &(Dial, Value)| {
            (*dial, if dial.knob.name == name { dial.scale.at(share.clamp(0.0, 1.0)) } else { *value })
        };
        Self(self.0.iter().map(turn).collect())
    }

    /// For display.
    pub fn text(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(|(dial, value)| format!("{} {value}", dial.knob.name)).collect();
        parts.join(", ")
    }
}

/// A part of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Points tried.
    pub points: usize,
    /// Trials of each.
    pub trials: u32,
}

/// So many points in so many trials each.
pub const fn stage(points: usize, trials: u32) -> Stage {
    Stage { points, trials }
}

/// How thoroughly to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search<'a> {
    /// How often all stages are gone through, each time with other points on other data. One pass may end in a poor region
    /// because of a few lucky trials at its beginning.
    pub passes: u32,
    /// One after the other, each around the best of the previous.
    pub stages: &'a [Stage],
    /// The last choice, between the best points of every pass's last stage and the centres of these. Failures on rare
    /// data are noticed only here, if there are enough trials.
    pub last: Stage,
    /// Seed of the points; two searches around the same start need different ones.
    pub seed: u64,
}

impl<'a> Search<'a> {
    /// One pass with a short last choice, among six with twice the trials of the last stage.
    pub fn brief(stages: &'a [Stage]) -> Self {
        Self { passes: 1, stages, last: stage(5, stages.last().map_or(1, |stage| 2 * stage.trials)), seed: 0 }
    }

    /// The number of draws of data that it uses: those from 0 on.
    pub const fn draws(&self) -> u64 {
        self.passes as u64 * self.stages.len() as u64 + 1
    }
}

/// Standard deviation of the first draws around a start, as a share of the range.
const NEAR: f64 = 0.12;
/// Added to every variance, so that the search keeps looking in all directions.
const LEAST_VARIANCE: f64 = 0.02 * 0.02;

/// Which model is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// w_k before its noise, as in the paper's figures: known only to client k.
    Own,
    /// What was released, and becomes the model.
    Released,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The best parameters.
    pub parameters: Parameters,
    /// Their mean error in the last stage.
    pub error: f64,
}

/// Searches for the best parameters of a candidate. `build` makes a study of them on the data of a given draw; a study that
/// cannot be made or run counts as the worst. Without a `start`, the search begins in the whole box.
pub fn tune(
    dials: &[Dial],
    search: Search,
    start: Option<&Parameters>,
    build: &(dyn Fn(&Parameters, u64) -> Option<Study> + Sync),
    judged: Judged,
    shared: &Shared,
) -> Found {
    let judge = |parameters: &Parameters, trials: u32, draw: u64| {
        build(parameters, draw).map_or(f64::INFINITY, |study| error(&study, trials, judged, shared))
    };
    search.least(dials, start, &judge)
}

/// What points are judged by: their parameters, a number of trials and a draw of data; the less, the better.
type Judge<'a> = &'a (dyn Fn(&Parameters, u32, u64) -> f64 + Sync);

impl Search<'_> {
    /// Searches for the parameters with the least value of `judge`; another draw for every stage of every pass.
    pub fn least(&self, dials: &[Dial], start: Option<&Parameters>, judge: Judge) -> Found {
        let start = start.map(|start| {
            let share = |dial: &Dial| start.get(dial.knob.name).map_or(0.5, |value| dial.scale.share(value));
            SearchLaw::around(dials.iter().map(share).collect())
        });
        let found = (0..self.passes).flat_map(|pass| self.finalists(dials, start.as_ref(), pass, judge));
        // A search around a start never ends with something worse, as far as the last choice can tell.
        let finalists = found.chain(start.as_ref().map(|start| start.mean.clone())).collect();
        let (error, best) = ranked(dials, finalists, self.last.trials, self.draws() - 1, judge).swap_remove(0);
        Found { parameters: parameters(dials, &best), error }
    }

    /// Goes through the stages once: the best points of the last one, and their centre.
    fn finalists(&self, dials: &[Dial], start: Option<&SearchLaw>, pass: u32, judge: Judge) -> Vec<Vec<f64>> {
        let mut law = start.cloned();
        let mut finalists = vec![law.as_ref().map_or(vec![0.5; dials.len()], |law| law.mean.clone())];
        for (index, stage) in (pass * self.stages.len() as u32..).zip(self.stages) {
            let points = (0..stage.points).map(|i| match &law {
                None => halton(pass as usize * stage.points + i + 1, dials.len()),
                Some(law) => law.draw(Stream { trial: index, client: i as u32, round: 0 }, self.seed),
            });
            let ranked = ranked(dials, points.collect(), stage.trials, index.into(), judge);
            let best: Vec<&[f64]> =
                ranked.iter().take((stage.points / 6).max(4)).map(|(_, point)| &point[..]).collect();
            let fitted = SearchLaw::fit(&best);
            let several = best.iter().take(self.last.points).map(|point| point.to_vec());
            finalists = several.chain([fitted.mean.clone()]).collect();
            law = Some(fitted);
        }
        finalists
    }
}

fn parameters(dials: &[Dial], point: &[f64]) -> Parameters {
    Parameters(dials.iter().zip(point).map(|(dial, share)| (*dial, dial.scale.at(*share))).collect())
}

/// The points with what they are judged by, best first.
fn ranked(dials: &[Dial], points: Vec<Vec<f64>>, trials: u32, draw: u64, judge: Judge) -> Vec<(f64, Vec<f64>)> {
    let errors = each(points.len(), |i| judge(&parameters(dials, &points[i]), trials, draw));
    let mut ranked: Vec<(f64, Vec<f64>)> = errors.into_iter().zip(points).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranked
}

/// A normal distribution on the unit cube.
#[derive(Clone)]
struct SearchLaw {
    mean: Vec<f64>,
    /// The root of the covariance.
    root: Cholesky,
}

impl SearchLaw {
    fn around(mean: Vec<f64>) -> Self {
        let n = mean.len();
        let mut covariance = vec![0.0; n * n];
        covariance.iter_mut().step_by(n + 1).for_each(|variance| *variance = NEAR * NEAR);
        Self { mean, root: Cholesky::new(covariance, n, LEAST_VARIANCE / 2.0) }
    }

    /// Mean and covariance of some points.
    fn fit(points: &[&[f64]]) -> Self {
        let (n, count) = (points[0].len(), points.len() as f64);
        let mean: Vec<f64> = (0..n).map(|i| points.iter().map(|p| p[i]).sum::<f64>() / count).collect();
        let covariance = |i: usize, j: usize| {
            let sum: f64 = points.iter().map(|p| (p[i] - mean[i]) * (p[j] - mean[j])).sum();
            sum / count + if i == j { LEAST_VARIANCE } else { 0.0 }
        };
        let covariance = (0..n * n).map(|at| covariance(at / n, at % n)).collect();
        // What is added to the diagonal keeps it positive.
        Self { root: Cholesky::new(covariance, n, LEAST_VARIANCE / 2.0), mean }
    }

    fn draw(&self, stream: Stream, seed: u64) -> Vec<f64> {
        let mut rng = stream.fast(seed);
        let z: Vec<f64> = self.mean.iter().map(|_| Normal.sample(&mut rng)).collect();
        let moved = (0..z.len()).map(|i| self.root.row(i).iter().zip(&z).map(|(a, z)| a * z).sum::<f64>());
        self.mean.iter().zip(moved).map(|(mean, moved)| (mean + moved).clamp(0.0, 1.0)).collect()
    }
}

/// The mean error after the last round, over trials with their own data, graph and noise; infinite for a run that diverges.
pub fn error(study: &Study, trials: u32, judged: Judged, shared: &Shared) -> f64 {
    let mut spec = study.spec().clone();
    spec.simulation = Simulation { trials, redraw: Redraw::All, metrics_every: spec.rounds, ..spec.simulation };
    let outcome = spec.check().ok().and_then(|study| run_sharing(&study, shared, &Unwatched).ok());
    let error = outcome.and_then(|outcome| outcome.last().error);
    error.map_or(f64::INFINITY, |error| match judged {
        Judged::Own => error.w.mean,
        Judged::Released => error.released.mean,
    })
}

/// Point `index` of the Halton sequence in so many dimensions.
fn halton(index: usize, dimensions: usize) -> Vec<f64> {
    const BASES: [usize; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
    let coordinate = |&base: &usize| {
        let (mut rest, mut unit, mut sum) = (index, 1.0, 0.0);
        while rest > 0 {
            unit /= base as f64;
            sum += unit * (rest % base) as f64;
            rest /= base;
        }
        sum
    };
    BASES[..dimensions].iter().map(coordinate).collect()
}
