//! What a peer's page shows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use undertone_core::node::{News, Roster};
use undertone_core::study::{Study, StudySpec};
use undertone_data::Model;

use super::curve::Curve;
use super::server::Feed;
use crate::metrics::Standing;

/// Events that are kept.
const EVENTS: usize = 200;
/// A graph of more edges is shown by those of the viewer alone.
const EDGES: usize = 4000;
/// How far back the time left is estimated from, in samples of a second each.
const PACE: usize = 30;
/// Waiting for less is part of every round.
const SHORT: f64 = 2.0;

/// What is shown of one study, or of one stage of it.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    /// The study as agreed.
    pub whole: &'a Study,
    /// The stage that is run.
    pub study: &'a Study,
    pub roster: &'a Roster,
    /// The viewer.
    pub me: usize,
    /// Whether the stage ends in a model.
    pub is_model: bool,
}

/// How things stand.
pub(crate) struct Sight {
    pub standing: Standing,
    /// Live neighbours, and whether each is connected.
    pub neighbours: Vec<(u32, bool)>,
    /// Those whose release the next round lacks.
    pub awaited: Vec<u32>,
    /// What was spent and will be: if few collude, and if all others do.
    pub budget: Budget,
    /// Releases made from the records.
    pub fresh: u32,
}

/// Epsilons of a study with all its stages.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Budget {
    pub spent: f64,
    pub agreed: f64,
    pub alone: f64,
    pub alone_agreed: f64,
    /// Of all studies with these records.
    pub all_studies: Option<f64>,
    pub is_protected: bool,
}

struct Neighbour {
    state: &'static str,
    since: Instant,
}

/// What the page shows, and where it goes.
pub(crate) struct Board {
    feed: Arc<Feed>,
    started: Instant,
    /// What does not change while a stage runs.
    study: Value,
    viewer: usize,
    names: Vec<String>,
    stage: &'static str,
    sight: Option<Sight>,
    neighbours: BTreeMap<u32, Neighbour>,
    /// Neighbours in the study, those whose edge was dropped among them.
    all_neighbours: Vec<u32>,
    stuck: Vec<u32>,
    /// Neighbours that were connected in this stage.
    met: BTreeSet<u32>,
    /// What the last releases of the stage are, in words.
    makes: &'static str,
    is_agreed: bool,
    curve: Curve,
    /// The newest release: its round, its values, and how far it is from the one before.
    release: Option<(u32, Vec<f64>, Option<f64>)>,
    coefficients: Value,
    events: VecDeque<Value>,
    /// When which round was done.
    paces: VecDeque<(Instant, u32)>,
    /// The round after which this process continued, if it did.
    resumed: Option<u32>,
    result: Option<(bool, String)>,
}

impl Board {
    /// A board that nothing is known of yet.
    pub fn new(study: &Study) -> Self {
        let mut board = Self {
            feed: Arc::new(Feed::new("{}".into())),
            started: Instant::now(),
            study: json!({ "name": study.name(), "rounds": study.rounds() }),
            viewer: 0,
            names: Vec::new(),
            stage: "starting",
            sight: None,
            neighbours: BTreeMap::new(),
            all_neighbours: Vec::new(),
            stuck: Vec::new(),
            met: BTreeSet::new(),
            makes: "model",
            is_agreed: false,
            curve: Curve::default(),
            release: None,
            coefficients: json!([]),
            events: VecDeque::new(),
            paces: VecDeque::new(),
            resumed: None,
            result: None,
        };
        board.publish();
        board
    }

    /// Where the page comes from.
    pub fn feed(&self) -> Arc<Feed> {
        self.feed.clone()
    }

    /// A stage begins, after this round of it.
    pub fn begin(&mut self, scene: &Scene, round: u32, new_ledger: bool) {
        let Scene { whole, study, roster, me, .. } = *scene;
        self.viewer = me;
        self.names = (0..roster.names.len()).map(|k| roster.names.get(k).into_owned()).collect();
        self.study = described(whole, study, roster, me);
        self.all_neighbours = roster.graph.neighbours(me).to_vec();
        self.stage = match (scene.is_model, study.spec().closing.is_some()) {
            (true, _) => "rounds",
            (false, true) => "closing",
            (false, false) => "moments",
        };
        (self.curve, self.release, self.paces) = (Curve::default(), None, VecDeque::new());
        self.makes = match self.stage {
            "moments" => "means and spreads of the columns",
            "closing" => "closing numbers",
            _ => "model",
        };
        // A stage begins with new connections, which nobody has lost.
        self.neighbours.clear();
        self.met.clear();
        self.is_agreed = false;
        let words = match (self.stage, new_ledger, round) {
            ("moments", ..) => "Started with the private standardisation of the columns.".to_string(),
            ("closing", ..) => "The closing release begins.".into(),
            (_, false, 0) if whole.moments().is_some() => "The columns are standardised. The rounds begin.".into(),
            (_, true, _) => "Started with a new ledger: these records have spent nothing so far.".into(),
            (_, _, 0) => "Started.".into(),
            _ => {
                self.resumed = Some(round);
                format!("Resumed from the ledger after round {round}. No round is noised again.")
            }
        };
        self.event("info", words);
        self.publish();
    }

