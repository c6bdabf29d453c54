//! Evidence that a party told two stories: what is kept of them, and how anybody can check it.
//!
//! A party signs the hash of all that it has released up to a round. Two valid signatures of different hashes for the same round of the same study cannot belong to
//! one history, and only the owner of the key can make them.

use serde_json::{Value, json};
use undertone_core::identity::PublicId;
use undertone_core::message::Chain;
use undertone_core::node::{Conflict, Story};

/// What a file of evidence begins with.
const FORMAT: &str = "undertone evidence 1";

/// Two stories of one party.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The study, as a hash.
    pub study: [u8; 32],
    /// The party's name in it.
    pub author: String,
    /// The party's key.
    pub id: PublicId,
    /// The round.
    pub round: u32,
    /// The two hashes of all releases up to the round.
    pub stories: [Story; 2],
}

impl Evidence {
    /// What a peer has seen.
    pub(crate) fn new(study: [u8; 32], author: String, id: PublicId, conflict: &Conflict) -> Self {
        Self { study, author, id, round: conflict.round, stories: conflict.stories }
    }

    /// As it is written.
    pub fn to_json(&self) -> Value {
        let story =
            |story: &Story| json!({ "head": hex::encode(story.head), "signature": story.signature.map(hex::encode) });
        json!({
            "format": FORMAT,
            "study": hex::encode(self.study),
            "author": self.author,
            "id": self.id.to_string(),
            "round": self.round,
            "stories": self.stories.each_ref().map(story),
            "proves": self.is_proof(),
        })
    }

    /// From what was written; what it says of itself is not believed. Otherwise which field is wrong.
    pub fn read(text: &str) -> Result<Self, String> {
        let json: Value = serde_json::from_str(text).map_err(|e| format!("is not JSON ({e})"))?;
        if json["format"] != FORMAT {
            return Err(format!("has no format \"{FORMAT}\""));
        }
        let wrong = |field: &str| format!("has a wrong field `{field}`");
        fn bytes<const N: usize>(value: &Value) -> Option<[u8; N]> {
            let mut bytes = [0; N];
            hex::decode_to_slice(value.as_str()?, &mut bytes).ok()?;
            Some(bytes)
        }
        let story = |value: &Value| {
            let signature = match &value["signature"] {
                Value::Null => None,
                signature => Some(bytes(signature)?),
            };
            Some(Story { head: bytes(&value["head"])?, signature })
        };
        Ok(Self {
            study: bytes(&json["study"]).ok_or_else(|| wrong("study"))?,
            author: json["author"].as_str().ok_or_else(|| wrong("author"))?.into(),
            id: json["id"].as_str().and_then(|id| id.parse().ok()).ok_or_else(|| wrong("id"))?,
            round: json["round"].as_u64().and_then(|n| n.try_into().ok()).ok_or_else(|| wrong("round"))?,
            stories: match json["stories"].as_array().map(|s| s.iter().map(story).collect::<Vec<_>>()).as_deref() {
                Some([Some(first), Some(second)]) => [*first, *second],
                _ => return Err(wrong("stories")),
            },
        })
    }

    /// Whether the owner of the key signed two different histories of the same rounds.
    pub fn is_proof(&self) -> bool {
        let chain = Chain::of(self.study);
        let is_signed = |story: &Story| {
            story.signature.is_some_and(|signature| chain.verifies(&self.id, self.round, &story.head, &signature))
        };
        self.stories[0].head != self.stories[1].head && self.stories.iter().all(is_signed)
    }
}
