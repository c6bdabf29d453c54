//! Studies: parse, print, parse; and invalid input, which must give a one-sentence error that names the place.

use proptest::prelude::*;
use undertone_core::names::Names;
use undertone_core::schema::{Column, Schema};
use undertone_core::study::{AlgorithmSpec, DataSpec, Document, Study, StudySpec};

const EXAMPLE: &str = include_str!("../../cli/src/example.toml");

fn read(text: &str, sets: &[&str]) -> Result<Study, String> {
    let mut document = Document::parse(text, "study.toml").map_err(|e| e.to_string())?;
    for set in sets {
        document.set(set).map_err(|e| e.to_string())?;
    }
    Study::read(&document).map_err(|e| e.to_string())
}

#[test]
fn example_reads_and_prints() {
    let study = read(EXAMPLE, &[]).unwrap();
    let again = read(&study.to_toml(), &[]).unwrap();
    assert_eq!(study.to_toml(), again.to_toml());
}

/// A change to the example, and the words its refusal must contain.
const MISTAKES: &[(&str, &[&str])] = &[
    ("privacy.tau=1.5", &["privacy.tau = 1.5", "above 0 and at most 1"]),
    ("privacy.tau=0", &["privacy.tau", "above 0"]),
    ("privacy.delta=0", &["privacy.delta", "strictly between 0 and 1"]),
    ("privacy.delta=1", &["privacy.delta"]),
    ("privacy.delta=nan", &["privacy.delta"]),
    ("privacy.epsilon=-1", &["privacy.epsilon = -1"]),
    ("privacy.epsilon=inf", &["privacy.epsilon = inf"]),
    ("privacy.tau=0.01", &["privacy cannot be kept", "round 1", "too small to represent"]),
    ("privacy.epsilon=five", &["privacy.epsilon = \"five\"", "write a number"]),
    ("privacy.phi1=0.1", &["privacy.phi1", "keep one"]),
    ("privacy.clip=0", &["privacy.clip = 0"]),
    ("privacy.clipp=1", &["privacy.clipp", "did you mean \"clip\"?"]),
    ("privacy=on", &["privacy = \"on\"", "[privacy]"]),
    ("rounds=0", &["rounds = 0", "from 1"]),
    ("rounds=2.5", &["rounds = 2.5", "whole number"]),
    ("rounds=99999999999999999999", &["too large"]),
    ("seed=-1", &["seed = -1"]),
    ("round=5", &["round is not a key", "did you mean \"rounds\"?"]),
    ("problem.loss=absolut", &["problem.loss", "did you mean \"absolute\"?"]),
    ("problem.loss=cauchy", &["problem.loss = \"cauchy\"", "\"squared\""]),
    ("problem.loss=huber", &["problem.threshold is missing"]),
    ("problem.loss=quantile", &["problem.level is missing"]),
    ("problem.regularizer=elastic-net", &["problem.lambda2 is missing"]),
    ("data.clients=1", &["data.clients = 1", "from 2"]),
    ("data.clients=1e9", &["data.clients"]),
    ("data.records=0", &["data.records = 0"]),
    ("data.records=[1,2,3]", &["data.records", "3 numbers for 50 clients"]),
    ("data.features=0", &["data.features = 0"]),
    ("data.source=folder", &["data.features", "list"]),
    ("data.noise=-1", &["data.noise = -1"]),
    ("graph.kind=tree", &["graph.kind = \"tree\"", "\"star\""]),
    ("graph.kind=edges", &["graph.edges is missing"]),
    ("graph.degree=3", &["graph.degree is not a key"]),
    ("algorithm.name=zcdp", &["algorithm.name", "did you mean \"zcdp-nfl\"?"]),
    ("algorithm={name=\"p-admm\",rho=1}", &["algorithm", "differentiable loss", "absolute is not"]),
    ("algorithm.eta=0", &["algorithm.eta = 0"]),
    ("algorithm.eta=[1]", &["algorithm.eta = [1] is not possible"]),
    ("algorithm.rho=1", &["algorithm.rho is not a key", "data_rounds"]),
    ("algorithm=auto", &["algorithm = \"auto\" is not resolved", "undertone plan"]),
    ("algorithm=automatic", &["algorithm = \"automatic\"", "[algorithm]"]),
    ("plan.records=40", &["plan.records has no meaning for data that is drawn", "data.records"]),
    ("problem.weights=parties", &["problem.weights = \"parties\"", "\"records\""]),
    ("privacy.standardise=0.1", &["privacy.standardise needs tables"]),
    ("data.condition=0.5", &["data.condition = 0.5", "from 1 to"]),
    ("data.spread=0.5", &["data.spread = 0.5", "from 1 to"]),
    ("data={source=\"stand-in\"}", &["data.clients is not given"]),
    ("data={source=\"stand-in\",clients=[\"a\",\"a\"]}", &["data.clients", "different names"]),
    ("data={source=\"stand-in\",clients=3}", &["data.features is missing"]),
    ("algorithm.decay=linear", &["algorithm.decay = \"linear\"", "\"sqrt\""]),
    ("simulation.trials=0", &["simulation.trials = 0"]),
    ("client.7.phi1=-1", &["client.7.phi1 = -1"]),
    ("client.7.epsilon=1", &["client.7.epsilon is not a key"]),
    ("nonsense", &["--set nonsense", "key=value"]),
    (".a=1", &["key cannot be read"]),
];

