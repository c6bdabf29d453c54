//! What to expect around a planned study.

use undertone_core::study::{BudgetSpec, Document, StudySpec};
use undertone_core::watch::{Cancel, Unwatched};
use undertone_plan::{self as plan, Curve, Outlook, Plan, PlanError};

/// A small study of tables; parts of it are replaced below.
const STUDY: &str = r#"
name = "recovery"
rounds = 30
algorithm = "auto"
[problem]
loss = "squared"
[data]
source = "folder"
records = 40
features = ["age", "ward"]
target = "days"
intercept = true
bounds.age = [0, 100]
bounds.days = [0, 365]
categories.ward = ["a", "b", "c"]
typical.age = [50, 15]
typical.days = [60, 30]
[plan]
clients = 6
[graph]
kind = "ring"
[privacy]
epsilon = 2
delta = 1e-5
"#;

fn spec(text: &str) -> StudySpec {
    Document::parse(text, "test").unwrap().spec().unwrap()
}

fn expected(text: &str) -> (Plan, Outlook) {
    let spec = spec(text);
    let plan = plan::plan(&spec, &Unwatched).unwrap();
    let outlook = plan::outlook(&spec, &plan, &Unwatched).unwrap();
    (plan, outlook)
}

fn values(curve: &Curve) -> Vec<f64> {
    curve.points.iter().map(|point| point.value).collect()
}

/// The study itself is on every curve, once, with the numbers of the plan.
fn assert_own_point(curve: &Curve, plan: &Plan, value: f64) {
    let own: Vec<_> = curve.points.iter().filter(|point| point.planned).collect();
    assert!(own.len() == 1 && own[0].value == value && own[0].regret == plan.recommended().regret, "{curve:?}");
    assert!(curve.points.windows(2).all(|pair| pair[0].value < pair[1].value), "{curve:?}");
}

/// With more of what helps, things do not get worse, but for what a short search and sixty sets cannot tell.
fn assert_helps(curve: &Curve) {
    let medians: Vec<f64> = curve.points.iter().map(|point| point.regret.median).collect();
    let worst: Vec<f64> = curve.points.iter().map(|point| point.regret.q90).collect();
    let no_worse = |pair: &[f64]| pair[1] <= 1.25 * pair[0] + 0.03;
    assert!(medians.windows(2).all(no_worse), "{medians:?}");
    assert!(medians[0] > medians[medians.len() - 1], "{medians:?}");
    assert!(worst[0] > worst[worst.len() - 1], "{worst:?}");
}

#[test]
fn more_epsilon_parties_and_records_help_and_the_study_itself_is_on_every_curve() {
    let (plan, outlook) = expected(STUDY);
    for (curve, own, all) in [
        (&outlook.epsilon, 2.0, &[0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0][..]),
        (&outlook.clients, 6.0, &[3.0, 5.0, 6.0, 9.0, 12.0]),
        (&outlook.records, 40.0, &[10.0, 20.0, 40.0, 80.0, 160.0]),
    ] {
        assert_eq!(values(curve), all);
        assert_own_point(curve, &plan, own);
        assert_helps(curve);
        assert!(curve.missing.is_empty(), "{curve:?}");
    }
    // The study trusts nobody; with trust it is better off.
    let trust: Vec<_> = outlook.trust.iter().map(|row| row.colluders).collect();
    assert_eq!(trust, [Some(1), Some(3), None]);
    assert_eq!(outlook.trust[2].regret, plan.recommended().regret);
    assert!(outlook.trust[0].regret.median < outlook.trust[2].regret.median, "{:?}", outlook.trust);
    assert!(outlook.trust[0].epsilon_alone.unwrap() > 2.0);
    assert!(outlook.no_trust.is_none());
}

