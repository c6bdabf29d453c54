//! Several numbers at a time, with the same bits on every machine.
//!
//! The kernels are written once against [`Vector`] and compiled three times on x86-64: for the baseline, for AVX2 and for AVX-512,
//! chosen at run time. There is no fused multiply-add, which rounds once and is not available on every machine. Explicit vectors
//! rather than arrays, because the compiler's own vectoriser prefers to regroup these loops across records, with more
//! shuffling than arithmetic.

/// Records processed side by side; [`dispatch`] runs a kernel on vectors of so many numbers.
pub const LANES: usize = 4;

/// As many numbers as the widest vector of any instruction set has.
pub const WIDEST: usize = 16;

/// Plain lanes.
pub type Lanes = [f64; LANES];

/// An instruction set.
pub trait Vector: Copy {
    /// How many numbers a vector has.
    const LANES: usize;
    /// So many numbers.
    type V: Copy;
    /// Vectors twice as wide, or the same where the machine has no registers for them.
    type Twice: Vector;
    /// Vectors twice as wide, or the same.
    fn twice(self) -> Self::Twice;
    /// Reads the first numbers.
    fn load(self, numbers: &[f64]) -> Self::V;
    /// The same of numbers of 32 bits, two of which share the place of one; only for vectors of [`LANES`].
    #[inline(always)]
    fn load_single(self, numbers: &[f64]) -> Self::V {
        let [a, b]: [f64; 2] = numbers[..2].try_into().expect("four numbers in two places");
        let half = |word: f64, shift: u32| f64::from(f32::from_bits((word.to_bits() >> shift) as u32));
        self.load(&[half(a, 0), half(a, 32), half(b, 0), half(b, 32)])
    }
    /// Writes the first numbers.
    fn store(self, v: Self::V, numbers: &mut [f64]);
    /// The same number in all places.
    fn splat(self, number: f64) -> Self::V;
    /// a + b
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a b
    fn multiply(self, a: Self::V, b: Self::V) -> Self::V;
    /// sum + a b, with two roundings.
    #[inline(always)]
    fn multiply_add(self, sum: Self::V, a: Self::V, b: Self::V) -> Self::V {
        self.add(sum, self.multiply(a, b))
    }
}

/// Code written against an instruction set.
pub trait Kernel {
    /// What it computes.
    type Output;
    /// Runs it; inlined into code that is compiled for that instruction set. The vectors have [`LANES`] numbers.
    fn run<S: Vector>(self, simd: S) -> Self::Output;
}

/// The instructions that every machine of the architecture has.
#[derive(Clone, Copy)]
pub struct Baseline;

impl Vector for Baseline {
    const LANES: usize = LANES;
    type V = Lanes;
    type Twice = Self;

    #[inline(always)]
    fn twice(self) -> Self {
        self
    }

    #[inline(always)]
    fn load(self, numbers: &[f64]) -> Lanes {
        numbers[..LANES].try_into().expect("four numbers")
    }

    #[inline(always)]
    fn store(self, v: Lanes, numbers: &mut [f64]) {
        numbers[..LANES].copy_from_slice(&v);
    }

    #[inline(always)]
    fn splat(self, number: f64) -> Lanes {
        [number; LANES]
    }

