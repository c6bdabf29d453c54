//! Small charts as SVG inside a page. Colours are those of the page, so they follow light and dark.

use std::fmt::Write;

pub use crate::number::number;
use crate::page::escape;

const WIDTH: f64 = 760.0;

/// A coefficient with an interval, and another estimate beside it.
pub struct Estimate {
    /// What it is of.
    pub name: String,
    /// The estimate.
    pub value: f64,
    /// Its interval, if there is one.
    pub interval: Option<(f64, f64)>,
    /// Another estimate, such as from pooled data.
    pub other: Option<f64>,
    /// In words, at the right.
    pub words: String,
}

/// A forest plot: one line per coefficient, with its interval, around zero. Every line has its own unit, so each is drawn relative to its own scale
/// where `common` is false.
pub fn forest(estimates: &[Estimate], caption: &str) -> String {
    let (row, left, right) = (26.0, 170.0, 290.0);
    let height = row * estimates.len() as f64 + 14.0;
    let (from, to) = (left, WIDTH - right);
    let mut out = open(WIDTH, height, caption);
    for (i, estimate) in estimates.iter().enumerate() {
        let y = row * (i as f64 + 0.5) + 6.0;
        let ends =
            [Some(estimate.value), estimate.interval.map(|e| e.0), estimate.interval.map(|e| e.1), estimate.other];
        // Coefficients have different units: each line runs from minus to plus the largest number on it.
        let most = ends.iter().flatten().fold(0.0f64, |m, v| m.max(v.abs())).max(f64::MIN_POSITIVE) * 1.05;
        let x = |v: f64| from + (to - from) * (v / most + 1.0) / 2.0;
        let _ = write!(
            out,
            "<text x=0 y={:.1}>{}</text><line x1={from} x2={to} y1={y} y2={y} stroke=\"var(--line)\"/>\
             <line x1={:.1} x2={:.1} y1={:.1} y2={:.1} stroke=\"var(--soft)\"/>",
            y + 4.5,
            escape(&short(&estimate.name, 26)),
            x(0.0),
            x(0.0),
            y - 6.0,
            y + 6.0
        );
        if let Some((low, high)) = estimate.interval {
            let _ = write!(
                out,
                "<line x1={:.1} x2={:.1} y1={y} y2={y} stroke=\"var(--one)\" stroke-width=3 />",
                x(low),
                x(high)
            );
        }
        if let Some(other) = estimate.other {
            let (x, s) = (x(other), 5.0);
            let _ = write!(
                out,
                "<path d=\"M{:.1} {y}l{s} {s}l{s} -{s}l-{s} -{s}z\" fill=none stroke=\"var(--two)\" stroke-width=2 />",
                x - s
            );
        }
        let _ = write!(
            out,
            "<circle cx={:.1} cy={y} r=4.5 fill=\"var(--one)\"/><text x={:.1} y={:.1}>{}</text>",
            x(estimate.value),
            to + 14.0,
            y + 4.5,
            escape(&estimate.words)
        );
    }
    close(out, caption)
}

/// A line in a chart.
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// Whether it is the second kind of line, drawn dashed.
    pub dashed: bool,
}

