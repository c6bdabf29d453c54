//! Networks that several processes share: what a round costs, and what they exchange.

use std::rc::Rc;

use undertone_sim::ranks::{Alone, Ranks, Share, cut};
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

/// K clients on all ranks: nanoseconds of a client-round, of a second, and what is exchanged.
pub fn run(clients: usize, rounds: u32, threads: usize) {
    let ranks = join();
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("the first pool");
    let study = study(clients, rounds, 1, "noise");
    let outcome = run_across(&study, &*ranks, Spread::Clients, None, &|_| {}).expect("the study runs");
    let memory: u64 = ranks.gather_all(&(peak_memory() as u64)).iter().sum();
    let graph = study.build_graph(&undertone_core::names::Names::numbered(clients), 0).expect("a graph");
    let Some(outcome) = outcome else { return };
    let seconds = (outcome.seconds - outcome.setup_seconds) / f64::from(rounds);
    let crossing = |of: &[u32]| {
        let across = |k: usize| graph.neighbours(k).iter().filter(|&&l| of[l as usize] != of[k]).count();
        let edges: usize = (0..clients).map(across).sum();
        let copies: usize = (0..ranks.size()).map(|rank| Share::new(&graph, of, rank).copies()).sum();
        (edges / 2, copies)
    };
    let (edges, copies) = crossing(&cut(&graph, ranks.size(), 1));
    let in_turn: Vec<u32> = (0..clients as u32).map(|k| k % ranks.size() as u32).collect();
    let (edges_in_turn, copies_in_turn) = crossing(&in_turn);
    let data = clients * RECORDS * (FEATURES + 1) * 8;
    println!(
        "{{\"clients\": {clients}, \"ranks\": {}, \"threads\": {threads}, \"seconds_per_round\": {seconds:.4}, \"setup_seconds\": {:.2}, \
         \"memory_over_data\": {:.3}, \"edges\": {}, \"edges_across\": {edges}, \"bytes_per_round\": {}, \
         \"edges_across_in_turn\": {edges_in_turn}, \"bytes_per_round_in_turn\": {}}}",
        ranks.size(),
        outcome.setup_seconds,
        memory as f64 / data as f64,
        graph.edges(),
        copies * FEATURES * 8,
        copies_in_turn * FEATURES * 8
    );
}
