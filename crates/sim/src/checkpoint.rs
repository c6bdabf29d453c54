//! The state of a long run on disk, from which it goes on after its processes have died.
//!
//! A folder holds `progress`, which says how far the run is and what was measured so far, and `points-G-N`, the vectors of all clients
//! after round N of the G-th group of trials, by the clients' numbers. Every rank writes those of its own clients. `progress` is replaced last and in one
//! step, so there is always a state to go on from. Neither depends on how many ranks there are.
//!
//! These files contain what clients have before noise is added only as sums that were released: w~, the algorithm's memory and running averages. Progress
//! holds errors against private solutions, as a run folder does.

use std::cell::{Cell, RefCell};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use undertone_core::study::Study;
use undertone_core::swing::Swing;

use crate::data::Population;
use crate::error::SimError;
use crate::metrics::Metrics;
use crate::ranks::{Ranks, packed};

/// What the first bytes of `progress` say; another number means another layout.
const FORMAT: &str = "undertone checkpoint 1\n";
/// The name of the file that says how far a run is.
const PROGRESS: &str = "progress";
/// What the first trial leaves for the outcome.
const KEPT: &str = "first-trial";

/// Where the state of a run is kept, and how often it is written.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// A folder that all processes see, and that no other run uses.
    pub folder: PathBuf,
    /// Time between two states, about.
    pub every: Duration,
}

/// How far a run is.
#[derive(Serialize, Deserialize)]
struct Progress {
    study: [u8; 32],
    /// The groups of trials that are done, by the number of their first trial, and what came of them.
    done: Vec<(u32, Vec<u8>)>,
    /// The group that is being computed, unless none is.
    current: Option<Current>,
}

/// How far a group of trials is.
#[derive(Clone, Serialize, Deserialize)]
pub struct Current {
    /// The first of them.
    pub start: u32,
    /// The last round that is done.
    pub round: u32,
    /// What was measured, trial by trial.
    pub metrics: Vec<Vec<Metrics>>,
    /// The moves of the mean.
    pub swing: Swing,
    /// The sum of the hashes of all clients' vectors.
    hash: i64,
}

/// What came of a group of trials, as it was given to [`Keeper::finish`].
pub struct Done {
    /// Its measurements.
    pub measured: Vec<u8>,
    /// What the first trial leaves for the outcome.
    pub kept: Option<Vec<u8>>,
}

/// Keeps the state of one run.
pub struct Keeper<'a> {
    folder: &'a Path,
    every: Duration,
    last: Cell<Instant>,
    progress: RefCell<Progress>,
}

impl Checkpoint {
    /// Takes up the state in the folder, if there is one.
    pub(crate) fn open<'a>(&'a self, study: &Study, ranks: &dyn Ranks) -> Result<Keeper<'a>, SimError> {
        let hash = *blake3::hash(study.to_toml().as_bytes()).as_bytes();
        let path = self.folder.join(PROGRESS);
        let read = || {
            fs::create_dir_all(&self.folder).map_err(|e| broken(&self.folder, &e))?;
            match fs::read(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                read => read.map(Some).map_err(|e| broken(&path, &e)),
            }
        };
        // The first one reads for all: others may still see an older file over a network.
        let text = ranks.agree(if ranks.is_first() { read() } else { Ok(None) })?;
        let progress = match ranks.from_first(|| text) {
            None => Progress { study: hash, done: Vec::new(), current: None },
            Some(text) => {
                let found: Option<Progress> = checked(&text).and_then(|body| postcard::from_bytes(body).ok());
                match found {
                    None => {
                        let reason = "is damaged, or of another version".into();
                        return Err(SimError::Damaged { path, reason });
                    }
                    Some(found) if found.study != hash => {
                        return Err(SimError::Damaged { path, reason: "is the state of another study".into() });
                    }
                    Some(found) => found,
                }
            }
        };
        let (last, progress) = (Cell::new(Instant::now()), RefCell::new(progress));
        Ok(Keeper { folder: &self.folder, every: self.every, last, progress })
    }

    /// Removes the state, once the outcome is safe.
    pub fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if is_ours(&path) {
                fs::remove_file(path)?;
            }
        }
        // Somebody else's files stay, and so does then the folder.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }
}

