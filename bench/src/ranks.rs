//! Networks that several processes share: what a round costs, and what they exchange.

use std::rc::Rc;

use undertone_core::names::Names;
use undertone_sim::ranks::{Alone, Ranks, Share, at_random, cut};
use undertone_sim::{Spread, run_across};

use crate::{FEATURES, RECORDS, peak_memory, study};

/// The processes of `mpirun`; this one alone without it, or without the feature `mpi`.
fn join() -> Rc<dyn Ranks> {
    #[cfg(feature = "mpi")]
    if std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some() {
        return Rc::new(undertone_sim::ranks::Mpi::start().expect("an MPI for threads"));
    }
    Rc::new(Alone)
}

/// K clients on all ranks: seconds of a round, and memory of all ranks together.
pub fn run(clients: usize, rounds: u32, threads: usize) {
    let ranks = join();
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("the first pool");
    let study = study(clients, rounds, 1, "noise");
    let outcome = run_across(&study, &*ranks, Spread::Clients, None, &|_| {}).expect("the study runs");
    let memory: u64 = ranks.gather_all(&(peak_memory() as u64)).iter().sum();
    let Some(outcome) = outcome else { return };
    let seconds = (outcome.seconds - outcome.setup_seconds) / f64::from(rounds);
    let data = clients * RECORDS * (FEATURES + 1) * 8;
    println!(
        "{{\"clients\": {clients}, \"ranks\": {}, \"threads\": {threads}, \"seconds_per_round\": {seconds:.4}, \"setup_seconds\": {:.2}, \
         \"memory_over_data\": {:.3}}}",
        ranks.size(),
        outcome.setup_seconds,
        memory as f64 / data as f64
    );
}

/// Edges that join different parts when K clients are divided into so many, and the points that are copied in each round: as runs divide them, and at random.
pub fn cuts(clients: usize, parts: usize) {
    let study = study(clients, 1, 1, "noise");
    let graph = study.build_graph(&Names::numbered(clients), 0).expect("a graph");
    let (found, random) = (cut(&graph, parts, 1), at_random(clients, parts, 1));
    let crossing = |of: &[u32]| {
        let across = |k: usize| graph.neighbours(k).iter().filter(|&&l| of[l as usize] != of[k]).count();
        let edges = (0..clients).map(across).sum::<usize>() / 2;
        let copies: usize = (0..parts).map(|rank| Share::new(&graph, of, rank).copies()).sum();
        format!(
            "{:.3} of all edges, {:.3} points per client",
            edges as f64 / graph.edges() as f64,
            copies as f64 / clients as f64
        )
    };
    println!("{parts} parts of {clients}: {}; at random {}", crossing(&found), crossing(&random));
}
