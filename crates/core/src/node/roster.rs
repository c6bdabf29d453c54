//! The peers of a study.

use thiserror::Error;

use crate::graph::{Graph, GraphError};
use crate::identity::PublicId;
use crate::names::Names;
use crate::privacy::{ClientBudget, Masking};
use crate::problem::Weights;
use crate::records::Records;
use crate::study::{DataSpec, Layout, NoiseKind, Study};

/// Most numbers that a peer keeps per round: P times (2 + d_k).
const MOST_NUMBERS: usize = 200_000_000;

/// Most peers among which the law of masks on the lattice is proven to be that of Gaussians.
const MOST_MASKED: usize = 1 << 20;

/// A study that peers cannot run.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RosterError {
    /// The study is for the simulator.
    #[error("{0}")]
    NotForPeers(String),
    /// The graph cannot be used.
    #[error("graph: {0}")]
    Graph(#[from] GraphError),
    /// The key is not in the study.
    #[error("the key {0} is not in the study; send that id to the author of the study, to be added as client.NAME.id")]
    Unlisted(String),
}

/// All peers of a study, in the order of their names, and their graph.
#[derive(Debug, Clone)]
pub struct Roster {
    /// Their names.
    pub names: Names,
    /// Their keys.
    pub ids: Vec<PublicId>,
    /// Their addresses, where the study has them.
    pub addresses: Vec<Option<String>>,
    /// Which of them are neighbours.
    pub graph: Graph,
    /// What masked noise is made for; none if nobody is trusted.
    pub masking: Option<Masking>,
}

impl Roster {
    /// The peers of a study. `rehearsal` allows noise that is not safe to release, and none.
    pub fn new(study: &Study, rehearsal: bool) -> Result<Self, RosterError> {
        let refuse = |reason: &str| Err(RosterError::NotForPeers(reason.into()));
        match &study.spec().data {
            DataSpec::Files { layout: Layout::Folder, .. } => {}
            _ => return refuse("data.source: peers hold one file each; set it to \"folder\""),
        }
        if study.public_problem().is_none() {
            return refuse("problem.lambda1 = \"paper\" depends on the data of all clients; write a number");
        }
        if study.spec().weights == Weights::Records && study.mean_records().is_none() {
            return refuse(
                "data.records is missing; where every record counts the same, all peers divide by the same public mean number of \
                 records, so write it (or client.NAME.records for each, or problem.weights = \"clients\")",
            );
        }
        if study.privacy().is_some_and(|privacy| privacy.colluders().is_some()) && study.mean_records().is_none() {
            return refuse(
                "data.records is missing; masks are made for a public number of records, so write their mean (or \
                 client.NAME.records for each)",
            );
        }
        if let Some(reason) = study.algorithm().refuses_peers() {
            return refuse(&format!("algorithm.name = \"{}\" {reason}", study.algorithm().name()));
        }
        if !rehearsal {
            match study.privacy() {
                None => {
                    return refuse("privacy is \"off\"; write a table [privacy], or give --rehearsal for public data");
                }
                Some(_) if !study.algorithm().clips() => {
                    return refuse(
                        "algorithm.name: this one does not clip and is not private; choose another, or give --rehearsal",
                    );
                }
                Some(privacy) if privacy.noise() != NoiseKind::Secure => {
                    return refuse(
                        "privacy.noise = \"fast\" is not safe to release; write \"secure\", or give --rehearsal for data that \
                         is public",
                    );
                }
                Some(_) => {}
            }
        }
        let named: Vec<_> = study.spec().clients.iter().collect();
        if named.len() < 2 {
            return refuse("client: peers need at least two tables [client.NAME], each with an id");
        }
        if study.quorum(named.len()) > named.len() {
            return refuse(&format!("peers.quorum is more than the {} parties; write fewer", named.len()));
        }
        if let Some((name, _)) = named.iter().find(|(_, client)| client.id.is_none()) {
            return refuse(&format!("client.{name}.id is missing; it is what `undertone keygen` prints at {name}"));
        }
        let names = Names::listed(named.iter().map(|(name, _)| name.to_string()).collect());
        let graph = study.build_graph(&names, 0)?;
        let addresses: Vec<_> = named.iter().map(|(_, client)| client.address.clone()).collect();
        if study.spec().relay.is_none() {
            for a in 0..names.len() {
                let unreachable = |b: &&u32| addresses[a].is_none() && addresses[**b as usize].is_none();
                if let Some(b) = graph.neighbours(a).iter().find(unreachable) {
                    let (a, b) = (names.get(a), names.get(*b as usize));
                    return refuse(&format!(
                        "client.{a}.address and client.{b}.address are both missing, so neither can reach the other; give one of \
                         them, or network.relay"
                    ));
                }
            }
        }
        // A ledger's record of a round holds this many numbers, and its length has 32 bits.
        let widest = (0..names.len()).map(|k| graph.degree(k)).max().unwrap_or(0);
        if study.features().saturating_mul(2 + widest) > MOST_NUMBERS {
            return refuse(
                "data.features times the neighbours of a client is too large for peers; use fewer of either",
            );
        }
        if study.privacy().and_then(|privacy| privacy.colluders()) == Some(0) && !rehearsal {
            return refuse(
                "privacy.colluders = 0 would assume that no party looks at what it knows itself; a curious party is one colluder, so \
                 write at least 1",
            );
        }
        if names.len() > MOST_MASKED && study.privacy().is_some_and(|privacy| privacy.colluders().is_some()) {
            return refuse("privacy.colluders: masks are proven for at most a million peers; leave it out");
        }
        let masking = study.masking(names.len(), || f64::NAN).map_err(|e| RosterError::NotForPeers(e.message))?;
        let ids = named.iter().filter_map(|(_, client)| client.id).collect();
        Ok(Self { ids, names, addresses, graph, masking })
    }

    /// What the peer `me` may spend in a study, with these records; none without privacy.
    pub fn budget(&self, study: &Study, me: usize, records: Records) -> Option<ClientBudget> {
        let budget = study.client_budget(&self.names.get(me))?.masked(self.masking);
        Some(match records.gradient_sensitivity() {
            Some(gradient) => budget.of_records(gradient, records.features()),
            None => budget,
        })
    }

    /// The peer that has this key.
    pub fn find(&self, id: &PublicId) -> Option<usize> {
        self.ids.iter().position(|known| known == id)
    }
}
