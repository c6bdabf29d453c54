//! `undertone plan`: the cost and the expected error of a study, without reading any records.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use undertone_core::closing::normal_range;
use undertone_core::study::{Document, Study, StudySpec};
use undertone_core::watch::Share;
use undertone_plan::{self as plan, Outlook, Plan, Row, TrustRow};
use undertone_report::bytes;
use undertone_sim::burden::burden;
use undertone_sim::ranks::{Ranks, helped_by};

use crate::ranks;
use crate::{Failure, digits, planning, print, study};

#[derive(clap::Args)]
pub struct Arguments {
    /// The study; its algorithm may be "auto"
    study: PathBuf,

    /// Where to write the recommended study; without it the first free one of planned.toml, planned-2.toml, ... beside the study
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Replace one key of the study, such as privacy.epsilon=2 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Leave out what trust is worth, which takes most of the time of a study with privacy.colluders
    #[arg(long, conflicts_with = "page")]
    quick: bool,

    /// Also write a page for those who decide: what to expect with more or less epsilon, parties, records and trust
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,

    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments, ranks: &Rc<dyn Ranks>) -> Result<(), Failure> {
    let (document, out) = ranks::agree(&**ranks, read(arguments))?;
    let asked = ranks::agree(&**ranks, document.spec().map(|spec| spec.to_toml()).map_err(Failure::input))?;
    ranks::same_everywhere(
        &**ranks,
        &format!("{asked}\nquick: {}, page: {}", arguments.quick, arguments.page.is_some()),
    )?;
    let (plan, trust, outlook) = helped_by(ranks, || find(arguments, &document))?;
    let written = if ranks.is_first() { write(arguments, &out, &plan, outlook.as_ref()) } else { Ok(()) };
    ranks::agree(&**ranks, written)?;
    let page = arguments.page.as_deref().zip(outlook.as_ref());
    print(&if arguments.json { json(&plan, &trust, &out, page) } else { report(&plan, &trust, &out, page) })
}

/// What is planned, and where it goes.
fn read(arguments: &Arguments) -> Result<(Document, PathBuf), Failure> {
    let mut document = study::document(&arguments.study, &arguments.set)?;
    let out = arguments.out.clone().unwrap_or_else(|| free_file(&arguments.study));
    if out.exists() {
        return Err(Failure::input(format!("{}: there is already a file; choose another name", out.display())));
    }
    if let Some(page) = &arguments.page {
        check_free(page, &out)?;
    }
    let data = document.spec().map_err(Failure::input)?.data;
    // Whoever plans need not have the data.
    if let Some(path) = study::own_path(Some(&arguments.study), &data).filter(|path| path.exists()) {
        study::check_files(&mut document, &path)?;
    }
    study::tell_oddities(&document);
    Ok((document, out))
}

/// The plan, what trust is worth, and what a page of it says.
fn find(arguments: &Arguments, document: &Document) -> Result<(Plan, Vec<TrustRow>, Option<Outlook>), Failure> {
    let spec = document.spec().map_err(Failure::input)?;
    let masked = spec.privacy.is_some_and(|privacy| privacy.colluders.is_some());
    let planned = planning(|watch| {
        let first = if arguments.page.is_some() { 0.3 } else { 1.0 };
        let plan = plan::plan_document(document, &Share { whole: watch, from: 0.0, to: first })?;
        let rest = Share { whole: watch, from: first, to: 1.0 };
        let outlook = arguments.page.is_some().then(|| plan::outlook(&spec, &plan, &rest)).transpose()?;
        let trust = match &outlook {
            _ if !masked || arguments.quick => Vec::new(),
            Some(outlook) => outlook.trust.clone(),
            None => plan::trust(&spec, &plan, watch)?,
        };
        Ok((plan, trust, outlook))
    });
    planned.map_err(study::failed)
}

/// The recommended study, and the page if one is asked for.
fn write(arguments: &Arguments, out: &Path, plan: &Plan, outlook: Option<&Outlook>) -> Result<(), Failure> {
    let study = found_from_anywhere(&plan.recommended().study, arguments)?.to_toml();
    let mut file = OpenOptions::new().write(true).create_new(true).open(out).map_err(|e| unwritten(out, e))?;
    file.write_all(study.as_bytes()).map_err(|e| unwritten(out, e))?;
    if let Some((path, outlook)) = arguments.page.as_deref().zip(outlook) {
        write_whole(path, &plan::page(plan, outlook)).map_err(|e| unwritten(path, e))?;
    }
    Ok(())
}

fn unwritten(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::AlreadyExists => Failure::input(format!("{}: there is already a file", path.display())),
        _ => Failure::input(format!("{}: cannot be written ({error}); check the folder", path.display())),
    }
}

