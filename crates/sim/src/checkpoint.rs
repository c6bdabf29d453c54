//! The state of a long run on disk, from which it goes on after its processes have died.
//!
//! A folder holds `progress.undertone`, which says how far the run is and what was measured so far, and `points-G-N.undertone`, the vectors of all clients
//! after round N of the G-th group of trials, by the clients' numbers. Every rank writes those of its own clients. The first is replaced last and in one
//! step, so there is always a state to go on from. Neither depends on how many ranks there are.
//!
//! These files contain what clients have before noise is added only as sums that were released: w~, the algorithm's memory and running averages. Progress
//! holds errors against private solutions, as a run folder does.

use std::cell::{Cell, RefCell};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rayon::prelude::*;
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
const PROGRESS: &str = "progress.undertone";
/// What the first trial leaves for the outcome.
const KEPT: &str = "first-trial.undertone";
/// The file that the run holds locked, so that no other uses the folder.
const LOCK: &str = "lock.undertone";

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
    /// The sum of the hashes of all clients' records, once they are known.
    records: Option<i64>,
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
    /// Locked by the first rank.
    _lock: Option<File>,
}

impl Checkpoint {
    /// Takes up the state in the folder, if there is one.
    pub(crate) fn open<'a>(&'a self, study: &Study, ranks: &dyn Ranks) -> Result<Keeper<'a>, SimError> {
        let hash = *blake3::hash(study.to_toml().as_bytes()).as_bytes();
        let path = self.folder.join(PROGRESS);
        let lock = ranks.agree(if ranks.is_first() { self.lock().map(Some) } else { Ok(None) })?;
        self.check_seen_by_all(ranks)?;
        let read = || match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|e| broken(&path, &e)),
        };
        // The first one reads for all: others may still see an older file over a network.
        let text = ranks.agree(if ranks.is_first() { read() } else { Ok(None) })?;
        let progress = match ranks.from_first(|| text) {
            None => Progress { study: hash, records: None, done: Vec::new(), current: None },
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
        Ok(Keeper { folder: &self.folder, every: self.every, last, progress, _lock: lock })
    }

    /// Keeps other runs away. Also shows early that the folder can be written.
    fn lock(&self) -> Result<File, SimError> {
        fs::create_dir_all(&self.folder).map_err(|e| broken(&self.folder, &e))?;
        let path = self.folder.join(LOCK);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(|e| broken(&path, &e))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(SimError::Damaged { path: self.folder.clone(), reason: "is in use by another run".into() });
            }
            // A file system without locks keeps nobody away; all else is as it should be.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let nonce = getrandom::u64().map_err(|e| broken(&path, &io::Error::other(e)))?;
        let written = file.set_len(0).and_then(|()| file.write_all(nonce.to_string().as_bytes()));
        written.and_then(|()| file.sync_all()).map_err(|e| broken(&path, &e))?;
        Ok(file)
    }

    /// Refuses a folder that is not the same for all ranks.
    fn check_seen_by_all(&self, ranks: &dyn Ranks) -> Result<(), SimError> {
        let seen = fs::read(self.folder.join(LOCK)).unwrap_or_default();
        let first = ranks.from_first(|| seen.clone());
        let reason = || "is not the folder that rank 0 sees under this name".into();
        ranks.agree(match seen == first {
            true => Ok(()),
            false => Err(SimError::Damaged { path: self.folder.clone(), reason: reason() }),
        })
    }

    /// Whether there is a state in the folder.
    pub fn has_state(&self) -> bool {
        self.folder.join(PROGRESS).exists()
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

/// Whether a file is one of those that are kept here.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [PROGRESS, KEPT, LOCK].iter().any(|own| name == *own || name == format!("{own}-new")) || is_points(&name)
}

/// Whether a file holds points: `points-G-N.undertone`.
fn is_points(name: &str) -> bool {
    let numbers = name.strip_prefix("points-").and_then(|rest| rest.strip_suffix(".undertone"));
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    numbers.and_then(|text| text.split_once('-')).is_some_and(|(group, round)| is_number(group) && is_number(round))
}

/// The text behind the format and the hash, if both are right.
fn checked(text: &[u8]) -> Option<&[u8]> {
    let (hash, body) = text.strip_prefix(FORMAT.as_bytes())?.split_at_checked(32)?;
    (blake3::hash(body).as_bytes()[..] == *hash).then_some(body)
}

/// Replaces a file in one step.
fn replace(path: &Path, body: &[u8]) -> Result<(), SimError> {
    let new = path.with_extension("undertone-new");
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
        progress.current = Some(current);
        ranks.agree(self.write(&progress, ranks))?;
        self.remove_points_except(Some(&path), ranks);
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
        let read = read_rows(&path, population, size, &mut row).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound => {
                SimError::Damaged { path: path.clone(), reason: "is missing or too short".into() }
            }
            _ => broken(&path, &e),
        });
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
        progress.current = None;
        ranks.agree(self.write(&progress, ranks))?;
        self.remove_points_except(None, ranks);
        Ok(())
    }

    /// Removes points that are of no use any more, also those of runs that were killed. Whether they can be removed changes nothing.
    fn remove_points_except(&self, kept: Option<&Path>, ranks: &dyn Ranks) {
        let Some(entries) = ranks.is_first().then(|| fs::read_dir(self.folder).ok()).flatten() else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if is_points(&name) && Some(&*path) != kept {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Refuses to go on with other records. `hash` is the sum over all ranks of what [`fingerprint`] says.
    pub fn check_records(&self, hash: i64) -> Result<(), SimError> {
        let before = self.progress.borrow_mut().records.replace(hash);
        match before.is_none_or(|before| before == hash) {
            true => Ok(()),
            false => {
                let path = self.folder.join(PROGRESS);
                Err(SimError::Damaged { path, reason: "is the state of a run on other records".into() })
            }
        }
    }

    fn write(&self, progress: &Progress, ranks: &dyn Ranks) -> Result<(), SimError> {
        match ranks.is_first() {
            true => replace(&self.folder.join(PROGRESS), &packed(progress)),
            false => Ok(()),
        }
    }

    fn points(&self, current: &Current) -> PathBuf {
        self.folder.join(format!("points-{}-{}.undertone", current.start, current.round))
    }
}

impl Current {
    /// After a round.
    pub fn new(start: u32, round: u32, metrics: Vec<Vec<Metrics>>, swing: Swing) -> Self {
        Self { start, round, metrics, swing, hash: 0 }
    }
}

/// The sum over all clients of the hashes of their records.
pub fn fingerprint(population: &Population, ranks: &dyn Ranks) -> i64 {
    let one = |place: usize| {
        let bytes: Vec<u8> = population.stored_at(place).iter().flat_map(|number| number.to_le_bytes()).collect();
        hash_of(population.client(place), &bytes)
    };
    let own = (0..population.places()).into_par_iter().map(one).reduce(|| 0, i64::wrapping_add);
    total(ranks, own)
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
