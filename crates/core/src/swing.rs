//! A public sign of steps that are too large: the points at which gradients are taken swing to and fro.
//!
//! With d(s) the move from one such point to the next, the sum of d(s).d(s+1) over that of |d(s)|^2 is the cosine of the
//! angle between moves, averaged. Steps that go on in their direction have a positive one. Points that are nothing but independent noise
//! have -1/2, whatever the noise: they return from where it took them. Only steps that overshoot a minimum again and again come near -1.
//! All of it follows from what was released.

use serde::{Deserialize, Serialize};

/// Moves that are needed before anything is said.
const FEWEST: u32 = 5;
/// The mean cosine below which steps overshoot.
const OVERSHOOT: f64 = -0.7;

/// Moves between points, as they come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Swing {
    point: Vec<f64>,
    step: Vec<f64>,
    moves: u32,
    products: f64,
    squares: f64,
}

impl Swing {
    /// Adds the next point.
    pub fn add(&mut self, point: &[f64]) {
        if self.point.len() == point.len() {
            let step: Vec<f64> = point.iter().zip(&self.point).map(|(new, old)| new - old).collect();
            if self.moves > 0 {
                self.products += step.iter().zip(&self.step).map(|(a, b)| a * b).sum::<f64>();
                self.squares += step.iter().zip(&self.step).map(|(a, b)| (a * a + b * b) / 2.0).sum::<f64>();
            }
            self.step = step;
            self.moves += 1;
        }
        self.point.clear();
        self.point.extend_from_slice(point);
    }

    /// Whether the steps are too large.
    pub fn overshoots(&self) -> bool {
        self.moves >= FEWEST && self.squares > 0.0 && self.products / self.squares < OVERSHOOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::Stream;
    use rand::distr::Distribution;

    use crate::normal::Normal;

    /// x(s+1) = x(s) - eta (curvature x(s) + noise), in several dimensions.
    fn swings(eta: f64, noise: f64) -> bool {
        let mut rng = Stream { trial: 0, client: 1, round: 2 }.fast(3);
        let mut swing = Swing::default();
        let mut x = [5.0, -3.0, 1.0];
        for _ in 0..60 {
            swing.add(&x);
            for x in &mut x {
                let xi: f64 = Normal.sample(&mut rng);
                *x -= eta * (*x + noise * xi);
            }
        }
        swing.overshoots()
    }

    #[test]
    fn steps_that_overshoot_are_told_from_noise_and_from_progress() {
        assert!(swings(1.95, 0.0) && swings(1.95, 0.3), "each step goes beyond the minimum");
        assert!(!swings(0.3, 0.0) && !swings(0.3, 1.0), "steps that approach it");
        assert!(!swings(1.0, 1.0), "nothing but noise");
    }

    #[test]
    fn a_few_moves_say_nothing() {
        let mut swing = Swing::default();
        for x in [1.0, -1.0, 1.0, -1.0, 1.0] {
            swing.add(&[x]);
        }
        assert!(!swing.overshoots());
        swing.add(&[-1.0]);
        assert!(swing.overshoots());
    }
}