#[test]
fn errors_name_what_is_expected() {
    for (set, words) in MISTAKES {
        let error = read(EXAMPLE, &[set]).err().unwrap_or_else(|| panic!("{set} was accepted"));
        for word in *words {
            assert!(error.contains(word), "{set}: \"{error}\" does not contain \"{word}\"");
        }
        assert!(!error.contains('\n'), "{set}: more than one line");
    }
}

#[test]
fn errors_in_a_file_name_their_line() {
    let text = EXAMPLE.replace("tau = 0.9", "tau = 1.5");
    let line = 1 + text.lines().position(|l| l.starts_with("tau")).unwrap();
    let error = read(&text, &[]).unwrap_err();
    assert!(error.starts_with(&format!("study.toml:{line}: privacy.tau = 1.5")), "{error}");
    let error = read("rounds = = 3", &[]).unwrap_err();
    assert!(error.starts_with("study.toml:1: this is not valid TOML"), "{error}");
    assert!(read("", &[]).unwrap_err().contains("is missing"));
}

#[test]
fn client_names_with_dots_can_be_set() {
    let study = read(EXAMPLE, &["client.\"a.b\".phi1=0.5"]).unwrap();
    assert_eq!(study.spec().clients["a.b"].phi1, Some(0.5));
}

#[test]
fn nonsmooth_problems_are_refused_by_p_admm_for_either_reason() {
    let squared = ["algorithm={name=\"p-admm\",rho=1}", "problem.loss=squared"];
    assert!(read(EXAMPLE, &squared).is_ok());
    let error = read(EXAMPLE, &[squared[0], squared[1], "problem.regularizer=l1"]).unwrap_err();
    assert!(error.contains("differentiable regularizer"), "{error}");
    let paper = ["problem.regularizer=elastic-net", "problem.lambda1=paper", "problem.lambda2=1"];
    let error = read(EXAMPLE, &[&squared[..], &paper[..]].concat()).unwrap_err();
    assert!(error.contains("differentiable regularizer"), "{error}");
}

#[test]
fn real_data_tables_are_checked() {
    let data = r#"data={source="folder",path="d",features=["age","sex"],target="cost",bounds={age=[0,100],cost=[0,10]},categories={sex=["f","m"]}}"#;
    assert!(read(EXAMPLE, &[data]).is_ok());
    for (set, word) in [
        ("data.bounds.age=[5,5]", "[5, 5] is not possible"),
        ("data.bounds.age=[0,5e-324]", "clearly below"),
        ("data.bounds.age=[-1e300,1e300]", "-1e12 to 1e12"),
        ("data.bounds.age=[0,nan]", "two numbers"),
        ("data.bounds.agee=[0,1]", "did you mean \"age\"?"),
        ("data.categories.sex=[\"f\"]", "at least two"),
        ("data.categories.age=[\"f\",\"m\"]", "both bounds and categories"),
        ("data.features=[\"age\",\"weight\"]", "data.bounds.weight"),
        ("data.features=[\"age\",\"age\"]", "each once"),
        (
            "data={source=\"folder\",features=[\"s\",\"s=m\"],target=\"t\",bounds={\"s=m\"=[0,1],t=[0,1]},categories={s=[\"f\",\"m\"]}}",
            "\"s=m\" twice",
        ),
        ("data.features=[\"age\",\"cost\"]", "not the target"),
        ("data.target=sex", "not the target"),
        ("data.scaling=log", "\"bounds\""),
        ("data.outside=drop", "\"clamp\""),
        ("data.source=column", "data.client is missing"),
        ("data.source=split", "data.clients is missing"),
        ("data.csv.delimiter=ab", "data.csv.delimiter = \"ab\" is not possible"),
        ("data.csv.delimiter=7", "data.csv.delimiter = 7 is not possible"),
        ("data.csv.decimal=,", "set data.csv.delimiter"),
        ("data.csv.decimals=,", "did you mean \"decimal\"?"),
        ("data.csv=semicolons", "[data.csv]"),
        ("data={source=\"synthetic\",clients=5,features=2,csv={decimal=\",\"}}", "data.csv is not a key"),
    ] {
        let error = read(EXAMPLE, &[data, set]).err().unwrap_or_else(|| panic!("{set} was accepted"));
        assert!(error.contains(word), "{set}: \"{error}\" does not contain \"{word}\"");
    }
    let error = read(EXAMPLE, &[data, "data.features=[\"age\"]", "data.target=sex"]).unwrap_err();
    assert!(error.contains("needs a number"), "{error}");
}

