//! Ranks that are threads of one process, to test what ranks do without anything outside.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Barrier, Mutex};

use crate::ranks::{Ranks, Received, Sent};

/// One of several threads that act as ranks.
pub struct Threads<'a> {
    rank: usize,
    /// To every rank.
    to: Vec<Sender<Vec<f64>>>,
    /// From every rank.
    from: Vec<Mutex<Receiver<Vec<f64>>>>,
    common: &'a Common,
}

struct Common {
    barrier: Barrier,
    said: Mutex<Vec<Vec<u8>>>,
    sums: Mutex<Vec<i64>>,
}

/// Runs the same on so many ranks, and returns what each returns.
pub fn on_ranks<T: Send>(size: usize, run: impl Fn(&Threads) -> T + Sync) -> Vec<T> {
    let common =
        Common { barrier: Barrier::new(size), said: Mutex::new(vec![Vec::new(); size]), sums: Mutex::default() };
    let mut to: Vec<Vec<Sender<Vec<f64>>>> = (0..size).map(|_| Vec::new()).collect();
    let mut from: Vec<Vec<Mutex<Receiver<Vec<f64>>>>> = (0..size).map(|_| Vec::new()).collect();
    for from in &mut from {
        for to in &mut to {
            let (sender, receiver) = channel();
            to.push(sender);
            from.push(Mutex::new(receiver));
        }
    }
    let ranks: Vec<Threads> = to
        .into_iter()
        .zip(from)
        .enumerate()
        .map(|(rank, (to, from))| Threads { rank, to, from, common: &common })
        .collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.iter().map(|ranks| scope.spawn(|| run(ranks))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

impl Ranks for Threads<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn exchange(&self, sent: &[Sent], received: Vec<Received>, meanwhile: &mut dyn FnMut()) {
        for (to, points) in sent {
            self.to[*to].send(points.to_vec()).unwrap();
        }
        meanwhile();
        for (from, points) in received {
            points.copy_from_slice(&self.from[from].lock().unwrap().recv().unwrap());
        }
    }

    fn add(&self, numbers: &mut [i64]) {
        {
            let mut sums = self.common.sums.lock().unwrap();
            sums.resize(numbers.len(), 0);
            sums.iter_mut().zip(&*numbers).for_each(|(sum, number)| *sum += number);
        }
        self.common.barrier.wait();
        numbers.copy_from_slice(&self.common.sums.lock().unwrap());
        if self.common.barrier.wait().is_leader() {
            self.common.sums.lock().unwrap().clear();
        }
        self.common.barrier.wait();
    }

    fn gather(&self, own: &[u8], for_all: bool) -> Option<Vec<Vec<u8>>> {
        self.common.said.lock().unwrap()[self.rank] = own.to_vec();
        self.common.barrier.wait();
        let all = self.common.said.lock().unwrap().clone();
        self.common.barrier.wait();
        (for_all || self.rank == 0).then_some(all)
    }
}
