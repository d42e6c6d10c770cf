//! Curves: figures by name, thinned for a chart.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::dashboard::figures::{Figures, Key, Thinned};
use crate::dashboard::shapes::SeriesQuery;

/// The most curves of an answer.
const MOST: usize = 400;
/// The points of a curve if the query names no number, and the most.
const USUAL: usize = 500;
const POINTS: usize = 2000;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Curves {
    series: Vec<Thinned>,
}

impl Curves {
    /// Returns a line for each point, below a header. `min` and `max` are those of merged points.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from("kind,of,name,step,seconds,mean,min,max\n");
        for curve in &self.series {
            let Key { kind, of, name } = &curve.key;
            let head = [kind, of, name].map(|text| field(text)).join(",");
            for (at, (step, mean)) in curve.x.iter().zip(&curve.mean).enumerate() {
                let of = |column: &Option<Vec<f64>>| column.as_ref().and_then(|all| all.get(at)).copied();
                let (min, max) = (of(&curve.min).unwrap_or(*mean), of(&curve.max).unwrap_or(*mean));
                let seconds = curve.t.get(at).copied().flatten();
                let seconds = seconds.map(|seconds| seconds.to_string()).unwrap_or_default();
                text += &format!("{head},{step},{seconds},{mean},{min},{max}\n");
            }
        }
        text
    }
}

/// Returns a text as a field of CSV.
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

/// A figure that a chart may show.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Named {
    kind: String,
    name: String,
    of: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Names {
    names: Vec<Named>,
}

/// Returns the curves of a query.
pub(crate) fn select(figures: &Figures, query: &SeriesQuery) -> Curves {
    let wanted: Vec<&str> = query.name.split(',').filter(|pattern| !pattern.is_empty()).collect();
    let fits = |(kind, of, name): &(&str, &str, &str)| {
        let name = format!("{kind}:{name}");
        query.agent.as_deref().is_none_or(|agent| agent == *of) && wanted.iter().any(|pattern| fits(pattern, &name))
    };
    let found = figures.keys().filter(fits).take(MOST);
    let curves = found.filter_map(|key| figures.curve(key));
    let from = query.from.unwrap_or(0);
    let points = query.points.unwrap_or(USUAL).clamp(2, POINTS);
    Curves {
        series: curves.map(|curve| curve.since(from).thin(points)).collect(),
    }
}

/// Returns the names of all figures.
pub(crate) fn names(figures: &Figures) -> Names {
    let mut names: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for (kind, of, name) in figures.keys() {
        names.entry((kind, name)).or_default().push(of.to_owned());
    }
    let named = |((kind, name), of): ((&str, &str), Vec<String>)| Named {
        kind: kind.into(),
        name: name.into(),
        of,
    };
    Names {
        names: names.into_iter().map(named).collect(),
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name
            .strip_prefix(before)
            .is_some_and(|rest| rest.len() >= after.len() && rest.ends_with(after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_the_points_of_the_answer_below_a_header() {
        let curve = |name: &str, x: &[u64], t: &[Option<f64>], mean: &[f64]| Thinned {
            key: Key {
                kind: "train".into(),
                of: "a".into(),
                name: name.into(),
            },
            count: 9,
            x: x.to_vec(),
            t: t.to_vec(),
            mean: mean.to_vec(),
            min: None,
            max: None,
        };
        let merged = Thinned {
            min: Some(vec![0.25, 1.0]),
            max: Some(vec![2.0, 1.0]),
            ..curve("loss", &[2, 3], &[None, None], &[1.125, 1.0])
        };
        let series = vec![curve("part/x,\"y\"", &[1, 2], &[Some(0.5), None], &[2.0, 0.25]), merged];
        let csv = Curves { series }.csv();
        let lines: Vec<&str> = csv.lines().collect();
        let wanted = [
            "kind,of,name,step,seconds,mean,min,max",
            "train,a,\"part/x,\"\"y\"\"\",1,0.5,2,2,2",
            "train,a,\"part/x,\"\"y\"\"\",2,,0.25,0.25,0.25",
            "train,a,loss,2,,1.125,0.25,2",
            "train,a,loss,3,,1,1,1",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn patterns_have_at_most_one_star() {
        for (pattern, name, wanted) in [
            ("train:loss", "train:loss", true),
            ("train:loss", "train:loss/entropy", false),
            ("eval:*/success", "eval:math/success", true),
            ("eval:*/success", "eval:success", false),
            ("train:part/*", "train:part/solver/correct", true),
            ("*", "train:loss", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