fn broken(path: &Path, error: &io::Error) -> SimError {
    SimError::Checkpoint { path: path.into(), reason: error.to_string() }
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [PROGRESS, KEPT].iter().any(|own| name == *own || name == format!("{own}.new")) || name.starts_with("points-")
}

/// The text behind the format and the hash, if both are right.
fn checked(text: &[u8]) -> Option<&[u8]> {
    let (hash, body) = text.strip_prefix(FORMAT.as_bytes())?.split_at_checked(32)?;
    (blake3::hash(body).as_bytes()[..] == *hash).then_some(body)
}

/// Replaces a file in one step.
fn replace(path: &Path, body: &[u8]) -> Result<(), SimError> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(FORMAT.as_bytes())?;
        file.write_all(blake3::hash(body).as_bytes())?;
        file.write_all(body)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|e| broken(path, &e))
}

impl Keeper<'_> {
    /// What came of a group of trials, if it is done.
    pub fn done(&self, start: u32) -> Result<Option<Done>, SimError> {
        let progress = self.progress.borrow();
        let Some((_, measured)) = progress.done.iter().find(|(first, _)| *first == start) else { return Ok(None) };
        if start > 0 {
            return Ok(Some(Done { measured: measured.clone(), kept: None }));
        }
        let path = self.folder.join(KEPT);
        let text = fs::read(&path).map_err(|e| broken(&path, &e))?;
        match checked(&text) {
            Some(kept) => Ok(Some(Done { measured: measured.clone(), kept: Some(kept.to_vec()) })),
            None => Err(SimError::Damaged { path, reason: "is damaged, or of another version".into() }),
        }
    }

    /// How far a group is that was being computed.
    pub fn current(&self, start: u32) -> Option<Current> {
        self.progress.borrow().current.clone().filter(|current| current.start == start)
    }

    /// Whether it is time for another state. All ranks ask together, and the first one's clock decides.
    pub fn is_due(&self, ranks: &dyn Ranks) -> bool {
        let mut due = [i64::from(ranks.is_first() && self.last.get().elapsed() >= self.every)];
        ranks.add(&mut due);
        due[0] > 0
    }

    /// Writes the state of a group after a round. `row` appends the vectors of the client at a place.
    pub fn save(
        &self,
        mut current: Current,
        population: &Population,
        ranks: &dyn Ranks,
        row: impl Fn(usize, &mut Vec<u8>),
    ) -> Result<(), SimError> {
        let path = self.points(&current);
        let mut size = Vec::new();
        row(0, &mut size);
        let whole = size.len() as u64 * population.clients() as u64;
        // The first one makes the file, of its full length: a disk that is full is found out before anything is replaced.
        let make = || {
            let file = File::create(&path)?;
            file.set_len(whole)
        };
        ranks.agree(if ranks.is_first() { make().map_err(|e| broken(&path, &e)) } else { Ok(()) })?;
        let written = write_rows(&path, population, row).map_err(|e| broken(&path, &e));
        current.hash = total(ranks, ranks.agree(written)?);
        let mut progress = self.progress.borrow_mut();
        let before = progress.current.replace(current);
        ranks.agree(self.write(&progress, ranks))?;
        if let (Some(before), true) = (before, ranks.is_first()) {
            // Of no use any more; whether it can be removed changes nothing.
            let old = self.points(&before);
            if old != path {
                let _ = fs::remove_file(old);
            }
        }
        self.last.set(Instant::now());
        Ok(())
    }

    /// Hands every own client's vectors, as they were saved, to `row`.
    pub fn restore(
        &self,
        current: &Current,
        population: &Population,
        ranks: &dyn Ranks,
        size: usize,
        mut row: impl FnMut(usize, &[u8]),
    ) -> Result<(), SimError> {
        let path = self.points(current);
        let read = read_rows(&path, population, size, &mut row).map_err(|e| broken(&path, &e));
        let found = total(ranks, ranks.agree(read)?);
        match found == current.hash {
            true => Ok(()),
            false => Err(SimError::Damaged { path, reason: "is damaged".into() }),
        }
    }

    /// A group of trials is done. `kept` is what the first trial leaves for the outcome, at the first rank.
    pub fn finish(
        &self,
        start: u32,
        measured: Vec<u8>,
        kept: Option<Vec<u8>>,
        ranks: &dyn Ranks,
    ) -> Result<(), SimError> {
        ranks.agree(kept.map_or(Ok(()), |kept| replace(&self.folder.join(KEPT), &kept)))?;
        let mut progress = self.progress.borrow_mut();
        progress.done.push((start, measured));
        let before = progress.current.take();
        ranks.agree(self.write(&progress, ranks))?;
        if let (Some(before), true) = (before, ranks.is_first()) {
            let _ = fs::remove_file(self.points(&before));
        }
        Ok(())
    }

    fn write(&self, progress: &Progress, ranks: &dyn Ranks) -> Result<(), SimError> {
        match ranks.is_first() {
            true => replace(&self.folder.join(PROGRESS), &packed(progress)),
            false => Ok(()),
        }
    }

    fn points(&self, current: &Current) -> PathBuf {
        self.folder.join(format!("points-{}-{}", current.start, current.round))
    }
}

