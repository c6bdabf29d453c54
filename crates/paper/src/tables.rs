//! The tables of "beyond the paper", for the report and for the README.

use std::fmt::Write;

use crate::beyond::{RIVALS, SEEDS, chart, features, gain, judge, topology};
use crate::compare::Gain;
use crate::grid::{Extent, ingredient_places, settings};
use crate::runs::Runs;
use crate::verdict::Comparison;
use crate::{Case, EPSILONS, Ingredient, Method, Setting, Task};
use undertone_sim::plot::PlotError;

/// The cells of a task on the paper's network and data.
fn cells(task: Task) -> [Case; 5] {
    EPSILONS.map(|epsilon| Case { setting: Setting::PAPER, task, method: Method::FreeRounds, epsilon })
}

/// The section of the report.
pub fn section(runs: &Runs) -> Result<String, PlotError> {
    let figure = format!(
        "<figure>{}<figcaption>beyond.svg, beyond.csv: the paper's network and data</figcaption></figure>",
        chart(runs).svg()?
    );
    Ok(figure + &paper_network(runs) + &grid(runs) + &ingredients(runs))
}

/// The number of trials behind a comparison on the paper's network.
fn trials(runs: &Runs) -> usize {
    cells(Task::Lad).iter().find_map(|cell| gain(runs, cell, Method::Zcdp)).map_or(0, |gain| gain.trials)
}

/// The same in words.
fn effort(runs: &Runs) -> String {
    let trials = trials(runs);
    format!("{trials} trials, {} with each of {SEEDS} seeds", trials as u64 / SEEDS)
}

/// One number of a comparison, as text.
type Line = fn(&Gain) -> String;

/// Three ways to average, on the paper's network and data.
fn paper_network(runs: &Runs) -> String {
    let mut body = format!(
        "<h3>The paper's network and data</h3><p class=lead>{}, none of them seen by a figure above or by the tuning. Each trial has its own \
         data, graph and noise, the same for both methods. <em>Geometric mean</em>: of the ratio of the two errors in a trial, with its 95% \
         interval; the typical gain, in which rare failures hardly count. <em>Ratio of means</em>: the mean error of the rival divided by that \
         of free rounds, in which they count fully. <em>Worst</em>: the largest error of a method in a trial, divided by its median. On equal \
         terms, zCDP-NFL has exact accounting and averaging too.</p><div class=wide><table><tr><th>rival<th>problem<th>{}",
        effort(runs),
        EPSILONS.iter().map(|epsilon| format!("<th>epsilon {epsilon}")).collect::<String>()
    );
    let lines: [(&str, Line); 4] = [
        ("geometric mean", short),
        ("ratio of means", |gain| digits(gain.means)),
        ("worst, rival", |gain| digits(gain.worst_of_rival)),
        ("worst, free rounds", |gain| digits(gain.worst_of_method)),
    ];
    for rival in RIVALS {
        for task in Task::ALL {
            for (line, (name, text)) in lines.iter().enumerate() {
                let head = if line == 0 { (rival.label(), task.name()) } else { ("", "") };
                let _ = write!(body, "<tr><td>{}<td>{}<td>{name}", head.0, head.1);
                for cell in cells(task) {
                    let _ = write!(body, "<td>{}", gain(runs, &cell, rival).as_ref().map_or("–".into(), text));
                }
            }
        }
    }
    body + "</table></div>"
}

fn grid(runs: &Runs) -> String {
    let head: String = EPSILONS.iter().map(|epsilon| format!("<th>epsilon {epsilon}")).collect();
    let mut body = format!(
        "<h3>The grid</h3><p class=lead>The error of tuned zCDP-NFL divided by that of free rounds: the geometric mean over trials with the \
         95% interval, then the ratio of the means; above 1, free rounds is better. On the paper's network there is a second line: there \
         zCDP-NFL has exact accounting and averaging too. Trials of one seed, except on the paper's network as above; 10 trials with 500 \
         clients.</p><div class=wide><table><tr><th>clients<th>network<th>features<th>problem{head}"
    );
    for setting in settings(Extent::Full) {
        for task in Task::ALL {
            let cells = EPSILONS.map(|epsilon| Case { setting, task, method: Method::FreeRounds, epsilon });
            let lines = |cell: &Case| -> Vec<String> {
                let gains = RIVALS.iter().filter_map(|rival| gain(runs, cell, *rival));
                gains.map(|gain| format!("{} <small>| {}</small>", short(&gain), digits(gain.means))).collect()
            };
            if cells.iter().all(|cell| lines(cell).is_empty()) {
                continue;
            }
            let Setting { clients, condition, .. } = setting;
            let network = topology(setting.topology);
            let _ = write!(body, "<tr><td>{clients}<td>{network}<td>{}<td>{}", features(condition), task.name());
            for cell in cells {
                let _ = write!(body, "<td>{}", lines(&cell).join("<br>"));
            }
        }
    }
    body + "</table></div>"
}

