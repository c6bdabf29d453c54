//! `undertone reproduce`: the paper's section V as one command.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use undertone_core::watch::Watch;
use undertone_paper::figure::Figure;
use undertone_paper::grid::Extent;
use undertone_paper::report::{self, Content};
use undertone_paper::runs::{CaseRun, Measure, Repeats, Runs};
use undertone_paper::tuned::{self, Tuned};
use undertone_paper::verdict::{Claim, Rates, claims};
use undertone_paper::{Case, beyond, grid, liars, tables, trust};
use undertone_sim::folder;
use undertone_sim::ranks::{Ranks, helped_by};

use crate::ranks;
use crate::{Failure, free_folder, print, with_bar};

#[derive(clap::Args)]
pub struct Arguments {
    /// Draw only this figure (may be repeated): elastic-net-learning, elastic-net-tradeoff, lad-learning,
    /// ridge-learning, ridge-tradeoff, beyond for the comparison with free rounds on the paper's network, trust for masks, or liars for
    /// parties that lie
    #[arg(long, value_name = "NAME", value_parser = drawing)]
    figure: Vec<Drawing>,

    /// Trials with each seed: the figures use one, the comparisons with free rounds on the paper's network and with masks five
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    trials: u32,

    /// Where to write; without it the first free one of undertone-reproduce, undertone-reproduce-2, ...
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Seed of the data, graphs and noise of the figures; the comparison with free rounds uses the next five. The same seed
    /// gives the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How methods are compared: each at its best, or each as fast as zCDP-NFL at first
    #[arg(long, value_enum, default_value_t = Preset::Tuned)]
    preset: Preset,

    /// Fill the whole grid of "beyond the paper", 500 clients too, and let parties lie (two minutes more)
    #[arg(long, conflicts_with = "figure")]
    full: bool,

    /// Repeat the tuning of what is drawn, with equal effort for every method, instead of using the included parameters
    /// (hours on two cores)
    #[arg(long)]
    tune: bool,
}

/// What can be drawn by itself.
#[derive(Clone, Copy, PartialEq)]
enum Drawing {
    /// A figure of the paper.
    Figure(Figure),
    /// The comparison with free rounds, on the paper's network.
    Beyond,
    /// What trust is worth.
    Trust,
    /// What parties that lie can do.
    Liars,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Preset {
    /// Every method tuned with equal effort
    Tuned,
    /// Every method as fast as zCDP-NFL over the first half of the rounds, close to the paper's way
    Matched,
}

impl Preset {
    /// The description in the report.
    fn comparison(self) -> &'static str {
        match self {
            Preset::Tuned => "was tuned with the same effort on data that no figure uses",
            Preset::Matched => {
                "has the parameters of tuned zCDP-NFL. The subgradient methods get the step size, and P-ADMM the penalty, that \
                 makes them as good as zCDP-NFL after 100 rounds, the nearest of 32 tried on data that no figure uses; \
                 (eps,delta)DP-NFL differs from zCDP-NFL only in its noise"
            }
        }
    }
}

fn drawing(name: &str) -> Result<Drawing, String> {
    let names: Vec<String> = Figure::ALL.iter().map(|f| f.name()).collect();
    let found = Figure::ALL.into_iter().find(|f| f.name() == name).map(Drawing::Figure);
    let section = match name {
        "beyond" => Some(Drawing::Beyond),
        "trust" => Some(Drawing::Trust),
        "liars" => Some(Drawing::Liars),
        _ => None,
    };
    found.or(section).ok_or_else(|| format!("the figures are {}, beyond, trust, liars", names.join(", ")))
}

/// The part of the grid that is computed. If single figures are requested, nothing else is.
fn grid_cases(arguments: &Arguments) -> Vec<Case> {
    match (&arguments.figure[..], arguments.full) {
        ([], true) => grid::cases(Extent::Full),
        ([], false) => grid::cases(Extent::Small),
        (some, _) if some.contains(&Drawing::Beyond) => grid::cases(Extent::Paper),
        _ => Vec::new(),
    }
}

