//! How a total budget is spread over the rounds.

use std::sync::Arc;

use thiserror::Error;

use super::accountant::{Accountant, bisect};
use super::sensitivity::Sensitivity;
use super::trust::{MaskedLattice, Masking, OwnNoise};
use super::units::{Delta, Epsilon, Rho, Spent};

/// Relative slack that covers the rounding errors of a formula.
const SLACK: f64 = 1e-12;

/// Relative slack by which every round stays below its share, so that the sum, rounded up after every term, stays below the total.
fn slack(rounds: u32) -> f64 {
    // An addition that is rounded up adds at most 2^-52; the other half covers the shares themselves.
    (2.0 * f64::EPSILON * f64::from(rounds)).max(SLACK)
}

/// A budget that cannot be turned into noise.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum BudgetError {
    /// A round would get so little that its noise overflows.
    #[error(
        "round {round} would get rho = {rho:e}, too small to represent; raise the budget or tau, or run fewer rounds"
    )]
    TooSmall {
        /// The first round that gets too little.
        round: u32,
        /// What it would get.
        rho: f64,
    },
    /// A round would get more than any noise scale can express.
    #[error("round {round} would get rho = {rho:e}, which is no privacy at all; lower the budget or raise tau")]
    TooLarge {
        /// The first round that gets too much.
        round: u32,
        /// What it would get.
        rho: f64,
    },
}

/// Below this a round's noise is more than 10^10 sensitivities: the budget is an error.
const SMALLEST_RHO: f64 = 1e-20;
/// Above this a round's noise is under a 10^5th of the sensitivity: there is practically no privacy.
const LARGEST_RHO: f64 = 1e10;

/// The privacy cost phi(n) of every round, n = 1..=T; zero in mixing rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    phi: Vec<f64>,
    spent: Vec<f64>,
}

impl Schedule {
    /// The paper's dynamic zCDP: phi(n+1) = phi(n)/tau, with sum phi(n) = `total` over n = 1..=`rounds`.
    ///
    /// Counted from the last round, phi(n) = phi(T) tau^(T-n), which cannot overflow.
    pub fn geometric(total: Rho, rounds: u32, tau: f64) -> Result<Self, BudgetError> {
        let sum: f64 = (0..rounds).map(|i| libm::pow(tau, f64::from(i))).sum();
        let last = total.get() / sum * (1.0 - slack(rounds));
        Self::checked((1..=rounds).map(|n| last * libm::pow(tau, f64::from(rounds - n))).collect())
    }

    /// The same, given the cost of the first round instead of the total.
    pub fn geometric_from_first(first: Rho, rounds: u32, tau: f64) -> Result<Self, BudgetError> {
        Self::checked((1..=rounds).map(|n| first.get() * libm::pow(tau, 1.0 - f64::from(n))).collect())
    }

    /// The classic Gaussian mechanism composed by advanced composition, as in (eps,delta)DP-NFL.
    ///
    /// Round n is (eps_n, delta_n)-private with eps_n = s tau^(-(n-1)/2) < 1, delta_n = delta/(2T) and noise
    /// multiplier sqrt(2 ln(1.25/delta_n))/eps_n. Another delta' = delta/2 is spent on composition (Kairouz, Oh,
    /// Viswanath 2015, Theorem 3.5): with A = sum eps_n (e^eps_n - 1)/(e^eps_n + 1) and B = sum eps_n^2, `s` is the
    /// largest for which min{ sum eps_n, A + sqrt(2 B ln(1/delta')), A + sqrt(2 B ln(e + sqrt(B)/delta')) } <=
    /// epsilon.
    pub fn classic(epsilon: Epsilon, delta: Delta, rounds: u32, tau: f64) -> Result<Self, BudgetError> {
        let grow = |n: u32| libm::pow(tau, -f64::from(n - 1) / 2.0);
        let composed = |s: f64| compose((1..=rounds).map(|n| s * grow(n)), delta);
        // The classic mechanism is proven for eps_n < 1 only; the last round is the largest.
        let cap = 1.0 / grow(rounds);
        let (s, _) = bisect(0.0, cap, |s| composed(s) <= epsilon.get());
        let spread = classic_spread(rounds, delta);
        Self::checked((1..=rounds).map(|n| (s * grow(n)).powi(2) / spread * (1.0 - slack(rounds))).collect())
    }

    /// The epsilon that the classic mechanism proves for this schedule.
    pub fn classic_epsilon(&self, delta: Delta) -> Epsilon {
        let costly = || self.phi.iter().filter(|phi| **phi > 0.0);
        let spread = classic_spread(costly().count() as u32, delta);
        Epsilon::computed(compose(costly().map(|phi| (phi * spread).sqrt()), delta))
    }