fn ingredients(runs: &Runs) -> String {
    let mut body = format!(
        "<h3>What each part contributes</h3><p class=lead>The factor by which the error grows when one part is removed and all else is tuned again \
         with the same effort, at epsilon 1 on the paper's network: the geometric mean over {}, with its 95% interval, then the ratio of the \
         means. The interval is that of the data, graphs and noise. It does not contain the randomness of the two searches.</p>\
         <div class=wide><table><tr><th>without",
        effort(runs)
    );
    let places: Vec<Case> =
        ingredient_places().into_iter().filter(|place| gain(runs, place, Method::Zcdp).is_some()).collect();
    for cell in &places {
        let _ = write!(body, "<th>{}, {}", cell.task.name(), features(cell.setting.condition));
    }
    let rows = Ingredient::ALL.map(|ingredient| (ingredient.title(), Method::Without(ingredient)));
    for (name, rival) in
        rows.into_iter().chain([("free rounds themselves (zCDP-NFL on equal terms)", Method::ZcdpEqual)])
    {
        let _ = write!(body, "<tr><td>{name}");
        for cell in &places {
            let text = |gain: Gain| format!("{} <small>| {}</small>", short(&gain), digits(gain.means));
            let _ = write!(body, "<td>{}", gain(runs, cell, rival).map_or("–".into(), text));
        }
    }
    body + "</table></div>"
}

fn digits(value: f64) -> String {
    if value >= 9.95 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// The geometric mean and its interval.
fn short(gain: &Gain) -> String {
    let class = match judge(gain, 1.0) {
        Comparison::For => "better",
        Comparison::Against => "worse",
        _ => "level",
    };
    let [mean, low, high] = [gain.pairs.mean, gain.pairs.low, gain.pairs.high].map(digits);
    format!("<span class={class}>{mean}</span> <small>{low}–{high}</small>")
}

/// The comparison on the paper's network, as in the README: what is gained, and the worst trials.
pub fn markdown(runs: &Runs) -> String {
    let head = |first: &str| {
        let budgets: String = EPSILONS.iter().map(|epsilon| format!(" {epsilon} |")).collect();
        format!("| {first}; epsilon |{budgets}\n|---|{}\n", "---|".repeat(EPSILONS.len()))
    };
    let row = |name: &str, task: Task, text: &dyn Fn(&Case) -> Option<String>| {
        let values = cells(task).map(|cell| format!(" {} |", text(&cell).unwrap_or("–".into())));
        format!("| {name}{} |{}\n", task.title().to_lowercase(), values.concat())
    };
    let plain = |value: f64| if value >= 9.95 { format!("{value:.0}") } else { format!("{value:.1}") };
    let mut text = head("gain in the geometric mean / in the mean");
    for (rival, name) in RIVALS.into_iter().zip(["", "*on equal terms:* "]) {
        for task in Task::ALL {
            text += &row(name, task, &|cell| {
                let Gain { pairs, means, .. } = gain(runs, cell, rival)?;
                Some(format!("{} / {}", plain(pairs.mean), plain(means)))
            });
        }
    }
    text += "\n";
    text += &head(&format!("worst of {} trials / median: `free-rounds`, zCDP-NFL, on equal terms", trials(runs)));
    for task in Task::ALL {
        text += &row("", task, &|cell| {
            let [paper, equal] = RIVALS.map(|rival| gain(runs, cell, rival));
            let (paper, equal) = (paper?, equal?);
            let worst = [paper.worst_of_method, paper.worst_of_rival, equal.worst_of_rival];
            Some(worst.map(plain).join(", "))
        });
    }
    text
}
