//! From zCDP to (epsilon, delta) and back, four ways.
//!
//! | accountant | statement | source |
//! |---|---|---|
//! | `paper` | epsilon = rho + 2 sqrt(rho ln(1/delta)) | Bun, Steinke 2016, Prop. 1.3 |
//! | `cks` | epsilon = inf over a > 1 of a rho + (ln(1/delta) - ln a)/(a-1) + ln(1 - 1/a) | Canonne, Kamath, Steinke 2020, Prop. 7 |
//! | `exact` | delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), mu^2 = 2 rho | Balle, Wang 2018; Dong, Roth, Su 2019 |
//!
//! The first two hold for every rho-zCDP mechanism. The third is the exact curve of adaptively composed Gaussian
//! releases, which is all this crate ever releases. A fourth, `classic`, is the (eps,delta)DP-NFL of the paper: it does not
//! go by rho at all, but makes every round (eps_n, delta_n)-private by the classic Gaussian mechanism and adds the rounds up
//! by advanced composition ([`Schedule::classic`](super::Schedule::classic)). It shows what accounting by zCDP is worth.
//! Every answer errs against the user: epsilons come out too large
//! and rhos too small by about one part in 10^12, never the other way.

use errorfunctions::RealErrorFunctions;
use serde::Serialize;

use super::units::{Delta, Epsilon, Rho};

/// Relative slack that covers the rounding of the formulas here.
const SLACK: f64 = 1e-12;

/// A way to state what a study costs, as epsilon at a given delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accountant {
    /// The conversion used in the paper.
    Paper,
    /// The optimal conversion known for general zCDP.
    Cks,
    /// The exact trade-off curve of Gaussian noise.
    Exact,
    /// The classic Gaussian mechanism with advanced composition. A rho that was spent under it, or a budget that is given
    /// in rho, is translated by the exact curve, which holds for any Gaussian noise.
    Classic,
}

impl Accountant {
    /// Those that translate rho into epsilon, loosest first.
    pub const BY_RHO: [Accountant; 3] = [Accountant::Paper, Accountant::Cks, Accountant::Exact];

    /// All that a study can name.
    pub const ALL: [Accountant; 4] = [Accountant::Paper, Accountant::Cks, Accountant::Exact, Accountant::Classic];

    /// The name used in studies and reports.
    pub fn name(self) -> &'static str {
        match self {
            Accountant::Paper => "paper",
            Accountant::Cks => "cks",
            Accountant::Exact => "exact",
            Accountant::Classic => "classic",
        }
    }

    /// The smallest epsilon this accountant can prove for a total of `rho`.
    pub fn epsilon(self, rho: Rho, delta: Delta) -> Epsilon {
        let (rho, log_delta) = (rho.get(), -libm::log(delta.get()));
        if rho == 0.0 {
            return Epsilon::computed(0.0);
        }
        let epsilon = match self {
            Accountant::Paper => rho + 2.0 * (rho * log_delta).sqrt(),
            Accountant::Cks => cks_minimum(|a| a * rho + cks_overhead(a, log_delta)),
            Accountant::Exact | Accountant::Classic => gdp_epsilon((2.0 * rho).sqrt(), delta.get()),
        };
        Epsilon::computed((epsilon * (1.0 + SLACK)).max(0.0))
    }

    /// The largest total rho whose epsilon, by this accountant, stays within `epsilon`.
    pub fn rho(self, epsilon: Epsilon, delta: Delta) -> Rho {
        let (epsilon, log_delta) = (epsilon.get(), -libm::log(delta.get()));
        let rho = match self {
            Accountant::Paper => {
                let root = epsilon / ((epsilon + log_delta).sqrt() + log_delta.sqrt());
                root * root
            }
            // Every order a gives a valid rho, so the best one found is valid even if it is not the optimum.
            Accountant::Cks => -cks_minimum(|a| (cks_overhead(a, log_delta) - epsilon) / a),
            Accountant::Exact | Accountant::Classic => {
                let mu = gdp_mu(epsilon, delta.get());
                mu * mu / 2.0
            }
        };
        // Epsilon grows at least as fast as the root of rho: this reduction of rho compensates for the slack that epsilon
        // adds.
        Rho::computed((rho * (1.0 - 5.0 * SLACK)).max(0.0))
    }
}

