//! Ending a peer from the program that runs it.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use undertone_core::study::Study;
use undertone_peer::run::{Options, Source, Update, run};
use undertone_peer::{Cancel, keys};

#[test]
fn a_cancelled_peer_ends_like_an_interrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (own, other) = (keys::generate(&path("own.key")).unwrap(), keys::generate(&path("other.key")).unwrap());
    // Nothing listens at port 1: the other peer never starts.
    let study = format!(
        "name = \"cancelled\"\nrounds = 10\n[problem]\nloss = \"squared\"\n[graph]\nkind = \"ring\"\n\
         [algorithm]\nname = \"zcdp-nfl\"\nrho = 0.3\neta = 2.0\n\
         [privacy]\nepsilon = 3.0\ndelta = 1e-5\nclip = 0.5\nnoise = \"secure\"\n\
         [data]\nsource = \"folder\"\nrecords = 1\nfeatures = [\"x\"]\ntarget = \"y\"\nbounds.x = [0, 1]\nbounds.y = [0, 1]\n\
         [client.own]\nid = \"{}\"\n\
         [client.other]\nid = \"{}\"\naddress = \"127.0.0.1:1\"\n",
        own.id(),
        other.id()
    );
    std::fs::write(path("own.csv"), "x,y\n0.5,0.25\n").unwrap();
    let cancel = Cancel::default();
    let study = Arc::new(Study::parse(&study, "the test's study").unwrap());
    let options = Options {
        listen: Some(([127, 0, 0, 1], 0).into()),
        cancel: cancel.clone(),
        ..Options::new(study, Arc::new(own), Source::File(path("own.csv")), path("state"))
    };
    let (running, started) = channel();
    let peer = std::thread::spawn(move || {
        run(&options, &mut |update| {
            if let Update::Started(_) = update {
                running.send(()).unwrap();
            }
        })
    });
    started.recv_timeout(Duration::from_secs(60)).expect("the peer starts");
    let asked = Instant::now();
    assert!(!peer.is_finished());
    cancel.cancel();
    let report = peer.join().unwrap().unwrap();
    assert!(report.interrupted);
    assert_eq!(report.statement["rounds"]["done"], 0);
    assert!(report.folder.join("statement.json").exists());
    // A second until it notices, and a few more until its connections have ended.
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
}
