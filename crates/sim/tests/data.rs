//! Data in every layout, in original units, and every way in which it can be wrong.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use undertone_core::study::{Study, StudySpec};
use undertone_sim::Outcome;
use undertone_sim::data::{Population, check_heads};

/// dose = 3 + 0.5 age + 2 [sex = m], exactly.
const ROWS: [(f64, &str, f64); 9] = [
    (20.0, "f", 13.0),
    (30.0, "m", 20.0),
    (45.0, "f", 25.5),
    (50.0, "m", 30.0),
    (61.0, "f", 33.5),
    (70.0, "m", 40.0),
    (33.0, "f", 19.5),
    (81.0, "m", 45.5),
    (90.0, "f", 48.0),
];

fn study_text(layout: &str) -> String {
    format!(
        "rounds = 20000\nprivacy = \"off\"\n[problem]\nloss = \"squared\"\n[graph]\nkind = \"complete\"\n\
         [algorithm]\nname = \"zcdp-nfl\"\nrho = 0.3\neta = 0.25\n[simulation]\nmetrics_every = 1000\n\
         [data]\n{layout}\nfeatures = [\"age\", \"sex\"]\ntarget = \"dose\"\nintercept = true\n\
         bounds.age = [0, 100]\nbounds.dose = [0, 60]\ncategories.sex = [\"f\", \"m\"]\n"
    )
}

fn try_run(text: &str, path: &Path) -> Result<Outcome, String> {
    let spec = StudySpec::parse(text, "study.toml").map_err(|e| e.to_string())?;
    let study = spec.data_path(path.to_str().unwrap()).check().map_err(|e| e.to_string())?;
    undertone_sim::run(&study, &|_| {}).map_err(|e| e.to_string())
}

fn csv(rows: &[(f64, &str, f64)], client: impl Fn(usize) -> String) -> String {
    let lines = rows.iter().enumerate().map(|(j, (age, sex, dose))| format!("{dose},{},{sex},{age},x\n", client(j)));
    format!("dose,clinic,sex,age,unused\n{}", lines.collect::<String>())
}

fn write_parquet(path: &Path, rows: &[(f64, &str, f64)]) {
    let schema = "message m { required int64 age; optional binary sex (UTF8); required double dose; }";
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let file = fs::File::create(path).unwrap();
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(parse_message_type(schema).unwrap()), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let ages: Vec<i64> = rows.iter().map(|r| r.0 as i64).collect();
    let present: Vec<i16> = rows.iter().map(|r| i16::from(!r.1.is_empty())).collect();
    let sexes: Vec<_> = rows.iter().filter(|r| !r.1.is_empty()).map(|r| r.1.into()).collect();
    let doses: Vec<f64> = rows.iter().map(|r| r.2).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&ages, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&sexes, Some(&present), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&doses, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

fn assert_finds_the_rule(outcome: &Outcome, clients: &[&str]) {
    let names: Vec<String> = (0..outcome.names.len()).map(|k| outcome.names.get(k).into_owned()).collect();
    assert_eq!(names, clients);
    let model = &outcome.model.original;
    assert_eq!(model.coefficients.iter().map(|c| c.0.as_str()).collect::<Vec<_>>(), ["age", "sex=m"]);
    let found = [model.intercept, model.coefficients[0].1, model.coefficients[1].1];
    for (found, expected) in found.into_iter().zip([3.0, 0.5, 2.0]) {
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }
}

#[test]
fn one_file_per_client_in_csv_and_parquet() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b.csv"), csv(&ROWS[..3], |_| "any".into())).unwrap();
    fs::write(folder.path().join("a.CSV"), csv(&ROWS[3..5], |_| "any".into())).unwrap();
    fs::write(folder.path().join(".notes.txt"), "hidden files are ignored").unwrap();
    write_parquet(&folder.path().join("c.parquet"), &ROWS[5..]);
    assert_finds_the_rule(&try_run(&study_text("source = \"folder\""), folder.path()).unwrap(), &["a", "b", "c"]);
}

