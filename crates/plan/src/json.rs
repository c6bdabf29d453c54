//! Plans as JSON.

use serde_json::{Value, json};

use crate::{Curve, Outlook, Plan, Point, Regret, Row, TrustRow};

/// The plan and what trust is worth, as JSON.
pub fn to_json(plan: &Plan, trust: &[TrustRow]) -> Value {
    let row = |row: &Row| {
        let noise = plan.noise(row);
        let rounds: Vec<_> =
            noise.iter().map(|r| json!({"round": r.round, "phi": r.phi, "sigma": r.sigma, "masks": r.masks})).collect();
        let parameters: serde_json::Map<_, _> =
            row.parameters.0.iter().map(|(dial, value)| (dial.key(), value.to_string().into())).collect();
        json!({
            "algorithm": row.algorithm, "title": row.title(),
            "standardise": row.study.spec().privacy.and_then(|privacy| privacy.standardise),
            "regret": regret(&row.regret),
            "skill": skill(&row.regret),
            "parameters": parameters,
            "noised_rounds": rounds,
        })
    };
    let s = plan.spectrum;
    let spent = plan.spent();
    let epsilons: Option<serde_json::Map<_, _>> =
        spent.map(|(_, by)| by.iter().map(|(a, e)| (a.name().into(), (*e).into())).collect());
    json!({
        "clients": plan.graph.clients(),
        "edges": plan.graph.edges(),
        "laplacian": [s.laplacian_min, s.laplacian_max],
        "signless_laplacian": [s.signless_min, s.signless_max],
        "metropolis": [s.metropolis.0, s.metropolis.1],
        "noise_factor": s.noise_factor(),
        "bound": plan.bound(),
        "rho": spent.map(|(rho, _)| rho.get()),
        "epsilon": epsilons,
        "frame_bytes": plan.bytes().0,
        "bytes_per_client": plan.bytes().1,
        "algorithms": plan.rows.iter().map(row).collect::<Vec<_>>(),
        "trust": trust.iter().map(of_trust).collect::<Vec<_>>(),
        "epsilon_if_all_others_collude": plan.epsilon_alone(),
        "toml": plan.recommended().study.to_toml(),
    })
}

fn regret(Regret { q10, median, q90, .. }: &Regret) -> Value {
    json!({ "q10": q10, "median": median, "q90": q90 })
}

fn skill(Regret { q10, median, q90, .. }: &Regret) -> Value {
    json!({ "q10": 1.0 - q90, "median": 1.0 - median, "q90": 1.0 - q10 })
}

fn of_trust(row: &TrustRow) -> Value {
    json!({
        "colluders": row.colluders,
        "regret": regret(&row.regret),
        "epsilon_if_all_others_collude": row.epsilon_alone,
    })
}

impl Outlook {
    /// As JSON: each curve with its points and what is left out.
    pub fn to_json(&self) -> Value {
        let point = |point: &Point| json!({ "value": point.value, "regret": regret(&point.regret), "skill": skill(&point.regret), "recommended": point.planned });
        let curve = |curve: &Curve| json!({ "points": curve.points.iter().map(point).collect::<Vec<_>>(), "left_out": curve.missing });
        json!({
            "epsilon": curve(&self.epsilon),
            "clients": curve(&self.clients),
            "records": curve(&self.records),
            "trust": { "points": self.trust.iter().map(of_trust).collect::<Vec<_>>(), "left_out": self.no_trust },
        })
    }
}
