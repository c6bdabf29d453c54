//! Pages for people: one self-contained HTML file each, with small charts, in light and dark, on screen and on paper.
//!
//! A [`Page`] is made of [`Section`](Page::section)s of text, [`Table`]s and [charts](chart). Everything that comes from outside is escaped; nothing is
//! fetched from anywhere.
//!
//! ```
//! use undertone_report::{Page, Table, text};
//!
//! let table = Table::new(["party", "records"]).row(["lakeside", "400"]);
//! let page = Page::new("A study").section("Who took part", [text("Two parties."), table.html()]).html();
//! assert!(page.contains("<td>lakeside"));
//! ```

#![forbid(unsafe_code)]

pub mod chart;
mod number;
mod page;
mod range;
mod study;

pub use number::{bytes, digits};
pub use page::{Page, Table, beside, code, escape, list, note, text};
pub use range::{Axes, Ranged, ranges};
pub use study::{ScoreTable, StudyReport};
