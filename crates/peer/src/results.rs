//! The results of a peer: the model, the last releases, what it spent, and conflicting releases that it received.

use std::path::Path;

use serde_json::{Value, json};
use undertone_core::ledger::{Contents, Disk, Participation};
use undertone_core::names::Names;
use undertone_core::node::{Conflict, Node, Roster};
use undertone_core::privacy::{Rho, Spent};
use undertone_core::schema::Scaling;
use undertone_core::study::Study;
use undertone_data::report::{begin_report, score_table, spent_by_round};
use undertone_data::{Background, Closed, Held, Model, Scored, promise, trimmed_mean};

use crate::page::Budget;
use crate::state::write_whole;
use crate::{Evidence, PeerError};

/// Scores on a party's own records.
pub(crate) const OWN_SCORES: &str = "own-scores.json";

/// The last releases and the votes that were here when the process ended.
pub(crate) fn read_finals(results: &Path) -> Vec<Vec<u8>> {
    let Ok(bytes) = std::fs::read(results.join("finals")) else { return Vec::new() };
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let Some((frame, tail)) = tail.split_at_checked(u32::from_le_bytes(*length) as usize) else { break };
        frames.push(frame.to_vec());
        rest = tail;
    }
    frames
}

/// Where the results of a study go, and what they are about.
pub(crate) struct Results<'a> {
    pub study: &'a Study,
    /// The study as agreed, before its columns were standardised.
    pub whole: &'a Study,
    pub roster: &'a Roster,
    pub folder: &'a Path,
    /// What this peer keeps out of training.
    pub held: &'a Held,
    /// Whether there is a model although a party contradicted itself.
    pub marks_conflicts: bool,
    /// What the stages after this one will spend.
    pub later: Spent,
}

