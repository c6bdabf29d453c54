//! From counts to lower bounds.

use undertone_core::privacy::{Accountant, Delta, Rho};

/// Phi(x), the distribution function of the normal law.
pub fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// The x with Phi(x) = p, by bisection.
pub fn normal_quantile(p: f64) -> f64 {
    solve(-40.0, 40.0, |x| normal_cdf(x) < p)
}

/// Where `below` stops holding in [low, high].
fn solve(mut low: f64, mut high: f64, below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if below(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22).
pub fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return f64::from(x >= 1.0);
    }
    // The fraction converges fast below the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let log = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * libm::log(x) + b * libm::log1p(-x);
    let away = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..100_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    libm::exp(log) * fraction / a
}

/// The largest probability under which `count` or fewer of `of` happen with probability `alpha` (Clopper, Pearson 1934).
pub fn at_most(count: u64, of: u64, alpha: f64) -> f64 {
    if count >= of {
        return 1.0;
    }
    let (a, b) = (count as f64 + 1.0, (of - count) as f64);
    solve(0.0, 1.0, |p| beta(p, a, b) < 1.0 - alpha)
}

/// The smallest probability under which `count` or more of `of` happen with probability `alpha`.
pub fn at_least(count: u64, of: u64, alpha: f64) -> f64 {
    1.0 - at_most(of - count, of, alpha)
}

/// The mu that a total rho is worth: mu^2 = 2 rho.
pub fn mu_of(rho: f64) -> f64 {
    (2.0 * rho).sqrt()
}

/// The exact epsilon of mu-GDP at `delta`.
pub fn epsilon_of(mu: f64, delta: Delta) -> f64 {
    Rho::new(mu * mu / 2.0).map_or(f64::INFINITY, |rho| Accountant::Exact.epsilon(rho, delta).get())
}

/// What wrong guesses prove about mu. Whoever guesses a fair bit from the outcome of a mu-GDP mechanism is wrong with probability at least
/// Phi(-mu/2); so with probability 1 - alpha, mu is at least -2 Phi^-1(the most that the error rate can be).
pub fn mu_from_errors(wrong: u64, of: u64, alpha: f64) -> f64 {
    (-2.0 * normal_quantile(at_most(wrong, of, alpha).clamp(1e-300, 0.5))).max(0.0)
}

/// What tails prove about epsilon, whatever the law: P(hit) <= e^epsilon P(miss) + delta.
pub fn epsilon_from_tails(hits: u64, misses: u64, of: u64, delta: Delta, alpha: f64) -> f64 {
    let (hit, miss) = (at_least(hits, of, alpha / 2.0), at_most(misses, of, alpha / 2.0));
    if hit > delta.get() { libm::log((hit - delta.get()) / miss).max(0.0) } else { 0.0 }
}

/// The threshold, in standard deviations of a score N(+-mu/2, 1), at which tails of `of` trials would prove most if mu were the truth. It is
/// chosen before any trial.
pub fn best_threshold(mu: f64, of: u64, delta: Delta, alpha: f64) -> f64 {
    let proven = |t: f64| {
        let (hit, miss) = (normal_cdf(mu / 2.0 - t), normal_cdf(-mu / 2.0 - t));
        let expected = |p: f64| (p * of as f64).round() as u64;
        epsilon_from_tails(expected(hit), expected(miss), of, delta, alpha)
    };
    let steps = (0..=60).map(|i| f64::from(i) * 0.1);
    steps.max_by(|a, b| proven(*a).total_cmp(&proven(*b))).unwrap_or(0.0)
}

/// How many trials are expected to prove this share of the epsilon of mu.
pub fn trials_for(mu: f64, share: f64, delta: Delta, alpha: f64) -> u64 {
    let claim = epsilon_of(mu, delta);
    let proves = |of: u64| {
        let wrong = (normal_cdf(-mu / 2.0) * of as f64).ceil() as u64;
        epsilon_of(mu_from_errors(wrong, of, alpha), delta) >= share * claim
    };
    (20..48).map(|e| f64::from(e) / 2.0).map(|e| libm::exp2(e) as u64).find(|of| proves(*of)).unwrap_or(1 << 24)
}

/// Points (false positives, false negatives) of the best trade-off that mu-GDP allows: beta = Phi(Phi^-1(1 - alpha) - mu).
pub fn trade_off(mu: f64, false_positives: f64) -> f64 {
    normal_cdf(normal_quantile(1.0 - false_positives) - mu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_incomplete_beta_function_is_the_binomial_tail() {
        // P(X <= k) = I_(1-p)(n - k, k + 1), added up term by term.
        for (n, p) in [(5u64, 0.3), (40, 0.02), (200, 0.6)] {
            let mut sum = 0.0;
            for k in 0..n {
                let (n, k) = (n as f64, k as f64);
                let log = libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
                sum += libm::exp(log + k * libm::log(p) + (n - k) * libm::log1p(-p));
                assert!((beta(1.0 - p, n - k, k + 1.0) - sum).abs() < 1e-11, "{n} {k}");
            }
        }
    }

    #[test]
    fn bounds_agree_with_published_ones() {
        // None of 10 at 95%: the rule 1 - 0.05^(1/10).
        assert!((at_most(0, 10, 0.05) - (1.0 - 0.05f64.powf(0.1))).abs() < 1e-12);
        // 4 of 20, two-sided 95%: 0.0573 to 0.4366 (Clopper, Pearson 1934).
        assert!((at_least(4, 20, 0.025) - 0.0573).abs() < 1e-4 && (at_most(4, 20, 0.025) - 0.4366).abs() < 1e-4);
        assert!((normal_quantile(0.975) - 1.959963984540054).abs() < 1e-12);
    }

    /// A bound at 5% is wrong in at most 5% of repetitions: counted over all outcomes, exactly.
    #[test]
    fn bounds_hold_as_often_as_they_say() {
        let n = 30u64;
        for p in [0.02, 0.1, 0.37, 0.5] {
            let weight = |k: u64| {
                let (n, k) = (n as f64, k as f64);
                let log = libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
                libm::exp(log + k * libm::log(p) + (n - k) * libm::log1p(-p))
            };
            let wrong: f64 = (0..=n).filter(|k| at_most(*k, n, 0.05) < p).map(weight).sum();
            assert!(wrong <= 0.05, "{p}: {wrong}");
        }
    }
}
