//! The page of a plan: what a committee wants to see before it signs.

use undertone_core::graph::GraphSpec;
use undertone_core::privacy::Accountant;
use undertone_core::study::{BudgetSpec, NoiseKind, Privacy, Study};
use undertone_report::chart::number;
use undertone_report::{Axes, Page, Ranged, Table, beside, bytes, code, digits, list, note, ranges, text};

use crate::outlook::{Curve, Outlook, Point};
use crate::plan::Plan;
use crate::regret::Regret;
use crate::trust::TrustRow;

/// So many features are named; of more, the number says more than a list.
const NAMED: usize = 12;

/// The whole page. It follows from the study alone: no clock, no machine, no record.
pub fn page(plan: &Plan, outlook: &Outlook) -> String {
    let told = Told { plan, outlook, study: &plan.recommended().study };
    let title = format!("{}: what to expect", told.study.name());
    Page::new(&title)
        .lead("For those who decide whether to take part. Everything here follows from the study; no record was read, and nothing was spent.")
        .section("What is asked for", told.asked())
        .section("Is it worth it?", told.worth())
        .section("If epsilon were another", told.by_epsilon())
        .section("If fewer or more parties took part", told.by_clients())
        .section("If the parties had fewer or more records", told.by_records())
        .section("If trust were another", told.by_trust())
        .section("How these numbers were made", told.made())
        .section("The account", told.account())
        .section("Algorithm and parameters", told.algorithm())
        .section("The study, word for word", told.word_for_word())
        .html()
}

/// A plan and its outlook, as they are told.
struct Told<'a> {
    plan: &'a Plan,
    outlook: &'a Outlook,
    study: &'a Study,
}

/// A curve, as it is told.
struct Shown<'a> {
    /// A word that no other chart has.
    id: &'a str,
    /// What is counted, as the axis and the table call it.
    name: &'a str,
    /// What the chart shows, after "expected skill by".
    by: &'a str,
    /// One more column of the table.
    more: Option<&'a str>,
}

/// One number of a curve, as it is told.
struct Line {
    at: f64,
    label: String,
    regret: Regret,
    own: bool,
    more: Option<String>,
}

