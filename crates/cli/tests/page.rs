//! The page of a peer, between real processes.

mod consortium;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use consortium::{Consortium, Ended, errors, free_address, until, wait};
use serde_json::Value;

/// All states that a page shows until it ends.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(address: SocketAddr) -> Self {
        until("a page", || TcpStream::connect(address).is_ok());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        Self(BufReader::new(stream))
    }
}

impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        while self.0.read_line(&mut line).unwrap() > 0 {
            if let Some(message) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(message.trim()).unwrap());
            }
            line.clear();
        }
        None
    }
}

fn epsilon(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no epsilon"))
}

/// With masks and private standardisation: two stages, and two epsilons that are those of the statement in the end.
#[test]
fn a_page_shows_rounds_neighbours_and_both_epsilons() {
    let consortium = Consortium::masked(4, 300, "secure");
    // One server has both.
    let address = consortium.metrics[0];
    let mut children: Vec<_> = (1..4).map(|k| consortium.spawn(k, &[])).collect();
    children.push(consortium.spawn(0, &["--page", &address.to_string(), "--pace", "5ms"]));
    let events = Events::open(address);
    until("metrics", || consortium.round(0).is_some());
    let states: Vec<Value> = events.collect();
    wait(&consortium, &mut children);
    let last = states.last().unwrap();
    assert_eq!((&last["stage"], &last["result"]["ok"]), (&"finished".into(), &true.into()), "{last}");
    assert_eq!((last["round"].as_u64(), last["rounds"].as_u64()), (Some(300), Some(300)));
    let statement = consortium.result(0, "statement.json");
    let budget = &last["budget"];
    for (shown, stated) in [
        ("spent", "epsilon"),
        ("alone", "epsilon_if_all_others_collude"),
        ("all_studies", "epsilon_of_all_studies_with_this_data"),
    ] {
        assert_eq!(epsilon(&budget[shown]), epsilon(&statement[stated]), "{shown}");
    }
    // What was agreed on is all of it, at any time.
    let rounds: Vec<&Value> = states.iter().filter(|state| state["stage"] == "rounds").collect();
    assert!(rounds.len() > 5, "{}", rounds.len());
    assert!(rounds.windows(2).all(|pair| pair[0]["round"].as_u64() <= pair[1]["round"].as_u64()));
    let (agreed, alone) = (epsilon(&budget["agreed"]), epsilon(&budget["alone_agreed"]));
    for state in states.iter().filter(|state| state["round"].is_u64()) {
        let budget = &state["budget"];
        assert!((epsilon(&budget["agreed"]) - agreed).abs() < 1e-9, "{budget} at {}", state["stage"]);
        assert!((epsilon(&budget["alone_agreed"]) - alone).abs() < 1e-9, "{budget}");
        assert!(epsilon(&budget["spent"]) <= agreed && epsilon(&budget["alone"]) <= alone, "{budget}");
    }
    assert!((2.99..=3.0).contains(&agreed) && alone > 4.5, "{agreed} {alone}");
    let names: Vec<&str> =
        last["coefficients"].as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["intercept", "a", "b"]);
    let near: Vec<u64> =
        rounds[3]["neighbours"].as_array().unwrap().iter().filter_map(|row| row["party"].as_u64()).collect();
    assert_eq!(near, [1, 3]);
    shows_only(last);
}

/// What a page may show: all of it is public, or the viewer's own business and without a number that follows from records without noise.
fn shows_only(state: &Value) {
    let keys = |value: &Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys.join(" ")
    };
    assert_eq!(
        keys(state),
        "budget coefficients curve events kind left neighbours noised result resumed round rounds seconds stage study viewer waiting"
    );
    assert_eq!(
        keys(&state["study"]),
        "algorithm colluders connections delta edges hash loss name parties protected rounds target"
    );
    assert_eq!(keys(&state["neighbours"][0]), "party since state");
    assert_eq!(keys(&state["coefficients"][0]), "name value");
    assert_eq!(keys(&state["budget"]), "agreed all_studies alone alone_agreed spent");
    assert_eq!(state["curve"][0].as_array().unwrap().len(), 3);
}

#[test]
fn a_page_tells_of_a_neighbour_that_is_killed_and_comes_back() {
    let consortium = Consortium::new(3, 400, "kind = \"complete\"", "secure");
    let address = free_address();
    let mut children: Vec<_> = (0..2).map(|k| consortium.spawn(k, &["--pace", "5ms"])).collect();
    children.push(consortium.spawn(2, &["--page", &address.to_string(), "--pace", "5ms"]));
    let mut events = Events::open(address);
    let state_of = |state: &Value| {
        let rows = state["neighbours"].as_array();
        rows.into_iter().flatten().find(|row| row["party"] == 0).map(|row| row["state"].as_str().unwrap().to_string())
    };
    events.find(|state| state["round"].as_u64() >= Some(50)).expect("rounds");
    children[0].kill().unwrap();
    children[0].wait().unwrap();
    let away = events.find(|state| state_of(state).as_deref() == Some("away")).expect("it is seen to be away");
    assert!(away["stage"] == "rounds" && away["waiting"]["for"] == serde_json::json!([0]), "{}", away["waiting"]);
    children[0] = consortium.spawn(0, &[]);
    events.find(|state| state_of(state).as_deref() == Some("connected")).expect("it comes back");
    let last = events.last().unwrap();
    wait(&consortium, &mut children);
    let told: Vec<&str> = last["events"].as_array().unwrap().iter().filter_map(|e| e["text"].as_str()).collect();
    for words in
        ["The connection to peer0 was lost", "peer0 came back.", "The last releases of all parties make the model"]
    {
        assert!(told.iter().any(|text| text.starts_with(words)), "{words} in {told:?}");
    }
}

#[test]
fn a_page_that_cannot_be_served_ends_before_anything_is_spent() {
    let consortium = Consortium::new(2, 10, "kind = \"ring\"", "secure");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (page, code, words) in
        [(&*address, 1, "cannot be served there"), ("0.0.0.0:8470", 2, "--page-token"), ("8470", 2, "invalid")]
    {
        let output = consortium.command(0).args(["--page", page]).ended();
        assert_eq!(output.status.code(), Some(code), "{}", errors(&output));
        assert!(errors(&output).contains(words), "{}", errors(&output));
    }
    assert!(!consortium.state(0).exists());
}
