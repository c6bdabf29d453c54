//! The errors of a peer.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;
use undertone_core::ledger::LedgerError;
use undertone_core::node::{RosterError, Stop};
use undertone_core::privacy::UnitError;
use undertone_core::study::StudyError;
use undertone_data::DataError;

/// A peer that could not start, or could not continue.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The study is not for peers, or not for this one.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// The study does not fit the records, or what was released about them.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The records cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A key file cannot be used or made.
    #[error("{}: {source}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KeyError,
    },
    /// The state folder, or the ledger in it, cannot be used.
    #[error("{}: {source}", path.display())]
    State {
        /// The folder or the file in it.
        path: PathBuf,
        /// What is wrong with it.
        source: StateError,
    },
    /// No key could be drawn.
    #[error("the operating system returned no random key ({0})")]
    Random(#[source] getrandom::Error),
    /// The owner's limit does not allow the study.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The study is unusual, and nobody has confirmed it.
    #[error("this study is unusual: {}. Nothing was sent; start again with --yes if it is meant", .0.join("; "))]
    Unconfirmed(Vec<String>),
    /// A party released different things to different peers.
    #[error(
        "{} released two different things in one round, so what the others hold is not what this peer holds: there is no model. The evidence is in {}; with --on-conflict mark \
         the model is written all the same and says so",
        .parties.join(", "),
        folder.display()
    )]
    TwoStories {
        /// Who.
        parties: Vec<String>,
        /// Where the evidence is.
        folder: PathBuf,
    },
    /// Too few parties have signed the same set of last releases for a model of the study.
    #[error(
        "the last releases of {here} of {clients} parties are here, at most {signed} have signed the same set of them, and a model of the study needs {needed} of both: there is no model. If the others are late, the same command goes on when they are back; if edges to them were dropped, the study has to be begun anew under another name"
    )]
    NoQuorum {
        /// How many are here.
        here: usize,
        /// How many parties have signed the same set.
        signed: usize,
        /// How many are needed.
        needed: usize,
        /// How many parties there are.
        clients: usize,
    },
    /// The policy in the state folder cannot be read.
    #[error(transparent)]
    Policy(StudyError),
    /// The network could not be started.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The page or the metrics cannot be served.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The node cannot go on.
    #[error(transparent)]
    Stop(#[from] Stop),
    /// A file or folder of results could not be written.
    #[error("{}: {what} ({source})", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What could not be done with it.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The loop has no timer.
    #[error("no clock ({0})")]
    Clock(#[source] io::Error),
}

impl PeerError {
    /// Whether the study ended, and its result is not to be relied on.
    pub fn is_result(&self) -> bool {
        matches!(self, Self::TwoStories { .. } | Self::NoQuorum { .. })
    }

    /// Whether something that was given is wrong, so that the same command fails again until it is changed. Otherwise the
    /// machine failed.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Roster(_) | Self::Study(_) | Self::Data(_) | Self::Limit(_) => true,
            Self::Unconfirmed(_) | Self::Policy(_) => true,
            Self::TwoStories { .. } | Self::NoQuorum { .. } => false,
            Self::Key { source, .. } => !matches!(source, KeyError::Unwritable(_)),
            Self::State { source, .. } => !matches!(
                source,
                StateError::Io { .. }
                    | StateError::LedgerUnwritable(_)
                    | StateError::AnchorUnwritable(_)
                    | StateError::Ledger(LedgerError::Disk(..))
            ),
            Self::Network(error) => matches!(error, NetworkError::Relay(_)),
            Self::Server(error) => !matches!(error, ServerError::Address { .. } | ServerError::Thread(_)),
            // What is wrong with a ledger stays wrong; a disk may recover.
            Self::Stop(Stop::Ledger(error)) => !matches!(error, LedgerError::Disk(..)),
            Self::Stop(_) => true,
            Self::Random(_) | Self::Io { .. } | Self::Clock(_) => false,
        }
    }
}

