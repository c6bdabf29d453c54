//! A study as TOML.

use toml::{Table, Value};

use crate::closing::Closing;
use crate::csv_format::CsvFormat;
use crate::graph::GraphSpec;
use crate::knob::{self, Settings};
use crate::problem::Weights;
use crate::records::Precision;
use crate::regularizer::Regularizer;
use crate::schema::{ColumnKind, Missing, Outside, Scaling, Schema};
use crate::study::{
    AlgorithmSpec, BudgetSpec, ClientSpec, DataSpec, Layout, NoiseKind, PrivacySpec, Redraw, RegularizerSpec,
    Simulation, StudySpec,
};

fn list<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::Array(items.into_iter().map(Into::into).collect())
}

macro_rules! table {
    ($($key:literal : $value:expr),* $(,)?) => {{
        let mut table = Table::new();
        $(table.insert($key.into(), Value::from($value));)*
        table
    }};
}

/// A study as a table.
pub fn table(spec: &StudySpec) -> Table {
    let mut top = table! { "name": spec.name.clone(), "seed": spec.seed as i64, "rounds": i64::from(spec.rounds) };
    top.insert("problem".into(), print_problem(spec).into());
    let mut data = print_data(&spec.data);
    // Studies that do not use it keep their digest.
    if spec.precision == Precision::Single {
        data.insert("precision".into(), "single".into());
    }
    top.insert("data".into(), data.into());
    top.insert("graph".into(), print_graph(&spec.graph).into());
    top.insert("algorithm".into(), print_algorithm(&spec.algorithm));
    top.insert("privacy".into(), spec.privacy.as_ref().map_or("off".into(), |p| print_privacy(p).into()));
    top.insert("simulation".into(), print_simulation(spec.simulation).into());
    if !spec.clients.is_empty() {
        let clients: Table = spec.clients.iter().map(|(name, c)| (name.clone(), print_client(c).into())).collect();
        top.insert("client".into(), clients.into());
    }
    if let Some(relay) = &spec.relay {
        top.insert("network".into(), table! { "relay": relay.clone() }.into());
    }
    if let Some(quorum) = spec.quorum {
        top.insert("peers".into(), table! { "quorum": quorum as i64 }.into());
    }
    if let Some(liars) = spec.liars {
        top.insert("robust".into(), table! { "liars": liars as i64 }.into());
    }
    if let Some(plan) = &spec.plan {
        let mut table = Table::new();
        if let Some(clients) = plan.clients {
            table.insert("clients".into(), (clients as i64).into());
        }
        if let Some(losses) = plan.losses {
            table.insert("losses".into(), (losses as i64).into());
        }
        if let Some((worse, better)) = plan.skill {
            table.insert("skill".into(), list([worse, better]));
        }
        top.insert("plan".into(), table.into());
    }
    if let Some(level) = spec.inference {
        top.insert("inference".into(), table! { "level": level }.into());
    }
    if let Some(closing) = &spec.closing {
        top.insert("inference".into(), print_closing(closing).into());
    }
    top
}

/// A closing study is not written down; this is for its digest.
fn print_closing(closing: &Closing) -> Table {
    let mut table = table! {
        "loss": closing.loss.name(),
        "model": list(closing.w.iter().copied()),
        "scores": closing.scores,
        "radius": closing.radius,
        "slope": closing.slope,
        "range": closing.range,
    };
    add_settings(&mut table, &closing.loss.settings());
    if let Some(share) = closing.hessian {
        table.insert("hessian".into(), share.into());
    }
    table
}

fn add_settings(table: &mut Table, settings: &Settings) {
    for (name, value) in settings.iter() {
        let value = match value {
            knob::Value::Number(v) => Value::from(v),
            knob::Value::Count(v) => Value::from(i64::from(v)),
            knob::Value::Flag(v) => Value::from(v),
            knob::Value::Word(v) => Value::from(v),
        };
        table.insert(name.into(), value);
    }
}

