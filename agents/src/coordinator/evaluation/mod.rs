//! Evaluations: greedy conversations on held-out tasks, in no ledger, of no effect but on metrics.

pub(in crate::coordinator) mod current;
pub(in crate::coordinator) mod hold;
pub(in crate::coordinator) mod suites;
pub(in crate::coordinator) mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use broker::AgentName;
use broker::ids::{Attempt, GroupId, WeightVersion};
use broker::protocol::control::{Evaluated, RunPhase};
use broker::protocol::task::Task;
use configs::{Mode, RunConfig};
use rollout::group::{GroupRun, MemberEnd, RunSpec};
use rollout::workflow::player;
use tokio::time::Instant;

use current::{Current, below_floor, told, turns};

use crate::coordinator::actor::{Coordinator, Open, Purpose};
use crate::coordinator::evaluation::hold::Hold;
use crate::eval::pool::Pool;
use crate::coordinator::evaluation::suites::{Program, Suite};
use crate::coordinator::evaluation::versions::{self, Seen, Versions};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::Appender;
use crate::run_folder::metrics::Metrics;
use crate::stats::summary::Evaluation;

pub(in crate::coordinator) use current::Stage;

/// The evaluation tasks of a run and the evaluation under way.
pub struct Evals {
    every: u64,
    tasks: Vec<(String, Arc<Task>)>,
    pool: Option<Pool>,
    /// Played as well, now and then.
    pub(in crate::coordinator) suites: Vec<Suite>,
    /// Every evaluation, task by task: what intervals are made of.
    lines: Appender,
    next: u64,
    last_done: bool,
    newest: Option<Evaluated>,
    /// An evaluation has reached `eval.stop_at`.
    pub reached: bool,
    pub(in crate::coordinator) current: Option<Current>,
    /// What agents are asked to hold for, and how many holds were asked for so far.
    pub(in crate::coordinator) hold: Option<Hold>,
    pub(in crate::coordinator) holds: u64,
    /// How long the newest hold was asked for, once agents were let go.
    pub(in crate::coordinator) held: Option<Duration>,
}

impl Evals {
    pub fn open(config: &RunConfig, folder: &RunFolder, process: &str) -> anyhow::Result<Self> {
        let tasks = if config.eval.source.is_some() || config.eval.every > 0 {
            crate::turn::tasks::eval_tasks(config)?
        } else {
            Vec::new()
        };
        let mut evals = Self {
            every: config.eval.every,
            tasks,
            pool: Pool::open(config, &folder.pool())?,
            suites: Vec::new(),
            lines: Appender::open(&folder.evals(process))?,
            next: 0,
            last_done: false,
            newest: None,
            reached: false,
            current: None,
            hold: None,
            holds: 0,
            held: None,
        };
        for earlier in crate::stats::summary::evaluations(folder)?.values() {
            evals.made(earlier, config.eval.stop_at);
        }
        Ok(evals)
    }

    /// This evaluation is done, by us or by a coordinator before us: it is not made again.
    fn made(&mut self, evaluation: &Evaluation, goal: Option<f64>) {
        self.made_elsewhere(Evaluated {
            step: evaluation.step,
            last: evaluation.last,
        });
        let success = evaluation.mean("success");
        self.reached |= goal.zip(success).is_some_and(|(goal, success)| success >= goal);
    }

    /// A coordinator beside us says that it has made this one: it is not made again, nor are those before it.
    pub(in crate::coordinator) fn made_elsewhere(&mut self, made: Evaluated) {
        // The next multiple of `every` after its step.
        let next = made.step.checked_div(self.every);
        self.next = self.next.max(next.map_or(u64::MAX, |done| (done + 1) * self.every));
        self.last_done |= made.last;
        self.newest = self.newest.max(Some(made));
    }

    /// The newest that is known to be made.
    pub(in crate::coordinator) fn newest(&self) -> Option<Evaluated> {
        self.newest
    }

    /// Which evaluation one at this step is, counted in multiples of `every`, and which one was made last.
    fn number(&self, step: u64) -> (u64, Option<u64>) {
        let this = step.checked_div(self.every).unwrap_or(0);
        let next = self.next.checked_div(self.every);
        (this, next.and_then(|next| next.checked_sub(1)))
    }

