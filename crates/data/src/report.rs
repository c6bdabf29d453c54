//! What simulations and peers tell alike in the report of a study.

use undertone_core::privacy::Rho;
use undertone_core::study::{NoiseKind, Study};
use undertone_report::chart::{Estimate, number};
use undertone_report::{ScoreTable, StudyReport};

use crate::closed::PrivateScore;
use crate::{Closed, Model, Scored};

/// The part of a report that follows from the study, its model and its closing release. `pooled` is a model of pooled data, where it may be known; `spread` the
/// standard deviation that privacy noise alone gives to each coefficient, the intercept first.
pub fn begin_report(
    study: &Study,
    model: &Model,
    closed: Option<&Closed>,
    pooled: Option<&Model>,
    spread: Option<&[f64]>,
) -> StudyReport {
    let spec = study.spec();
    let (target, features): (String, Vec<String>) = match spec.schema() {
        Some(schema) => {
            (schema.target.name.clone(), schema.features.iter().map(|column| column.name.clone()).collect())
        }
        None => ("y".into(), vec![format!("{} synthetic features", study.features())]),
    };
    let intervals = closed.and_then(|closed| closed.intervals.as_ref());
    let mut report = StudyReport {
        name: study.name().to_string(),
        about: format!(
            "{target} from {}, by the {} loss and {} in {} rounds",
            features.join(", "),
            spec.loss.name(),
            study.algorithm().name(),
            study.rounds()
        ),
        coefficients: coefficients(model, closed, pooled, spread),
        toml: study.to_toml(),
        digest: hex::encode(study.digest().whole()),
        version: env!("CARGO_PKG_VERSION"),
        ..StudyReport::default()
    };
    let mut words = "Every line has its own scale, from minus to plus its largest number; the small mark is zero. Dots are the coefficients of the private model, in the units of the table.".to_string();
    match intervals {
        Some(Ok(_)) => {
            let level = 100.0 * closed.map_or(0.95, |closed| closed.level);
            words += &format!(
                " Bars are {level:.0}% intervals, with sampling and privacy noise. Each is around an estimate of its own, from the closing release, which has more noise than the model and no bias from having stopped early; it stands after the \
                 coefficient, and in brackets the interval and how many times as wide it is as without privacy."
            );
        }
        Some(Err(reason)) => words += &format!(" There are no intervals: {reason}."),
        None => words += " Intervals can be asked for with [inference] in the study.",
    }
    if spread.is_some() && !matches!(intervals, Some(Ok(_))) {
        words += " Bars reach two standard deviations of what privacy noise alone does to a coefficient, to both sides: about 95% of the runs with the same records would end there. They follow from the known noise and \
                  from made-up data with the public facts of the study, so they are rough. That other records of the same kind would give another model is not in them.";
    }
    if pooled.is_some() {
        words += " Diamonds are a model of pooled data without privacy.";
    }
    report.coefficients_note = words;
    if let Some(Err(reason)) = closed.and_then(|closed| closed.scores.as_ref()) {
        let title = format!("There is no private score over all parties: {reason}.");
        report.scores.push(ScoreTable { title, columns: Vec::new(), rows: Vec::new() });
    }
    if let Some(Ok(scores)) = closed.and_then(|closed| closed.scores.as_ref()) {
        let row = |(name, value, (low, high)): &PrivateScore| {
            vec![name.clone(), number(*value), format!("{} to {}", number(*low), number(*high))]
        };
        report.scores.push(ScoreTable {
            title: "Over all parties, released privately, on records that were kept out of training".into(),
            columns: vec!["private model".into(), "interval".into()],
            rows: scores.iter().map(row).collect(),
        });
    }
    report.assumed = assumed(study);
    report
}

