//! The page that `undertone reproduce` writes: one self-contained HTML file.

use std::fmt::Write;

use undertone_sim::plot::PlotError;

use crate::figure::Figure;
use crate::runs::Runs;
use crate::verdict::{Claim, Rates, Verdict, claims};
use crate::{DELTA, ROUNDS, beyond, liars, tables, trust};

const STYLE: &str = "
:root { --ink: #1c1e21; --soft: #5c6370; --paper: #ffffff; --card: #f6f7f9; --line: #d9dce1; --good: #00724f; --mixed: #8a5a00; --bad: #a83200 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a3aab5; --paper: #16181b; --card: #202327; --line: #3a3f46; --good: #4cc79a; --mixed: #e6b04d; --bad: #ff8f66 }
}
body { font: 17px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 0 auto; padding: 1.5rem }
h1 { font-size: 1.7rem; line-height: 1.25 } h2 { margin-top: 2.2rem }
p.lead, figcaption, .rule { color: var(--soft) }
figure { margin: 1.5rem 0; padding: .5rem; background: #ffffff; border: 1px solid var(--line); border-radius: .5rem; break-inside: avoid }
figure svg { width: 100%; height: auto; display: block } figcaption { font-size: .9rem; padding: .25rem .5rem; color: #5c6370 }
.claim { background: var(--card); border-left: .35rem solid var(--line); border-radius: .3rem; padding: .8rem 1.1rem; margin: 1rem 0; break-inside: avoid }
.claim p { margin: .3rem 0 } .claim ul { margin: .4rem 0; padding-left: 1.2rem; font-size: .92rem } .rule { font-size: .92rem }
.holds { border-color: var(--good) } .depends { border-color: var(--mixed) } .not { border-color: var(--bad) }
.holds b { color: var(--good) } .depends b { color: var(--mixed) } .not b { color: var(--bad) }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .88rem } td small { color: var(--soft); white-space: nowrap } .better { color: var(--good) } .worse { color: var(--bad) }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: left }
@media print { body { font-size: 11pt; max-width: none } }
";

/// The contents of a page.
pub struct Content<'a> {
    /// The figures.
    pub figures: &'a [Figure],
    /// The runs behind them.
    pub runs: &'a Runs,
    /// The rates without noise.
    pub rates: &'a Rates,
    /// The runs of the grid, if it was computed.
    pub beyond: Option<&'a Runs>,
    /// The runs with masks, if they were computed.
    pub trust: Option<&'a Runs>,
    /// The runs with liars, if they were computed.
    pub liars: Option<&'a [liars::Row]>,
    /// How the methods of the figures are compared.
    pub comparison: &'a str,
    /// The seed.
    pub seed: u64,
    /// Trials per run.
    pub trials: u32,
}

/// The whole page.
pub fn page(content: &Content) -> Result<String, PlotError> {
    let Content { figures, runs, rates, comparison, seed, trials, .. } = *content;
    let mut body = String::new();
    body += "<h1>Private networked federated learning, section V, reproduced</h1>";
    let _ = write!(
        body,
        "<p class=lead>50 clients, 3 neighbours on average, 50 records of 8 features each, {ROUNDS} rounds, delta {DELTA:e}. Every method \
         spends the same total (epsilon, delta), by the paper's accounting except for free rounds, and {comparison}. \
         {trials} trials, each with its own data, graph and noise; bands show the middle 80% of them. Seed {seed}.</p>"
    );
    body += "<h2>What the paper claims, and what was found</h2><p class=lead>Ratios of errors are geometric means over trials, each trial \
             compared with itself, with their 95% intervals; <code>trials.csv</code> holds the errors.</p>";
    for claim in claims(runs, rates) {
        body += &claim_card(&claim);
    }
    body += "<h2>The figures</h2>";
    for &figure in figures {
        let name = figure.name();
        let svg = runs.chart(figure).svg()?;
        let _ = write!(body, "<figure>{svg}<figcaption>{name}.svg, {name}.csv</figcaption></figure>");
    }
    let _ = write!(
        body,
        "<figure>{}<figcaption>rate.svg, rate.csv: one data set, no noise</figcaption></figure>",
        rates.chart().svg()?
    );
    body += "<p class=lead>The error is the paper's: the sum over clients of the squared distance of w, before its noise, from the central \
             solution, divided by the squared norm of the latter. The closed form of P-ADMM does not enforce the clip that its noise assumes: \
             it is not private. Free rounds is not in the paper: it reads the records in a few data rounds, mixes in the others, and in the last \
             round releases the average of its latest points, which is the step at the end of its curve.</p>";
    if let Some(grid) = content.beyond {
        body += "<h2>Beyond the paper</h2><p class=lead>Free rounds compared with zCDP-NFL: the same (epsilon, delta), the same 200 messages, the same \
                 tuning effort, the same data in each trial.</p>";
        for claim in beyond::claims(grid) {
            body += &claim_card(&claim);
        }
        body += &tables::section(grid)?;
    }
    if let Some(runs) = content.trust {
        body += &trust::section(runs)?;
        for claim in trust::claims(runs) {
            body += &claim_card(&claim);
        }
    }
    if let Some(rows) = content.liars {
        body += &liars::section(rows)?;
        body += &claim_card(&liars::claim(rows));
    }
    body += "<h2>Parameters</h2>";
    body += &parameters(runs);
    Ok(format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>Section V, reproduced by Undertone</title><style>{STYLE}</style></head>\n<body>{body}</body></html>\n"
    ))
}

fn claim_card(claim: &Claim) -> String {
    let class = match claim.verdict {
        Verdict::Holds => "holds",
        Verdict::Depends | Verdict::Undecided => "depends",
        Verdict::DoesNotHold => "not",
    };
    let items: String = claim.measured.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
    format!(
        "<div class=\"claim {class}\"><p>{} <b>{}</b></p><ul>{items}</ul><p class=rule>A comparison {}.</p></div>",
        escape(claim.text),
        claim.verdict.text(),
        escape(claim.rule)
    )
}

/// The tuned parameters behind the curves.
fn parameters(runs: &Runs) -> String {
    let mut rows = String::new();
    for run in runs.iter() {
        let (task, method, parameters) = (run.case.task.title(), run.case.method.name(), run.parameters.text());
        let _ = write!(rows, "<tr><td>{task}<td>{method}<td>{}<td>{parameters}", run.case.epsilon);
    }
    format!(
        "<p class=lead>Each row is a study in the folder <code>studies</code> that <code>undertone simulate</code> runs again.</p>\
         <div class=wide><table><tr><th>problem<th>method<th>epsilon<th>parameters{rows}</table></div>"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