/// What is wrong with a key file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is a file already.
    #[error("exists already, and a key is never overwritten; choose another name")]
    Exists,
    /// It could not be written.
    #[error("cannot be written ({0}); choose another place")]
    Unwritable(#[source] io::Error),
    /// It could not be read.
    #[error("cannot be read ({0}); give the file that `undertone keygen` wrote")]
    Unreadable(#[source] io::Error),
    /// Who may read it is not known.
    #[error("{0}")]
    Permissions(#[source] io::Error),
    /// Others may read it.
    #[error("others on this machine can read this key; run `chmod 600` on it, or make a new one")]
    Exposed,
    /// It holds something else.
    #[error("is not a key; give the file that `undertone keygen` wrote")]
    NotAKey,
}

/// What is wrong with a state folder.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// What private standardisation found cannot be read.
    #[error(
        "is damaged, so it is not known how the columns were standardised; restore it from a backup, or start a new study under another name"
    )]
    MapDamaged,
    /// What private standardisation found is gone.
    #[error(
        "is missing, but the ledger shows that rounds were made with it; restore it from a backup, or start a new study under another name"
    )]
    MapLost,
    /// The folder could not be made, written, locked or listed.
    #[error("the state folder {what} ({source})")]
    Io {
        /// What could not be done.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Another process has the lock.
    #[error("another process uses this state folder; stop it first")]
    InUse,
    /// Results without the ledger that they were charged to.
    #[error(
        "holds files but no ledger, or an empty one; if its ledger was lost, what this data has spent is unknown and it must not \
         take part in a study again; if this is the wrong folder, give another"
    )]
    NoLedger,
    /// The ledger could not be opened for writing.
    #[error("cannot be opened for writing ({0}), and nothing is sent without being recorded; make it writable")]
    LedgerUnwritable(#[source] io::Error),
    /// The file of the anchor could not be opened for writing.
    #[error(
        "the anchor cannot be opened for writing ({0}); make its folder reachable and writable, or name another place"
    )]
    AnchorUnwritable(#[source] io::Error),
    /// The anchor would be restored together with the folder.
    #[error(
        "the anchor is inside of the state folder, so whoever restores the folder restores it too; name a place on another disk"
    )]
    AnchorInside,
    /// The ledger could not be opened for reading.
    #[error("cannot be read ({0}); give a state folder of a peer")]
    LedgerUnreadable(#[source] io::Error),
    /// The ledger was read and cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Why the owner's limit does not allow a study.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The study spends without bound.
    #[error("--max-epsilon or --max-epsilon-alone: this study has no privacy, so no limit can be enforced")]
    NoPrivacy,
    /// The limit is no epsilon.
    #[error("{option}: {reason}")]
    NotAnEpsilon {
        /// As it is called on the command line.
        option: &'static str,
        /// What is wrong with it.
        reason: UnitError,
    },
    /// The data was or would be released without safe noise.
    #[error(
        "--max-epsilon or --max-epsilon-alone: this data takes or took part in a rehearsal without safe noise, so no limit can be enforced"
    )]
    Rehearsal,
    /// The study would spend more than is left.
    #[error(
        "{option} {limit}: with what it spent before, this data would have spent epsilon {total:.4} at delta {delta:e} after this \
         study{}; nothing more was sent. Raise the limit, or ask for a study with a smaller budget{}",
        if *.alone { " if all others collude" } else { "" },
        if *.alone { ", or, if it has masks, with more privacy.colluders" } else { "" }
    )]
    Exceeded {
        /// Where it was stated.
        option: &'static str,
        /// The limit.
        limit: f64,
        /// What all studies together would have spent.
        total: f64,
        /// The delta of both.
        delta: f64,
        /// Whether it is the limit for the case that all others collude.
        alone: bool,
    },
    /// The data took part in as many studies as its owner allows.
    #[error(
        "policy.toml: studies = {most}: this data took part in {before} already; nothing was sent. Raise the number, or leave the study"
    )]
    Studies {
        /// How many are allowed.
        most: u32,
        /// How many there were.
        before: usize,
    },
    /// The rho of all studies would be more than is allowed.
    #[error(
        "policy.toml: rho = {most}: with what it spent before, this data would have spent rho {total:.6} after this study; nothing was sent. Raise the limit, or ask for a study with a smaller budget"
    )]
    Rho {
        /// The limit.
        most: f64,
        /// What all studies would have spent.
        total: f64,
    },
    /// Its delta would allow to publish a record.
    #[error(
        "privacy.delta = {delta:e} is above 1/{records:.0}, one over the number of records: publishing one whole record at random would keep it. Nothing was sent; ask for a study with a \
         smaller delta, or allow it with allow_large_delta = true in policy.toml"
    )]
    LargeDelta {
        /// The study's delta.
        delta: f64,
        /// The number of records.
        records: f64,
    },
}

