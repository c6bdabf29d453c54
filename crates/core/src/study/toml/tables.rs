//! The tables of a study, one function each.

use std::collections::BTreeMap;

use super::Reader;
use super::reader::{Mistakes, note};
use crate::algorithm::registry;
use crate::csv_format::CsvFormat;
use crate::graph::GraphSpec;
use crate::identity::PublicId;
use crate::loss::{AnyLoss, Squared};
use crate::privacy::Accountant;
use crate::problem::Weights;
use crate::records::Precision;
use crate::regularizer::Regularizer;
use crate::rule;
use crate::schema::{Column, ColumnKind, Missing, Outside, Scaling, Schema};
use crate::study::check::{distinct, schema_problems};
use crate::study::{
    AlgorithmSpec, Attack, BudgetSpec, ClientSpec, DataSpec, Layout, MOST_CLIENTS, MOST_FEATURES, MOST_RECORDS,
    MOST_ROUNDS, MOST_TRIALS, NoiseKind, PlanSpec, PrivacySpec, Redraw, RegularizerSpec, Simulation, StudyError,
    StudySpec,
};

/// The name under which studies ask for zcdp-nfl with the classic accountant: the paper's (eps,delta)DP-NFL.
const DP_NFL: &str = "dp-nfl";

/// Reads all tables.
pub(super) fn read(top: &mut Reader) -> Result<StudySpec, StudyError> {
    let name = top.text("name")?.unwrap_or("study").to_string();
    let seed = top.integer("seed", 0, i64::MAX)?.unwrap_or(1) as u64;
    let rounds = top.integer_required("rounds", 1, MOST_ROUNDS)? as u32;
    let Problem { loss, regularizer, lambda, weights } = problem(top.table_required("problem")?)?;
    let mut table = top.table_required("data")?;
    let precision = precision(&mut table)?;
    let mut data = data(table, loss)?;
    let plan = plan(top.table("plan")?, &mut data)?;
    let graph = graph(top.table_required("graph")?)?;
    let (algorithm, classic) = match top.is_word("algorithm", "auto") {
        true => {
            top.text("algorithm")?;
            (AlgorithmSpec::Auto, false)
        }
        false => algorithm(top.table_required("algorithm")?)?,
    };
    let privacy = match top.is_word("privacy", "off") {
        true => {
            top.text("privacy")?;
            None
        }
        false => {
            let table = top.table("privacy")?.ok_or_else(|| {
                top.error(
                    "privacy",
                    "is missing; write a table [privacy], or privacy = \"off\" for a study without any",
                )
            })?;
            let mut privacy = privacy(table)?;
            if classic {
                privacy.accountant = Accountant::Classic;
            }
            Some(privacy)
        }
    };
    Ok(StudySpec {
        name,
        seed,
        rounds,
        loss,
        regularizer,
        lambda,
        weights: weights.unwrap_or(data.usual_weights()),
        data,
        precision,
        graph,
        algorithm,
        privacy,
        simulation: simulation(top.table("simulation")?)?,
        clients: clients(top.table("client")?)?,
        relay: network(top.table("network")?)?,
        quorum: peers(top.table("peers")?)?,
        liars: robust(top.table("robust")?)?,
        plan,
        inference: inference(top.table("inference")?)?,
        closing: None,
    })
}