    #[inline(always)]
    fn add(self, a: Lanes, b: Lanes) -> Lanes {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    fn multiply(self, a: Lanes, b: Lanes) -> Lanes {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use pulp::x86::{V3, V4};
    use pulp::{f64x4, f64x8};

    use super::{Kernel, LANES, Lanes, Vector};

    /// Vectors of four: with AVX2, or with the registers of AVX-512.
    macro_rules! four {
        ($Set:ident, $Twice:ident, $twice:expr) => {
            impl Vector for $Set {
                const LANES: usize = LANES;
                type V = f64x4;
                type Twice = $Twice;

                #[inline(always)]
                fn twice(self) -> $Twice {
                    $twice(self)
                }

                #[inline(always)]
                fn load(self, numbers: &[f64]) -> f64x4 {
                    let lanes: Lanes = numbers[..LANES].try_into().expect("four numbers");
                    pulp::cast(lanes)
                }

                #[inline(always)]
                fn load_single(self, numbers: &[f64]) -> f64x4 {
                    let both: [f64; 2] = numbers[..2].try_into().expect("four numbers in two places");
                    pulp::cast(self.avx._mm256_cvtps_pd(pulp::cast(both)))
                }

                #[inline(always)]
                fn store(self, v: f64x4, numbers: &mut [f64]) {
                    let lanes: Lanes = pulp::cast(v);
                    numbers[..LANES].copy_from_slice(&lanes);
                }

                #[inline(always)]
                fn splat(self, number: f64) -> f64x4 {
                    self.splat_f64x4(number)
                }

                #[inline(always)]
                fn add(self, a: f64x4, b: f64x4) -> f64x4 {
                    pulp::cast(self.avx._mm256_add_pd(pulp::cast(a), pulp::cast(b)))
                }

                #[inline(always)]
                fn multiply(self, a: f64x4, b: f64x4) -> f64x4 {
                    pulp::cast(self.avx._mm256_mul_pd(pulp::cast(a), pulp::cast(b)))
                }
            }
        };
    }

    four!(V3, V3, std::convert::identity);
    four!(V4, Eight, Eight);

    /// Vectors of eight, with AVX-512.
    #[derive(Clone, Copy)]
    pub struct Eight(V4);

    impl Vector for Eight {
        const LANES: usize = 8;
        type V = f64x8;
        type Twice = Sixteen;

        #[inline(always)]
        fn twice(self) -> Sixteen {
            Sixteen(self)
        }

        #[inline(always)]
        fn load(self, numbers: &[f64]) -> f64x8 {
            let lanes: [f64; 8] = numbers[..8].try_into().expect("eight numbers");
            pulp::cast(lanes)
        }

        #[inline(always)]
        fn store(self, v: f64x8, numbers: &mut [f64]) {
            let lanes: [f64; 8] = pulp::cast(v);
            numbers[..8].copy_from_slice(&lanes);
        }

        #[inline(always)]
        fn splat(self, number: f64) -> f64x8 {
            self.0.splat_f64x8(number)
        }

        #[inline(always)]
        fn add(self, a: f64x8, b: f64x8) -> f64x8 {
            pulp::cast(self.0.avx512f._mm512_add_pd(pulp::cast(a), pulp::cast(b)))
        }

        #[inline(always)]
        fn multiply(self, a: f64x8, b: f64x8) -> f64x8 {
            pulp::cast(self.0.avx512f._mm512_mul_pd(pulp::cast(a), pulp::cast(b)))
        }
    }

    /// Two vectors of eight: what both need is loaded once.
    #[derive(Clone, Copy)]
    pub struct Sixteen(Eight);

    impl Vector for Sixteen {
        const LANES: usize = 16;
        type V = [f64x8; 2];
        type Twice = Self;

        #[inline(always)]
        fn twice(self) -> Self {
            self
        }

        #[inline(always)]
        fn load(self, numbers: &[f64]) -> [f64x8; 2] {
            let (low, high) = numbers[..16].split_at(8);
            [self.0.load(low), self.0.load(high)]
        }

        #[inline(always)]
        fn store(self, v: [f64x8; 2], numbers: &mut [f64]) {
            let (low, high) = numbers[..16].split_at_mut(8);
            self.0.store(v[0], low);
            self.0.store(v[1], high);
        }

        #[inline(always)]
        fn splat(self, number: f64) -> [f64x8; 2] {
            [self.0.splat(number); 2]
        }

        #[inline(always)]
        fn add(self, a: [f64x8; 2], b: [f64x8; 2]) -> [f64x8; 2] {
            [self.0.add(a[0], b[0]), self.0.add(a[1], b[1])]
        }

        #[inline(always)]
        fn multiply(self, a: [f64x8; 2], b: [f64x8; 2]) -> [f64x8; 2] {
            [self.0.multiply(a[0], b[0]), self.0.multiply(a[1], b[1])]
        }
    }

    /// Runs a kernel in code compiled for an instruction set.
    pub struct Op<S, K>(pub S, pub K);

    impl<S: Vector, K: Kernel> pulp::NullaryFnOnce for Op<S, K> {
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
    use pulp::x86::{V3, V4};
    if let Some(v4) = V4::try_new() {
        return v4.vectorize(x86::Op(v4, kernel));
    }
    match V3::try_new() {
        Some(v3) => v3.vectorize(x86::Op(v3, kernel)),
        None => kernel.run(Baseline),
    }
}

/// Elsewhere the baseline already has vectors (NEON on 64-bit ARM).
#[cfg(not(target_arch = "x86_64"))]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Baseline)
}

/// Runs a loop over `count` numbers, in code that is compiled for the best instruction set if there are enough of them. The compiler does not change the order of sums, so the bits stay the same.
#[inline(always)]
pub fn over(count: usize, body: impl FnOnce()) {
    /// Below this the way there takes longer.
    const MANY: usize = 32;
    if count < MANY { body() } else { dispatch(Body(body)) }
}

struct Body<F>(F);

impl<F: FnOnce()> Kernel for Body<F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vector>(self, _: S) {
        (self.0)();
    }
}

/// Runs a kernel on every instruction set that this machine has, by name: their results must be the same to the last bit.
#[cfg(test)]
pub fn on_each<K: Kernel>(kernel: impl Fn() -> K) -> Vec<(&'static str, K::Output)> {
    let mut found = vec![("baseline", kernel().run(Baseline))];
    #[cfg(target_arch = "x86_64")]
    {
        found.extend(pulp::x86::V3::try_new().map(|v3| ("AVX2", v3.vectorize(x86::Op(v3, kernel())))));
        found.extend(pulp::x86::V4::try_new().map(|v4| ("AVX-512", v4.vectorize(x86::Op(v4, kernel())))));
    }
    found
}