/// Lines over a common axis, from zero up, or on a logarithmic scale if the numbers span more than two powers of ten.
pub fn lines(lines: &[Line], x_name: &str, y_name: &str, caption: &str) -> String {
    let (height, left, right, top, bottom) = (300.0, 70.0, 150.0, 14.0, 44.0);
    let points = || lines.iter().flat_map(|line| &line.points).filter(|p| p.0.is_finite() && p.1.is_finite());
    let (low, high) = (fold(points().map(|p| p.0), f64::min), fold(points().map(|p| p.0), f64::max));
    let (least, most) = (fold(points().map(|p| p.1), f64::min), fold(points().map(|p| p.1), f64::max));
    let log = least > 0.0 && most > 100.0 * least;
    let (bottom_value, top_value) = if log { (least.log10(), most.log10()) } else { (least.min(0.0), most) };
    let span = |from: f64, to: f64| if to > from { to - from } else { 1.0 };
    let x = |v: f64| left + (WIDTH - left - right) * (v - low) / span(low, high);
    let scaled = |v: f64| if log { v.max(least).log10() } else { v };
    let y = |v: f64| top + (height - top - bottom) * (1.0 - (scaled(v) - bottom_value) / span(bottom_value, top_value));
    let mut out = open(WIDTH, height, caption);
    for tick in ticks(bottom_value, top_value, log) {
        let at = y(tick);
        let _ = write!(
            out,
            "<line x1={left} x2={:.1} y1={at:.1} y2={at:.1} stroke=\"var(--line)\"/><text class=soft x={:.1} y={:.1} text-anchor=end>{}</text>",
            WIDTH - right,
            left - 8.0,
            at + 4.5,
            number(tick)
        );
    }
    for tick in ticks(low, high, false) {
        let at = x(tick);
        let _ = write!(
            out,
            "<text class=soft x={at:.1} y={:.1} text-anchor=middle>{}</text>",
            height - bottom + 18.0,
            number(tick)
        );
    }
    let _ = write!(
        out,
        "<text class=soft x={:.1} y={:.1} text-anchor=middle>{}</text><text class=soft x={left} y=11>{}</text>",
        left + (WIDTH - left - right) / 2.0,
        height - 6.0,
        escape(x_name),
        escape(y_name)
    );
    for (i, line) in lines.iter().enumerate() {
        let colour = if i % 2 == 0 { "--one" } else { "--two" };
        let path: String = line.points.iter().map(|p| format!("{:.1},{:.1} ", x(p.0), y(p.1))).collect();
        let dash = if line.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let _ = write!(out, "<polyline points=\"{path}\" fill=none stroke=\"var({colour})\" stroke-width=2{dash} />");
        let at = 24.0 + 20.0 * i as f64;
        let _ = write!(
            out,
            "<line x1={:.1} x2={:.1} y1={:.1} y2={:.1} stroke=\"var({colour})\" stroke-width=2{dash} /><text x={:.1} y={at:.1}>{}</text>",
            WIDTH - right + 10.0,
            WIDTH - right + 34.0,
            at - 4.5,
            at - 4.5,
            WIDTH - right + 40.0,
            escape(&line.name)
        );
    }
    close(out, caption)
}

/// Two histograms over each other.
pub fn histograms(names: [&str; 2], samples: [&[f64]; 2], x_name: &str, caption: &str) -> String {
    let bins = 60;
    let all = || samples.iter().flat_map(|s| s.iter().copied()).filter(|v| v.is_finite());
    let (low, high) = (fold(all(), f64::min), fold(all(), f64::max));
    let width = if high > low { (high - low) / f64::from(bins) } else { 1.0 };
    let counted = |sample: &[f64]| {
        let mut counts = vec![0.0; bins as usize];
        for v in sample.iter().filter(|v| v.is_finite()) {
            counts[(((v - low) / width) as usize).min(bins as usize - 1)] += 1.0 / sample.len().max(1) as f64;
        }
        let edge = |i: usize| low + width * i as f64;
        let steps = counts.iter().enumerate().flat_map(|(i, c)| [(edge(i), 100.0 * c), (edge(i + 1), 100.0 * c)]);
        steps.collect::<Vec<(f64, f64)>>()
    };
    let line = |i: usize| Line { name: names[i].to_string(), points: counted(samples[i]), dashed: i == 1 };
    lines(&[line(0), line(1)], x_name, "% of trials", caption)
}

fn fold(values: impl Iterator<Item = f64>, f: fn(f64, f64) -> f64) -> f64 {
    values.reduce(f).unwrap_or(0.0)
}

/// Round numbers inside a range.
fn ticks(low: f64, high: f64, log: bool) -> Vec<f64> {
    if log {
        return (low.ceil() as i32..=high.floor() as i32).map(|e| 10f64.powi(e)).collect();
    }
    let raw = (high - low).max(f64::MIN_POSITIVE) / 5.0;
    let unit = 10f64.powf(raw.log10().floor());
    let step = unit * [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| unit * m >= raw).unwrap_or(10.0);
    let first = (low / step).ceil() as i64;
    (first..first + 12).map(|i| i as f64 * step).take_while(|v| *v <= high + step * 1e-9).collect()
}

fn short(name: &str, most: usize) -> String {
    if name.chars().count() <= most { name.into() } else { name.chars().take(most - 1).chain(['\u{2026}']).collect() }
}

fn open(width: f64, height: f64, caption: &str) -> String {
    format!("<figure><svg viewBox=\"0 0 {width} {height}\" role=img aria-label=\"{}\">", escape(caption))
}

fn close(svg: String, caption: &str) -> String {
    let caption =
        if caption.is_empty() { String::new() } else { format!("<figcaption>{}</figcaption>", escape(caption)) };
    format!("{svg}</svg>{caption}</figure>")
}