/// Everything that cannot be read, so that one mistake does not hide the next; and the columns, if they can be.
pub(super) fn survey(top: Reader) -> (Vec<StudyError>, Option<(DataSpec, AnyLoss)>, Option<StudySpec>) {
    let found = Mistakes::default();
    // As far as values that are not possible can be replaced by others; a table that cannot be read at all leaves none.
    let spec = read(&mut top.again().noting(&Mistakes::default())).ok();
    let keep = |error: StudyError| note(&found, error);
    let mut top = top.noting(&found);
    let mut columns = None;
    let mut rest = || -> Result<(), StudyError> {
        top.text("name")?;
        top.integer("seed", 0, i64::MAX)?;
        top.integer_required("rounds", 1, MOST_ROUNDS)?;
        let loss = top.table_required("problem").and_then(problem).map_err(keep).map(|problem| problem.loss);
        let table = top.table_required("data").map_err(keep);
        let plans = top.table("plan").map_err(keep);
        // Without a loss nothing can be said about the target, and all else about the data can.
        let stand_in = loss.as_ref().map_or(AnyLoss::from(Squared), |loss| *loss);
        if let Ok(mut table) = table
            && precision(&mut table).map_err(keep).is_ok()
            && let Ok(mut data) = data(table, stand_in).map_err(|e| {
                if loss.is_ok() || e.key != "data.target" {
                    keep(e)
                }
            })
        {
            let _ = plans.and_then(|table| plan(table, &mut data).map_err(keep));
            columns = loss.ok().map(|loss| (data, loss));
        }
        let _ = top.table_required("graph").and_then(graph).map_err(keep);
        match top.is_word("algorithm", "auto") {
            true => drop(top.text("algorithm")?),
            false => drop(top.table_required("algorithm").and_then(algorithm).map_err(keep)),
        }
        match top.is_word("privacy", "off") {
            true => drop(top.text("privacy")?),
            false => drop(top.table_required("privacy").and_then(privacy).map_err(keep)),
        }
        let _ = top.table("simulation").and_then(simulation).map_err(keep);
        let _ = top.table("client").and_then(clients).map_err(keep);
        let _ = top.table("network").and_then(network).map_err(keep);
        let _ = top.table("peers").and_then(peers).map_err(keep);
        let _ = top.table("robust").and_then(robust).map_err(keep);
        let _ = top.table("inference").and_then(inference).map_err(keep);
        Ok(())
    };
    let _ = rest().map_err(keep);
    let _ = top.finish();
    let mistakes = found.take();
    // Columns with a mistake were replaced by others while reading.
    let columns = columns.filter(|_| mistakes.iter().all(|mistake| !mistake.key.starts_with("data")));
    (mistakes, columns, spec)
}

/// `data.precision`.
fn precision(table: &mut Reader) -> Result<Precision, StudyError> {
    let words = [("double", Precision::Double), ("single", Precision::Single)];
    Ok(table.choice("precision", &words)?.unwrap_or_default())
}

/// The table [problem].
struct Problem {
    loss: AnyLoss,
    regularizer: RegularizerSpec,
    lambda: f64,
    weights: Option<Weights>,
}

fn problem(mut table: Reader) -> Result<Problem, StudyError> {
    let losses: Vec<_> = AnyLoss::ALL.iter().map(|(name, knobs)| (*name, (*name, *knobs))).collect();
    let (name, knobs) = table.choice_required("loss", &losses)?;
    let settings = table.knobs(knobs)?.complete(knobs).map_err(|e| table.error(e.name, e.message))?;
    let loss = AnyLoss::named(name, &settings).expect("one of the choices");
    let regularizers = Regularizer::NAMES.map(|name| (name, name));
    let regularizer = match table.choice_or("regularizer", &regularizers, "none")? {
        "none" => RegularizerSpec::Public(Regularizer::None),
        "l1" => RegularizerSpec::Public(Regularizer::L1),
        "l2" => RegularizerSpec::Public(Regularizer::SquaredL2),
        _ => {
            let l2 = table.required("lambda2", rule::NOT_NEGATIVE)?;
            if table.is_word("lambda1", "paper") {
                table.text("lambda1")?;
                RegularizerSpec::PaperRule { l2 }
            } else {
                let l1 = table.required("lambda1", rule::NOT_NEGATIVE_OR_PAPER)?;
                RegularizerSpec::Public(Regularizer::ElasticNet { l1, l2 })
            }
        }
    };
    let lambda = match regularizer {
        RegularizerSpec::Public(Regularizer::None) => 0.0,
        _ => table.number("lambda", rule::NOT_NEGATIVE)?.unwrap_or(1.0),
    };
    let weights = table.choice("weights", &[("records", Weights::Records), ("clients", Weights::Clients)])?;
    table.finish()?;
    Ok(Problem { loss, regularizer, lambda, weights })
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
        let (path, csv) = match layout {
            Layout::StandIn { .. } => (None, CsvFormat::default()),
            _ => (table.text("path")?.map(str::to_string), csv_format(table.table("csv")?)?),
        };
        let records = match layout {
            Layout::StandIn { .. } => Vec::new(),
            _ => whole_numbers(&mut table, "records")?.unwrap_or_default(),
        };
        DataSpec::Files { layout, path, schema: schema(&mut table, loss)?, records, csv }
    };
    table.finish()?;
    Ok(data)
}

