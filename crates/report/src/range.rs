//! A chart of what to expect: a range at each of a few numbers, one of which is marked.

use std::fmt::Write;

use crate::number::number;
use crate::page::escape;

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 270.0;
/// Where the axes begin and end.
const LEFT: f64 = 44.0;
const RIGHT: f64 = 424.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 222.0;

/// What is expected at one number.
pub struct Ranged {
    /// Where it stands on the axis, in any unit.
    pub at: f64,
    /// What is written below.
    pub label: String,
    /// The lower end.
    pub low: f64,
    /// What is typical.
    pub middle: f64,
    /// The upper end.
    pub high: f64,
    /// Whether it is the one that is marked.
    pub own: bool,
}

/// What a chart is called.
pub struct Axes<'a> {
    /// A word that no other chart of the page has.
    pub id: &'a str,
    /// The axis from left to right.
    pub x: &'a str,
    /// The axis from bottom to top.
    pub y: &'a str,
    /// What the chart shows, for those who do not see it.
    pub title: &'a str,
    /// What is written at the mark.
    pub own: &'a str,
}

/// A line through what is typical, in a band between the ends. The upper axis ends at 1; what is below -1 is drawn at -1. Nothing with fewer than two points.
pub fn ranges(points: &[Ranged], axes: &Axes) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    if points.len() < 2 {
        return String::new();
    }
    let lowest = points.iter().map(|point| point.low).fold(0.0, f64::min).max(-1.0);
    let floor = (lowest * 2.0).floor() / 2.0;
    let x = |at: f64| LEFT + 16.0 + (RIGHT - LEFT - 32.0) * (at - first.at) / (last.at - first.at);
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * (value.clamp(floor, 1.0) - floor) / (1.0 - floor);
    let (id, title) = (escape(axes.id), escape(axes.title));
    let told = |point: &Ranged| {
        format!("{}: {}, from {} to {}", point.label, number(point.middle), number(point.low), number(point.high))
    };
    let description = points.iter().map(told).collect::<Vec<_>>().join("; ");
    let mut out = format!(
        "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-labelledby=\"{id}-title {id}-desc\"><title id=\"{id}-title\">{title}</title>\
         <desc id=\"{id}-desc\">{}.</desc>",
        escape(&description)
    );
    let step = if floor < 0.0 { 0.5 } else { 0.25 };
    for index in 0..=((1.0 - floor) / step).round() as u32 {
        let tick = floor + step * f64::from(index);
        let at = y(tick);
        let _ = write!(
            out,
            "<line x1={LEFT} x2={RIGHT} y1={at:.1} y2={at:.1} stroke=\"var(--line)\"/><text class=soft x={:.1} y={:.1} text-anchor=end>{}</text>",
            LEFT - 6.0,
            at + 4.5,
            number(tick)
        );
    }
    let upper = points.iter().map(|point| format!("{:.1},{:.1} ", x(point.at), y(point.high)));
    let lower = points.iter().rev().map(|point| format!("{:.1},{:.1} ", x(point.at), y(point.low)));
    let band: String = upper.chain(lower).collect();
    let line: String = points.iter().map(|point| format!("{:.1},{:.1} ", x(point.at), y(point.middle))).collect();
    let _ = write!(
        out,
        "<polygon points=\"{band}\" fill=\"var(--band)\"/><polyline points=\"{line}\" fill=none stroke=\"var(--one)\" stroke-width=2 />"
    );
    for point in points {
        let (at, middle) = (x(point.at), y(point.middle));
        let _ = write!(
            out,
            "<text class=soft x={at:.1} y={:.1} text-anchor=middle>{}</text>",
            BOTTOM + 18.0,
            escape(&point.label)
        );
        if !point.own {
            let _ = write!(out, "<circle cx={at:.1} cy={middle:.1} r=3.5 fill=\"var(--one)\"/>");
            continue;
        }
        let anchor = match () {
            () if at < LEFT + 50.0 => "start",
            () if at > RIGHT - 50.0 => "end",
            () => "middle",
        };
        let _ = write!(
            out,
            "<line x1={at:.1} x2={at:.1} y1={:.1} y2={BOTTOM} stroke=\"var(--two)\" stroke-width=1.5 stroke-dasharray=\"4 3\"/>\
             <circle cx={at:.1} cy={middle:.1} r=6 fill=\"var(--two)\" stroke=\"var(--paper)\" stroke-width=2 />\
             <text class=own x={at:.1} y={:.1} text-anchor={anchor}>{}</text>",
            TOP - 6.0,
            TOP - 12.0,
            escape(axes.own)
        );
    }
    let _ = write!(
        out,
        "<text class=soft x={:.1} y={:.1} text-anchor=middle>{}</text><text class=soft x=0 y=13>{}</text></svg></figure>",
        (LEFT + RIGHT) / 2.0,
        HEIGHT - 10.0,
        escape(axes.x),
        escape(axes.y)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_the_numbers_are_told_in_words() {
        let point =
            |at: f64, own: bool| Ranged { at, label: format!("<{at}>"), low: -3.0, middle: 0.5, high: 0.9, own };
        let axes = Axes { id: "a\"b", x: "<x>", y: "y&", title: "<script>", own: "this" };
        let svg = ranges(&[point(1.0, false), point(2.0, true)], &axes);
        assert!(svg.contains("<desc id=\"a&quot;b-desc\">&lt;1&gt;: 0.5, from -3 to 0.9; "), "{svg}");
        assert!(svg.contains("&lt;script&gt;</title>") && !svg.contains("<script") && !svg.contains("<x>"), "{svg}");
        assert!(ranges(&[point(1.0, true)], &axes).is_empty(), "one number is no chart");
    }
}
