//! Key files: one line of 64 hexadecimal digits that nobody else may read.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use undertone_core::identity::{Identity, parse_hex};

use crate::PeerError;

/// Makes a key and writes it to a new file.
pub fn generate(path: &Path) -> Result<Identity, PeerError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)
        .map_err(|e| PeerError::Machine(format!("the operating system gave no random key ({e})")))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let written = options.open(path).and_then(|mut file| {
        writeln!(file, "{text}")?;
        file.sync_all()
    });
    written.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => PeerError::Input(format!(
            "{}: exists already, and a key is never overwritten; choose another name",
            path.display()
        )),
        _ => PeerError::Machine(format!("{}: cannot be written ({e}); choose another place", path.display())),
    })?;
    Ok(Identity::from_secret(&secret))
}

/// Reads a key file.
pub fn read(path: &Path) -> Result<Identity, PeerError> {
    let wrong = |what: &str| PeerError::Input(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|e| wrong(&format!("cannot be read ({e}); give the file that `undertone keygen` wrote")))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(path).map_err(|e| wrong(&e.to_string()))?.permissions().mode();
        // systemd hands credentials over in a folder of their own, readable by a group that only the service is in.
        let credential = std::env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|dir| path.starts_with(dir));
        let forbidden = if credential { 0o007 } else { 0o077 };
        if mode & forbidden != 0 {
            return Err(wrong("others on this machine can read this key; run `chmod 600` on it, or make a new one"));
        }
    }
    let secret =
        parse_hex(text.trim()).ok_or_else(|| wrong("is not a key; give the file that `undertone keygen` wrote"))?;
    Ok(Identity::from_secret(&secret))
}
