//! `undertone reproduce`: the paper's section V as one command.

use std::fs;
use std::path::{Path, PathBuf};

use undertone_sim::folder;
use undertone_sim::paper::figures::{Figure, Runs};
use undertone_sim::paper::report;
use undertone_sim::paper::tune::{self, Tuned};
use undertone_sim::paper::verdict::{Rates, claims};

use crate::{Failure, free_folder, print, progress_bar};

#[derive(clap::Args)]
pub struct Arguments {
    /// Draw only this figure (may be repeated): elastic-net-learning, elastic-net-tradeoff, lad-learning,
    /// ridge-learning or ridge-tradeoff
    #[arg(long, value_name = "NAME", value_parser = figure)]
    figure: Vec<Figure>,

    /// Trials per curve
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    trials: u32,

    /// Where to write; without it the first free one of undertone-reproduce, undertone-reproduce-2, ...
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Seed of the data, graphs and noise; the same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How methods are compared: each at its best, or each as fast as zCDP-NFL at first
    #[arg(long, value_enum, default_value_t = Preset::Tuned)]
    preset: Preset,

    /// Tune every method anew, with equal effort, in place of the parameters that come with the program (a few minutes)
    #[arg(long)]
    tune: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Preset {
    /// Every method tuned with equal effort
    Tuned,
    /// Every method as fast as zCDP-NFL over the first half of the rounds, close to the paper's way
    Matched,
}

impl Preset {
    /// How the report puts it.
    fn comparison(self) -> &'static str {
        match self {
            Preset::Tuned => "was tuned with the same effort on data that no figure uses",
            Preset::Matched => {
                "has the parameters of tuned zCDP-NFL. The subgradient methods get the step size, and P-ADMM the penalty, that \
                 makes them as good as zCDP-NFL after 100 rounds, the nearest of 32 tried on data that no figure uses; \
                 (eps,delta)DP-NFL differs from zCDP-NFL in its noise alone"
            }
        }
    }
}

fn figure(name: &str) -> Result<Figure, String> {
    let names: Vec<String> = Figure::ALL.iter().map(|f| f.name()).collect();
    let found = Figure::ALL.into_iter().find(|f| f.name() == name);
    found.ok_or_else(|| format!("the figures are {}", names.join(", ")))
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.seed == tune::SEED || arguments.seed > i64::MAX as u64 {
        let reason = "is the seed that tuning uses, or too large; choose another, so that figures show unseen data";
        return Err(Failure::input(format!("--seed {} {reason}", arguments.seed)));
    }
    let asked = |figure: &Figure| arguments.figure.is_empty() || arguments.figure.contains(figure);
    let figures: Vec<Figure> = Figure::ALL.into_iter().filter(asked).collect();
    let out = arguments.out.clone().unwrap_or_else(|| free_folder("undertone-reproduce"));
    folder::prepare(&out).map_err(Failure::input)?;
    let tuned = if arguments.tune {
        let bar = progress_bar("tuning");
        let tuned = Tuned::anew(&|share| bar.set_position((share * 1000.0) as u64));
        bar.finish_and_clear();
        tuned
    } else {
        Tuned::committed()
    };
    let tuned = if arguments.preset == Preset::Matched {
        let bar = progress_bar("matching");
        let matched = tuned.matched(&figures, &|share| bar.set_position((share * 1000.0) as u64));
        bar.finish_and_clear();
        matched
    } else {
        tuned
    };
    let bar = progress_bar("section V");
    let progress = |share: f64| bar.set_position((share * 1000.0) as u64);
    let runs = Runs::compute(&figures, &tuned, arguments.seed, arguments.trials, &progress).map_err(Failure::input)?;
    let rates = Rates::measure().map_err(Failure::input)?;
    bar.finish_and_clear();
    write(&out, &figures, &runs, &rates, &tuned, arguments).map_err(Failure::machine)?;
    let mut lines = Vec::new();
    for claim in claims(&runs, &rates) {
        lines.push(format!("{}: {}", claim.verdict.text().to_uppercase(), claim.text));
        lines.extend(claim.measured.iter().map(|line| format!("    {line}")));
    }
    lines.push(format!("written to {}; open {} in a browser", out.display(), out.join("report.html").display()));
    print(&lines.join("\n"))
}

/// report.html, the plots and their numbers, the studies behind them, and the parameters.
fn write(
    out: &Path,
    figures: &[Figure],
    runs: &Runs,
    rates: &Rates,
    tuned: &Tuned,
    arguments: &Arguments,
) -> Result<(), String> {
    let save = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: cannot be written ({e})", path.display()))
    };
    let comparison = arguments.preset.comparison();
    save("report.html", &report::page(figures, runs, rates, comparison, arguments.seed, arguments.trials)?)?;
    rates.chart().save(&out.join("rate"))?;
    let comment = match arguments.preset {
        Preset::Tuned => tune::COMMENT,
        Preset::Matched => "Parameters with which all methods start as fast as zCDP-NFL.",
    };
    save("tuned.toml", &tuned.to_toml(comment))?;
    save("rate.csv", &rates.csv())?;
    save("trials.csv", &runs.trials_csv())?;
    for &figure in figures {
        runs.chart(figure).save(&out.join(figure.name()))?;
        save(&format!("{}.csv", figure.name()), &runs.csv(figure))?;
    }
    fs::create_dir_all(out.join("studies")).map_err(|e| format!("{}: {e}", out.display()))?;
    for run in runs.iter() {
        save(&format!("studies/{}.toml", run.outcome.study.name), &run.outcome.study.to_toml())?;
    }
    Ok(())
}
