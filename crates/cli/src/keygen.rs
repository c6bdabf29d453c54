//! `undertone keygen`: the key of a peer.

use std::path::PathBuf;

use undertone_peer::keys;

use crate::peer::failed;
use crate::{Failure, print};

#[derive(clap::Args)]
pub struct Arguments {
    /// Where to write the secret key; never over an existing file
    file: PathBuf,

    /// Print the public id of an existing key instead
    #[arg(long)]
    show: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let key = if arguments.show { keys::read(&arguments.file) } else { keys::generate(&arguments.file) };
    let id = key.map_err(failed)?.id();
    if !arguments.show {
        eprintln!(
            "secret key written to {}; keep it secret. The line below is the public id:",
            arguments.file.display()
        );
    }
    print(&id.to_string())
}
