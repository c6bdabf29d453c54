//! With floating-point rounding one record may move a step slightly further than in exact arithmetic. The margin that
//! the lattice is charged with must cover the worst known cases: long sums (Casacuberta et al. 2022) and large public
//! terms.

mod common;

use common::{Client, Network};
use undertone_core::algorithm::zcdp_nfl::ZcdpNfl;
use undertone_core::algorithm::{Decay, StepSize};
use undertone_core::loss::{Absolute, AnyLoss};
use undertone_core::privacy::{Clip, Sensitivity};
use undertone_core::problem::Problem;
use undertone_core::regularizer::Regularizer;

/// The private part of a step of client 0, which holds `rows`, at the public point `at`; and what may move it.
fn private_part(rows: &[(Vec<f64>, f64)], at: f64, lambda: f64) -> (f64, Sensitivity) {
    let clip = Clip::new(1.0).unwrap();
    let algorithm = ZcdpNfl { rho: 0.5, eta: StepSize { eta: 0.5, decay: Decay::Constant }, average: 0.0 };
    let problem =
        Problem { loss: AnyLoss::Absolute(Absolute), regularizer: Regularizer::SquaredL2, lambda, intercept: false };
    let clients = vec![Client::new(rows, Some(clip)), Client::new(&[(vec![1.0], 0.0)], Some(clip))];
    let mut network = Network::new(&problem, &[(0, 1)], clients);
    network.released = vec![at, at];
    (network.parts(&algorithm, 1).1[0], network.sensitivity(&algorithm, 1, 0))
}

/// By how much, relatively, replacing the first record moves the step further than Delta, and further than the bound
/// with its margin.
fn excess(rows: &[(Vec<f64>, f64)], other: (Vec<f64>, f64), at: f64, lambda: f64) -> (f64, f64) {
    let mut neighbour = rows.to_vec();
    neighbour[0] = other;
    let (one, sensitivity) = private_part(rows, at, lambda);
    let (two, _) = private_part(&neighbour, at, lambda);
    let moved = (one - two).abs();
    (moved / sensitivity.get() - 1.0, moved / sensitivity.bound() - 1.0)
}

#[test]
fn long_sums_stay_within_the_margin() {
    for (lane, power) in [(10_000usize, 12), (100_000, 15)] {
        // Lane 0 first reaches 2^power, then gets terms just above half of its last bit: each is rounded up, unless the
        // replaced record has brought the sum below 2^power. All other records contribute nothing.
        let mut rows = vec![(vec![0.0], 0.0); lane * 4];
        let half_bit = 2f64.powi(power - 52) * 0.500_000_1;
        for (i, row) in rows.iter_mut().step_by(4).enumerate() {
            *row = (vec![if i < 1 << power { 1.0 } else { half_bit }], -1e9);
        }
        let (exact, bounded) = excess(&rows, (vec![1.0], 1e9), 0.0, 0.0);
        assert!(exact > 1e-9, "the attack does not work: {exact:e}");
        assert!(bounded <= 0.0, "{} records: {bounded:e} beyond the margin", rows.len());
    }
}

#[test]
fn public_terms_of_any_size_do_not_matter() {
    for lambda in [0.0, 1e6, 1e12] {
        for k in 0..100 {
            let mut rows = vec![(vec![1.0], -1e9), (vec![0.001 * f64::from(k + 1)], -1e9)];
            rows.extend((2..50).map(|i| (vec![1.0], if i % 2 == 0 { -1e9 } else { 1e9 })));
            let (exact, bounded) = excess(&rows, (vec![1.0], 1e9), 0.7, lambda);
            assert!(exact < 1e-12 && bounded <= 0.0, "lambda {lambda:e}: {exact:e}");
        }
    }
}