fn print_algorithm(algorithm: &AlgorithmSpec) -> Value {
    let AlgorithmSpec::Named { name, settings } = algorithm else { return "auto".into() };
    let mut table = Table::new();
    add_settings(&mut table, settings);
    table.insert("name".into(), name.clone().into());
    table.into()
}

fn print_simulation(simulation: Simulation) -> Table {
    let Simulation { trials, redraw, metrics_every, central, losses, liars, attack } = simulation;
    let mut table = table! {
        "trials": i64::from(trials),
        "redraw": match redraw { Redraw::Noise => "noise", Redraw::All => "all" },
        "metrics_every": i64::from(metrics_every),
        "central": central,
    };
    if losses > 0 {
        table.insert("losses".into(), (losses as i64).into());
    }
    if liars > 0 {
        table.insert("liars".into(), (liars as i64).into());
        table.insert("attack".into(), attack.name().into());
    }
    table
}

fn print_problem(spec: &StudySpec) -> Table {
    let mut table = table! { "loss": spec.loss.name() };
    add_settings(&mut table, &spec.loss.settings());
    match (spec.weights, &spec.data) {
        (Weights::Records, _) => drop(table.insert("weights".into(), "records".into())),
        (Weights::Clients, DataSpec::Files { .. }) => drop(table.insert("weights".into(), "clients".into())),
        (Weights::Clients, DataSpec::Synthetic { .. }) => {}
    }
    let (name, weights) = match spec.regularizer {
        RegularizerSpec::Public(Regularizer::ElasticNet { l1, l2 }) => ("elastic-net", Some((Value::from(l1), l2))),
        RegularizerSpec::Public(regularizer) => (regularizer.name(), None),
        RegularizerSpec::PaperRule { l2 } => ("elastic-net", Some(("paper".into(), l2))),
    };
    table.insert("regularizer".into(), name.into());
    if let Some((l1, l2)) = weights {
        table.insert("lambda1".into(), l1);
        table.insert("lambda2".into(), l2.into());
    }
    if name != "none" {
        table.insert("lambda".into(), spec.lambda.into());
    }
    table
}

fn print_data(data: &DataSpec) -> Table {
    match data {
        DataSpec::Synthetic { clients, records, features, noise, condition, spread } => {
            let mut table = table! {
                "source": "synthetic",
                "clients": *clients as i64,
                "records": print_records(records),
                "features": *features as i64,
                "noise": *noise,
                "condition": *condition,
            };
            // Studies that do not use it keep their digest.
            if *spread != 1.0 {
                table.insert("spread".into(), (*spread).into());
            }
            table
        }
        DataSpec::Files { layout, path, schema, records, csv } => {
            let mut table = print_schema(schema);
            if !records.is_empty() {
                table.insert("records".into(), print_records(records));
            }
            let source = match layout {
                Layout::Folder => "folder",
                Layout::Column(column) => {
                    table.insert("client".into(), column.clone().into());
                    "column"
                }
                Layout::Split(clients) => {
                    table.insert("clients".into(), (*clients as i64).into());
                    "split"
                }
                Layout::StandIn { clients, records, noise } => {
                    table.insert("clients".into(), list(clients.iter().cloned()));
                    table.insert("records".into(), print_records(records));
                    table.insert("noise".into(), (*noise).into());
                    "stand-in"
                }
            };
            table.insert("source".into(), source.into());
            if let Some(path) = path {
                table.insert("path".into(), path.clone().into());
            }
            if *csv != CsvFormat::default() {
                let (delimiter, decimal) = (char::from(csv.delimiter).to_string(), csv.decimal.to_string());
                table.insert("csv".into(), table! { "delimiter": delimiter, "decimal": decimal }.into());
            }
            table
        }
    }
}

pub fn print_records(records: &[usize]) -> Value {
    match records {
        [one] => Value::from(*one as i64),
        each => list(each.iter().map(|&r| r as i64)),
    }
}

