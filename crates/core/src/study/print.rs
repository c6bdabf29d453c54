//! A study back as TOML, with every default written out.

use toml::{Table, Value};

use super::*;
use crate::schema::{Kind, Outside, Scaling};

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

impl Study {
    /// The resolved study; reading it again gives the same study.
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.to_table()).expect("a study has only plain values")
    }

    /// The resolved study as a table.
    pub(super) fn to_table(&self) -> Table {
        let mut top = table! { "name": self.name.clone(), "seed": self.seed as i64, "rounds": i64::from(self.rounds) };
        top.insert("problem".into(), self.print_problem().into());
        top.insert("data".into(), print_data(&self.data).into());
        top.insert("graph".into(), print_graph(&self.graph).into());
        let mut algorithm = self.algorithm.settings();
        algorithm.insert("name".into(), self.algorithm.name().into());
        top.insert("algorithm".into(), algorithm.into());
        top.insert("privacy".into(), self.privacy.as_ref().map_or("off".into(), |p| print_privacy(p).into()));
        let Simulation { trials, redraw, metrics_every, central } = self.simulation;
        top.insert(
            "simulation".into(),
            table! {
                "trials": i64::from(trials),
                "redraw": match redraw { Redraw::Noise => "noise", Redraw::All => "all" },
                "metrics_every": i64::from(metrics_every),
                "central": central,
            }
            .into(),
        );
        if !self.clients.is_empty() {
            let clients: Table = self.clients.iter().map(|(name, c)| (name.clone(), print_client(c).into())).collect();
            top.insert("client".into(), clients.into());
        }
        if let Some(relay) = &self.relay {
            top.insert("network".into(), table! { "relay": relay.clone() }.into());
        }
        if let Some(plan) = &self.plan {
            let mut table = table! { "records": print_records(&plan.records), "noise": plan.noise };
            if let Some(clients) = plan.clients {
                table.insert("clients".into(), (clients as i64).into());
            }
            top.insert("plan".into(), table.into());
        }
        top
    }

    fn print_problem(&self) -> Table {
        let mut table = table! { "loss": self.loss.name() };
        match self.loss {
            AnyLoss::Huber(huber) => drop(table.insert("threshold".into(), huber.threshold.into())),
            AnyLoss::Quantile(quantile) => drop(table.insert("level".into(), quantile.level.into())),
            _ => {}
        }
        let (name, weights) = match self.regularizer {
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
            table.insert("lambda".into(), self.lambda.into());
        }
        table
    }
}

fn print_data(data: &DataSpec) -> Table {
    match data {
        DataSpec::Synthetic { clients, records, features, noise, condition } => table! {
            "source": "synthetic",
            "clients": *clients as i64,
            "records": print_records(records),
            "features": *features as i64,
            "noise": *noise,
            "condition": *condition,
        },
        DataSpec::Files { layout, path, schema } => {
            let mut table = print_schema(schema);
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
            table
        }
    }
}

fn print_records(records: &[usize]) -> Value {
    match records {
        [one] => Value::from(*one as i64),
        each => list(each.iter().map(|&r| r as i64)),
    }
}

pub(super) fn print_schema(schema: &Schema) -> Table {
    let mut table = table! {
        "features": list(schema.features.iter().map(|c| c.name.clone())),
        "target": schema.target.name.clone(),
        "intercept": schema.intercept,
        "scaling": match schema.scaling { Scaling::Bounds => "bounds", Scaling::None => "none" },
        "outside": match schema.outside { Outside::Refuse => "refuse", Outside::Clamp => "clamp" },
    };
    let (mut bounds, mut categories) = (Table::new(), Table::new());
    for column in schema.features.iter().chain([&schema.target]) {
        match &column.kind {
            Kind::Number { low, high } => drop(bounds.insert(column.name.clone(), list([*low, *high]))),
            Kind::Category(words) => drop(categories.insert(column.name.clone(), list(words.iter().cloned()))),
        }
    }
    for (key, part) in [("bounds", bounds), ("categories", categories)] {
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

fn print_privacy(privacy: &Privacy) -> Table {
    let mut table = table! {
        "clip": privacy.clip.get(),
        "delta": privacy.delta.get(),
        "tau": privacy.tau,
        "accountant": privacy.accountant.name(),
        "noise": match privacy.noise { NoiseKind::Fast => "fast", NoiseKind::Secure => "secure" },
    };
    match privacy.budget {
        Budget::Epsilon(epsilon) => table.insert("epsilon".into(), epsilon.get().into()),
        Budget::First(phi1) => table.insert("phi1".into(), phi1.get().into()),
    };
    table
}

fn print_client(client: &ClientSpec) -> Table {
    let mut table = Table::new();
    if let Some(eta) = client.eta {
        table.insert("eta".into(), eta.into());
    }
    if let Some(phi1) = client.phi1 {
        table.insert("phi1".into(), phi1.get().into());
    }
    if let Some(id) = client.id {
        table.insert("id".into(), id.to_string().into());
    }
    if let Some(address) = &client.address {
        table.insert("address".into(), address.clone().into());
    }
    table
}