    fn checked(phi: Vec<f64>) -> Result<Self, BudgetError> {
        for (round, &rho) in (1u32..).zip(&phi) {
            if rho.is_nan() || rho < SMALLEST_RHO {
                return Err(BudgetError::TooSmall { round, rho });
            }
            if rho > LARGEST_RHO {
                return Err(BudgetError::TooLarge { round, rho });
            }
        }
        Ok(Self::of(phi))
    }

    fn of(phi: Vec<f64>) -> Self {
        // Compensated (Neumaier), so that the sum of any number of rounds is right to the last digits; `spent` rounds it up.
        let (mut sum, mut lost) = (0.0_f64, 0.0);
        let running = phi.iter().map(|&phi| {
            let next = sum + phi;
            lost += if sum >= phi { (sum - next) + phi } else { (phi - next) + sum };
            sum = next;
            sum + lost
        });
        Self { spent: running.collect(), phi }
    }

    /// The same costs, in the data rounds out of `rounds`; the others cost nothing.
    ///
    /// # Panics
    /// If the number of data rounds differs from the length of this schedule.
    pub fn spread(self, rounds: u32, touches: impl Fn(u32) -> bool) -> Self {
        let mut costs = self.phi.into_iter();
        let phi = (1..=rounds).map(|n| if touches(n) { costs.next().expect("one cost per data round") } else { 0.0 });
        let spread = Self::of(phi.collect());
        assert!(costs.next().is_none(), "as many costs as data rounds");
        spread
    }

    /// phi(n), the rho that round `n` (from 1) may spend.
    #[inline]
    pub fn phi(&self, round: u32) -> Rho {
        Rho::new(self.phi[round as usize - 1]).expect("checked when made")
    }

    /// Total rho after `round` rounds: the sum of phi(n) over n = 1..=round, both ends included.
    pub fn spent(&self, round: u32) -> Rho {
        let sum = if round == 0 { 0.0 } else { self.spent[round as usize - 1] };
        Rho::new(sum * (1.0 + SLACK / 4.0)).expect("a sum of checked terms")
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u32 {
        self.phi.len() as u32
    }
}

/// eps_n^2/phi(n) of the classic mechanism: 4 ln(1.25/delta_n), delta_n = delta/(2T).
fn classic_spread(rounds: u32, delta: Delta) -> f64 {
    4.0 * libm::log(1.25 * 2.0 * f64::from(rounds) / delta.get())
}

/// The epsilon of rounds with these epsilons together, at delta' = delta/2, rounded up.
fn compose(epsilons: impl Iterator<Item = f64>, delta: Delta) -> f64 {
    let (mut plain, mut mean, mut square) = (0.0, 0.0, 0.0);
    for e in epsilons {
        plain += e;
        mean += e * libm::tanh(e / 2.0);
        square += e * e;
    }
    let odds = (2.0 / delta.get()).min(std::f64::consts::E + 2.0 * square.sqrt() / delta.get());
    f64::min(plain, mean + (2.0 * libm::log(odds) * square).sqrt()) * (1.0 + SLACK / 4.0)
}

/// The total budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// A total epsilon, turned into rho by the study's accountant.
    Epsilon(Epsilon),
    /// The cost phi(1) of the first round; the total follows from tau and the number of rounds.
    First(Rho),
}

impl Budget {
    /// What each of `rounds` data rounds may spend of `share` of the total, which is 1 for all of it. All accountants but the
    /// classic one spread zCDP geometrically; for that one, and where only the first round is given, there is no share.
    pub fn schedule(
        self,
        accountant: Accountant,
        delta: Delta,
        rounds: u32,
        tau: f64,
        share: f64,
    ) -> Result<Schedule, BudgetError> {
        match self {
            Budget::Epsilon(epsilon) if accountant == Accountant::Classic => {
                Schedule::classic(epsilon, delta, rounds, tau)
            }
            Budget::Epsilon(epsilon) => {
                let rho = accountant.rho(epsilon, delta).get();
                Schedule::geometric(Rho::computed(if share == 1.0 { rho } else { rho * share }), rounds, tau)
            }
            Budget::First(first) => Schedule::geometric_from_first(first, rounds, tau),
        }
    }

    /// The rho of `share` of the total, as one round may spend it; 0 where there is no total.
    pub fn part(self, accountant: Accountant, delta: Delta, share: f64) -> Result<Rho, BudgetError> {
        match self {
            Budget::Epsilon(epsilon) if share > 0.0 && accountant != Accountant::Classic => {
                let rho = accountant.rho(epsilon, delta).get() * share;
                Schedule::geometric(Rho::computed(rho), 1, 1.0).map(|schedule| schedule.phi(1))
            }
            _ => Ok(Rho::ZERO),
        }
    }
}

