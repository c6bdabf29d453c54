//! The tables of a study, one function each.

use std::collections::BTreeMap;

use super::*;
use crate::identity::PublicId;
use crate::loss::{Absolute, Hinge, Huber, Logistic, Quantile, Squared};
use crate::schema::{Column, Kind, Outside, Scaling};

/// Reads all tables; name, seed and rounds are filled in by the caller.
pub(super) fn read(top: &mut Reader) -> Result<Study, StudyError> {
    let (loss, regularizer, lambda) = problem(top.table_required("problem")?)?;
    let data = data(top.table_required("data")?, loss)?;
    Ok(Study {
        name: String::new(),
        seed: 0,
        rounds: 0,
        loss,
        regularizer,
        lambda,
        data,
        graph: graph(top.table_required("graph")?)?,
        algorithm: if top.is_word("algorithm", "auto") {
            return Err(
                top.error("algorithm", "= \"auto\" is not resolved yet; `undertone plan` writes a study that is")
            );
        } else {
            algorithm(top.table_required("algorithm")?)?
        },
        privacy: if top.is_word("privacy", "off") {
            top.text("privacy")?;
            None
        } else {
            Some(privacy(top.table("privacy")?.ok_or_else(|| {
                top.error(
                    "privacy",
                    "is missing; write a table [privacy], or privacy = \"off\" for a study without any",
                )
            })?)?)
        },
        simulation: simulation(top.table("simulation")?)?,
        clients: clients(top.table("client")?)?,
        relay: network(top.table("network")?)?,
        plan: plan(top.table("plan")?)?,
    })
}

fn problem(mut table: Reader) -> Result<(AnyLoss, RegularizerSpec, f64), StudyError> {
    let losses = AnyLoss::NAMES.map(|name| (name, name));
    let loss = match table.choice_required("loss", &losses)? {
        "squared" => AnyLoss::Squared(Squared),
        "absolute" => AnyLoss::Absolute(Absolute),
        "huber" => AnyLoss::Huber(Huber { threshold: table.positive("threshold")? }),
        "quantile" => AnyLoss::Quantile(Quantile {
            level: table.required("level", "write a number strictly between 0 and 1", |v| v > 0.0 && v < 1.0)?,
        }),
        "logistic" => AnyLoss::Logistic(Logistic),
        _ => AnyLoss::Hinge(Hinge),
    };
    let regularizers = Regularizer::NAMES.map(|name| (name, name));
    let weight = |v: f64| (0.0..=reader::LARGEST).contains(&v);
    let expected = "write a number from 0 to 1e12";
    let regularizer = match table.choice_or("regularizer", &regularizers, "none")? {
        "none" => RegularizerSpec::Public(Regularizer::None),
        "l1" => RegularizerSpec::Public(Regularizer::L1),
        "l2" => RegularizerSpec::Public(Regularizer::SquaredL2),
        _ => {
            let l2 = table.required("lambda2", expected, weight)?;
            if table.is_word("lambda1", "paper") {
                table.text("lambda1")?;
                RegularizerSpec::PaperRule { l2 }
            } else {
                let expected = "write a number from 0 to 1e12, or \"paper\" for the paper's rule (simulation only)";
                let l1 = table.required("lambda1", expected, weight)?;
                RegularizerSpec::Public(Regularizer::ElasticNet { l1, l2 })
            }
        }
    };
    let lambda = match regularizer {
        RegularizerSpec::Public(Regularizer::None) => 0.0,
        _ => table.number("lambda", expected, weight)?.unwrap_or(1.0),
    };
    table.finish()?;
    Ok((loss, regularizer, lambda))
}

fn data(mut table: Reader, loss: AnyLoss) -> Result<DataSpec, StudyError> {
    let sources = ["synthetic", "folder", "column", "split", "stand-in"].map(|name| (name, name));
    let source = table.choice_required("source", &sources)?;
    let data = if source == "synthetic" {
        synthetic(&mut table)?
    } else {
        let layout = match source {
            "folder" => Layout::Folder,
            "column" => {
                Layout::Column(table.text_required("client", "the name of the column that names the client")?.into())
            }
            "split" => Layout::Split(table.integer_required("clients", 2, MOST_CLIENTS)? as usize),
            _ => stand_in(&mut table)?,
        };
        let path = match layout {
            Layout::StandIn { .. } => None,
            _ => table.text("path")?.map(str::to_string),
        };
        DataSpec::Files { layout, path, schema: schema(&mut table, loss)? }
    };
    table.finish()?;
    Ok(data)
}

