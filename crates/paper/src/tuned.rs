//! The parameters of every experiment: found with the same effort for all, on data that no figure uses, and committed.

use std::fmt::Write;

use rayon::prelude::*;
use undertone_core::study::{Document, StudyError};

use crate::figure::Figure;
use crate::grid::{self, Extent};
use crate::{Case, Method, Setting, Topology};
use undertone_core::knob::Scale;
use undertone_core::watch::{Unwatched, Watch};
use undertone_plan::tune::{Dial, Judged, Parameters, Search, Stage, stage, tune};
use undertone_sim::run::{Shared, run_sharing};

/// Tuning uses the seeds from here on; figures refuse to use them.
pub const SEED: u64 = 7_777_777;
/// So many of them: one for the last choices, and some for every part of a search.
pub const SEEDS: u64 = 1 + PART * (1 + REFINED);
const PART: u64 = 10;

/// The search for networks of the paper's size: 780 points and 5680 trials in the whole box, and 1600 for the choice.
const WHOLE_BOX: Search = Search {
    passes: 2,
    stages: &[stage(200, 3), stage(90, 8), stage(60, 12), stage(40, 20)],
    last: stage(3, 200),
    seed: 0,
};
/// Then around the best, so many times: 140 points and 1760 trials, and 1800 for the choice.
const AROUND: Search =
    Search { passes: 1, stages: &[stage(60, 8), stage(40, 12), stage(40, 20)], last: stage(4, 300), seed: 0 };
const REFINED: u64 = 3;
/// The last choice for larger ones, whose trials take ten times as long.
const LAST_OF_LARGE: Stage = stage(5, 30);
/// The search from where a smaller network was tuned: 50 points and 248 trials.
const NEARBY: Search =
    Search { passes: 1, stages: &[stage(24, 3), stage(16, 6), stage(10, 8)], last: LAST_OF_LARGE, seed: 0 };
/// The search for a large network for which a smaller one gives no start: 96 points and 288 trials.
const WIDE: Search =
    Search { passes: 1, stages: &[stage(60, 2), stage(24, 4), stage(12, 6)], last: LAST_OF_LARGE, seed: 0 };

/// The first line of the committed table.
pub const COMMENT: &str = "Tuned parameters of all experiments. Made by: undertone reproduce --full --tune --out new && cp new/tuned.toml crates/paper/src/";
/// The committed result of that.
const TUNED: &str = include_str!("tuned.toml");

/// The round in which the second preset makes all methods equally good.
pub const MATCHED_ROUND: u32 = 100;
/// Step sizes (or penalties, for P-ADMM) tried for that.
const MATCHED_EFFORT: usize = 16;

/// The table of tuned parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned(Vec<(Case, Parameters)>);

/// Everything that is tuned, small networks before large ones.
fn all_cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Figure::ALL
        .into_iter()
        .flat_map(Figure::cases)
        .chain(grid::cases(Extent::Full))
        .chain(grid::trust_cases(true))
        .collect();
    let name = |case: &Case| (case.setting.clients, case.setting.name(), case.task.name(), case.method.name());
    cases.sort_by(|a, b| name(a).cmp(&name(b)).then(a.epsilon.total_cmp(&b.epsilon)));
    cases.dedup();
    cases
}

/// What is tuned. 200 rounds are too few for information to cross a ring of 500, so there is no mixing to wait for.
fn dials(case: &Case) -> Vec<Dial> {
    let hopeless = case.setting.topology == Topology::Ring && case.setting.clients > Setting::PAPER.clients;
    let many = |dial: Dial| match dial.knob.name {
        "data_rounds" if hopeless => Dial { scale: Scale::Count(50.0, 199.0), ..dial },
        _ => dial,
    };
    case.dials().into_iter().map(many).collect()
}

/// One part of the search for a case.
fn search(case: &Case, search: Search, start: Option<&Parameters>, part: u64, shared: &Shared) -> Parameters {
    // All last choices are made on the same data, so that central solutions, which take most of the time there, are reused.
    let seed = |draw: u64| if draw + 1 == search.draws() { SEED } else { SEED + 1 + PART * part + draw };
    let build = |parameters: &Parameters, draw: u64| case.varied(parameters, seed(draw), 1).ok();
    tune(&dials(case), Search { seed: part, ..search }, start, &build, Judged::Own, shared).parameters
}

