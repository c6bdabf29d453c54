//! The state folder of a data set: its ledger, and the results of its studies.
//!
//! ```text
//! DIR/ledger              what was spent; never edit, copy back or remove it
//! DIR/lock                held by the one process that uses the folder
//! DIR/NAME-HASH/          the result of one study
//! ```

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use undertone_core::ledger::{Contents, Disk};

use crate::{PeerError, StateError};

/// A ledger on disk.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    /// False only in measurements: nothing then survives a loss of power.
    durable: bool,
}

impl FileDisk {
    fn open(path: &Path, durable: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { file, durable })
    }
}

impl Disk for FileDisk {
    fn size(&mut self) -> io::Result<u64> {
        self.file.metadata().map(|m| m.len())
    }

    fn read(&mut self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        let mut got = 0;
        while got < count {
            match read_at(&self.file, &mut bytes[got..], at + got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        bytes.truncate(got);
        Ok(bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        write_all_at(&self.file, bytes, at)?;
        if self.durable { self.file.sync_data() } else { Ok(()) }
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, at)
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    use io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read(bytes)
}

#[cfg(not(unix))]
fn write_all_at(mut file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    use io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

/// A state folder that this process alone uses.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    _lock: File,
    /// Whether the ledger was started just now.
    pub is_new: bool,
}

const LEDGER: &str = "ledger";
const LOCK: &str = "lock";
/// Names of planned studies begin with this; they are there before the ledger is.
pub const PLANNED: &str = "planned-";

impl StateFolder {
    /// Opens a folder, or creates it. The lock is released when the process ends, in any way.
    pub fn open(path: &Path) -> Result<Self, PeerError> {
        let broken = |what, source| wrong(path, StateError::Io { what, source });
        fs::create_dir_all(path).map_err(|e| broken("cannot be made", e))?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(path.join(LOCK));
        let lock = lock.map_err(|e| broken("cannot be written, and nothing is sent that is not recorded", e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(wrong(path, StateError::InUse)),
            Err(TryLockError::Error(e)) => return Err(broken("cannot be locked", e)),
        }
        let entries = fs::read_dir(path).map_err(|e| broken("cannot be listed", e))?;
        let names: Vec<_> = entries.filter_map(|e| Some(e.ok()?.file_name())).collect();
        let is_new = !fs::metadata(path.join(LEDGER)).is_ok_and(|ledger| ledger.len() > 0 || !ledger.is_file());
        let expected = |name: &OsString| name == LOCK || name == LEDGER || name.to_string_lossy().starts_with(PLANNED);
        if is_new && !names.iter().all(expected) {
            return Err(wrong(path, StateError::NoLedger));
        }
        Ok(Self { path: path.into(), _lock: lock, is_new })
    }

    /// The ledger's file, made now if there is none.
    pub fn disk(&self, durable: bool) -> Result<FileDisk, PeerError> {
        let path = self.path.join(LEDGER);
        let disk = FileDisk::open(&path, durable).and_then(|disk| {
            // The file's name must survive too.
            if durable {
                File::open(&self.path)?.sync_all()?;
            }
            Ok(disk)
        });
        disk.map_err(|e| wrong(&path, StateError::LedgerUnwritable(e)))
    }

    /// The contents of the ledger, if anything was recorded.
    pub fn contents(&self) -> Result<Option<Contents>, PeerError> {
        if self.is_new { Ok(None) } else { read_ledger(&self.path) }
    }

    /// The folder for the result of a study, which is made when the ledger knows the study.
    pub fn results(&self, name: &str, study: &[u8; 32]) -> PathBuf {
        results_folder(&self.path, name, study)
    }
}

/// The folder for the results of a study.
pub(crate) fn results_folder(state: &Path, name: &str, study: &[u8; 32]) -> PathBuf {
    let plain: String =
        name.chars().map(|c| if c.is_alphanumeric() || "-_".contains(c) { c } else { '-' }).take(60).collect();
    let hash = hex::encode(&study[..4]);
    let plain = plain.trim_matches('-');
    state.join(if plain.is_empty() { format!("study-{hash}") } else { format!("{plain}-{hash}") })
}

/// The contents of the ledger in a state folder, without locking the folder; `None` if nothing was recorded yet.
pub fn read_ledger(folder: &Path) -> Result<Option<Contents>, PeerError> {
    let path = folder.join(LEDGER);
    let file = File::open(&path).map_err(|e| wrong(&path, StateError::LedgerUnreadable(e)))?;
    Contents::read(&mut FileDisk { file, durable: true }).map_err(|e| wrong(&path, e.into()))
}

fn wrong(path: &Path, source: StateError) -> PeerError {
    PeerError::State { path: path.into(), source }
}

/// Makes a folder for results, if there is none.
pub(crate) fn make_folder(path: &Path) -> Result<(), PeerError> {
    fs::create_dir_all(path).map_err(|source| PeerError::Io { path: path.into(), what: "cannot be made", source })
}

/// Writes a file so that a reader sees the old one or the new one, never a partial one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), PeerError> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut file| {
        io::Write::write_all(&mut file, bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    });
    written.map_err(|source| PeerError::Io { path: path.into(), what: "cannot be written", source })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// /dev/null takes every write and confirms none.
    #[test]
    fn a_write_is_confirmed_by_the_disk() {
        let write = |durable| FileDisk::open(Path::new("/dev/null"), durable).unwrap().write(0, &[1]);
        assert_eq!(write(true).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(write(false).is_ok());
    }
}
