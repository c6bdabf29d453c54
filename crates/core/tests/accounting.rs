//! Accountants against published values, in both directions, and schedules against their sums.

use undertone_core::privacy::accountant::gdp_delta;
use undertone_core::privacy::{Accountant, Budget, ClientBudget, Delta, Epsilon, Rho, Schedule};

/// delta, rho, then epsilon by the paper, CKS and exact accountants; agrees with Google's dp-accounting.
const VECTORS: [(f64, f64, [f64; 3]); 12] = [
    (1e-5, 0.001, [0.215597, 0.157335, 0.141685]),
    (1e-5, 0.0175, [0.915222, 0.738830, 0.674460]),
    (1e-5, 0.1, [2.245966, 1.914239, 1.760057]),
    (1e-5, 0.5, [5.298526, 4.728387, 4.377178]),
    (1e-5, 1.0, [7.786140, 7.077197, 6.572970]),
    (1e-5, 5.0, [20.174271, 19.047260, 17.856587]),
    (1e-6, 0.001, [0.236079, 0.182895, 0.167944]),
    (1e-6, 0.0175, [1.000905, 0.837947, 0.776362]),
    (1e-6, 0.1, [2.450788, 2.141939, 1.994527]),
    (1e-6, 0.5, [5.756522, 5.221534, 4.886554]),
    (1e-6, 1.0, [8.433844, 7.766217, 7.286081]),
    (1e-6, 5.0, [21.622581, 20.551949, 19.423657]),
];

fn rho(v: f64) -> Rho {
    Rho::new(v).unwrap()
}

fn delta(v: f64) -> Delta {
    Delta::new(v).unwrap()
}

fn epsilon(v: f64) -> Epsilon {
    Epsilon::new(v).unwrap()
}

#[test]
fn epsilon_matches_dp_accounting() {
    for (d, r, expected) in VECTORS {
        for (accountant, expected) in Accountant::ALL.into_iter().zip(expected) {
            let got = accountant.epsilon(rho(r), delta(d)).get();
            assert!((got - expected).abs() < 5e-6, "{accountant:?} at rho {r}, delta {d}: {got} is not {expected}");
        }
    }
}

#[test]
fn rho_matches_the_inverse_vectors() {
    let vectors = [(1.0, [0.01746890, 0.02435597, 0.02801448]), (5.0, [0.3853464, 0.4630650, 0.5205644])];
    for (e, expected) in vectors {
        for (accountant, expected) in Accountant::ALL.into_iter().zip(expected) {
            let got = accountant.rho(epsilon(e), delta(1e-6)).get();
            assert!((got - expected).abs() < 5e-6 * expected, "{accountant:?} at epsilon {e}: {got} is not {expected}");
        }
    }
}

#[test]
fn gdp_delta_matches_the_vectors() {
    let vectors =
        [(1.0, 1.0, 0.126936737507), (4.0, 1.0, 4.71224120e-5), (1.0, 0.5, 0.00682959498), (0.5, 0.1, 6.85658246e-9)];
    for (e, mu, expected) in vectors {
        let got = gdp_delta(e, mu);
        assert!((got / expected - 1.0).abs() < 1e-8, "delta({e}, {mu}) = {got:e} is not {expected:e}");
    }
}

#[test]
fn going_there_and_back_never_favours_the_user_and_loses_almost_nothing() {
    for d in [1e-3, 1e-6, 1e-12, 1e-30] {
        for e in [1e-3, 0.1, 1.0, 2.0, 5.0, 77.0] {
            for accountant in Accountant::ALL {
                let back = accountant.epsilon(accountant.rho(epsilon(e), delta(d)), delta(d)).get();
                assert!(back <= e && back > e * (1.0 - 1e-6), "{accountant:?} spends {back} of {e} at delta {d}");
            }
        }
        for exponent in -14..=14 {
            let r = 10f64.powf(f64::from(exponent) / 2.0);
            for accountant in Accountant::ALL {
                let e = accountant.epsilon(rho(r), delta(d));
                let back = accountant.rho(e, delta(d)).get();
                assert!(back >= r * (1.0 - 1e-6), "{accountant:?} lost from {r} to {back} at delta {d}");
                let again = accountant.epsilon(accountant.rho(e, delta(d)), delta(d)).get();
                assert!(again <= e.get(), "{accountant:?} spends {again} of {} at delta {d}", e.get());
            }
        }
    }
}

