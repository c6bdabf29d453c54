//! The state folder of a data set: its ledger, and the results of its studies.
//!
//! ```text
//! DIR/ledger              what was spent; never edit, copy back or remove it. Locked by the one process that uses the folder
//! DIR/mark-1, mark-2      how far the ledger is: a ledger that is shorter was cut off or replaced
//! DIR/policy.toml         what the owner of the data allows, if the owner has said so
//! DIR/NAME-HASH/          the result of one study
//! ```
//!
//! All of it is readable by the owner of the process alone.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use undertone_core::ledger::{Contents, Disk, PLACE, Place};

use crate::disk_watch::{Alarm, DiskWatch};
use crate::metrics::Metrics;
use crate::{OwnerLimits, PeerError, StateError};

/// A ledger on disk, with the marks beside it.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    /// False only in measurements: nothing then survives a loss of power.
    durable: bool,
    /// The folder that holds the ledger; none for a ledger without marks.
    folder: Option<PathBuf>,
    /// The marks, and what is known of others in the current study.
    beside: [(String, Option<File>); 3],
    anchor: Option<Anchor>,
    watch: Arc<DiskWatch>,
}

impl FileDisk {
    fn new(file: File, durable: bool, folder: Option<PathBuf>, anchor: Option<Anchor>) -> Self {
        let beside = [MARKS[0], MARKS[1], "witness"].map(|name| (name.to_string(), None));
        Self { file, durable, folder, beside, anchor, watch: DiskWatch::new() }
    }

    /// Keeps what is known of others apart from what was known in other studies.
    pub(crate) fn in_study(mut self, study: &[u8; 32]) -> Self {
        self.beside[2].0 = format!("witness-{}", hex::encode(&study[..8]));
        self
    }

    /// Reports writes that hang.
    pub(crate) fn watched(self, metrics: &Arc<Metrics>, alarm: &Arc<Alarm>) -> Self {
        self.watch.watch(metrics, alarm);
        self
    }

    fn mark(&mut self, place: usize) -> io::Result<&File> {
        let (name, file) = &mut self.beside[place];
        if file.is_none() {
            let folder = self.folder.as_ref().ok_or(ErrorKind::Unsupported)?;
            *file = Some(open_private(&folder.join(name))?);
            if self.durable {
                File::open(folder)?.sync_all()?;
            }
        }
        Ok(file.as_ref().expect("opened above"))
    }
}

impl Disk for FileDisk {
    fn size(&mut self) -> io::Result<u64> {
        self.file.metadata().map(|m| m.len())
    }

    fn read(&mut self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        read_up_to(&self.file, at, count)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.watch.during(|| {
            write_all_at(&self.file, bytes, at)?;
            if self.durable { self.file.sync_data() } else { Ok(()) }
        })
    }

    fn keeps_marks(&self) -> bool {
        self.folder.is_some()
    }

    fn has_anchor(&self) -> bool {
        self.anchor.is_some()
    }

    fn read_mark(&mut self, place: Place) -> io::Result<Vec<u8>> {
        let name = match place {
            Place::First => &self.beside[0].0,
            Place::Second => &self.beside[1].0,
            Place::Witness => &self.beside[2].0,
            Place::Anchor => return self.anchor.as_ref().map_or(Ok(Vec::new()), Anchor::read),
        };
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        match fs::read(folder.join(name)) {
            Ok(bytes) => Ok(bytes),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    fn write_mark(&mut self, place: Place, at: u64, bytes: &[u8], durable: bool) -> io::Result<()> {
        let (durable, watch) = (durable && self.durable, self.watch.clone());
        watch.during(|| {
            let file = match place {
                Place::First => self.mark(0)?,
                Place::Second => self.mark(1)?,
                Place::Witness => self.mark(2)?,
                Place::Anchor => return self.anchor.as_ref().map_or(Ok(()), |anchor| anchor.write(at, bytes)),
            };
            write_all_at(file, bytes, at)?;
            if durable { file.sync_data() } else { Ok(()) }
        })
    }
}

/// Where a mark is kept outside of the state folder: on another disk, or by a command that keeps it somewhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anchor {
    /// A file.
    File(PathBuf),
    /// A command. With the argument `get` it prints what it keeps, or nothing; with `put HEX` it keeps that, durably.
    Command(String),
}

impl std::str::FromStr for Anchor {
    type Err = String;

    /// A path, or `command:` and a command.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("command:") {
            Some(command) if command.trim().is_empty() => Err("names no command; write command:PROGRAM".into()),
            Some(command) => Ok(Self::Command(command.into())),
            None if text.is_empty() => {
                Err("is empty; write the path of a file on another disk, or command:PROGRAM".into())
            }
            None => Ok(Self::File(text.into())),
        }
    }
}