/// How many records each of so many clients has.
fn records(table: &mut Reader, clients: usize) -> Result<Vec<usize>, StudyError> {
    let records = whole_numbers(table, "records")?.unwrap_or_else(|| vec![50]);
    if records.len() != 1 && records.len() != clients {
        let message =
            format!("lists {} numbers for {clients} clients; write one for all or one for each", records.len());
        return Err(table.error("records", message));
    }
    Ok(records)
}

fn whole_numbers(table: &mut Reader, key: &str) -> Result<Option<Vec<usize>>, StudyError> {
    let numbers = table.integers(key, 1, MOST_RECORDS)?;
    Ok(numbers.map(|numbers| numbers.into_iter().map(|v| v as usize).collect()))
}

fn noise(table: &mut Reader) -> Result<f64, StudyError> {
    let expected = "write a number from 0 to 1e12";
    Ok(table.number("noise", expected, |v| (0.0..=reader::LARGEST).contains(&v))?.unwrap_or(0.1))
}

fn stand_in(table: &mut Reader) -> Result<Layout, StudyError> {
    let clients = match table.integer("clients", 2, MOST_CLIENTS) {
        Ok(Some(count)) => (1..=count).map(|k| k.to_string()).collect(),
        _ => table.texts("clients")?.filter(|names| names.len() >= 2 && distinct(names)).ok_or_else(|| {
            table.error("clients", "is not given; write how many there are, or the list of their different names")
        })?,
    };
    Ok(Layout::StandIn { records: records(table, clients.len())?, noise: noise(table)?, clients })
}

fn plan(table: Option<Reader>) -> Result<Option<PlanSpec>, StudyError> {
    let Some(mut table) = table else { return Ok(None) };
    let clients = table.integer("clients", 2, MOST_CLIENTS)?.map(|count| count as usize);
    let Some(records) = whole_numbers(&mut table, "records")? else {
        return Err(table.error("records", "is missing; write about how many records each client has"));
    };
    let plan = PlanSpec { clients, records, noise: noise(&mut table)? };
    table.finish()?;
    Ok(Some(plan))
}

fn synthetic(table: &mut Reader) -> Result<DataSpec, StudyError> {
    let clients = table.integer_required("clients", 2, MOST_CLIENTS)? as usize;
    let records = records(table, clients)?;
    let features = table.integer_required("features", 1, MOST_FEATURES)? as usize;
    let noise = noise(table)?;
    let condition =
        table.number("condition", "write a number from 1 to 1e12", |v| (1.0..=reader::LARGEST).contains(&v))?;
    let condition = condition.unwrap_or(1.0);
    // A data set that no machine can hold is refused before it is drawn.
    let all: f64 =
        if records.len() == 1 { records[0] as f64 * clients as f64 } else { records.iter().map(|&r| r as f64).sum() };
    if all * (features + 2) as f64 * 8.0 > 1e13 {
        let message = format!(
            "times records times features is {all:e} records of {features} features, more than 10 terabytes; ask for less"
        );
        return Err(table.error("clients", message));
    }
    Ok(DataSpec::Synthetic { clients, records, features, noise, condition })
}

