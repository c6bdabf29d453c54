//! `undertone reproduce` as a reader of the paper calls it.

use std::path::Path;
use std::process::{Command, Output};

fn undertone(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).current_dir(folder).output().unwrap()
}

fn assert_runs(folder: &Path, arguments: &[&str]) -> String {
    let output = undertone(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const FIGURES: [&str; 5] =
    ["elastic-net-learning", "elastic-net-tradeoff", "lad-learning", "ridge-learning", "ridge-tradeoff"];

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn all_figures_the_page_and_the_studies_are_written_and_repeat_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let text = assert_runs(folder.path(), &["reproduce", "--trials", "2", "--out", "one"]);
    assert_runs(folder.path(), &["reproduce", "--trials", "2", "--out", "two"]);
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    for name in FIGURES {
        for ending in ["svg", "png", "csv"] {
            let file = format!("{name}.{ending}");
            let bytes = |folder: &Path| std::fs::read(folder.join(&file)).unwrap();
            assert!(bytes(&one) == bytes(&two) && bytes(&one).len() > 300, "{file}");
        }
        assert!(!read(&one, &format!("{name}.csv")).contains("NaN"));
    }
    let page = read(&one, "report.html");
    assert_eq!(page, read(&two, "report.html"));
    assert_eq!(page.matches("<svg").count(), 11, "five figures, the rate, beyond, and four about trust");
    let addresses = page.matches("http").count();
    assert_eq!(
        addresses,
        page.matches("http://www.w3.org/2000/svg").count(),
        "only the name of SVG, which is not fetched"
    );
    assert!(!page.contains("<script") && !page.contains("src="), "the page is self-contained");
    // Two methods for each of two problems, eleven budgets, five budgets, two rates; two baselines on three problems, and for
    // each baseline one count and three worst cells; with masks six goals and four with losses on three problems, and three worst cells.
    assert_eq!(page.matches("<li>").count(), 4 + 11 + 5 + 2 + 6 + 8 + 3 * (6 + 4) + 3);
    assert_eq!(page.matches("class=\"claim").count(), 9);
    assert_eq!(read(&one, "trials.csv").lines().count(), 1 + 2 * (25 + 5 + 35), "every trial of every run");
    assert_eq!(text.lines().filter(|l| !l.starts_with(' ')).count(), 10, "nine claims and where it is:\n{text}");
    assert_eq!(read(&one, "trust.csv"), read(&two, "trust.csv"));
    assert!(!read(&one, "trust.csv").contains("NaN"));
    // One baseline in 90 cells, two in 30 of them; six parts in six places, two of which have no prox to remove.
    assert_eq!(read(&one, "beyond.csv").lines().count(), 1 + 90 + 30 + 6 * 6 - 2);
    assert_eq!(read(&one, "beyond.csv"), read(&two, "beyond.csv"));
    // With five seeds: three methods in 15 cells of the paper's network and 3 others at epsilon 1, and all parts; one seed else.
    let (all, repeated) = (2 * 90 + 30 + 34, 3 * (15 + 3) + 34);
    assert_eq!(read(&one, "beyond-trials.csv").lines().count(), 1 + 2 * (5 * repeated + (all - repeated)));
    let seeds = |from: usize| -> std::collections::BTreeSet<String> {
        let text = read(&one, ["trials.csv", "beyond-trials.csv"][from]);
        text.lines().skip(1).map(|line| line.split(',').nth(6).unwrap().to_string()).collect()
    };
    assert_eq!(seeds(0).into_iter().collect::<Vec<_>>(), ["1"]);
    assert_eq!(seeds(1).into_iter().collect::<Vec<_>>(), ["2", "3", "4", "5", "6"], "not those of the figures");
    // Every curve can be run again with the same result.
    let curve = read(&one, "elastic-net-learning.csv");
    let last = curve.lines().rfind(|l| l.starts_with("zcdp-nfl,200,")).unwrap();
    assert_runs(folder.path(), &["simulate", "one/studies/elastic-net-zcdp-nfl-eps5.toml", "--out", "again"]);
    let trace = read(&folder.path().join("again"), "trace.csv");
    let error_w = trace.lines().last().unwrap().split(',').nth(3).unwrap();
    assert_eq!(last.split(',').nth(2).unwrap(), error_w);
}

#[test]
fn one_figure_and_the_second_preset() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["reproduce", "--figure", "lad-learning", "--trials", "2", "--preset", "matched", "--out", "lad"];
    let text = assert_runs(folder.path(), &arguments);
    assert!(text.contains("Least absolute deviations") && !text.contains("Ridge, epsilon"), "{text}");
    assert!(text.contains("10 of 11 comparisons belong to figures that were not drawn"), "{text}");
    let out = folder.path().join("lad");
    assert!(out.join("lad-learning.svg").exists() && !out.join("ridge-learning.svg").exists());
    assert!(read(&out, "report.html").contains("as good as zCDP-NFL after 100 rounds"));
    // Equally fast at first: after 100 rounds the subgradient method is where zCDP-NFL is, as near as
    // matching on other data allows; (eps,delta)DP-NFL, which is not matched, is far off.
    let csv = read(&out, "lad-learning.csv");
    let error = |method: &str| -> f64 {
        let line = csv.lines().find(|l| l.starts_with(&format!("{method},100,"))).unwrap();
        line.split(',').nth(2).unwrap().parse().unwrap()
    };
    let ratio = error("zcdp-grad-nfl-constant") / error("zcdp-nfl");
    assert!((0.2..5.0).contains(&ratio), "{ratio}");
    assert!(error("dp-nfl") > 10.0 * error("zcdp-nfl"));
}

