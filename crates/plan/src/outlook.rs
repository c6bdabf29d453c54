//! What to expect of a study if one number of it were another.

use undertone_core::graph::GraphSpec;
use undertone_core::study::{BudgetSpec, DataSpec, Layout, StudySpec};
use undertone_core::watch::{Share, Watch};

use crate::error::PlanError;
use crate::made_up::MadeUp;
use crate::plan::Plan;
use crate::regret::Regret;
use crate::trust::{TrustRow, trust_on};
use crate::tune::Parameters;

/// What epsilon, the number of clients and the numbers of records are multiplied by, beside 1.
const EPSILON: [f64; 6] = [0.25, 0.5, 0.75, 1.5, 2.0, 4.0];
const CLIENTS: [f64; 4] = [0.5, 0.75, 1.5, 2.0];
const RECORDS: [f64; 4] = [0.25, 0.5, 2.0, 4.0];

/// What to expect of a study as planned, and with another epsilon, number of clients or of records, or other trust.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// By epsilon.
    pub epsilon: Curve,
    /// By the number of clients.
    pub clients: Curve,
    /// By the mean number of records of a client, those included that are kept out of training.
    pub records: Curve,
    /// By how many others may pool what they know; the study itself is among them.
    pub trust: Vec<TrustRow>,
    /// Why nothing else is known about trust, if it is not.
    pub no_trust: Option<String>,
}

/// What to expect by one number, the least first. The study as planned is one of the points.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What is known.
    pub points: Vec<Point>,
    /// What is left out, and why: a sentence each, without a full stop.
    pub missing: Vec<String>,
}

/// What to expect at one number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The number.
    pub value: f64,
    /// The regret to expect.
    pub regret: Regret,
    /// Whether this is the study as planned.
    pub planned: bool,
}

impl Curve {
    /// The point of this number, if there is one.
    pub fn at(&self, value: f64) -> Option<&Point> {
        self.points.iter().find(|point| point.value == value)
    }

    /// Whether anything is known but the study itself.
    pub fn is_known(&self) -> bool {
        self.points.len() > 1
    }
}

/// What to expect around a planned study: with the algorithm that was recommended and a part of the budget as large for private standardisation, its parameters
/// searched for again near those that did well next to it. All else is as in the study. No records are read.
pub fn outlook(spec: &StudySpec, plan: &Plan, watch: &dyn Watch) -> Result<Outlook, PlanError> {
    let made_up = MadeUp::of(spec)?;
    let part = |index: u32| Share { whole: watch, from: 0.25 * f64::from(index), to: 0.25 * f64::from(index + 1) };
    let epsilon = by_epsilon(spec, plan, &made_up, &part(0))?;
    let clients = by_clients(spec, plan, &part(1))?;
    let records = by_records(spec, plan, &part(2))?;
    let (trust, no_trust) = by_trust(spec, plan, &made_up, &part(3))?;
    match watch.is_cancelled() {
        true => Err(PlanError::Cancelled),
        false => Ok(Outlook { epsilon, clients, records, trust, no_trust }),
    }
}

/// A study that differs in one number.
struct Variant {
    value: f64,
    /// How it differs, at the beginning of a sentence.
    named: String,
    spec: StudySpec,
}

fn by_epsilon(spec: &StudySpec, plan: &Plan, made_up: &MadeUp, watch: &dyn Watch) -> Result<Curve, PlanError> {
    let Some(BudgetSpec::Epsilon(own)) = spec.privacy.map(|privacy| privacy.budget) else {
        return Ok(alone(plan, f64::INFINITY, "privacy is off, so there is no epsilon"));
    };
    let variant = |factor: f64| {
        let mut spec = spec.clone();
        let value = own * factor;
        if let Some(privacy) = &mut spec.privacy {
            privacy.budget = BudgetSpec::Epsilon(value);
        }
        Variant { value, named: format!("epsilon {value}"), spec }
    };
    walk(plan, own, EPSILON.map(variant).into(), Some(made_up), watch)
}

