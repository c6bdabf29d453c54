//! A whole network in one thread and in virtual time: many nodes, a seed, and whatever can go wrong.

mod disk;
mod world;

pub use disk::SimDisk;
pub use world::*;
