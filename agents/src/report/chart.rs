//! Line charts as inline SVG: faint raw points, a running mean over them, axes with round numbers.
//!
//! Each line has its own width and dashes, so that equal lines are all visible. The points stand in
//! `data-lines`, from which the page's script shows the values below the pointer.

use std::fmt::Write;

use super::html::escape;

/// The most points drawn: more cannot be distinguished.
const DRAWN: usize = 360;
/// Colours, each with a width and dashes of its own in the page's style.
const STYLES: usize = 6;
pub(super) const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 230.0;
pub(super) const LEFT: f64 = 52.0;
pub(super) const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Series {
    pub(crate) fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        let points = points
            .into_iter()
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect();
        Self {
            name: name.into(),
            points,
        }
    }

    /// Returns at most `limit` points, each the mean of its share.
    fn thinned(&self, limit: usize) -> Vec<(f64, f64)> {
        let share = self.points.len().div_ceil(limit.max(1)).max(1);
        let mean = |points: &[(f64, f64)]| {
            let n = points.len() as f64;
            (
                points.iter().map(|p| p.0).sum::<f64>() / n,
                points.iter().map(|p| p.1).sum::<f64>() / n,
            )
        };
        self.points.chunks(share).map(mean).collect()
    }
}

/// The mean of the points around each point, over about a twentieth of the line.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let reach = points.len() / 40;
    (0..points.len())
        .map(|i| {
            let around = &points[i.saturating_sub(reach)..(i + reach + 1).min(points.len())];
            (
                points[i].0,
                around.iter().map(|p| p.1).sum::<f64>() / around.len() as f64,
            )
        })
        .collect()
}

/// Draws a chart with its legend; empty if there is nothing to draw.
pub(crate) fn figure(title: &str, x: &str, series: &[Series], bounds: Option<(f64, f64)>) -> String {
    let series: Vec<&Series> = series.iter().filter(|series| !series.points.is_empty()).collect();
    if series.is_empty() {
        return String::new();
    }
    let mut html = format!("<figure><figcaption><b>{}</b>", escape(title));
    for (index, series) in series.iter().enumerate() {
        let last = series.points.last().map_or(0.0, |point| point.1);
        let name = escape(&series.name);
        let _ = write!(
            html,
            "<span class=\"key c{}\">{}{name} <i>{}</i></span>",
            index % STYLES,
            key_line(index),
            figure_number(last)
        );
    }
    html.push_str("</figcaption>");
    html.push_str(&svg(x, &series, bounds));
    html.push_str("<output></output>");
    html.push_str("</figure>\n");
    html
}

fn svg(x: &str, series: &[&Series], bounds: Option<(f64, f64)>) -> String {
    let lines: Vec<Vec<(f64, f64)>> = series.iter().map(|series| series.thinned(DRAWN)).collect();
    let all = || lines.iter().flatten();
    let x_range = range(all().map(|p| p.0));
    let (low, high) = range(all().map(|p| p.1));
    let low = if all().all(|p| p.1 >= 0.0) { low.max(0.0) } else { low };
    let y_range = bounds.map_or((low, high), |(least, most)| (low.min(least), high.max(most)));
    let (x_ticks, y_ticks) = (ticks(x_range), ticks(y_range));
    let y_range = y_ticks.ends(y_range);
    let place = |(px, py): (f64, f64)| {
        let across = (px - x_range.0) / (x_range.1 - x_range.0);
        let up = (py - y_range.0) / (y_range.1 - y_range.0);
        (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" data-x=\"{}\" data-from=\"{}\" data-to=\"{}\" data-lines=\"{}\">",
        escape(x),
        x_range.0,
        x_range.1,
        escape(&points_json(series, &lines))
    );
    for tick in y_ticks.within(y_range) {
        let (_, y) = place((x_range.0, tick));
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"y\" x=\"{}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            figure_number(tick)
        );
    }
    for tick in x_ticks.within(x_range) {
        let (px, _) = place((tick, y_range.0));
        let _ = write!(
            svg,
            "<text class=\"x\" x=\"{px:.1}\" y=\"{}\">{}</text>",
            HEIGHT - 10.0,
            figure_number(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"unit\" x=\"2\" y=\"{}\">{}</text>",
        HEIGHT - 10.0,
        escape(x)
    );
    for (index, line) in lines.iter().enumerate() {
        let class = index % STYLES;
        let draw = |points: &[(f64, f64)]| {
            let text = |p: &(f64, f64)| {
                let (x, y) = place(*p);
                format!("{x:.1},{y:.1}")
            };
            points.iter().map(text).collect::<Vec<_>>().join(" ")
        };
        if let [only] = line.as_slice() {
            let (cx, cy) = place(*only);
            let _ = write!(
                svg,
                "<circle class=\"dot c{class}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"/>"
            );
        } else if line.len() < 80 {
            let _ = write!(svg, "<polyline class=\"line c{class}\" points=\"{}\"/>", draw(line));
        } else {
            let (raw, mean) = (draw(line), draw(&smoothed(line)));
            let _ = write!(svg, "<polyline class=\"raw c{class}\" points=\"{raw}\"/>");
            let _ = write!(svg, "<polyline class=\"line c{class}\" points=\"{mean}\"/>");
        }
    }
    let _ = write!(
        svg,
        "<line class=\"at\" y1=\"{TOP}\" y2=\"{}\"/></svg>",
        HEIGHT - BOTTOM
    );
    svg
}

/// The stroke of a line in the legend, as in the chart.
fn key_line(index: usize) -> String {
    let class = index % STYLES;
    format!("<svg viewBox=\"0 0 24 8\"><polyline class=\"line c{class}\" points=\"0,4 24,4\"/></svg>")
}

/// The names and the drawn points of all lines, for the page's script.
fn points_json(series: &[&Series], lines: &[Vec<(f64, f64)>]) -> String {
    let named: Vec<_> = series
        .iter()
        .zip(lines)
        .map(|(series, line)| (&series.name, line))
        .collect();
    serde_json::to_string(&named).unwrap_or_default()
}

/// The least and the greatest value, widened if they are equal.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let close = (high - low) <= 1e-12 * high.abs().max(low.abs());
    if close { (low - 0.5, high + 0.5) } else { (low, high) }
}

/// Round numbers a step apart.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks(f64);

/// About five ticks, at 1, 2 or 5 times a power of ten.
fn ticks((low, high): (f64, f64)) -> Ticks {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= rough * 0.999);
    Ticks(factor.unwrap_or(10.0) * power)
}