/// How this party's CSV files are written.
fn csv_format(table: Option<Reader>) -> Result<CsvFormat, StudyError> {
    let Some(mut table) = table else { return Ok(CsvFormat::default()) };
    let (delimiter, decimal) = (table.text("delimiter")?, table.text("decimal")?);
    let format = match CsvFormat::read(delimiter, decimal) {
        Ok(format) => format,
        Err(e) => table.wrong(table.error(e.name, e.message), CsvFormat::default())?,
    };
    table.finish()?;
    Ok(format)
}

/// How many records each client has.
fn records(table: &mut Reader) -> Result<Vec<usize>, StudyError> {
    Ok(whole_numbers(table, "records")?.unwrap_or_else(|| vec![50]))
}

fn whole_numbers(table: &mut Reader, key: &str) -> Result<Option<Vec<usize>>, StudyError> {
    let numbers = table.integers(key, 1, MOST_RECORDS)?;
    Ok(numbers.map(|numbers| numbers.into_iter().map(|v| v as usize).collect()))
}

fn noise(table: &mut Reader) -> Result<f64, StudyError> {
    Ok(table.number("noise", rule::NOT_NEGATIVE)?.unwrap_or(0.1))
}

fn stand_in(table: &mut Reader) -> Result<Layout, StudyError> {
    let clients = match table.integer("clients", 2, MOST_CLIENTS) {
        Ok(Some(count)) => (1..=count).map(|k| k.to_string()).collect(),
        _ => table.texts("clients")?.filter(|names| names.len() >= 2 && distinct(names)).ok_or_else(|| {
            table.error("clients", "is not given; write how many there are, or the list of their different names")
        })?,
    };
    Ok(Layout::StandIn { records: records(table)?, noise: noise(table)?, clients })
}

/// The table [plan]. Its `records` is the older place of data.records.
fn plan(table: Option<Reader>, data: &mut DataSpec) -> Result<Option<PlanSpec>, StudyError> {
    let Some(mut table) = table else { return Ok(None) };
    let clients = table.integer("clients", 2, MOST_CLIENTS)?.map(|count| count as usize);
    if let Some(numbers) = whole_numbers(&mut table, "records")? {
        match data {
            DataSpec::Files { layout, records, .. } if !matches!(layout, Layout::StandIn { .. }) => {
                if !records.is_empty() {
                    return Err(table.error("records", "and data.records are both given; keep data.records"));
                }
                *records = numbers;
            }
            _ => return Err(table.error("records", "has no meaning for data that is drawn; write data.records")),
        }
    }
    let losses = table.integer("losses", 0, MOST_CLIENTS)?.map(|count| count as usize);
    let skill = table.bounds("skill")?;
    table.finish()?;
    Ok(Some(PlanSpec { clients, losses, skill }))
}

fn synthetic(table: &mut Reader) -> Result<DataSpec, StudyError> {
    Ok(DataSpec::Synthetic {
        clients: table.integer_required("clients", 2, MOST_CLIENTS)? as usize,
        records: records(table)?,
        features: table.integer_required("features", 1, MOST_FEATURES)? as usize,
        noise: noise(table)?,
        condition: table.number("condition", rule::AT_LEAST_ONE)?.unwrap_or(1.0),
        spread: table.number("spread", rule::AT_LEAST_ONE)?.unwrap_or(1.0),
    })
}

