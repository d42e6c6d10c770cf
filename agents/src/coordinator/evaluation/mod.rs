//! Evaluations: greedy conversations on held-out tasks, in no ledger, without effect except on
//! metrics.

mod current;
mod group;
mod hold;
pub(crate) mod precedence;
mod program;
mod report;
mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::AgentName;
use broker::ids::WeightVersion;
use broker::protocol::control::Evaluated;
use broker::protocol::task::Task;
use configs::{Mode, RunConfig};
use rollout::group::{MemberEnd, RunSpec};
use tokio::time::Instant;

use self::current::{Current, Stage};
use self::program::Program;
use super::play::Open;
use super::specs::{GroupSpecs, Purpose};
use crate::eval::pool::Pool;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::{Appender, Transcript};
use crate::stats::summary::Evaluation;

pub(crate) use group::EvalGroup;
pub(crate) use hold::AskedHolds;
pub(crate) use report::EvalReport;

/// The evaluations of a run, and the one under way.
pub(crate) struct Evaluations {
    every: u64,
    tasks: Vec<(String, Arc<Task>)>,
    pool: Option<Pool>,
    /// Every evaluation, task by task: intervals are computed from them.
    lines: Appender,
    /// The lead's step from which the next evaluation is due.
    next: u64,
    last_done: bool,
    newest: Option<Evaluated>,
    /// The step of the first evaluation that has reached `eval.stop_at`.
    reached: Option<u64>,
    current: Option<Current>,
    holds: AskedHolds,
}

/// The next step of an evaluation.
pub(crate) enum EvalStep {
    Begin(Vec<EvalGroup>),
    /// Everything is played.
    Report,
}

impl Evaluations {
    /// `process` names this coordinator's file in the run folder.
    pub(crate) fn open(config: &RunConfig, folder: &RunFolder, process: &str) -> anyhow::Result<Self> {
        let tasks = if config.eval.source.is_some() || config.eval.every > 0 {
            crate::turn::tasks::eval_tasks(config)?
        } else {
            Vec::new()
        };
        let mut evals = Self {
            every: config.eval.every,
            tasks,
            pool: Pool::open(config, &folder.pool())?,
            lines: Appender::open(&folder.evals(process))?,
            next: 0,
            last_done: false,
            newest: None,
            reached: None,
            current: None,
            holds: AskedHolds::default(),
        };
        // A run that goes on for more steps has another last evaluation.
        let ends = folder.run_end()?.ended.is_some();
        for earlier in crate::stats::summary::evaluations(folder)?.values() {
            evals.made(earlier, config.eval.stop_at, ends);
        }
        Ok(evals)
    }

    /// Notes an evaluation of this coordinator or one before it: it is not made again. `ends`: the
    /// run is at its end, so no evaluation follows one after the last step.
    fn made(&mut self, evaluation: &Evaluation, goal: Option<f64>, ends: bool) {
        self.made_elsewhere(Evaluated {
            step: evaluation.step,
            last: evaluation.last && ends,
        });
        let success = evaluation.mean("success");
        if goal.zip(success).is_some_and(|(goal, success)| success >= goal) {
            self.reached.get_or_insert(evaluation.step);
        }
    }

    /// Another coordinator has made this evaluation: neither it nor an earlier one is made again.
    pub(crate) fn made_elsewhere(&mut self, made: Evaluated) {
        // The next multiple of `every` after its step.
        let next = made.step.checked_div(self.every);
        self.next = self.next.max(next.map_or(u64::MAX, |done| (done + 1) * self.every));
        self.last_done |= made.last;
        self.newest = self.newest.max(Some(made));
    }

    /// The newest evaluation that is known to be made.
    #[must_use]
    pub(crate) fn newest(&self) -> Option<Evaluated> {
        self.newest
    }

    /// The step of the first evaluation that has reached `eval.stop_at`.
    #[must_use]
    pub(crate) fn reached(&self) -> Option<u64> {
        self.reached
    }

    /// The number of an evaluation at this step, in multiples of `every`, and the number of the
    /// last one made.
    fn number(&self, step: u64) -> (u64, Option<u64>) {
        let this = step.checked_div(self.every).unwrap_or(0);
        let next = self.next.checked_div(self.every);
        (this, next.and_then(|next| next.checked_sub(1)))
    }

    /// Returns true if an evaluation is due at this step of the lead agent.
    #[must_use]
    pub(crate) fn is_due(&self, step: u64) -> bool {
        self.every > 0 && !self.tasks.is_empty() && self.current.is_none() && step >= self.next
    }

    /// The lead's step of the next evaluation, while it trains.
    #[must_use]
    pub(crate) fn next(&self) -> Option<u64> {
        (self.every > 0 && !self.tasks.is_empty()).then_some(self.next)
    }

    /// Returns true if the evaluation after the last step is still to be made.
    #[must_use]
    pub(crate) fn last_is_due(&self) -> bool {
        !self.tasks.is_empty() && self.current.is_none() && !self.last_done
    }

    #[must_use]
    pub(crate) fn is_running(&self) -> bool {
        self.current.is_some()
    }