#[test]
fn better_accountants_give_smaller_epsilon() {
    for (d, r, _) in VECTORS {
        let [paper, cks, exact] = Accountant::BY_RHO.map(|a| a.epsilon(rho(r), delta(d)).get());
        assert!(exact < cks && cks < paper);
    }
}

#[test]
fn nothing_spent_is_nothing_lost_and_tiny_budgets_stay_finite() {
    for accountant in Accountant::ALL {
        assert_eq!(accountant.epsilon(rho(0.0), delta(1e-6)).get(), 0.0);
        // An epsilon of zero still has its delta to spend.
        let free = accountant.rho(epsilon(0.0), delta(1e-6));
        assert!(free.get() < 1e-11);
        assert!(accountant.epsilon(free, delta(1e-6)).get() < 1e-11);
        assert!(accountant.epsilon(rho(1e-18), delta(1e-6)).get() < 1e-3);
        assert!(accountant.epsilon(rho(1e6), delta(1e-6)).get() >= 1e6 - 1e4);
    }
}

/// The paper's closed form for the total: phi(1) (1 - tau^T)/(tau^(T-1) - tau^T).
fn paper_total(first: f64, rounds: i32, tau: f64) -> f64 {
    first * (1.0 - tau.powi(rounds)) / (tau.powi(rounds - 1) - tau.powi(rounds))
}

#[test]
fn schedule_spends_the_total_over_all_rounds_both_ends_included() {
    for (rounds, tau) in [(1, 0.5), (2, 0.9), (200, 0.99), (200, 1.0), (50, 0.8)] {
        let total = 0.0175;
        let schedule = Schedule::geometric(rho(total), rounds, tau).unwrap();
        let sum: f64 = (1..=rounds).map(|n| schedule.phi(n).get()).sum();
        assert!(sum <= total && sum > total * (1.0 - 1e-11), "{sum} of {total}");
        assert!(schedule.spent(rounds).get() >= sum && schedule.spent(rounds).get() <= total);
        assert_eq!(schedule.spent(0).get(), 0.0);
        for n in 2..=rounds {
            assert!((schedule.phi(n).get() * tau / schedule.phi(n - 1).get() - 1.0).abs() < 1e-12);
        }
        if tau < 1.0 {
            let closed = paper_total(schedule.phi(1).get(), rounds as i32, tau);
            assert!((closed / total - 1.0).abs() < 1e-9);
        }
        let same = Schedule::geometric_from_first(schedule.phi(1), rounds, tau).unwrap();
        assert!((same.spent(rounds).get() / sum - 1.0).abs() < 1e-11);
    }
}

/// A planted bug: summing over 0 < n < T omits the last and most expensive round, and the test above detects it.
#[test]
fn leaving_out_the_last_round_is_caught() {
    let schedule = Schedule::geometric(rho(0.0175), 200, 0.99).unwrap();
    let planted: f64 = (1..200).map(|n| schedule.phi(n).get()).sum();
    assert!(planted < 0.0175 * (1.0 - 1e-11));
    assert!(schedule.spent(200).get() > planted * 1.01);
}

#[test]
fn classic_composition_needs_the_published_amount_of_noise() {
    // At epsilon 1, delta 1e-5 and 200 rounds it is 5.74 times that of zCDP by the paper's accountant.
    let classic = Schedule::classic(epsilon(1.0), delta(1e-5), 200, 1.0).unwrap();
    let zcdp = Schedule::geometric(Accountant::Paper.rho(epsilon(1.0), delta(1e-5)), 200, 1.0).unwrap();
    let ratio = (zcdp.phi(1).get() / classic.phi(1).get()).sqrt();
    assert!((ratio - 5.74).abs() < 0.005, "{ratio}");
}

