//! What trust is worth: free rounds with masks, between free rounds that trusts nobody and a trusted centre.
//!
//! All are tuned with the same effort and compared at the same (epsilon, delta). Errors here are means over clients: a centre is one, and a
//! lost client has none.

use std::fmt::Write;

use crate::compare::Gain;
use crate::grid::{FEW_EPSILON, INGREDIENT_EPSILON as EPSILON, SHOWN, case, few, trust_cases};
use crate::runs::{Measure, Repeats, Runs};
use crate::tuned::Tuned;
use crate::verdict::{Claim, Comparison, Verdict};
use crate::{Assumed, Case, EPSILONS, Lost, Method, Setting, Task, beyond};
use undertone_core::watch::Watch;
use undertone_sim::plot::{Chart, Curve, PALETTE, PlotError};
use undertone_sim::run::SimError;

/// Runs this section, with as many seeds as the other comparisons on the paper's network.
pub fn compute(cases: &[Case], tuned: &Tuned, seed: u64, trials: u32, watch: &dyn Watch) -> Result<Runs, SimError> {
    let repeats = Repeats { seeds: seed + 1..seed + 1 + beyond::SEEDS, trials };
    Runs::compute(cases, tuned, &repeats, Measure::LastRound, watch)
}

/// The mean error of a client in every trial.
fn errors(runs: &Runs, case: &Case) -> Option<Vec<f64>> {
    let count = case.summed() as f64;
    Some(runs.errors(case)?.into_iter().map(|sum| sum / count).collect())
}

/// The error of `rival` divided by that of `method`, in the place of a case.
fn gain(runs: &Runs, place: &Case, rival: Method, method: Method) -> Option<Gain> {
    let of = |method| errors(runs, &Case { method, ..*place });
    Some(Gain::of(&of(rival)?, &of(method)?))
}

/// The goals, judged.
pub fn claims(runs: &Runs) -> Vec<Claim> {
    vec![goals(runs), lost(runs), never_worse(runs)]
}

/// Compares and writes down, for a list of places with the factor that a rival's error is to exceed.
fn compare(runs: &Runs, goals: &[(Case, Method, Method, f64)]) -> (Vec<String>, Vec<Comparison>) {
    let mut measured = Vec::new();
    let mut outcomes = Vec::new();
    for (place, rival, method, factor) in goals {
        let Some(gain) = gain(runs, place, *rival, *method) else { continue };
        outcomes.push(beyond::judge(&gain, *factor));
        measured.push(format!(
            "{}, {} clients, epsilon {}, {}: {} has {} (goal: {factor})",
            place.task.title(),
            place.setting.clients,
            place.epsilon,
            method.label(),
            rival.label(),
            gain.text()
        ));
    }
    (measured, outcomes)
}

fn goals(runs: &Runs) -> Claim {
    let mut goals = Vec::new();
    for task in Task::ALL {
        let place = case(Setting::PAPER, task, Method::FreeRounds, EPSILON);
        let [one, half] = [Assumed::One, Assumed::Half].map(Method::Masked);
        goals.push((place, Method::FreeRounds, one, 30.0));
        goals.push((place, Method::FreeRounds, half, 20.0));
        goals.push((place, Method::Zcdp, one, 500.0));
        // Within twice the error of the centre: the centre has more than half of it.
        goals.push((place, Method::Centre, one, 0.5));
        for (setting, factor) in [(Setting::TEN, 6.0), (Setting::FIVE, 3.0)] {
            goals.push((
                case(setting, task, Method::FreeRounds, FEW_EPSILON),
                Method::FreeRounds,
                few(setting),
                factor,
            ));
        }
    }
    let (measured, outcomes) = compare(runs, &goals);
    Claim {
        text: "With masks the error is a small part of that without trust, and nearly that of a trusted centre.",
        rule: "holds where the rival has more than this multiple of the error, in the geometric mean over trials with 95% confidence and in the \
               ratio of the mean errors",
        measured,
        verdict: Verdict::of(&outcomes),
    }
}

fn lost(runs: &Runs) -> Claim {
    let mut goals = Vec::new();
    for task in Task::ALL {
        for (setting, epsilon, factor) in
            [(Setting::PAPER, EPSILON, 3.0), (Setting::TEN, FEW_EPSILON, 3.0), (Setting::FIVE, FEW_EPSILON, 1.0)]
        {
            let place = case(setting, task, Method::FreeRounds, epsilon);
            goals.push((place, Method::FreeRounds, Method::MaskedLosing(Lost::One), factor));
        }
        let place = case(Setting::PAPER, task, Method::FreeRounds, EPSILON);
        goals.push((place, Method::FreeRounds, Method::MaskedLosing(Lost::Three), 1.0));
    }
    let (measured, outcomes) = compare(runs, &goals);
    Claim {
        text: "Tuned for it, a study with masks bears clients that are lost for good at half time, with their records and their masks.",
        rule: "holds where free rounds without trust, in which nobody is lost, has more than this multiple of the error, in the same sense",
        measured,
        verdict: Verdict::of(&outcomes),
    }
}

