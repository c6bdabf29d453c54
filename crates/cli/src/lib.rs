//! The program `undertone`: one module for each verb, and no logic of its own.
//!
//! The binary calls [`run`], and so does whatever else brings the program along, such as the Python package.
//!
//! ```
//! let account = |epsilon: &str| undertone_cli::run(["undertone", "account", "--epsilon", epsilon, "--delta", "1e-6"], None);
//! assert_eq!(account("1"), 0);
//! assert_eq!(account("none"), 2);
//! ```

mod account;
mod audit;
mod check;
mod demo;
mod evidence;
mod keygen;
mod ledger;
mod new;
mod peer;
mod plan;
mod policy;
mod predict;
mod ranks;
mod reproduce;
mod score;
mod simulate;
mod study;
mod uncertainty;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::OnceLock;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
pub use new::EXAMPLE;
use undertone_core::watch::Watch;
use undertone_report::digits;
use undertone_sim::ranks::Ranks;

/// Private learning among peers, without a server.
///
/// Each peer keeps its records and exchanges messages only with its neighbours. Noise is added so that all its
/// messages together stay within an (epsilon, delta) budget.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a complete study on one machine: ten encrypted peers, one of them killed and restarted
    Demo(demo::Arguments),
    /// Make a key for a peer and print its public id
    Keygen(keygen::Arguments),
    /// Say everything that is wrong or odd about a study and one party's file; sends nothing, spends nothing
    Check(check::Arguments),
    /// Report the cost and the expected error of a study without reading any records
    Plan(plan::Arguments),
    /// Take part in a study, as one of its peers
    Peer(peer::Arguments),
    /// Show what a data set has spent
    Ledger(ledger::Arguments),
    /// State what all studies with a data set together may spend, or show it
    Policy(policy::Arguments),
    /// Check a peer's evidence that a party told two stories
    Evidence(evidence::Arguments),
    /// Predict with a model
    Predict(predict::Arguments),
    /// Score a model on records that it has not seen
    Score(score::Arguments),
    /// Run a study with all clients in this process
    Simulate(simulate::Arguments),
    /// Convert privacy budgets without a study, and spread them over rounds
    Account(account::Arguments),
    /// Attack a study as well as we can, and compare what that proves with what it claims
    Audit(audit::Arguments),
    /// Write a commented example study
    New(new::Arguments),
    /// Reproduce the figures of the paper's section V and judge its claims
    Reproduce(reproduce::Arguments),
}

/// Why a command failed.
enum Failure {
    /// The input is wrong: exit code 2.
    Input(String),
    /// The machine failed: exit code 1.
    Machine(String),
    /// It ended, and the result is not to be relied on: exit code 3.
    Result(String),
}

impl Failure {
    fn input(reason: impl Display) -> Self {
        Failure::Input(reason.to_string())
    }

    fn machine(reason: impl Display) -> Self {
        Failure::Machine(reason.to_string())
    }

    fn code(&self) -> u8 {
        match self {
            Failure::Machine(_) => 1,
            Failure::Input(_) => 2,
            Failure::Result(_) => 3,
        }
    }

    fn message(&self) -> &str {
        let (Failure::Machine(message) | Failure::Input(message) | Failure::Result(message)) = self;
        message
    }

    fn of(code: u8, message: String) -> Self {
        match code {
            1 => Failure::Machine(message),
            2 => Failure::Input(message),
            _ => Failure::Result(message),
        }
    }
}

/// How this program is started again, where that is not by its own file.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Runs the program with these arguments, the first of which is its name, and returns the exit code. `program` is how other processes of the
/// program are started, such as `["python", "-m", "undertone"]`; without it, by the file of this process.
pub fn run<A: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = A>, program: Option<Vec<OsString>>) -> u8 {
    if let Some(program) = program {
        PROGRAM.get_or_init(|| program);
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // To standard error, or help to standard output; where neither can be written, nobody can be told.
            if ranks::number() == 0 {
                let _ = error.print();
            }
            return error.exit_code() as u8;
        }
    };
    let threads = if let Verb::Simulate(simulate) = &arguments.verb { simulate.threads } else { None };
    let (ranks, result) = match ranks::join(threads) {
        Err(failure) => (None, Err(failure)),
        Ok(ranks) => {
            let result = perform(arguments.verb, &ranks);
            (Some(ranks), result)
        }
    };
    let code = result.as_ref().err().map_or(0, Failure::code);
    if let Err(failure) = result {
        tell(&format!("error: {}", failure.message()));
    }
    if let Some(ranks) = ranks {
        // A process that ends with an error makes mpirun end the others, the one that speaks for all among them.
        ranks.wait();
    }
    code
}