#[test]
fn heads_can_be_checked_without_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b.csv"), "sex,age,dose\nthis row,has too few cells\n").unwrap();
    write_parquet(&folder.path().join("a.parquet"), &ROWS);
    let heads = |target: &str| {
        let text = study_text("source = \"folder\"").replace("dose", target);
        let spec = StudySpec::parse(&text, "test").unwrap().data_path(folder.path().to_str().unwrap());
        check_heads(&spec).map_err(|e| e.to_string())
    };
    assert_eq!(heads("dose").unwrap(), ["a", "b"]);
    let error = heads("days").unwrap_err();
    assert!(error.contains("a.parquet: has no column \"days\"; its columns are age, sex, dose"), "{error}");
}

#[test]
fn one_file_with_a_client_column() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.csv");
    fs::write(&file, csv(&ROWS, |j| ["west", "east", "north"][j % 3].into())).unwrap();
    let outcome = try_run(&study_text("source = \"column\"\nclient = \"clinic\""), &file).unwrap();
    assert_finds_the_rule(&outcome, &["east", "north", "west"]);
}

#[test]
fn one_file_split() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.csv");
    fs::write(&file, csv(&ROWS, |_| "any".into())).unwrap();
    let outcome = try_run(&study_text("source = \"split\"\nclients = 4"), &file).unwrap();
    assert_finds_the_rule(&outcome, &["1", "2", "3", "4"]);
    let error = try_run(&study_text("source = \"split\"\nclients = 10"), &file).unwrap_err();
    assert!(error.contains("9 records, too few for 10 clients"), "{error}");
}

#[test]
fn files_may_have_other_delimiters_and_decimal_signs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let write = |delimiter: &str, decimal: &str| {
        for (name, rows) in [("a", &ROWS[..4]), ("b", &ROWS[4..])] {
            let text = csv(rows, |_| "any".into()).replace(',', delimiter).replace('.', decimal);
            fs::write(path.join(format!("{name}.csv")), text).unwrap();
        }
        // Parquet knows its own numbers, whatever the CSV files are like.
        write_parquet(&path.join("c.parquet"), &ROWS);
    };
    write(",", ".");
    let plain = try_run(&study_text("source = \"folder\""), path).unwrap();
    assert_finds_the_rule(&plain, &["a", "b", "c"]);
    for (delimiter, decimal) in [(";", ","), ("\t", "."), ("\t", ","), ("|", ",")] {
        write(delimiter, decimal);
        let layout = format!("source = \"folder\"\ncsv.delimiter = {delimiter:?}\ncsv.decimal = {decimal:?}");
        assert_eq!(try_run(&study_text(&layout), path).unwrap().clients, plain.clients, "{delimiter:?} {decimal:?}");
        assert!(try_run(&study_text("source = \"folder\""), path).is_err(), "the format made no difference");
    }
    // Words keep their commas, and so do the names of clients.
    let file = path.join("all.csv");
    fs::write(&file, "clinic;sex;age;dose\na,1;3,5;20,5;13\nb,2;m;30;20\nb,2;3,5;61;33,5\n").unwrap();
    let layout = "source = \"column\"\nclient = \"clinic\"\ncsv = { delimiter = \";\", decimal = \",\" }";
    let text = study_text(layout).replace("[\"f\", \"m\"]", "[\"3,5\", \"m\"]");
    let outcome = try_run(&text, &file).unwrap();
    assert_eq!([0, 1].map(|k| outcome.names.get(k).into_owned()), ["a,1", "b,2"]);
    fs::write(&file, "clinic;sex;age;dose\na;m;20.5;13\nb;m;30;20\n").unwrap();
    let error = try_run(&text, &file).unwrap_err();
    assert!(error.contains("all.csv:2: column \"age\": the cell is not a number with decimal comma"), "{error}");
    fs::write(&file, "clinic;sex;age;dose\na;m;20,5;13\nb;m;30;20\n").unwrap();
    let error = try_run(&text.replace("decimal = \",\"", "decimal = \".\""), &file).unwrap_err();
    assert!(error.contains("the cell is not a number") && error.contains("set data.csv.decimal = \",\""), "{error}");
}

