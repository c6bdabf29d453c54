//! What parties that lie can do to a study with `[robust]`: seven attacks on the paper's kind of data, among ten parties and among fifty.
//!
//! The error is the distance of the model from the w that the data was made with, over that of the same study among the honest parties alone: without noise a run that has
//! converged has no other error than that, and no rule can tell a liar from a party whose records differ by chance.

use std::fmt::Write;

use undertone_core::study::{Attack, Study, StudyError};
use undertone_core::watch::Watch;
use undertone_sim::SimError;
use undertone_sim::data::Population;
use undertone_sim::plot::{Chart, Curve, PALETTE, PlotError};

use crate::beyond::SEEDS;
use crate::verdict::{Claim, Comparison, Verdict};

/// A network with its liars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    name: &'static str,
    title: &'static str,
    clients: usize,
    liars: usize,
    graph: &'static str,
}

/// A tenth of all parties lie, and among fifty at most a fifth of the neighbours of anybody.
pub const NETWORKS: [Network; 2] = [
    Network {
        name: "liars-ten",
        title: "One liar of ten, all neighbours",
        clients: 10,
        liars: 1,
        graph: "kind = \"complete\"",
    },
    Network {
        name: "liars-fifty",
        title: "Five liars of fifty, at most two of ten neighbours",
        clients: 50,
        liars: 5,
        graph: "kind = \"regular\"\ndegree = 10",
    },
];

const METHODS: [(&str, &str); 2] = [
    ("free rounds", "name = \"free-rounds\"\ndata_rounds = 16\neta = 0.2\nmomentum = 0.3\naverage = 0.25"),
    ("zCDP-NFL", "name = \"zcdp-nfl\"\nrho = 0.2\neta = 0.2"),
];

/// The goals: what an attack may multiply the error by, and what the rule may cost without one.
const GOALS: (f64, f64) = (3.0, 1.3);

/// One attack on one study.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Where.
    pub network: Network,
    /// The algorithm.
    pub method: &'static str,
    /// Whether there is noise, for epsilon 2.
    pub noise: bool,
    /// The attack; none for the rule without a liar.
    pub attack: Option<Attack>,
    /// The mean error over the seeds, over that without liars and without the rule.
    pub ratio: f64,
    /// The mean error itself.
    pub error: f64,
}

fn study(
    network: Network,
    clients: usize,
    method: &str,
    noise: bool,
    seed: u64,
    more: &str,
) -> Result<Study, StudyError> {
    let (head, privacy) = match noise {
        true => ("", "[privacy]\nepsilon = 2.0\ndelta = 1e-5\nclip = 5.0\n"),
        false => ("privacy = \"off\"\n", ""),
    };
    let text = format!(
        "{head}name = \"liars\"\nseed = {seed}\nrounds = 200\n[problem]\nloss = \"squared\"\n\
         [data]\nsource = \"synthetic\"\nclients = {clients}\nrecords = 50\nfeatures = 8\nnoise = 0.5\n\
         [graph]\n{}\n[algorithm]\n{method}\n{privacy}{more}",
        network.graph
    );
    Study::parse(&text, "liars.toml")
}

/// The mean over the seeds of the distance of the model from the true w.
fn error(studies: impl Iterator<Item = Result<Study, StudyError>>, watch: &dyn Watch) -> Result<f64, SimError> {
    let mut sum = 0.0;
    for study in studies {
        let study = study?;
        let truth = Population::truth(&study, 0).expect("synthetic data has one");
        let outcome = undertone_sim::run(&study, &|_| {})?;
        sum += outcome.model.w.iter().zip(&truth).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
        if watch.is_cancelled() {
            return Err(SimError::Cancelled);
        }
    }
    Ok(sum / SEEDS as f64)
}

