//! The page and its parts.

/// How a page looks: colours by purpose, which charts use too.
const STYLE: &str = "
:root { --ink: #1c1e21; --soft: #5c6370; --paper: #ffffff; --card: #f6f7f9; --line: #d9dce1; --good: #00724f; --bad: #a83200; --one: #0b63b0; --two: #b35900; --band: #0b63b033 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a3aab5; --paper: #16181b; --card: #202327; --line: #3a3f46; --good: #4cc79a; --bad: #ff8f66; --one: #6cb6ff; --two: #f0a35c; --band: #6cb6ff33 }
}
* { box-sizing: border-box }
body { font: 17px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 58rem; margin: 0 auto; padding: 1.5rem }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .3rem } h2 { margin-top: 2.2rem; font-size: 1.25rem } p { margin: .6rem 0 }
.lead, .note, figcaption { color: var(--soft) } .note, figcaption { font-size: .9rem; overflow-wrap: anywhere }
.good { color: var(--good); font-weight: 600 } .bad { color: var(--bad); font-weight: 600 }
figure { margin: 1.2rem 0; break-inside: avoid; overflow-x: auto } svg { width: 100%; min-width: 36rem; height: auto; display: block } svg text { font: 13px system-ui, sans-serif; fill: var(--ink) } svg .soft { fill: var(--soft) } svg .own { fill: var(--two); font-weight: 600 }
.pair { display: grid; grid-template-columns: minmax(0, 6fr) minmax(0, 5fr); gap: 0 2rem; align-items: start } .pair svg { min-width: 0; max-width: 34rem } .pair > * { margin: .6rem 0 } .pair table { width: 100%; font-size: .82rem } .pair td, .pair th { padding-right: .5rem }
@media (max-width: 50rem) { .pair { grid-template-columns: minmax(0, 1fr) } }
@media (max-width: 30rem) { .pair svg text { font-size: 15px } }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .92rem; margin: .8rem 0 }
td, th { border-bottom: 1px solid var(--line); padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top } tr.own td { font-weight: 600; background: var(--card) } .n { text-align: right; font-variant-numeric: tabular-nums }
pre { background: var(--card); padding: .8rem 1rem; overflow-x: auto; font-size: .82rem; border-radius: .3rem } code { overflow-wrap: anywhere }
@media print { svg { min-width: 0 } body { font-size: 10.5pt; max-width: none; padding: 0 } pre { white-space: pre-wrap } h2 { break-after: avoid } tr { break-inside: avoid } }
";

/// A page under construction.
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// With a title and nothing else yet.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_string(), body: format!("<h1>{}</h1>", escape(title)) }
    }

    /// A line under the title.
    pub fn lead(mut self, words: &str) -> Self {
        self.body += &format!("<p class=lead>{}</p>", escape(words));
        self
    }

    /// A heading and what stands under it; nothing if there is nothing.
    pub fn section(mut self, heading: &str, parts: impl IntoIterator<Item = String>) -> Self {
        let parts: String = parts.into_iter().collect();
        if !parts.is_empty() {
            self.body += &format!("<section><h2>{}</h2>{parts}</section>\n", escape(heading));
        }
        self
    }

    /// The whole file. A browser that obeys its policy loads nothing from outside.
    pub fn html(self) -> String {
        format!(
            "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">\
             <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\
             <title>{}</title><style>{STYLE}</style></head>\n<body>{}</body></html>\n",
            escape(&self.title),
            self.body
        )
    }
}

/// A table; columns after the first are numbers.
pub struct Table {
    head: Vec<String>,
    rows: String,
    words: usize,
}

impl Table {
    /// With these columns.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: String::new(), words: 1 }
    }

    /// The first `count` columns are words.
    pub fn words(mut self, count: usize) -> Self {
        self.words = count;
        self
    }

    /// One more row.
    pub fn row<S: AsRef<str>>(mut self, cells: impl IntoIterator<Item = S>) -> Self {
        self.rows += "<tr>";
        for (i, cell) in cells.into_iter().enumerate() {
            self.rows += if i < self.words { "<td>" } else { "<td class=n>" };
            self.rows += &escape(cell.as_ref());
        }
        self.rows += "\n";
        self
    }

    /// One more row that stands out.
    pub fn own_row<S: AsRef<str>>(mut self, cells: impl IntoIterator<Item = S>) -> Self {
        let from = self.rows.len();
        self = self.row(cells);
        self.rows.replace_range(from..from + "<tr>".len(), "<tr class=own>");
        self
    }

    /// One more row for each.
    pub fn rows<S: AsRef<str>>(self, rows: impl IntoIterator<Item = Vec<S>>) -> Self {
        rows.into_iter().fold(self, Self::row)
    }

    /// As HTML, which scrolls where it is too wide; nothing without rows.
    pub fn html(self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let cell = |(i, name): (usize, &String)| {
            format!("<th scope=col{}>{}", if i < self.words { "" } else { " class=n" }, escape(name))
        };
        let head: String = self.head.iter().enumerate().map(cell).collect();
        let head = if self.head.iter().all(String::is_empty) { String::new() } else { format!("<tr>{head}\n") };
        format!("<div class=wide><table>{head}{}</table></div>", self.rows)
    }
}

/// A paragraph.
pub fn text(words: &str) -> String {
    format!("<p>{}</p>", escape(words))
}

/// A paragraph in small print.
pub fn note(words: &str) -> String {
    format!("<p class=note>{}</p>", escape(words))
}

/// A list of sentences; nothing without any.
pub fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}", escape(item))).collect();
    if items.is_empty() { items } else { format!("<ul>{items}</ul>") }
}

/// A chart and the table of its numbers: side by side, or one below the other where there is little room.
pub fn beside(chart: &str, table: &str) -> String {
    format!("<div class=pair>{chart}{table}</div>")
}

/// A block of code.
pub fn code(words: &str) -> String {
    format!("<pre>{}</pre>", escape(words))
}

/// Text that means nothing to a browser.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