#[test]
fn labels_may_be_words_or_bounds() {
    let folder = tempfile::tempdir().unwrap();
    for (column, range) in [("sex", "categories.sex = [\"f\", \"m\"]"), ("ill", "bounds.ill = [0, 1]")] {
        let file = folder.path().join(format!("{column}.csv"));
        fs::write(
            &file,
            format!(
                "age,{column}\n1,{0}\n2,{0}\n8,{1}\n9,{1}\n",
                if column == "sex" { "f" } else { "0" },
                if column == "sex" { "m" } else { "1" }
            ),
        )
        .unwrap();
        let text = format!(
            "rounds = 50\nprivacy = \"off\"\n[problem]\nloss = \"logistic\"\nregularizer = \"l2\"\nlambda = 0.01\n[graph]\nkind = \"ring\"\n\
             [algorithm]\nname = \"zcdp-nfl\"\nrho = 0.3\neta = 1\n\
             [data]\nsource = \"split\"\nclients = 2\nfeatures = [\"age\"]\ntarget = \"{column}\"\nintercept = true\n\
             bounds.age = [0, 10]\n{range}\n"
        );
        let outcome = try_run(&text, &file).unwrap();
        let model = &outcome.model.original;
        let score = |age: f64| model.intercept + model.coefficients[0].1 * age;
        assert!(score(1.5) < 0.0 && score(8.5) > 0.0);
        let json = outcome.model.to_json(&outcome.study, &Default::default());
        assert_eq!(json["labels"][1], if column == "sex" { "m" } else { "1" });
        if column == "ill" {
            fs::write(&file, "age,ill\n1,0.5\n2,1\n").unwrap();
            let error = try_run(&text, &file).unwrap_err();
            assert!(error.contains("ill.csv:2") && error.contains("the cell is not a label"), "{error}");
        }
    }
}

#[test]
fn bad_cells_are_named_by_file_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.csv");
    for (cells, words) in [
        ("13,f,nan", &["all.csv:3", "\"age\"", "finite"][..]),
        ("13,f,inf", &["all.csv:3", "\"age\"", "finite"]),
        ("13,f,", &["all.csv:3", "\"age\"", "empty"]),
        ("13,,20", &["all.csv:3", "\"sex\"", "empty"]),
        ("13,f,twenty", &["all.csv:3", "\"age\"", "the cell is not a number"]),
        ("13,f,101", &["all.csv:3", "\"age\"", "[0, 100]", "clamp"]),
        ("-1,f,20", &["all.csv:3", "\"dose\"", "[0, 60]"]),
        ("13,x,20", &["all.csv:3", "\"sex\"", "not in the public list"]),
        ("13,f", &["all.csv:3", "2 cells", "head has 3"]),
    ] {
        fs::write(&file, format!("dose,sex,age\n30,m,50\n{cells}\n")).unwrap();
        let error = try_run(&study_text("source = \"split\"\nclients = 2"), &file).unwrap_err();
        for word in words {
            assert!(error.contains(word), "{cells}: \"{error}\" does not contain \"{word}\"");
        }
        assert!(!error.contains('\n'));
    }
}

#[test]
fn lines_are_counted_as_an_editor_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.csv");
    for (text, line) in [
        ("dose,sex,age\r\n30,m,50\r\n13,f,x\r\n", 3),
        ("dose,sex,age\r\n13,f,x\r\n", 2),
        ("dose,sex,age\n30,m,50\n\n\n13,f,x\n", 5),
        ("dose,sex,age\n\"3\n0\",m,50\n", 2),
        ("dose,sex,age,note\n30,m,50,\"two\nlines\"\n13,f,x,\n", 4),
    ] {
        fs::write(&file, text).unwrap();
        let error = try_run(&study_text("source = \"split\"\nclients = 2"), &file).unwrap_err();
        assert!(error.contains(&format!("all.csv:{line}: ")), "{text:?}: {error}");
    }
}

