//! Central solutions against scikit-learn and statsmodels, and noise-free runs against central solutions.

use serde_json::Value;
use undertone_core::study::StudySpec;
use undertone_data::MemoryTable;
use undertone_sim::{Outcome, Population};

fn reference(name: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/reference/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn run(text: &str, data: Option<&str>) -> Outcome {
    let spec = StudySpec::parse(text, "test").unwrap_or_else(|e| panic!("{e}\n{text}"));
    let study = spec.data_path(data.unwrap_or_default()).check().unwrap_or_else(|e| panic!("{e}\n{text}"));
    undertone_sim::run(&study, &|_| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// One CSV per client, as a user would have them.
fn write_clients(case: &Value, folder: &std::path::Path) -> usize {
    let mut features = 0;
    for (k, client) in case["clients"].as_array().unwrap().iter().enumerate() {
        let rows = client["x"].as_array().unwrap().iter().zip(client["y"].as_array().unwrap());
        let mut text = String::new();
        for (x, y) in rows {
            let x = x.as_array().unwrap();
            features = x.len();
            let cells: Vec<String> = x.iter().chain([y]).map(|v| v.as_f64().unwrap().to_string()).collect();
            text += &(cells.join(",") + "\n");
        }
        let head: Vec<String> = (1..=features).map(|p| format!("x{p}")).chain(["y".into()]).collect();
        std::fs::write(folder.join(format!("client{k}.csv")), head.join(",") + "\n" + &text).unwrap();
    }
    features
}

fn table(value: &Value) -> String {
    value.as_object().unwrap().iter().map(|(key, v)| format!("{key} = {v}\n")).collect()
}

#[test]
fn central_solutions_match_scikit_learn_and_statsmodels() {
    for case in reference("solutions") {
        let folder = tempfile::tempdir().unwrap();
        let features = write_clients(&case, folder.path());
        let names: Vec<String> = (1..=features).map(|p| format!("\"x{p}\"")).collect();
        let bounds: String = (1..=features).map(|p| format!("bounds.x{p} = [-9, 9]\n")).collect();
        let classification = ["logistic", "hinge"].contains(&case["loss"]["loss"].as_str().unwrap());
        let range = if classification { "[-1, 1]" } else { "[-20, 20]" };
        let text = format!(
            "rounds = 1\nprivacy = \"off\"\n[problem]\nweights = \"clients\"\n{}{}[graph]\nkind = \"complete\"\n\
             [algorithm]\nname = \"zcdp-nfl\"\nrho = 1\neta = 1\n\
             [data]\nsource = \"folder\"\nfeatures = [{}]\ntarget = \"y\"\nscaling = \"none\"\n{bounds}bounds.y = {range}\n",
            table(&case["loss"]),
            table(&case["regularizer"]),
            names.join(", ")
        );
        let outcome = run(&text, folder.path().to_str());
        let central = outcome.central.unwrap_or_else(|e| panic!("{}: {e}", case["name"]));
        let expected: Vec<f64> = case["w"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        let tolerance = case["tolerance"].as_f64().unwrap();
        for (got, expected) in central.w.iter().zip(&expected) {
            assert!(
                (got - expected).abs() < tolerance,
                "{} ({}): {got} is not {expected}",
                case["name"],
                case["oracle"]
            );
        }
    }
}

/// With record weights it does not matter who holds a record; with client weights it does.
#[test]
fn record_weights_pool_the_records_whoever_holds_them() {
    let rows: Vec<String> = (0..40u32)
        .map(|j| {
            let x = f64::from(j * 7 % 40) / 20.0 - 1.0;
            format!("{x},{}", 0.7 * x + 0.1 + f64::from(j * j % 11) / 40.0 - 0.1)
        })
        .collect();
    let solved = |weights: &str, sizes: [usize; 3]| {
        let folder = tempfile::tempdir().unwrap();
        let mut rest = &rows[..];
        for (name, size) in ["a", "b", "c"].iter().zip(sizes) {
            let (own, others) = rest.split_at(size);
            std::fs::write(folder.path().join(format!("{name}.csv")), format!("x,y\n{}\n", own.join("\n"))).unwrap();
            rest = others;
        }
        let text = format!(
            "rounds = 1\nprivacy = \"off\"\n[problem]\nloss = \"huber\"\nthreshold = 0.05\nweights = \"{weights}\"\n\
             [graph]\nkind = \"complete\"\n[algorithm]\nname = \"zcdp-nfl\"\nrho = 1\neta = 1\n\
             [data]\nsource = \"folder\"\nfeatures = [\"x\"]\ntarget = \"y\"\nintercept = true\nbounds.x = [-1, 1]\nbounds.y = [-2, 2]\n"
        );
        run(&text, folder.path().to_str()).central.unwrap().w
    };
    let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let (even, uneven) = ([13, 13, 14], [3, 30, 7]);
    assert!(apart(&solved("records", even), &solved("records", uneven)) < 1e-7);
    assert!(apart(&solved("clients", even), &solved("clients", uneven)) > 1e-3, "the check can fail");
}

/// The paper's network without noise.
fn without_noise(problem: &str, rounds: u32, algorithm: &str) -> Outcome {
    run(
        &format!(
            "rounds = {rounds}\nprivacy = \"off\"\n[problem]\n{problem}\n\
             [data]\nsource = \"synthetic\"\nclients = 50\nrecords = 50\nfeatures = 8\nnoise = 0.1\n\
             [graph]\nkind = \"random\"\nmean_degree = 3\n[algorithm]\n{algorithm}\n"
        ),
        None,
    )
}

fn noise_free(problem: &str, rounds: u32, rho: f64, decay: &str) -> Outcome {
    without_noise(problem, rounds, &format!("name = \"zcdp-nfl\"\nrho = {rho}\neta = 0.2\ndecay = \"{decay}\""))
}

fn final_error(outcome: &Outcome) -> f64 {
    outcome.last().error.expect("the pooled problem is small").w.mean
}

#[test]
fn noise_free_ridge_and_elastic_net_reach_the_central_solution() {
    let ridge = noise_free("loss = \"squared\"\nregularizer = \"l2\"", 300, 1.0, "constant");
    assert!(final_error(&ridge) < 1e-15, "{:e}", final_error(&ridge));
    let net = "loss = \"squared\"\nregularizer = \"elastic-net\"\nlambda1 = \"paper\"\nlambda2 = 1";
    let net = noise_free(net, 300, 1.0, "constant");
    assert!(final_error(&net) < 1e-15, "{:e}", final_error(&net));
}

#[test]
fn noise_free_least_absolute_deviations_come_close() {
    let lad = noise_free("loss = \"absolute\"", 500, 3.0, "sqrt");
    assert!(final_error(&lad) < 2e-5, "{:e}", final_error(&lad));
    // With a constant step size the run oscillates around the solution.
    let oscillating = noise_free("loss = \"absolute\"", 500, 3.0, "constant");
    assert!(final_error(&oscillating) > 10.0 * final_error(&lad));
}

#[test]
fn every_loss_approaches_its_central_solution() {
    for (problem, limit) in [
        ("loss = \"huber\"\nthreshold = 1", 1e-12),
        ("loss = \"quantile\"\nlevel = 0.3", 1e-3),
        ("loss = \"logistic\"\nregularizer = \"l2\"\nlambda = 5", 1e-12),
        ("loss = \"hinge\"\nregularizer = \"l2\"\nlambda = 5", 1e-3),
    ] {
        let error = final_error(&noise_free(problem, 3000, 0.5, if limit > 1e-6 { "sqrt" } else { "constant" }));
        assert!(error < limit, "{problem}: {error:e}");
    }
}

/// With a budget so large that noise is negligible, a clipped run converges to the minimiser of the clipped losses, not of the
/// study's.
#[test]
fn clipped_runs_go_to_the_clipped_solution() {
    for (problem, clip) in [
        ("loss = \"squared\"\nregularizer = \"l2\"", 2.0),
        ("loss = \"logistic\"\nregularizer = \"l2\"\nlambda = 5", 0.5),
        ("loss = \"huber\"\nthreshold = 1", 0.7),
    ] {
        let outcome = run(
            &format!(
                "rounds = 2000\n[problem]\n{problem}\n\
                 [data]\nsource = \"synthetic\"\nclients = 10\nrecords = 30\nfeatures = 4\nnoise = 1.0\n\
                 [graph]\nkind = \"ring\"\n[algorithm]\nname = \"zcdp-nfl\"\nrho = 0.5\neta = 0.2\n\
                 [privacy]\nphi1 = 1e10\ndelta = 1e-5\nclip = {clip}\n"
            ),
            None,
        );
        let last = outcome.last();
        let (exact, clipped) = (last.error.unwrap().w.mean, last.surrogate_error.unwrap().w.mean);
        assert!(clipped < 1e-7, "{problem}: {clipped:e} from the clipped solution");
        assert!(exact > 100.0 * clipped, "{problem}: the clip made no difference ({exact:e})");
    }
}

/// P-ADMM without a clip is the closed form; with a clip it converges to the clipped solution too.
#[test]
fn p_admm_reaches_its_solutions() {
    let study = |name: &str, privacy: &str| {
        run(
            &format!(
                "rounds = 400\n{privacy}\n[problem]\nloss = \"squared\"\nregularizer = \"l2\"\n\
                 [data]\nsource = \"synthetic\"\nclients = 10\nrecords = 30\nfeatures = 4\nnoise = 1.0\n\
                 [graph]\nkind = \"ring\"\n[algorithm]\nname = \"{name}\"\nrho = 0.5\n"
            ),
            None,
        )
    };
    assert!(final_error(&study("p-admm", "privacy = \"off\"")) < 1e-15);
    let budget = "privacy = { phi1 = 1e10, delta = 1e-5, clip = 2.0 }";
    let clipped = study("p-admm", budget);
    assert!(clipped.last().surrogate_error.unwrap().w.mean < 1e-7);
    assert!(final_error(&clipped) > 1e-5);
    let reference = study("p-admm-unclipped", budget);
    assert!(final_error(&reference) < 1e-7);
    assert!(reference.notices().iter().any(|n| n.contains("NOT PRIVATE")));
    assert!(reference.epsilon.is_none() && reference.last().rho.is_none(), "what is not private has no epsilon");
}

fn free_rounds(problem: &str, rounds: u32, settings: &str) -> Outcome {
    without_noise(problem, rounds, &format!("name = \"free-rounds\"\naverage = 0\n{settings}"))
}

#[test]
fn noise_free_free_rounds_reach_the_central_solution_of_every_problem() {
    let steady = "data_rounds = 100\neta = 0.25";
    let shrinking = "data_rounds = 300\neta = 2\ndecay = \"inverse\"";
    for (problem, rounds, settings, limit) in [
        ("loss = \"squared\"\nregularizer = \"l2\"", 8000, steady, 1e-15),
        ("loss = \"squared\"\nregularizer = \"elastic-net\"\nlambda1 = \"paper\"\nlambda2 = 1", 8000, steady, 1e-15),
        ("loss = \"huber\"\nthreshold = 1", 8000, "data_rounds = 100\neta = 0.5\nmomentum = 0.3", 1e-14),
        ("loss = \"logistic\"\nregularizer = \"l2\"\nlambda = 5", 8000, "data_rounds = 100\neta = 2", 1e-12),
        ("loss = \"absolute\"", 6000, shrinking, 1e-4),
        ("loss = \"quantile\"\nlevel = 0.3", 6000, shrinking, 1e-2),
        (
            "loss = \"hinge\"\nregularizer = \"l2\"\nlambda = 5",
            6000,
            "data_rounds = 300\neta = 4\ndecay = \"inverse\"",
            1e-2,
        ),
    ] {
        let error = final_error(&free_rounds(problem, rounds, settings));
        assert!(error < limit, "{problem}: {error:e}");
    }
}

#[test]
fn the_prox_after_the_noise_makes_sparse_models() {
    let problem = "loss = \"squared\"\nregularizer = \"elastic-net\"\nlambda1 = 50\nlambda2 = 1";
    let settings = "data_rounds = 60\neta = 0.25";
    let with = free_rounds(problem, 3000, settings);
    let zeros = |w: &[f64]| w.iter().map(|v| v.abs() < 1e-7).collect::<Vec<_>>();
    let central = zeros(&with.central.as_ref().unwrap().w);
    assert!(central.contains(&true) && central.contains(&false), "{central:?}");
    // Exactly zero, and where the central solution is.
    let exact = |w: &[f64]| w.iter().map(|v| *v == 0.0).collect::<Vec<_>>();
    assert_eq!(exact(&with.model.w), central);
    let without = free_rounds(problem, 3000, &format!("{settings}\nprox = false"));
    assert!(!exact(&without.model.w).contains(&true), "a subgradient never gives exact zeros");
}

/// zCDP-NFL with `average` ends with the mean of the releases before the last round, at no further cost.
#[test]
fn zcdp_nfl_can_release_its_average() {
    let text = |rounds: u32, more: &str| {
        format!(
            "rounds = {rounds}\n[problem]\nloss = \"squared\"\n\
             [data]\nsource = \"synthetic\"\nclients = 6\nrecords = 30\nfeatures = 3\n[graph]\nkind = \"ring\"\n\
             [privacy]\nphi1 = 0.1\ndelta = 1e-5\nclip = 1\n[algorithm]\nname = \"zcdp-nfl\"\nrho = 0.5\neta = 0.2\n{more}"
        )
    };
    let plain = run(&text(40, ""), None);
    let averaged = run(&text(41, "average = 1.0\n"), None);
    assert_eq!(plain.last().rho, averaged.last().rho, "the last round is free");
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(close(&plain.average, &averaged.model.w));
    // Half of them: the later half.
    let half = run(&text(41, "average = 0.5\n"), None);
    let early = run(&text(20, ""), None);
    let twice = plain.average.iter().zip(&early.average);
    assert!(close(&half.model.w, &twice.map(|(all, early)| 2.0 * all - early).collect::<Vec<_>>()));
}

/// A study without noise on tables of three columns, two clients with the same records.
fn on_records(problem: &str, intercept: bool, record: impl Fn(f64, f64) -> [f64; 3]) -> Outcome {
    let text = format!(
        "rounds = 3\nprivacy = \"off\"\n[problem]\n{problem}\n[graph]\nkind = \"ring\"\n\
         [algorithm]\nname = \"zcdp-nfl\"\nrho = 1\neta = 0.1\n\
         [data]\nsource = \"folder\"\nintercept = {intercept}\nfeatures = [\"mg\", \"age\"]\ntarget = \"y\"\n\
         scaling = \"none\"\nbounds.mg = [-1e4, 1e4]\nbounds.age = [-1e4, 1e4]\nbounds.y = [-1, 1]\n"
    );
    let study = undertone_core::study::Study::parse(&text, "test").unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut state = 7u64;
    let mut number = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let rows: Vec<f64> = (0..40).flat_map(|_| record(number(), number())).collect();
    let table = || MemoryTable::from_rows(&["mg", "age", "y"], &rows).unwrap();
    let population = Population::from_tables(&study, vec![("a".into(), table()), ("b".into(), table())]).unwrap();
    undertone_sim::run_on(&study, population, &|_| {}).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// What a run says about its central solution.
fn central_notices(outcome: &Outcome) -> Vec<String> {
    let about = |notice: &String| notice.contains("central solution") || notice.contains("separable");
    outcome.notices().into_iter().filter(about).collect()
}

const EVERY_LOSS: [&str; 6] = [
    "loss = \"squared\"",
    "loss = \"absolute\"",
    "loss = \"huber\"\nthreshold = 0.5",
    "loss = \"quantile\"\nlevel = 0.3",
    "loss = \"hinge\"",
    "loss = \"logistic\"",
];

/// Labels that neither feature alone explains, nor both together.
fn label(mg: f64, age: f64) -> f64 {
    if mg + 0.5 * age + 0.8 * (17.0 * age).sin() > 0.0 { 1.0 } else { -1.0 }
}

#[test]
fn well_posed_problems_have_no_caveats() {
    for loss in EVERY_LOSS {
        for regularizer in ["", "\nregularizer = \"l1\"\nlambda = 0.01", "\nregularizer = \"l2\"\nlambda = 0.01"] {
            for intercept in [false, true] {
                // Units that differ by a factor of ten million are not collinear.
                let outcome = on_records(&format!("{loss}{regularizer}"), intercept, |mg, age| {
                    [1e3 * mg, 1e-4 * age, label(mg, age)]
                });
                assert_eq!(central_notices(&outcome), [""; 0], "{loss}{regularizer}");
                assert!(outcome.central.as_ref().unwrap().caveats.is_empty());
                assert!(outcome.last().error.is_some());
            }
        }
    }
}

#[test]
fn a_central_solution_that_is_zero_up_to_the_solver_is_noticed_as_zero() {
    let zero = ["the central solution is zero; normalised errors are left out"];
    for loss in EVERY_LOSS {
        for regularizer in ["regularizer = \"l1\"\nlambda = 1e3", "regularizer = \"l2\"\nlambda = 1e12"] {
            let outcome = on_records(&format!("{loss}\n{regularizer}"), false, |mg, age| [mg, age, label(mg, age)]);
            assert_eq!(central_notices(&outcome), zero, "{loss}\n{regularizer}");
            assert!(outcome.last().error.is_none() && outcome.final_errors.is_empty());
        }
        // A solution that is small but that the solver resolves is not zero.
        let outcome =
            on_records(&format!("{loss}\nregularizer = \"l2\"\nlambda = 1e6"), false, |a, b| [a, b, label(a, b)]);
        assert_eq!(central_notices(&outcome), [""; 0], "{loss}");
        assert!(outcome.last().error.is_some());
    }
    // Targets that are all equal, at zero or a rounding error away from it.
    for target in [0.0, 1e-17] {
        for loss in &EVERY_LOSS[..4] {
            let outcome = on_records(loss, true, |mg, age| [mg, age, target]);
            assert_eq!(central_notices(&outcome), zero, "{loss} {target}");
        }
    }
}

/// With such a weight the interior-point method may stop far from the solution, which is zero, and call it one.
#[test]
fn a_solver_that_ends_worse_than_zero_has_no_solution() {
    let notices: Vec<String> = EVERY_LOSS
        .iter()
        .flat_map(|loss| [-1.0, 1.0].map(|target| (loss, target)))
        .flat_map(|(loss, target)| {
            let problem = format!("{loss}\nregularizer = \"l1\"\nlambda = 1e12");
            let outcome = on_records(&problem, false, |mg, age| [mg, age, target]);
            assert!(outcome.last().error.is_none(), "{loss}: {:?}", outcome.central);
            central_notices(&outcome)
        })
        .collect();
    let worse = "no central solution: the central solver ended at a model that is worse than zero";
    assert!(notices.iter().any(|notice| notice.starts_with(worse)), "{notices:#?}");
}

#[test]
fn collinear_features_are_noticed_by_name_for_every_loss() {
    for loss in EVERY_LOSS {
        let notices = |more: &str, intercept: bool, record: fn(f64, f64) -> [f64; 3]| {
            central_notices(&on_records(&format!("{loss}{more}"), intercept, record)).join("\n")
        };
        let twice = |mg: f64, age: f64| [mg, -2.5 * mg, label(mg, age)];
        let expected = "the central solution is not unique (the features are collinear: mg, age); distances to it depend on the \
                        solver";
        assert_eq!(notices("", false, twice), expected);
        let constant = |mg: f64, age: f64| [mg, 3.0, label(mg, age)];
        assert!(notices("", true, constant).contains("collinear: age, intercept"), "{loss}");
        assert_eq!(
            notices("", false, constant),
            "",
            "{loss}: without an intercept a constant is a feature like others"
        );
        let empty = |mg: f64, age: f64| [0.0, age, label(mg, age)];
        assert!(notices("", true, empty).contains("is not unique (the feature mg is zero in every record)"), "{loss}");
        // A regulariser makes it unique: l2 always, l1 perhaps.
        assert_eq!(notices("\nregularizer = \"l2\"\nlambda = 0.01", true, twice), "", "{loss}");
        let l1 = notices("\nregularizer = \"l1\"\nlambda = 0.001", true, twice);
        assert!(l1.contains("may not be unique (the features are collinear: mg, age)"), "{loss}: {l1}");
    }
    let more_features = "rounds = 1\nprivacy = \"off\"\nproblem = { loss = \"squared\" }\ngraph = { kind = \"ring\" }\n\
                         algorithm = { name = \"zcdp-nfl\", rho = 1, eta = 0.1 }\n\
                         data = { source = \"synthetic\", clients = 2, records = 3, features = 7 }\n";
    let notices = central_notices(&run(more_features, None)).join("\n");
    assert!(notices.contains("is not unique (there are more features than records)"), "{notices}");
    assert_eq!(central_notices(&run(&more_features.replace("features = 7", "features = 6"), None)), [""; 0]);
}

#[test]
fn separable_records_are_noticed_for_the_logistic_loss() {
    let separable = |mg: f64, age: f64| [mg, age, (mg - 0.5 * age).signum()];
    let notices = |problem: &str, intercept, record: fn(f64, f64) -> [f64; 3]| {
        central_notices(&on_records(problem, intercept, record)).join("\n")
    };
    let logistic = "loss = \"logistic\"";
    let expected = "the records are separable: the central solution has no finite length unless what separates them is \
                    penalised; distances to it depend on the solver";
    assert_eq!(notices(logistic, false, separable), expected);
    let l2 = format!("{logistic}\nregularizer = \"l2\"\nlambda = 0.01");
    assert_eq!(notices(&l2, true, separable), "");
    assert_eq!(notices("loss = \"hinge\"", true, separable), "", "the hinge loss is zero at a finite model");
    // The intercept is not penalised, and alone separates records that all have one label.
    assert_eq!(notices(&l2, true, |mg, age| [mg, age, 1.0]), expected);
    assert_eq!(notices(&l2, false, |mg, age| [mg, age, 1.0]), "");
}

/// One record of one client against many of the other: with equal weight of all records the solution has the sign of the many, and
/// with equal weight of the clients it would be worse than zero.
#[test]
fn the_central_solution_is_judged_with_the_weights_of_the_problem() {
    let text = "rounds = 1\nprivacy = \"off\"\nproblem = { loss = \"squared\", weights = \"records\" }\n\
                graph = { kind = \"ring\" }\nalgorithm = { name = \"zcdp-nfl\", rho = 1, eta = 0.1 }\n\
                [data]\nsource = \"folder\"\nfeatures = [\"x\"]\ntarget = \"y\"\nscaling = \"none\"\n\
                bounds.x = [-1, 1]\nbounds.y = [-1, 1]\n";
    let study = undertone_core::study::Study::parse(text, "test").unwrap();
    let table = |count: usize, y: f64| MemoryTable::from_rows(&["x", "y"], &[1.0, y].repeat(count)).unwrap();
    let tables = vec![("one".into(), table(1, 1.0)), ("many".into(), table(99, -0.02))];
    let outcome = undertone_sim::run_on(&study, Population::from_tables(&study, tables).unwrap(), &|_| {}).unwrap();
    let central = outcome.central.unwrap();
    assert!((central.w[0] + 0.0098).abs() < 1e-12 && central.caveats.is_empty(), "{central:?}");
}
