//! Conversations of real engines in this process, without training.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::AgentName;
use broker::protocol::task::Task;
use configs::RunConfig;
use rollout::group::MemberEnd;
use rollout::workflow::Workflow;

use super::TestArgs;
use crate::base::fault::Usage;
use crate::cli::eval::weights::chosen;
use crate::eval::engines::{self, Scratch, Seat};
use crate::eval::play::{Manner, Player};
use crate::participant::Host;

/// Engines with the weights that the command names.
pub(super) struct AnswerTable {
    seats: BTreeMap<AgentName, Seat>,
    /// The name of each agent's weights, as printed.
    labels: BTreeMap<String, String>,
    /// Holds random models for as long as engines may read them.
    _scratch: Scratch,
}

impl AnswerTable {
    /// Starts the engines and prints each agent's weights on stderr. Returns `None` if answers are
    /// scripted.
    ///
    /// # Errors
    /// Returns an error for scripted answers together with engines, and the errors of [`chosen`]
    /// and [`engines::start`].
    pub(super) fn open(args: &TestArgs, config: &RunConfig) -> anyhow::Result<Option<Self>> {
        let named = !args.checkpoints.is_empty() || args.weights.is_some();
        if !args.engine && !named {
            return Ok(None);
        }
        if !args.says.is_empty() {
            return Err(
                Usage::new("--say gives scripted answers, but engines generate their own")
                    .hint("leave out either --say, or --engine, --weights and --checkpoint")
                    .into(),
            );
        }
        let chosen = chosen(&args.checkpoints, args.weights.as_deref(), &args.runs, config)?;
        let scratch = Scratch::new()?;
        let seats = engines::start(config, &chosen, scratch.path())?;
        for (agent, chosen) in &chosen {
            eprintln!("{agent}: {}", chosen.label);
        }
        let labels = chosen
            .into_iter()
            .map(|(agent, chosen)| (agent.to_string(), chosen.label));
        Ok(Some(Self {
            seats,
            labels: labels.collect(),
            _scratch: scratch,
        }))
    }

    /// Returns the name of an agent's weights; empty for an unknown agent.
    pub(super) fn label(&self, agent: &str) -> &str {
        self.labels.get(agent).map_or("", String::as_str)
    }

    /// Returns the player of all tasks of the test, with these programs.
    pub(super) fn player<'a>(&'a self, config: &'a RunConfig, workflow: Arc<dyn Workflow>, host: Host) -> Player<'a> {
        Player::with_host(config, workflow, &self.seats, host)
    }
}

/// Plays `members` conversations of the task, sampled as in training with the run's seed.
pub(super) async fn play(player: &Player<'_>, task: Arc<Task>, members: u16) -> anyhow::Result<Vec<MemberEnd>> {
    let id = task.id.clone().unwrap_or_else(|| "test".into());
    let played = player
        .play(&[(id, task)], Manner::AsInTraining { samples: members })
        .await?;
    Ok(played.into_iter().flat_map(|one| one.ends).collect())
}