#[test]
fn values_are_clamped_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.csv");
    let text = study_text("source = \"split\"\nclients = 2\noutside = \"clamp\"");
    fs::write(&file, "dose,sex,age\n30,m,100\n13,f,20\n20,f,0\n").unwrap();
    let inside = try_run(&text, &file).unwrap();
    fs::write(&file, "dose,sex,age\n30,m,1e9\n13,f,20\n20,f,-7\n").unwrap();
    assert_eq!(inside.clients, try_run(&text, &file).unwrap().clients);
}

#[test]
fn bad_files_are_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let by_folder = study_text("source = \"folder\"");
    let refused = |text: &str, path: &Path, words: &[&str]| {
        let error = try_run(text, path).unwrap_err();
        for word in words {
            assert!(error.contains(word), "\"{error}\" does not contain \"{word}\"");
        }
        assert!(!error.contains('\n'), "{error}");
    };
    refused(&by_folder, &path.join("nowhere"), &["nowhere", "must be a folder"]);
    refused(&by_folder, path, &["no .csv or .parquet files"]);
    for other in ["c.tsv", "c.csv.gz"] {
        fs::write(path.join(other), "x").unwrap();
        refused(&by_folder, path, &[other, "neither a .csv nor a .parquet"]);
        fs::remove_file(path.join(other)).unwrap();
    }
    fs::write(path.join("a.csv"), csv(&ROWS, |_| "any".into())).unwrap();
    refused(&by_folder, path, &["1 client", "at least two"]);
    fs::write(path.join("b.csv"), "dose,sex,age\n").unwrap();
    refused(&by_folder, path, &["b.csv", "no records"]);
    fs::write(path.join("b.csv"), "").unwrap();
    refused(&by_folder, path, &["b.csv", "is empty"]);
    fs::write(path.join("b.csv"), "dose;sex;age\n1;f;2\n").unwrap();
    refused(&by_folder, path, &["b.csv", "no column \"age\"", "set data.csv.delimiter = \";\""]);
    fs::write(path.join("b.csv"), "dose\tsex\tage\n1\tf\t2\n").unwrap();
    refused(&by_folder, path, &["b.csv", "set data.csv.delimiter = \"\\t\""]);
    let semicolons = study_text("source = \"folder\"\ncsv.delimiter = \";\"");
    refused(&semicolons, path, &["a.csv", "set data.csv.delimiter = \",\""]);
    fs::write(path.join("b.csv"), "dose,sex,years\n1,f,2\n").unwrap();
    refused(&by_folder, path, &["b.csv", "no column \"age\"", "dose, sex, years"]);
    fs::write(path.join("b.csv"), "dose,sex,age,age\n1,f,2,3\n").unwrap();
    refused(&by_folder, path, &["b.csv", "two columns named \"age\""]);
    fs::write(path.join("b.csv"), b"dose,sex,age\n1,\xff,2\n").unwrap();
    refused(&by_folder, path, &["b.csv:2", "UTF-8"]);
    fs::remove_file(path.join("b.csv")).unwrap();
    fs::write(path.join("a.parquet"), "this is not parquet").unwrap();
    refused(&by_folder, path, &["a.parquet", "second file for client \"a\""]);
    fs::rename(path.join("a.parquet"), path.join("p.parquet")).unwrap();
    refused(&by_folder, path, &["p.parquet", "cannot be read as Parquet"]);
    write_parquet(&path.join("p.parquet"), &[(20.0, "f", 13.0), (30.0, "", 20.0)]);
    refused(&by_folder, path, &["p.parquet: row 2", "\"sex\"", "empty"]);
    write_parquet(&path.join("p.parquet"), &[(20.0, "f", f64::NAN)]);
    refused(&by_folder, path, &["p.parquet: row 1", "\"dose\"", "finite"]);
    let by_column = study_text("source = \"column\"\nclient = \"clinic\"");
    refused(&by_column, &path.join("none.csv"), &["none.csv", "cannot be opened"]);
    refused(&by_column, path, &["is a folder"]);
    fs::write(path.join("c.csv"), csv(&ROWS, |j| if j == 4 { "  ".into() } else { "x".into() })).unwrap();
    refused(&by_column, &path.join("c.csv"), &["c.csv:6", "\"clinic\"", "must name the client"]);
}

