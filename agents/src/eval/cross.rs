//! Cross-play: shows which agent's training makes a team better. Each trained agent plays with
//! initial partners, and all trained agents play together, on the same tasks.

use std::collections::{BTreeMap, BTreeSet};

use broker::AgentName;
use configs::RunConfig;
use rollout::group::Rules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::play::{Manner, Player};
use super::weights::Chosen;
use super::{engines, score, suites};
use crate::run_folder::RunFolder;
use crate::stats::summary::Evaluation;
use crate::stats::{self, Interval};

/// The agents of a team that play as trained; the others play with their initial weights.
pub type Cell = BTreeSet<AgentName>;

/// Returns the cells: no agent; each agent that trains alone; all of them.
#[must_use]
pub fn cells(trained: &[AgentName]) -> Vec<Cell> {
    let mut cells = vec![Cell::new()];
    cells.extend(trained.iter().map(|agent| Cell::from([agent.clone()])));
    if trained.len() > 1 {
        cells.push(trained.iter().cloned().collect());
    }
    cells
}

/// Pairs of cells with a difference that shows the effect of training: (minuend, subtrahend).
#[must_use]
pub fn differences(cells: &[Cell]) -> Vec<(Cell, Cell)> {
    let (Some(none), Some(all)) = (cells.first(), cells.last()) else {
        return Vec::new();
    };
    let alone: Vec<&Cell> = cells.iter().filter(|cell| cell.len() == 1).collect();
    let mut pairs: Vec<(Cell, Cell)> = alone.iter().map(|cell| ((*cell).clone(), none.clone())).collect();
    if alone.len() > 1 {
        pairs.extend(alone.into_iter().map(|cell| (all.clone(), cell.clone())));
        pairs.push((all.clone(), none.clone()));
    }
    pairs
}

/// The name of a cell.
#[must_use]
pub fn name(cell: &Cell, trained: usize) -> String {
    match cell.len() {
        0 => "all initial".into(),
        n if n == trained && n > 1 => "all trained".into(),
        _ => {
            let names: Vec<&str> = cell.iter().map(AgentName::as_str).collect();
            let rest = if trained > 1 { ", others initial" } else { "" };
            format!("{} trained{rest}", names.join(" and "))
        }
    }
}

/// The conversations of one run's cells.
#[derive(Debug, Clone)]
pub struct OfRun {
    pub run: String,
    pub found: BTreeMap<Cell, Evaluation>,
}

/// Agents of the run that trained, by name.
#[must_use]
pub fn trained(config: &RunConfig) -> Vec<AgentName> {
    let trains = |name: &AgentName| config.agents.get(name).is_some_and(|agent| agent.train.enabled);
    config.participants().into_iter().filter(trains).collect()
}

/// Plays every cell of a run on its evaluation's tasks, greedy.
///
/// # Errors
/// Fails if the run did not keep the weights, or has no tasks.
pub async fn play(run: &RunFolder, tell: impl Fn(&str)) -> anyhow::Result<OfRun> {
    let config = run.config()?;
    let set = suites::of_eval(&config, 0, 0.0)?;
    let rules = Rules::of(&config.workflow, &*set.workflow, BTreeSet::new());
    let trained = trained(&config);
    let scratch = engines::Scratch::new()?;
    let mut found = BTreeMap::new();
    for cell in cells(&trained) {
        let mut chosen = BTreeMap::new();
        for agent in config.participants() {
            let weights = if cell.contains(&agent) {
                Chosen::newest(run, &agent)?
            } else {
                Chosen::initial(run, &agent)?
            };
            chosen.insert(agent, weights);
        }
        let seats = engines::start(&config, &chosen, scratch.path())?;
        let player = Player::new(&config, set.workflow.clone(), &seats);
        let played = player.play(&set.tasks, Manner::Greedy).await?;
        let conversations = score::conversations(&rules, &*set.workflow, &played, true);
        tell(&name(&cell, trained.len()));
        found.insert(cell, score::evaluation(&conversations));
    }
    Ok(OfRun {
        run: run.run().to_string(),
        found,
    })
}

/// A figure of a row, in each column.
pub type CellFigures = BTreeMap<String, Interval>;

/// Cells and their differences, over runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrossTable {
    /// `success` and each agent's reward.
    pub figures: Vec<String>,
    pub cells: Vec<(String, CellFigures)>,
    pub differences: Vec<(String, CellFigures)>,
    pub runs: Vec<String>,
    /// The unit that the intervals are over.
    pub over: String,
}

