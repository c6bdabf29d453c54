//! Settings that are allowed and seldom meant.

use super::StudySpec;
use crate::graph::Graph;
use crate::names::Names;

/// Networks up to this size have their graph looked at.
const LARGEST_NETWORK: usize = 2000;

impl StudySpec {
    /// What is odd about this study, in sentences; `names` are its clients, if they are known.
    pub fn oddities(&self, names: Option<&Names>) -> Vec<String> {
        let mut odd = Vec::new();
        let clients = names.map(Names::len);
        let records = self.public_records().filter(|records| !records.is_empty());
        let total = records
            .as_ref()
            .zip(clients)
            .map(|(records, clients)| records.iter().sum::<usize>() as f64 / records.len() as f64 * clients as f64);
        if let (Some(privacy), Some(total)) = (&self.privacy, total)
            && privacy.delta > 1.0 / total
        {
            odd.push(format!(
                "privacy.delta = {:e} is above 1/{total:.0}, one over the number of records: publishing one whole record at random would keep it; write at most {:.0e}",
                privacy.delta,
                0.1 / total
            ));
        }
        let features = self.features();
        if let Some(least) =
            records.as_ref().and_then(|records| records.iter().min()).filter(|least| **least < features)
        {
            odd.push(format!(
                "a party has {least} records for {features} features: it adds little but noise; leave it out, or use fewer features"
            ));
        }
        if let (Some(quorum), Some(clients)) = (self.quorum, clients)
            && 2 * quorum <= clients + self.liars.unwrap_or(0)
        {
            odd.push(format!(
                "peers.quorum = {quorum} is not more than half of {clients} parties{}: two halves of a split network could each end with a model of the study",
                if self.liars.is_some() { " and the liars" } else { "" }
            ));
        }
        if let Some(names) = names.filter(|names| (3..=LARGEST_NETWORK).contains(&names.len()))
            && let Ok(graph) = self.build_graph(names, 0)
        {
            odd.extend(self.liars.and_then(|liars| cannot_carry(liars, &graph, names)));
            let (low, high) = graph.spectrum().metropolis;
            let gap = 1.0 - low.abs().max(high.abs());
            // Accelerated gossip shrinks what is not common by exp(-sqrt(2 gap)) in a round.
            let needed = (3.0 / (2.0 * gap.max(1e-12)).sqrt()).ceil();
            if f64::from(self.rounds) < needed {
                odd.push(format!(
                    "rounds = {} are too few for this graph: it takes about {needed} for what one party knows to reach all others; add rounds or edges",
                    self.rounds
                ));
            }
        }
        odd
    }
}

/// Why a graph cannot bound what so many liars do, if it cannot.
fn cannot_carry(liars: usize, graph: &Graph, names: &Names) -> Option<String> {
    let clients = graph.clients();
    if 2 * liars >= clients {
        return Some(format!(
            "robust.liars = {liars} of {clients} parties: half of them can say anything and be believed; no rule helps"
        ));
    }
    // What liars push is bounded for each edge, and the honest neighbours pull back: they must be several to each liar.
    let carried = |k: usize| graph.degree(k) / 5;
    let weakest = (0..clients).min_by_key(|k| carried(*k))?;
    (carried(weakest) < liars).then(|| {
        format!(
            "robust.liars = {liars}: {} has {} neighbours and at most {} of them should lie for the others to hold it. Add edges: {} neighbours are enough for any {liars}",
            names.get(weakest),
            graph.degree(weakest),
            carried(weakest),
            5 * liars
        )
    })
}
