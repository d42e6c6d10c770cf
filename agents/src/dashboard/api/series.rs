//! Curves: figures by name, thinned for a chart.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::dashboard::figures::{Figures, Key, Thinned, thin};

/// The most curves of an answer.
const MOST: usize = 400;
/// The most points of a curve.
const POINTS: usize = 2000;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Curves {
    series: Vec<Thinned>,
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

/// Returns the curves that fit one of the patterns, which are separated by commas. A pattern is
/// `KIND:NAME`, and one `*` in it stands for any text.
pub(crate) fn select(figures: &Figures, patterns: &str, points: usize) -> Curves {
    let wanted: Vec<&str> = patterns.split(',').filter(|pattern| !pattern.is_empty()).collect();
    let fits = |key: &Key| {
        let name = format!("{}:{}", key.kind, key.name);
        wanted.iter().any(|pattern| fits(pattern, &name))
    };
    let found = figures.series.iter().filter(|(key, _)| fits(key)).take(MOST);
    Curves {
        series: found
            .map(|(key, values)| thin(key, values, points.clamp(2, POINTS)))
            .collect(),
    }
}

/// Returns the names of all figures.
pub(crate) fn names(figures: &Figures) -> Names {
    let mut names: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for key in figures.series.keys() {
        let of = names.entry((&key.kind, &key.name)).or_default();
        of.push(key.of.clone());
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
