//! Conversations with scripted answers: no model is needed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use broker::ids::WeightVersion;
use broker::protocol::failure::Failure;
use broker::protocol::task::Task;
use broker::protocol::turn::{Generation, LogProbs, TurnOutcome, VersionSpan};
use configs::RunConfig;
use rollout::group::{GroupRun, MemberEnd, RunSpec, Wanted};
use rollout::text::visible_text;
use rollout::workflow::unanswered::said;
use rollout::workflow::{Workflow, player};

use crate::base::fault::Usage;
use crate::participant::Host;
use crate::run_folder::logs::prompt_text;
use crate::turn::{failure, image_support};

/// The answers that `--say` gives to a role (`ROLE`) or to one of its turns (`ROLE@TURN`).
#[derive(Debug, Default)]
pub(super) struct Says {
    answers: BTreeMap<String, Vec<String>>,
    /// The keys that a turn has used.
    used: RefCell<BTreeSet<String>>,
}

impl Says {
    /// Returns the answers of a turn.
    fn of(&self, role: &str, turn: u16) -> Option<&[String]> {
        let keys = [format!("{role}@{turn}"), role.to_owned()];
        let (key, answers) = keys.iter().find_map(|key| self.answers.get_key_value(key))?;
        self.used.borrow_mut().insert(key.clone());
        Some(answers)
    }

    /// Returns the keys that no turn has used.
    pub(super) fn unused(&self) -> Vec<String> {
        let used = self.used.borrow();
        let keys = self.answers.keys().filter(|key| !used.contains(*key));
        keys.cloned().collect()
    }
}

pub(super) fn says(given: &[String]) -> anyhow::Result<Says> {
    let mut says = Says::default();
    for one in given {
        let (role, text) = one
            .split_once('=')
            .ok_or_else(|| Usage::new(format!("--say {one}: write ROLE=TEXT")))?;
        says.answers.entry(role.to_owned()).or_default().push(text.to_owned());
    }
    Ok(says)
}

/// Plays a group of `task` to its end. Agents give the answers in `says`, drawn by each turn's
/// seed; programs are really asked.
pub(super) async fn play(
    config: &RunConfig,
    (workflow, host): (&Arc<dyn Workflow>, &Host),
    task: Arc<Task>,
    members: u16,
    seed: u64,
    says: &Says,
) -> anyhow::Result<Vec<MemberEnd>> {
    rollout::workflow::check_task(workflow.as_ref(), &task).map_err(Usage::new)?;
    let mut run = GroupRun::new(RunSpec {
        workflow: workflow.clone(),
        task: task.clone(),
        task_id: task.id.clone().unwrap_or_else(|| "test".into()),
        run_seed: seed,
        group_size: members,
        retries: config.workflow.retries,
        min_valid: 1,
    });
    while !run.is_done() {
        for wanted in run.take_wanted() {
            let outcome = if host.plays(&wanted.key.role) {
                host.ask(&wanted.key.role, &wanted.ask.messages).await
            } else {
                match unseen(config, workflow.as_ref(), &wanted) {
                    Some(failure) => TurnOutcome::Failed { failure, retry: false },
                    None => TurnOutcome::Done(scripted(&wanted, &task, says)),
                }
            };
            match outcome {
                TurnOutcome::Done(made) => run.on_result(wanted.key, made).map_err(anyhow::Error::new)?,
                TurnOutcome::Failed { failure, retry } => {
                    run.on_failure(&wanted.key, &failure, retry);
                }
            }
        }
    }
    Ok(run.finish())
}

/// Returns why a turn's agent cannot be asked: it would see content that its engine does not take.
fn unseen(config: &RunConfig, workflow: &dyn Workflow, wanted: &Wanted) -> Option<Failure> {
    let role = &wanted.key.role;
    let name = player(&config.workflow, workflow, role)?.agent;
    let engine = config.agents.get(&name)?.engine.kind;
    let messages = image_support::shown(workflow, (&name, role), engine, wanted.ask.messages.clone());
    let why = image_support::readable(&messages, engine).err()?;
    Some(failure::prompt(name.as_str(), role.as_str(), why))
}

/// Returns an answer without a model, as a function of the turn's seed. Its reasoning is removed,
/// as an engine removes it.
fn scripted(wanted: &Wanted, task: &Task, says: &Says) -> Generation {
    let usual = [prompt_text(&task.label), "approve".to_owned(), "reject".to_owned()];
    let role = wanted.key.role.as_str();
    let choices = says.of(role, wanted.key.turn).unwrap_or(&usual);
    let choice = (wanted.seed % choices.len().max(1) as u64) as usize;
    let version = WeightVersion::default();
    Generation {
        prompt_ids: vec![0],
        output_ids: vec![choice as u32],
        logprobs: vec![-(choices.len().max(1) as f32).ln()],
        logprobs_of: LogProbs::Sampled,
        spans: vec![VersionSpan {
            version,
            start: 0,
            end: 1,
        }],
        temperature: 1.0,
        ..said(visible_text(choices.get(choice).map_or("", String::as_str)).to_owned())
    }
}
