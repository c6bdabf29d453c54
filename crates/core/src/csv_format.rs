//! How the numbers and cells of a text file are written.

use crate::knob::SettingError;

/// How one party's CSV files are written. Other parties may write theirs differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsvFormat {
    /// The ASCII character between two cells.
    pub delimiter: u8,
    /// The decimal sign of numbers: a point or a comma.
    pub decimal: char,
}

impl Default for CsvFormat {
    fn default() -> Self {
        Self { delimiter: b',', decimal: '.' }
    }
}

impl CsvFormat {
    /// From the texts of its parts, where they are given.
    pub fn read(delimiter: Option<&str>, decimal: Option<&str>) -> Result<Self, SettingError> {
        let single = |name: &'static str, text: &str| match text.chars().collect::<Vec<char>>()[..] {
            [one] => Ok(one),
            // As it is typed in a shell.
            ['\\', 't'] => Ok('\t'),
            _ => Err(SettingError { name, message: format!("= {text:?} is not possible; write one character") }),
        };
        let standard = Self::default();
        let delimiter = delimiter.map_or(Ok(standard.delimiter.into()), |text| single("delimiter", text))?;
        let decimal = decimal.map_or(Ok(standard.decimal), |text| single("decimal", text))?;
        // What is not ASCII is refused below, as zero.
        let format = Self { delimiter: u8::try_from(delimiter).unwrap_or(0), decimal };
        format.check().map(|()| format)
    }

    /// Whether a file can be written so that its cells and numbers can be told apart.
    pub fn check(self) -> Result<(), SettingError> {
        let Self { delimiter, decimal } = self;
        let wrong = |name, message: String| Err(SettingError { name, message });
        let separates = delimiter == b'\t' || delimiter == b' ' || delimiter.is_ascii_punctuation();
        if !separates || b"\"+-".contains(&delimiter) {
            let expected = "is not possible; write one ASCII character that is no letter, digit, quote or sign, such as \";\" or \"\\t\"";
            return wrong("delimiter", expected.into());
        }
        if !['.', ','].contains(&decimal) {
            return wrong("decimal", format!("= {:?} is not possible; write \".\" or \",\"", decimal.to_string()));
        }
        if char::from(delimiter) == decimal {
            let same = format!(
                "= {:?} is also what separates cells; set data.csv.delimiter (--delimiter for predict) to another",
                decimal.to_string()
            );
            return wrong("decimal", same);
        }
        Ok(())
    }
}

/// The number that a text represents with this decimal sign; else what is wrong and what to do. The text itself is a party's data, so it is not told.
pub fn parse_number(text: &str, decimal: char) -> Result<f64, String> {
    let point = || text.trim().parse().ok();
    // Another comma would stay, and a point is no decimal sign here.
    let comma = || if text.contains('.') { None } else { text.trim().replacen(',', ".", 1).parse().ok() };
    let number = if decimal == ',' { comma() } else { point() };
    number.ok_or_else(|| match decimal {
        ',' => String::from(
            "the cell is not a number with decimal comma; correct it, or change data.csv.decimal (--decimal for predict and score)"
        ),
        _ if comma().is_some() => String::from(
            "the cell is not a number; correct it, or set data.csv.decimal = \",\" (--decimal for predict and score) if commas are \
             decimal signs"
        ),
        _ => "the cell is not a number; correct it or remove the row (a missing cell is empty)".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_decimal_sign_of_the_file_and_no_other() {
        for (text, decimal, number) in
            [("3.5", '.', 3.5), (" -2 ", '.', -2.0), ("3,5", ',', 3.5), ("-2e3", ',', -2000.0), ("1,5e-3", ',', 0.0015)]
        {
            assert_eq!(parse_number(text, decimal), Ok(number));
        }
        for (text, decimal, words) in [
            ("3,5", '.', "set data.csv.decimal = \",\""),
            ("3.5", ',', "the cell is not a number with decimal comma"),
            ("1.234,5", ',', "not a number with decimal comma"),
            ("1,234,5", ',', "not a number with decimal comma"),
            ("", ',', "not a number"),
            ("x", '.', "correct it or remove the row"),
        ] {
            let error = parse_number(text, decimal).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn formats_in_which_nothing_could_be_read_are_refused() {
        let semicolon = CsvFormat { delimiter: b';', decimal: ',' };
        assert_eq!(CsvFormat::read(Some(";"), Some(",")), Ok(semicolon));
        assert_eq!(CsvFormat::read(None, None), Ok(CsvFormat::default()));
        for tab in ["\t", "\\t"] {
            assert_eq!(CsvFormat::read(Some(tab), None).map(|format| format.delimiter), Ok(b'\t'));
        }
        for (delimiter, decimal, name, words) in [
            (Some("ab"), None, "delimiter", "= \"ab\" is not possible; write one character"),
            (Some(""), None, "delimiter", "one character"),
            (Some("x"), None, "delimiter", "no letter, digit"),
            (Some("-"), None, "delimiter", "sign"),
            (Some("\""), None, "delimiter", "quote"),
            (Some("\n"), None, "delimiter", "ASCII"),
            (Some("\u{b7}"), None, "delimiter", "ASCII"),
            (None, Some(";"), "decimal", "= \";\" is not possible; write \".\" or \",\""),
            (None, Some(","), "decimal", "also what separates cells; set data.csv.delimiter"),
            (Some("."), None, "decimal", "also what separates cells"),
        ] {
            let error = CsvFormat::read(delimiter, decimal).unwrap_err();
            assert!(error.name == name && error.message.contains(words), "{delimiter:?} {decimal:?}: {error:?}");
        }
    }
}
