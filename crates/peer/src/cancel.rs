//! Ending a peer from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to end. Clones share it, so that one is given to [`run`](crate::run::run) and another kept.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Nothing is cancelled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the end, once and for all. The peer notices within a second.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
