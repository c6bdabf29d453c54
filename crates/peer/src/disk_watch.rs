//! Notices a disk that does not answer: a write that hangs blocks the peer, and nobody would know why.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::metrics::Metrics;

/// Counts the writes that hung.
pub(crate) type Alarm = tokio::sync::watch::Sender<u32>;

/// A write that takes longer is reported.
const LONG: Duration = Duration::from_secs(5);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Since when the disk has been writing.
#[derive(Debug)]
pub(crate) struct DiskWatch {
    started: Instant,
    /// Milliseconds after the start, plus one; 0 while nothing is written.
    since: AtomicU64,
    told: AtomicBool,
}

impl DiskWatch {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), since: AtomicU64::new(0), told: AtomicBool::new(false) })
    }

    /// Does something on the disk.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.since.store(self.started.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        let done = work();
        self.since.store(0, Ordering::Relaxed);
        if self.told.swap(false, Ordering::Relaxed) {
            tracing::info!("the disk answers again");
        }
        done
    }

    /// How long the write that is under way has taken; nothing if there is none.
    fn waited(&self) -> Duration {
        match self.since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.started.elapsed().saturating_sub(Duration::from_millis(since - 1)),
        }
    }

    /// Reports a write that hangs, once. Returns whether it did.
    fn look(&self) -> bool {
        let waited = self.waited();
        let is_news = waited >= LONG && !self.told.swap(true, Ordering::Relaxed);
        if is_news {
            tracing::error!(
                seconds = waited.as_secs(),
                "the disk has not confirmed a write; nothing is sent before it does"
            );
        }
        is_news
    }

    /// Looks from time to time, on a thread of its own, as long as somebody uses the disk.
    ///
    /// A write that hangs is an alarm, which the network passes on to neighbours.
    pub fn watch(self: &Arc<Self>, metrics: &Arc<Metrics>, alarm: &Arc<Alarm>) {
        let (watch, metrics): (Weak<Self>, Weak<Metrics>) = (Arc::downgrade(self), Arc::downgrade(metrics));
        let alarm = alarm.clone();
        let log = tracing::dispatcher::get_default(Clone::clone);
        let look = move || {
            let _log = tracing::dispatcher::set_default(&log);
            while let (Some(watch), Some(metrics)) = (watch.upgrade(), metrics.upgrade()) {
                if watch.look() {
                    alarm.send_modify(|count| *count += 1);
                }
                metrics.disk_waits(watch.waited().as_secs_f64());
                drop((watch, metrics));
                std::thread::sleep(LOOK);
            }
        };
        // Without the thread nothing is reported, and all else is as it was.
        let _ = std::thread::Builder::new().name("disk-watch".into()).spawn(look);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_hangs_is_reported_once() {
        let watch = DiskWatch::new();
        assert!(!watch.look() && watch.waited() == Duration::ZERO);
        watch.during(|| {
            assert!(!watch.look(), "it has just begun");
            // As if it had begun long ago.
            let old = DiskWatch {
                started: Instant::now().checked_sub(Duration::from_secs(7)).expect("the machine is up that long"),
                since: AtomicU64::new(1),
                told: AtomicBool::new(false),
            };
            assert!(old.waited() >= LONG && old.look() && !old.look());
        });
        assert_eq!(watch.waited(), Duration::ZERO);
    }
}