impl Results<'_> {
    /// Why what is here is not a model of the study, if it is not.
    pub fn refused<D: Disk>(&self, node: &Node<D>) -> Option<PeerError> {
        if let Some(error) = self.contradicted(node) {
            return Some(error);
        }
        let (here, clients) = (node.finals().len(), self.roster.names.len());
        let (signed, needed) = (node.most_votes(), self.study.quorum(clients));
        (!node.is_agreed()).then_some(PeerError::NoQuorum { here, signed, needed, clients })
    }

    /// Who told two stories, if somebody did and there is to be no model then.
    pub fn contradicted<D: Disk>(&self, node: &Node<D>) -> Option<PeerError> {
        let parties = self.names_of(node.accused());
        let is_over = !parties.is_empty() && !self.marks_conflicts;
        is_over.then(|| PeerError::TwoStories { parties, folder: self.folder.into() })
    }

    fn names_of(&self, ids: Vec<u32>) -> Vec<String> {
        ids.iter().map(|k| self.roster.names.get(*k as usize).into_owned()).collect()
    }

    /// Whether the study ends in a model. Moments and closing releases do not.
    pub fn is_model(&self) -> bool {
        let spec = self.study.spec();
        spec.closing.is_none() && spec.schema().is_none_or(|schema| !matches!(schema.scaling, Scaling::Moments { .. }))
    }

    /// The last releases and the votes that are here, as frames.
    pub fn write_finals<D: Disk>(&self, node: &Node<D>) -> Result<(), PeerError> {
        let mut frames = Vec::new();
        for frame in node.final_frames() {
            frames.extend((frame.len() as u32).to_le_bytes());
            frames.extend_from_slice(frame);
        }
        write_whole(&self.folder.join("finals"), &frames)
    }

    /// model.json, if the study ends in one and it is agreed.
    pub fn write_model<D: Disk>(&self, node: &Node<D>) -> Result<(), PeerError> {
        if self.is_model() && self.refused(node).is_none() {
            let finals = node.finals();
            let flat: Vec<f64> = finals.iter().flat_map(|(_, w)| w.iter().copied()).collect();
            let model = Model::new(self.study, trimmed_mean(&flat, self.study.features(), self.study.liars()));
            let clients = finals.iter().map(|(k, _)| self.roster.names.get(*k as usize)).collect();
            let mut json = model.to_json(self.study, &Background { privacy: self.promised(), closed: None, clients });
            let accused = self.names_of(node.accused());
            if !accused.is_empty() {
                json["made"]["released_two_things_in_one_round"] = json!(accused);
            }
            write_whole(&self.folder.join("model.json"), pretty(&json).as_bytes())?;
            self.write_own_scores(&model)?;
        }
        Ok(())
    }

    /// How the model predicts the records that this peer kept out of training: for its own eyes. It follows from records without noise, so it is not sent.
    fn write_own_scores(&self, model: &Model) -> Result<(), PeerError> {
        let mut scored = Scored::new(self.study.spec().loss);
        self.held.score(self.study, &model.w, &mut scored);
        if scored.is_empty() {
            return Ok(());
        }
        let mut json = scored.to_json();
        json["note"] = json!("computed from this party's own records without noise: treat it like the records");
        write_whole(&self.folder.join(OWN_SCORES), pretty(&json).as_bytes())
    }

    /// Two stories of one party, for anybody to check.
    pub fn write_conflict(&self, conflict: &Conflict) -> Result<(), PeerError> {
        let (author, id) = (conflict.author as usize, self.roster.ids[conflict.author as usize]);
        let name = self.roster.names.get(author).into_owned();
        let evidence = Evidence::new(self.study.digest().whole(), name, id, conflict);
        let file = format!("conflict-{author}-{}.json", conflict.round);
        write_whole(&self.folder.join(file), pretty(&evidence.to_json()).as_bytes())
    }

    /// Writes what this peer spent to statement.json, and returns it.
    pub fn write_statement<D: Disk>(&self, node: &Node<D>, rehearsal: bool) -> Result<Value, PeerError> {
        let statement = self.statement(node, rehearsal);
        write_whole(&self.folder.join("statement.json"), pretty(&statement).as_bytes())?;
        Ok(statement)
    }

    /// The epsilon of a rho in this study; 0 without privacy.
    pub fn epsilon(&self, rho: Rho) -> f64 {
        self.study.privacy().map_or(0.0, |privacy| privacy.accountant().epsilon(rho, privacy.delta()).get())
    }

    /// What any client of the study spends, by public facts alone: the same at all peers.
    fn promised(&self) -> Value {
        let (study, clients) = (self.whole, self.roster.names.len());
        let spent = study.exposure(clients).ok().flatten();
        let epsilon = |rho: Rho| study.privacy().and_then(|privacy| privacy.epsilon(rho)).map(|epsilon| epsilon.get());
        let spent = spent.filter(|_| study.algorithm().clips());
        promise(study, clients, spent.and_then(|s| epsilon(s.rho)), spent.and_then(|s| epsilon(s.alone)))
    }

    /// What was spent on standardising the columns of this study: in the ledger it is a study of its own.
    fn standardisation(&self, contents: &Contents) -> Spent {
        let before = self.study.privacy().map_or(Rho::ZERO, |privacy| privacy.before());
        if before == Rho::ZERO {
            return Spent::ZERO;
        }
        let name = format!("{}-moments", self.study.name());
        let run = contents.runs.iter().rev().find(|run| run.begin.name == name);
        run.map_or(Spent::without_masks(before), |run| run.spent)
    }

    /// What the study with all its stages has spent and will spend, for the page.
    pub fn budget(&self, ledger: &Contents, run: &Participation) -> Budget {
        let before = self.earlier_stages(ledger);
        let (spent, agreed) = (run.spent.plus(before), run.begin.total.plus(before).plus(self.later));
        Budget {
            spent: self.epsilon(spent.rho),
            agreed: self.epsilon(agreed.rho),
            alone: self.epsilon(spent.alone),
            alone_agreed: self.epsilon(agreed.alone),
            all_studies: ledger.spent().filter(|_| self.study.privacy().is_some()).map(|all| self.epsilon(all.rho)),
            is_protected: run.begin.protected,
        }
    }

    /// What the stages before this one have spent. In the ledger each is a study of its own.
    fn earlier_stages(&self, ledger: &Contents) -> Spent {
        let moments = self.whole.moments().map(|moments| moments.name().to_string());
        let stages = moments.into_iter().chain([self.whole.name().to_string()]);
        let stages: Vec<String> = stages.take_while(|stage| stage != self.study.name()).collect();
        let mut runs = ledger.runs.iter().rev();
        let found = stages.iter().rev().filter_map(|stage| runs.find(|run| run.begin.name == *stage));
        found.fold(Spent::ZERO, |sum, run| sum.plus(run.spent))
    }

    fn statement<D: Disk>(&self, node: &Node<D>, rehearsal: bool) -> Value {
        let ledger = node.ledger();
        let run = ledger.run();
        let names = |ids: Vec<u32>| self.names_of(ids);
        let total = ledger.contents().spent().filter(|_| self.study.privacy().is_some());
        let protected = run.begin.protected;
        let before = self.standardisation(ledger.contents());
        let spent = run.spent.plus(before);
        let colluders = self.study.privacy().and_then(|privacy| privacy.colluders());
        json!({
            "study": self.study.name(),
            "study_hash": hex::encode(self.study.digest().whole()),
            "rounds": { "of": run.begin.rounds, "done": run.round, "computed": run.fresh, "mixed": run.mixed, "withheld": run.withheld() },
            "protected": protected,
            "rehearsal": rehearsal && !protected,
            "rho": spent.rho.get(),
            "rho_of_standardisation": (before.rho > Rho::ZERO).then(|| before.rho.get()),
            "epsilon": protected.then(|| self.epsilon(spent.rho)),
            "colluders": colluders,
            "rho_if_all_others_collude": spent.alone.get(),
            "epsilon_if_all_others_collude": protected.then(|| self.epsilon(spent.alone)),
            "delta": self.study.privacy().map(|p| p.delta().get()),
            "accountant": self.study.privacy().map(|p| p.accountant().name()),
            "epsilon_of_all_studies_with_this_data": total.map(|spent| self.epsilon(spent.rho)),
            "epsilon_of_all_studies_if_all_others_collude": total.map(|spent| self.epsilon(spent.alone)),
            "expected_skill": self.study.spec().plan.as_ref().and_then(|plan| plan.skill),
            "overshoots": node.overshoots(),
            "dropped_neighbours": names(run.dropped.iter().map(|d| d.0).collect()),
            "released_two_things_in_one_round": names(node.accused()),
            "missing_from_model": names(node.missing()),
            "clients_in_model": names(node.finals().iter().map(|f| f.0).collect()).len(),
            "clients": self.roster.names.len(),
        })
    }
}

