//! A suite that the run plays in its own evaluations.

use std::sync::Arc;

use anyhow::Context as _;
use broker::protocol::task::Task;
use configs::RunConfig;
use rollout::group::Rules;
use rollout::workflow::Workflow;

use crate::eval::suites::{self, Set};
use crate::participant::{Host, RemoteConnection};
use crate::turn::task_check;

/// A suite with `every`: it is played at each `every`-th evaluation.
pub struct Suite {
    name: String,
    every: u64,
    set: Set,
    rules: Rules,
    /// The suite's graders.
    host: Arc<Host>,
}

impl Suite {
    /// Opens the suites that the configuration wants played during the run.
    pub fn open_all(
        config: &RunConfig,
        host: &Host,
        line: Option<&Arc<RemoteConnection>>,
    ) -> anyhow::Result<Vec<Self>> {
        let wanted = config.eval.suites.iter().filter_map(|(name, suite)| {
            let every = suite.every.filter(|every| *every > 0)?;
            Some((name, suite, every))
        });
        let open = |(name, suite, every): (&String, &configs::SuiteConfig, u64)| {
            let set = suites::of_suite(config, name, suite, None, None)?;
            for (id, task) in &set.tasks {
                task_check::check(config, set.workflow.as_ref(), task)
                    .map_err(|why| anyhow::anyhow!("task {id} cannot be played: {why}"))
                    .with_context(|| format!("playing suite {name}"))?;
            }
            anyhow::Ok(Self {
                name: name.clone(),
                every,
                rules: Rules::of(&config.workflow, &*set.workflow, Default::default()),
                host: Arc::new(host.with_same_tools(set.workflow.clone(), line.cloned())),
                set,
            })
        };
        wanted.map(open).collect()
    }

    /// Returns true if the `this`-th evaluation plays the suite, where `before` is the number of
    /// the last one made. The first and the last evaluation play it, and each one that reaches or
    /// passes a multiple of `every`: a late evaluation skips no turn of the suite.
    #[must_use]
    pub fn is_due(&self, this: u64, before: Option<u64>, last: bool) -> bool {
        last || before.is_none_or(|before| this / self.every > before / self.every)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn tasks(&self) -> &[(String, Arc<Task>)] {
        &self.set.tasks
    }

    /// Sampled conversations per task, next to the greedy one.
    #[must_use]
    pub fn samples(&self) -> u16 {
        self.set.samples
    }

    /// The temperature of sampled conversations.
    #[must_use]
    pub fn temperature(&self) -> f32 {
        self.set.temperature as f32
    }

    #[must_use]
    pub fn workflow(&self) -> &Arc<dyn Workflow> {
        &self.set.workflow
    }

    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }
}