impl Told<'_> {
    fn clients(&self) -> usize {
        self.plan.graph.clients()
    }

    fn colluders(&self) -> Option<usize> {
        self.study.privacy().and_then(Privacy::colluders)
    }

    /// The epsilon that the study asks for.
    fn epsilon(&self) -> Option<f64> {
        match self.study.spec().privacy?.budget {
            BudgetSpec::Epsilon(epsilon) => Some(epsilon),
            BudgetSpec::First(_) => None,
        }
    }

    fn asked(&self) -> Vec<String> {
        let spec = self.study.spec();
        let (target, features) = match spec.schema() {
            Some(schema) => {
                let names: Vec<&str> = schema.features.iter().take(NAMED).map(|column| &*column.name).collect();
                let more = schema.features.len() - names.len();
                let more = if more > 0 { format!(" and {more} more columns") } else { String::new() };
                (schema.target.name.clone(), names.join(", ") + &more)
            }
            None => ("a made-up target".into(), format!("{} made-up columns", self.study.features())),
        };
        let stated = spec.public_records().unwrap_or_default();
        let records = match (stated.iter().min(), stated.iter().max()) {
            (Some(low), Some(high)) if low != high => format!("{low} to {high} records"),
            (Some(one), _) => format!("{one} records on average"),
            _ => "its records".into(),
        };
        let mut items = vec![format!(
            "{} parties, each with {records}, together learn to predict {target} from {features}. Every party keeps its records. There is no server: in {} rounds each party sends numbers with noise to its \
             neighbours, at most {} in all before encryption, and all have the same model in the end.",
            self.clients(),
            self.study.rounds(),
            bytes(self.plan.bytes().1)
        )];
        if let Some(share) = spec.schema().map(|schema| schema.holdout).filter(|share| *share > 0.0) {
            items
                .push(format!("{:.0}% of the records are kept out of training, to score the model on.", 100.0 * share));
        }
        let Some((privacy, epsilon)) = self.study.privacy().zip(self.epsilon()) else {
            items.push("Privacy is off. Whoever hears the messages can learn about the records: do not sign this for real data.".into());
            return vec![list(&items)];
        };
        let delta = privacy.delta().get();
        items.push(format!(
            "Of every party's privacy budget the study takes epsilon {epsilon} at delta {delta:e}. It bounds what all messages of a party together reveal about any one of its records, whatever somebody \
             does with them and knows besides. {}",
            guess(epsilon, delta)
        ));
        items.push(match self.colluders() {
            None => "This holds even if all other parties show each other everything they have.".into(),
            Some(q) => format!(
                "This holds against whoever reads the network together with at most {q} of the {} parties. {}",
                self.clients(),
                match self.plan.epsilon_alone() {
                    Some(alone) => format!(
                        "If all others of a party work together against it, epsilon is {} instead. {}",
                        about(alone),
                        guess(alone, delta)
                    ),
                    None => "If all others of a party work together against it, nothing bounds what they learn.".into(),
                }
            ),
        });
        items.push("Who has several records in the data, with one party or with several, is protected less: the bounds are for one record.".into());
        if self.study.liars() > 0 {
            items.push(format!("At most {} of the parties may say something else than the study asks them to, and the model bounds what that does. What is private stays private whoever does.", self.study.liars()));
        }
        if privacy.noise() == NoiseKind::Fast {
            items.push(
                "The study says noise = \"fast\", which is for rehearsals: with real records, let it say \"secure\"."
                    .into(),
            );
        }
        vec![list(&items)]
    }

    fn worth(&self) -> Vec<String> {
        let regret = self.plan.recommended().regret;
        let [worse, typical, better] = regret.skills();
        let mut parts = vec![
            text(&format!("The expected skill is {worse} to {better}, typically {typical}. {}", regret.verdict())),
            text(
                "Skill is the part of what a model of all records in one place, without privacy, would teach: 1 is as good as that model, 0 no better than a model that looks at no column. In one of ten cases \
                 it is below the first of these numbers, and in one of ten above the second. From here on they are called low and high.",
            ),
        ];
        let mut items = Vec::new();
        let Outlook { epsilon, clients, records, .. } = self.outlook;
        for (curve, what, unit) in [
            (epsilon, "the epsilon", "epsilon"),
            (clients, "the parties", "parties"),
            (records, "the records", "records each"),
        ] {
            for (factor, times) in [(0.5, "half"), (2.0, "twice")] {
                let Some((point, exact)) = beside_own(curve, factor) else { continue };
                let value = number(point.value);
                let with = if exact { format!("{times} {what} ({value})") } else { format!("{value} {unit}") };
                items.push(format!("With {with}: typically {}.", instead(&point.regret, &regret)));
            }
        }
        items.extend(self.worth_of_trust());
        parts.push(list(&items));
        parts
    }

    /// What trust is worth, in a sentence.
    fn worth_of_trust(&self) -> Option<String> {
        let regret = self.plan.recommended().regret;
        let row = |colluders| self.outlook.trust.iter().find(|row| row.colluders == colluders);
        match self.colluders() {
            Some(_) => {
                let other = row(None)?;
                Some(format!(
                    "If nobody were trusted, so that all others may pool what they know: typically {}.",
                    instead(&other.regret, &regret)
                ))
            }
            None => {
                let other = self.outlook.trust.iter().rev().find(|row| row.colluders.is_some())?;
                let q = other.colluders?;
                Some(format!(
                    "If all agreed that at most {q} parties pool what they know (privacy.colluders = {q}): typically {}.",
                    instead(&other.regret, &regret)
                ))
            }
        }
    }

    fn by_epsilon(&self) -> Vec<String> {
        let delta = self.study.privacy().map_or(0.0, |privacy| privacy.delta().get());
        let line =
            |point: &Point| Line { more: Some(right(point.value, delta)), ..Line::of(point, number(point.value)) };
        let words = "A smaller epsilon is a stricter promise and needs more noise. The last column says how often somebody is right at most who has to tell which of two records a party holds; without the messages it is 50%.";
        let shown = Shown { id: "epsilon", name: "epsilon", by: "epsilon", more: Some("right at most") };
        self.curve(&self.outlook.epsilon, words, &shown, line)
    }

    fn by_clients(&self) -> Vec<String> {
        let trust = match self.colluders() {
            Some(q) => format!(" Still at most {q} of them pool what they know."),
            None => String::new(),
        };
        let words = format!(
            "Every party has its own noise, and more parties mean more records. {} means the same promise to every party.{trust}",
            self.epsilon().map_or("No privacy".into(), |epsilon| format!("Epsilon {epsilon}"))
        );
        let shown = Shown { id: "parties", name: "parties", by: "the number of parties", more: None };
        self.curve(&self.outlook.clients, &words, &shown, |point| Line::of(point, point.value.to_string()))
    }

    fn by_records(&self) -> Vec<String> {
        let stated = self.study.spec().public_records().unwrap_or_default();
        let mean = if stated.len() > 1 {
            " The number is the mean over the parties; every one has as many times its own."
        } else {
            ""
        };
        let words = format!("The noise that hides one record hides less of what many have in common.{mean}");
        let shown = Shown { id: "records", name: "records each", by: "the number of records of a party", more: None };
        self.curve(&self.outlook.records, &words, &shown, |point| Line::of(point, number(point.value)))
    }

    fn by_trust(&self) -> Vec<String> {
        let Outlook { trust, no_trust, .. } = self.outlook;
        let why = no_trust.iter().map(|why| text(&format!("This is left out: {why}."))).collect();
        if trust.len() < 2 {
            return vec![why];
        }
        let stated = self.colluders();
        let line = |(index, row): (usize, &TrustRow)| Line {
            at: index as f64,
            label: row.colluders.map_or("all".into(), |q| q.to_string()),
            regret: row.regret,
            own: row.colluders == stated,
            more: Some(row.epsilon_alone.map_or("no bound".into(), about)),
        };
        let losses = match (stated, self.study.spec().plan.as_ref().and_then(|plan| plan.losses), self.plan.losses) {
            (None, None, _) => {
                " The rows with such an assumption allow for one party that is lost on the way, in half of the data sets, which leaves noise behind.".into()
            }
            (_, _, 0) => String::new(),
            (_, _, 1) => " In half of the data sets one party is lost on the way.".into(),
            (_, _, lost) => format!(" In half of the data sets {lost} parties are lost on the way."),
        };
        let words = format!(
            "If at most so many of the {} parties pool what they know, the others can share noise that cancels between them. Epsilon is the same for all rows, as long as the assumption holds; the last column is what holds if it is \
             wrong and all others of a party work together.{losses}",
            self.clients()
        );
        let shown = Shown {
            id: "trust",
            name: "parties that pool",
            by: "how many parties pool what they know",
            more: Some("epsilon if all others do"),
        };
        vec![text(&words), drawn(&shown, &trust.iter().enumerate().map(line).collect::<Vec<_>>()), why]
    }

    /// A curve with its table, and what is left out of it.
    fn curve(&self, curve: &Curve, words: &str, shown: &Shown, line: impl Fn(&Point) -> Line) -> Vec<String> {
        if !curve.is_known() {
            return curve.missing.iter().map(|why| text(&format!("This is left out: {why}."))).collect();
        }
        let lines: Vec<Line> = curve.points.iter().map(line).collect();
        let missing = curve.missing.iter().map(|why| note(&format!("Left out: {why}.")));
        [text(words), drawn(shown, &lines)].into_iter().chain(missing).collect()
    }

    fn made(&self) -> Vec<String> {
        let tables = self.study.spec().schema().is_some();
        let facts = if tables {
            "the bounds, categories and typical values of the columns, the numbers of records"
        } else {
            "the shape of the records"
        };
        let lost = match self.plan.losses {
            0 => "no party is lost on the way".to_string(),
            1 => "one party is lost on the way in every second data set".into(),
            some => format!("{some} parties are lost on the way in every second data set"),
        };
        let half = self.plan.sets();
        let paragraphs = [
            format!(
                "The planner made up {} data sets from what is public: {facts}, the network and the budget. They differ from each other as real tables do: in where columns lie and how wide they are, in how they are correlated, \
                 and in how much they tell about the target. On {half} of them parameters were chosen. On the other {half} the study was run with all its noise, and its model was compared on new records with one of pooled data without privacy; {lost}.",
                2 * half
            ),
            "Beside the study itself, each point of a chart is the same algorithm with its parameters chosen again, briefly, for that number; a plan that is made for it may be better. Differences of a few hundredths mean nothing.".into(),
        ];
        let not = [
            "That the parties' own data will do as well: one in ten of the made-up data sets did worse than the lower number. Where columns tell nothing about the target, even pooled data teaches nothing, and a skill near 1 is then worth nothing.",
            "Anything if the bounds or typical values are far from the truth, if much fewer records or parties come than the study says, or if parties hold very different records: the made-up parties hold records of one kind.",
            "Anything about the privacy of the study. That does not rest on made-up data: it follows from the noise, whatever the records are.",
        ];
        let not: Vec<String> = not.map(String::from).into();
        vec![text(&paragraphs[0]), text(&paragraphs[1]), text("What these numbers do not promise:"), list(&not)]
    }

    fn account(&self) -> Vec<String> {
        let Some((privacy, (rho, epsilons))) = self.study.privacy().zip(self.plan.spent()) else {
            return vec![text("Nothing is counted: privacy is off, and nothing is private.")];
        };
        let rounds = self.study.rounds();
        let noised = self.plan.noise(self.plan.recommended()).len();
        let of_all = |part: f64| format!("{:.0}% of rho", 100.0 * part / rho.get());
        let mut rows = vec![
            ["epsilon, as the study counts".to_string(), digits(privacy.promised().get(), true)],
            ["delta".into(), format!("{:e}", privacy.delta().get())],
            ["counted by".into(), privacy.accountant().name().into()],
        ];
        let who = match self.colluders() {
            Some(q) => format!("if at most {q} of {} parties pool what they know", self.clients()),
            None => "whoever pools what they know".into(),
        };
        rows.push(["this holds".into(), who]);
        if self.colluders().is_some() {
            let alone = self.plan.epsilon_alone().map_or("without bound".into(), |alone| digits(alone, true));
            rows.push(["epsilon if all others do".into(), alone]);
        }
        rows.push(["rho (zero-concentrated)".into(), digits(rho.get(), true)]);
        let by = |(accountant, epsilon): (Accountant, f64)| format!("{} {}", accountant.name(), digits(epsilon, true));
        rows.push(["epsilon by other accountants".into(), epsilons.map(by).join(", ")]);
        for (name, part) in [
            ("of it before the first round, on means and spreads of columns", privacy.before()),
            ("of it after the last round, on intervals and scores", privacy.after()),
        ] {
            if part.get() > 0.0 {
                rows.push([name.into(), of_all(part.get())]);
            }
        }
        rows.push(["rounds that read records and cost something".into(), format!("{noised} of {rounds}")]);
        let table = Table::new(["", ""]).words(2).rows(rows.into_iter().map(Vec::from));
        vec![
            text(
                "What every party spends, by the end. Each keeps this account itself, adds up all its studies, and can refuse one that exceeds its own limit.",
            ),
            table.html(),
            note(SYMBOLS),
        ]
    }

    fn algorithm(&self) -> Vec<String> {
        let row = self.plan.recommended();
        let mut rows: Vec<Vec<String>> = self
            .study
            .settings()
            .iter()
            .map(|(name, value)| vec![format!("algorithm.{name}"), value.to_string()])
            .collect();
        if let Some(privacy) = self.study.spec().privacy {
            let keys = [
                ("clip", privacy.clip),
                ("tau", privacy.tau),
                ("theta", privacy.theta),
                ("standardise", privacy.standardise),
            ];
            let known = keys.into_iter().filter_map(|(key, value)| Some((key, value?)));
            rows.extend(known.map(|(key, value)| vec![format!("privacy.{key}"), value.to_string()]));
        }
        let graph = &self.study.spec().graph;
        let network = format!(
            "The network: {}, {} connections, at most {} neighbours each.",
            if matches!(graph, GraphSpec::Edges(_)) { "as listed" } else { graph.name() },
            self.plan.graph.edges(),
            self.plan.graph.max_degree()
        );
        let mut table = Table::new(["algorithm", "low", "typical", "high"]);
        for (index, other) in self.plan.rows.iter().enumerate() {
            let cells = std::iter::once(other.title()).chain(other.regret.skills());
            table = if index == 0 { table.own_row(cells) } else { table.row(cells) };
        }
        vec![
            text(&format!("Recommended: {}. {network}", row.title())),
            Table::new(["parameter", "value"]).rows(rows).html(),
            text("The skill to expect of each algorithm that was compared:"),
            table.html(),
        ]
    }

    fn word_for_word(&self) -> Vec<String> {
        let digest = self.study.digest().whole().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let made = format!(
            "Undertone {}; digest of the study with the recommended algorithm {digest}",
            env!("CARGO_PKG_VERSION")
        );
        vec![code(&self.study.to_toml()), note(&made)]
    }
}