/// Whether a page can be written to a place, as far as that can be known before it is made, which takes a while.
fn check_free(page: &Path, out: &Path) -> Result<(), Failure> {
    let refuse = |reason: &str| Err(Failure::input(format!("{}: {reason}", page.display())));
    let folder = page.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match () {
        // A link that leads nowhere is a file too.
        () if page.symlink_metadata().is_ok() => refuse("there is already a file; choose another name"),
        () if page.file_name().is_none() => refuse("is no name of a file; write one such as plan.html"),
        () if !folder.is_dir() => {
            refuse("cannot be written, because there is no such folder; make it, or choose another")
        }
        () if std::path::absolute(page).ok() == std::path::absolute(out).ok() => {
            refuse("is where the recommended study goes; choose another name")
        }
        () => Ok(()),
    }
}

/// Writes a new file so that a reader sees all of it or nothing, and nothing that is there is replaced.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let new = path.with_file_name(name);
    // An earlier run may have been stopped while it wrote.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| {
        // Between this look and the next line nobody is expected: the name was free before planning began.
        match path.symlink_metadata() {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(&new, path),
        }
    });
    if written.is_err() {
        // What is left of it helps nobody; the first error is the one to tell.
        let _ = fs::remove_file(&new);
    }
    written
}

/// A study that is written elsewhere must still find its data.
fn found_from_anywhere(planned: &Study, arguments: &Arguments) -> Result<StudySpec, Failure> {
    let spec = planned.spec().clone();
    if let (Some(_), Some(path)) = (&arguments.out, study::own_path(Some(&arguments.study), &spec.data)) {
        let path = std::path::absolute(path).map_err(|e| Failure::input(format!("data.path: {e}")))?;
        return Ok(spec.data_path(path.display().to_string()));
    }
    Ok(spec)
}

/// The first of planned.toml, planned-2.toml, ... beside the study that is free.
fn free_file(study: &Path) -> PathBuf {
    let folder = study.parent().unwrap_or(Path::new(""));
    let names = std::iter::once("planned.toml".to_string()).chain((2..).map(|i| format!("planned-{i}.toml")));
    names.map(|name| folder.join(name)).find(|path| !path.exists()).expect("the numbers do not end")
}

fn report(plan: &Plan, trust: &[TrustRow], out: &Path, page: Option<(&Path, &Outlook)>) -> String {
    let study = &plan.recommended().study;
    let (clients, features) = (plan.graph.clients(), study.features());
    let degrees: Vec<usize> = (0..clients).map(|k| plan.graph.degree(k)).collect();
    let range = |values: &[usize]| match (values.iter().min(), values.iter().max()) {
        (Some(low), Some(high)) if low != high => format!("{low} to {high}"),
        (Some(one), _) => one.to_string(),
        _ => String::new(),
    };
    let spectrum = plan.spectrum;
    let mut text = format!(
        "{}: {clients} clients with {} records of {features} features, {} rounds; no record was read\n\n\
         graph      {} edges, {} neighbours each, connected\n\
         \x20          Phi_min(L-) {:.4}, Phi_max(L-) {:.4}, Phi_min(L+) {:.4}, Phi_max(L+) {:.4}\n\
         \x20          Metropolis weights: other eigenvalues {:.4} to {:.4}\n",
        study.name(),
        range(&plan.records),
        study.rounds(),
        plan.graph.edges(),
        range(&degrees),
        spectrum.laplacian_min,
        spectrum.laplacian_max,
        spectrum.signless_min,
        spectrum.signless_max,
        spectrum.metropolis.0,
        spectrum.metropolis.1,
    );
    if let Some(bound) = plan.bound() {
        let factor = spectrum.noise_factor();
        let _ = writeln!(
            text,
            "           the paper's bound multiplies the noise by {factor:.4}; by it, noise adds {bound:.3e} to the objective of \
             zcdp-nfl below"
        );
    }
    match (plan.spent(), study.privacy()) {
        (Some((rho, epsilons)), Some(privacy)) => {
            let by: Vec<String> = epsilons.iter().map(|(a, e)| format!("{} {}", a.name(), digits(*e, true))).collect();
            let _ = writeln!(
                text,
                "budget     rho {}; epsilon at delta {:e} by accountant: {} (the study counts by {})",
                digits(rho.get(), true),
                privacy.delta().get(),
                by.join(", "),
                privacy.accountant().name()
            );
            if privacy.colluders().is_none() && clients > 2 {
                text += "           whoever colludes; if at most some of the others do, privacy.colluders gives the same epsilon with less noise\n";
            }
            if let Some(colluders) = privacy.colluders() {
                let _ = writeln!(
                    text,
                    "           as long as at most {colluders} of the {clients} clients pool what they know; if all others of a client do: epsilon {}",
                    plan.epsilon_alone().map_or("without bound".into(), |alone| digits(alone, true))
                );
            }
        }
        _ => text += "budget     none: privacy is off, and nothing below is private\n",
    }
    let (frame, all) = plan.bytes();
    let _ = writeln!(
        text,
        "messages   {frame} bytes to each neighbour in each round, before encryption and headers; at most {} in all from one client",
        bytes(all)
    );
    text += &intervals(study, clients);
    text += &expectation(plan);
    text += &worth(plan, trust);
    let each: Vec<usize> = (0..clients).map(|k| plan.records[k % plan.records.len()]).collect();
    if let Some(burden) = study.privacy().and_then(|_| burden(&each, study.spec())) {
        let _ = writeln!(text, "\n{}", burden.sentence(|k| plan.names.get(k).into_owned(), &each));
    }
    text += &noise(plan, plan.recommended());
    let _ = write!(text, "\nwritten to {}: the study with {}", out.display(), plan.recommended().algorithm);
    if let Some((page, _)) = page {
        let _ =
            write!(text, "\nwritten to {}: what to expect, for those who decide; open it in a browser", page.display());
    }
    text
}

