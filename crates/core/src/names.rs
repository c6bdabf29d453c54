//! The names of the clients.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// Names of the clients 0..K. Numbered ones are "1", "2", ... and take no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    count: usize,
    listed: Vec<String>,
    index: HashMap<String, usize>,
}

impl Names {
    /// "1" to "`count`".
    pub fn numbered(count: usize) -> Self {
        Self { count, listed: Vec::new(), index: HashMap::new() }
    }

    /// The given names, which must differ from each other.
    pub fn listed(names: Vec<String>) -> Self {
        let index = names.iter().cloned().zip(0..).collect();
        Self { count: names.len(), listed: names, index }
    }

    /// K.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The name of client `k`.
    pub fn get(&self, k: usize) -> Cow<'_, str> {
        match self.listed.get(k) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned((k + 1).to_string()),
        }
    }

    /// The client of that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        if self.listed.is_empty() {
            let number: usize = name.parse().ok()?;
            return (1..=self.count).contains(&number).then(|| number - 1);
        }
        self.index.get(name).copied()
    }
}

/// The first few, and how many more.
impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.listed.is_empty() {
            return write!(f, "\"1\" to \"{}\"", self.count);
        }
        let quoted: Vec<String> = self.listed.iter().map(|n| format!("\"{n}\"")).collect();
        f.write_str(&shorten(&quoted, 6))
    }
}

/// Joins the first `most` words and counts the rest.
pub(crate) fn shorten(words: &[String], most: usize) -> String {
    let more = words.len().saturating_sub(most);
    let shown = words[..words.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}
