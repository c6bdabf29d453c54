//! Prefetches numbers that will be needed soon.

/// Starts to fetch all of `numbers` into the cache. It affects only the time to read them.
#[inline(always)]
pub fn prefetch(numbers: &[f64]) {
    const LINE: usize = 64 / size_of::<f64>();
    for line in numbers.iter().step_by(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing and cannot fault, and the address is that of a valid reference.
        #[allow(unsafe_code)]
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(line).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}
