//! Compares the studies of two peers, and finds where they differ.

use super::toml::print;
use super::{DataSpec, StudySpec};
use crate::problem::Weights;
use crate::records::Precision;

/// Bytes of one part's digest.
const PART: usize = 16;

/// A digest of everything that all peers must agree on, part by part.
///
/// Addresses, paths, what the planner expects and what only a simulation needs are left out: they may differ from peer to peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StudyDigest {
    parts: [[u8; PART]; Self::PARTS.len()],
}

impl StudyDigest {
    /// The parts of a digest.
    pub const PARTS: [&'static str; 13] = [
        "name",
        "seed",
        "rounds",
        "problem",
        "data",
        "graph",
        "algorithm",
        "privacy",
        "client",
        "plan",
        "inference",
        "peers",
        "robust",
    ];

    /// Bytes of the whole.
    pub const SIZE: usize = PART * Self::PARTS.len();

    /// The digest of a study whose defaults are filled in.
    pub(super) fn of(spec: &StudySpec) -> Self {
        let mut table = print::table(spec);
        if let DataSpec::Files { schema, records, .. } = &spec.data {
            let mut data = print::print_schema(schema);
            if !records.is_empty() {
                data.insert("records".into(), print::print_records(records));
            }
            if spec.precision == Precision::Single {
                data.insert("precision".into(), "single".into());
            }
            table.insert("data".into(), data.into());
        }
        // Digests are older than this key, and clients counted the same.
        if spec.weights == Weights::Clients
            && let Some(problem) = table.get_mut("problem").and_then(|v| v.as_table_mut())
        {
            problem.remove("weights");
        }
        if let Some(plan) = table.get_mut("plan").and_then(|v| v.as_table_mut()) {
            plan.remove("skill");
            if plan.is_empty() {
                table.remove("plan");
            }
        }
        if let Some(clients) = table.get_mut("client").and_then(|v| v.as_table_mut()) {
            for (_, client) in clients.iter_mut() {
                client.as_table_mut().expect("a client is a table").remove("address");
            }
        }
        let parts = Self::PARTS.map(|part| {
            let text = table.get(part).map(ToString::to_string).unwrap_or_default();
            let mut hasher = blake3::Hasher::new_derive_key("undertone 2026 part of a study");
            hasher.update(part.as_bytes()).update(&[0]).update(text.as_bytes());
            *hasher.finalize().as_bytes().first_chunk().expect("a hash is longer than a part")
        });
        Self { parts }
    }

    /// One hash over all parts.
    pub fn whole(&self) -> [u8; 32] {
        blake3::derive_key("undertone 2026 study", self.parts.as_flattened())
    }

    /// The tables and keys in which two studies differ.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differs = |i: &usize| self.parts[*i] != other.parts[*i];
        (0..Self::PARTS.len()).filter(differs).map(|i| Self::PARTS[i]).collect()
    }

    /// The encoded digest.
    pub fn as_bytes(&self) -> &[u8] {
        self.parts.as_flattened()
    }

    /// From an encoded digest.
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let mut parts = [[0; PART]; Self::PARTS.len()];
        parts.as_flattened_mut().copy_from_slice(bytes);
        Self { parts }
    }
}
