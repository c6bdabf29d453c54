//! The documentation names every parameter with its default.

use std::collections::BTreeSet;

use undertone_core::algorithm::registry;
use undertone_core::knob::{Domain, Knob};

/// The cells of a row of a table, without the marks of code.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.replace('`', "").trim().to_string()).collect())
}

/// Algorithm, parameter, values and default of each row of the table of parameters.
fn documented(text: &str) -> BTreeSet<[String; 4]> {
    let section =
        text.split("\n## ").find(|section| section.starts_with("Parameters\n")).expect("a section of that title");
    let rows = section.lines().filter_map(cells).filter(|cells| cells.len() == 5).skip(2);
    rows.map(|cells| [0, 1, 2, 3].map(|i| cells[i].clone())).collect()
}

/// The names of the values where they are few; other domains are described in words.
fn values(knob: &Knob, written: &str) -> String {
    match knob.domain {
        Domain::Words(words) => words.join(", "),
        Domain::Flag => "true, false".into(),
        Domain::Number(_) | Domain::Count(_) => written.into(),
    }
}

fn default(knob: &Knob) -> String {
    knob.default.map_or("none".into(), |value| value.to_string())
}

/// Parameters of the registry that the text does not list, or not so; and rows of the text that are no parameters.
fn differences(text: &str) -> Vec<String> {
    let mut documented = documented(text);
    let mut wrong = Vec::new();
    for entry in registry() {
        for knob in entry.knobs {
            let row = documented.iter().find(|row| row[0] == entry.name && row[1] == knob.name).cloned();
            let is_right = |row: &[String; 4]| row[2] == values(knob, &row[2]) && row[3] == default(knob);
            if !row.as_ref().is_some_and(is_right) {
                wrong.push(format!("{}: {} with the default {}", entry.name, knob.name, default(knob)));
            }
            if let Some(row) = row {
                documented.remove(&row);
            }
        }
    }
    wrong.extend(documented.iter().map(|row| format!("{}: {} is no parameter", row[0], row[1])));
    wrong
}

#[test]
fn every_parameter_is_documented_with_its_default() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/algorithm.md");
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(differences(&text), [""; 0], "docs/algorithm.md, section Parameters");
    // What would be out of date is found.
    for (now, later, what) in [
        ("| `0.5` |", "| `0.4` |", "free-rounds: average with the default 0.5"),
        ("| `zcdp-nfl` | `average` |", "| `zcdp-nfl` | `averages` |", "zcdp-nfl: averages is no parameter"),
        ("`chebyshev`, `metropolis` |", "`chebyshev` |", "free-rounds: mixing with the default chebyshev"),
        (
            "| `p-admm` | `rho` | above 0 | none |",
            "| `p-admm` | `rho` | above 0 | `1` |",
            "p-admm: rho with the default none",
        ),
    ] {
        assert!(text.contains(now), "{now}");
        assert!(differences(&text.replace(now, later)).iter().any(|d| d == what), "{what}");
    }
}