/// Clients with the same data agree with each other while they diverge together: their objective shows it.
#[test]
fn divergence_in_agreement_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.csv", "b.csv"] {
        fs::write(folder.path().join(name), "x,y\n1,2\n2,4\n3,6\n").unwrap();
    }
    let text = "rounds = 16\nprivacy = \"off\"\n[problem]\nloss = \"squared\"\n[graph]\nkind = \"complete\"\n\
        [algorithm]\nname = \"zcdp-nfl\"\nrho = 1e-12\neta = 1e12\n\
        [data]\nsource = \"folder\"\nfeatures = [\"x\"]\ntarget = \"y\"\nbounds.x = [0, 9]\nbounds.y = [0, 9]\n";
    let error = try_run(text, folder.path()).unwrap_err();
    assert!(error.contains("diverged"), "{error}");
}

const STAND_IN: &str = r#"
rounds = 20
[data]
source = "stand-in"
clients = ["north", "south", "west"]
records = [30, 40, 50]
features = ["age", "ward"]
target = "days"
intercept = true
bounds.age = [0, 100]
bounds.days = [0, 365]
categories.ward = ["a", "b", "c"]
[graph]
kind = "complete"
[algorithm]
name = "free-rounds"
data_rounds = 5
eta = 0.3
[privacy]
epsilon = 5
delta = 1e-5
clip = 1
"#;

#[test]
fn stand_ins_have_the_shape_that_is_public() {
    for loss in ["squared", "logistic"] {
        let text = format!("{STAND_IN}[problem]\nloss = \"{loss}\"\n");
        let study = Study::parse(&text, "test").unwrap();
        assert_eq!(Study::parse(&study.to_toml(), "again").unwrap().to_toml(), study.to_toml());
        let population = Population::load(&study, 0).unwrap();
        let again = Population::load(&study, 1).unwrap();
        let (mut x, mut other) = (vec![0.0f64; 4], vec![0.0; 4]);
        let mut targets = Vec::new();
        for (k, (name, count)) in [("north", 30), ("south", 40), ("west", 50)].into_iter().enumerate() {
            assert_eq!(population.names().get(k), name);
            let records = population.records(k);
            assert_eq!(records.len(), count);
            for j in 0..count {
                let (y, _) = records.read(j, &mut x);
                targets.push(y);
                assert!(x[0].abs() <= 1.0 && y.abs() <= 1.0, "inside the public bounds");
                assert!([x[1], x[2]].iter().all(|v| *v == 0.0 || *v == 1.0) && x[1] + x[2] <= 1.0 && x[3] == 1.0);
                again.records(k).read(j, &mut other);
            }
            assert_ne!(x, other, "every trial draws its own");
        }
        let labels = targets.iter().all(|y| y.abs() == 1.0);
        assert_eq!(labels, loss == "logistic");
        assert!(targets.iter().any(|y| *y > 0.0) && targets.iter().any(|y| *y < 0.0));
        let outcome = undertone_sim::run(&study, &|_| {}).unwrap();
        assert!(!outcome.notices().iter().any(|n| n.contains("treat this folder like the records")), "there are none");
    }
}

