//! Planning: from public facts only, with the same result everywhere, and correct reports.

use undertone_core::study::{DataSpec, Document, Layout, Study};
use undertone_plan::{self as plan, Plan, PlanError};

const FILES: &str = r#"
name = "recovery"
rounds = 30
algorithm = "auto"
[problem]
loss = "absolute"
regularizer = "l1"
lambda = 0.01
[data]
source = "folder"
path = "nowhere/to/be/found"
features = ["age", "ward"]
target = "days"
intercept = true
bounds.age = [0, 100]
bounds.days = [0, 365]
categories.ward = ["a", "b", "c"]
[plan]
clients = 6
records = 40
[graph]
kind = "ring"
[privacy]
epsilon = 4
delta = 1e-5
noise = "secure"
"#;

fn planned(text: &str) -> Result<Plan, PlanError> {
    plan::plan_document(&Document::parse(text, "test").unwrap(), &|_| {})
}

fn refused(text: &str, word: &str) {
    let error = planned(text).expect_err("it cannot be planned").to_string();
    assert!(error.contains(word), "{error}");
}

#[test]
fn a_plan_reads_no_data_and_is_the_same_every_time() {
    let plan = planned(FILES).unwrap();
    let again = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(|| planned(FILES).unwrap());
    let texts = |plan: &Plan| plan.rows.iter().map(|row| row.study.to_toml()).collect::<Vec<_>>();
    assert_eq!(texts(&plan), texts(&again), "on one thread and on many");
    assert_eq!(
        plan::resolve(&Document::parse(FILES, "test").unwrap(), &|_| {}).unwrap().to_toml(),
        plan.recommended().study.to_toml()
    );
    // P-ADMM cannot solve it; all else is there, best first.
    let names: Vec<&str> = plan.rows.iter().map(|row| row.algorithm).collect();
    assert!(names.len() == 6 && !names.contains(&"p-admm"), "{names:?}");
    let shares = plan.rows.iter().filter(|row| row.study.moments().is_some()).count();
    assert_eq!(shares, 2, "free rounds with two shares for private standardisation");
    assert!(plan.rows.windows(2).all(|pair| pair[0].regret.score <= pair[1].regret.score));
    let regret = plan.recommended().regret;
    assert!(regret.median < 0.5, "better than the mean: {regret:?}");
    // What is written can be read and run as it is.
    let study = Study::parse(&plan.recommended().study.to_toml(), "planned").unwrap();
    assert!(
        matches!(study.spec().data, DataSpec::Files { layout: Layout::Folder, .. }),
        "the study's own data, not the generated data"
    );
    assert_eq!(study.privacy().unwrap().noise(), undertone_core::study::NoiseKind::Secure);
}

#[test]
fn the_numbers_of_a_plan_follow_from_the_study() {
    let plan = planned(FILES).unwrap();
    let study = &plan.recommended().study;
    assert_eq!((plan.graph.clients(), plan.graph.edges(), plan.records.as_slice()), (6, 6, &[40][..]));
    let (rho, epsilons) = plan.spent().unwrap();
    assert!(epsilons[2].1 <= 4.0 && epsilons[2].1 > 3.9999 && epsilons[0].1 > epsilons[1].1);
    let free = plan.rows.iter().find(|row| row.algorithm == "free-rounds").unwrap();
    let noise = plan.noise(free);
    assert_eq!(
        noise.len() as u32,
        free.study.settings().get("data_rounds").map_or(0, |value| value.to_string().parse().unwrap())
    );
    let before = free.study.privacy().unwrap().before().get();
    assert_eq!(before > 0.0, free.study.moments().is_some());
    let spent: f64 = noise.iter().map(|r| r.phi).sum();
    assert!((spent + before - rho.get()).abs() < 1e-9);
    for r in &noise {
        // sigma = 2 eta(s) c1/(M sqrt(2 phi)), here from the parameters as text.
        let value = |key: &str| free.parameters.get(key).unwrap().to_string().parse::<f64>().unwrap();
        let s = f64::from(noise.iter().position(|other| other.round == r.round).unwrap() as u32 + 1);
        let expected = 2.0 * value("eta") / s.powf(0.4) * value("clip") / 40.0 / (2.0 * r.phi).sqrt();
        assert!((r.sigma / expected - 1.0).abs() < 1e-9, "round {}: {} is not {expected}", r.round, r.sigma);
    }
    // 8 bytes for each of age, two wards and the intercept; round, kind and tag; a signature, in every round of so few; two neighbours.
    assert_eq!(plan.bytes(), (5 + 32 + 16 + 64, 2 * 30 * 117));
    assert!(plan.bound().unwrap() > 0.0);
    assert_eq!(study.rounds(), 30);
}

