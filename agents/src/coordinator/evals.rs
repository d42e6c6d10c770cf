//! Evaluations: greedy conversations on held-out tasks, in no ledger, of no effect but on metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use actix::Context;
use broker::ids::{Attempt, GroupId};
use broker::protocol::control::RunPhase;
use broker::protocol::task::Task;
use configs::{Mode, RunConfig};
use rollout::group::{GroupRun, MemberEnd};

use super::actor::{Coordinator, Open, Purpose};
use crate::metrics::Metrics;

/// The evaluation tasks of a run and the evaluation under way.
pub struct Evals {
    every: u64,
    tasks: Vec<(String, Arc<Task>)>,
    next: u64,
    last_done: bool,
    current: Option<Current>,
}

struct Current {
    step: u64,
    left: usize,
    /// Sum and count of each metric.
    sums: BTreeMap<&'static str, (f64, u64)>,
    failed: u64,
}

impl Evals {
    pub fn open(config: &RunConfig) -> anyhow::Result<Self> {
        let tasks = if config.eval.source.is_some() { crate::tasks::eval_tasks(config)? } else { Vec::new() };
        Ok(Self { every: config.eval.every, tasks, next: 0, last_done: false, current: None })
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
        self.evals.next = if self.evals.every > 0 { (step / self.evals.every + 1) * self.evals.every } else { u64::MAX };
        let tasks = self.evals.tasks.clone();
        self.evals.current = Some(Current { step, left: tasks.len(), sums: BTreeMap::new(), failed: 0 });
        for (index, (id, task)) in tasks.into_iter().enumerate() {
            let id = format!("eval/{step}/{id}");
            let group = GroupId::new(&self.env.run, &format!("{id}/{}", self.env.incarnation));
            let open = Open {
                run: GroupRun::new(self.run_spec(&task, &id, 1)),
                purpose: Purpose::Eval,
                task,
                task_id: id,
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
    }

    /// One evaluation conversation has ended.
    pub(super) fn close_eval(&mut self, group: GroupId) {
        let members = self.take_members(group);
        let Some(open) = self.open.remove(&group) else { return };
        let Some(current) = self.evals.current.as_mut() else { return };
        current.left = current.left.saturating_sub(1);
        for end in &members {
            match end {
                MemberEnd::Ended { outcome, .. } => {
                    for (name, value) in &outcome.metrics {
                        let sum = current.sums.entry(name).or_default();
                        *sum = (sum.0 + value, sum.1 + 1);
                    }
                }
                MemberEnd::Failed { .. } => current.failed += 1,
            }
        }
        let step = current.step;
        self.tell(group, &open, &members, step);
        if self.evals.current.as_ref().is_some_and(|current| current.left == 0)
            && let Some(current) = self.evals.current.take()
        {
            self.report_eval(&current);
        }
    }

    fn report_eval(&mut self, eval: &Current) {
        let mut line = Metrics::eval(eval.step).with("conversations/failed", eval.failed);
        for (name, (sum, count)) in &eval.sums {
            line.set(name, sum / (*count).max(1) as f64);
        }
        let success = eval.sums.get("success").map(|(sum, count)| sum / (*count).max(1) as f64);
        tracing::info!(step = eval.step, success, "evaluated");
        self.metrics.write(line);
    }
}
