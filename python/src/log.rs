//! Undertone's log, handed over to Python's `logging`.
//!
//! Threads of a peer must not wait for the interpreter, so they put their lines into a queue. The thread that waits for the peer empties it.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, Once};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

struct Line {
    level: u8,
    target: String,
    text: String,
}

static LINES: Mutex<VecDeque<Line>> = Mutex::new(VecDeque::new());
/// More lines than a program that never looks at them should keep.
const MOST_LINES: usize = 10_000;

/// Collects the log from now on.
pub fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = tracing_subscriber::filter::LevelFilter::DEBUG;
        let filter = tracing_subscriber::filter::Targets::new()
            .with_target("undertone", level)
            .with_target("undertone_peer", level);
        // Where a program has a log of its own already, it goes there.
        let _ = tracing_subscriber::registry().with(filter).with(Queue).try_init();
    });
}

/// Gives the lines to Python's logger "undertone".
pub fn hand_over(py: Python) -> PyResult<()> {
    // Where another thread has them now, or had them when this process was forked, the next call gets them.
    let lines: Vec<Line> = LINES.try_lock().map(|mut lines| lines.drain(..).collect()).unwrap_or_default();
    if lines.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", ("undertone",))?;
    for line in lines {
        let own = logger.call_method1("getChild", (line.target.trim_start_matches("undertone_"),))?;
        own.call_method1("log", (line.level, "%s", line.text))?;
    }
    Ok(())
}

struct Queue;

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event, _: Context<S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG | Level::TRACE => 10,
        };
        let mut text = Text::default();
        event.record(&mut text);
        let target = event.metadata().target().split("::").next().unwrap_or_default().to_string();
        let line = Line { level, target, text: text.message + &text.fields };
        if let Ok(mut lines) = LINES.lock() {
            if lines.len() >= MOST_LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    }
}

/// The message, then the fields as in the program's log.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.into(),
            name => drop(write!(self.fields, " {name}=\"{value}\"")),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => drop(write!(self.fields, " {name}={value:?}")),
        }
    }
}
