//! `undertone audit`: an empirical lower bound on what a study reveals.

use std::path::PathBuf;
use std::time::Duration;

use undertone_audit::peers::audit_peers;
use undertone_audit::{AuditError, Findings, Options, Part, audit, report};

use crate::{Failure, free_folder, print, study, with_bar};

#[derive(clap::Args)]
pub struct Arguments {
    /// The study
    study: PathBuf,

    /// Guess so many bits at each epsilon; without it as many as are expected to prove 92% of the claim, or what a minute allows
    #[arg(long, value_name = "N")]
    trials: Option<u64>,

    /// A few seconds only: sees gross mistakes, and a lack of noise of a few hundredths
    #[arg(long)]
    quick: bool,

    /// Audit unmodified peer processes instead, over loopback, one of which is killed and restarted
    #[arg(long)]
    peers: bool,

    /// The seed of the secret bits, and of noise = "fast"
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,

    /// Where to put report.html and audit.json; without it the first free one of undertone-audit, undertone-audit-2, ...
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Replace one key of the study, such as privacy.epsilon=2 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let document = study::document(&arguments.study, &arguments.set)?;
    let (study, chosen) = study::resolve(&document)?;
    let folder = arguments.out.clone().unwrap_or_else(|| free_folder("undertone-audit"));
    undertone_sim::folder::prepare(&folder).map_err(Failure::input)?;
    if let Some(chosen) = chosen {
        eprintln!("note: {chosen}");
    }
    let base = if arguments.quick { Options::quick() } else { Options::default() };
    // An exact number of trials is not cut short.
    let most = if arguments.trials.is_some() { Duration::MAX } else { base.most };
    let options = Options { trials: arguments.trials, most, seed: arguments.seed, ..base };
    let findings = if arguments.peers {
        let program = crate::program()?;
        with_bar("auditing", |watch| audit_peers(&study, &program, &options, watch))
    } else {
        let (names, _) = undertone_plan::clients(study.spec()).map_err(study::failed)?;
        with_bar("auditing", |watch| audit(&study, &names, &options, watch))
    };
    let findings = findings.map_err(|e| match e {
        AuditError::Peers(_) | AuditError::Noise(_) => Failure::machine(e),
        _ => Failure::input(e),
    })?;
    let json = serde_json::to_string_pretty(&findings).map_err(Failure::machine)?;
    for (name, text) in [("audit.json", &json), ("report.html", &report::page(&findings))] {
        let path = folder.join(name);
        std::fs::write(&path, text)
            .map_err(|e| Failure::machine(format!("{}: cannot be written ({e})", path.display())))?;
    }
    print(&if arguments.json {
        json
    } else {
        summary(&findings) + &format!("\n\n{}", folder.join("report.html").display())
    })?;
    match findings.is_violated() {
        true => Err(Failure::machine("the audit refutes the study's claim: it reveals more than its epsilon allows")),
        false => Ok(()),
    }
}

fn summary(findings: &Findings) -> String {
    let masks = findings.colluders.map_or(String::new(), |q| format!(", masks against {q} colluders"));
    let mut lines = vec![
        format!("{}: {}, {} loss, {} noise{masks}", findings.study, findings.algorithm, findings.loss, findings.noise),
        String::new(),
        format!("{:<38}{:>9}{:>9}{:>7}{:>11}", "", "claimed", "proven", "share", "guesses"),
    ];
    lines.extend(findings.parts.iter().map(line));
    let weak = findings.parts.iter().any(|part| part.reach < 0.95);
    if weak {
        lines.push("the records of the attack moved less than the noise is made for in some rounds: with this loss both labels reach the clip near zero only".into());
    }
    lines.push(String::new());
    lines.push(format!(
        "{}; a false alarm has a probability of at most {}",
        if findings.is_violated() { "A claim is refuted" } else { "no claim is refuted" },
        findings.alpha
    ));
    lines.join("\n")
}

fn line(part: &Part) -> String {
    let trials = part.attacks.first().map_or(0, |attack| attack.trials);
    let share = 100.0 * part.proven() / part.claimed;
    let mut text = format!("{:<38}{:>9.4}{:>9.4}{:>6.0}%{trials:>11}", part.name, part.claimed, part.proven(), share);
    if part.repeats.is_some_and(|repeats| repeats.is_violated()) {
        text += "  noise repeats";
    }
    if part.stops.epsilon > part.claimed {
        text += if part.stops.trials > 0 { "  stops tell about a record" } else { "  a round was released twice" };
    }
    text
}