/// Builds the table of one recipe's runs: means over runs with Student's t. A single run's
/// intervals are over its tasks.
#[must_use]
pub fn table(runs: &[OfRun], trained: &[AgentName]) -> CrossTable {
    let figures = columns(runs);
    let cells = cells(trained);
    let alone = match runs {
        [alone] => Some(alone),
        _ => None,
    };
    // By run, or by task if there is one run.
    let values = |cell: &Cell, figure: &str| -> Option<BTreeMap<String, f64>> {
        if let Some(run) = alone {
            return run.found.get(cell)?.values.get(figure).cloned();
        }
        let of_run = |(index, run): (usize, &OfRun)| Some((index.to_string(), run.found.get(cell)?.mean(figure)?));
        runs.iter().enumerate().map(of_run).collect()
    };
    let row = |value: &dyn Fn(&str) -> Option<Interval>| -> CellFigures {
        let found = figures
            .iter()
            .filter_map(|figure| Some((figure.clone(), value(figure)?)));
        found.collect()
    };
    let of_cell = |cell: &Cell| {
        let found = row(&|figure| {
            let values: Vec<f64> = values(cell, figure)?.into_values().collect();
            if alone.is_some() {
                stats::over_tasks_of(figure, &values)
            } else {
                stats::t(&values)
            }
        });
        (name(cell, trained.len()), found)
    };
    let of_pair = |(what, less): &(Cell, Cell)| {
        let found = row(&|figure| {
            let (what, less) = (values(what, figure)?, values(less, figure)?);
            let pairs = what.iter().filter_map(|(key, value)| Some(value - less.get(key)?));
            stats::t(&pairs.collect::<Vec<f64>>())
        });
        let (what, less) = (name(what, trained.len()), name(less, trained.len()));
        (format!("{what} - {less}"), found)
    };
    CrossTable {
        cells: cells.iter().map(of_cell).collect(),
        differences: differences(&cells).iter().map(of_pair).collect(),
        figures,
        runs: runs.iter().map(|run| run.run.clone()).collect(),
        over: match alone {
            Some(_) => {
                "tasks of the one run (another seed may differ more): Wilson's where all are 0 or 1, else Student's t"
                    .into()
            }
            None => format!("{} runs, Student's t; differences are paired by run", runs.len()),
        },
    }
}

fn columns(runs: &[OfRun]) -> Vec<String> {
    let names: BTreeSet<&String> = runs
        .iter()
        .flat_map(|run| run.found.values())
        .flat_map(|found| found.values.keys())
        .collect();
    let shown = |name: &&&String| {
        name.as_str() == "success" || name.strip_prefix("reward/").is_some_and(|rest| !rest.contains('/'))
    };
    let mut names: Vec<String> = names.iter().filter(shown).map(ToString::to_string).collect();
    names.sort_by_key(|name| (name != "success", name.clone()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(names: &[&str]) -> Vec<AgentName> {
        names.iter().map(|name| AgentName::new(name).unwrap()).collect()
    }

    #[test]
    fn two_agents_make_a_square_and_more_add_a_cell_each() {
        let cells_of = |names: &[&str]| -> Vec<String> {
            let agents = agents(names);
            cells(&agents).iter().map(|cell| name(cell, agents.len())).collect()
        };
        assert_eq!(
            cells_of(&["a", "b"]),
            [
                "all initial",
                "a trained, others initial",
                "b trained, others initial",
                "all trained"
            ]
        );
        assert_eq!(cells_of(&["a"]), ["all initial", "a trained"]);
        assert_eq!(cells_of(&["a", "b", "c"]).len(), 5);
        assert_eq!(differences(&cells(&agents(&["a"]))).len(), 1);
        assert_eq!(differences(&cells(&agents(&["a", "b"]))).len(), 5);
    }

    /// Seeds differ a lot and training always adds the same: paired by run, the difference is
    /// certain.
    #[test]
    fn differences_are_paired_by_run() {
        let trained = agents(&["a", "b"]);
        let run = |index: usize| {
            let level = index as f64 * 0.2;
            let of_cell = |cell: Cell| {
                let success = level + 0.1 * cell.len() as f64;
                let values = BTreeMap::from([
                    ("success".to_owned(), BTreeMap::from([("t".to_owned(), success)])),
                    ("reward/a".to_owned(), BTreeMap::from([("t".to_owned(), 2.0 * success)])),
                    ("reward/a/solver".to_owned(), BTreeMap::from([("t".to_owned(), 0.0)])),
                ]);
                (
                    cell,
                    Evaluation {
                        values,
                        ..Evaluation::default()
                    },
                )
            };
            OfRun {
                run: format!("r{index}"),
                found: cells(&trained).into_iter().map(of_cell).collect(),
            }
        };
        let found = table(&[run(0), run(1), run(2)], &trained);
        assert_eq!(found.figures, ["success", "reward/a"]);
        let (name, all) = &found.differences[4];
        assert_eq!(name, "all trained - all initial");
        let success = all["success"];
        assert!((success.mean - 0.2).abs() < 1e-12 && success.high - success.low < 1e-12);
        let spread = found.cells[0].1["success"];
        assert!(spread.high - spread.low > 0.5, "{spread:?}");
        assert!((all["reward/a"].mean - 0.4).abs() < 1e-12);
    }
}
