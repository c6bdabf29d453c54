//! Long work: without the interpreter's lock, with progress, an interrupt that ends it, and panics that become exceptions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use pyo3::prelude::*;
use rayon::ThreadPool;
use undertone_core::watch::{Cancel, Watch};

use crate::errors::Fault;
use crate::log;

/// How often the interpreter is asked for signals, and told of progress.
const TICK: Duration = Duration::from_millis(50);

/// Does long work that reports the share that is done to `progress`, on so many threads; one per core unless given.
pub fn watched<T: Send>(
    py: Python,
    progress: Option<&Bound<PyAny>>,
    threads: Option<usize>,
    work: impl FnOnce(&dyn Watch) -> Result<T, Fault> + Send,
) -> PyResult<T> {
    let pool = pool(threads)?;
    let progress = progress.map(|call| call.clone().unbind());
    let cancel = Cancel::default();
    let (share, told) = (AtomicU64::new(0), AtomicU64::new(0));
    let watch = cancel.watching(|done| {
        share.fetch_max(done.to_bits(), Ordering::Relaxed);
    });
    let tick = |py: Python| {
        let done = share.load(Ordering::Relaxed);
        match &progress {
            // Bits of numbers that are not negative are in the order of the numbers.
            Some(call) if done > told.swap(done, Ordering::Relaxed) => {
                call.bind(py).call1((f64::from_bits(done),)).map(drop)
            }
            _ => Ok(()),
        }
    };
    let result = interruptible(py, &cancel, tick, || pool.install(|| work(&watch)))?;
    tick(py)?;
    Ok(result)
}

/// A thread pool for one piece of work. Threads of a pool that is kept would be missing in a process that was forked.
pub fn pool(threads: Option<usize>) -> Result<ThreadPool, Fault> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    pool.map_err(|e| Fault::new("MachineError", format!("threads: {e}; ask for fewer")))
}

/// Does work on another thread while this one lets Python run, and looks for signals now and then. A signal or an exception in `tick`
/// ends the work by `cancel`; what it was is raised when the work has ended, never before.
pub fn interruptible<T: Send>(
    py: Python,
    cancel: &Cancel,
    tick: impl Fn(Python) -> PyResult<()> + Sync,
    work: impl FnOnce() -> Result<T, Fault> + Send,
) -> PyResult<T> {
    let (result, stopped) = py.detach(|| {
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let worker = scope.spawn(move || {
                let result = caught(work);
                // Nobody listens only where this thread is waited for anyway.
                let _ = sender.send(());
                result
            });
            let mut stopped: Option<PyErr> = None;
            while let Err(mpsc::RecvTimeoutError::Timeout) = receiver.recv_timeout(TICK) {
                if stopped.is_none()
                    && let Err(error) = Python::attach(|py| {
                        log::hand_over(py)?;
                        py.check_signals()?;
                        tick(py)
                    })
                {
                    cancel.cancel();
                    stopped = Some(error);
                }
            }
            let result = worker.join().unwrap_or_else(|panic| Err(Fault::internal(message(&*panic))));
            (result, stopped)
        })
    });
    log::hand_over(py)?;
    match stopped {
        Some(error) => Err(error),
        None => result.map_err(PyErr::from),
    }
}

/// A panic as a fault: no user has to know of panics.
pub fn caught<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // What was changed halfway is dropped with the error.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Fault::internal(message(&*panic))))
}

/// Where and why the last panic happened.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);
/// Whether panics are printed, as by the program.
static PRINTS: AtomicBool = AtomicBool::new(false);

/// Keeps the place of a panic for the exception in place of printing it, except in the program.
pub fn keep_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if PRINTS.load(Ordering::Relaxed) {
            usual(info);
        }
        if let Ok(mut last) = LAST_PANIC.lock() {
            *last = info.location().map(ToString::to_string);
        }
    }));
}

/// Prints panics during some work, as a program does.
pub fn printing_panics<T>(work: impl FnOnce() -> T) -> T {
    PRINTS.store(true, Ordering::Relaxed);
    let result = work();
    PRINTS.store(false, Ordering::Relaxed);
    result
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    let place = LAST_PANIC.lock().ok().and_then(|mut last| last.take()).unwrap_or_default();
    format!(
        "a mistake in Undertone, not in what you gave it: {text} ({place}). Please report it; nothing was released that is not in the ledger"
    )
}