/// Runs everything, with the seeds of the other comparisons.
pub fn compute(seed: u64, watch: &dyn Watch) -> Result<Vec<Row>, SimError> {
    let seeds = || seed + 1..seed + 1 + SEEDS;
    let places = NETWORKS.into_iter().flat_map(|network| METHODS.map(|method| (network, method)));
    let places: Vec<_> =
        places.flat_map(|(network, method)| [true, false].map(|noise| (network, method, noise))).collect();
    let mut rows = Vec::new();
    for (done, (network, (method, text), noise)) in places.iter().enumerate() {
        let Network { clients, liars, .. } = *network;
        let of = |clients: usize, more: &str| {
            error(seeds().map(|seed| study(*network, clients, text, *noise, seed, more)), watch)
        };
        let robust = format!("[robust]\nliars = {liars}\n");
        let (honest, all) = (of(clients - liars, "")?, of(clients, "")?);
        let mut add = |attack, error: f64, base: f64| {
            rows.push(Row { network: *network, method, noise: *noise, attack, ratio: error / base, error });
        };
        add(None, of(clients, &robust)?, all);
        for (name, attack) in Attack::ALL {
            let lying = format!("{robust}[simulation]\nliars = {liars}\nattack = \"{name}\"\n");
            add(Some(attack), of(clients, &lying)?, honest);
        }
        watch.progress((done + 1) as f64 / places.len() as f64);
    }
    Ok(rows)
}

/// The goals, judged.
pub fn claim(rows: &[Row]) -> Claim {
    let (attacked, free) = GOALS;
    let mut measured = Vec::new();
    let mut outcomes = Vec::new();
    for group in rows.chunk_by(same_study) {
        let (none, lies): (Vec<&Row>, Vec<&Row>) = group.iter().partition(|row| row.attack.is_none());
        let worst = lies.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio)).expect("attacks were run");
        let cost = none.first().expect("a run without a liar").ratio;
        let holds = worst.ratio <= attacked && cost <= free;
        outcomes.push(if holds { Comparison::For } else { Comparison::Against });
        measured.push(format!(
            "{}, {}: the worst attack ({}) multiplies the error by {:.2} (goal: {attacked}), the rule alone by {cost:.2} (goal: {free})",
            worst.network.title,
            curve_name(worst),
            worst.attack.map_or("", Attack::name),
            worst.ratio,
        ));
    }
    Claim {
        text: "With [robust] liars no attack makes the error more than three times as large, and without a liar the rule costs at most 1.3 times.",
        rule: "holds where both ratios of mean errors over five seeds stay within the goals",
        measured,
        verdict: Verdict::of(&outcomes),
    }
}

fn same_study(a: &Row, b: &Row) -> bool {
    (a.network, a.method, a.noise) == (b.network, b.method, b.noise)
}

fn curve_name(row: &Row) -> String {
    format!("{}, {}", row.method, if row.noise { "epsilon 2" } else { "no noise" })
}

/// One chart for each network, with its name.
pub fn charts(rows: &[Row]) -> Vec<(&'static str, Chart)> {
    let names = std::iter::once("no liar").chain(Attack::ALL.map(|(name, _)| name));
    let x_names: Vec<String> = names.map(String::from).collect();
    let chart = |network: Network| {
        let here: Vec<Row> = rows.iter().filter(|row| row.network == network).cloned().collect();
        let curve = |(index, group): (usize, &[Row])| Curve {
            name: curve_name(&group[0]),
            color: PALETTE[index],
            points: group.iter().enumerate().map(|(x, row)| (x as f64, row.ratio, row.ratio, row.ratio)).collect(),
        };
        let chart = Chart {
            title: network.title.into(),
            x_label: "attack".into(),
            y_label: "error, as a multiple of that without liars".into(),
            x_names: x_names.clone(),
            curves: here.chunk_by(same_study).enumerate().map(curve).collect(),
        };
        (network.name, chart)
    };
    NETWORKS.into_iter().map(chart).collect()
}

/// All numbers.
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from("clients,liars,method,epsilon,attack,error,ratio\n");
    for Row { network, method, noise, attack, ratio, error } in rows {
        let (clients, liars) = (network.clients, if attack.is_some() { network.liars } else { 0 });
        let (epsilon, attack) = (if *noise { "2" } else { "" }, attack.map_or("none", Attack::name));
        let _ = writeln!(text, "{clients},{liars},{method},{epsilon},{attack},{error},{ratio}");
    }
    text
}

/// The section of the report.
pub fn section(rows: &[Row]) -> Result<String, PlotError> {
    let mut body = String::from(
        "<h2>Parties that lie</h2><p class=lead>Squared loss, 50 records of 8 features in every party, 200 rounds, parameters that were not tuned. The error is the distance of the \
         model from the w that the data was made with, mean over five seeds, as a multiple of that of the same study among the honest parties alone; for \"no liar\", of that without \
         <code>[robust]</code>.</p>",
    );
    for (name, chart) in charts(rows) {
        let _ = write!(body, "<figure>{}<figcaption>{name}.svg, liars.csv</figcaption></figure>", chart.svg()?);
    }
    Ok(body)
}