/// What order `a` adds to `a rho`.
fn cks_overhead(a: f64, log_delta: f64) -> f64 {
    (log_delta - libm::log(a)) / (a - 1.0) + libm::log1p(-1.0 / a)
}

/// The minimum over a > 1, searched on ln(a - 1): a grid brackets the minimum, golden sections find it.
fn cks_minimum(f: impl Fn(f64) -> f64) -> f64 {
    const STEPS: i32 = 800;
    let at = |t: f64| f(1.0 + libm::exp(t));
    // The best order is near 1 + sqrt(ln(1/delta)/rho): this bracket holds it for rho from 1e-40 to 1e18.
    let (low, high) = (-20.0, 50.0);
    let width = (high - low) / f64::from(STEPS);
    let best = (0..=STEPS)
        .map(|i| low + width * f64::from(i))
        .min_by(|&s, &t| at(s).total_cmp(&at(t)))
        .expect("the grid is not empty");
    let (mut left, mut right) = (best - width, best + width);
    let golden = (5.0f64.sqrt() - 1.0) / 2.0;
    for _ in 0..100 {
        let (s, t) = (right - golden * (right - left), left + golden * (right - left));
        if at(s) < at(t) { right = t } else { left = s }
    }
    at(0.5 * (left + right)).min(at(best))
}

/// delta(epsilon) of mu-GDP, computed without cancellation and rounded up.
///
/// With A = (epsilon/mu - mu/2)/sqrt 2 and B = (epsilon/mu + mu/2)/sqrt 2,
/// delta = (erfc A - e^epsilon erfc B)/2 = e^(-A^2) (erfcx A - erfcx B)/2, because B^2 - A^2 = epsilon.
pub fn gdp_delta(epsilon: f64, mu: f64) -> f64 {
    // The scaled functions are good to about 1e-15 relative; their difference may lose more, so slack is added to
    // each.
    const TERM: f64 = 1e-14;
    if mu == 0.0 {
        return 0.0;
    }
    let root2 = std::f64::consts::SQRT_2;
    let (a, b) = ((epsilon / mu - mu / 2.0) / root2, (epsilon / mu + mu / 2.0) / root2);
    let tail = b.erfcx();
    let delta = if a >= 0.0 {
        let head = a.erfcx();
        0.5 * libm::exp(-a * a) * ((head - tail) + TERM * (head + tail))
    } else {
        0.5 * (libm::erfc(a) * (1.0 + TERM) - libm::exp(-a * a) * tail * (1.0 - TERM))
    };
    (delta * (1.0 + SLACK)).clamp(0.0, 1.0)
}

/// The smallest epsilon with `gdp_delta(epsilon, mu) <= delta`: the upper end of a bisection.
fn gdp_epsilon(mu: f64, delta: f64) -> f64 {
    if gdp_delta(0.0, mu) <= delta {
        return 0.0;
    }
    // The paper's conversion is an upper bound.
    let rho = mu * mu / 2.0;
    let high = rho + 2.0 * (rho * -libm::log(delta)).sqrt();
    bisect(0.0, high.max(f64::MIN_POSITIVE) * 2.0, |epsilon| gdp_delta(epsilon, mu) > delta).1
}

/// The largest mu with `gdp_delta(epsilon, mu) <= delta`: the lower end of a bisection.
fn gdp_mu(epsilon: f64, delta: f64) -> f64 {
    let mut high = 1e-3;
    while gdp_delta(epsilon, high) <= delta {
        high *= 2.0;
    }
    bisect(0.0, high, |mu| gdp_delta(epsilon, mu) <= delta).0
}

/// Narrows [low, high] to neighbouring numbers, keeping `holds` true at the low end and false at the high end.
pub(crate) fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> (f64, f64) {
    for _ in 0..2100 {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if holds(middle) { low = middle } else { high = middle }
    }
    (low, high)
}