#[test]
fn one_thread_and_several_give_the_same_page() {
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (plan, outlook) = pool.install(|| expected(&STUDY.replace("rounds = 30", "rounds = 12")));
        (plan::page(&plan, &outlook), outlook)
    };
    let (one, two) = (on(1), on(2));
    assert_eq!(one.1, two.1);
    assert_eq!(one.0, two.0);
}

/// The cells of all tables of a page, row by row.
fn rows(page: &str) -> Vec<Vec<String>> {
    let text = |cell: &'_ str| cell.split(['>', '<']).nth(1).unwrap_or_default().trim().to_string();
    page.split("<tr").skip(1).map(|row| row.split("<td").skip(1).map(text).collect()).collect()
}

#[test]
fn a_page_shows_the_numbers_of_the_plan_and_nothing_from_outside() {
    let text = STUDY.replace("epsilon = 2", "epsilon = 2\ncolluders = 1").replace("rounds = 30", "rounds = 12");
    let (plan, outlook) = expected(&text);
    let page = plan::page(&plan, &outlook);
    let rows = rows(&page);
    let found = |label: &str, skills: [String; 3]| {
        let expected = [[label.to_string()].as_slice(), &skills].concat();
        assert!(rows.iter().any(|row| row.len() >= 4 && row[..4] == expected), "{expected:?} is not in {rows:?}");
    };
    for curve in [&outlook.epsilon, &outlook.clients, &outlook.records] {
        for point in &curve.points {
            let mark = if point.planned { " (recommended)" } else { "" };
            found(&format!("{}{mark}", point.value), point.regret.skills());
        }
    }
    for row in &outlook.trust {
        let mark = if row.colluders == Some(1) { " (recommended)" } else { "" };
        found(&format!("{}{mark}", row.colluders.map_or("all".into(), |q| q.to_string())), row.regret.skills());
    }
    plan.rows.iter().for_each(|row| found(&row.title(), row.regret.skills()));
    assert_eq!(page.matches(">recommended</text>").count(), 4, "a mark on every chart");
    assert_eq!(page.matches("<desc").count(), 4, "every chart is told in words");
    let [worse, typical, better] = plan.recommended().regret.skills();
    assert!(page.contains(&format!("The expected skill is {worse} to {better}, typically {typical}.")));
    let alone = undertone_report::digits(plan.epsilon_alone().unwrap(), true);
    assert_eq!(page.matches(&format!("<td>{alone}")).count(), 1, "the second epsilon of the account");
    let digest = plan.recommended().study.digest().whole().map(|byte| format!("{byte:02x}")).concat();
    assert!(page.contains(&digest) && page.contains("default-src 'none'"));
    for word in ["http:", "https:", "src=", "href", "<script", "<link", "url(", "@import", "<iframe"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn names_from_a_study_mean_nothing_to_a_browser() {
    let evil = "<script>alert(1)</script>";
    let text = STUDY
        .replace("rounds = 30", "rounds = 8")
        .replace("name = \"recovery\"", "name = \"\\\"><img src=x onerror=alert(1)>\"")
        .replace("\"age\"", &format!("\"{evil}\""))
        .replace("bounds.age", &format!("bounds.\"{evil}\""))
        .replace("typical.age", &format!("typical.\"{evil}\""));
    let (plan, outlook) = expected(&text);
    let page = plan::page(&plan, &outlook);
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("&quot;&gt;&lt;img src=x"));
    assert!(!page.contains("<script") && !page.contains("<img"));
}

#[test]
fn a_study_with_masks_has_the_rows_of_its_trust() {
    let text = STUDY.replace("epsilon = 2", "epsilon = 2\ncolluders = 2").replace("clients = 6", "clients = 8");
    let (plan, outlook) = expected(&text);
    assert_eq!(outlook.trust, plan::trust(&spec(&text), &plan, &Unwatched).unwrap());
    let own = outlook.trust.iter().find(|row| row.colluders == Some(2)).unwrap();
    assert_eq!((own.regret, own.epsilon_alone), (plan.recommended().regret, plan.epsilon_alone()));
    assert_own_point(&outlook.clients, &plan, 8.0);
    assert_eq!(values(&outlook.clients), [4.0, 6.0, 8.0, 12.0, 16.0]);
}

#[test]
fn liars_fixed_algorithms_and_own_numbers_of_records_have_an_outlook() {
    let clients = "[client.a]\nrecords = 20\n[client.b]\nrecords = 40\n[client.c]\nrecords = 90\n[client.d]\nrecords = 30\n[client.e]\nrecords = 60\n";
    let text = STUDY
        .replace("algorithm = \"auto\"", "algorithm = { name = \"free-rounds\", data_rounds = 6, eta = 0.5 }")
        .replace("records = 40\n", "")
        .replace("[plan]\nclients = 6\n", clients)
        .replace("kind = \"ring\"", "kind = \"complete\"")
        + "clip = 1\n[robust]\nliars = 1\n";
    let (plan, outlook) = expected(&text);
    assert_eq!(values(&outlook.records), [12.2, 24.0, 48.0, 96.0, 192.0]);
    assert_own_point(&outlook.records, &plan, 48.0);
    // Half of five are three, of whom one may lie; the mix of records stays as it is.
    assert_eq!(values(&outlook.clients), [3.0, 4.0, 5.0, 8.0, 10.0]);
    assert_own_point(&outlook.epsilon, &plan, 2.0);
    assert!(outlook.trust.is_empty() && outlook.no_trust.unwrap().contains("shared noise cancels"));
}

#[test]
fn what_cannot_be_known_is_left_out_with_a_reason() {
    let edges = STUDY
        .replace("[plan]\nclients = 6\n", "")
        .replace("kind = \"ring\"", "kind = \"edges\"\nedges = [[\"x\", \"y\"], [\"y\", \"z\"]]");
    let (_, outlook) = expected(&edges.replace("rounds = 30", "rounds = 8"));
    assert!(!outlook.clients.is_known() && outlook.clients.missing[0].contains("lists its connections"));
    assert!(outlook.records.is_known() && outlook.epsilon.is_known());
    // Two parties: nobody is there to share noise with.
    let two = STUDY.replace("clients = 6", "clients = 2").replace("rounds = 30", "rounds = 8");
    let (_, outlook) = expected(&two);
    assert!(outlook.trust.is_empty() && outlook.no_trust.unwrap().contains("two parties"));
    assert_eq!(values(&outlook.clients), [2.0, 3.0, 4.0]);
    // A graph that some numbers of clients do not have.
    let regular =
        STUDY.replace("kind = \"ring\"", "kind = \"regular\"\ndegree = 3").replace("rounds = 30", "rounds = 8");
    let (_, outlook) = expected(&regular);
    assert_eq!(values(&outlook.clients), [6.0, 12.0]);
    assert_eq!(outlook.clients.missing.len(), 3, "{:?}", outlook.clients.missing);
    assert!(outlook.clients.missing[0].starts_with("5 parties: "), "{:?}", outlook.clients.missing);
    // Without privacy there is neither epsilon nor trust.
    let off = STUDY.replace("[privacy]\nepsilon = 2\ndelta = 1e-5\n", "").replace("rounds = 30", "rounds = 8");
    let (_, outlook) = expected(&format!("privacy = \"off\"\n{off}"));
    assert!(!outlook.epsilon.is_known() && outlook.trust.is_empty() && outlook.records.is_known());
}

#[test]
fn an_outlook_that_is_cancelled_ends_early() {
    let spec = spec(&STUDY.replace("rounds = 30", "rounds = 8"));
    let plan = plan::plan(&spec, &Unwatched).unwrap();
    let cancel = Cancel::default();
    cancel.cancel();
    assert!(matches!(plan::outlook(&spec, &plan, &cancel.watching(|_| ())), Err(PlanError::Cancelled)));
    assert_eq!(spec.privacy.unwrap().budget, BudgetSpec::Epsilon(2.0));
}