fn by_clients(spec: &StudySpec, plan: &Plan, watch: &dyn Watch) -> Result<Curve, PlanError> {
    let own = plan.names.len();
    if matches!(spec.graph, GraphSpec::Edges(_)) {
        let why = "the study lists its connections one by one, and does not say how other parties would be connected";
        return Ok(alone(plan, own as f64, why));
    }
    if spec.clients.values().any(|client| client.eta.is_some()) {
        let why = "some parties have a step size of their own, and the study does not say which one others would have";
        return Ok(alone(plan, own as f64, why));
    }
    let mut counts: Vec<usize> = CLIENTS.iter().map(|factor| (factor * own as f64).round() as usize).collect();
    counts.retain(|&count| count >= 2 && count != own);
    counts.dedup();
    let variant = |&count: &usize| Variant {
        value: count as f64,
        named: format!("{count} parties"),
        spec: with_clients(spec, count),
    };
    walk(plan, own as f64, counts.iter().map(variant).collect(), None, watch)
}

fn by_records(spec: &StudySpec, plan: &Plan, watch: &dyn Watch) -> Result<Curve, PlanError> {
    let mean = |spec: &StudySpec| {
        let records = spec.public_records().unwrap_or_default();
        records.iter().sum::<usize>() as f64 / records.len() as f64
    };
    let own = mean(spec);
    let mut variants: Vec<Variant> = Vec::new();
    for factor in RECORDS {
        let spec = with_records(spec, factor);
        let value = mean(&spec);
        if value != own && variants.iter().all(|variant| variant.value != value) {
            variants.push(Variant { value, named: format!("{value:.0} records each"), spec });
        }
    }
    walk(plan, own, variants, None, watch)
}

fn by_trust(
    spec: &StudySpec,
    plan: &Plan,
    made_up: &MadeUp,
    watch: &dyn Watch,
) -> Result<(Vec<TrustRow>, Option<String>), PlanError> {
    if spec.privacy.is_none() {
        return Ok((Vec::new(), Some("privacy is off, so nobody has to be trusted or not".into())));
    }
    if plan.names.len() < 3 {
        return Ok((Vec::new(), Some("among two parties, nobody is left to share noise with".into())));
    }
    if spec.liars.is_some() {
        let why = "shared noise cancels only in a sum of which nothing is left out, and the model is made of what is left after liars are bounded";
        return Ok((Vec::new(), Some(why.into())));
    }
    let trust = trust_on(made_up, spec, plan, watch)?;
    let why = "the recommended algorithm cannot be planned with another assumption";
    let no_trust = (trust.len() < 2).then(|| why.to_string());
    Ok((trust, no_trust))
}

/// The study itself, and why there is nothing else.
fn alone(plan: &Plan, own: f64, why: &str) -> Curve {
    Curve { points: vec![planned(plan, own)], missing: vec![why.to_string()] }
}

fn planned(plan: &Plan, value: f64) -> Point {
    Point { value, regret: plan.recommended().regret, planned: true }
}

/// Plans variants from the study outwards, to both sides: what was found for one is where the search for the next begins. Without `made_up`, each has made-up
/// sets of its own.
fn walk(
    plan: &Plan,
    own: f64,
    variants: Vec<Variant>,
    made_up: Option<&MadeUp>,
    watch: &dyn Watch,
) -> Result<Curve, PlanError> {
    let (mut curve, count) = (Curve { points: vec![planned(plan, own)], missing: Vec::new() }, variants.len());
    let (mut less, more): (Vec<_>, Vec<_>) = variants.into_iter().partition(|variant| variant.value < own);
    less.reverse();
    let mut done = 0;
    for side in [less, more] {
        let mut near = plan.recommended().parameters.clone();
        for variant in side {
            watch.progress(f64::from(done) / count as f64);
            match point(plan, &variant, made_up, &near, watch) {
                Ok((regret, parameters)) => {
                    near = parameters;
                    curve.points.push(Point { value: variant.value, regret, planned: false });
                }
                Err(why) => curve.missing.push(format!("{}: {why}", variant.named)),
            }
            if watch.is_cancelled() {
                return Err(PlanError::Cancelled);
            }
            done += 1;
        }
    }
    curve.points.sort_by(|a, b| a.value.total_cmp(&b.value));
    Ok(curve)
}

