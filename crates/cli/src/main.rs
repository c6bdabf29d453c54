//! Undertone: private learning among peers, without a server.

use std::process::ExitCode;

fn main() -> ExitCode {
    undertone_cli::run(std::env::args_os(), None).into()
}