/// The runs with masks that are computed.
fn trust_cases(arguments: &Arguments) -> Vec<Case> {
    match arguments.figure.is_empty() || arguments.figure.contains(&Drawing::Trust) {
        true => grid::trust_cases(arguments.full),
        false => Vec::new(),
    }
}

/// Refuses seeds with which parameters were tuned, and those that no study can have.
fn check_seed(seed: u64) -> Result<(), Failure> {
    let used = seed..seed.saturating_add(beyond::SEEDS + 1);
    let tuning = tuned::SEED..tuned::SEED + tuned::SEEDS;
    if (used.start < tuning.end && tuning.start < used.end) || used.end > i64::MAX as u64 {
        let reason =
            "is one that tuning uses, too near to one, or too large; choose another, so that figures show unseen data";
        return Err(Failure::input(format!("--seed {seed} {reason}")));
    }
    Ok(())
}

pub fn run(arguments: &Arguments, ranks: &Rc<dyn Ranks>) -> Result<(), Failure> {
    check_seed(arguments.seed)?;
    if ranks.size() > 1 && !arguments.tune {
        let message =
            "several processes of mpirun share the search of reproduce --tune; run it without mpirun, or with --tune";
        return Err(Failure::input(message));
    }
    let asked = |f: &Figure| arguments.figure.is_empty() || arguments.figure.contains(&Drawing::Figure(*f));
    let figures: Vec<Figure> = Figure::ALL.into_iter().filter(asked).collect();
    let out = arguments.out.clone().unwrap_or_else(|| free_folder("undertone-reproduce"));
    let prepared = if ranks.is_first() { folder::prepare(&out).map_err(Failure::input) } else { Ok(()) };
    ranks::agree(&**ranks, prepared)?;
    let grid = grid_cases(arguments);
    let drawn: Vec<Case> = figures.iter().flat_map(|figure| figure.cases()).collect();
    let masked = trust_cases(arguments);
    let tuned = if arguments.tune {
        let wanted: Vec<Case> = drawn.iter().chain(&grid).chain(&masked).copied().collect();
        let tune = |watch: &dyn Watch| helped_by(ranks, || Tuned::committed().anew(&wanted, watch));
        with_bar("tuning", tune).ok_or_else(cancelled)?
    } else {
        Tuned::committed()
    };
    if !ranks.is_first() {
        // What is left is the first one's, which the others would only do once more.
        return Ok(());
    }
    let matched = arguments.preset == Preset::Matched;
    let shown = if matched {
        with_bar("matching", |watch| tuned.matched(&figures, watch)).ok_or_else(cancelled)?
    } else {
        tuned.clone()
    };
    let (seed, trials) = (arguments.seed, arguments.trials);
    let runs = with_bar("section V", |watch| {
        Runs::compute(&drawn, &shown, &Repeats::once(seed, trials), Measure::EveryRound, watch)
    });
    let (runs, rates) = (runs.map_err(Failure::input)?, Rates::measure().map_err(Failure::input)?);
    let beyond_runs = with_bar("beyond the paper", |watch| beyond::compute(&grid, &tuned, seed, trials, watch));
    let beyond_runs = beyond_runs.map_err(Failure::input)?;
    let trust_runs = with_bar("what trust is worth", |watch| trust::compute(&masked, &tuned, seed, trials, watch));
    let trust_runs = trust_runs.map_err(Failure::input)?;
    let lying = arguments.full || arguments.figure.contains(&Drawing::Liars);
    let lies = match lying {
        true => with_bar("parties that lie", |watch| liars::compute(seed, watch)).map_err(Failure::input)?,
        false => Vec::new(),
    };
    let content = Content {
        figures: &figures,
        runs: &runs,
        rates: &rates,
        beyond: (!grid.is_empty()).then_some(&beyond_runs),
        trust: (!masked.is_empty()).then_some(&trust_runs),
        liars: lying.then_some(&lies),
        comparison: arguments.preset.comparison(),
        seed,
        trials,
    };
    write(&out, &content, if matched { &shown } else { &tuned }, arguments)?;
    let mut lines = Vec::new();
    claims(&runs, &rates).iter().for_each(|claim| lines.extend(claim_lines(claim)));
    if !grid.is_empty() {
        beyond::claims(&beyond_runs).iter().for_each(|claim| lines.extend(claim_lines(claim)));
    }
    if !masked.is_empty() {
        trust::claims(&trust_runs).iter().for_each(|claim| lines.extend(claim_lines(claim)));
    }
    if lying {
        lines.extend(claim_lines(&liars::claim(&lies)));
    }
    lines.push(format!("written to {}; open {} in a browser", out.display(), out.join("report.html").display()));
    print(&lines.join("\n"))
}