/// What one client may spend in a study: its schedule, how it is accounted for, what it promised and what its owner allows.
///
/// Everything that has to know what a round costs asks here, so that no two places can differ.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientBudget {
    schedule: Arc<Schedule>,
    /// By what this client's phi(n) differs from the schedule's: its own phi(1) over the schedule's.
    factor: f64,
    accountant: Accountant,
    delta: Delta,
    /// What the clients assume about each other; none if nobody is trusted.
    masking: Option<Masking>,
    /// The sensitivity of the client's gradient and the number of its coordinates, from which follows what own noise alone is worth.
    records: Option<(Sensitivity, usize)>,
    /// The most that may be spent.
    allowed: Spent,
}

impl ClientBudget {
    /// The budget of a client; `own` is its phi(1) where it has one of its own. All that it promises is allowed.
    pub fn new(schedule: Arc<Schedule>, own: Option<Rho>, accountant: Accountant, delta: Delta) -> Self {
        let factor = own.map_or(1.0, |own| own.get() / schedule.phi(1).get());
        let mut budget =
            Self { schedule, factor, accountant, delta, masking: None, records: None, allowed: Spent::ZERO };
        budget.allowed = budget.total();
        budget
    }

    /// The same with noise that is masked.
    pub fn masked(self, masking: Option<Masking>) -> Self {
        let mut budget = Self { masking, ..self };
        budget.allowed = budget.total();
        budget
    }

    /// The same for records of which one moves a gradient of so many coordinates by this much: what own noise alone is worth depends on it.
    pub fn of_records(self, gradient: Sensitivity, features: usize) -> Self {
        let mut budget = Self { records: Some((gradient, features)), ..self };
        budget.allowed = budget.total();
        budget
    }

    /// The same with at most so much to spend. What is allowed already is never raised.
    pub fn allowing(self, most: Spent) -> Self {
        let least = |a: Rho, b: Rho| if a < b { a } else { b };
        let allowed = Spent { rho: least(self.allowed.rho, most.rho), alone: least(self.allowed.alone, most.alone) };
        Self { allowed, ..self }
    }

    /// phi_k(n); zero in rounds that do not touch the records and after the last round.
    #[inline]
    pub fn phi(&self, round: u32) -> Rho {
        if round > self.schedule.rounds() {
            return Rho::computed(0.0);
        }
        Rho::computed(self.schedule.phi(round).get() * self.factor)
    }

    /// What the noise of the masked round n is made of, for a gradient of this sensitivity: the lattice of all clients, and the own noise.
    /// `None` if the numbers leave the range in which noise can be drawn, or nothing is masked.
    pub fn masked_noise(
        &self,
        round: u32,
        gradient: Sensitivity,
        features: usize,
    ) -> Option<(MaskedLattice, OwnNoise)> {
        // The lattice follows from the schedule of all, the own noise from the client's.
        let lattice = MaskedLattice::new(self.masking.as_ref()?, self.schedule.phi(round))?;
        let own = lattice.own(gradient, features, self.phi(round))?;
        Some((lattice, own))
    }

    /// What the clients assume about each other; none if nobody is trusted.
    pub fn masking(&self) -> Option<&Masking> {
        self.masking.as_ref()
    }

    /// What round n costs: at most phi_k(n) under the assumption, and what own noise alone is worth, for the records that the budget was made for.
    ///
    /// With masks and no records, or noise that cannot be drawn, the second is unknown, and nothing bounds it.
    pub fn cost(&self, round: u32) -> Spent {
        let rho = self.phi(round);
        if self.masking.is_none() || rho.get() == 0.0 {
            return Spent::without_masks(rho);
        }
        let noise = self.records.and_then(|(gradient, features)| self.masked_noise(round, gradient, features));
        noise.map_or(Spent { rho, alone: Rho::computed(f64::INFINITY) }, |(_, own)| own.spent())
    }

    /// All rounds, added up in the order in which a ledger adds them, so that the two are equal to the last bit.
    fn total(&self) -> Spent {
        (1..=self.schedule.rounds()).fold(Spent::ZERO, |sum, n| sum.plus(self.cost(n)))
    }

    /// What all rounds together spend; the sum is rounded up.
    pub fn promised(&self) -> Spent {
        self.total()
    }

    /// Whether all rounds together stay within these: the sums that a ledger will show, not rounded.
    pub fn fits(&self, rho: f64, alone: f64) -> bool {
        let total = self.total();
        total.rho.get() <= rho && total.alone.get() <= alone
    }

    /// Whether round n may still touch the records after `spent`.
    pub fn allows(&self, spent: Spent, round: u32) -> bool {
        let after = spent.plus(self.cost(round));
        after.rho <= self.allowed.rho && after.alone <= self.allowed.alone
    }

    /// The epsilon of a rho, at the study's delta by its accountant.
    pub fn epsilon(&self, rho: Rho) -> Epsilon {
        self.accountant.epsilon(rho, self.delta)
    }

    /// How epsilon is accounted for.
    pub fn accountant(&self) -> Accountant {
        self.accountant
    }

    /// The delta at which epsilon is stated.
    pub fn delta(&self) -> Delta {
        self.delta
    }
}
