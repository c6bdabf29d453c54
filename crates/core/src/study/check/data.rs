//! What is checked about the data of a study: columns, bounds, words, numbers of records.

use std::collections::HashSet;

use super::*;

impl StudySpec {
    pub(super) fn check_data(&self) -> Result<(), StudyError> {
        match &self.data {
            DataSpec::Synthetic { clients, records, features, noise, condition, spread } => {
                count("data.clients", *clients as u64, 2, MOST_CLIENTS)?;
                one_or_each("data.records", records, *clients)?;
                count("data.features", *features as u64, 1, MOST_FEATURES)?;
                number("data.noise", *noise, rule::NOT_NEGATIVE)?;
                number("data.condition", *condition, rule::AT_LEAST_ONE)?;
                number("data.spread", *spread, rule::AT_LEAST_ONE)?;
                check_size(*clients, records, *features)
            }
            DataSpec::Files { layout, schema, records, csv, .. } => {
                csv.check().map_err(|e| StudyError::at(format!("data.csv.{}", e.name), e.message))?;
                self.check_public_records(layout, records)?;
                match layout {
                    Layout::StandIn { clients, records, noise } => {
                        if clients.len() < 2 || !distinct(clients) {
                            let message = "must be at least two, with different names";
                            return Err(StudyError::at("data.clients", message));
                        }
                        one_or_each("data.records", records, clients.len())?;
                        number("data.noise", *noise, rule::NOT_NEGATIVE)?;
                        check_size(clients.len(), records, schema.features.len())?;
                    }
                    Layout::Split(clients) => count("data.clients", *clients as u64, 2, MOST_CLIENTS)?,
                    Layout::Folder | Layout::Column(_) => {}
                }
                number("data.holdout", schema.holdout, rule::HOLDOUT)?;
                if schema.holdout > 0.0 && self.weights == Weights::Clients {
                    let reason = "needs problem.weights = \"records\": the number of rows that are left for training follows from what they say, so nothing \
                                  may be divided by it; write that, or remove it";
                    return Err(StudyError::at("data.holdout", reason));
                }
                schema_problems(schema, self.loss).into_iter().next().map_or(Ok(()), Err)
            }
        }
    }

    /// The public number of records is said once: for all clients, as their mean, or client by client.
    fn check_public_records(&self, layout: &Layout, records: &[usize]) -> Result<(), StudyError> {
        let stated = self.clients.iter().find(|(_, client)| client.records.is_some());
        if let Some((name, _)) = stated {
            let key = format!("client.{name}.records");
            if matches!(layout, Layout::StandIn { .. }) || !records.is_empty() {
                return Err(StudyError::at(key, "and data.records are both given; keep one of them"));
            }
            if let Some((other, _)) = self.clients.iter().find(|(_, client)| client.records.is_none()) {
                let key = format!("client.{other}.records");
                return Err(StudyError::at(
                    key,
                    format!("is missing, while client.{name}.records is given; give all or none"),
                ));
            }
        }
        match layout {
            Layout::Split(clients) if !records.is_empty() => one_or_each("data.records", records, *clients),
            _ if !records.is_empty() => counts("data.records", records),
            _ => Ok(()),
        }
    }
}

/// A data set that no machine can hold is refused before it is drawn.
fn check_size(clients: usize, records: &[usize], features: usize) -> Result<(), StudyError> {
    let all: f64 =
        if records.len() == 1 { records[0] as f64 * clients as f64 } else { records.iter().map(|&r| r as f64).sum() };
    if all * (features + 2) as f64 * 8.0 > 1e13 {
        let message = format!(
            "times records times features is {all:e} records of {features} features, more than 10 terabytes; ask for less"
        );
        return Err(StudyError::at("data.clients", message));
    }
    Ok(())
}

/// Whether no word is there twice.
pub(in crate::study) fn distinct(words: &[String]) -> bool {
    let set: HashSet<_> = words.iter().collect();
    set.len() == words.len()
}

/// Whether two of the words are the same number.
fn numbers_repeat(words: &[String]) -> bool {
    (1..words.len()).any(|i| words[..i].iter().any(|word| same_number(word, &words[i])))
}

/// Typical values of a column that it can have.
fn check_typical(column: &Column, scaling: Scaling) -> Result<(), StudyError> {
    let Some(values) = &column.typical else { return Ok(()) };
    let key = format!("data.typical.{}", column.name);
    if scaling == Scaling::None {
        return Err(StudyError::at(key, "scales the column, but data.scaling is \"none\"; remove one of them"));
    }
    let possible = match &column.kind {
        ColumnKind::Number { low, high } => {
            // A spread of less than this would lose all digits.
            let narrow = 1e-9 * low.abs().max(high.abs());
            matches!(values[..], [mean, spread] if (*low..=*high).contains(&mean) && spread > narrow && spread <= rule::LARGEST)
        }
        ColumnKind::Category(words) => {
            values.len() == words.len() && values.iter().all(|share| rule::ZERO_TO_ONE.holds(*share))
        }
    };
    match possible {
        true => Ok(()),
        false => Err(StudyError::at(key, format!("= {values:?} is not possible; {}", toml::TYPICAL))),
    }
}

