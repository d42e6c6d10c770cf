//! Success and each agent's reward, before and after, seed by seed.

use std::collections::BTreeMap;

use anyhow::Context;

use super::runs::PlayedRun;
use crate::cli::render::table::{Align, Table, difference};
use crate::stats;
use crate::stats::summary;
use crate::stats::summary::Evaluation;

/// A figure's means in the first and the last evaluation.
type Ends = BTreeMap<String, (f64, f64)>;

pub(super) fn table(runs: &[PlayedRun]) -> anyhow::Result<String> {
    let mut seeds = Vec::new();
    for run in runs {
        let mut evaluations = summary::evaluations(&run.folder)?.into_values();
        let first = evaluations.next().context("the run made no evaluation")?;
        // A run that ended at once has only one evaluation: it is first and last.
        let last = evaluations.next_back().unwrap_or_else(|| first.clone());
        seeds.push((run.config.run.seed, ends(&first, &last)));
    }
    Ok(render(&seeds))
}

fn ends(first: &Evaluation, last: &Evaluation) -> Ends {
    let shown = |name: &&String| *name == "success" || name.starts_with("reward/");
    let names = first.values.keys().filter(shown);
    names
        .filter_map(|name| Some((name.clone(), (first.mean(name)?, last.mean(name)?))))
        .collect()
}

fn render(seeds: &[(u64, Ends)]) -> String {
    let mut names: Vec<&String> = seeds.iter().flat_map(|(_, ends)| ends.keys()).collect();
    names.sort_by_key(|name| (*name != "success", *name));
    names.dedup();
    let mut table = Table::new(&[("before -> after", Align::Left)]);
    for (seed, _) in seeds {
        table.column(&format!("seed {seed}"), Align::Left);
    }
    table.column("mean", Align::Left);
    table.column("gain (95% over seeds, t)", Align::Left);
    for name in names {
        let found: Vec<(f64, f64)> = seeds.iter().filter_map(|(_, ends)| ends.get(name).copied()).collect();
        let of = |value: fn(&(f64, f64)) -> f64| found.iter().map(value).collect::<Vec<f64>>();
        let arrow = |before: f64, after: f64| format!("{before:.3} -> {after:.3}");
        let mut cells = vec![name.clone()];
        for (_, ends) in seeds {
            cells.push(ends.get(name).map_or_else(|| "-".into(), |(a, b)| arrow(*a, *b)));
        }
        cells.push(arrow(stats::mean(&of(|pair| pair.0)), stats::mean(&of(|pair| pair.1))));
        let gains = of(|pair| pair.1 - pair.0);
        cells.push(match stats::t(&gains) {
            Some(interval) => difference(Some(interval)),
            None => format!("{:+.3} (one seed: no interval)", stats::mean(&gains)),
        });
        table.row(cells);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_over_seeds_and_success_comes_first() {
        let seed = |gain: f64| -> Ends {
            [("reward/a", (0.5, 0.5 + gain)), ("success", (0.0, gain))]
                .map(|(name, ends)| (name.to_owned(), ends))
                .into()
        };
        let text = render(&[(0, seed(0.5)), (1, seed(0.75))]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("success") && lines[2].starts_with("reward/a"),
            "{text}"
        );
        // Mean 0.625, standard error 0.125, t(1) = 12.706.
        assert!(
            lines[1].contains("0.000 -> 0.625") && lines[1].ends_with("+0.625 (-0.963 to +2.213)"),
            "{text}"
        );
        assert!(render(&[(0, seed(0.5))]).contains("no interval"));
    }
}
