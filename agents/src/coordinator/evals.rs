//! Evaluations: greedy conversations on held-out tasks, in no ledger, of no effect but on metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use actix::Context;
use broker::ids::{Attempt, GroupId};
use broker::protocol::control::RunPhase;
use broker::protocol::task::Task;
use configs::{Mode, RunConfig};
use rollout::group::{GroupRun, MemberEnd, RunSpec};

use super::actor::{Coordinator, Open, Purpose};
use super::pool::Pool;
use crate::folder::RunFolder;
use crate::logs::Appender;
use crate::metrics::Metrics;
use crate::summary::Evaluation;

/// The role whose first answers the verifier's pool is chosen from.
const SOLVER: &str = "solver";

/// The evaluation tasks of a run and the evaluation under way.
pub struct Evals {
    every: u64,
    tasks: Vec<(String, Arc<Task>)>,
    pool: Option<Pool>,
    /// Every evaluation, task by task: what intervals are made of.
    lines: Appender,
    next: u64,
    last_done: bool,
    current: Option<Current>,
}

/// First the conversations, then the verifier on its pool.
struct Current {
    found: Evaluation,
    left: usize,
    failed: u64,
    pooled: bool,
    /// What the solver answered, for a pool that is not chosen yet.
    solutions: Vec<(Task, String)>,
}

impl Evals {
    pub fn open(config: &RunConfig, folder: &RunFolder, process: &str) -> anyhow::Result<Self> {
        let tasks = if config.eval.source.is_some() {
            crate::tasks::eval_tasks(config)?
        } else {
            Vec::new()
        };
        Ok(Self {
            every: config.eval.every,
            tasks,
            pool: Pool::open(config, &folder.pool())?,
            lines: Appender::open(&folder.evals(process))?,
            next: 0,
            last_done: false,
            current: None,
        })
    }

    /// Whether one is due at this step of the lead agent.
    #[must_use]
    pub fn due(&self, step: u64) -> bool {
        self.every > 0 && !self.tasks.is_empty() && self.current.is_none() && step >= self.next
    }

    /// Whether the one after the last step is still to be made.
    #[must_use]
    pub fn last_is_due(&self) -> bool {
        !self.tasks.is_empty() && self.current.is_none() && !self.last_done
    }

    #[must_use]
    pub fn running(&self) -> bool {
        self.current.is_some()
    }

    /// In synchronous mode a round does not begin while an evaluation runs.
    #[must_use]
    pub fn blocks_admission(&self, mode: Mode) -> bool {
        mode == Mode::Sync && self.running()
    }
}

impl Coordinator {
    /// In synchronous mode only at the barrier.
    pub(super) fn may_start_eval(&self) -> bool {
        match self.env.config.run.mode {
            Mode::Async => true,
            Mode::Sync => self.held_groups() == 0 && self.wave.is_none() && self.gate.idle(),
        }
    }

    pub(super) fn start_eval(&mut self, _: &mut Context<Self>) {
        let step = self.lead_step();
        self.evals.last_done = self.phase == RunPhase::Draining;
        self.evals.next = if self.evals.every > 0 {
            (step / self.evals.every + 1) * self.evals.every
        } else {
            u64::MAX
        };
        let tasks = self.evals.tasks.clone();
        self.evals.current = Some(Current {
            found: Evaluation {
                step,
                values: BTreeMap::new(),
            },
            left: tasks.len(),
            failed: 0,
            pooled: false,
            solutions: Vec::new(),
        });
        for (index, (id, task)) in tasks.into_iter().enumerate() {
            let spec = self.run_spec(&task, &format!("eval/{step}/{id}"), 1);
            self.open_eval(spec, index);
        }
    }

    fn open_eval(&mut self, spec: RunSpec, index: usize) {
        let group = GroupId::new(&self.env.run, &format!("{}/{}", spec.task_id, self.env.incarnation));
        let open = Open {
            task: spec.task.clone(),
            task_id: spec.task_id.clone(),
            run: GroupRun::new(spec),
            purpose: Purpose::Eval,
            order: index as u64,
            attempt: Attempt(crate::ids::random_bytes()),
            lease: None,
            moved: Instant::now(),
            outstanding: 0,
            closing: false,
            decided: None,
        };
        self.open.insert(group, open);
        self.dirty.insert(group);
    }

    /// One evaluation conversation has ended.
    pub(super) fn close_eval(&mut self, group: GroupId) {
        let members = self.take_members(group);
        let Some(open) = self.open.remove(&group) else { return };
        let Some(current) = self.evals.current.as_mut() else {
            return;
        };
        current.add(&open, &members);
        let (step, left, pooled) = (current.found.step, current.left, current.pooled);
        if !pooled {
            self.tell(group, &open, &members, step);
        }
        if left == 0 && (pooled || !self.start_pool()) {
            self.report_eval();
        }
    }

    /// Asks the verifier about its pool, which is chosen first if this is the first evaluation. Whether there is one.
    fn start_pool(&mut self) -> bool {
        let (Some(pool), Some(current)) = (self.evals.pool.as_mut(), self.evals.current.as_mut()) else {
            return false;
        };
        if !pool.is_chosen()
            && let Err(error) = pool.choose(&self.env.config, std::mem::take(&mut current.solutions))
        {
            tracing::warn!(error = format!("{error:#}"), "the verifier is not measured on a pool");
            return false;
        }
        let (tasks, workflow, step) = (pool.tasks(), pool.workflow(), current.found.step);
        (current.left, current.pooled) = (tasks.len(), true);
        for (index, (id, task)) in tasks.into_iter().enumerate() {
            let spec = self.run_spec(&task, &format!("eval/{step}/{id}"), 1);
            self.open_eval(
                RunSpec {
                    workflow: workflow.clone(),
                    ..spec
                },
                index,
            );
        }
        true
    }

    fn report_eval(&mut self) {
        let Some(current) = self.evals.current.take() else {
            return;
        };
        let found = current.found;
        let mut line = Metrics::eval(found.step).with("conversations/failed", current.failed);
        for name in found.values.keys() {
            line.set(name, found.mean(name));
        }
        tracing::info!(step = found.step, success = found.mean("success"), "evaluated");
        self.metrics.write(line);
        if let Ok(line) = serde_json::to_vec(&found) {
            self.evals.lines.line(line);
            self.evals.lines.flush();
        }
    }
}

impl Current {
    fn add(&mut self, open: &Open, members: &[MemberEnd]) {
        self.left = self.left.saturating_sub(1);
        let id = open
            .task_id
            .strip_prefix(&format!("eval/{}/", self.found.step))
            .unwrap_or(&open.task_id);
        for end in members {
            let MemberEnd::Ended { outcome, turns } = end else {
                self.failed += 1;
                continue;
            };
            for (name, value) in &outcome.metrics {
                self.found
                    .values
                    .entry((*name).to_owned())
                    .or_default()
                    .insert(id.to_owned(), *value);
            }
            let answer = turns
                .iter()
                .find(|(key, _)| key.role.as_str() == SOLVER && key.turn == 0);
            if let (false, Some((_, made))) = (self.pooled, answer) {
                self.solutions.push(((*open.task).clone(), made.text.clone()));
            }
        }
    }
}
