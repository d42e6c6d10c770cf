//! Suites that a run plays in its own evaluations, a chunk of tasks at a time: as `dyad eval` plays them, under the same seeds.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use anyhow::Context as _;
use configs::RunConfig;
use rollout::group::{MemberEnd, Rules, RunSpec};
use rollout::workflow::Workflow;

use crate::coordinator::actor::{Coordinator, Open, Purpose};
use crate::coordinator::evaluation::Stage;
use crate::eval::play::{self, Played};
use crate::eval::score::{self, Conversation};
use crate::eval::suites::{self, Set};
use crate::participant::{Host, Line};
use crate::stats::summary::Evaluation;

/// A suite with `every`.
pub(in crate::coordinator) struct Suite {
    name: String,
    every: u64,
    set: Set,
    rules: Rules,
    /// Who grades.
    host: Arc<Host>,
}

/// A chunk: what is played together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    suite: usize,
    greedy: bool,
    tasks: Range<usize>,
}

/// The suites of one evaluation: what is still to be played, and what was.
#[derive(Default)]
pub(in crate::coordinator) struct Program {
    parts: VecDeque<Part>,
    played: BTreeMap<usize, Vec<Conversation>>,
}

impl Suite {
    /// Those that the configuration wants played during the run.
    pub(in crate::coordinator) fn open_all(config: &RunConfig, host: &Host, line: Option<&Arc<Line>>) -> anyhow::Result<Vec<Self>> {
        let wanted = config.eval.suites.iter().filter_map(|(name, suite)| {
            let every = suite.every.filter(|every| *every > 0)?;
            Some((name, suite, every))
        });
        let open = |(name, suite, every): (&String, &configs::SuiteConfig, u64)| {
            let set = suites::of_suite(config, name, suite, None, None)?;
            for (id, task) in &set.tasks {
                rollout::workflow::check_task(set.workflow.as_ref(), task)
                    .map_err(|why| anyhow::anyhow!("task {id} cannot be played: {why}"))
                    .with_context(|| format!("playing suite {name}"))?;
            }
            anyhow::Ok(Self {
                name: name.clone(),
                every,
                rules: Rules::new(&config.workflow, &set.workflow.roles(), Default::default()),
                host: Arc::new(host.beside(set.workflow.clone(), line.cloned())),
                set,
            })
        };
        wanted.map(open).collect()
    }

    /// Whether it belongs to the `this`-th evaluation after the one that was made `before`: to the first, to the last, and
    /// wherever a multiple of `self.every` was reached in between. A late one so skips none.
    fn is_due(&self, this: u64, before: Option<u64>, last: bool) -> bool {
        last || before.is_none_or(|before| this / self.every > before / self.every)
    }
}

impl Program {
    /// What the `this`-th evaluation plays, where `before` is the number of the one made last.
    pub(in crate::coordinator) fn of(suites: &[Suite], this: u64, before: Option<u64>, last: bool) -> Self {
        let due = |(_, suite): &(usize, &Suite)| suite.is_due(this, before, last);
        let parts = suites.iter().enumerate().filter(due).flat_map(|(at, suite)| {
            let (tasks, samples) = (suite.set.tasks.len(), suite.set.samples);
            let sampled = if samples > 0 {
                parts(at, false, tasks, samples)
            } else {
                Vec::new()
            };
            parts(at, true, tasks, 1).into_iter().chain(sampled)
        });
        Self {
            parts: parts.collect(),
            played: BTreeMap::new(),
        }
    }

    /// Adds the figures of all suites to those of the evaluation; answers how many conversations failed.
    pub(in crate::coordinator) fn tell(self, suites: &[Suite], found: &mut Evaluation) -> u64 {
        let mut failed = 0;
        for (at, conversations) in self.played {
            let Some(suite) = suites.get(at) else { continue };
            failed += conversations.iter().filter(|one| one.failed.is_some()).count() as u64;
            for (figure, values) in score::by_task(&conversations, usize::from(suite.set.samples)) {
                found.values.insert(format!("{}/{figure}", suite.name), values);
            }
        }
        failed
    }
}