fn schema(table: &mut Reader, loss: AnyLoss) -> Result<Schema, StudyError> {
    let names = table.texts("features")?.ok_or_else(|| {
        table.error("features", "is missing; write the list of columns to learn from, such as [\"age\", \"dose\"]")
    })?;
    let target = table.text_required("target", "the name of the column to learn")?;
    let mut bounds = table.table("bounds")?;
    let mut categories = table.table("categories")?;
    let mut typical = table.table("typical")?;
    let indicators = table.texts("indicators")?.unwrap_or_default();
    let mut column = |name: &str| -> Result<Column, StudyError> {
        let range = bounds.as_mut().map(|b| b.bounds(name)).transpose()?.flatten();
        let words = categories.as_mut().map(|c| c.texts(name)).transpose()?.flatten();
        let kind = match (range, words) {
            (Some((low, high)), None) => ColumnKind::Number { low, high },
            (None, Some(words)) => ColumnKind::Category(words),
            (Some((low, high)), Some(_)) => {
                let reader = bounds.as_ref().expect("the range came from it");
                let error = reader.error(name, "has both bounds and categories; keep the one that is right");
                reader.wrong(error, ColumnKind::Number { low, high })?
            }
            (None, None) => {
                let error = table.error(
                    "features",
                    format!(
                        "or target names \"{name}\", whose public range is not given; write data.bounds.{name} = [low, high] \
                         or data.categories.{name} = [...]"
                    ),
                );
                let error = StudyError { key: format!("data.bounds.{name}"), ..error };
                table.wrong(error, ColumnKind::Number { low: -rule::LARGEST, high: rule::LARGEST })?
            }
        };
        let typical = typical.as_mut().map(|t| t.numbers(name)).transpose()?.flatten();
        // Of a column whose range is wrong nothing can be said about what is typical.
        let typical = typical.filter(|_| !table.has_mistake(&format!("data.bounds.{name}")));
        Ok(Column { name: name.into(), kind, typical, indicator: indicators.iter().any(|i| i == name) })
    };
    let features: Vec<Column> = names.iter().map(|name| column(name)).collect::<Result<_, _>>()?;
    let target = column(target)?;
    let schema = Schema {
        features,
        target,
        intercept: table.flag("intercept")?.unwrap_or(false),
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
        missing: table.choice_or(
            "missing",
            &[("refuse", Missing::Refuse), ("mean", Missing::Mean)],
            Missing::Refuse,
        )?,
        start: 0.0,
        holdout: table.number("holdout", rule::HOLDOUT)?.unwrap_or(0.0),
    };
    if let Some(stray) = indicators.iter().find(|i| schema.features.iter().all(|column| column.name != **i)) {
        return Err(
            table.error("indicators", format!("names \"{stray}\", which is not one of data.features; remove it"))
        );
    }
    // Before bounds of columns that are not used are refused: they may belong to one that was meant.
    for error in schema_problems(&schema, loss) {
        table.refuse(error)?;
    }
    bounds.map_or(Ok(()), Reader::finish)?;
    categories.map_or(Ok(()), Reader::finish)?;
    typical.map_or(Ok(()), Reader::finish)?;
    Ok(schema)
}

fn graph(mut table: Reader) -> Result<GraphSpec, StudyError> {
    let kinds = GraphSpec::NAMES.map(|name| (name, name));
    let graph = match table.choice_required("kind", &kinds)? {
        "random" => GraphSpec::Random { mean_degree: table.positive("mean_degree")?.unwrap_or(3.0) },
        "ring" => GraphSpec::Ring,
        "star" => GraphSpec::Star,
        "grid" => GraphSpec::Grid,
        "complete" => GraphSpec::Complete,
        "small-world" => GraphSpec::SmallWorld {
            degree: table.integer("degree", 2, MOST_CLIENTS)?.unwrap_or(4) as usize,
            rewire: table.number("rewire", rule::ZERO_TO_ONE)?.unwrap_or(0.1),
        },
        "regular" => GraphSpec::Regular { degree: table.integer("degree", 1, MOST_CLIENTS)?.unwrap_or(3) as usize },
        _ => GraphSpec::Edges(table.pairs("edges")?.ok_or_else(|| {
            table.error("edges", "is missing; write a list of pairs, such as [[\"1\", \"2\"], [\"2\", \"3\"]]")
        })?),
    };
    table.finish()?;
    Ok(graph)
}

/// The algorithm, and whether its name asks for the classic accountant.
fn algorithm(mut table: Reader) -> Result<(AlgorithmSpec, bool), StudyError> {
    let mut choices: Vec<_> = registry().map(|entry| (entry.name, (entry, false))).collect();
    let zcdp = choices.iter().position(|(name, _)| *name == "zcdp-nfl").expect("in the registry");
    choices.insert(zcdp + 1, (DP_NFL, (choices[zcdp].1.0, true)));
    let (entry, classic) = table.choice_required("name", &choices)?;
    let settings = table.knobs(entry.knobs)?;
    table.finish()?;
    Ok((AlgorithmSpec::Named { name: entry.name.into(), settings }, classic))
}