fn never_worse(runs: &Runs) -> Claim {
    let mut outcomes = Vec::new();
    let mut least: Vec<(f64, String)> = Vec::new();
    for place in trust_cases(true).into_iter().filter(|case| matches!(case.method, Method::Masked(_))) {
        let Some(gain) = gain(runs, &place, Method::FreeRounds, place.method) else { continue };
        let judged = beyond::judge(&gain, 1.0);
        outcomes.push(if judged == Comparison::Against { judged } else { Comparison::For });
        let Setting { clients, topology, condition, .. } = place.setting;
        let network = beyond::topology(topology);
        let name = format!(
            "{}, {clients} clients, {network}, {}, epsilon {}, {}",
            place.task.title(),
            beyond::features(condition),
            place.epsilon,
            place.method.label()
        );
        least.push((gain.pairs.mean, format!("{name}: {}", gain.text())));
    }
    least.sort_by(|a, b| a.0.total_cmp(&b.0));
    Claim {
        text: "Masks are nowhere worse than no trust.",
        rule: "holds where free rounds without trust does not have the smaller error in the geometric mean over trials, with 95% confidence",
        measured: least.into_iter().take(3).map(|(_, text)| format!("least gain: {text}")).collect(),
        verdict: Verdict::of(&outcomes),
    }
}

/// The mean error of a client over trials, and the middle 80% of trials.
fn band(runs: &Runs, case: &Case) -> Option<(f64, f64, f64)> {
    let mut errors = errors(runs, case)?;
    errors.sort_by(f64::total_cmp);
    let at = |level: f64| errors[(level * (errors.len() - 1) as f64).round() as usize];
    Some((errors.iter().sum::<f64>() / errors.len() as f64, at(0.1), at(0.9)))
}

const Y_LABEL: &str = "normalised error, mean over clients";

/// Error against the number of colluders, on the paper's network at epsilon 1.
pub fn colluders_chart(runs: &Runs) -> Chart {
    let clients = Setting::PAPER.clients;
    let mut methods: Vec<Method> = Assumed::ALL.map(Method::Masked).into();
    methods.push(Method::FreeRounds);
    let names = Assumed::ALL.iter().map(|a| a.colluders(clients).to_string()).chain(["all".into()]).collect();
    let curve = |(index, task): (usize, Task)| {
        let point = |(x, method): (usize, &Method)| {
            let (mean, low, high) = band(runs, &case(Setting::PAPER, task, *method, EPSILON))?;
            Some((x as f64, mean, low, high))
        };
        Curve {
            name: task.name().into(),
            color: PALETTE[index],
            points: methods.iter().enumerate().filter_map(point).collect(),
        }
    };
    // The limits are levels, drawn across.
    let level = |(index, task): (usize, Task), method: Method, name: &str| Curve {
        name: format!("{}, {name}", task.name()),
        color: PALETTE[3 + index],
        points: band(runs, &case(Setting::PAPER, task, method, EPSILON))
            .map(|(mean, _, _)| (0..methods.len()).map(|x| (x as f64, mean, mean, mean)).collect())
            .unwrap_or_default(),
    };
    let tasks = || Task::ALL.into_iter().enumerate();
    let mut curves: Vec<Curve> = tasks().map(curve).collect();
    curves.extend(tasks().map(|task| level(task, Method::Centre, "centre")));
    Chart {
        title: "Error against the number of colluders, 50 clients, epsilon 1".into(),
        x_label: "clients that collude at most".into(),
        y_label: Y_LABEL.into(),
        x_names: names,
        curves,
    }
}

/// Error against epsilon, for one task.
pub fn epsilon_chart(runs: &Runs, task: Task) -> Chart {
    let curve = |(index, method): (usize, &Method)| {
        let point = |(x, &epsilon): (usize, &f64)| {
            let (mean, low, high) = band(runs, &case(Setting::PAPER, task, *method, epsilon))?;
            Some((x as f64, mean, low, high))
        };
        Curve {
            name: method.label().into(),
            color: PALETTE[index],
            points: EPSILONS.iter().enumerate().filter_map(point).collect(),
        }
    };
    Chart {
        title: format!("{}: what trust is worth", task.title()),
        x_label: "total epsilon (at delta 1e-5)".into(),
        y_label: Y_LABEL.into(),
        x_names: EPSILONS.iter().map(f64::to_string).collect(),
        curves: SHOWN.iter().enumerate().map(curve).collect(),
    }
}