    /// The time at which the evaluation under way began.
    #[must_use]
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.current.as_ref().map(Current::begun)
    }

    /// Returns true if no round may begin because an evaluation runs.
    #[must_use]
    pub(crate) fn blocks_admission(&self, mode: Mode) -> bool {
        mode == Mode::Sync && self.is_running()
    }

    #[must_use]
    pub(crate) fn holds(&self) -> &AskedHolds {
        &self.holds
    }

    pub(crate) fn holds_mut(&mut self) -> &mut AskedHolds {
        &mut self.holds
    }

    /// Begins the evaluation at this step. `held`: the weights that agents hold for it.
    pub(crate) fn begin(
        &mut self,
        step: u64,
        last: bool,
        held: BTreeMap<AgentName, WeightVersion>,
        specs: &GroupSpecs,
    ) -> Vec<EvalGroup> {
        let (this, before) = self.number(step);
        let program = Program::of(specs.suites(), this, before, last);
        self.current = Some(Current::new(step, last, held, self.tasks.len(), program));
        groups(specs, &self.tasks, step, Purpose::Eval, 1)
    }

    /// Forgets the evaluation under way: it leaves no figures and no transcripts.
    pub(crate) fn give_up(&mut self) {
        self.current = None;
    }

    /// The step of the evaluation under way, if it writes transcripts of this group.
    #[must_use]
    pub(crate) fn writes(&self, open: &Open) -> Option<u64> {
        let current = self.current.as_ref()?;
        let writes = match current.stage() {
            Stage::Conversations => true,
            Stage::Suites => open.purpose.is_greedy(),
            Stage::Votes | Stage::Pool => false,
        };
        writes.then(|| current.step())
    }

    /// Takes a group that has ended, with its transcripts. Returns the transcripts to write now.
    /// They wait while another coordinator may have begun the same evaluation (`is_ours` is false):
    /// the coordinator that gives it up then writes none.
    pub(crate) fn add(
        &mut self,
        specs: &GroupSpecs,
        open: &Open,
        members: Vec<MemberEnd>,
        transcripts: Vec<Transcript>,
        is_ours: bool,
    ) -> Vec<Transcript> {
        let Some(current) = self.current.as_mut() else {
            return Vec::new();
        };
        let transcripts = current.keep_transcripts(transcripts, is_ours);
        current.add_versions(versions::seen(specs, open.purpose, &members));
        current.add(specs, open, members);
        transcripts
    }

    /// The next step of the evaluation under way. None while groups of it are played.
    pub(crate) fn next_step(&mut self, specs: &GroupSpecs) -> Option<EvalStep> {
        let current = self.current.as_mut().filter(|current| current.is_stage_over())?;
        let step = current.step();
        let begin = match current.stage() {
            Stage::Conversations => {
                let votes = specs.config().eval.votes.filter(|_| current.is_last());
                let tasks = if votes.is_some() { self.tasks.as_slice() } else { &[] };
                current.enter(Stage::Votes, tasks.len());
                let groups = groups(specs, tasks, step, Purpose::Vote, votes.unwrap_or(1));
                let always_valid = |group: EvalGroup| EvalGroup {
                    spec: RunSpec {
                        min_valid: 1,
                        ..group.spec
                    },
                    ..group
                };
                groups.into_iter().map(always_valid).collect()
            }
            Stage::Votes => self.begin_pool(specs),
            Stage::Pool | Stage::Suites => {
                let groups = current.next_suite_groups(specs);
                if groups.is_empty() {
                    return Some(EvalStep::Report);
                }
                groups
            }
        };
        Some(EvalStep::Begin(begin))
    }

    /// Asks the verifier about its pool, which the first evaluation chooses.
    fn begin_pool(&mut self, specs: &GroupSpecs) -> Vec<EvalGroup> {
        let Some(current) = self.current.as_mut() else {
            return Vec::new();
        };
        current.enter(Stage::Pool, 0);
        let Some(pool) = self.pool.as_mut() else {
            return Vec::new();
        };
        if let Err(error) = choose(pool, specs.config(), current.take_solutions()) {
            tracing::warn!(error = format!("{error:#}"), "the verifier is not measured on a pool");
            return Vec::new();
        }
        let (tasks, workflow) = (pool.tasks(), pool.workflow());
        current.enter(Stage::Pool, tasks.len());
        let of_pool = |group: EvalGroup| EvalGroup {
            spec: RunSpec {
                workflow: workflow.clone(),
                ..group.spec
            },
            ..group
        };
        let groups = groups(specs, &tasks, current.step(), Purpose::Eval, 1);
        groups.into_iter().map(of_pool).collect()
    }

    /// Ends the evaluation under way, with its figures.
    pub(crate) fn finish(&mut self, specs: &GroupSpecs) -> Option<EvalReport> {
        let current = self.current.take()?;
        let report = EvalReport::of(current, specs, self.holds.duration());
        self.made(report.evaluation(), specs.config().eval.stop_at, true);
        Some(report)
    }

    /// Keeps an evaluation in the run folder, and returns when it is on disk: from then on it is
    /// not played again.
    pub(crate) fn write(&self, evaluation: &Evaluation) {
        if let Ok(line) = serde_json::to_vec(evaluation) {
            self.lines.line(line);
            self.lines.flush();
        }
    }
}

fn groups(
    specs: &GroupSpecs,
    tasks: &[(String, Arc<Task>)],
    step: u64,
    purpose: Purpose,
    samples: u16,
) -> Vec<EvalGroup> {
    let group = |(index, (id, task)): (usize, &(String, Arc<Task>))| EvalGroup {
        spec: specs.run_spec(task, &format!("eval/{step}/{id}"), samples),
        purpose,
        index,
    };
    tasks.iter().enumerate().map(group).collect()
}

/// Has a pool chosen, unless this coordinator or another one has chosen it.
fn choose(pool: &mut Pool, config: &RunConfig, solutions: Vec<(Task, String)>) -> anyhow::Result<()> {
    pool.look()?;
    if pool.is_chosen() {
        return Ok(());
    }
    pool.choose(config, solutions)
}

#[cfg(test)]
mod tests;