/// The whole search for a case. One search of the whole box often ends beside the best: equal ones differ by a factor of two.
fn careful(case: &Case, shared: &Shared) -> Parameters {
    let found = search(case, WHOLE_BOX, None, 0, shared);
    (1..=REFINED).fold(found, |best, part| search(case, AROUND, Some(&best), part, shared))
}

/// The same comparison among fewer clients.
fn smaller(case: &Case) -> Case {
    Case { setting: Setting { clients: Setting::PAPER.clients, ..case.setting }, ..*case }
}

impl Tuned {
    /// The committed one.
    pub fn committed() -> Self {
        Self::parse(TUNED).expect("the committed table is valid")
    }

    /// The same with `wanted` tuned anew; `None` if it was cancelled.
    pub fn anew(&self, wanted: &[Case], watch: &dyn Watch) -> Option<Self> {
        let shared = Shared::exact_only();
        let mut tuned = self.clone();
        let order: Vec<Case> = all_cases().into_iter().filter(|case| wanted.contains(case)).collect();
        for (done, case) in order.iter().enumerate() {
            watch.progress(done as f64 / order.len() as f64);
            if watch.is_cancelled() {
                return None;
            }
            let found = match case.setting {
                Setting { clients, .. } if clients <= Setting::PAPER.clients => careful(case, &shared),
                // The parameters of a small ring are not a good start for a large one.
                Setting { topology: Topology::Ring, .. } => search(case, WIDE, None, 0, &shared),
                _ => search(case, NEARBY, Some(tuned.get(&smaller(case))), 0, &shared),
            };
            tuned.put(*case, found);
        }
        Some(tuned)
    }

    fn put(&mut self, case: Case, parameters: Parameters) {
        match self.0.iter_mut().find(|row| row.0 == case) {
            Some(row) => row.1 = parameters,
            None => self.0.push((case, parameters)),
        }
    }

    /// The second preset, for what the figures need: all methods start equally fast. `None` if it was cancelled.
    pub fn matched(&self, figures: &[Figure], watch: &dyn Watch) -> Option<Self> {
        let shared = Shared::exact_only();
        let mut all = self.clone();
        let cases: Vec<Case> = figures.iter().flat_map(|figure| figure.cases()).collect();
        for (done, case) in cases.iter().enumerate() {
            watch.progress(done as f64 / cases.len() as f64);
            if watch.is_cancelled() {
                return None;
            }
            // Free rounds has no speed to match: it moves in few, large steps.
            if case.method != Method::FreeRounds {
                let zcdp = self.get(&Case { method: Method::Zcdp, ..*case });
                all.put(*case, matched(case, zcdp, &shared));
            }
        }
        Some(all)
    }

    /// The parameters of one case.
    pub fn get(&self, case: &Case) -> &Parameters {
        let found = self.0.iter().find(|row| row.0 == *case);
        &found.unwrap_or_else(|| panic!("{case:?} is not tuned")).1
    }

    /// As TOML, in the committed form; each method with its own parameters.
    pub fn to_toml(&self, comment: &str) -> String {
        let mut text = format!("# {comment}\n");
        let mut head = String::new();
        for (case, parameters) in &self.0 {
            let now = format!("[{}.{}.{}]", case.setting.name(), case.task.name(), case.method.name());
            if now != head {
                let _ = writeln!(text, "\n{now}");
                head = now;
            }
            let values: Vec<String> = parameters.0.iter().map(|(dial, value)| dial.written(*value)).collect();
            let _ = writeln!(text, "\"{}\" = {{ {} }}", case.epsilon, values.join(", "));
        }
        text
    }