impl Anchor {
    fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::File(path) => match File::open(path) {
                Ok(file) => read_up_to(&file, 0, PLACE),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                Err(e) => Err(io::Error::new(e.kind(), format!("its anchor, {}: {e}", path.display()))),
            },
            Self::Command(command) => {
                let text = run_command(command, "get")?;
                hex::decode(text.trim())
                    .map_err(|_| io::Error::other(format!("its anchor, `{command} get`, printed no mark")))
            }
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(path) => {
                let written = open_private(path).and_then(|file| {
                    write_all_at(&file, bytes, at)?;
                    file.sync_all()
                });
                written.map_err(|e| io::Error::new(e.kind(), format!("its anchor, {}: {e}", path.display())))
            }
            Self::Command(command) => run_command(command, &format!("put {}", hex::encode(bytes))).map(drop),
        }
    }
}

/// What a command prints, if it ends well.
fn run_command(command: &str, arguments: &str) -> io::Result<String> {
    let output = std::process::Command::new("sh").arg("-c").arg(format!("{command} {arguments}")).output()?;
    let word = arguments.split(' ').next().unwrap_or_default();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let reason = String::from_utf8_lossy(&output.stderr).trim().replace('\n', ", ");
            Err(io::Error::other(format!("its anchor, `{command} {word}`, ended with {}: {reason}", output.status)))
        }
    }
}

/// A file that nobody else can read, made if there is none.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A folder that nobody else can read, made if there is none.
fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    // One that was there before may be open to others.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7700))?;
        }
    }
    Ok(())
}

fn read_up_to(file: &File, at: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut got = 0;
    while got < count {
        match read_at(file, &mut bytes[got..], at + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(got);
    Ok(bytes)
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
    /// The ledger, locked.
    ledger: File,
    anchor: Option<Anchor>,
    /// Whether the ledger was started just now.
    pub is_new: bool,
}

const LEDGER: &str = "ledger";
const POLICY: &str = "policy.toml";
const MARKS: [&str; 2] = ["mark-1", "mark-2"];

/// What was planned for a study with this text, in lines, and the file in which the state folder keeps it. It is planned once: a restart finds the same choice at once, also with a
/// later version that would choose differently. The file is there before the ledger is.
pub fn planned_once<E>(
    state: &Path,
    text: &[u8],
    plan: impl FnOnce() -> Result<Vec<String>, E>,
    failed: impl Fn(PeerError) -> E,
) -> Result<(String, Vec<String>), E> {
    let kept = state.join(format!("planned-{}.txt", &blake3::hash(text).to_hex()[..16]));
    let chosen = match fs::read_to_string(&kept) {
        Ok(chosen) => chosen.lines().map(str::to_string).collect(),
        Err(_) => {
            let chosen = plan()?;
            let lines = chosen.join("\n") + "\n";
            make_folder(state).and_then(|()| write_whole(&kept, lines.as_bytes())).map_err(failed)?;
            chosen
        }
    };
    Ok((kept.display().to_string(), chosen))
}

/// Whether a file is one that [`planned_once`] names, whole or partial.
fn is_planned(name: &str) -> bool {
    let stem = name.strip_suffix(".txt").or(name.strip_suffix(".new"));
    let hash = stem.and_then(|stem| stem.strip_prefix("planned-"));
    hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Locks a file. A process that was just started by this program shares its locks for a moment, so one that seems to be taken is tried again.
fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..20 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(50)),
            other => return other,
        }
    }
    file.try_lock()
}

/// Refuses a folder whose ledger knows of no study while other files do: its ledger was lost, whatever took its place.
fn check_used(folder: &Path, contents: Option<&Contents>) -> Result<(), PeerError> {
    if contents.is_some_and(|contents| !contents.runs.is_empty()) {
        return Ok(());
    }
    let entries = fs::read_dir(folder);
    let entries = entries.map_err(|source| wrong(folder, StateError::Io { what: "cannot be listed", source }))?;
    let is_expected = |name: &str| [LEDGER, POLICY, MARKS[0], MARKS[1]].contains(&name) || is_planned(name);
    let mut names = entries.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned()));
    match names.all(|name| is_expected(&name)) {
        true => Ok(()),
        false => Err(wrong(folder, StateError::NoLedger)),
    }
}

impl Drop for StateFolder {
    /// A process that was forked from this one has the ledger open too, and would keep the lock.
    fn drop(&mut self) {
        let _ = self.ledger.unlock();
    }
}