/// Chunks of all tasks of a suite.
fn parts(suite: usize, greedy: bool, tasks: usize, samples: u16) -> Vec<Part> {
    let size = play::chunk(samples);
    let part = |from: usize| Part {
        suite,
        greedy,
        tasks: from..(from + size).min(tasks),
    };
    (0..tasks).step_by(size).map(part).collect()
}

impl Coordinator {
    /// Who answers in this group beside the agents.
    pub(in crate::coordinator) fn host_of(&self, purpose: Purpose) -> &Arc<Host> {
        self.suite_of(purpose).map_or(&self.host, |suite| &suite.host)
    }

    /// The temperature that a suite's samples have in the place of each agent's own.
    pub(in crate::coordinator) fn temperature_of(&self, purpose: Purpose) -> Option<f32> {
        match purpose {
            Purpose::Suite { greedy: false, .. } => self.suite_of(purpose).map(|suite| suite.set.temperature as f32),
            _ => None,
        }
    }

    /// By which this group is played.
    pub(in crate::coordinator) fn workflow_of(&self, purpose: Purpose) -> &dyn Workflow {
        let own = || &*self.env.workflow;
        self.suite_of(purpose).map_or_else(own, |suite| &*suite.set.workflow)
    }

    fn suite_of(&self, purpose: Purpose) -> Option<&Suite> {
        match purpose {
            Purpose::Suite { at, .. } => self.evals.suites.get(at),
            Purpose::Train | Purpose::Eval | Purpose::Vote => None,
        }
    }

    /// Begins the next chunk of the suites that are due; false when there is none.
    pub(in crate::coordinator) fn start_suites(&mut self) -> bool {
        let Some(current) = self.evals.current.as_mut() else {
            return false;
        };
        current.stage = Stage::Suites;
        let (step, mut program) = (current.found.step, std::mem::take(&mut current.program));
        let begun = self.start_part(step, &mut program);
        self.keep(program);
        if let Some(current) = self.evals.current.as_mut() {
            current.left = begun;
        }
        begun > 0
    }

    pub(in crate::coordinator) fn keep(&mut self, program: Program) {
        if let Some(current) = self.evals.current.as_mut() {
            current.program = program;
        }
    }

    /// Begins the next chunk of the evaluation under way; answers how many groups it has, none when all are played.
    fn start_part(&mut self, step: u64, program: &mut Program) -> usize {
        let Some(Part {
            suite: at,
            greedy,
            tasks,
        }) = program.parts.pop_front()
        else {
            return 0;
        };
        let Some(suite) = self.evals.suites.get(at) else {
            return 0;
        };
        let samples = if greedy { 1 } else { suite.set.samples };
        let specs: Vec<RunSpec> = suite
            .set
            .tasks
            .iter()
            .skip(tasks.start)
            .take(tasks.len())
            .map(|(id, task)| RunSpec {
                workflow: suite.set.workflow.clone(),
                min_valid: 1,
                ..self.run_spec(task, &play::task_id(greedy, step, Some(&suite.name), id), samples)
            })
            .collect();
        let count = specs.len();
        for (index, spec) in specs.into_iter().enumerate() {
            self.open_eval(spec, Purpose::Suite { at, greedy }, index);
        }
        count
    }

    /// What the conversations of a suite's task came to.
    pub(in crate::coordinator) fn add_part(&self, program: &mut Program, step: u64, open: &Open, members: Vec<MemberEnd>) {
        let Purpose::Suite { at, greedy } = open.purpose else {
            return;
        };
        let Some(suite) = self.evals.suites.get(at) else { return };
        let before = play::task_id(greedy, step, Some(&suite.name), "");
        let id = open.task_id.strip_prefix(&before).unwrap_or(&open.task_id);
        let played = Played {
            task: id.to_owned(),
            content: open.task.clone(),
            ends: members,
        };
        let found = score::conversations(&suite.rules, &*suite.set.workflow, &[played], greedy);
        program.played.entry(at).or_default().extend(found);
    }
}

#[cfg(test)]
mod tests;
