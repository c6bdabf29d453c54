//! Key files: one line of 64 hexadecimal digits, readable only by the owner.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use undertone_core::identity::Identity;

use crate::{KeyError, PeerError};

/// Makes a key and writes it to a new file.
pub fn generate(path: &Path) -> Result<Identity, PeerError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(PeerError::Random)?;
    write_secret(path, &hex::encode(secret)).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => wrong(path, KeyError::Exists),
        _ => wrong(path, KeyError::Unwritable(e)),
    })?;
    Ok(Identity::from_secret(&secret))
}

/// Writes a line into a new file that only its owner can read.
pub(crate) fn write_secret(path: &Path, line: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    writeln!(file, "{line}")?;
    file.sync_all()
}

/// Reads a key file.
pub fn read(path: &Path) -> Result<Identity, PeerError> {
    let text = std::fs::read_to_string(path).map_err(|e| wrong(path, KeyError::Unreadable(e)))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(path).map_err(|e| wrong(path, KeyError::Permissions(e)))?.permissions().mode();
        // systemd passes credentials in their own folder, readable by a group with only the service in it.
        let credential = std::env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|dir| path.starts_with(dir));
        let forbidden = if credential { 0o007 } else { 0o077 };
        if mode & forbidden != 0 {
            return Err(wrong(path, KeyError::Exposed));
        }
    }
    let mut secret = [0; 32];
    hex::decode_to_slice(text.trim(), &mut secret).map_err(|_| wrong(path, KeyError::NotAKey))?;
    Ok(Identity::from_secret(&secret))
}

fn wrong(path: &Path, source: KeyError) -> PeerError {
    PeerError::Key { path: path.into(), source }
}