impl Ticks {
    /// The range widened to whole ticks.
    fn ends(self, (low, high): (f64, f64)) -> (f64, f64) {
        (
            (low / self.0 + 1e-9).floor() * self.0,
            (high / self.0 - 1e-9).ceil() * self.0,
        )
    }

    fn within(self, (low, high): (f64, f64)) -> Vec<f64> {
        let first = (low / self.0 - 1e-9).ceil() as i64;
        let last = (high / self.0 + 1e-9).floor() as i64;
        (first..=last).map(|tick| tick as f64 * self.0).collect()
    }
}

/// Formats a number for people: 0.123, 12.3, 1.2k.
pub(crate) fn figure_number(value: f64) -> String {
    let size = value.abs();
    let trim = |text: String| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        }
    };
    match size {
        _ if size < 1e-18 => "0".into(),
        _ if size < 1e-3 => format!("{value:.1e}"),
        _ if size < 1.0 => trim(format!("{value:.3}")),
        _ if size < 100.0 => trim(format!("{value:.2}")),
        _ if size < 1e4 => trim(format!("{value:.0}")),
        _ if size < 1e6 => trim(format!("{:.1}", value / 1e3)) + "k",
        _ => trim(format!("{:.1}", value / 1e6)) + "M",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(ticks((0.0, 1.0)).within((0.0, 1.0)).len(), 6);
        assert_eq!(ticks((0.0, 400.0)), Ticks(100.0));
        let tick = ticks((-0.013, 0.029));
        assert_eq!(tick, Ticks(0.01));
        let ends = tick.ends((-0.013, 0.029));
        assert!((ends.0 + 0.02).abs() < 1e-9 && (ends.1 - 0.03).abs() < 1e-9, "{ends:?}");
        assert_eq!(range([3.0, 3.0].into_iter()), (2.5, 3.5));
    }

    #[test]
    fn long_lines_are_thinned_by_means_and_gaps_are_left_out() {
        let points = (0..1000)
            .map(|i| (f64::from(i), f64::from(i % 2)))
            .chain([(2000.0, f64::NAN)])
            .collect();
        let series = Series::new("a", points);
        let thin = series.thinned(100);
        assert_eq!(thin.len(), 100);
        assert!(thin.iter().all(|p| (p.1 - 0.5).abs() < 1e-9));
        assert!(figure("t", "step", &[series], None).contains("class=\"raw c0\""));
        assert_eq!(figure("t", "step", &[Series::new("a", vec![])], None), "");
    }

    #[test]
    fn figures_that_are_never_negative_have_no_negative_axis() {
        let constant = |value: f64| Series::new("a", vec![(1.0, value), (2.0, value)]);
        for series in [constant(0.0), constant(0.1)] {
            for bounds in [None, Some((0.0, 0.0)), Some((0.0, 1.0))] {
                let html = figure("t", "step", std::slice::from_ref(&series), bounds);
                assert!(!html.contains(">-"), "{html}");
            }
        }
        assert!(figure("t", "step", &[constant(-0.1)], None).contains(">-"));
    }

    #[test]
    fn equal_lines_differ_in_their_strokes_and_carry_values() {
        let lines = ["a", "b"].map(|name| Series::new(name, vec![(1.0, 0.125), (2.0, 0.5)]));
        let html = figure("t", "step", &lines, None);
        for class in ["line c0", "line c1"] {
            assert!(html.contains(class), "{html}");
        }
        let values = "[[&quot;a&quot;,[[1.0,0.125],[2.0,0.5]]],[&quot;b&quot;,[[1.0,0.125],[2.0,0.5]]]]";
        assert!(html.contains(values), "{html}");
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.00012, 0.1234, 0.5, 12.0, 12.345, 1234.0, 12345.0, 2.5e6].map(figure_number);
        assert_eq!(
            shown,
            ["0", "1.2e-4", "0.123", "0.5", "12", "12.35", "1234", "12.3k", "2.5M"]
        );
    }
}