/// The plot of the README. To update it:
/// `cargo run --release -- reproduce --figure ridge-tradeoff --out new && cp new/ridge-tradeoff.svg docs/`.
#[test]
fn the_picture_in_the_readme_is_what_reproduce_draws() {
    let folder = tempfile::tempdir().unwrap();
    assert_runs(folder.path(), &["reproduce", "--figure", "ridge-tradeoff", "--out", "run"]);
    let drawn = read(&folder.path().join("run"), "ridge-tradeoff.svg");
    let shown = read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")), "ridge-tradeoff.svg");
    assert!(drawn == shown, "docs/ridge-tradeoff.svg is out of date");
}

/// The tables of the README, and a plot. To update them: `cargo run --release -- reproduce --figure beyond --figure trust --out new`, and copy
/// new/beyond.md, new/trust.md and new/trust-lad.svg.
#[test]
fn the_tables_in_the_readme_are_what_reproduce_writes() {
    let folder = tempfile::tempdir().unwrap();
    assert_runs(folder.path(), &["reproduce", "--figure", "beyond", "--figure", "trust", "--out", "run"]);
    let out = folder.path().join("run");
    let readme = read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")), "README.md");
    let written = format!("{}\n\n{}", read(&out, "beyond.md").trim_end(), read(&out, "trust.md"));
    for table in written.trim_end().split("\n\n") {
        assert!(readme.contains(table), "README.md does not contain\n{table}");
    }
    let shown = read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")), "trust-lad.svg");
    assert!(read(&out, "trust-lad.svg") == shown, "docs/trust-lad.svg is out of date");
    let page = read(&out, "report.html");
    for words in ["100 trials, 20 with each of 5 seeds", "geometric mean", "ratio of means", "worst, free rounds"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("mean degree 8") && !out.join("lad-learning.svg").exists(), "nothing else is computed");
}

#[test]
fn wrong_calls_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, word) in [
        (&["reproduce", "--figure", "nothing"][..], "the figures are elastic-net-learning"),
        (&["reproduce", "--trials", "1"], "--trials"),
        (&["reproduce", "--seed", "7777777"], "unseen data"),
        (&["reproduce", "--seed", "7777772"], "unseen data"),
        (&["reproduce", "--preset", "best"], "matched"),
    ] {
        let output = undertone(folder.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(word), "{arguments:?}: {error}");
    }
    assert!(!folder.path().join("undertone-reproduce").exists());
}