/// Why the network could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The thread or its runtime could not be started.
    #[error("no network thread ({0})")]
    Thread(#[source] io::Error),
    /// The thread ended before it listened.
    #[error("the network thread ended at once")]
    ThreadEnded,
    /// The relay in the study is no URL.
    #[error("network.relay: {0}; write \"https://host\"")]
    Relay(#[source] Cause),
    /// The address to listen at cannot be used.
    #[error("--listen {address}: {source}; choose another address")]
    ListenAddress {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: Cause,
    },
    /// Something else may be listening there.
    #[error("{address}: cannot listen there ({source:#}); is the port in use? Free it, or give another with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: Cause,
    },
}

/// Why a page or metrics cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be used.
    #[error(
        "http://{address}: cannot be served there ({source}); is the port in use? Free it, or choose another address"
    )]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Others could see the page.
    #[error(
        "--page {address}: others than this machine could see the page there; give --page-token FILE, whose token they then need, or a loopback address such as 127.0.0.1:{}",
        address.port()
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The file of the token cannot be read or made.
    #[error("{}: {source}; a token must be kept there, so make its folder readable and writable, or name another file", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others than its owner can read that file.
    #[error("{}: others can read or change the token; chmod 600 this file, or name another", path.display())]
    ExposedToken {
        /// The file.
        path: PathBuf,
    },
    /// What is in that file is no token.
    #[error("{}: is no token: write at least 16 letters or digits, or remove the file, and one is made", path.display())]
    Token {
        /// The file.
        path: PathBuf,
    },
    /// There is no thread for it.
    #[error("no thread for the page ({0})")]
    Thread(#[source] io::Error),
}

/// An error of the network library, whose types may change with its version.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_and_machine_are_told_apart() {
        let io = || io::Error::other("full");
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let key = |source| PeerError::Key { path: "a.key".into(), source };
        let state = |source| PeerError::State { path: "state".into(), source };
        let input = [
            RosterError::Unlisted("00".into()).into(),
            DataError::new("a.csv", "empty").into(),
            key(KeyError::Exists),
            key(KeyError::Unreadable(io())),
            key(KeyError::Permissions(io())),
            key(KeyError::Exposed),
            key(KeyError::NotAKey),
            state(StateError::InUse),
            state(StateError::NoLedger),
            state(StateError::LedgerUnreadable(io())),
            state(LedgerError::NotALedger.into()),
            LimitError::NoPrivacy.into(),
            NetworkError::Relay("no URL".into()).into(),
            ServerError::Open { address }.into(),
            ServerError::Token { path: "token".into() }.into(),
            Stop::Alone.into(),
            Stop::Ledger(LedgerError::NotALedger).into(),
            Stop::Ledger(LedgerError::OtherData).into(),
            Stop::Ledger(LedgerError::NoMarks).into(),
        ];
        let machine = [
            PeerError::Clock(io()),
            PeerError::Io { path: "model.json".into(), what: "cannot be written", source: io() },
            key(KeyError::Unwritable(io())),
            state(StateError::Io { what: "cannot be made", source: io() }),
            state(StateError::LedgerUnwritable(io())),
            NetworkError::Thread(io()).into(),
            NetworkError::ThreadEnded.into(),
            ServerError::Address { address, source: io() }.into(),
            ServerError::Thread(io()).into(),
            NetworkError::ListenAddress { address, source: io().into() }.into(),
            NetworkError::Listen { address, source: io().into() }.into(),
            Stop::Ledger(LedgerError::Disk("written", io())).into(),
        ];
        for error in input {
            assert!(error.is_input(), "{error}");
        }
        for error in machine {
            assert!(!error.is_input(), "{error}");
        }
    }

    #[test]
    fn messages_name_the_place() {
        let full = || io::Error::other("full");
        let error =
            PeerError::State { path: "s".into(), source: StateError::Io { what: "cannot be made", source: full() } };
        assert_eq!(error.to_string(), "s: the state folder cannot be made (full)");
        let error = PeerError::Io { path: "m".into(), what: "cannot be written", source: full() };
        assert_eq!(error.to_string(), "m: cannot be written (full)");
        let error = PeerError::from(LimitError::Exceeded {
            option: "--max-epsilon",
            limit: 1.0,
            total: 1.25,
            delta: 1e-5,
            alone: false,
        });
        assert!(error.to_string().starts_with(
            "--max-epsilon 1: with what it spent before, this data would have spent epsilon 1.2500 at delta 1e-5 after this study;"
        ));
    }
}
