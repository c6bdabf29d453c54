//! The page that `undertone reproduce` leaves: one HTML file that needs nothing else.

use std::fmt::Write;

use super::figures::{Figure, Runs};
use super::verdict::{Claim, Rates, Verdict, claims};
use super::{DELTA, Parameters, ROUNDS};

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
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .88rem } td, th { border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: left }
@media print { body { font-size: 11pt; max-width: none } }
";

/// The whole page.
pub fn page(
    figures: &[Figure],
    runs: &Runs,
    rates: &Rates,
    comparison: &str,
    seed: u64,
    trials: u32,
) -> Result<String, String> {
    let mut body = String::new();
    body += "<h1>Private networked federated learning, section V, redrawn</h1>";
    let _ = write!(
        body,
        "<p class=lead>50 clients, 3 neighbours on average, 50 records of 8 features each, {ROUNDS} rounds, delta {DELTA:e}. Every method \
         spends the same total (epsilon, delta) by the paper's accounting and {comparison}. \
         {trials} trials, each with its own data, graph and noise; bands hold the middle 80% of them. Seed {seed}.</p>"
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
             it is not private.</p><h2>Parameters</h2>";
    body += &parameters(runs);
    Ok(format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>Section V, redrawn by Undertone</title><style>{STYLE}</style></head>\n<body>{body}</body></html>\n"
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
        let Parameters { rho, eta, shrinking, clip, tau } = run.parameters;
        let decay = if shrinking { "/sqrt(n)" } else { "" };
        let (has_rho, has_eta) = run.method.has();
        let or_dash = |has: bool, text: String| if has { text } else { "–".into() };
        let _ = write!(
            rows,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{clip}<td>{tau:.4}",
            run.problem.title(),
            run.method.name(),
            run.epsilon,
            or_dash(has_rho, rho.to_string()),
            or_dash(has_eta, format!("{eta}{decay}")),
        );
    }
    format!(
        "<p class=lead>Each row is a study in the folder <code>studies</code> that <code>undertone simulate</code> runs again.</p>\
         <div class=wide><table><tr><th>problem<th>method<th>epsilon<th>rho<th>eta<th>clip<th>tau{rows}</table></div>"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
