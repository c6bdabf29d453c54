//! Beyond the paper: free rounds compared with zCDP-NFL, at the same (epsilon, delta), with the same 200 messages and the same tuning
//! effort, over a grid of problems, budgets, networks and features. What is compared on the paper's network is run with five
//! seeds that no figure and no search uses.

use std::fmt::Write;

use crate::compare::{self, Gain};
use crate::grid::{Extent, INGREDIENT_EPSILON, cells, ingredient_places, is_repeated};
use crate::runs::{Measure, Repeats, Runs};
use crate::tuned::Tuned;
use crate::verdict::{Claim, Comparison, Verdict};
use crate::{Case, EPSILONS, Ingredient, Method, Setting, Task, Topology};
use undertone_core::watch::{Share, Watch};
use undertone_sim::plot::{Chart, Curve, PALETTE};
use undertone_sim::run::SimError;

/// The number of seeds behind the comparison on the paper's network.
pub const SEEDS: u64 = 5;
/// What free rounds is compared with.
pub(crate) const RIVALS: [Method; 2] = [Method::Zcdp, Method::ZcdpEqual];

/// Runs the grid. The seeds follow that of the figures, so that the two show different data.
pub fn compute(cases: &[Case], tuned: &Tuned, seed: u64, trials: u32, watch: &dyn Watch) -> Result<Runs, SimError> {
    let (repeated, single): (Vec<Case>, Vec<Case>) = cases.iter().partition(|case| is_repeated(case));
    let repeats = Repeats { seeds: seed + 1..seed + 1 + SEEDS, trials };
    let first = Share { whole: watch, from: 0.0, to: 0.7 };
    let paper = Runs::compute(&repeated, tuned, &repeats, Measure::LastRound, &first)?;
    let rest = Share { whole: watch, from: 0.7, to: 1.0 };
    Ok(paper.and(Runs::compute(&single, tuned, &Repeats::once(seed + 1, trials), Measure::LastRound, &rest)?))
}

/// The error of zCDP-NFL, or of free rounds without one part, compared with that of free rounds, in one cell.
pub(crate) fn gain(runs: &Runs, cell: &Case, rival: Method) -> Option<Gain> {
    compare::gain(runs, cell, rival, Method::FreeRounds)
}

pub(crate) fn topology(topology: Topology) -> String {
    match topology {
        Topology::Degree(degree) => format!("mean degree {degree}"),
        Topology::Ring => "ring".into(),
    }
}

pub(crate) fn features(condition: f64) -> String {
    if condition == 1.0 { "equal feature variances".into() } else { format!("feature variances 1 to 1/{condition}") }
}

fn place(cell: &Case) -> String {
    let Setting { clients, condition, .. } = cell.setting;
    let network = topology(cell.setting.topology);
    format!("{}, {clients} clients, {network}, {}, epsilon {}", cell.task.title(), features(condition), cell.epsilon)
}

/// The goals, judged.
pub fn claims(runs: &Runs) -> Vec<Claim> {
    vec![goal(runs), never_worse(runs)]
}

fn goal(runs: &Runs) -> Claim {
    let mut measured = Vec::new();
    let mut outcomes = Vec::new();
    for (task, factor) in [(Task::ElasticNet, 10.0), (Task::Lad, 20.0), (Task::Ridge, 10.0)] {
        let cell = Case { setting: Setting::PAPER, task, method: Method::FreeRounds, epsilon: INGREDIENT_EPSILON };
        for rival in RIVALS {
            let Some(gain) = gain(runs, &cell, rival) else { continue };
            let judged = rival == Method::Zcdp;
            if judged {
                outcomes.push(judge(&gain, factor));
            }
            let aim = if judged { format!("goal: {factor}") } else { "not judged".into() };
            measured.push(format!("{}, epsilon 1: {} has {} ({aim})", task.title(), rival.label(), gain.text()));
        }
    }
    Claim {
        text: "Free rounds has at most a tenth of the error of zCDP-NFL on elastic net and ridge, and a twentieth on LAD, at \
               epsilon 1.",
        rule: "holds where zCDP-NFL has more than this multiple of the error, in the geometric mean over trials with 95% confidence and in \
               the ratio of the mean errors; \"equal terms\" gives zCDP-NFL exact accounting and averaging too, and is not part of the \
               judgement",
        measured,
        verdict: Verdict::of(&outcomes),
    }
}

/// Whether a rival has more than `factor` times the error: typically, with 95% confidence, and in the mean.
pub(crate) fn judge(gain: &Gain, factor: f64) -> Comparison {
    match gain {
        Gain { pairs, means, .. } if pairs.low > factor && *means > factor => Comparison::For,
        Gain { pairs, .. } if pairs.high < factor => Comparison::Against,
        _ => Comparison::Unclear,
    }
}

