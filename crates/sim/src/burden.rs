//! Clients whose records are so few that they add more noise than information.
//!
//! Every client adds noise of the same kind, whatever it knows. Where records count the same, the noise in the mean of all
//! gradients is sqrt(K)/N times a constant, with N the records of all: it falls if a client with less than about half the mean number of
//! records is left out. Where clients count the same it is sqrt(sum_k 1/M_k^2)/K, and a small client can ruin the model of all.

use undertone_core::problem::Weights;
use undertone_core::study::StudySpec;

/// A group of clients that do more harm than good.
#[derive(Debug, Clone, PartialEq)]
pub struct Burden {
    /// Which clients, the smallest first.
    pub clients: Vec<usize>,
    /// By what share the noise in the model would be smaller without them.
    pub noise: f64,
    /// Their share of all records.
    pub records: f64,
}

/// Less than this share of the noise is not worth mentioning.
const LEAST: f64 = 0.01;

/// What the noise of a network follows from.
#[derive(Clone, Copy)]
struct Size {
    clients: f64,
    /// The sum of all M_k.
    records: f64,
    /// The sum of all 1/M_k^2.
    inverse_squares: f64,
}

/// The noise of a network, up to a constant. If at most so many clients collude, the others share the noise that one of them needs.
fn noise(size: Size, weights: Weights, colluders: Option<usize>) -> f64 {
    let each = colluders.map_or(1.0, |colluders| 1.0 / (size.clients - colluders as f64).max(1.0));
    match weights {
        Weights::Records => (size.clients * each).sqrt() / size.records,
        Weights::Clients => size.inverse_squares.sqrt() / size.clients,
    }
}

/// The clients without which the noise would be least, if leaving them out makes a difference. Two always stay.
pub fn burden(records: &[usize], study: &StudySpec) -> Option<Burden> {
    burden_of(records, study.weights, study.privacy.and_then(|privacy| privacy.colluders))
}

fn burden_of(records: &[usize], weights: Weights, colluders: Option<usize>) -> Option<Burden> {
    // With masks, what a small client that counts as much as others needs of its own depends on theta.
    if weights == Weights::Clients && colluders.is_some() {
        return None;
    }
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|&k| records[k]);
    let sizes: Vec<f64> = order.iter().map(|&k| records[k] as f64).collect();
    // Of the network without the smallest clients, from the largest one alone to all.
    let mut size = Size { clients: 0.0, records: 0.0, inverse_squares: 0.0 };
    let without: Vec<f64> = sizes
        .iter()
        .rev()
        .map(|m| {
            size.clients += 1.0;
            size.records += m;
            size.inverse_squares += 1.0 / (m * m);
            noise(size, weights, colluders)
        })
        .collect();
    let all = *without.last()?;
    let fewest = (colluders.unwrap_or(0) + 2).min(sizes.len());
    let (left, least) =
        (fewest..=sizes.len()).map(|left| (left, without[left - 1])).rev().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let count = sizes.len() - left;
    let gain = 1.0 - least / all;
    (gain > LEAST).then(|| Burden {
        clients: order[..count].to_vec(),
        noise: gain,
        records: sizes[..count].iter().sum::<f64>() / sizes.iter().sum::<f64>(),
    })
}

impl Burden {
    /// As a sentence; `name` gives the name of a client, `records` their numbers.
    pub fn sentence(&self, name: impl Fn(usize) -> String, records: &[usize]) -> String {
        const SHOWN: usize = 5;
        let named = self.clients.iter().take(SHOWN).map(|&k| format!("{} ({} records)", name(k), records[k]));
        let mut list = named.collect::<Vec<_>>().join(", ");
        if self.clients.len() > SHOWN {
            list += &format!(" and {} more", self.clients.len() - SHOWN);
        }
        let (verb, them) = if self.clients.len() == 1 { ("does", "it") } else { ("do", "them") };
        format!(
            "{list} {verb} more harm than good: without {them} the noise in the model would be {:.1}% smaller, for {:.1}% fewer records",
            100.0 * self.noise,
            100.0 * self.records
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_client_is_named_and_equal_ones_are_not() {
        let mut records = vec![80; 19];
        assert_eq!(burden_of(&records, Weights::Records, None), None);
        assert_eq!(burden_of(&records, Weights::Clients, None), None);
        records.push(5);
        assert_eq!(burden_of(&records, Weights::Records, Some(2)), None, "with masks it adds next to no noise");
        let found = burden_of(&records, Weights::Records, None).unwrap();
        assert_eq!(found.clients, [19]);
        assert!((found.noise - (1.0 - 19f64.sqrt() / 1520.0 / (20f64.sqrt() / 1525.0))).abs() < 1e-12, "{found:?}");
        let ruined = burden_of(&records, Weights::Clients, None).unwrap();
        assert!(ruined.clients == [19] && ruined.noise > 0.7, "{ruined:?}");
        let sentence = found.sentence(|k| format!("c{k}"), &records);
        assert!(sentence.starts_with("c19 (5 records) does more harm than good: without it"), "{sentence}");
    }

    #[test]
    fn half_the_mean_is_about_the_limit() {
        let with = |m: usize| [vec![100; 30], vec![m]].concat();
        let found = |m: usize| burden_of(&with(m), Weights::Records, None);
        assert!(found(60).is_none() && found(10).is_some());
    }
}