    /// Something happened.
    pub fn news(&mut self, news: &News) {
        let Some((kind, words)) = self.told(news) else { return };
        self.event(kind, words);
    }

    /// A round was released.
    pub fn released(&mut self, round: u32, values: &[f64]) {
        let moved = self.release.as_ref().filter(|(before, ..)| before + 1 == round).map(|(_, before, _)| {
            let sum: f64 = before.iter().zip(values).map(|(a, b)| (a - b) * (a - b)).sum();
            (sum / values.len() as f64).sqrt()
        });
        self.release = Some((round, values.to_vec(), moved));
    }

    /// How things stand, from time to time.
    pub fn update(&mut self, scene: &Scene, sight: Sight) {
        let round = sight.standing.round;
        if let Some((at, values, moved)) = &self.release
            && *at == round
        {
            self.curve.add(round, sight.standing.consensus, *moved);
            if scene.is_model {
                self.coefficients = coefficients(scene.study, values);
            }
        }
        let now = Instant::now();
        if self.paces.back().is_none_or(|(at, _)| now - *at >= Duration::from_secs(1)) {
            self.paces.push_back((now, round));
            keep_newest(&mut self.paces, PACE);
        }
        if round == sight.standing.rounds && self.stage == "rounds" {
            self.stage = "finals";
        }
        self.stuck.retain(|id| sight.awaited.contains(id));
        for id in self.all_neighbours.clone() {
            let state = match sight.neighbours.iter().find(|(peer, _)| *peer == id) {
                None => "dropped",
                Some((_, false)) => "away",
                Some(_) if self.stuck.contains(&id) => "stuck",
                Some(_) if sight.awaited.contains(&id) && sight.standing.awaited_seconds >= SHORT => "awaited",
                Some(_) => "connected",
            };
            let known = self.neighbours.entry(id).or_insert(Neighbour { state, since: now });
            if known.state != state {
                *known = Neighbour { state, since: now };
            }
        }
        self.sight = Some(sight);
        self.publish();
    }

    /// The peer has ended: with what, in words.
    pub fn end(&mut self, ended: Result<bool, String>) {
        let (stage, ok, words) = match ended {
            Ok(false) => ("finished", true, "The model is agreed on and written.".to_string()),
            Ok(true) => {
                ("stopped", false, "Interrupted. Nothing is lost: the same command continues from here.".into())
            }
            Err(reason) => ("stopped", false, reason),
        };
        self.stage = stage;
        self.event(if ok { "info" } else { "error" }, words.clone());
        self.result = Some((ok, words));
        self.publish();
    }

