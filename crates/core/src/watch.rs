//! Watching long work, and ending it early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An observer of long work: it receives the share that is done, and may ask for an early end.
pub trait Watch: Sync {
    /// Called repeatedly with the share of the work that is done, from 0 to 1.
    fn progress(&self, share: f64);

    /// Whether the work is to end as soon as it can, with an error that says so.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// A function that is told the share of the work that is done.
impl<F: Fn(f64) + Sync> Watch for F {
    fn progress(&self, share: f64) {
        self(share);
    }
}

/// No observer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&self, _: f64) {}
}

/// A switch that ends work from another thread. Its clones are the same switch.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the work to end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Watches with a function, and ends when the switch says so.
    pub fn watching<F: Fn(f64) + Sync>(&self, progress: F) -> impl Watch {
        Cancellable { cancel: self.clone(), progress }
    }
}

struct Cancellable<F> {
    cancel: Cancel,
    progress: F,
}

impl<F: Fn(f64) + Sync> Watch for Cancellable<F> {
    fn progress(&self, share: f64) {
        (self.progress)(share);
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

/// A part of longer work, from the share `from` to the share `to` of it.
pub struct Share<'a> {
    /// The observer of the whole.
    pub whole: &'a dyn Watch,
    /// Where the part begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

impl Watch for Share<'_> {
    fn progress(&self, share: f64) {
        self.whole.progress(self.from + (self.to - self.from) * share);
    }

    fn is_cancelled(&self) -> bool {
        self.whole.is_cancelled()
    }
}
