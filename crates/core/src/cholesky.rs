//! The Cholesky factorisation of a small dense matrix.

/// The lower triangle L of A = L L^T, by rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Cholesky {
    rows: Vec<f64>,
    size: usize,
}

impl Cholesky {
    /// Factors a symmetric positive definite matrix, given by rows. A pivot below `least`, which only rounding can cause, is
    /// taken as `least`.
    pub fn new(matrix: Vec<f64>, size: usize, least: f64) -> Self {
        let mut a = matrix;
        for i in 0..size {
            for j in 0..=i {
                let inner = dot(&a[i * size..i * size + j], &a[j * size..j * size + j]);
                let rest = a[i * size + j] - inner;
                a[i * size + j] = if i == j { rest.max(least).sqrt() } else { rest / a[j * size + j] };
            }
        }
        Self { rows: a, size }
    }

    /// Row i of L, up to its diagonal.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.rows[i * self.size..=i * self.size + i]
    }

    /// Replaces b by the solution x of A x = b.
    pub fn solve(&self, b: &mut [f64]) {
        for i in 0..self.size {
            let (before, pivot) = self.row(i).split_at(i);
            b[i] = (b[i] - dot(before, &b[..i])) / pivot[0];
        }
        for i in (0..self.size).rev() {
            let below: f64 = (i + 1..self.size).map(|j| self.rows[j * self.size + i] * b[j]).sum();
            b[i] = (b[i] - below) / self.rows[i * self.size + i];
        }
    }
}

/// a.b
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solves_what_it_factored() {
        let a = [4.0, 2.0, 0.6, 2.0, 5.0, 1.0, 0.6, 1.0, 3.0];
        let x = [1.0, -2.0, 0.5];
        let mut b: Vec<f64> = a.chunks(3).map(|row| dot(row, &x)).collect();
        Cholesky::new(a.to_vec(), 3, f64::MIN_POSITIVE).solve(&mut b);
        assert!(b.iter().zip(x).all(|(b, x)| (b - x).abs() < 1e-14), "{b:?}");
    }
}