impl Current {
    /// After a round.
    pub fn new(start: u32, round: u32, metrics: Vec<Vec<Metrics>>, swing: Swing) -> Self {
        Self { start, round, metrics, swing, hash: 0 }
    }
}

/// The sum over all ranks.
fn total(ranks: &dyn Ranks, own: i64) -> i64 {
    // Halves, whose sums cannot overflow.
    let mut halves = [own & 0xffff_ffff, (own >> 32) & 0xffff_ffff];
    ranks.add(&mut halves);
    halves[0].wrapping_add(halves[1] << 32)
}

/// The hash of the vectors of a client: sums of such hashes do not depend on their order.
fn hash_of(client: usize, bytes: &[u8]) -> i64 {
    let hash = blake3::Hasher::new().update(&(client as u64).to_le_bytes()).update(bytes).finalize();
    i64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
}

/// Rows of neighbouring clients are written and read together, up to so many bytes.
const TOGETHER: usize = 1 << 22;

/// The own clients in the order of the file, as runs of places whose clients follow each other.
fn in_order(population: &Population, size: usize) -> Vec<Vec<usize>> {
    let mut places: Vec<usize> = (0..population.places()).collect();
    places.sort_unstable_by_key(|&place| population.client(place));
    let most = (TOGETHER / size.max(1)).max(1);
    let mut runs: Vec<Vec<usize>> = Vec::new();
    for place in places {
        match runs.last_mut() {
            Some(run)
                if run.len() < most
                    && population.client(*run.last().expect("not empty")) + 1 == population.client(place) =>
            {
                run.push(place);
            }
            _ => runs.push(vec![place]),
        }
    }
    runs
}

fn write_rows(path: &Path, population: &Population, row: impl Fn(usize, &mut Vec<u8>)) -> io::Result<i64> {
    let file = OpenOptions::new().write(true).open(path)?;
    let mut first = Vec::new();
    row(0, &mut first);
    let size = first.len();
    let (mut hash, mut bytes) = (0i64, Vec::new());
    for run in in_order(population, size) {
        bytes.clear();
        for &place in &run {
            let start = bytes.len();
            row(place, &mut bytes);
            hash = hash.wrapping_add(hash_of(population.client(place), &bytes[start..]));
        }
        file.write_all_at(&bytes, population.client(run[0]) as u64 * size as u64)?;
    }
    file.sync_all()?;
    Ok(hash)
}

fn read_rows(path: &Path, population: &Population, size: usize, row: &mut dyn FnMut(usize, &[u8])) -> io::Result<i64> {
    let file = File::open(path)?;
    let (mut hash, mut bytes) = (0i64, Vec::new());
    for run in in_order(population, size) {
        bytes.resize(run.len() * size, 0);
        file.read_exact_at(&mut bytes, population.client(run[0]) as u64 * size as u64)?;
        for (&place, bytes) in run.iter().zip(bytes.chunks_exact(size)) {
            hash = hash.wrapping_add(hash_of(population.client(place), bytes));
            row(place, bytes);
        }
    }
    Ok(hash)
}