    /// Whether one is due at this step of the lead agent.
    #[must_use]
    pub fn due(&self, step: u64) -> bool {
        self.every > 0 && !self.tasks.is_empty() && self.current.is_none() && step >= self.next
    }

    /// At which step of the lead agent the next is made, while it trains.
    pub(in crate::coordinator) fn next(&self) -> Option<u64> {
        (self.every > 0 && !self.tasks.is_empty()).then_some(self.next)
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
    pub(in crate::coordinator) fn may_start_eval(&self) -> bool {
        match self.env.config.run.mode {
            Mode::Async => true,
            Mode::Sync => self.held_groups() == 0 && self.wave.is_none() && self.gate.idle(),
        }
    }

    /// `held`: the weights that agents hold for it.
    pub(in crate::coordinator) fn start_eval(&mut self, held: BTreeMap<AgentName, WeightVersion>) {
        let step = self.lead_step();
        let last = self.run.phase == RunPhase::Draining;
        let tasks = self.evals.tasks.clone();
        let (this, before) = self.evals.number(step);
        let program = Program::of(&self.evals.suites, this, before, last);
        self.evals.current = Some(Current {
            found: Evaluation {
                step,
                last,
                ..Evaluation::default()
            },
            begun: Instant::now(),
            untold: Vec::new(),
            versions: Versions::new(held),
            stage: Stage::Conversations,
            left: tasks.len(),
            failed: 0,
            solutions: BTreeMap::new(),
            program,
        });
        for (index, (id, task)) in tasks.into_iter().enumerate() {
            let spec = self.run_spec(&task, &format!("eval/{step}/{id}"), 1);
            self.open_eval(spec, Purpose::Eval, index);
        }
        // Coordinators beside us are to know it before they begin their own.
        self.say_beat();
    }

    pub(in crate::coordinator) fn open_eval(&mut self, spec: RunSpec, purpose: Purpose, index: usize) {
        let group = GroupId::new(&self.env.run, &format!("{}/{}", spec.task_id, self.env.incarnation));
        let open = Open {
            task: spec.task.clone(),
            task_id: spec.task_id.clone(),
            run: GroupRun::new(spec),
            purpose,
            order: index as u64,
            attempt: Attempt(crate::base::ids::random_bytes()),
            lease: None,
            moved: Instant::now(),
            committing: 0,
            closing: false,
            decided: None,
            body: bytes::Bytes::new(),
            dead: None,
            asking: Vec::new(),
        };
        self.open.insert(group, open);
        self.dirty.insert(group);
    }

    /// One evaluation conversation has ended.
    pub(in crate::coordinator) fn close_eval(&mut self, group: GroupId) {
        let members = self.take_members(group);
        let Some(open) = self.open.remove(&group) else { return };
        let seen = self.seen(open.purpose, &members);
        let Some(current) = self.evals.current.as_mut() else {
            return;
        };
        current.versions.add(seen);
        let (step, stage) = (current.found.step, current.stage);
        if stage == Stage::Suites {
            current.left = current.left.saturating_sub(1);
            let mut program = std::mem::take(&mut current.program);
            if matches!(open.purpose, Purpose::Suite { greedy: true, .. }) {
                self.tell_eval(group, &open, &members, step);
            }
            self.add_part(&mut program, step, &open, members);
            self.keep(program);
        } else {
            current.add(&open, &members, &self.rules);
            if stage == Stage::Conversations {
                self.tell_eval(group, &open, &members, step);
            }
        }
        while let Some(current) = self.evals.current.as_ref()
            && current.left == 0
        {
            match current.stage {
                Stage::Conversations => self.start_votes(),
                Stage::Votes => self.start_pool(),
                Stage::Pool | Stage::Suites => {
                    if !self.start_suites() {
                        self.report_eval();
                    }
                }
            }
        }
    }

    /// The weights that have a part in what agents said.
    fn seen(&self, purpose: Purpose, members: &[MemberEnd]) -> Seen {
        let mut seen = Seen::new();
        for (key, made) in members.iter().flat_map(turns) {
            let player = player(&self.env.config.workflow, self.workflow_of(purpose), &key.role);
            if let Some(player) = player {
                seen.entry(player.agent).or_default().extend(versions::of(made));
            }
        }
        // Who was asked and said nothing has no part.
        seen.retain(|_, versions| !versions.is_empty());
        seen
    }

    fn start_votes(&mut self) {
        let Some(current) = self.evals.current.as_mut() else {
            return;
        };
        current.stage = Stage::Votes;
        let step = current.found.step;
        let votes = self.env.config.eval.votes.filter(|_| current.found.last);
        let tasks = if votes.is_some() {
            self.evals.tasks.clone()
        } else {
            Vec::new()
        };
        current.left = tasks.len();
        for (index, (id, task)) in tasks.into_iter().enumerate() {
            let spec = self.run_spec(&task, &format!("eval/{step}/{id}"), votes.unwrap_or(1));
            self.open_eval(RunSpec { min_valid: 1, ..spec }, Purpose::Vote, index);
        }
    }

    /// Asks the verifier about its pool, which is chosen first if this is the first evaluation.
    fn start_pool(&mut self) {
        let Some(current) = self.evals.current.as_mut() else {
            return;
        };
        current.stage = Stage::Pool;
        let Some(pool) = self.evals.pool.as_mut() else { return };
        let solutions = std::mem::take(&mut current.solutions).into_values().collect();
        if let Err(error) = chosen(pool, &self.env.config, solutions) {
            tracing::warn!(error = format!("{error:#}"), "the verifier is not measured on a pool");
            return;
        }
        let (tasks, workflow, step) = (pool.tasks(), pool.workflow(), current.found.step);
        current.left = tasks.len();
        for (index, (id, task)) in tasks.into_iter().enumerate() {
            let spec = self.run_spec(&task, &format!("eval/{step}/{id}"), 1);
            self.open_eval(
                RunSpec {
                    workflow: workflow.clone(),
                    ..spec
                },
                Purpose::Eval,
                index,
            );
        }
    }

    fn report_eval(&mut self) {
        let Some(current) = self.evals.current.take() else {
            return;
        };
        current.untold.iter().for_each(|one| self.transcripts.write(one));
        let mut found = current.found;
        let failed = current.failed + current.program.tell(&self.evals.suites, &mut found);
        let mut line = Metrics::eval(found.step).with("conversations/failed", failed);
        for name in found.values.keys() {
            line.set(name, found.mean(name));
        }
        let low = below_floor(&found, &self.env.config.eval.floors);
        for (metric, value, floor) in &low {
            tracing::warn!(
                step = found.step,
                metric,
                value,
                floor,
                "an evaluation is below its floor: see eval.floors"
            );
        }
        line.set("collapse/alarms", low.len());
        let pinned = current.versions.pinned();
        line.set("weights/pinned", u64::from(pinned));
        for (agent, step) in current.versions.steps() {
            line.set(&format!("weights/step/{agent}"), step);
        }
        if let Some(held) = self.held_for() {
            line.set("time/held_s", held.as_secs_f64());
        }
        (found.pinned, found.versions) = (Some(pinned), current.versions.seen);
        if !pinned && self.env.config.eval.hold {
            let (step, versions) = (found.step, told(&found));
            tracing::warn!(step, versions, "an evaluation is of several versions of weights");
        }
        let success = found.mean("success");
        self.evals.made(&found, self.env.config.eval.stop_at);
        tracing::info!(step = found.step, success, pinned, "evaluated");
        self.metrics.write(line);
        // Once the figures are on disk, this evaluation is not played again.
        self.transcripts.flush();
        if let Ok(line) = serde_json::to_vec(&found) {
            self.evals.lines.line(line);
            self.evals.lines.flush();
        }
        self.release();
    }
}

/// Has a pool chosen, unless it is: by us or by a coordinator beside us.
fn chosen(pool: &mut Pool, config: &RunConfig, solutions: Vec<(Task, String)>) -> anyhow::Result<()> {
    pool.look()?;
    if pool.is_chosen() {
        return Ok(());
    }
    pool.choose(config, solutions)
}

#[cfg(test)]
mod tests;