/// Nothing here cancels, but a search that was cancelled has no result.
fn cancelled() -> Failure {
    Failure::machine("cancelled")
}

fn claim_lines(claim: &Claim) -> Vec<String> {
    let head = format!("{}: {}", claim.verdict.text().to_uppercase(), claim.text);
    std::iter::once(head).chain(claim.measured.iter().map(|line| format!("    {line}"))).collect()
}

/// report.html, the plots and their numbers, the studies behind them, and the parameters.
fn write(out: &Path, content: &Content, tuned: &Tuned, arguments: &Arguments) -> Result<(), Failure> {
    let save = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).map_err(|e| Failure::machine(format!("{}: cannot be written ({e})", path.display())))
    };
    save("report.html", &report::page(content).map_err(Failure::machine)?)?;
    content.rates.chart().save(&out.join("rate")).map_err(Failure::machine)?;
    let comment = match arguments.preset {
        Preset::Tuned => tuned::COMMENT,
        Preset::Matched => "Parameters with which all methods start as fast as zCDP-NFL.",
    };
    save("tuned.toml", &tuned.to_toml(comment))?;
    save("rate.csv", &content.rates.csv())?;
    save("trials.csv", &content.runs.trials_csv())?;
    for &figure in content.figures {
        content.runs.chart(figure).save(&out.join(figure.name())).map_err(Failure::machine)?;
        save(&format!("{}.csv", figure.name()), &content.runs.csv(figure))?;
    }
    fs::create_dir_all(out.join("studies")).map_err(|e| Failure::machine(format!("{}: {e}", out.display())))?;
    let mut runs: Vec<&CaseRun> = content.runs.iter().collect();
    if let Some(grid) = content.beyond {
        beyond::chart(grid).save(&out.join("beyond")).map_err(Failure::machine)?;
        save("beyond.csv", &beyond::csv(grid))?;
        save("beyond.md", &tables::markdown(grid))?;
        save("beyond-trials.csv", &grid.trials_csv())?;
        let known = |run: &&CaseRun| content.runs.get(&run.case).is_none();
        runs.extend(grid.iter().filter(known));
    }
    if let Some(masked) = content.trust {
        for (name, chart) in trust::charts(masked) {
            chart.save(&out.join(name)).map_err(Failure::machine)?;
        }
        save("trust.csv", &trust::csv(masked))?;
        save("trust.md", &trust::markdown(masked))?;
        save("trust-trials.csv", &masked.trials_csv())?;
        let known: Vec<Case> = runs.iter().map(|run| run.case).collect();
        runs.extend(masked.iter().filter(|run| !known.contains(&run.case)));
    }
    if let Some(rows) = content.liars {
        for (name, chart) in liars::charts(rows) {
            chart.save(&out.join(name)).map_err(Failure::machine)?;
        }
        save("liars.csv", &liars::csv(rows))?;
    }
    for run in runs {
        save(&format!("studies/{}.toml", run.outcome.study.name()), &run.outcome.study.to_toml())?;
    }
    Ok(())
}