/// The charts with their file names.
pub fn charts(runs: &Runs) -> Vec<(String, Chart)> {
    let over_epsilon = Task::ALL.map(|task| (format!("trust-{}", task.name()), epsilon_chart(runs, task)));
    std::iter::once(("trust-colluders".to_string(), colluders_chart(runs))).chain(over_epsilon).collect()
}

/// Every comparison of this section, with free rounds that trusts nobody.
pub fn csv(runs: &Runs) -> String {
    let mut text = String::from(
        "clients,topology,condition,records,features,problem,epsilon,method,colluders,lost,trials,error_mean,error_q10,error_q90,\
         gain_geometric_mean,gain_low,gain_high,gain_of_means\n",
    );
    for place in trust_cases(true) {
        let Some((mean, low, high)) = band(runs, &place) else { continue };
        let Setting { clients, topology, condition, records, features } = place.setting;
        let lost = if let Method::MaskedLosing(lost) = place.method { lost.count() } else { 0 };
        let colluders = place.colluders().map_or("all".into(), |q| q.to_string());
        let gain = gain(runs, &place, Method::FreeRounds, place.method);
        let ratios =
            gain.map_or(",,,".into(), |g| format!("{},{},{},{}", g.pairs.mean, g.pairs.low, g.pairs.high, g.means));
        let _ = writeln!(
            text,
            "{clients},{},{condition},{records},{features},{},{},{},{colluders},{lost},{},{mean},{low},{high},{ratios}",
            topology.name(),
            place.task.name(),
            place.epsilon,
            place.method.name(),
            gain.map_or(0, |gain| gain.trials),
        );
    }
    text
}

/// Two significant digits.
fn plain(value: f64) -> String {
    if value >= 9.95 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// What is gained over free rounds that trusts nobody, as in the README: the geometric mean and the ratio of means.
pub fn markdown(runs: &Runs) -> String {
    let mut text = String::from("| |");
    Task::ALL.iter().for_each(|task| text += &format!(" {} |", task.title().to_lowercase()));
    text += "\n|---|---|---|---|\n";
    let mut row = |name: &str, setting: Setting, epsilon: f64, rival: Method, method: Method| {
        text += &format!("| {name} |");
        for task in Task::ALL {
            let found = gain(runs, &case(setting, task, method, epsilon), rival, method);
            let shown =
                found.map_or("–".into(), |gain| format!("{} / {}", plain(gain.pairs.mean), plain(gain.means)));
            text += &format!(" {shown} |");
        }
        text += "\n";
    };
    let (paper, free) = (Setting::PAPER, Method::FreeRounds);
    for assumed in Assumed::ALL {
        let name = format!("50 parties, epsilon 1, at most {} collude", assumed.colluders(paper.clients));
        row(&name, paper, EPSILON, free, Method::Masked(assumed));
    }
    row("the same against zCDP-NFL, one colludes", paper, EPSILON, Method::Zcdp, Method::Masked(Assumed::One));
    row(
        "the same against a trusted centre, one colludes",
        paper,
        EPSILON,
        Method::Centre,
        Method::Masked(Assumed::One),
    );
    for (lost, name) in [(Lost::One, "one party is lost"), (Lost::Three, "three parties are lost")] {
        row(&format!("the same, 5 collude, {name} at half time"), paper, EPSILON, free, Method::MaskedLosing(lost));
    }
    for setting in [Setting::TEN, Setting::FIVE] {
        let (clients, method) = (setting.clients, few(setting));
        let colluders = case(setting, Task::Lad, method, FEW_EPSILON).colluders().unwrap_or(0);
        row(
            &format!("{clients} parties, epsilon 0.5, at most {colluders} collude"),
            setting,
            FEW_EPSILON,
            free,
            method,
        );
        let lost = Method::MaskedLosing(Lost::One);
        row(&format!("{clients} parties, epsilon 0.5, one colludes, one is lost"), setting, FEW_EPSILON, free, lost);
    }
    text
}

/// The section of the report.
pub fn section(runs: &Runs) -> Result<String, PlotError> {
    let mut body = String::from(
        "<h2>What trust is worth</h2><p class=lead>If at most some of the clients pool what they know, noise that cancels between the others gives the \
         same (epsilon, delta) with far less error. Free rounds with masks, between free rounds that trusts nobody and a centre that holds \
         all records; the same tuning effort for all, five seeds that no figure and no search uses. Errors are means over clients.</p>",
    );
    for (name, chart) in charts(runs) {
        let _ = write!(body, "<figure>{}<figcaption>{name}.svg, trust.csv</figcaption></figure>", chart.svg()?);
    }
    Ok(body)
}