#[test]
fn classic_composition_keeps_every_round_below_one_and_the_total_within_epsilon() {
    for (e, d, rounds, tau) in
        [(1.0, 1e-5, 200, 1.0), (10.0, 1e-5, 50, 0.98), (500.0, 1e-6, 20, 0.9), (0.1, 1e-9, 3, 1.0)]
    {
        let schedule = Schedule::classic(epsilon(e), delta(d), rounds, tau).unwrap();
        let spread = 4.0 * (1.25 * 2.0 * f64::from(rounds) / d).ln();
        let each: Vec<f64> = (1..=rounds).map(|n| (schedule.phi(n).get() * spread).sqrt()).collect();
        assert!(each.iter().all(|&v| v < 1.0));
        let plain: f64 = each.iter().sum();
        let mean: f64 = each.iter().map(|v| v * (v.exp() - 1.0) / (v.exp() + 1.0)).sum();
        let square: f64 = each.iter().map(|v| v * v).sum();
        let advanced = mean + (2.0 * (2.0 / d).ln() * square).sqrt();
        let refined = mean + (2.0 * (std::f64::consts::E + square.sqrt() / (d / 2.0)).ln() * square).sqrt();
        let total = plain.min(advanced).min(refined);
        assert!(total <= e, "{total} of {e}");
        let capped = each.last().unwrap() > &0.999_999;
        assert!(capped || total > e * (1.0 - 1e-9), "{total} of {e}");
    }
}

#[test]
fn budgets_that_cannot_be_represented_are_refused() {
    assert!(Schedule::geometric(rho(1.0), 200, 0.5).unwrap_err().to_string().contains("round 1"));
    assert!(Schedule::geometric(rho(1e-30), 1, 1.0).is_err());
    assert!(Schedule::geometric_from_first(rho(1.0), 200, 0.5).unwrap_err().to_string().contains("no privacy"));
    assert!(Schedule::geometric(rho(0.0), 1, 1.0).is_err());
}

#[test]
fn units_refuse_what_has_no_meaning() {
    assert!(Delta::new(0.0).is_err() && Delta::new(1.0).is_err() && Delta::new(f64::NAN).is_err());
    assert!(Epsilon::new(-1.0).is_err() && Epsilon::new(f64::INFINITY).is_err());
    assert!(Rho::new(-1e-300).is_err() && Rho::new(f64::NAN).is_err());
}

/// A limit of the owner that equals the study's epsilon allows the study, whatever its rounds.
#[test]
fn a_budget_fits_a_limit_of_the_same_epsilon() {
    for accountant in Accountant::BY_RHO {
        for (e, t, tau) in
            [(1.0, 1, 1.0), (0.3, 30, 1.0), (3.0, 300, 1.0), (3.0, 300, 0.98), (7.7, 1000, 0.999), (2.0, 17, 0.5)]
        {
            let (e, d) = (epsilon(e), delta(1e-5));
            let schedule = Budget::Epsilon(e).schedule(accountant, d, t, tau, 1.0).unwrap();
            let budget = ClientBudget::new(std::sync::Arc::new(schedule), None, accountant, d);
            let limit = accountant.rho(e, d).get();
            assert!(budget.fits(limit, limit), "{accountant:?} {e:?} {t} {tau}");
            assert!(!budget.fits(limit * (1.0 - 1e-9), limit) && !budget.fits(limit, limit * (1.0 - 1e-9)));
            assert!(budget.promised().rho.get() >= (1..=t).map(|n| budget.phi(n).get()).sum::<f64>());
        }
    }
}

/// A client with a phi(1) of its own is charged by it, in every round and in all.
#[test]
fn an_own_first_cost_scales_the_whole_schedule() {
    let (e, d) = (epsilon(1.0), delta(1e-5));
    let schedule = std::sync::Arc::new(Budget::Epsilon(e).schedule(Accountant::Exact, d, 10, 0.9, 1.0).unwrap());
    let common = ClientBudget::new(schedule.clone(), None, Accountant::Exact, d);
    let own = rho(3.0 * schedule.phi(1).get());
    let own = ClientBudget::new(schedule, Some(own), Accountant::Exact, d);
    for n in 1..=10 {
        assert!((own.phi(n).get() / common.phi(n).get() - 3.0).abs() < 1e-12);
    }
    assert!((own.promised().rho.get() / common.promised().rho.get() - 3.0).abs() < 1e-9);
    assert_eq!(own.phi(11), Rho::ZERO);
}
