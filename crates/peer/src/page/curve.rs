//! The learning curve of a page, thinned out as it grows.

/// Points that are shown at most.
const MOST: usize = 300;

/// (round, distance to the neighbours, size of the last move), at rounds that are about equally far apart.
#[derive(Debug, Default)]
pub(super) struct Curve {
    points: Vec<(u32, f64, Option<f64>)>,
    /// Fewest rounds between two points.
    step: u32,
}

impl Curve {
    /// A point, which replaces the last one if that is near.
    pub fn add(&mut self, round: u32, distance: f64, moved: Option<f64>) {
        let kept = self.points.len().checked_sub(2).map(|before| self.points[before].0);
        let is_near = kept.is_some_and(|kept| round < kept + 2 * self.step.max(1));
        match self.points.last_mut() {
            Some(last) if last.0 == round => *last = (round, distance, moved.or(last.2)),
            Some(last) if is_near && round < last.0 + self.step.max(1) => *last = (round, distance, moved),
            _ => self.points.push((round, distance, moved)),
        }
        if self.points.len() > MOST {
            self.step = 2 * self.step.max(1);
            let newest = self.points.len() - 1;
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                (index - 1) % 2 == 0 || index - 1 == newest
            });
        }
    }

    pub fn points(&self) -> &[(u32, f64, Option<f64>)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_few_points_with_both_ends() {
        let mut curve = Curve::default();
        for round in 1..=100_000 {
            curve.add(round, f64::from(round), Some(1.0));
            assert!(curve.points().len() <= MOST);
            assert_eq!(curve.points().last().map(|p| p.0), Some(round));
        }
        let points = curve.points();
        assert_eq!(points[0].0, 1);
        assert!(points.len() > MOST / 3, "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let gaps = points.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let (most, all) = (gaps.clone().max().unwrap(), gaps.sum::<u32>());
        assert!(most <= 3 * all / points.len() as u32, "{most}");
    }

    #[test]
    fn one_round_is_one_point() {
        let mut curve = Curve::default();
        curve.add(5, 1.0, Some(2.0));
        curve.add(5, 1.5, None);
        assert_eq!(curve.points(), [(5, 1.5, Some(2.0))]);
    }
}
