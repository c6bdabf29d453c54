//! Numbers for operators, in the OpenMetrics text format that Prometheus reads.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

type Count = Gauge<u64, AtomicU64>;
type Number = Gauge<f64, AtomicU64>;

/// What is measured; the node and the network write, the page reads.
#[derive(Debug)]
pub struct Metrics {
    round: Count,
    rounds: Count,
    neighbours: Count,
    connected: Count,
    withheld: Counter,
    sent_bytes: Counter,
    sent_frames: Counter,
    received_bytes: Counter,
    received_frames: Counter,
    spent: Number,
    remaining: Number,
    consensus: Number,
    awaited: Count,
    awaited_seconds: Number,
    spent_alone: Number,
    disk_seconds: Number,
    registry: Registry,
}

/// The progress of a peer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standing {
    /// n.
    pub round: u32,
    /// T.
    pub rounds: u32,
    /// Remaining neighbours.
    pub neighbours: usize,
    /// How many of them are connected.
    pub connected: usize,
    /// Rounds that were planned as fresh but made without the records.
    pub withheld: u32,
    /// Epsilon spent in this study.
    pub spent: f64,
    /// Epsilon that this study may still spend.
    pub remaining: f64,
    /// Distance to the neighbours.
    pub consensus: f64,
    /// Neighbours whose release the next round lacks.
    pub awaited: usize,
    /// How long the last round was ago, in seconds, while some are.
    pub awaited_seconds: f64,
    /// Epsilon spent in this study if all others collude.
    pub spent_alone: f64,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("undertone");
        let all = &mut registry;
        // The format adds a full stop to every help text, and `_total` to the name of every counter.
        Self {
            round: register(all, "round", "Last round done"),
            rounds: register(all, "rounds", "Rounds of the study"),
            neighbours: register(all, "neighbours", "Neighbours in the graph"),
            connected: register(all, "neighbours_connected", "Neighbours connected now"),
            withheld: register(all, "rounds_withheld", "Rounds made without the records although planned with them"),
            sent_bytes: register(all, "sent_bytes", "Bytes of frames sent, before encryption"),
            sent_frames: register(all, "sent_frames", "Frames sent"),
            received_bytes: register(all, "received_bytes", "Bytes of frames received"),
            received_frames: register(all, "received_frames", "Frames received"),
            spent: register(all, "epsilon_spent", "Epsilon spent in this study"),
            remaining: register(all, "epsilon_remaining", "Epsilon this study may still spend"),
            consensus: register(all, "consensus_distance", "Root mean square distance to the neighbours' releases"),
            awaited: register(all, "neighbours_awaited", "Neighbours whose release the next round lacks"),
            awaited_seconds: register(
                all,
                "awaited_seconds",
                "How long the last round was ago while neighbours are awaited",
            ),
            spent_alone: register(
                all,
                "epsilon_spent_if_all_others_collude",
                "Epsilon spent in this study if all others collude",
            ),
            disk_seconds: register(all, "disk_write_seconds", "How long the write that is under way has taken"),
            registry,
        }
    }
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.inc_by(bytes as u64);
        self.sent_frames.inc();
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes.inc_by(bytes as u64);
        self.received_frames.inc();
    }

    pub(crate) fn update(&self, standing: &Standing) {
        self.round.set(standing.round.into());
        self.rounds.set(standing.rounds.into());
        self.neighbours.set(standing.neighbours as u64);
        self.connected.set(standing.connected as u64);
        // The ledger does the counting, across restarts too, and its count never falls.
        self.withheld.inner().store(standing.withheld.into(), Ordering::Relaxed);
        self.spent.set(standing.spent);
        self.remaining.set(standing.remaining);
        self.consensus.set(standing.consensus);
        self.awaited.set(standing.awaited as u64);
        self.awaited_seconds.set(standing.awaited_seconds);
        self.spent_alone.set(standing.spent_alone);
    }

    pub(crate) fn disk_waits(&self, seconds: f64) {
        self.disk_seconds.set(seconds);
    }

    /// All metrics as text.
    pub fn page(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).expect("a string takes any text");
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_dashboards_parse() {
        let metrics = Metrics::default();
        metrics.sent(40);
        metrics.received(7);
        metrics.update(&Standing {
            round: 17,
            rounds: 200,
            neighbours: 3,
            connected: 2,
            withheld: 1,
            spent: 0.25,
            remaining: 0.75,
            consensus: 1.5,
            awaited: 1,
            awaited_seconds: 12.5,
            spent_alone: 0.5,
        });
        metrics.disk_waits(6.5);
        let page = metrics.page();
        let values: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "undertone_round 17",
                "undertone_rounds 200",
                "undertone_neighbours 3",
                "undertone_neighbours_connected 2",
                "undertone_rounds_withheld_total 1",
                "undertone_sent_bytes_total 40",
                "undertone_sent_frames_total 1",
                "undertone_received_bytes_total 7",
                "undertone_received_frames_total 1",
                "undertone_epsilon_spent 0.25",
                "undertone_epsilon_remaining 0.75",
                "undertone_consensus_distance 1.5",
                "undertone_neighbours_awaited 1",
                "undertone_awaited_seconds 12.5",
                "undertone_epsilon_spent_if_all_others_collude 0.5",
                "undertone_disk_write_seconds 6.5",
            ]
        );
        assert!(page.starts_with("# HELP undertone_round Last round done.\n# TYPE undertone_round gauge\n"), "{page}");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