fn coefficients(
    model: &Model,
    closed: Option<&Closed>,
    pooled: Option<&Model>,
    spread: Option<&[f64]>,
) -> Vec<Estimate> {
    let named = |model: &Model| {
        let first = ("intercept".to_string(), model.original.intercept);
        std::iter::once(first).chain(model.original.coefficients.clone()).collect::<Vec<_>>()
    };
    let intervals = closed.and_then(|closed| closed.intervals.as_ref()?.as_ref().ok());
    let pooled = pooled.map(named);
    let estimate = |(at, (name, value)): (usize, (String, f64))| {
        let interval = intervals.and_then(|all| all.iter().find(|interval| interval.name == name));
        let sd = spread.filter(|_| intervals.is_none()).map(|spread| spread[at]);
        let words = match (interval, sd) {
            (Some(i), _) => {
                let [estimate, low, high] = [i.estimate, i.range.0, i.range.1].map(number);
                format!("{}; {estimate} ({low} to {high}; {:.1})", number(value), i.widening)
            }
            (None, Some(sd)) => format!("{} (noise +- {})", number(value), number(2.0 * sd)),
            (None, None) => number(value),
        };
        let other = pooled.as_ref().map(|pooled| pooled[at].1);
        let range = interval.map(|i| i.range).or(sd.map(|sd| (value - 2.0 * sd, value + 2.0 * sd)));
        Estimate { name, value, interval: range, other, words }
    };
    named(model).into_iter().enumerate().map(estimate).collect()
}

/// Scores of one or several models on the same rows, as a table.
pub fn score_table(title: &str, models: &[(&str, &Scored)]) -> ScoreTable {
    let first = models.first().map(|(_, scored)| scored.scores()).unwrap_or_default();
    let rows = first.iter().map(|score| {
        let values = models.iter().map(|(_, scored)| {
            let same = scored.scores().into_iter().find(|other| other.name == score.name);
            same.map_or(String::new(), |same| number(same.model))
        });
        let null = score.null.map_or(String::new(), number);
        std::iter::once(score.name.to_string()).chain(values).chain([null]).collect()
    });
    let columns = models.iter().map(|(name, _)| name.to_string()).chain(["no features".to_string()]).collect();
    ScoreTable { title: title.to_string(), columns, rows: rows.collect() }
}

/// Epsilon after every round that costs something, by the study's accountant.
pub fn spent_by_round(study: &Study) -> Vec<(f64, f64)> {
    let Some(privacy) = study.privacy() else { return Vec::new() };
    let mut points = vec![(0.0, privacy.epsilon(privacy.before()).map_or(0.0, |epsilon| epsilon.get()))];
    let mut last = Rho::ZERO;
    for round in 1..=study.rounds() {
        let (rho, epsilon) = privacy.spent(round);
        if rho > last || round == study.rounds() {
            // A step, not a slope: nothing is spent between two data rounds.
            points.push((f64::from(round), points.last().map_or(0.0, |point| point.1)));
            points.push((f64::from(round), epsilon.get()));
            last = rho;
        }
    }
    points
}

/// What the numbers rest on, in sentences.
fn assumed(study: &Study) -> Vec<String> {
    let mut assumed = vec!["The bounds, categories and typical values in the study are public knowledge, not looked up in the records; the number of records of every party is public.".to_string()];
    let Some(privacy) = study.privacy() else {
        return vec!["Privacy is off: every message reveals the data.".into()];
    };
    assumed.push(match privacy.colluders() {
        Some(q) => format!("At most {q} of the other parties pool what they know. If this is wrong, the larger epsilon holds, which rests on a party's own noise alone."),
        None => "Nothing about the other parties, as far as privacy goes: a party is protected even if all others work together.".into(),
    });
    if study.liars() > 0 {
        assumed.push(format!("At most {} of the parties say something else than the study asks them to. This is about the model: what is private stays private whoever lies.", study.liars()));
    }
    assumed.push("One person has one record with one party. With several records, or records with several parties, a person is protected less.".into());
    if privacy.noise() == NoiseKind::Fast {
        assumed.push("noise = \"fast\" is for rehearsals: nothing of this run is safe to publish.".into());
    }
    assumed
}
