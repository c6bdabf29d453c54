//! What is going to happen in a world, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

/// Something that happens to a node or to the network.
pub(super) enum Happening {
    Up { node: usize, link: u64, peer: u32 },
    Frame { node: usize, link: u64, frame: Arc<[u8]> },
    Down { node: usize, link: u64, reason: String },
    Unreachable { node: usize, peer: u32 },
    Tick { node: usize },
    Start { node: usize },
    Heal,
}

/// Ordered by time, then by when it was planned.
struct Planned(Duration, u64, Happening);

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Virtual time, and what is planned.
#[derive(Default)]
pub(super) struct Agenda {
    now: Duration,
    planned: BinaryHeap<Reverse<Planned>>,
    sequence: u64,
}

impl Agenda {
    pub fn now(&self) -> Duration {
        self.now
    }

    pub fn plan(&mut self, after: Duration, happening: Happening) {
        self.sequence += 1;
        self.planned.push(Reverse(Planned(self.now + after, self.sequence, happening)));
    }

    /// Lets time pass until the next happening, unless that is after `limit`.
    pub fn next(&mut self, limit: Duration) -> Option<Happening> {
        let Reverse(Planned(at, _, happening)) = self.planned.pop().filter(|next| next.0.0 <= limit)?;
        self.now = at;
        Some(happening)
    }
}