fn schema(table: &mut Reader, loss: AnyLoss) -> Result<Schema, StudyError> {
    let names = table.texts("features")?.ok_or_else(|| {
        table.error("features", "is missing; write the list of columns to learn from, such as [\"age\", \"dose\"]")
    })?;
    let target = table.text_required("target", "the name of the column to learn")?;
    let mut bounds = table.table("bounds")?;
    let mut categories = table.table("categories")?;
    let mut column = |name: &str| -> Result<Column, StudyError> {
        let range = bounds.as_mut().map(|b| b.bounds(name)).transpose()?.flatten();
        let words = categories.as_mut().map(|c| c.texts(name)).transpose()?.flatten();
        let kind = match (range, words) {
            (Some((low, high)), None) => Kind::Number { low, high },
            (None, Some(words)) if words.len() >= 2 && distinct(&words) => Kind::Category(words),
            (None, Some(_)) => {
                let reader = categories.as_ref().expect("words came from it");
                return Err(reader.error(name, "must list at least two different words"));
            }
            (Some(_), Some(_)) => {
                let reader = bounds.as_ref().expect("the range came from it");
                return Err(reader.error(name, "has both bounds and categories; keep the one that is right"));
            }
            (None, None) => {
                return Err(table.error(
                    "features",
                    format!(
                        "or target names \"{name}\", whose public range is not given; write data.bounds.{name} = [low, high] \
                         or data.categories.{name} = [...]"
                    ),
                ));
            }
        };
        Ok(Column { name: name.into(), kind })
    };
    let features: Vec<Column> = names.iter().map(|name| column(name)).collect::<Result<_, _>>()?;
    let target = column(target)?;
    if features.is_empty() || !distinct(&names) || names.contains(&target.name) {
        return Err(table.error("features", "must list at least one column, each once, and not the target"));
    }
    match &target.kind {
        Kind::Category(_) if !loss.is_classification() => {
            return Err(table.error(
                "target",
                format!("has categories, but the {} loss needs a number; give it bounds", loss.name()),
            ));
        }
        Kind::Category(words) if words.len() != 2 => {
            return Err(
                table.error("target", format!("has {} categories; classification here needs exactly two", words.len()))
            );
        }
        _ => {}
    }
    if let Some(bounds) = bounds {
        bounds.finish()?;
    }
    if let Some(categories) = categories {
        categories.finish()?;
    }
    let schema = Schema {
        features,
        target,
        intercept: table.flag_or("intercept", false)?,
        scaling: table.choice_or(
            "scaling",
            &[("bounds", Scaling::Bounds), ("none", Scaling::None)],
            Scaling::Bounds,
        )?,
        outside: table.choice_or(
            "outside",
            &[("refuse", Outside::Refuse), ("clamp", Outside::Clamp)],
            Outside::Refuse,
        )?,
    };
    let mut names = schema.feature_names();
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(table.error("features", format!("give the feature \"{}\" twice; rename a column", pair[0]))),
        None => Ok(schema),
    }
}

fn distinct(words: &[String]) -> bool {
    let set: std::collections::HashSet<_> = words.iter().collect();
    set.len() == words.len()
}

fn graph(mut table: Reader) -> Result<GraphSpec, StudyError> {
    let kinds = GraphSpec::NAMES.map(|name| (name, name));
    let graph = match table.choice_required("kind", &kinds)? {
        "random" => GraphSpec::Random { mean_degree: table.positive_or_none("mean_degree")?.unwrap_or(3.0) },
        "ring" => GraphSpec::Ring,
        "star" => GraphSpec::Star,
        "grid" => GraphSpec::Grid,
        "complete" => GraphSpec::Complete,
        "small-world" => GraphSpec::SmallWorld {
            degree: table.integer("degree", 2, MOST_CLIENTS)?.unwrap_or(4) as usize,
            rewire: table.number("rewire", "write a number from 0 to 1", |v| (0.0..=1.0).contains(&v))?.unwrap_or(0.1),
        },
        "regular" => GraphSpec::Regular { degree: table.integer("degree", 1, MOST_CLIENTS)?.unwrap_or(3) as usize },
        _ => GraphSpec::Edges(table.pairs("edges")?.ok_or_else(|| {
            table.error("edges", "is missing; write a list of pairs, such as [[\"1\", \"2\"], [\"2\", \"3\"]]")
        })?),
    };
    table.finish()?;
    Ok(graph)
}

fn algorithm(mut table: Reader) -> Result<Arc<dyn Algorithm>, StudyError> {
    let entry = table.choice_required("name", &algorithms())?;
    let algorithm = (entry.read)(&mut table)?;
    table.finish()?;
    Ok(algorithm)
}