#[test]
fn clip_and_tau_of_the_study_are_kept() {
    let text = FILES.replace("noise = \"secure\"", "clip = 0.75\ntau = 1.0");
    for row in planned(&text).unwrap().rows {
        let privacy = row.study.spec().privacy.unwrap();
        assert_eq!((privacy.clip, privacy.tau), (Some(0.75), Some(1.0)), "{}", row.algorithm);
    }
    // Also where it works with few algorithms only.
    let steep = planned(&FILES.replace("noise = \"secure\"", "tau = 0.2").replace("rounds = 30", "rounds = 100"));
    assert!(steep.unwrap().rows.iter().all(|row| row.study.spec().privacy.unwrap().tau == Some(0.2)));
    // If the study names an algorithm, they belong to it.
    let named = text.replace("algorithm = \"auto\"", "algorithm = { name = \"zcdp-nfl\", rho = 1, eta = 1 }");
    assert!(planned(&named).unwrap().rows.iter().any(|row| row.study.privacy().unwrap().clip().get() != 0.75));
}

#[test]
fn errors_name_what_planning_needs() {
    refused(&FILES.replace("records = 40\n", ""), "data.records is missing");
    refused(&FILES.replace("clients = 6\n", ""), "plan.clients is missing");
    refused(&FILES.replace("records = 40", "records = [1, 2]"), "lists 2 numbers for 6 clients");
    refused(&FILES.replace("epsilon = 4", "phi1 = 0.1"), "privacy.phi1");
    refused(&FILES.replace("clients = 6", "clients = 6\nrcords = 1"), "did you mean \"records\"");
    refused(&format!("{FILES}[client.2]\nphi1 = 0.1\n"), "phi1 of its own");
    refused(&format!("{FILES}[client.north]\neta = 0.1\n"), "there is no client of that name");
    refused(&FILES.replace("epsilon = 4", "epsilon = 4\ntau = 2"), "privacy.tau = 2");
    let without = FILES.replace("[privacy]\nepsilon = 4\ndelta = 1e-5\nnoise = \"secure\"\n", "");
    refused(&without, "privacy is missing; write a table");
    refused(&FILES.replace("rounds = 30", "rounds = 300000"), "too large to plan");
    refused(&FILES.replace("loss = \"absolute\"", "loss = \"abs\""), "problem.loss");
    let error = Study::parse(FILES, "test").unwrap_err().to_string();
    assert!(error.contains("undertone plan"), "{error}");
}

/// Half a million records each are too many to draw: fewer are generated, and the budget compensates for it.
#[test]
fn large_studies_are_planned_with_fewer_records() {
    let text = |records: usize, epsilon: f64| {
        FILES
            .replace("records = 40", &format!("records = {records}"))
            .replace("epsilon = 4", &format!("epsilon = {epsilon}"))
    };
    let plan = planned(&text(500_000, 0.01)).unwrap();
    assert_eq!(plan.records, [500_000]);
    assert!(plan.rows.iter().all(|row| row.algorithm != "dp-nfl"), "whose noise does not follow from rho alone");
    let regret = plan.recommended().regret;
    assert!(regret.median < 0.1, "{regret:?}");
    // So many records at so large a budget leave no noise that could be represented.
    refused(&text(900_000_000, 1000.0), "no algorithm found a model");
}

#[test]
fn names_come_from_the_participants_or_the_edges() {
    let edges = FILES
        .replace("clients = 6\n", "")
        .replace("kind = \"ring\"", "kind = \"edges\"\nedges = [[\"x\", \"y\"], [\"y\", \"z\"]]");
    assert_eq!(planned(&edges).unwrap().graph.clients(), 3);
    let off = FILES.replace("[privacy]\nepsilon = 4\ndelta = 1e-5\nnoise = \"secure\"\n", "");
    let off = format!("privacy = \"off\"\n{off}");
    let plan = planned(&off).unwrap();
    assert!(plan.spent().is_none() && plan.noise(plan.recommended()).is_empty());
}

/// Numbers of records client by client give the same plan as a list of them.
#[test]
fn records_may_be_stated_client_by_client() {
    let short = FILES.replace("rounds = 30", "rounds = 8").replace("clients = 6\n", "");
    let listed = short.replace("records = 40", "records = [20, 40, 60]");
    let tables = "[client.1]\nrecords = 20\n[client.2]\nrecords = 40\n[client.3]\nrecords = 60\n";
    let own = short.replace("records = 40\n", "") + tables;
    let regrets = |text: &str| planned(text).unwrap().rows.iter().map(|row| row.regret).collect::<Vec<_>>();
    assert_eq!(regrets(&listed), regrets(&own));
}