/// How wide intervals will be.
fn intervals(study: &Study, clients: usize) -> String {
    let Some(expected) = study.expected_error(clients) else { return String::new() };
    let level = study.spec().inference.unwrap_or(0.95);
    let Some((all, sampling)) = expected else {
        return "intervals  none: the noise of the second derivatives would be as large as they are; more records, a larger epsilon, masks, typical values or \
                fewer features would help\n"
            .into();
    };
    let unit = if study.spec().loss.is_classification() { "in log odds" } else { "in spreads of the target" };
    let z = normal_range(level);
    format!(
        "intervals  {:.0}%: a coefficient plus or minus about {} {unit} for a spread of its feature, {:.1} times as wide as without privacy\n",
        100.0 * level,
        crate::short(z * all),
        all / sampling
    )
}

/// What to expect of each algorithm, in words and numbers.
fn expectation(plan: &Plan) -> String {
    let regret = plan.recommended().regret;
    let [worse, typical, better] = regret.skills();
    let mut text = format!(
        "\nexpected skill {worse} to {better}, typically {typical}: the part of what pooled data would teach that this study will learn\n\
         (1: as good as a model from pooled data without privacy; 0: no better than the mean of the target). {}\n\n\
         {}on new records of {} made-up data sets of this shape that no parameter was chosen on, one in ten below the first and above the last:\n\n\
         \x20                                 skill\n",
        regret.verdict(),
        match plan.losses {
            0 => "",
            _ => "planned for clients that are lost: they are in every second set below\n",
        },
        plan.sets()
    );
    for row in &plan.rows {
        let [worse, typical, better] = row.regret.skills();
        let parameters = row.parameters.text();
        let _ = writeln!(text, "{:31} {worse:>5} {typical:>5} {better:>5}   {parameters}", row.title());
    }
    text
}

/// What trust is worth.
fn worth(plan: &Plan, rows: &[TrustRow]) -> String {
    let clients = plan.graph.clients();
    if rows.is_empty() {
        return String::new();
    }
    let losses = plan.losses;
    let mut text = format!(
        "\nwhat trust is worth: if at most so many of the {clients} clients pool what they know{}\n\n\
         colluders           skill         median regret  epsilon if all others collude\n",
        match losses {
            0 => String::new(),
            1 => ", and one client is lost on the way in half of the sets".into(),
            some => format!(", and {some} clients are lost on the way in half of the sets"),
        }
    );
    let stated = plan.recommended().study.privacy().and_then(|privacy| privacy.colluders());
    for TrustRow { colluders, regret, epsilon_alone } in rows {
        let [worse, typical, better] = regret.skills();
        let who = colluders.map_or("all".into(), |q| q.to_string());
        let _ = writeln!(
            text,
            "{who:<15}{worse:>5} {typical:>5} {better:>5}   {:<14} {}{}",
            format!("{:.4}", regret.median),
            epsilon_alone.map_or("without bound".into(), |epsilon| digits(epsilon, true)),
            if *colluders == stated { "   this study" } else { "" }
        );
    }
    text
}

/// Budget and noise of a few rounds.
fn noise(plan: &Plan, row: &Row) -> String {
    let rounds = plan.noise(row);
    let (Some(first), Some(last)) = (rounds.first(), rounds.last()) else { return String::new() };
    let masked = first.masks > 0.0;
    let mut text = format!(
        "\nnoise of {}: {} of {} rounds are data rounds and are noised, the others cost nothing\n\
         \x20 round     phi          sigma per coordinate{}\n",
        row.algorithm,
        rounds.len(),
        row.study.rounds(),
        if masked { ", and of all masks of a client, which cancel between the clients" } else { "" }
    );
    let shown = [first, &rounds[rounds.len() / 2], last];
    for (i, r) in shown.iter().enumerate() {
        if i == 0 || shown[i - 1].round != r.round {
            let masks = if masked { format!("           {:.4e}", r.masks) } else { String::new() };
            let _ = writeln!(text, "  {:<9} {:<12} {:.4e}{masks}", r.round, digits(r.phi, true), r.sigma);
        }
    }
    text
}

/// The plan as JSON, with the places of the study and of the page, and the numbers of the page.
fn json(plan: &Plan, trust: &[TrustRow], out: &Path, page: Option<(&Path, &Outlook)>) -> String {
    let mut json = plan::to_json(plan, trust);
    json["study"] = out.display().to_string().into();
    if let Some((page, outlook)) = page {
        json["page"] = page.display().to_string().into();
        json["outlook"] = outlook.to_json();
    }
    json.to_string()
}