/// What to expect of a variant, and its parameters; or why nothing.
fn point(
    plan: &Plan,
    variant: &Variant,
    made_up: Option<&MadeUp>,
    near: &Parameters,
    watch: &dyn Watch,
) -> Result<(Regret, Parameters), String> {
    let own;
    let made_up = match made_up {
        Some(made_up) => made_up,
        None => {
            own = made_up_for(&variant.spec)?;
            &own
        }
    };
    let attempt = plan.recommended_on(variant.spec.clone(), made_up.names.len());
    let bench = attempt.bench(made_up, watch).ok_or("the recommended algorithm cannot be used")?;
    let near = attempt.fitted(near);
    let found = bench.search_near(&near);
    // What was good next to this point is kept, unless the search found better.
    let best = bench.best([Some(near), found].into_iter().flatten().collect());
    let row = bench.measure(best).map_err(|error| error.message)?;
    let row = row.ok_or("the recommended algorithm diverges")?;
    Ok((row.regret, row.parameters))
}

/// The made-up sets of a variant; or why there are none.
fn made_up_for(spec: &StudySpec) -> Result<MadeUp, String> {
    let why = |error: PlanError| match error {
        PlanError::TooLarge(_) => "the study would be too large to plan by simulation".to_string(),
        PlanError::Study(error) => error.message,
        PlanError::Graph(error) => error.to_string(),
        other => other.to_string(),
    };
    spec.check_facts().map_err(|error| error.message)?;
    let shape = MadeUp::without_sets(spec).map_err(why)?;
    shape.check_trust(spec).map_err(why)?;
    match 2 * spec.liars.unwrap_or(0) >= shape.names.len() {
        true => Err("half of them could lie, and no rule bounds what they do".into()),
        false => MadeUp::of(spec).map_err(why),
    }
}

/// The study with so many clients, whoever they are. Where numbers of records differ, they keep their proportions.
fn with_clients(spec: &StudySpec, count: usize) -> StudySpec {
    let mut sizes = spec.public_records().unwrap_or_default();
    let mut spec = StudySpec { quorum: None, ..spec.clone() };
    spec.clients.clear();
    match &mut spec.data {
        DataSpec::Synthetic { clients, .. } => *clients = count,
        DataSpec::Files { layout, .. } => {
            *layout = Layout::Folder;
            spec.plan.get_or_insert_default().clients = Some(count);
        }
    }
    if sizes.len() > 1 {
        sizes.sort_unstable();
        // The middle of each of so many equal parts of the ordered list.
        sizes = (0..count).map(|k| sizes[(2 * k + 1) * sizes.len() / (2 * count)]).collect();
    }
    spec.records(sizes)
}

/// The study with so many times the records of each client.
fn with_records(spec: &StudySpec, factor: f64) -> StudySpec {
    let scaled = |count: usize| ((count as f64 * factor).round() as usize).max(1);
    let mut spec = spec.clone();
    for records in spec.clients.values_mut().filter_map(|client| client.records.as_mut()) {
        *records = scaled(*records);
    }
    match &mut spec.data {
        DataSpec::Synthetic { records, .. }
        | DataSpec::Files { layout: Layout::StandIn { records, .. }, .. }
        | DataSpec::Files { records, .. } => records.iter_mut().for_each(|count| *count = scaled(*count)),
    }
    spec
}
