//! The page of a peer: what is being learned and with whom, how far it is, what it has cost and what happened.
//!
//! A `Board` keeps what is shown. The conversation tells it what happened, on its own thread, and it tells the [`Server`], which shows it to whoever looks.
//! It is given releases, what the ledger says and the state of the network: nothing on the page follows from records without noise.

mod access;
mod board;
mod curve;
mod server;

pub(crate) use board::{Board, Budget, Scene, Sight};
pub use server::{Act, Action, Feed, Reply, Server, Site, State};
