//! Charts of all tabs: each draws what the metrics files have of its figures.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tests::program::metrics;

use super::Drawn;
use super::curves::LEGENDS;
use super::rounding::figure;

/// The largest number of series that a chart draws.
const SERIES: usize = 12;

/// The charts of each tab with the patterns of their figures, `kind:name`.
const TABS: &str = "import('./tabs.js').then(({ TABS }) => Object.entries(TABS).map(([name, [, charts]]) =>
  [name, charts.map(({ title, names }) => ({ title, names }))]))";

/// The values of a chart by step, sorted.
type ByStep = BTreeMap<String, Vec<String>>;

pub(super) fn tabs(drawn: &mut Drawn<'_>) {
    drawn.open("charts/learning", "u-over");
    let tabs = drawn.browser.value(TABS);
    let mut compared = BTreeSet::new();
    for [tab, charts] in tabs
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tab| tab.as_array()?.first_chunk())
    {
        let expected = charts.as_array().unwrap().iter();
        let expected: Vec<(&str, ByStep)> = expected.filter_map(|chart| written(drawn, chart)).collect();
        drawn.open(
            &format!("charts/{}", tab.as_str().unwrap()),
            &format!("<h3>{}</h3>", expected[0].0),
        );
        let shown = drawn.browser.value(LEGENDS);
        let shown = shown.as_array().unwrap();
        let titles: Vec<&str> = shown.iter().filter_map(|chart| chart["title"].as_str()).collect();
        assert!(
            titles.iter().eq(expected.iter().map(|(title, _)| title)),
            "{tab}: {titles:?}"
        );
        for (chart, (title, values)) in shown.iter().zip(&expected) {
            let points: ByStep = chart["points"].as_array().unwrap().iter().filter_map(point).collect();
            assert_eq!(points, *values, "{tab}: {title}");
            compared.insert((*title).to_owned());
        }
    }
    assert!(compared.len() > 25, "{compared:?}");
}

/// Returns a legend's step and its values.
fn point(rows: &Value) -> Option<(String, Vec<String>)> {
    let rows = rows.as_array()?.iter();
    let mut texts = rows
        .filter_map(|row| row[1].as_str())
        .filter(|text| !["–", "--"].contains(text));
    let step = texts.next()?.to_owned();
    let mut values: Vec<String> = texts.map(str::to_owned).collect();
    values.sort();
    Some((step, values))
}

/// Returns a chart's title, and its values in the files; `None` if they have none.
fn written<'a>(drawn: &Drawn<'_>, chart: &'a Value) -> Option<(&'a str, ByStep)> {
    let mut series: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
    for pattern in chart["names"].as_array().unwrap() {
        let (kind, name) = pattern.as_str().unwrap().split_once(':').unwrap();
        let (before, after) = name.split_once('*').unwrap_or((name, ""));
        let fits = |key: &str| match name.contains('*') {
            true => key.len() >= before.len() + after.len() && key.starts_with(before) && key.ends_with(after),
            false => key == name,
        };
        for line in metrics(&drawn.folder, kind) {
            let step = line["step"].as_u64().unwrap();
            let of = line["agent"].as_str().unwrap_or_default();
            for (key, value) in line.as_object().unwrap().iter().filter(|(key, _)| fits(key)) {
                if let Some(value) = value.as_f64() {
                    series
                        .entry(format!("{of} {kind} {key}"))
                        .or_default()
                        .insert(step, value);
                }
            }
        }
    }
    assert!(series.len() <= SERIES, "{}: {:?}", chart["title"], series.keys());
    let mut found = ByStep::new();
    for (step, value) in series.into_values().flatten() {
        found.entry(step.to_string()).or_default().push(figure(value));
    }
    found.values_mut().for_each(|values| values.sort());
    (!found.is_empty()).then(|| (chart["title"].as_str().unwrap(), found))
}