impl StateFolder {
    /// Opens a folder, or creates it. Its lock is on the ledger, and is released when the process ends, in any way.
    pub fn open(path: &Path, anchor: Option<Anchor>) -> Result<Self, PeerError> {
        let broken = |what, source| wrong(path, StateError::Io { what, source });
        make_private(path).map_err(|e| broken("cannot be made", e))?;
        // Before a ledger is made, which would look as if there had been one.
        let is_new = !fs::metadata(path.join(LEDGER)).is_ok_and(|ledger| ledger.len() > 0 || !ledger.is_file());
        if is_new {
            check_used(path, None)?;
        }
        let ledger = open_private(&path.join(LEDGER));
        let ledger = ledger.map_err(|e| broken("cannot be written, and nothing is sent that is not recorded", e))?;
        match lock(&ledger) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(wrong(path, StateError::InUse)),
            Err(TryLockError::Error(e)) => return Err(broken("cannot be locked", e)),
        }
        // The anchor is first written with a round that uses records, which may be long after the start.
        if let Some(Anchor::File(anchor)) = &anchor {
            let folder = anchor.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if let (Ok(folder), Ok(state)) = (folder.canonicalize(), path.canonicalize())
                && folder.starts_with(state)
            {
                return Err(wrong(anchor, StateError::AnchorInside));
            }
            open_private(anchor).map_err(|e| wrong(anchor, StateError::AnchorUnwritable(e)))?;
        }
        Ok(Self { path: path.into(), ledger, anchor, is_new })
    }

    /// The ledger's file.
    pub fn disk(&self, durable: bool) -> Result<FileDisk, PeerError> {
        let disk = self.ledger.try_clone().and_then(|file| {
            // The file's name must survive too.
            if durable {
                File::open(&self.path)?.sync_all()?;
            }
            Ok(FileDisk::new(file, durable, Some(self.path.clone()), self.anchor.clone()))
        });
        disk.map_err(|e| wrong(&self.path.join(LEDGER), StateError::LedgerUnwritable(e)))
    }

    /// The contents of the ledger, if anything was recorded.
    pub fn contents(&self) -> Result<Option<Contents>, PeerError> {
        let contents = Contents::read(&mut self.disk(false)?).map_err(|e| wrong(&self.path.join(LEDGER), e.into()))?;
        check_used(&self.path, contents.as_ref())?;
        Ok(contents)
    }

    /// The owner's policy; one that limits nothing if there is none.
    pub fn policy(&self) -> Result<OwnerLimits, PeerError> {
        read_policy(&self.path)
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

/// The owner's policy in a state folder; one that limits nothing if there is none.
pub fn read_policy(folder: &Path) -> Result<OwnerLimits, PeerError> {
    let path = folder.join(POLICY);
    match fs::read_to_string(&path) {
        Ok(text) => OwnerLimits::read(&text, &path.display().to_string()).map_err(PeerError::Policy),
        // A link whose target is not there is a policy that cannot be read, not none.
        Err(e) if e.kind() == ErrorKind::NotFound && fs::symlink_metadata(&path).is_err() => Ok(OwnerLimits::default()),
        Err(source) => Err(PeerError::Io { path, what: "cannot be read", source }),
    }
}

/// Writes the owner's policy to a state folder, which is made if there is none.
pub fn write_policy(folder: &Path, policy: &OwnerLimits) -> Result<(), PeerError> {
    make_folder(folder)?;
    write_whole(&folder.join(POLICY), policy.to_toml().as_bytes())
}

/// The contents of the ledger in a state folder, without locking the folder; `None` if nothing was recorded yet.
pub fn read_ledger(folder: &Path) -> Result<Option<Contents>, PeerError> {
    let path = folder.join(LEDGER);
    let file = File::open(&path).map_err(|e| wrong(&path, StateError::LedgerUnreadable(e)))?;
    let mut disk = FileDisk::new(file, true, Some(folder.into()), None);
    let contents = Contents::read(&mut disk).map_err(|e| wrong(&path, e.into()))?;
    check_used(folder, contents.as_ref())?;
    Ok(contents)
}

fn wrong(path: &Path, source: StateError) -> PeerError {
    PeerError::State { path: path.into(), source }
}

/// Makes a folder that nobody else can read, if there is none.
pub fn make_folder(path: &Path) -> Result<(), PeerError> {
    make_private(path).map_err(|source| PeerError::Io { path: path.into(), what: "cannot be made", source })
}

/// Writes a file so that a reader sees the old one or the new one, never a partial one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), PeerError> {
    let new = path.with_extension("new");
    let written = open_private(&new).and_then(|mut file| {
        file.set_len(0)?;
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
        let open = || OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
        let write = |durable| FileDisk::new(open(), durable, None, None).write(0, &[1]);
        assert_eq!(write(true).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(write(false).is_ok());
    }
}
