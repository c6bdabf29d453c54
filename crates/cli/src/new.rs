//! `undertone new`: a commented example study.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use crate::{Failure, print};

/// The example, which is also what `undertone simulate` runs when no study is given.
pub const EXAMPLE: &str = include_str!("example.toml");

#[derive(clap::Args)]
pub struct Arguments {
    /// Where to write it; an existing file is never overwritten
    path: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = arguments.path.display();
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(&arguments.path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => Failure::input(format!("{path}: there is already a file; choose another name")),
            _ => Failure::input(format!("{path}: cannot be written ({e}); check the folder")),
        })?;
    file.write_all(EXAMPLE.as_bytes()).map_err(|e| Failure::machine(format!("{path}: cannot be written ({e})")))?;
    print(&format!("wrote {path}; run it with: undertone simulate {path}"))
}