/// Whether a column can have a feature that says that its cell is missing.
fn check_indicator(column: &Column, missing: Missing) -> Result<(), StudyError> {
    let reason = match (&column.kind, missing) {
        _ if !column.indicator => return Ok(()),
        (ColumnKind::Category(_), _) => {
            "has words; list \"\" among them instead, and empty cells are a word of their own"
        }
        (_, Missing::Refuse) => "has no missing cells, which are refused; set data.missing = \"mean\"",
        (ColumnKind::Number { .. }, Missing::Mean) => return Ok(()),
    };
    Err(StudyError::at("data.indicators", format!("names \"{}\", which {reason}", column.name)))
}

/// Whether the spread that moments give to a column, a hundredth of its bounds or more, could lose all digits.
pub(super) fn is_far_off(column: &Column) -> bool {
    match column.kind {
        ColumnKind::Number { low, high } => high - low < 1e-6 * low.abs().max(high.abs()),
        ColumnKind::Category(_) => false,
    }
}

/// Everything for which the columns cannot be learned from with this loss.
pub(in crate::study) fn schema_problems(schema: &Schema, loss: AnyLoss) -> Vec<StudyError> {
    let mut names: Vec<String> = schema.features.iter().map(|column| column.name.clone()).collect();
    names.push(schema.target.name.clone());
    if names.len() < 2 || !distinct(&names) {
        let message = "must list at least one column, each once, and not the target";
        return vec![StudyError::at("data.features", message)];
    }
    let mut found = Vec::new();
    for column in schema.features.iter().chain([&schema.target]) {
        let checks = [
            readable("data.features", &column.name),
            check_indicator(column, schema.missing),
            check_range(column),
            check_typical(column, schema.scaling),
        ];
        found.extend(checks.into_iter().filter_map(Result::err));
    }
    found.extend(check_target(&schema.target, loss).err());
    // Columns that are wrong have no features to compare.
    if !found.is_empty() {
        return found;
    }
    let mut names = schema.feature_names();
    names.sort();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let message = format!("give the feature \"{}\" twice; rename a column", pair[0]);
        found.push(StudyError::at("data.features", message));
    }
    found
}

/// What is public about a column.
fn check_range(column: &Column) -> Result<(), StudyError> {
    match &column.kind {
        ColumnKind::Number { low, high } => {
            // A range so narrow that scaling by its width would lose all digits is a mistake too.
            let narrow = (1e-9 * low.abs().max(high.abs())).max(1e-100);
            if *low < -rule::LARGEST
                || *high > rule::LARGEST
                || (high - low).partial_cmp(&narrow).is_none_or(|o| o.is_le())
            {
                let message = format!("= [{low}, {high}] is not possible; {}", toml::BOUNDS);
                return Err(StudyError::at(format!("data.bounds.{}", column.name), message));
            }
            Ok(())
        }
        ColumnKind::Category(words) if words.iter().any(|word| word.chars().any(char::is_control)) => {
            let message = "lists a word with control characters; remove them";
            Err(StudyError::at(format!("data.categories.{}", column.name), message))
        }
        ColumnKind::Category(words) if words.iter().any(|word| word.trim() != word) => {
            let message = "lists a word with spaces around it; remove them, cells are read without";
            Err(StudyError::at(format!("data.categories.{}", column.name), message))
        }
        ColumnKind::Category(words) if words.len() < 2 || !distinct(words) || numbers_repeat(words) => {
            let message = "must list at least two different words (3 and 3.0 are the same)";
            Err(StudyError::at(format!("data.categories.{}", column.name), message))
        }
        ColumnKind::Category(_) => Ok(()),
    }
}

/// Whether the loss can learn the target.
fn check_target(target: &Column, loss: AnyLoss) -> Result<(), StudyError> {
    if target.typical.is_some() && loss.is_classification() {
        let key = format!("data.typical.{}", target.name);
        return Err(StudyError::at(key, format!("has no use: the {} loss learns labels; remove it", loss.name())));
    }
    match &target.kind {
        ColumnKind::Category(_) if !loss.is_classification() => {
            let message = format!("has categories, but the {} loss needs a number; give it bounds", loss.name());
            Err(StudyError::at("data.target", message))
        }
        ColumnKind::Category(words) if words.len() != 2 => {
            let message = format!("has {} categories; classification here needs exactly two", words.len());
            Err(StudyError::at("data.target", message))
        }
        _ => Ok(()),
    }
}