#[test]
fn stand_ins_are_around_what_is_typical() {
    let known = "[data]\ntypical.age = [60, 5]\ntypical.days = [20, 10]\ntypical.ward = [0.8, 0.1, 0.1]\n";
    let text =
        format!("{STAND_IN}[problem]\nloss = \"squared\"\n").replace("[data]\n", known).replace("[30, 40, 50]", "1000");
    let population = Population::load(&Study::parse(&text, "test").unwrap(), 0).unwrap();
    let mut x = vec![0.0f64; 4];
    let (mut sum, mut squares) = ([0.0; 5], 0.0);
    for k in 0..3 {
        for j in 0..1000 {
            let (y, _) = population.records(k).read(j, &mut x);
            sum.iter_mut().zip([x[0], x[1], x[2], x[3], y]).for_each(|(sum, v)| *sum += v / 3000.0);
            squares += x[0] * x[0] / 3000.0;
        }
    }
    // In units of the typical spreads; 0.07 is about four standard errors.
    assert!(sum[0].abs() < 0.07 && (squares - 1.0).abs() < 0.1, "{sum:?} {squares}");
    assert!(sum[1].abs() < 0.07 && sum[2].abs() < 0.07, "{sum:?}");
    assert!(sum[4].abs() < 1.0, "the target is not far off either: {sum:?}");
}

#[test]
fn the_size_of_w_can_vary_from_draw_to_draw() {
    let text = |spread: &str| {
        format!(
            "rounds = 1\nprivacy = \"off\"\nproblem = {{ loss = \"squared\" }}\ngraph = {{ kind = \"ring\" }}\n\
             algorithm = {{ name = \"zcdp-nfl\", rho = 1, eta = 1 }}\n\
             data = {{ source = \"synthetic\", clients = 2, records = 1, features = 3, noise = 0{spread} }}\n"
        )
    };
    let first_target = |spread: &str, trial: u32| {
        let population = Population::load(&Study::parse(&text(spread), "test").unwrap(), trial).unwrap();
        population.records(0).read(0, &mut [0.0; 3]).0
    };
    assert_eq!(first_target("", 0), first_target(", spread = 1", 0), "the paper's law, bit for bit");
    // Without noise y = x.w, and x does not change: the factor can be read off.
    let factor = |trial| first_target(", spread = 2", trial) / first_target("", trial);
    let shares: Vec<f64> = (0..400).map(|trial| factor(trial).ln() / 2f64.ln()).collect();
    assert!(shares.iter().all(|share| share.abs() <= 1.0 + 1e-9));
    // Uniform on [-1, 1]: mean 0, mean square 1/3, with standard errors of 0.029 and 0.015; six of each.
    let mean = |f: fn(f64) -> f64| shares.iter().map(|share| f(*share)).sum::<f64>() / 400.0;
    assert!(mean(|s| s).abs() < 0.18 && (mean(|s| s * s) - 1.0 / 3.0).abs() < 0.09);
}

#[test]
fn features_can_be_ill_conditioned() {
    let text = |condition: &str| {
        format!(
            "rounds = 1\nprivacy = \"off\"\nproblem = {{ loss = \"squared\" }}\ngraph = {{ kind = \"ring\" }}\n\
             algorithm = {{ name = \"zcdp-nfl\", rho = 1, eta = 1 }}\n\
             data = {{ source = \"synthetic\", clients = 4, records = 5000, features = 3{condition} }}\n"
        )
    };
    let variances = |condition: &str| -> Vec<f64> {
        let population = Population::load(&Study::parse(&text(condition), "test").unwrap(), 0).unwrap();
        let mut x = vec![0.0; 3];
        let mut squares = vec![0.0; 3];
        for k in 0..4 {
            for j in 0..5000 {
                population.records(k).read(j, &mut x);
                squares.iter_mut().zip(&x).for_each(|(s, x)| *s += x * x / 20_000.0);
            }
        }
        squares
    };
    // The mean of 20,000 squares of normals has a relative standard error of 1%; 6% is six of them.
    for (condition, expected) in [("", [1.0, 1.0, 1.0]), (", condition = 100", [1.0, 0.1, 0.01])] {
        for (got, expected) in variances(condition).iter().zip(expected) {
            assert!((got / expected - 1.0).abs() < 0.06, "{got} is not {expected}");
        }
    }
}
