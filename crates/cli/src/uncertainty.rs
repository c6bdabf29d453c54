//! What a closing release says, for people.

use serde_json::Value;

/// A table of coefficients with their intervals, and the private scores; nothing if there is nothing. `uncertainty` is that of model.json.
pub fn lines(uncertainty: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let intervals = &uncertainty["intervals"];
    let level = 100.0 * intervals["level"].as_f64().unwrap_or_default();
    if let Some(reason) = intervals["reason"].as_str() {
        lines.push(format!("no intervals: {reason}"));
    }
    if let Some(coefficients) = intervals["coefficients"].as_object() {
        lines
            .push(format!("{level:.0}% intervals around estimates of their own, with sampling and privacy noise (times as wide as without privacy)"));
        let number = |value: &Value| value.as_f64().map_or("-".into(), crate::short);
        for (name, of) in coefficients {
            let [estimate, low, high] = ["estimate", "low", "high"].map(|key| number(&of[key]));
            let widening = of["widening"].as_f64().unwrap_or(f64::NAN);
            lines.push(format!("  {name:<24}{estimate:>12}  {low} to {high}  ({widening:.1})"));
        }
    }
    if let Some(reason) = uncertainty["private_scores_reason"].as_str() {
        lines.push(format!("no private score: {reason}"));
    }
    if let Some(scores) = uncertainty["private_scores"].as_object() {
        lines.push("private score over all parties, on records that were held out".into());
        for (name, of) in scores {
            let [value, low, high] =
                ["value", "low", "high"].map(|key| of[key].as_f64().map_or("-".into(), crate::short));
            lines.push(format!("  {name:<24}{value:>12}  {low} to {high}"));
        }
    }
    lines
}
