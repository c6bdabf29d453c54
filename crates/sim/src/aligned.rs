//! Numbers that start at a cache line, so that four or eight of them never straddle two.

use std::ops::{Deref, DerefMut};

/// Numbers in a cache line of 64 bytes.
const LINE: usize = 8;

/// A fixed number of zeros to begin with.
#[derive(Debug)]
pub struct Aligned {
    numbers: Vec<f64>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// `length` zeros. The vector never grows, so it stays where it was aligned.
    pub fn zeros(length: usize) -> Self {
        let numbers = vec![0.0f64; length + LINE - 1];
        // Without alignment the numbers are only slower to read.
        let start = numbers.as_ptr().align_offset(LINE * size_of::<f64>()).min(LINE - 1);
        Self { numbers, start, length }
    }

    /// The numbers as a plain vector.
    pub fn into_vec(mut self) -> Vec<f64> {
        // In place: with a million clients a copy would be felt.
        self.numbers.copy_within(self.start..self.start + self.length, 0);
        self.numbers.truncate(self.length);
        self.numbers
    }
}

impl Deref for Aligned {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.numbers[self.start..][..self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.numbers[self.start..][..self.length]
    }
}