impl Line {
    fn of(point: &Point, label: String) -> Self {
        Self { at: point.value.ln(), label, regret: point.regret, own: point.planned, more: None }
    }
}

/// The chart and the table of some numbers.
fn drawn(shown: &Shown, lines: &[Line]) -> String {
    let ranged = |line: &Line| Ranged {
        at: line.at,
        label: line.label.clone(),
        low: 1.0 - line.regret.q90,
        middle: 1.0 - line.regret.median,
        high: 1.0 - line.regret.q10,
        own: line.own,
    };
    let title = format!("Expected skill by {}", shown.by);
    let axes = Axes { id: shown.id, x: shown.name, y: "skill", title: &title, own: "recommended" };
    let chart = ranges(&lines.iter().map(ranged).collect::<Vec<_>>(), &axes);
    let head = [shown.name, "low", "typical", "high"].into_iter().chain(shown.more);
    let mut table = Table::new(head);
    for line in lines {
        let label = if line.own { format!("{} (recommended)", line.label) } else { line.label.clone() };
        let cells = std::iter::once(label).chain(line.regret.skills()).chain(line.more.clone());
        table = if line.own { table.own_row(cells) } else { table.row(cells) };
    }
    beside(&chart, &table.html())
}

/// The point of about so many times the study's own number, and whether it is exactly that.
fn beside_own(curve: &Curve, factor: f64) -> Option<(&Point, bool)> {
    let wanted = factor * curve.points.iter().find(|point| point.planned)?.value;
    let off = |point: &Point| (point.value / wanted - 1.0).abs();
    let nearest = curve.points.iter().filter(|point| !point.planned).min_by(|a, b| off(a).total_cmp(&off(b)))?;
    (off(nearest) < 0.25).then_some((nearest, off(nearest) == 0.0))
}