fn never_worse(runs: &Runs) -> Claim {
    let mut measured = Vec::new();
    let mut outcomes = Vec::new();
    for rival in RIVALS {
        let found = |cell: Case| Some((cell, gain(runs, &cell, rival)?));
        let gains: Vec<(Case, Gain)> = cells(Extent::Full).into_iter().filter_map(found).collect();
        let judged: Vec<Comparison> = gains.iter().map(|(_, gain)| judge(gain, 1.0)).collect();
        measured.extend(counts(rival, &gains, &judged));
        if rival == Method::Zcdp {
            // Level is not worse.
            let fine = |j: &Comparison| if *j == Comparison::Against { *j } else { Comparison::For };
            outcomes.extend(judged.iter().map(fine));
        }
    }
    Claim {
        text: "Free rounds is nowhere worse than zCDP-NFL.",
        rule: "holds where free rounds does not have the larger error in the geometric mean over trials, with 95% confidence; it counts as \
               better where it has the smaller error in this sense and in the mean; \"equal terms\" is not part of the judgement",
        measured,
        verdict: Verdict::of(&outcomes),
    }
}

/// In how many cells free rounds is better than a rival, and where it gains least.
fn counts(rival: Method, gains: &[(Case, Gain)], judged: &[Comparison]) -> Vec<String> {
    let count = |wanted| judged.iter().filter(|j| **j == wanted).count();
    let (better, worse) = (count(Comparison::For), count(Comparison::Against));
    let mut least: Vec<_> = gains.iter().collect();
    least.sort_by(|a, b| a.1.pairs.mean.total_cmp(&b.1.pairs.mean));
    let mut lines = vec![format!(
        "{}: better in {better} of {} cells, worse in {worse}, level in {}; larger mean error in {}; the median gain is {:.1} times",
        rival.label(),
        gains.len(),
        gains.len() - better - worse,
        gains.iter().filter(|(_, gain)| gain.means < 1.0).count(),
        least.get(least.len() / 2).map_or(f64::NAN, |(_, gain)| gain.pairs.mean)
    )];
    for (cell, gain) in least.iter().take(3) {
        lines.push(format!("least: {}: {} has {}", place(cell), rival.label(), gain.text()));
    }
    lines
}

/// Gains over zCDP-NFL by budget, on the paper's network and data.
pub fn chart(runs: &Runs) -> Chart {
    let curve = |index: usize, task: Task, rival: Method| {
        let point = |(x, &epsilon): (usize, &f64)| {
            let cell = Case { setting: Setting::PAPER, task, method: Method::FreeRounds, epsilon };
            gain(runs, &cell, rival).map(|Gain { pairs, .. }| (x as f64, pairs.mean, pairs.low, pairs.high))
        };
        Curve {
            name: format!("{}, {}", task.name(), if rival == Method::Zcdp { "the paper's" } else { "equal terms" }),
            color: PALETTE[index],
            points: EPSILONS.iter().enumerate().filter_map(point).collect(),
        }
    };
    let pairs = RIVALS.into_iter().flat_map(|rival| Task::ALL.map(|task| (task, rival)));
    Chart {
        title: "Error of zCDP-NFL divided by that of free rounds".into(),
        x_label: "total epsilon (at delta 1e-5)".into(),
        y_label: "geometric mean of the ratios, with its 95% interval".into(),
        x_names: EPSILONS.iter().map(f64::to_string).collect(),
        curves: pairs.enumerate().map(|(i, (task, rival))| curve(i, task, rival)).collect(),
    }
}

/// Every comparison of the grid and of the ingredients.
pub fn csv(runs: &Runs) -> String {
    let mut text = String::from(
        "clients,topology,condition,problem,epsilon,rival,trials,ratio_geometric_mean,ratio_low,ratio_high,ratio_of_means,\
         worst_to_median_of_rival,worst_to_median_of_free_rounds\n",
    );
    let mut row = |cell: &Case, rival: Method| {
        let Some(Gain { pairs, means, worst_of_rival, worst_of_method, trials }) = gain(runs, cell, rival) else {
            return;
        };
        let Setting { clients, topology, condition, .. } = cell.setting;
        let (topology, task, epsilon, rival) = (topology.name(), cell.task.name(), cell.epsilon, rival.name());
        let _ = write!(text, "{clients},{topology},{condition},{task},{epsilon},{rival},{trials},");
        let _ =
            writeln!(text, "{},{},{},{means},{worst_of_rival},{worst_of_method}", pairs.mean, pairs.low, pairs.high);
    };
    for cell in cells(Extent::Full) {
        RIVALS.iter().for_each(|rival| row(&cell, *rival));
    }
    for cell in ingredient_places() {
        Ingredient::ALL.iter().for_each(|ingredient| row(&cell, Method::Without(*ingredient)));
    }
    text
}