/// What the report of a peer is made of.
pub(crate) struct Told<'a> {
    pub study: &'a Study,
    pub names: &'a Names,
    pub folder: &'a Path,
    /// The last releases that are in the model, with their authors.
    pub finals: &'a [(u32, Vec<f64>)],
    pub statement: &'a Value,
    pub closed: Option<&'a Closed>,
    pub held: &'a Held,
    /// What privacy noise alone does to the coefficients.
    pub spread: Option<&'a [f64]>,
}

impl Told<'_> {
    /// Writes report.html.
    pub fn write(&self) -> Result<(), PeerError> {
        let Told { study, statement, .. } = *self;
        let flat: Vec<f64> = self.finals.iter().flat_map(|(_, w)| w.iter().copied()).collect();
        if flat.is_empty() {
            return Ok(());
        }
        let model = Model::new(study, trimmed_mean(&flat, study.features(), study.liars()));
        let mut report = begin_report(study, &model, self.closed, None, self.spread);
        let mut own = Scored::new(study.spec().loss);
        self.held.score(study, &model.w, &mut own);
        if !own.is_empty() {
            report.private = true;
            let title = format!(
                "On {} of this party's own records, which were kept out of training: for this party's eyes only",
                own.len()
            );
            report.scores.push(score_table(&title, &[("private model", &own)]));
        }
        let number = |key: &str| statement[key].as_f64();
        match (number("epsilon"), number("delta")) {
            (Some(epsilon), Some(delta)) => {
                report.cost.push(format!("This party spent epsilon {epsilon:.4} at delta {delta:e}."));
                if let (Some(colluders), Some(alone)) =
                    (statement["colluders"].as_u64(), number("epsilon_if_all_others_collude"))
                {
                    report.cost.push(format!("This holds as long as at most {colluders} of the other parties pool what they know; if all do, epsilon is {alone:.4}."));
                }
                if let Some(all) = number("epsilon_of_all_studies_with_this_data") {
                    report.cost.push(format!("All studies with this data together: epsilon {all:.4}."));
                }
                report.spent = spent_by_round(study);
            }
            _ => report.cost.push("Not private: a rehearsal without safe noise.".into()),
        }
        let named = |k: usize| self.finals.iter().any(|(author, _)| *author as usize == k);
        let remark =
            |k: usize| if named(k) { "in the model" } else { "not in the model: its last release did not arrive" };
        report.parties = (0..self.names.len()).map(|k| (self.names.get(k).into_owned(), remark(k).into())).collect();
        let rounds = &statement["rounds"];
        report.happened.push(format!(
            "{} rounds: {} computed from this party's records, {} mixed, {} withheld.",
            rounds["done"], rounds["computed"], rounds["mixed"], rounds["withheld"]
        ));
        for (key, words) in [
            ("dropped_neighbours", "Neighbours that were lost and dropped"),
            ("missing_from_model", "Missing from the model"),
        ] {
            let listed: Vec<&str> = statement[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if !listed.is_empty() {
                report.happened.push(format!("{words}: {}.", listed.join(", ")));
            }
        }
        if statement["overshoots"].as_bool() == Some(true) {
            report.happened.push("The steps overshoot: the releases swing to and fro and gain nothing by it.".into());
        }
        write_whole(&self.folder.join("report.html"), report.html().as_bytes())
    }
}

