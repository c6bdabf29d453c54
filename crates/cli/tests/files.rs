//! Data files as users have them: how they are written, and mistakes in them that are found at once.

mod consortium;

use std::path::Path;
use std::process::{Output, Stdio};

use consortium::{Consortium, Ended, errors, numbers, simulate, undertone, wait};

fn run(folder: &Path, arguments: &[&str]) -> Output {
    undertone().args(arguments).current_dir(folder).ended()
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
    refused(&["--delimiter", ";"], &["all.csv:2", "the cell is not a number", "--decimal"]);
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
        assert_eq!(numbers(&model["made"]["scaled"]), numbers(&expected["made"]["scaled"]), "client {k}");
    }
}

/// A study that planning refuses at once, so that an error about data shows that it was found before planning.
const UNPLANNED: &str = "rounds = 5\nalgorithm = \"auto\"\nproblem = { loss = \"squared\" }\n\
    graph = { kind = \"ring\" }\nprivacy = { phi1 = 0.01, delta = 1e-5 }\nplan = { clients = 3 }\n\
    [data]\nSOURCE\nrecords = 30\nfeatures = [\"a\", \"b\"]\ntarget = \"y\"\n\
    bounds.a = [0, 9]\nbounds.b = [0, 9]\nbounds.y = [0, 9]\n";

const PLANNING: &str = "privacy.phi1 gives every algorithm a different total";

/// A folder with a study and three files in the folder "data".
fn study_with_files(source: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("study.toml"), UNPLANNED.replace("SOURCE", source)).unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for name in ["north", "south", "west"] {
        std::fs::write(folder.path().join(format!("data/{name}.csv")), "a,b,y,who\n1,2,3,x\n").unwrap();
    }
    folder
}

#[test]
fn files_are_looked_at_before_planning() {
    let folder = study_with_files("source = \"folder\"\npath = \"data\"");
    let path = folder.path();
    let both = |words: &[&str]| {
        for verb in ["simulate", "plan"] {
            assert_refused(&run(path, &[verb, "study.toml"]), words);
        }
    };
    both(&[PLANNING]);
    std::fs::write(path.join("data/south.csv"), "a,bee,y\n1,2,3\n").unwrap();
    both(&["data/south.csv", "has no column \"b\"", "a, bee, y"]);
    // Only heads are read: a row that is wrong is not found here.
    std::fs::write(path.join("data/south.csv"), "y,b,a\nthree,2\n").unwrap();
    both(&[PLANNING]);
    std::fs::write(path.join("data/notes.txt"), "").unwrap();
    both(&["notes.txt", "neither a .csv nor a .parquet file"]);
    std::fs::remove_file(path.join("data/notes.txt")).unwrap();
    std::fs::write(path.join("data/east.parquet"), "no parquet").unwrap();
    both(&["east.parquet", "cannot be read as Parquet"]);
    for name in ["east.parquet", "south.csv", "west.csv"] {
        std::fs::remove_file(path.join("data").join(name)).unwrap();
    }
    both(&["gives 1 client", "at least two"]);
    // Whoever plans need not have the data; a simulation needs it.
    std::fs::remove_dir_all(path.join("data")).unwrap();
    assert_refused(&run(path, &["plan", "study.toml"]), &[PLANNING]);
    assert_refused(&run(path, &["simulate", "study.toml"]), &["data", "must be a folder"]);
}

#[test]
fn one_file_for_all_is_looked_at_before_planning_too() {
    for (source, column) in [("source = \"column\"\nclient = \"who\"", "who"), ("source = \"split\"\nclients = 3", "a")]
    {
        let folder = study_with_files(source);
        let simulate = |data: &[&str]| run(folder.path(), &[&["simulate", "study.toml"], data].concat());
        assert_refused(&simulate(&["--data", "data/west.csv"]), &[PLANNING]);
        let head = "a,b,y,who".replace(column, "other");
        std::fs::write(folder.path().join("data/west.csv"), format!("{head}\n1,2,3,x\n")).unwrap();
        assert_refused(&simulate(&["--data", "data/west.csv"]), &["west.csv", &format!("has no column \"{column}\"")]);
        assert_refused(&simulate(&["--data", "nowhere.csv"]), &["nowhere.csv", "cannot be opened"]);
        assert_refused(&simulate(&[]), &["data.path: is missing", "--data PATH"]);
    }
    let folder = study_with_files("source = \"stand-in\"\nclients = 3");
    let data = ["simulate", "study.toml", "--data", "data/west.csv"];
    assert_refused(&run(folder.path(), &data), &["--data: the study generates its data"]);
    assert_refused(&run(folder.path(), &data[..2]), &[PLANNING]);
}

#[test]
fn a_peer_looks_at_its_file_before_planning() {
    let consortium = Consortium::new(2, 20, "kind = \"ring\"", "fast");
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    let start = study.find("[algorithm]").unwrap();
    let end = study.find("[privacy]").unwrap();
    let auto = format!("algorithm = \"auto\"\n{}{}", &study[..start], &study[end..]);
    std::fs::write(consortium.path("study.toml"), auto.replace("epsilon = 3.0", "phi1 = 0.01")).unwrap();
    let peer = || consortium.command(0).args(["--rehearsal", "--log", "none"]).ended();
    assert_refused(&peer(), &[PLANNING]);
    std::fs::write(consortium.path("data/peer0.csv"), "a;b;y\n1;2;3\n").unwrap();
    assert_refused(&peer(), &["peer0.csv", "has no column \"a\"", "set data.csv.delimiter = \";\""]);
    std::fs::remove_file(consortium.path("data/peer0.csv")).unwrap();
    assert_refused(&peer(), &["peer0.csv", "cannot be opened"]);
}

#[test]
fn the_files_of_a_folder_say_how_many_clients_there_are() {
    let folder = study_with_files("source = \"folder\"\npath = \"data\"");
    let study = |change: &dyn Fn(String) -> String| {
        let text = UNPLANNED.replace("SOURCE", "source = \"folder\"\npath = \"data\"");
        let text = text.replace("phi1 = 0.01", "epsilon = 3").replace("plan = { clients = 3 }\n", "");
        std::fs::write(folder.path().join("study.toml"), change(text)).unwrap();
    };
    let clients = |more: &[&str]| {
        let output = run(folder.path(), &[&["plan", "study.toml", "--json"], more].concat());
        let json: Option<serde_json::Value> = serde_json::from_slice(&output.stdout).ok();
        json.and_then(|json| json["clients"].as_u64()).ok_or_else(|| errors(&output))
    };
    study(&|text| text);
    assert_eq!(clients(&[]), Ok(3));
    let planned = std::fs::read_to_string(folder.path().join("planned.toml")).unwrap();
    assert!(planned.contains("clients = 3"), "the planned study says it:\n{planned}");
    // What the study says itself is what counts.
    assert_eq!(clients(&["--set", "plan.clients=5"]), Ok(5));
    assert_eq!(clients(&["--set", "graph={kind=\"edges\",edges=[[\"x\",\"y\"]]}"]), Ok(2));
    std::fs::rename(folder.path().join("data"), folder.path().join("elsewhere")).unwrap();
    assert!(clients(&[]).unwrap_err().contains("plan.clients is missing"), "without files there is nothing to count");
    std::fs::rename(folder.path().join("elsewhere"), folder.path().join("data")).unwrap();
    // The number of records cannot be counted without reading them.
    study(&|text| text.replace("records = 30\n", ""));
    assert!(clients(&[]).unwrap_err().contains("data.records is missing"));
}
