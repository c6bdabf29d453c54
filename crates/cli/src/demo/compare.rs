//! What the demo ends with: the peers' model beside the solution of the pooled data.

use std::path::Path;

use serde_json::Value;
use undertone_core::study::Study;
use undertone_core::watch::Unwatched;

use super::VICTIM;
use super::peers::{Peer, Peers};
use crate::{Failure, digits};

/// Number of simulations for comparison.
const SIMULATIONS: usize = 20;

/// Compares the peers' model with the solution of the pooled data and with simulations of the same study.
pub fn compare(study: &Study, peers: &Peers, folder: &Path, seconds: f64, comings: &str) -> Result<String, Failure> {
    let (models, statements): (Vec<Value>, Vec<Value>) = peers
        .all
        .iter()
        .map(|Peer { hospital, .. }| {
            Some((result(&hospital.state, "model.json")?, result(&hospital.state, "statement.json")?))
        })
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| Failure::machine("a peer wrote no model"))?
        .into_iter()
        .unzip();
    // Secure noise is new in every run, so each simulation is an independent sample.
    let mut spec = study.spec().clone();
    spec.simulation.metrics_every = study.rounds();
    let first = undertone_sim::run(&spec.check().map_err(Failure::input)?, &Unwatched).map_err(Failure::input)?;
    let central = first.central.map_err(Failure::machine)?;
    let mut distances = vec![distance(&first.model.w, &central.w)];
    spec.simulation.central = false;
    let rehearsal = spec.check().map_err(Failure::input)?;
    for _ in 1..SIMULATIONS {
        let outcome = undertone_sim::run(&rehearsal, &Unwatched).map_err(Failure::input)?;
        distances.push(distance(&outcome.model.w, &central.w));
    }
    let w = numbers(&models[0]["made"]["scaled"]);
    let own = distance(&w, &central.w);
    let same = models.iter().all(|model| numbers(&model["made"]["scaled"]) == w);
    let (low, high) = (fold(&distances, f64::min), fold(&distances, f64::max));
    let computed: Vec<u64> = statements.iter().map(|s| s["rounds"]["computed"].as_u64().unwrap_or(0)).collect();
    let spent = statements.iter().filter_map(|s| s["epsilon"].as_f64()).fold(0.0, f64::max);
    let mut text = format!("{comings}\n\n");
    text += &format!("{:12} {:>14} {:>14}\n", "", "ten peers", "pooled data");
    let pooled = undertone_data::Model::new(study, central.w.clone()).to_json(study, &Default::default());
    text += &format!(
        "{:12} {:>14.4} {:>14.4}\n",
        "intercept",
        models[0]["intercept"].as_f64().unwrap_or(f64::NAN),
        pooled["intercept"].as_f64().unwrap_or(f64::NAN)
    );
    for (name, value) in pooled["coefficients"].as_object().into_iter().flatten() {
        let own = &models[0]["coefficients"][name];
        text += &format!(
            "{name:12} {:>14.4} {:>14.4}\n",
            own.as_f64().unwrap_or(f64::NAN),
            value.as_f64().unwrap_or(f64::NAN)
        );
    }
    text += &format!(
        "\nrelative distance of the two: {own:.4}; {SIMULATIONS} simulations of the same study gave {low:.4} to {high:.4}\n\
         all ten peers hold {} model; rounds computed: {} to {} of {}\n\
         privacy spent by each: epsilon {} at delta {:e}; {:.1} s\n\
         results: {}/state/NAME/; see what a peer spent: undertone ledger show {}",
        if same { "the same" } else { "NOT the same" },
        computed.iter().min().unwrap_or(&0),
        computed.iter().max().unwrap_or(&0),
        study.rounds(),
        digits(spent, true),
        study.privacy().map_or(0.0, |p| p.delta().get()),
        seconds,
        folder.display(),
        peers.all[VICTIM].hospital.state.display(),
    );
    Ok(text)
}

fn fold(values: &[f64], pick: fn(f64, f64) -> f64) -> f64 {
    values.iter().copied().reduce(pick).unwrap_or(f64::NAN)
}

/// A file of results in a state folder.
pub fn result(state: &Path, file: &str) -> Option<Value> {
    let folders = std::fs::read_dir(state).ok()?.filter_map(|e| Some(e.ok()?.path()));
    let text = folders.filter_map(|folder| std::fs::read_to_string(folder.join(file)).ok()).next()?;
    serde_json::from_str(&text).ok()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// ||a - b||/||b||.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}
