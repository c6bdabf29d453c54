//! Plans as JSON.

use serde_json::{Value, json};

use crate::{Plan, Regret, Row, TrustRow};

/// The plan and what trust is worth, as JSON.
pub fn to_json(plan: &Plan, trust: &[TrustRow]) -> Value {
    let row = |row: &Row| {
        let noise = plan.noise(row);
        let rounds: Vec<_> =
            noise.iter().map(|r| json!({"round": r.round, "phi": r.phi, "sigma": r.sigma, "masks": r.masks})).collect();
        let parameters: serde_json::Map<_, _> =
            row.parameters.0.iter().map(|(dial, value)| (dial.key(), value.to_string().into())).collect();
        let Regret { q10, median, q90, .. } = row.regret;
        json!({
            "algorithm": row.algorithm,
            "standardise": row.study.spec().privacy.and_then(|privacy| privacy.standardise),
            "regret": { "q10": q10, "median": median, "q90": q90 },
            "skill": { "q10": 1.0 - q90, "median": 1.0 - median, "q90": 1.0 - q10 },
            "parameters": parameters,
            "noised_rounds": rounds,
        })
    };
    let of_trust = |row: &TrustRow| {
        let Regret { q10, median, q90, .. } = row.regret;
        json!({
            "colluders": row.colluders,
            "regret": { "q10": q10, "median": median, "q90": q90 },
            "epsilon_if_all_others_collude": row.epsilon_alone,
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