fn privacy(mut table: Reader) -> Result<PrivacySpec, StudyError> {
    let clip = table.positive("clip")?;
    let delta = table.required("delta", rule::BETWEEN_ZERO_AND_ONE)?;
    let budget = match (table.positive("epsilon")?, table.positive("phi1")?) {
        (Some(epsilon), None) => BudgetSpec::Epsilon(epsilon),
        (None, Some(phi1)) => BudgetSpec::First(phi1),
        (None, None) => {
            return Err(
                table.error("epsilon", "is missing; write the total epsilon, or phi1, the rho of the first round")
            );
        }
        (Some(_), Some(_)) => {
            return Err(table.error("phi1", "and epsilon are both given, but one follows from the other; keep one"));
        }
    };
    let accountants = Accountant::ALL.map(|a| (a.name(), a));
    let privacy = PrivacySpec {
        clip,
        budget,
        tau: table.number("tau", rule::ABOVE_ZERO_TO_ONE)?,
        delta,
        accountant: table.choice_or("accountant", &accountants, Accountant::Exact)?,
        noise: table.choice_or(
            "noise",
            &[("fast", NoiseKind::Fast), ("secure", NoiseKind::Secure)],
            NoiseKind::Fast,
        )?,
        colluders: table.integer("colluders", 0, MOST_CLIENTS)?.map(|count| count as usize),
        theta: table.number("theta", rule::THETA)?,
        standardise: table.number("standardise", rule::BETWEEN_ZERO_AND_ONE)?,
        spent_share: table.number("spent_share", rule::BELOW_ONE)?.unwrap_or(0.0),
        score_budget: table.number("score_budget", rule::BETWEEN_ZERO_AND_ONE)?,
    };
    table.finish()?;
    Ok(privacy)
}

fn simulation(table: Option<Reader>) -> Result<Simulation, StudyError> {
    let mut simulation = Simulation::default();
    if let Some(mut table) = table {
        simulation = Simulation {
            trials: table.integer("trials", 1, MOST_TRIALS)?.unwrap_or(1) as u32,
            redraw: table.choice_or("redraw", &[("noise", Redraw::Noise), ("all", Redraw::All)], Redraw::Noise)?,
            metrics_every: table.integer("metrics_every", 1, MOST_ROUNDS)?.unwrap_or(1) as u32,
            central: table.flag("central")?.unwrap_or(true),
            losses: table.integer("losses", 0, MOST_CLIENTS)?.unwrap_or(0) as usize,
            liars: table.integer("liars", 0, MOST_CLIENTS)?.unwrap_or(0) as usize,
            attack: table.choice_or("attack", &Attack::ALL, Attack::Flip)?,
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
            let (eta, phi1) = (client.positive("eta")?, client.positive("phi1")?);
            let records = client.integer("records", 1, MOST_RECORDS)?.map(|records| records as usize);
            let id = match client.text("id")?.map(str::parse::<PublicId>).transpose() {
                Ok(id) => id,
                Err(e) => client.wrong(client.error("id", e), None)?,
            };
            let address = client.text("address")?.map(str::to_string);
            client.finish()?;
            clients.insert(name.to_string(), ClientSpec { eta, phi1, records, id, address });
        }
    }
    Ok(clients)
}

/// The level of intervals.
fn inference(table: Option<Reader>) -> Result<Option<f64>, StudyError> {
    let Some(mut table) = table else { return Ok(None) };
    let level = table.number("level", rule::BETWEEN_ZERO_AND_ONE)?.unwrap_or(0.95);
    table.finish()?;
    Ok(Some(level))
}

fn network(table: Option<Reader>) -> Result<Option<String>, StudyError> {
    let Some(mut table) = table else { return Ok(None) };
    let relay = table.text("relay")?.map(str::to_string);
    table.finish()?;
    Ok(relay)
}

/// How many may lie.
fn robust(table: Option<Reader>) -> Result<Option<usize>, StudyError> {
    let Some(mut table) = table else { return Ok(None) };
    let liars = table.integer("liars", 1, MOST_CLIENTS)?;
    let missing = table.error("liars", "is missing; write how many parties may lie");
    // A key with a typing error is named first.
    table.finish()?;
    liars.map(|liars| Some(liars as usize)).ok_or(missing)
}

/// The quorum.
fn peers(table: Option<Reader>) -> Result<Option<usize>, StudyError> {
    let Some(mut table) = table else { return Ok(None) };
    let quorum = table.integer("quorum", 1, MOST_CLIENTS)?;
    table.finish()?;
    Ok(quorum.map(|quorum| quorum as usize))
}
