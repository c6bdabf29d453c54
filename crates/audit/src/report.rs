//! The page of an audit.

use undertone_report::chart::{Line, histograms, lines};
use undertone_report::{Page, Table, note, text};

use crate::bound::trade_off;
use crate::findings::{Findings, Part};

/// The whole page.
pub fn page(findings: &Findings) -> String {
    let verdict = match findings.is_violated() {
        true => "A claim is refuted: this program reveals more than the study allows.",
        false => "No claim is refuted: the best attack we know proves less than the study allows.",
    };
    let masks = findings.colluders.map_or(String::new(), |q| format!(", masks against {q} colluders"));
    let lead = format!("{}, {} loss, {} noise{masks}", findings.algorithm, findings.loss, findings.noise);
    let summary =
        Table::new(["", "claimed epsilon", "proven", "share", "guesses"]).rows(findings.parts.iter().map(|part| {
            let trials = part.attacks.first().map_or(0, |attack| attack.trials);
            let share = format!("{:.0}%", 100.0 * part.proven() / part.claimed);
            vec![
                part.name.clone(),
                format!("{:.4}", part.claimed),
                format!("{:.4}", part.proven()),
                share,
                trials.to_string(),
            ]
        }));
    let explained = format!(
        "An audit runs the study on records made for an attack and lets an adversary who hears every message guess one secret bit per record. How often it is \
         right proves how large epsilon is at least. A claim that is smaller would be false. The probability that an audit of a correct program says otherwise is at most {}.",
        findings.alpha
    );
    let mut page = Page::new(&format!("Audit of {}", findings.study)).lead(&lead);
    page = page.section("Verdict", [text(verdict), summary.html(), text(&explained)]);
    for part in &findings.parts {
        page = page.section(&capital(&part.name), section(part));
    }
    let covered = [
        "Covered: clipping, the step, its sensitivity, the schedule, noise and masks of every data round, mixing rounds, and whether rounds fail, as peers and simulations compute them.",
        "Not covered: reading tables, the time that things take, what a peer sends besides its releases (see the audit with --peers), and attacks that nobody has thought of. An audit proves that \
         epsilon is at least some number, never that it is at most another; that is what the proofs in docs/algorithm.md are for.",
    ];
    page = page.section("What was covered", covered.map(text));
    page.section("The study", [note(&format!("Digest {}", findings.digest))]).html()
}

fn section(part: &Part) -> Vec<String> {
    let by_bit = |bit: bool| part.scores.iter().filter(|s| s.0 == bit).map(|s| s.1).collect::<Vec<f64>>();
    let (one, zero) = (by_bit(true), by_bit(false));
    let mut parts = vec![text(&format!(
        "{} of {} clients with {} records each; their gradients moved {:.0}% of what the noise is made for.",
        part.clients.0,
        part.clients.1,
        part.features,
        100.0 * part.reach.sqrt()
    ))];
    let rows = part.attacks.iter().map(|attack| {
        let wrong = format!("{:.3}%", 100.0 * attack.wrong as f64 / attack.trials.max(1) as f64);
        vec![
            attack.name.to_string(),
            wrong,
            format!("{:.4}", attack.epsilon),
            format!("{:.4}", attack.epsilon_of_tails),
        ]
    });
    let head = ["guess by", "wrong guesses", "epsilon at least", "assuming no law"];
    parts.push(Table::new(head).rows(rows).html());
    if let Some(repeats) = &part.repeats {
        let told = format!(
            "{} of {} draws of noise had a twin closer than 1e-11 standard deviations; {:.3} are expected by chance.",
            repeats.pairs, repeats.draws, repeats.expected
        );
        parts.push(text(&told));
    }
    let stops = &part.stops;
    parts.push(text(&format!(
        "Stops under hostile releases of up to 1e30: at the size that tells most ({:e}), {} of {} rounds failed with a certain record and {} without it, which proves an epsilon of {:.2}.",
        stops.size, stops.failed.0, stops.trials, stops.failed.1, stops.epsilon
    )));
    parts.push(histograms(
        ["bit 1", "bit 0"],
        [&one, &zero],
        "score, in standard deviations of the claimed noise",
        "What the adversary sees, by the secret bit. The less the two overlap, the more is revealed.",
    ));
    let claimed = (0..=100).map(|i| f64::from(i) / 100.0).map(|x| (x, trade_off(part.claimed_mu, x))).collect();
    let curve = [
        Line { name: "claimed".into(), points: claimed, dashed: true },
        Line { name: "measured".into(), points: measured(&one, &zero), dashed: false },
    ];
    parts.push(lines(
        &curve,
        "false positives",
        "false negatives",
        "The trade-off between the two errors of a guess. The claim allows what lies above the dashed curve; the measured curve lies on it where the claim is as tight as can be.",
    ));
    parts
}

/// The measured trade-off, at a hundred thresholds.
fn measured(one: &[f64], zero: &[f64]) -> Vec<(f64, f64)> {
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    let (one, zero) = (sorted(one), sorted(zero));
    let at = |i: usize| {
        let Some(threshold) = zero.get((zero.len() * i / 100).min(zero.len().saturating_sub(1))) else {
            return (0.0, 1.0);
        };
        let below = one.partition_point(|v| v <= threshold);
        (1.0 - i as f64 / 100.0, below as f64 / one.len().max(1) as f64)
    };
    (0..=100).rev().map(at).collect()
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
