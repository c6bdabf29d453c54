//! The report of one's own study: what was learned, how well, at what cost, with whom, what happened, and what was assumed.

use crate::chart::{Estimate, Line, forest, lines};
use crate::page::{Page, Table, code, note, text};

/// Everything that a report tells. Whoever ran the study fills in what is known.
#[derive(Default)]
pub struct StudyReport {
    /// The study's name.
    pub name: String,
    /// What is learned from what, in a sentence.
    pub about: String,
    /// The coefficients in the order of the study.
    pub coefficients: Vec<Estimate>,
    /// What the intervals and the second marks of the coefficients are.
    pub coefficients_note: String,
    /// Scores: a heading, the columns, and the rows.
    pub scores: Vec<ScoreTable>,
    /// What was spent, in sentences.
    pub cost: Vec<String>,
    /// Epsilon by round.
    pub spent: Vec<(f64, f64)>,
    /// The epsilon that was agreed on.
    pub agreed: Option<f64>,
    /// How the model became better, by round: skill.
    pub learning: Vec<(f64, f64)>,
    /// Who took part: name and remark.
    pub parties: Vec<(String, String)>,
    /// What happened on the way.
    pub happened: Vec<String>,
    /// What was assumed.
    pub assumed: Vec<String>,
    /// Whether the page contains numbers that follow from records without noise.
    pub private: bool,
    /// The study as TOML.
    pub toml: String,
    /// The hash of its digest.
    pub digest: String,
    /// The version of the program.
    pub version: &'static str,
}

/// Scores of one or several models.
pub struct ScoreTable {
    /// On what.
    pub title: String,
    /// The columns after the name of the score.
    pub columns: Vec<String>,
    /// A score and its values.
    pub rows: Vec<Vec<String>>,
}

impl StudyReport {
    /// The whole page.
    pub fn html(&self) -> String {
        let list = |items: &[String]| items.iter().map(|item| text(item)).collect::<String>();
        let mut page = Page::new(&self.name).lead(&self.about);
        if self.private {
            page = page.section(
                "Keep this page to yourself",
                [text("It compares the private model with the records themselves, without noise. Treat it like the records. What may be published is model.json.")],
            );
        }
        let learned = match self.coefficients.is_empty() {
            true => Vec::new(),
            false => vec![forest(&self.coefficients, &self.coefficients_note)],
        };
        page = page.section("What was learned", learned);
        let scores = self.scores.iter().map(|scores| {
            let head = std::iter::once(String::new()).chain(scores.columns.iter().cloned());
            text(&scores.title) + &Table::new(head).rows(scores.rows.iter().map(|row| row.to_vec())).html()
        });
        let curve = (self.learning.len() > 1).then(|| {
            let line = Line { name: "this study".into(), points: self.learning.clone(), dashed: false };
            lines(&[line], "round", "skill", "Skill by round: 1 is as good as a model of pooled data without privacy, 0 no better than the mean of the target.")
        });
        page = page.section("How well", scores.chain(curve));
        let spent = (self.spent.len() > 1).then(|| {
            let end = self.spent.last().map_or(0.0, |point| point.0);
            let mut shown = vec![Line { name: "spent".into(), points: self.spent.clone(), dashed: false }];
            if let Some(agreed) = self.agreed {
                shown.push(Line { name: "agreed".into(), points: vec![(0.0, agreed), (end, agreed)], dashed: true });
            }
            lines(&shown, "round", "epsilon", "The privacy budget by round. Rounds that read no records cost nothing.")
        });
        page = page.section("At what cost", [list(&self.cost)].into_iter().chain(spent));
        let parties = Table::new(["party", ""]).words(2);
        let parties = parties.rows(self.parties.iter().map(|(name, remark)| vec![name.clone(), remark.clone()]));
        page = page.section("With whom", [parties.html()]);
        page = page.section("What happened", [list(&self.happened)]);
        page = page.section("What was assumed", [list(&self.assumed)]);
        let made = note(&format!("Undertone {}; digest of the study {}", self.version, self.digest));
        page.section("The study, word for word", [code(&self.toml), made]).section("Symbols", [note(SYMBOLS)]).html()
    }
}

const SYMBOLS: &str = "epsilon and delta bound what all messages of a party together reveal about any one of its records: whatever somebody concludes from them, the odds would be at most e^epsilon times \
    different had the record been another, except with a probability of about delta. rho is the same cost as it adds up over rounds (zero-concentrated differential privacy).";
