//! The table of runs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::dashboard::answer::ApiError;
use crate::dashboard::runs::{Runs, State, state};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::lines::Backward;
use crate::stats::summary;

/// Lines from the end of a metrics file among which the newest batch is looked for.
const LAST_LINES: usize = 50;

/// One run in the table.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Card {
    run: String,
    created_ms: u64,
    workflow: String,
    mode: String,
    agents: Vec<String>,
    state: State,
    /// Why the run ended or was stopped.
    reason: Option<String>,
    /// Batches of the agent that trained most, and the run's last step.
    step: Option<u64>,
    steps: Option<u64>,
    /// Mean success of each evaluation: (step, mean).
    success: Vec<(u64, f64)>,
    /// Why the folder cannot be read.
    problem: Option<String>,
}

/// Sizes and times of the files that a card is made of.
type Stamp = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// Cards of runs, until their files change.
#[derive(Default)]
pub(crate) struct Cards(Mutex<HashMap<PathBuf, (Stamp, Card)>>);

impl Cards {
    /// Returns all runs, the newest first.
    pub(crate) fn read(&self, runs: &Runs) -> Result<Vec<Card>, ApiError> {
        let mut cards: Vec<Card> = runs.all().iter().map(|folder| self.card(folder)).collect();
        cards.sort_by(|a, b| b.created_ms.cmp(&a.created_ms).then_with(|| a.run.cmp(&b.run)));
        Ok(cards)
    }

    /// Returns the card of one run.
    pub(crate) fn card(&self, folder: &RunFolder) -> Card {
        let stamp = stamp(folder);
        let known = {
            let cards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let known = cards.get(folder.path());
            known.filter(|(old, _)| *old == stamp).map(|(_, card)| card.clone())
        };
        let mut card = known.unwrap_or_else(|| {
            let card = card(folder);
            let mut cards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            cards.insert(folder.path().to_owned(), (stamp, card.clone()));
            card
        });
        // The state also depends on the time.
        match state(folder) {
            Ok((state, reason)) => (card.state, card.reason) = (state, reason),
            Err(error) => card.problem = Some(error.to_string()),
        }
        card
    }
}

fn stamp(folder: &RunFolder) -> Stamp {
    let lines = ["metrics", "evals"].map(|part| folder.files(part).unwrap_or_default());
    let config = folder.path().join("config.toml");
    let stamp = |path: PathBuf| {
        let data = fs::metadata(&path).ok();
        let changed = data.as_ref().and_then(|data| data.modified().ok());
        (path, data.map_or(0, |data| data.len()), changed)
    };
    lines.into_iter().flatten().chain([config]).map(stamp).collect()
}

fn card(folder: &RunFolder) -> Card {
    let mut card = Card {
        run: folder.run().to_string(),
        created_ms: 0,
        workflow: String::new(),
        mode: String::new(),
        agents: Vec::new(),
        state: State::Silent,
        reason: None,
        step: None,
        steps: None,
        success: Vec::new(),
        problem: None,
    };
    if let Err(error) = fill(&mut card, folder) {
        card.problem = Some(format!("{error:#}"));
    }
    card
}

/// Reads the keys that are needed: checking a whole configuration takes longer.
fn fill(card: &mut Card, folder: &RunFolder) -> anyhow::Result<()> {
    card.created_ms = folder.info()?.created_ms;
    let config: toml::Table = fs::read_to_string(folder.path().join("config.toml"))?.parse()?;
    let section = |name: &str| config.get(name).and_then(toml::Value::as_table);
    let text = |section: Option<&toml::Table>, key: &str| {
        let value = section.and_then(|section| section.get(key)?.as_str());
        value.unwrap_or_default().to_owned()
    };
    card.workflow = text(section("workflow"), "kind");
    card.mode = text(section("run"), "mode");
    let steps = section("run").and_then(|run| run.get("train_steps")?.as_integer());
    card.steps = steps.and_then(|steps| u64::try_from(steps).ok());
    card.agents = section("agents")
        .map(|agents| agents.keys().cloned().collect())
        .unwrap_or_default();
    card.step = folder.files("metrics")?.iter().filter_map(|path| last_step(path)).max();
    let evaluations = summary::evaluations(folder)?;
    let means = evaluations
        .iter()
        .filter_map(|(step, one)| Some((*step, one.mean("success")?)));
    card.success = means.collect();
    Ok(())
}

/// Returns the step of the newest batch in a metrics file.
fn last_step(path: &Path) -> Option<u64> {
    let mut lines = Backward::open(path, None).ok()?;
    for _ in 0..LAST_LINES {
        let (_, line) = lines.next_line().ok()??;
        let line: Value = serde_json::from_slice(&line).unwrap_or_default();
        if line.get("kind").and_then(Value::as_str) == Some("train") {
            return line.get("step").and_then(Value::as_u64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn table_shows_steps_and_follows_new_lines() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let (cards, runs) = (Cards::default(), Runs::below(base.path()));
        let shown = || cards.read(&runs).unwrap().remove(0);
        let card = shown();
        assert_eq!(
            (card.workflow.as_str(), card.steps, card.step),
            ("signal", Some(3), None)
        );
        assert_eq!(
            (card.agents, card.problem),
            (vec!["a".to_owned(), "b".to_owned()], None)
        );
        let line = "{\"kind\":\"train\",\"step\":2,\"agent\":\"a\"}\n{\"kind\":\"checkpoint\",\"step\":2}\n";
        fs::write(folder.metrics("a"), line).unwrap();
        let card = shown();
        assert_eq!((card.step, card.state), (Some(2), State::Live));
        fs::write(folder.path().join("config.toml"), "= broken").unwrap();
        assert!(shown().problem.is_some());
    }
}