#[test]
fn a_plan_that_is_cancelled_ends_early() {
    let cancel = undertone_core::watch::Cancel::default();
    cancel.cancel();
    let spec = Document::parse(FILES, "test").unwrap().spec().unwrap();
    assert!(matches!(plan::plan(&spec, &cancel.watching(|_| ())), Err(PlanError::Cancelled)));
}

/// What noise alone does to coefficients, against what it does: many draws of noise on one data set of the same law.
#[test]
fn the_spread_of_noise_is_that_of_repeated_runs() {
    let text = |noise: &str, more: &str| {
        format!(
            "rounds = 40\n[problem]\nloss = \"squared\"\n[data]\nsource = \"stand-in\"\nclients = 8\nrecords = 200\nfeatures = [\"a\", \"b\"]\n\
             target = \"y\"\nintercept = true\nbounds.a = [0, 10]\nbounds.b = [-1, 1]\nbounds.y = [0, 50]\ntypical.a = [5, 2]\ntypical.b = [0, 0.5]\n\
             typical.y = [20, 8]\n[graph]\nkind = \"ring\"\n[algorithm]\nname = \"free-rounds\"\ndata_rounds = 8\neta = 0.4\n\
             [privacy]\ndelta = 1e-5\nclip = 2\nnoise = \"{noise}\"\n{more}\n[simulation]\ncentral = false\nmetrics_every = 40\n"
        )
    };
    for budget in ["epsilon = 1", "phi1 = 0.004", "epsilon = 2\nstandardise = 0.2", "epsilon = 1\ncolluders = 2"] {
        let study = Study::parse(&text("fast", budget), "test").unwrap();
        let told = plan::noise_spread(&study).unwrap_or_else(|| panic!("{budget}"));
        let again = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(again.install(|| plan::noise_spread(&study)), Some(told.clone()), "the same everywhere");
        let secure = Study::parse(&text("secure", budget), "test").unwrap();
        let models: Vec<Vec<f64>> = (0..60)
            .map(|_| {
                let units = undertone_sim::run(&secure, &|_| {}).unwrap().model.original;
                std::iter::once(units.intercept).chain(units.coefficients.iter().map(|c| c.1)).collect()
            })
            .collect();
        for (at, told) in told.iter().enumerate() {
            let mean = models.iter().map(|model| model[at]).sum::<f64>() / 60.0;
            let sd = (models.iter().map(|model| (model[at] - mean).powi(2)).sum::<f64>() / 59.0).sqrt();
            // The made-up sets vary more than this one; an error of the budget's units or of sqrt(2) per client would be seen.
            assert!((0.5..2.5).contains(&(told / sd)), "{budget}: coefficient {at}: told {told}, measured {sd}");
        }
    }
    let open = Study::parse(
        &text("fast", "")
            .replace("[privacy]\ndelta = 1e-5\nclip = 2\nnoise = \"fast\"\n", "")
            .replace("rounds = 40", "rounds = 40\nprivacy = \"off\""),
        "test",
    );
    assert_eq!(plan::noise_spread(&open.unwrap()), None, "nothing is noised");
}

/// What a client keeps out of training is taken off its number of records once: made-up data of few records is not empty, and a plan is that of as many records
/// without a hold-out.
#[test]
fn plans_count_what_is_held_out_once() {
    let with = |records: &str, holdout: &str| {
        let text = FILES.replace("records = 40", &format!("records = {records}"));
        text.replace("intercept = true", &format!("intercept = true\nholdout = {holdout}"))
    };
    for (records, holdout) in [("5", "0.2"), ("10", "0.5"), ("40", "0.9")] {
        let study = planned(&with(records, holdout)).unwrap().rows.remove(0).study;
        plan::noise_spread(&study).expect("it can be run");
    }
    let [held, plain] = [with("200", "0.8"), with("40", "0")].map(|text| planned(&text).unwrap());
    let skill = |plan: &Plan| plan.recommended().regret.median;
    assert_eq!(held.recommended().algorithm, plain.recommended().algorithm);
    assert!((skill(&held) - skill(&plain)).abs() < 0.02, "{} {}", skill(&held), skill(&plain));
}

/// With liars in mind only algorithms that bound what they do are compared, and the study that is written says the same.
#[test]
fn plans_against_liars_name_algorithms_that_bound_them() {
    let text = FILES.replace("records = 40", "").replace("intercept = true", "intercept = true\nrecords = 40")
        + "[robust]\nliars = 1\n";
    let plan = planned(&text).unwrap();
    assert!(plan.rows.iter().all(|row| row.algorithm != "zcdp-grad-nfl"));
    assert!(plan.rows.iter().any(|row| row.algorithm == "zcdp-nfl"));
    assert_eq!(plan.recommended().study.liars(), 1);
}