    fn parse(text: &str) -> Result<Self, StudyError> {
        let document = Document::parse(text, "tuned.toml")?;
        let mut rows = Vec::new();
        for case in all_cases() {
            let mut place = document.reader();
            for part in [&case.setting.name(), case.task.name(), case.method.name(), &case.epsilon.to_string()] {
                place = place.table_required(part)?;
            }
            let dials = case.dials().into_iter();
            let values: Result<_, StudyError> = dials.map(|dial| Ok((dial, dial.read(&mut place)?))).collect();
            rows.push((case, Parameters(values?)));
        }
        Ok(Self(rows))
    }
}

/// The paper's comparison, as far as described: the parameters of zCDP-NFL for all, but the other method's step size such
/// that it converges as fast at first, which here means over the first half of the rounds. For P-ADMM, which has no step
/// size, the penalty.
fn matched(case: &Case, zcdp: &Parameters, shared: &Shared) -> Parameters {
    let own = |parameters: &Parameters| {
        let value =
            |dial: Dial| (dial, parameters.get(dial.knob.name).expect("zCDP-NFL has every knob of the other methods"));
        Parameters(case.method.candidate().dials().into_iter().map(value).collect())
    };
    let early = |case: &Case, parameters: &Parameters| {
        let mut spec = case.study(parameters, SEED, 3).ok()?.spec().clone();
        spec.simulation.metrics_every = MATCHED_ROUND;
        let outcome = run_sharing(&spec.check().ok()?, shared, &Unwatched).ok()?;
        Some(outcome.points.first()?.error?.w.mean)
    };
    let target = early(&Case { method: Method::Zcdp, ..*case }, zcdp);
    // (eps,delta)DP-NFL is zCDP-NFL except for its noise.
    let Some(target) = target.filter(|_| ![Method::Zcdp, Method::Dp].contains(&case.method)) else {
        return own(zcdp);
    };
    let key = match case.method {
        Method::PAdmm | Method::PAdmmUnclipped => "rho",
        _ => "eta",
    };
    let at = |share: f64| own(&zcdp.with(key, share));
    let distance = |share: &f64| early(case, &at(*share)).map_or(f64::INFINITY, |error| (error / target).ln().abs());
    // Even steps over the whole range, then over the two steps around the best.
    let step = 1.0 / MATCHED_EFFORT as f64;
    let mut best = 0.5;
    for (low, width) in [(0.0, 1.0), (-step, 2.0 * step)] {
        let from = if width == 1.0 { low } else { best + low };
        let shares: Vec<f64> = (0..MATCHED_EFFORT).map(|i| from + width * (i as f64 + 0.5) * step).collect();
        let distances: Vec<f64> = shares.par_iter().map(distance).collect();
        let nearest = (0..MATCHED_EFFORT).min_by(|&a, &b| distances[a].total_cmp(&distances[b]));
        best = shares[nearest.expect("some were tried")];
    }
    at(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LEARNING_EPSILON, Task};
    use undertone_plan::tune::error;

    #[test]
    fn the_committed_table_is_complete_and_prints_as_it_was_read() {
        let tuned = Tuned::committed();
        assert!(tuned.to_toml(COMMENT) == TUNED, "the table is printed differently than it was read");
        for (case, parameters) in &tuned.0 {
            let study = case.study(parameters, 1, 2).unwrap();
            assert_eq!(study.algorithm().clips(), case.method != Method::PAdmmUnclipped);
        }
    }

    #[test]
    fn tuning_beats_the_middle_of_the_box_and_repeats() {
        let shared = Shared::exact_only();
        let case =
            Case { setting: Setting::PAPER, task: Task::Lad, method: Method::GradSqrt, epsilon: LEARNING_EPSILON };
        let stages = [stage(30, 2), stage(12, 3)];
        let build = |parameters: &Parameters, draw: u64| case.study(parameters, SEED + draw, 1).ok();
        let dials = case.method.candidate().dials();
        let tuned = || tune(&dials, Search::brief(&stages), None, &build, Judged::Own, &shared);
        let best = tuned();
        assert_eq!(best, tuned());
        let middle = tune(&dials, Search::brief(&[]), None, &build, Judged::Own, &shared).parameters;
        let unseen = |parameters: &Parameters| error(&case.study(parameters, 1, 1).unwrap(), 3, Judged::Own, &shared);
        assert!(unseen(&best.parameters) < 0.5 * unseen(&middle));
    }
}