/// Writes what a closing release said to model.json, and what it cost to the statement of its study.
pub(crate) fn add_closing(
    study: &Study,
    folder: &Path,
    statement: &mut Value,
    last: &Value,
    closed: Option<&Closed>,
) -> Result<(), PeerError> {
    let rho = |value: &Value| value.as_f64().and_then(|rho| Rho::new(rho).ok()).unwrap_or(Rho::ZERO);
    let epsilon = |rho: Rho| study.privacy().map(|privacy| privacy.accountant().epsilon(rho, privacy.delta()).get());
    statement["rho_of_closing"] = last["rho"].clone();
    for (total, shown) in [("rho", "epsilon"), ("rho_if_all_others_collude", "epsilon_if_all_others_collude")] {
        let sum = rho(&statement[total]).plus(rho(&last[total]));
        statement[total] = json!(sum.get());
        if !statement[shown].is_null() {
            statement[shown] = json!(epsilon(sum));
        }
    }
    // The ledger knows of all studies, and this is the last.
    for key in ["epsilon_of_all_studies_with_this_data", "epsilon_of_all_studies_if_all_others_collude"] {
        statement[key] = last[key].clone();
    }
    let uncertainty = closed.map_or(Value::Null, Closed::to_json);
    statement["uncertainty"] = uncertainty.clone();
    write_whole(&folder.join("statement.json"), pretty(statement).as_bytes())?;
    let path = folder.join("model.json");
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|source| PeerError::Io { path: path.clone(), what: "cannot be read", source })?;
    if let Ok(mut model) = serde_json::from_str::<Value>(&text) {
        model["uncertainty"] = uncertainty;
        write_whole(&path, pretty(&model).as_bytes())?;
    }
    Ok(())
}

fn pretty(value: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).expect("plain values"))
}