/// A typical skill instead of another one.
fn instead(other: &Regret, own: &Regret) -> String {
    let [[_, other, _], [_, own, _]] = [other, own].map(Regret::skills);
    if other == own { format!("{other}, as with the study") } else { format!("{other} instead of {own}") }
}

/// How often a guess is right at most, as a sentence.
fn guess(epsilon: f64, delta: f64) -> String {
    format!(
        "Somebody who has to tell which of two records a party holds, and is right half of the time without the messages, is right at most {} of the time with them.",
        right(epsilon, delta)
    )
}

/// How often a guess between two records is right at most: (e^epsilon + delta)/(1 + e^epsilon), rounded up, with as many digits as tell it from always.
fn right(epsilon: f64, delta: f64) -> String {
    let odds = libm::exp(-epsilon);
    let wrong = odds * (1.0 - delta) / (1.0 + odds);
    let rounded = |decimals: usize| {
        let unit = 10f64.powi(decimals as i32 + 2);
        let wrong = (wrong * unit).floor() / unit;
        (wrong > 0.0).then(|| format!("{:.decimals$}%", 100.0 * (1.0 - wrong)))
    };
    (1..=4).find_map(rounded).unwrap_or("100%".into())
}

/// An epsilon with two digits after the point, rounded up.
fn about(epsilon: f64) -> String {
    format!("{:.2}", (100.0 * epsilon).ceil() / 100.0)
}

const SYMBOLS: &str = "epsilon and delta bound what all messages of a party together reveal about any one of its records: whatever somebody concludes from them, the odds are at most e^epsilon times different \
    had the record been another, except with a probability of about delta. rho is the same cost as it adds up over rounds (zero-concentrated differential privacy).";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_rounded_up() {
        assert_eq!(
            [right(1.0, 1e-5), right(0.0, 0.0), right(7.7224, 1e-5), right(60.0, 1e-5)],
            ["73.2%", "50.0%", "99.96%", "100%"]
        );
        assert_eq!([about(7.7224), about(2.0)], ["7.73", "2.00"]);
    }
}
