//! Two peers of one study, each with its own key, ledger and table in memory, in two threads of one process.
//!
//! Between organisations each of them would be a program of its own: `undertone peer` does the same with files.
//!
//! `cargo run --release -p undertone-examples --example peer`

use std::error::Error;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;

use undertone_core::graph::GraphSpec;
use undertone_core::identity::Identity;
use undertone_core::loss::Squared;
use undertone_core::schema::{Column, Schema};
use undertone_core::study::{AlgorithmSpec, ClientSpec, DataSpec, PrivacySpec, Study, StudySpec};
use undertone_data::MemoryTable;
use undertone_peer::keys;
use undertone_peer::run::{Options, Report, Source, run};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    let folder = std::env::temp_dir().join(format!("undertone-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let names = ["lakeside", "northfield"];
    let identities: Vec<Arc<Identity>> = names
        .iter()
        .map(|name| Ok(Arc::new(keys::generate(&folder.join(format!("{name}.key")))?)))
        .collect::<Fallible<_>>()?;
    let study = Arc::new(study(&names, &identities)?);
    let peers = names.iter().zip(identities).zip(0..).map(|((name, identity), k)| {
        let (study, state) = (study.clone(), folder.join(name));
        std::thread::spawn(move || peer(study, identity, k, &state))
    });
    for (peer, name) in peers.collect::<Vec<_>>().into_iter().zip(names) {
        let report = peer.join().expect("a peer does not panic")?;
        println!("{name}: epsilon {}, model in {}", report.statement["epsilon"], report.folder.display());
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// What both agree on. The ids are public keys; the addresses are on this machine.
fn study(names: &[&str], identities: &[Arc<Identity>]) -> Fallible<Study> {
    let schema =
        Schema::new([Column::number("dose", 0.0, 10.0)]).target(Column::number("effect", 0.0, 10.0)).with_intercept();
    let mut spec = StudySpec::new(Squared, DataSpec::tables(schema), GraphSpec::Complete)
        .name("example")
        .rounds(50)
        .algorithm(AlgorithmSpec::named("zcdp-nfl").number("rho", 0.3).number("eta", 0.5))
        .privacy(PrivacySpec::epsilon(3.0, 1e-5).clip(0.5).secure());
    for (name, identity) in names.iter().zip(identities) {
        let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = Some(format!("127.0.0.1:{port}"));
        spec = spec.client(*name, ClientSpec { id: Some(identity.id()), address, ..ClientSpec::default() });
    }
    Ok(spec.check()?)
}

fn peer(study: Arc<Study>, identity: Arc<Identity>, k: u32, state: &Path) -> Fallible<Report> {
    let doses: Vec<f32> = (0..200).map(|j| ((j * 7 + k * 3) % 100) as f32 / 10.0).collect();
    let effects: Vec<f32> = doses.iter().map(|dose| 2.0 + 0.5 * dose).collect();
    let table = MemoryTable::from_columns(&[("dose", &doses[..]), ("effect", &effects)])?;
    Ok(run(&Options::new(study, identity, Source::Table(table), state), &mut |_| {})?)
}
