//! Curves as SVG and PNG, the same picture on every machine: the font ships with the program.

use std::path::{Path, PathBuf};
use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use thiserror::Error;

/// Colours that are distinguishable with colour blindness (Okabe, Ito 2008).
pub const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// One curve.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its colour.
    pub color: RGBColor,
    /// x, y and the band around y.
    pub points: Vec<(f64, f64, f64, f64)>,
}

/// A chart of curves with a logarithmic y axis.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Above the plot.
    pub title: String,
    /// Below it.
    pub x_label: String,
    /// Left of it.
    pub y_label: String,
    /// Names of x = 0, 1, 2, ... where the axis is one of names; else empty.
    pub x_names: Vec<String>,
    /// What is drawn.
    pub curves: Vec<Curve>,
}

const SIZE: (u32, u32) = (900, 520);
const COLUMNS: usize = 3;
const LEGEND_ROW: u32 = 24;
const FONT: &str = "sans-serif";
const GREY: RGBColor = RGBColor(110, 110, 110);

/// A plot that cannot be drawn or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlotError {
    /// The file cannot be written.
    #[error("{path}: the plot cannot be written ({source})")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The drawing library failed.
    #[error("{path}: the plot cannot be drawn ({reason})")]
    Draw {
        /// Which file, or "plot" for one in memory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Chart {
    /// Writes `base`.svg and `base`.png.
    pub fn save(&self, base: &Path) -> Result<(), PlotError> {
        let (svg, png) = (base.with_extension("svg"), base.with_extension("png"));
        std::fs::write(&svg, self.svg()?).map_err(|source| PlotError::Write { path: svg, source })?;
        let drawn = self.draw(BitMapBackend::new(&png, SIZE).into_drawing_area());
        drawn.map_err(|reason| PlotError::Draw { path: png, reason })
    }

    /// The plot as SVG text.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        let drawn = self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area());
        drawn.map_err(|reason| PlotError::Draw { path: "plot".into(), reason })?;
        Ok(text)
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), String> {
        static FONTS: Once = Once::new();
        FONTS.call_once(|| {
            // The font is part of the crate: it cannot be invalid.
            let _ = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
        });
        let text = |e: DrawingAreaErrorKind<B::ErrorType>| e.to_string();
        area.fill(&WHITE).map_err(text)?;
        let (plot, legend) =
            area.split_vertically(SIZE.1 - 12 - LEGEND_ROW * self.curves.len().div_ceil(COLUMNS) as u32);
        let (x, y) = self.ranges();
        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, (FONT, 22))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(78)
            .build_cartesian_2d(x.0..x.1, (y.0..y.1).log_scale())
            .map_err(text)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .axis_style(GREY)
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .axis_desc_style((FONT, 18))
            .label_style((FONT, 15))
            .x_labels(if self.x_names.is_empty() { 11 } else { self.x_names.len() })
            .x_label_formatter(&|v| match self.x_names.get(v.round().max(0.0) as usize) {
                Some(name) if (v - v.round()).abs() < 1e-6 => name.clone(),
                None if self.x_names.is_empty() => format!("{v:.0}"),
                _ => String::new(),
            })
            .y_label_formatter(&|v| format!("{v:.0e}"))
            .draw()
            .map_err(text)?;
        for curve in &self.curves {
            let drawn = || curve.points.iter().filter(|p| p.1 > 0.0 && p.1.is_finite());
            if drawn().any(|p| p.2 < p.3) {
                let floor = |v: f64| v.max(y.0);
                let upper = drawn().map(|p| (p.0, floor(p.3)));
                let outline: Vec<(f64, f64)> =
                    upper.chain(drawn().collect::<Vec<_>>().into_iter().rev().map(|p| (p.0, floor(p.2)))).collect();
                chart.draw_series([Polygon::new(outline, curve.color.mix(0.18))]).map_err(text)?;
            }
            chart
                .draw_series(LineSeries::new(drawn().map(|p| (p.0, p.1)), curve.color.stroke_width(2)))
                .map_err(text)?;
        }
        self.draw_legend(&legend).map_err(text)?;
        area.present().map_err(text)
    }

    /// Rows of three under the plot, so that it never covers a curve.
    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        for (i, curve) in self.curves.iter().enumerate() {
            let (x, y) = (92 + 265 * (i % COLUMNS) as i32, 12 + LEGEND_ROW as i32 * (i / COLUMNS) as i32);
            area.draw(&PathElement::new(vec![(x, y), (x + 28, y)], curve.color.stroke_width(3)))?;
            area.draw(&Text::new(curve.name.clone(), (x + 36, y - 9), (FONT, 16).into_font()))?;
        }
        Ok(())
    }

    /// The range of x, and that of y in whole powers of ten.
    fn ranges(&self) -> ((f64, f64), (f64, f64)) {
        let points = || self.curves.iter().flat_map(|c| &c.points);
        let fold = |pick: fn(&(f64, f64, f64, f64)) -> f64| {
            let values = points().map(pick).filter(|v| v.is_finite());
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
        };
        let x = fold(|p| p.0);
        let x = if x.0 < x.1 { x } else { (x.0 - 1.0, x.0 + 1.0) };
        let (low, high) = fold(|p| if p.1 > 0.0 { p.1 } else { f64::NAN });
        if low.is_infinite() {
            return (x, (0.1, 1.0));
        }
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        (x, (10f64.powf(low), 10f64.powf(high.max(low + 1.0))))
    }
}
