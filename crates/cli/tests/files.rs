//! Data files as users have them: how they are written, and mistakes in them that are found at once.

mod consortium;

use std::path::Path;
use std::process::{Output, Stdio};

use consortium::{Consortium, errors, numbers, simulate, undertone, wait};

fn run(folder: &Path, arguments: &[&str]) -> Output {
    undertone().args(arguments).current_dir(folder).output().unwrap()
}

/// Exit code 2, nothing on standard output, one sentence that contains the given words.
fn assert_refused(output: &Output, words: &[&str]) {
    let error = errors(output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty() && error.trim().lines().count() == 1, "{error}");
    for word in words {
        assert!(error.contains(word), "\"{error}\" does not contain \"{word}\"");
    }
}

#[test]
fn a_study_and_predict_take_files_with_semicolons_and_decimal_commas() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("all.csv"), "a;b\n1,5;3\n2;4\n3;6,5\n4;8\n").unwrap();
    let study = "rounds = 50\nprivacy = \"off\"\n[problem]\nloss = \"squared\"\n[graph]\nkind = \"ring\"\n\
        [algorithm]\nname = \"zcdp-nfl\"\nrho = 1\neta = 1\n[data]\nsource = \"split\"\nclients = 2\npath = \"all.csv\"\n\
        features = [\"a\"]\ntarget = \"b\"\nbounds.a = [0, 5]\nbounds.b = [0, 10]\n";
    std::fs::write(folder.path().join("study.toml"), study).unwrap();
    let simulate = ["simulate", "study.toml", "--out", "run"];
    let format = ["--set", "data.csv.delimiter=;", "--set", "data.csv.decimal=,"];
    assert_refused(&run(folder.path(), &simulate), &["all.csv", "set data.csv.delimiter = \";\""]);
    assert!(run(folder.path(), &[&simulate[..], &format[..]].concat()).status.success());
    let predict = ["predict", "--model", "run/model.json", "--data", "all.csv"];
    let output = run(folder.path(), &[&predict[..], &["--delimiter", ";", "--decimal", ","]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 5, "{}", errors(&output));
    let refused = |more: &[&str], words: &[&str]| {
        assert_refused(&run(folder.path(), &[&predict[..], more].concat()), words);
    };
    refused(&[], &["all.csv", "--delimiter"]);
    refused(&["--delimiter", ";"], &["all.csv:2", "\"1,5\" is not a number", "--decimal"]);
    refused(&["--delimiter", "ab"], &["--delimiter = \"ab\" is not possible"]);
    refused(&["--decimal", ","], &["--decimal", "also what separates cells", "--delimiter"]);
}

#[test]
fn peers_may_write_their_files_differently() {
    let consortium = Consortium::new(2, 20, "kind = \"ring\"", "fast");
    let expected = simulate(&consortium, &[], "run");
    let own = std::fs::read_to_string(consortium.path("data/peer1.csv")).unwrap();
    std::fs::write(consortium.path("data/peer1.csv"), own.replace(',', "\t").replace('.', ",")).unwrap();
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    let other = study.replace("[graph]", "csv = { delimiter = \"\\t\", decimal = \",\" }\n[graph]");
    std::fs::write(consortium.path("own.toml"), &other).unwrap();
    let first = consortium.spawn(0, &["--rehearsal"]);
    let second = undertone()
        .current_dir(consortium.folder.path())
        .args([
            "peer",
            "--study",
            "own.toml",
            "--key",
            "peer1.key",
            "--data",
            "data/peer1.csv",
            "--rehearsal",
            "--state",
        ])
        .arg(consortium.state(1))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait(&consortium, &mut [first, second]);
    for k in 0..2 {
        let model = consortium.result(k, "model.json");
        assert_eq!(numbers(&model["scaled"]["released"]), numbers(&expected["scaled"]["released"]), "client {k}");
    }
}
