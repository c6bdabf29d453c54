//! Ranks that are processes of MPI.

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use super::{Ranks, Received, Sent};

/// The most numbers in one message: MPI counts in 32 bits.
const MOST: usize = 1 << 27;

/// The processes that `mpirun` started. Only the thread that started it can use it.
pub struct Mpi {
    world: SimpleCommunicator,
    /// Ends MPI when it is dropped.
    _universe: Universe,
}

impl Mpi {
    /// Joins the others; none if this MPI does not allow other threads beside the one that uses it.
    pub fn start() -> Option<Self> {
        let (universe, threading) = mpi::initialize_with_threading(Threading::Funneled)?;
        (threading >= Threading::Funneled).then(|| Self { world: universe.world(), _universe: universe })
    }

    /// How many of the processes are on this machine.
    pub fn on_this_machine(&self) -> usize {
        self.world.split_shared(self.world.rank()).size() as usize
    }
}

/// Ends all processes at once, whatever they do.
pub fn abort(code: i32) -> ! {
    SimpleCommunicator::world().abort(code)
}

impl Ranks for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn exchange(&self, sent: &[Sent], received: Vec<Received>, meanwhile: &mut dyn FnMut()) {
        let world = &self.world;
        let count = sent.iter().map(|(_, points)| points.len().div_ceil(MOST)).sum::<usize>()
            + received.iter().map(|(_, points)| points.len().div_ceil(MOST)).sum::<usize>();
        mpi::request::multiple_scope(count, |scope, requests| {
            for (from, points) in received {
                for piece in points.chunks_mut(MOST) {
                    requests.add(world.process_at_rank(from as i32).immediate_receive_into(scope, piece));
                }
            }
            for (to, points) in sent {
                for piece in points.chunks(MOST) {
                    requests.add(world.process_at_rank(*to as i32).immediate_send(scope, piece));
                }
            }
            meanwhile();
            requests.wait_all(&mut Vec::with_capacity(count));
        });
    }

    fn add(&self, numbers: &mut [i64]) {
        let world = &self.world;
        if numbers.is_empty() {
            return world.barrier();
        }
        for piece in numbers.chunks_mut(MOST) {
            let own = piece.to_vec();
            world.all_reduce_into(&own[..], piece, SystemOperation::sum());
        }
    }

    fn gather(&self, own: &[u8], for_all: bool) -> Option<Vec<Vec<u8>>> {
        let world = &self.world;
        let mut sizes = vec![0u64; self.size()];
        let most = MOST / self.size();
        world.all_gather_into(&(own.len() as u64), &mut sizes[..]);
        let receives = for_all || self.rank() == 0;
        let mut all: Vec<Vec<u8>> =
            sizes.iter().map(|&size| vec![0; if receives { size as usize } else { 0 }]).collect();
        // In pieces, so that no count is too large for MPI.
        let mut done = 0;
        while sizes.iter().any(|&size| size as usize > done) {
            let piece = |size: usize| size.saturating_sub(done).min(most);
            let counts: Vec<i32> = sizes.iter().map(|&size| piece(size as usize) as i32).collect();
            let places: Vec<i32> = counts
                .iter()
                .scan(0, |next, count| {
                    *next += count;
                    Some(*next - count)
                })
                .collect();
            let sent = &own[done.min(own.len())..][..piece(own.len())];
            let mut received = vec![0u8; if receives { counts.iter().sum::<i32>() as usize } else { 0 }];
            if for_all {
                world.all_gather_varcount_into(
                    sent,
                    &mut PartitionMut::new(&mut received[..], &counts[..], &places[..]),
                );
            } else if self.rank() == 0 {
                let mut parts = PartitionMut::new(&mut received[..], &counts[..], &places[..]);
                world.this_process().gather_varcount_into_root(sent, &mut parts);
            } else {
                world.process_at_rank(0).gather_varcount_into(sent);
            }
            if receives {
                for ((all, &place), &count) in all.iter_mut().zip(&places).zip(&counts) {
                    let (place, count) = (place as usize, count as usize);
                    let start = done.min(all.len());
                    all[start..start + count].copy_from_slice(&received[place..][..count]);
                }
            }
            done += most;
        }
        receives.then_some(all)
    }
}