pub fn print_schema(schema: &Schema) -> Table {
    let mut table = table! {
        "features": list(schema.features.iter().map(|c| c.name.clone())),
        "target": schema.target.name.clone(),
        "intercept": schema.intercept,
        "scaling": match schema.scaling {
            Scaling::Bounds => "bounds",
            Scaling::None => "none",
            Scaling::Moments { .. } => "moments",
        },
        "outside": match schema.outside { Outside::Refuse => "refuse", Outside::Clamp => "clamp" },
    };
    if schema.missing == Missing::Mean {
        table.insert("missing".into(), "mean".into());
    }
    if schema.holdout > 0.0 {
        table.insert("holdout".into(), schema.holdout.into());
    }
    let indicators: Vec<_> = schema.features.iter().filter(|c| c.indicator).map(|c| c.name.clone()).collect();
    if !indicators.is_empty() {
        table.insert("indicators".into(), list(indicators));
    }
    let (mut bounds, mut categories, mut typical) = (Table::new(), Table::new(), Table::new());
    for column in schema.features.iter().chain([&schema.target]) {
        if let Some(values) = &column.typical {
            typical.insert(column.name.clone(), list(values.iter().copied()));
        }
        match &column.kind {
            ColumnKind::Number { low, high } => drop(bounds.insert(column.name.clone(), list([*low, *high]))),
            ColumnKind::Category(words) => drop(categories.insert(column.name.clone(), list(words.iter().cloned()))),
        }
    }
    for (key, part) in [("bounds", bounds), ("categories", categories), ("typical", typical)] {
        if !part.is_empty() {
            table.insert(key.into(), part.into());
        }
    }
    table
}

fn print_graph(graph: &GraphSpec) -> Table {
    let mut table = table! { "kind": graph.name() };
    match graph {
        GraphSpec::Random { mean_degree } => drop(table.insert("mean_degree".into(), (*mean_degree).into())),
        GraphSpec::SmallWorld { degree, rewire } => {
            table.insert("degree".into(), (*degree as i64).into());
            table.insert("rewire".into(), (*rewire).into());
        }
        GraphSpec::Regular { degree } => drop(table.insert("degree".into(), (*degree as i64).into())),
        GraphSpec::Edges(edges) => {
            let pairs = edges.iter().map(|(a, b)| list([a.clone(), b.clone()]));
            table.insert("edges".into(), list(pairs));
        }
        GraphSpec::Ring | GraphSpec::Star | GraphSpec::Grid | GraphSpec::Complete => {}
    }
    table
}

fn print_privacy(privacy: &PrivacySpec) -> Table {
    let mut table = table! {
        "delta": privacy.delta,
        "accountant": privacy.accountant.name(),
        "noise": match privacy.noise { NoiseKind::Fast => "fast", NoiseKind::Secure => "secure" },
    };
    for (key, value) in [("clip", privacy.clip), ("tau", privacy.tau)] {
        if let Some(value) = value {
            table.insert(key.into(), value.into());
        }
    }
    if let Some(colluders) = privacy.colluders {
        table.insert("colluders".into(), (colluders as i64).into());
    }
    if let Some(theta) = privacy.theta {
        table.insert("theta".into(), theta.into());
    }
    if let Some(share) = privacy.standardise {
        table.insert("standardise".into(), share.into());
    }
    if privacy.spent_share > 0.0 {
        table.insert("spent_share".into(), privacy.spent_share.into());
    }
    if let Some(share) = privacy.score_budget {
        table.insert("score_budget".into(), share.into());
    }
    match privacy.budget {
        BudgetSpec::Epsilon(epsilon) => table.insert("epsilon".into(), epsilon.into()),
        BudgetSpec::First(phi1) => table.insert("phi1".into(), phi1.into()),
    };
    table
}

fn print_client(client: &ClientSpec) -> Table {
    let mut table = Table::new();
    if let Some(eta) = client.eta {
        table.insert("eta".into(), eta.into());
    }
    if let Some(phi1) = client.phi1 {
        table.insert("phi1".into(), phi1.into());
    }
    if let Some(records) = client.records {
        table.insert("records".into(), (records as i64).into());
    }
    if let Some(id) = client.id {
        table.insert("id".into(), id.to_string().into());
    }
    if let Some(address) = &client.address {
        table.insert("address".into(), address.clone().into());
    }
    table
}