fn privacy(mut table: Reader) -> Result<Privacy, StudyError> {
    let clip = Clip::new(table.positive("clip")?).expect("read as positive");
    let delta = table.required("delta", "write a number strictly between 0 and 1", |v| v > 0.0 && v < 1.0)?;
    let epsilon = table.positive_or_none("epsilon")?;
    let first = table.positive_or_none("phi1")?;
    let budget = match (epsilon, first) {
        (Some(epsilon), None) => Budget::Epsilon(Epsilon::new(epsilon).expect("read as positive")),
        (None, Some(phi1)) => Budget::First(Rho::new(phi1).expect("read as positive")),
        (None, None) => {
            return Err(
                table.error("epsilon", "is missing; write the total epsilon, or phi1, the rho of the first round")
            );
        }
        (Some(_), Some(_)) => {
            return Err(table.error("phi1", "and epsilon are both given, but one follows from the other; keep one"));
        }
    };
    let tau = table.number("tau", "write a number above 0 and at most 1", |v| v > 0.0 && v <= 1.0)?.unwrap_or(1.0);
    let accountants = Accountant::ALL.map(|a| (a.name(), a));
    let privacy = Privacy {
        clip,
        budget,
        tau,
        delta: Delta::new(delta).expect("read as a probability"),
        accountant: table.choice_or("accountant", &accountants, Accountant::Exact)?,
        noise: table.choice_or(
            "noise",
            &[("fast", NoiseKind::Fast), ("secure", NoiseKind::Secure)],
            NoiseKind::Fast,
        )?,
    };
    table.finish()?;
    Ok(privacy)
}

fn simulation(table: Option<Reader>) -> Result<Simulation, StudyError> {
    let mut simulation = Simulation { trials: 1, redraw: Redraw::Noise, metrics_every: 1, central: true };
    if let Some(mut table) = table {
        simulation = Simulation {
            trials: table.integer("trials", 1, MOST_TRIALS)?.unwrap_or(1) as u32,
            redraw: table.choice_or("redraw", &[("noise", Redraw::Noise), ("all", Redraw::All)], Redraw::Noise)?,
            metrics_every: table.integer("metrics_every", 1, MOST_ROUNDS)?.unwrap_or(1) as u32,
            central: table.flag_or("central", true)?,
        };
        table.finish()?;
    }
    Ok(simulation)
}

fn clients(table: Option<Reader>) -> Result<BTreeMap<String, ClientSpec>, StudyError> {
    let mut clients = BTreeMap::new();
    if let Some(mut table) = table {
        for name in table.names() {
            let mut client = table.table_required(name)?;
            let eta = client.positive_or_none("eta")?;
            let phi1 = client.positive_or_none("phi1")?.map(|v| Rho::new(v).expect("read as positive"));
            let id = client.text("id")?.map(str::parse::<PublicId>).transpose().map_err(|e| client.error("id", e))?;
            let address = client.text("address")?.map(str::to_string);
            if address.as_deref().is_some_and(|a| !is_address(a)) {
                return Err(
                    client.error("address", "is not an address; write \"host:port\", such as \"10.0.0.7:4700\"")
                );
            }
            client.finish()?;
            if let Some((other, _)) = clients.iter().find(|(_, c): &(_, &ClientSpec)| id.is_some() && c.id == id) {
                return Err(
                    table.error(name, format!("has the id of \"{other}\"; every client needs a key of its own"))
                );
            }
            clients.insert(name.to_string(), ClientSpec { eta, phi1, id, address });
        }
    }
    Ok(clients)
}

/// Whether text has the form host:port; whether the host exists is found out when it is dialled.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    !host.is_empty() && (bracketed || !host.contains(':')) && port.parse::<u16>().is_ok_and(|p| p > 0)
}

fn network(table: Option<Reader>) -> Result<Option<String>, StudyError> {
    let Some(mut table) = table else { return Ok(None) };
    let relay = table.text("relay")?.map(str::to_string);
    if relay.as_deref().is_some_and(|r| !r.starts_with("https://") && !r.starts_with("http://")) {
        return Err(table.error("relay", "is not the address of a relay; write \"https://host\""));
    }
    table.finish()?;
    Ok(relay)
}
