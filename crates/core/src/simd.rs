//! Four numbers at a time, with the same bits on every machine.
//!
//! The kernels are written once against [`Vector`] and compiled twice on x86-64: for the baseline and for AVX2,
//! chosen at run time. There is no fused multiply-add, which rounds once and is not available on every machine. Explicit vectors
//! rather than arrays, because the compiler's own vectoriser prefers to regroup these loops across records, with more
//! shuffling than arithmetic.

/// Numbers processed side by side.
pub const LANES: usize = 4;

/// Plain lanes.
pub type Lanes = [f64; LANES];

/// An instruction set.
pub trait Vector: Copy {
    /// Four numbers.
    type V: Copy;
    /// Reads the first four numbers.
    fn load(self, numbers: &[f64]) -> Self::V;
    /// The same number four times.
    fn splat(self, number: f64) -> Self::V;
    /// sum + a b, with two roundings.
    fn multiply_add(self, sum: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// The plain lanes.
    fn lanes(self, v: Self::V) -> Lanes;
}

/// Code written against an instruction set.
pub trait Kernel {
    /// What it computes.
    type Output;
    /// Runs it; inlined into code that is compiled for that instruction set.
    fn run<S: Vector>(self, simd: S) -> Self::Output;
}

/// The instructions that every machine of the architecture has.
#[derive(Clone, Copy)]
pub struct Baseline;

impl Vector for Baseline {
    type V = Lanes;

    #[inline(always)]
    fn load(self, numbers: &[f64]) -> Lanes {
        numbers[..LANES].try_into().expect("four numbers")
    }

    #[inline(always)]
    fn splat(self, number: f64) -> Lanes {
        [number; LANES]
    }

    #[inline(always)]
    fn multiply_add(self, sum: Lanes, a: Lanes, b: Lanes) -> Lanes {
        std::array::from_fn(|lane| sum[lane] + a[lane] * b[lane])
    }

    #[inline(always)]
    fn lanes(self, v: Lanes) -> Lanes {
        v
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use pulp::f64x4;
    use pulp::x86::V3;

    use super::{Kernel, LANES, Lanes, Vector};

    impl Vector for V3 {
        type V = f64x4;

        #[inline(always)]
        fn load(self, numbers: &[f64]) -> f64x4 {
            let [a, b, c, d]: Lanes = numbers[..LANES].try_into().expect("four numbers");
            f64x4(a, b, c, d)
        }

        #[inline(always)]
        fn splat(self, number: f64) -> f64x4 {
            self.splat_f64x4(number)
        }

        #[inline(always)]
        fn multiply_add(self, sum: f64x4, a: f64x4, b: f64x4) -> f64x4 {
            let product = self.avx._mm256_mul_pd(pulp::cast(a), pulp::cast(b));
            pulp::cast(self.avx._mm256_add_pd(pulp::cast(sum), product))
        }

        #[inline(always)]
        fn lanes(self, v: f64x4) -> Lanes {
            [v.0, v.1, v.2, v.3]
        }
    }

    /// Runs a kernel in code compiled for AVX2.
    pub struct Op<K>(pub V3, pub K);

    impl<K: Kernel> pulp::NullaryFnOnce for Op<K> {
        type Output = K::Output;

        #[inline(always)]
        fn call(self) -> K::Output {
            self.1.run(self.0)
        }
    }
}

/// Runs a kernel on the best instruction set the machine has.
#[cfg(target_arch = "x86_64")]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    match pulp::x86::V3::try_new() {
        Some(v3) => v3.vectorize(avx2::Op(v3, kernel)),
        None => kernel.run(Baseline),
    }
}

/// Elsewhere the baseline already has vectors (NEON on 64-bit ARM).
#[cfg(not(target_arch = "x86_64"))]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Baseline)
}