    fn event(&mut self, kind: &str, words: String) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        self.events.push_back(json!({ "at": at, "kind": kind, "text": words }));
        keep_newest(&mut self.events, EVENTS);
    }

    /// News in words; what happens in every round is none.
    fn told(&mut self, news: &News) -> Option<(&'static str, String)> {
        let name = |id: &u32| self.names.get(*id as usize).cloned().unwrap_or_else(|| format!("party {id}"));
        let names = |ids: &[u32]| ids.iter().map(name).collect::<Vec<_>>().join(", ");
        Some(match news {
            News::Greeted(id) => {
                let words = match self.met.contains(id) {
                    true => format!("{} came back.", name(id)),
                    false => format!("Connected to {}.", name(id)),
                };
                self.met.insert(*id);
                ("info", words)
            }
            // Whoever has ended what is agreed on leaves.
            News::Lost(..) if self.is_agreed => return None,
            News::Lost(id, reason) => ("warning", format!("The connection to {} was lost: {reason}.", name(id))),
            News::Waiting(id) => ("warning", format!("Waiting for {}.", name(id))),
            News::Stuck(id) => {
                let words = format!("{} says that its disk does not answer.", name(id));
                self.stuck.push(*id);
                ("warning", words)
            }
            News::Refused(id, reason) => ("warning", format!("A connection from {} was refused: {reason}.", name(id))),
            News::Withheld(round) => {
                ("warning", format!("Round {round} was made without the records, at no further cost."))
            }
            News::Dropped { neighbour, theirs: true, .. } => {
                ("warning", format!("{} dropped the edge to this peer.", name(neighbour)))
            }
            News::Dropped { neighbour, .. } => ("warning", format!("The edge to {} was dropped.", name(neighbour))),
            News::Conflict(conflict) => (
                "error",
                format!(
                    "{} told different peers different things in round {}.",
                    name(&conflict.author),
                    conflict.round
                ),
            ),
            News::Missing(ids) if ids.is_empty() => return None,
            News::Missing(ids) => {
                ("info", format!("All rounds are done. The last releases of {} are awaited.", names(ids)))
            }
            News::Voted => ("info", format!("Signed which last releases make the {}.", self.makes)),
            News::Agreed(ids) => {
                self.is_agreed = true;
                match ids.is_empty() {
                    true => {
                        ("info", format!("The last releases of all parties make the {}; this is agreed.", self.makes))
                    }
                    false => (
                        "warning",
                        format!(
                            "The last releases make the {}, without those of {}; this is agreed.",
                            self.makes,
                            names(ids)
                        ),
                    ),
                }
            }
            News::GaveUp(_) => {
                ("error", format!("Too few parties have signed the same last releases: there is no {}.", self.makes))
            }
            News::Serving(ids) => ("info", format!("Finished here. Staying online for {}.", names(ids))),
            News::Round(_) => return None,
        })
    }

    fn publish(&mut self) {
        self.feed.send_replace(self.json().to_string().into());
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "kind": "peer",
            "study": self.study,
            "viewer": (!self.names.is_empty()).then_some(self.viewer),
            "stage": self.stage,
            "seconds": self.started.elapsed().as_secs_f64(),
            "left": self.left(),
            "curve": self.curve.points(),
            "coefficients": self.coefficients,
            "events": self.events,
            "resumed": self.resumed,
            "result": self.result.as_ref().map(|(ok, words)| json!({ "ok": ok, "text": words })),
        });
        if let Some(Sight { standing, awaited, budget, fresh, .. }) = &self.sight {
            let neighbours = self.neighbours.iter().map(|(party, known)| {
                json!({ "party": party, "state": known.state, "since": known.since.elapsed().as_secs_f64() })
            });
            json["round"] = json!(standing.round);
            json["rounds"] = json!(standing.rounds);
            json["noised"] = json!(fresh);
            json["neighbours"] = neighbours.collect();
            json["waiting"] = json!({ "for": awaited, "seconds": standing.awaited_seconds });
            json["budget"] = json!({
                "spent": budget.spent, "agreed": budget.agreed,
                "alone": (budget.alone_agreed > budget.agreed * (1.0 + 1e-9)).then_some(budget.alone),
                "alone_agreed": budget.alone_agreed, "all_studies": budget.all_studies,
            });
            json["study"]["protected"] = json!(budget.is_protected);
        }
        json
    }

    /// Seconds that the remaining rounds of the stage will take, at the pace of the last ones.
    fn left(&self) -> Option<f64> {
        let ((first, from), (last, to)) = (self.paces.front()?, self.paces.back()?);
        let rounds = self.sight.as_ref()?.standing.rounds.saturating_sub(*to);
        let passed = (*last - *first).as_secs_f64();
        (to > from && passed > 0.0).then(|| f64::from(rounds) * passed / f64::from(to - from))
    }
}

/// What does not change while a stage runs.
fn described(whole: &Study, study: &Study, roster: &Roster, me: usize) -> Value {
    let spec: &StudySpec = whole.spec();
    let graph = &roster.graph;
    let edges = (0..graph.clients()).flat_map(|a| {
        let near = graph.neighbours(a).iter().filter(move |b| a < **b as usize);
        near.map(move |b| [a, *b as usize])
    });
    let edges: Vec<[usize; 2]> = match graph.edges() > EDGES {
        true => edges.filter(|edge| edge.contains(&me)).collect(),
        false => edges.collect(),
    };
    json!({
        "name": whole.name(),
        "target": spec.schema().map(|schema| &schema.target.name),
        "loss": spec.loss.name(),
        "algorithm": study.algorithm().name(),
        "rounds": study.rounds(),
        "parties": (0..roster.names.len()).map(|k| roster.names.get(k)).collect::<Vec<_>>(),
        "edges": edges,
        "connections": graph.edges(),
        "delta": whole.privacy().map(|privacy| privacy.delta().get()),
        "colluders": whole.privacy().and_then(|privacy| privacy.colluders()),
        "hash": hex::encode(study.digest().whole()),
    })
}

/// A release in the units of the table.
fn coefficients(study: &Study, values: &[f64]) -> Value {
    let units = Model::new(study, values.to_vec()).original;
    let named = |(name, value): (&str, f64)| json!({ "name": name, "value": value });
    let all = units.coefficients.iter().map(|(name, value)| (&**name, *value));
    std::iter::once(("intercept", units.intercept)).chain(all).map(named).collect()
}

/// Drops what came first until no more than so many are left.
fn keep_newest<T>(all: &mut VecDeque<T>, most: usize) {
    all.drain(..all.len().saturating_sub(most));
}
