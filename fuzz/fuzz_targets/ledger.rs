//! Any bytes as a ledger: refused or read, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undertone_core::ledger::{Contents, MemoryDisk};

fuzz_target!(|bytes: &[u8]| {
    let _ = Contents::read(&mut MemoryDisk(bytes.to_vec()));
});
