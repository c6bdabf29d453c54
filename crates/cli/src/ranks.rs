//! The processes that `mpirun` started, if it did, and what they say: the first speaks for all.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use undertone_sim::ranks::{Alone, Ranks};

use crate::Failure;

/// Whether another process speaks for this one.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Variables that tell a process how many there are: Open MPI, and MPICH with its relatives.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];

/// How many processes were started together, as far as their launcher says.
fn started() -> Option<usize> {
    SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Joins the processes that were started together. Each uses so many threads; unless told, as many as there are cores for it.
#[cfg(feature = "mpi")]
pub fn join(asked_threads: Option<u32>) -> Result<Rc<dyn Ranks>, Failure> {
    // Some launchers say only that there are several.
    if started().is_none() && std::env::var_os("PMIX_RANK").is_none() {
        return Ok(alone(asked_threads));
    }
    let message =
        "this MPI does not let a program with several threads use it; take one that supports MPI_THREAD_FUNNELED";
    let mpi = undertone_sim::ranks::Mpi::start().ok_or_else(|| Failure::machine(message))?;
    SILENT.store(mpi.rank() > 0, Ordering::Relaxed);
    // A process that panics would leave the others waiting.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        undertone_sim::ranks::abort(101);
    }));
    use_threads(asked_threads.map_or_else(|| threads(mpi.on_this_machine()), |count| count as usize));
    Ok(Rc::new(mpi))
}

/// There is nobody to join.
#[cfg(not(feature = "mpi"))]
pub fn join(asked_threads: Option<u32>) -> Result<Rc<dyn Ranks>, Failure> {
    match started() {
        Some(2..) => {
            SILENT.store(number() > 0, Ordering::Relaxed);
            let message = "was built without MPI, so mpirun would only start the same run several times; build it with \
                           cargo build --release --features mpi";
            Err(Failure::input(format!("this program {message}")))
        }
        _ => Ok(alone(asked_threads)),
    }
}

fn alone(asked_threads: Option<u32>) -> Rc<dyn Ranks> {
    if let Some(count) = asked_threads {
        use_threads(count as usize);
    }
    Rc::new(Alone)
}

/// The threads of each of so many processes on this machine.
#[cfg(feature = "mpi")]
fn threads(processes: usize) -> usize {
    let mine = std::thread::available_parallelism().map_or(1, |count| count.get());
    let online = std::fs::read_dir("/sys/devices/system/cpu").map_or(mine, |entries| {
        let is_core = |name: &str| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
        entries
            .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_core)))
            .count()
    });
    // A launcher that binds processes to cores has divided them already.
    if mine < online { mine } else { (mine / processes).max(1) }
}

/// Uses so many threads in all of this process.
fn use_threads(count: usize) {
    // What was set first stays.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(count).build_global();
}

/// Whether this process was started together with others.
pub fn is_shared() -> bool {
    started().is_some()
}

/// Which of the processes this is, as far as its launcher says.
pub fn number() -> usize {
    const NUMBERS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"];
    NUMBERS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()).unwrap_or(0)
}

/// Whether another process speaks for this one.
pub fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// The result, if all processes have one; else the failure of the first that has none. All of them call it.
pub fn agree<T>(ranks: &dyn Ranks, own: Result<T, Failure>) -> Result<T, Failure> {
    if ranks.is_alone() {
        return own;
    }
    let said = own.as_ref().err().map(|failure| (failure.code(), failure.message().to_string()));
    let first = ranks.gather_all(&said).into_iter().enumerate().find_map(|(rank, said)| Some((rank, said?)));
    match (own, first) {
        (own, None) => own,
        (_, Some((0, (code, message)))) => Err(Failure::of(code, message)),
        (_, Some((rank, (code, message)))) => Err(Failure::of(code, format!("rank {rank}: {message}"))),
    }
}

/// Refuses processes that do not do the same: other programs, or other studies.
pub fn same_everywhere(ranks: &dyn Ranks, study: &str) -> Result<(), Failure> {
    let all = ranks.gather_all(&(env!("CARGO_PKG_VERSION").to_string(), study.to_string()));
    for (rank, (version, text)) in all.iter().enumerate() {
        if *version != all[0].0 {
            let message =
                format!("rank {rank} is version {version}, and rank 0 is {}; install the same everywhere", all[0].0);
            return Err(Failure::input(message));
        }
        if *text != all[0].1 {
            let differs = text.lines().zip(all[0].1.lines()).find(|(own, first)| own != first);
            let (own, first) = differs.unwrap_or(("one that is longer or shorter", "another"));
            let message =
                format!("rank {rank} has another study than rank 0 ({own} and not {first}); give all the same file");
            return Err(Failure::input(message));
        }
    }
    Ok(())
}
