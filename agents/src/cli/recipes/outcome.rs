//! The outcome of a recipe.

use std::path::PathBuf;

use anyhow::ensure;
use serde::Serialize;

use crate::report::data;
use crate::run_folder::RunFolder;
use crate::stats::summary;

/// The figures of one recipe.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecipeRow {
    pub recipe: String,
    /// The run's folder, or `None` if the run did not begin.
    pub run: Option<PathBuf>,
    /// Mean number of generations in a conversation.
    pub turns: f64,
    pub agents: Vec<Trained>,
    /// Success in the first and the last evaluation.
    pub success: Ends,
    pub seconds: f64,
    pub failed: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trained {
    pub agent: String,
    /// Number of samples that were trained on.
    pub samples: u64,
    pub reward: Ends,
}

/// A figure before and after.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Ends {
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// True if the figure comes from training conversations, because evaluations do not have it.
    pub training: bool,
}

pub(super) fn failed(recipe: &str, reason: String) -> RecipeRow {
    RecipeRow {
        recipe: recipe.to_owned(),
        run: None,
        turns: 0.0,
        agents: Vec::new(),
        success: Ends::default(),
        seconds: 0.0,
        failed: Some(reason),
    }
}

/// Reads the figures from the run's metrics and evaluations.
pub(super) fn read(recipe: &str, folder: &RunFolder) -> anyhow::Result<RecipeRow> {
    let config = folder.config()?;
    let data = data::read(folder)?;
    let mut evaluations = summary::evaluations(folder)?.into_values();
    let first = evaluations.next();
    let last = evaluations.next_back();
    let ends = |metric: &str| Ends {
        before: first.as_ref().and_then(|first| first.mean(metric)),
        after: last.as_ref().and_then(|last| last.mean(metric)),
        training: false,
    };
    let of_agent = |agent: &str| {
        let mut reward = ends(&format!("reward/{agent}"));
        if reward.before.is_none() || reward.after.is_none() {
            let (before, after) = data.first_and_last(agent, "reward/mean").unzip();
            let training = true;
            reward = Ends {
                before,
                after,
                training,
            };
        }
        Trained {
            agent: agent.to_owned(),
            samples: data.total(agent, "samples") as u64,
            reward,
        }
    };
    let agents: Vec<Trained> = crate::eval::cross::trained(&config)
        .iter()
        .map(|agent| of_agent(agent.as_str()))
        .collect();
    let idle: Vec<&str> = agents
        .iter()
        .filter(|one| one.samples == 0)
        .map(|one| one.agent.as_str())
        .collect();
    ensure!(idle.is_empty(), "it ended without training {}", idle.join(", "));
    Ok(RecipeRow {
        recipe: recipe.to_owned(),
        run: Some(folder.path().to_owned()),
        turns: data.turns() as f64 / data.conversations().max(1) as f64,
        agents,
        success: ends("success"),
        seconds: 0.0,
        failed: None,
    })
}
