//! `--resume RUN --steps N`: a run goes on for more steps than it began with.

use anyhow::Context;
use configs::{AgentName, RunConfig, Schedule};

use crate::base::fault::Usage;
use crate::ledger::completion;
use crate::run_folder::RunFolder;
use crate::stats::summary::{self, Evaluation};

/// A greater number of steps for a run.
#[derive(Debug)]
pub(super) struct Longer {
    steps: u64,
}

impl Longer {
    /// # Errors
    /// The run has as many steps already, or its goal was reached.
    pub(super) fn of(folder: &RunFolder, config: &RunConfig, steps: u64) -> anyhow::Result<Self> {
        let now = length(folder, config);
        if steps <= now {
            let message = format!("--steps {steps} raises the length of a resumed run, which has {now} steps already");
            return Err(Usage::new(message)
                .hint("write a greater number, or leave --steps out")
                .into());
        }
        if let Some((goal, step)) = reached(folder, config)? {
            let message =
                format!("eval.stop_at = {goal} was reached at step {step}, so the run would end again at once");
            return Err(Usage::new(message)
                .hint(format!(
                    "remove eval.stop_at from {}, and give the command again",
                    folder.path().join("config.toml").display()
                ))
                .into());
        }
        Ok(Self { steps })
    }

    /// Writes the new length into the run folder, and lets agents that have ended go on. Prints
    /// what becomes of schedules.
    ///
    /// # Errors
    /// The run goes on elsewhere, or its folder cannot be written.
    pub(super) fn begin(self, folder: &RunFolder, old: RunConfig) -> anyhow::Result<RunConfig> {
        let mut config = old.clone();
        config.run.train_steps = self.steps;
        for name in config.participants() {
            completion::reopen(folder, &name)
                .with_context(|| format!("opening the ledger of agent {name}: is the run still going on?"))?;
        }
        folder.set_reopened()?;
        folder.set_config(&config)?;
        for name in config.participants() {
            for note in notes(&old, &config, &name) {
                eprintln!("{note}");
            }
        }
        Ok(config)
    }
}

/// Returns `eval.stop_at` and the first step at which it was reached, if it was.
fn reached(folder: &RunFolder, config: &RunConfig) -> anyhow::Result<Option<(f64, u64)>> {
    let Some(goal) = config.eval.stop_at else {
        return Ok(None);
    };
    let reaches = |one: &&Evaluation| one.mean("success").is_some_and(|success| success >= goal);
    let evaluations = summary::evaluations(folder)?;
    Ok(evaluations.values().find(reaches).map(|one| (goal, one.step)))
}

/// Says how a run that has ended can play more.
pub(super) fn advice(folder: &RunFolder, config: &RunConfig) -> anyhow::Result<String> {
    let longer = format!("--steps N above {} makes the run longer", length(folder, config));
    Ok(match reached(folder, config)? {
        Some(_) => format!(
            "remove eval.stop_at from {}; then {longer}",
            folder.path().join("config.toml").display()
        ),
        None => longer,
    })
}

/// Returns the steps of a run that has ended, or else those that its configuration asks for. They
/// differ if the run was drained, or if its file was edited since.
pub(super) fn length(folder: &RunFolder, config: &RunConfig) -> u64 {
    let lead = config
        .lead()
        .filter(|_| completion::all(folder, &config.participants()));
    lead.map_or(config.run.train_steps, |lead| folder.newest_step(lead))
}

/// Says what becomes of an agent's schedules.
fn notes(old: &RunConfig, new: &RunConfig, name: &AgentName) -> Vec<String> {
    let Some(agent) = new.agents.get(name).filter(|agent| agent.train.enabled) else {
        return Vec::new();
    };
    let optimizer = &agent.train.optimizer;
    let (before, after) = (old.steps_of(name), new.steps_of(name));
    let becomes = match optimizer.decay_steps {
        0 if after < before => format!("now spans {after} steps instead of {before}, so its value changes at once"),
        0 => format!("now spans {after} steps instead of {before}, so at step {before} its value goes back up"),
        steps => format!("ends at step {steps} as before, and keeps its last value from there on"),
    };
    let mut notes = Vec::new();
    if optimizer.schedule != Schedule::Constant {
        notes.push(format!("agent {name}: the schedule of the learning rate {becomes}"));
    }
    if agent.train.entropy_final.is_some() {
        notes.push(format!("agent {name}: the schedule of the entropy bonus {becomes}"));
    }
    notes
}
