//! What a peer leaves behind: the model, the frames behind it, what it spent, and contradictions it saw.

use std::path::Path;

use serde_json::{Value, json};
use undertone_core::ledger::{Disk, Ledger};
use undertone_core::node::Conflict;
use undertone_core::privacy::Rho;
use undertone_data::{Model, mean};

use crate::PeerError;
use crate::run::Peer;
use crate::state::write_whole;

/// The last releases of a study that was finished before.
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

impl<D: Disk> Peer<'_, D> {
    /// model.json, and the frames behind it.
    pub fn write_model(&self) -> Result<(), PeerError> {
        let finals = self.node.finals();
        let flat: Vec<f64> = finals.iter().flat_map(|(_, w)| w.iter().copied()).collect();
        let model = Model::new(self.study, mean(&flat, self.study.features()), None);
        let mut json = model.to_json(self.study);
        let names: Vec<_> = finals.iter().map(|(k, _)| self.roster.names.get(*k as usize)).collect();
        json["clients"] = json!(names);
        write_whole(&self.results.join("model.json"), pretty(&json).as_bytes())?;
        let mut frames = Vec::new();
        for frame in self.node.final_frames() {
            frames.extend((frame.len() as u32).to_le_bytes());
            frames.extend_from_slice(frame);
        }
        write_whole(&self.results.join("finals"), &frames)
    }

    /// Both sides of a contradiction, for whoever must judge it.
    pub fn write_conflict(&self, conflict: &Conflict) -> Result<(), PeerError> {
        let name = self.roster.names.get(conflict.author as usize);
        let json = json!({
            "author": name,
            "id": self.roster.ids[conflict.author as usize].to_string(),
            "study": hex::encode(self.digest.whole()),
            "round": conflict.round,
            "first": hex::encode(&conflict.first),
            "second": hex::encode(&conflict.second),
            "both_signed": conflict.provable,
        });
        let file = format!("conflict-{}-{}.json", conflict.author, conflict.round);
        write_whole(&self.results.join(file), pretty(&json).as_bytes())
    }

    /// What this peer spent, as statement.json holds it.
    pub fn statement(&self, rehearsal: bool) -> Value {
        let ledger: &Ledger<D> = self.node.ledger();
        let run = ledger.run();
        let standing = self.standing();
        let names =
            |ids: Vec<u32>| ids.iter().map(|k| self.roster.names.get(*k as usize).into_owned()).collect::<Vec<_>>();
        let total = ledger
            .contents()
            .spent()
            .zip(self.study.privacy)
            .and_then(|(rho, p)| Some(p.accountant.epsilon(Rho::new(rho).ok()?, p.delta).get()));
        let protected = run.begin.protected;
        json!({
            "study": self.study.name,
            "study_hash": hex::encode(self.digest.whole()),
            "rounds": { "of": run.begin.rounds, "done": run.round, "computed": run.fresh, "mixed": run.mixed, "withheld": run.withheld() },
            "protected": protected,
            "rehearsal": rehearsal && !protected,
            "rho": run.spent,
            "epsilon": protected.then_some(standing.spent),
            "delta": self.study.privacy.map(|p| p.delta.get()),
            "accountant": self.study.privacy.map(|p| p.accountant.name()),
            "epsilon_of_all_studies_with_this_data": total,
            "dropped_neighbours": names(run.dropped.iter().map(|d| d.0).collect()),
            "missing_from_model": names(self.node.missing()),
            "clients_in_model": names(self.node.finals().iter().map(|f| f.0).collect()).len(),
            "clients": self.roster.names.len(),
        })
    }
}

pub(crate) fn pretty(value: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).expect("plain values"))
}