fn perform(verb: Verb, ranks: &Rc<dyn Ranks>) -> Result<(), Failure> {
    match verb {
        Verb::Plan(arguments) => return plan::run(&arguments, ranks),
        Verb::Simulate(arguments) => return simulate::run(&arguments, ranks),
        Verb::Reproduce(arguments) => return reproduce::run(&arguments, ranks),
        _ if ranks.size() > 1 => {
            let message =
                "several processes of mpirun can share simulate, plan and reproduce; run other commands without it";
            return Err(Failure::input(message));
        }
        _ => {}
    }
    match verb {
        Verb::Demo(arguments) => demo::run(&arguments),
        Verb::Keygen(arguments) => keygen::run(&arguments),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::Peer(arguments) => peer::run(&arguments),
        Verb::Ledger(arguments) => ledger::run(&arguments),
        Verb::Policy(arguments) => policy::run(&arguments),
        Verb::Evidence(arguments) => evidence::run(&arguments),
        Verb::Predict(arguments) => predict::run(&arguments),
        Verb::Score(arguments) => score::run(&arguments),
        Verb::Account(arguments) => account::run(&arguments),
        Verb::Audit(arguments) => audit::run(&arguments),
        Verb::New(arguments) => new::run(&arguments),
        Verb::Plan(_) | Verb::Simulate(_) | Verb::Reproduce(_) => unreachable!("performed above"),
    }
}

/// The program with its first arguments, to start other processes of it.
fn program() -> Result<Vec<OsString>, Failure> {
    match PROGRAM.get() {
        Some(program) => Ok(program.clone()),
        None => std::env::current_exe()
            .map(|path| vec![path.into()])
            .map_err(|e| Failure::machine(format!("this program cannot be found ({e})"))),
    }
}

/// A bar on whichever output is a terminal, nothing elsewhere.
fn progress_bar(name: &str) -> ProgressBar {
    if ranks::is_silent() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {elapsed} (left: {eta})");
    // mpirun gives its processes a terminal for standard output, whatever it does with what they write.
    let target = match std::io::stderr().is_terminal() || ranks::is_shared() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::stdout(), // which draws nothing if it is not a terminal either
    };
    let bar = ProgressBar::with_draw_target(Some(1000), target).with_style(style.expect("a fixed template"));
    bar.set_message(name.to_string());
    bar
}

/// Does something with a bar on the terminal.
fn with_bar<T>(name: &str, work: impl FnOnce(&dyn Watch) -> T) -> T {
    let bar = progress_bar(name);
    let result = work(&|share: f64| bar.set_position((share * 1000.0) as u64));
    bar.finish_and_clear();
    result
}

/// Plans with a bar, and for those who see none with one line, once the study was found to be possible.
fn planning<T>(work: impl FnOnce(&dyn Watch) -> T) -> T {
    let told = std::sync::Once::new();
    let blind = !std::io::stderr().is_terminal();
    with_bar("planning", |bar| {
        work(&|share: f64| {
            if blind {
                told.call_once(|| tell("note: planning on made-up data sets of this shape; seconds for most studies"));
            }
            bar.progress(share);
        })
    })
}

/// The first of `name`, `name`-2, `name`-3, ... that is free.
fn free_folder(name: &str) -> PathBuf {
    let names = std::iter::once(name.to_string()).chain((2..).map(|i| format!("{name}-{i}")));
    names.map(PathBuf::from).find(|path| !path.exists()).expect("the numbers do not end")
}

/// Four significant digits.
fn short(value: f64) -> String {
    undertone_report::chart::number(value)
}

/// Writes a line to standard error, unless another process speaks for this one.
fn tell(line: &str) {
    if !ranks::is_silent() {
        eprintln!("{line}");
    }
}

/// Prints to standard output; a closed pipe (`| head`) is not an error.
fn print(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write};
    if ranks::is_silent() {
        return Ok(());
    }
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::machine(format!("standard output: {e}"))),
        _ => Ok(()),
    }
}