/// How a party writes its files is its own affair.
#[test]
fn formats_of_csv_files_are_printed_but_not_agreed_on() {
    let data = r#"data={source="folder",path="d",features=["age"],target="cost",bounds={age=[0,100],cost=[0,10]}}"#;
    let plain = read(EXAMPLE, &[data]).unwrap();
    assert!(!plain.to_toml().contains("csv"), "{}", plain.to_toml());
    for sets in [&["data.csv.delimiter=;"][..], &["data.csv.delimiter=\"\\t\"", "data.csv.decimal=,"]] {
        let own = read(EXAMPLE, &[&[data], sets].concat()).unwrap();
        assert_ne!(own.spec().csv(), plain.spec().csv());
        assert_eq!(read(&own.to_toml(), &[]).unwrap().spec(), own.spec(), "read back:\n{}", own.to_toml());
        assert_eq!(own.digest(), plain.digest());
    }
    let wider = read(EXAMPLE, &[data, "data.bounds.age=[0,120]"]).unwrap();
    assert_ne!(wider.digest(), plain.digest(), "bounds are agreed on");
}

/// Study texts with random but valid parts.
fn valid_study() -> impl Strategy<Value = String> {
    let loss = prop_oneof![
        Just("loss = \"squared\"".to_string()),
        Just("loss = \"absolute\"".to_string()),
        (0.01..10.0).prop_map(|t: f64| format!("loss = \"huber\"\nthreshold = {t}")),
        (0.01..0.99).prop_map(|l: f64| format!("loss = \"quantile\"\nlevel = {l}")),
        Just("loss = \"logistic\"".to_string()),
        Just("loss = \"hinge\"".to_string()),
    ];
    let regularizer = prop_oneof![
        Just(String::new()),
        (0.0..9.0).prop_map(|l: f64| format!("regularizer = \"l1\"\nlambda = {l}")),
        (0.0..9.0).prop_map(|l: f64| format!("regularizer = \"l2\"\nlambda = {l}")),
        (0.0..9.0, 0.0..9.0)
            .prop_map(|(a, b): (f64, f64)| format!("regularizer = \"elastic-net\"\nlambda1 = {a}\nlambda2 = {b}")),
        (0.0..9.0).prop_map(|b: f64| format!("regularizer = \"elastic-net\"\nlambda1 = \"paper\"\nlambda2 = {b}")),
    ];
    let graph = prop_oneof![
        (2.0..8.0).prop_map(|d: f64| format!("kind = \"random\"\nmean_degree = {d}")),
        prop::sample::select(vec!["ring", "star", "grid", "complete"]).prop_map(|k| format!("kind = \"{k}\"")),
        (2i64..9, 0.0..1.0)
            .prop_map(|(d, r): (i64, f64)| format!("kind = \"small-world\"\ndegree = {d}\nrewire = {r}")),
        (1i64..9).prop_map(|d| format!("kind = \"regular\"\ndegree = {d}")),
        Just("kind = \"edges\"\nedges = [[\"1\", 2], [\"a b\", \"c\"]]".to_string()),
    ];
    let data = prop_oneof![
        (2i64..99, 1i64..99, 1i64..99, 0.0..2.0).prop_map(|(k, m, p, s): (i64, i64, i64, f64)| format!(
            "source = \"synthetic\"\nclients = {k}\nrecords = {m}\nfeatures = {p}\nnoise = {s}"
        )),
        (-9.0..0.0, 1.0..9.0).prop_map(|(a, b): (f64, f64)| format!(
            "source = \"column\"\nclient = \"c\"\nfeatures = [\"x y\", \"s\"]\ntarget = \"t\"\nintercept = true\n\
             scaling = \"none\"\noutside = \"clamp\"\nbounds.\"x y\" = [{a}, {b}]\nbounds.t = [{a}, {b}]\n\
             categories.s = [\"u\", \"v\", \"w\"]"
        )),
    ];
    let decay = prop::sample::select(vec!["constant", "sqrt", "inverse"]);
    let algorithm = prop_oneof![
        (0.01..9.0, 0.01..9.0, decay.clone())
            .prop_map(|(r, e, d): (f64, f64, _)| format!("name = \"zcdp-nfl\"\nrho = {r}\neta = {e}\ndecay = \"{d}\"")),
        (0.01..9.0, 0.01..9.0).prop_map(|(r, e): (f64, f64)| format!("name = \"dp-nfl\"\nrho = {r}\neta = {e}")),
        (0.01..9.0, decay).prop_map(|(e, d): (f64, _)| format!("name = \"zcdp-grad-nfl\"\neta = {e}\ndecay = \"{d}\"")),
    ];
    let privacy = prop_oneof![
        Just("privacy = \"off\"\n".to_string()),
        (0.01..50.0, 1e-9..0.5, 0.99..1.0, 0.01..9.0, prop::sample::select(vec!["paper", "cks", "exact"])).prop_map(
            |(e, d, t, c, a): (f64, f64, f64, f64, _)| format!(
                "privacy = {{ epsilon = {e}, delta = {d}, tau = {t}, clip = {c}, accountant = \"{a}\", noise = \"secure\" }}\n"
            )
        ),
        (1e-6..0.1, 1e-9..0.5, 0.01..9.0).prop_map(|(p, d, c): (f64, f64, f64)| format!(
            "privacy = {{ phi1 = {p}, delta = {d}, clip = {c} }}\nclient.7 = {{ eta = 0.25, phi1 = 0.001 }}\n"
        )),
    ];
    (0i64..i64::MAX, 1i64..300, loss, regularizer, graph, data, algorithm, privacy).prop_map(
        |(seed, rounds, loss, regularizer, graph, data, algorithm, privacy)| {
            format!(
                "seed = {seed}\nrounds = {rounds}\n{privacy}[problem]\n{loss}\n{regularizer}\n[graph]\n{graph}\n\
                 [data]\n{data}\n[algorithm]\n{algorithm}\n"
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parse_print_parse(text in valid_study()) {
        let study = read(&text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let printed = study.to_toml();
        let again = read(&printed, &[]).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        prop_assert_eq!(printed, again.to_toml());
        prop_assert_eq!(format!("{study:?}"), format!("{again:?}"));
    }

    /// Reading any modified text ends with a study, or with a one-sentence error that names a place.
    #[test]
    fn damaged_texts_never_panic(at in 0usize..3000, length in 0usize..40, junk in "[ -~\n]{0,20}") {
        let cut = |at: usize| EXAMPLE.char_indices().nth(at).map_or(EXAMPLE.len(), |(i, _)| i);
        let text = format!("{}{junk}{}", &EXAMPLE[..cut(at)], &EXAMPLE[cut(at + length)..]);
        if let Err(error) = read(&text, &[]) {
            prop_assert!(error.starts_with("study.toml"), "{}", error);
            prop_assert!(!error.contains('\n'), "{}", error);
            if let Ok(document) = Document::parse(&text, "study.toml") {
                let all: Vec<String> = document.survey().0.iter().map(ToString::to_string).collect();
                prop_assert!(all.contains(&error), "{} is not among {:?}", error, all);
            }
        }
    }

    #[test]
    fn random_settings_never_panic(key in "[a-z0-9.]{1,20}", value in "[ -~]{0,20}") {
        let _ = read(EXAMPLE, &[&format!("{key}={value}")]);
        for table in ["problem", "data", "graph", "algorithm", "privacy", "simulation", "client"] {
            let _ = read(EXAMPLE, &[&format!("{table}.{key}={value}")]);
            let _ = read(EXAMPLE, &[&format!("{table}={value}")]);
        }
        for known in ["rounds", "privacy.tau", "privacy.epsilon", "privacy.clip", "data.clients", "algorithm.eta", "seed"] {
            let _ = read(EXAMPLE, &[&format!("{known}={value}")]);
        }
    }

    #[test]
    fn random_numbers_never_panic(number in prop::num::f64::ANY, whole in any::<i64>()) {
        for known in ["rounds", "privacy.tau", "privacy.epsilon", "privacy.delta", "privacy.clip", "data.clients",
                      "data.records", "data.noise", "algorithm.eta", "algorithm.rho", "graph.mean_degree", "client.1.phi1"] {
            let _ = read(EXAMPLE, &[&format!("{known}={number}")]);
            let _ = read(EXAMPLE, &[&format!("{known}={whole}")]);
        }
    }
}

/// One mistake does not hide another, in one table or in several, and none is told that only follows from another.
#[test]
fn a_survey_tells_every_mistake_once() {
    let text = r#"
        rounds = 0
        algorithm = "auto"
        stray = 3
        [problem]
        loss = "squared"
        [data]
        source = "folder"
        records = 2.5
        features = ["age", "dose"]
        target = "days"
        bounds.age = [9, 1]
        typical.age = [400, 30]
        bounds.days = [0, 100]
        outside = "perhaps"
        [graph]
        kind = "ring"
        [privacy]
        epsilon = -2
        delta = 2
        tau = 7
        [client.a]
        id = "zz"
        eta = -1
        [client.b]
        phi1 = 0
    "#;
    let (found, columns) = Document::parse(text, "study.toml").unwrap().survey();
    let mut keys: Vec<&str> = found.iter().map(|error| error.key.as_str()).collect();
    keys.sort_unstable();
    let expected = [
        "client.a.eta",
        "client.a.id",
        "client.b.phi1",
        "data.bounds.age",
        "data.bounds.dose",
        "data.outside",
        "data.records",
        "privacy.delta",
        "privacy.epsilon",
        "privacy.tau",
        "rounds",
        "stray",
    ];
    assert_eq!(keys, expected, "{found:#?}");
    assert!(columns.is_none(), "columns with mistakes are not used");
    // Of what is wrong only as a whole, one of each part.
    let sets = ["privacy.theta=0.5", "inference.level=0.9", "client.1.address=nowhere", "problem.loss=\"hinge\""];
    let mut document = Document::parse(EXAMPLE, "study.toml").unwrap();
    assert_eq!(document.survey().0, []);
    sets.iter().for_each(|set| document.set(set).unwrap());
    let keys: Vec<String> = document.survey().0.into_iter().map(|error| error.key).collect();
    assert_eq!(keys, ["client.1.address", "privacy.theta", "inference"]);
    // A loss that is not known does not hide what else is wrong, nor does a list without words end in a panic.
    let mut document = Document::parse(&text.replace("squared", "sqared"), "study.toml").unwrap();
    document.set("data.categories.dose=[]").unwrap();
    document.set("data.csv.delimiter=ab").unwrap();
    let keys: Vec<String> = document.survey().0.into_iter().map(|error| error.key).collect();
    for key in ["problem.loss", "data.categories.dose", "data.csv.delimiter", "data.outside", "privacy.tau"] {
        assert!(keys.contains(&key.to_string()), "{key} is not among {keys:?}");
    }
    let mut document = Document::parse(EXAMPLE, "study.toml").unwrap();
    document.set("name=\"a\\u001b[31mred\"").unwrap();
    assert_eq!(document.survey().0[0].key, "name");
}

/// Whatever a program writes into a specification is checked like a text, and the error names the key.
#[test]
fn specifications_that_are_wrong_are_refused_by_key() {
    let document = Document::parse(EXAMPLE, "study.toml").unwrap();
    let good = document.spec().unwrap();
    assert!(good.check().is_ok());
    type Change = fn(&mut StudySpec);
    let changes: [(Change, &str); 13] = [
        (|s| s.rounds = 0, "rounds"),
        (|s| s.seed = u64::MAX, "seed"),
        (|s| s.lambda = f64::NAN, "problem.lambda"),
        (|s| s.loss = undertone_core::loss::Huber { threshold: -1.0 }.into(), "problem.threshold"),
        (|s| s.data = DataSpec::synthetic(1, 5, 2), "data.clients"),
        (|s| s.data = DataSpec::synthetic(5, 0, 2), "data.records"),
        (
            |s| {
                s.data = DataSpec::tables(Schema::new([Column::number("x", 0.0, 1.0)]));
                let DataSpec::Files { csv, .. } = &mut s.data else { unreachable!() };
                csv.delimiter = b'7';
            },
            "data.csv.delimiter",
        ),
        (|s| s.graph = undertone_core::graph::GraphSpec::Random { mean_degree: f64::INFINITY }, "graph.mean_degree"),
        (|s| s.algorithm = AlgorithmSpec::named("zcdp"), "algorithm.name"),
        (|s| s.algorithm = AlgorithmSpec::named("zcdp-nfl").number("rho", 1.0), "algorithm.eta"),
        (|s| s.privacy.as_mut().unwrap().clip = None, "privacy.clip"),
        (|s| s.privacy.as_mut().unwrap().delta = 1.0, "privacy.delta"),
        (|s| s.simulation.trials = 0, "simulation.trials"),
    ];
    for (change, key) in changes {
        let mut spec = good.clone();
        change(&mut spec);
        let error = spec.check().unwrap_err();
        assert_eq!((error.key.as_str(), error.place.as_str()), (key, "study"), "{error}");
        // The same mistake in a document is at the line of the key, or of the table that should have held it.
        let place = document.locate(error).place;
        assert!(place.starts_with("study.toml"), "{key}: {place}");
    }
}

#[test]
fn the_classic_accountant_has_two_names() {
    let classic = read(EXAMPLE, &["algorithm={name=\"dp-nfl\",rho=1,eta=1}"]).unwrap();
    let same = read(EXAMPLE, &["algorithm={name=\"zcdp-nfl\",rho=1,eta=1}", "privacy.accountant=classic"]).unwrap();
    assert_eq!(classic.to_toml(), same.to_toml());
    assert_eq!(classic.digest(), same.digest());
    let promised = |study: &Study| study.privacy().unwrap().promised().get();
    assert!(promised(&classic) <= 5.0 && promised(&classic) > 4.999, "{}", promised(&classic));
    let exact = read(EXAMPLE, &["algorithm={name=\"zcdp-nfl\",rho=1,eta=1}"]).unwrap();
    let phi = |study: &Study| study.privacy().unwrap().schedule().phi(1).get();
    assert!(phi(&classic) < phi(&exact) / 10.0, "its noise is far larger at the same epsilon");
}

/// What one liar can move as far as it likes is refused together with `[robust]`, and a graph that cannot carry the liars is said to be odd.
#[test]
fn a_study_with_liars_leaves_out_what_they_could_move() {
    let text = |more: &str, privacy: &str, algorithm: &str| {
        format!(
            "rounds = 40\n[problem]\nloss = \"squared\"\n\
             [data]\nsource = \"synthetic\"\nclients = 6\nrecords = 20\nfeatures = 3\n[graph]\nkind = \"ring\"\n\
             [algorithm]\n{algorithm}\n[privacy]\nepsilon = 2.0\ndelta = 1e-5\nclip = 0.5\n{privacy}\n[robust]\nliars = 1\n{more}"
        )
    };
    const FREE: &str = "name = \"free-rounds\"\ndata_rounds = 4\neta = 0.5";
    let refused = |more: &str, privacy: &str, algorithm: &str| {
        Study::parse(&text(more, privacy, algorithm), "t").unwrap_err().to_string()
    };
    for (more, privacy, algorithm, says) in [
        ("", "colluders = 1", FREE, "masks cancel"),
        ("[inference]\nlevel = 0.9\n", "", FREE, "intervals and private scores"),
        ("", "", "name = \"zcdp-grad-nfl\"\neta = 0.5", "has no rule for what liars say"),
    ] {
        let error = refused(more, privacy, algorithm);
        assert!(error.contains("robust.liars") && error.contains(says), "{error}");
    }
    let study = Study::parse(&text("", "", FREE), "t").unwrap();
    assert_eq!(study.liars(), 1);
    let odd = study.spec().oddities(Some(&Names::numbered(6))).join("\n");
    assert!(odd.contains("robust.liars = 1: ") && odd.contains("5 neighbours are enough"), "{odd}");
    let resolved = study.to_toml();
    assert!(resolved.contains("[robust]\nliars = 1"), "{resolved}");
}
