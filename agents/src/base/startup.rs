//! The stage of each agent that starts in this process, for people during a long start.
//!
//! A starting agent logs its stage at once and then every ten seconds. A view of the run shows it
//! too. A supervisor with a terminal reads the stages of its processes as lines.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use broker::AgentName;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::log_scope;

/// Time between two log lines of a starting agent.
pub const LOG_EVERY: Duration = Duration::from_secs(10);

/// Set by a supervisor that shows stages: the process writes each to standard error, as a line
/// after [`STAGE`].
pub const SHOWN: &str = "DYAD_SHOW_STAGES";
/// The first sign of such a line. Without a text behind it, the start has ended.
pub const STAGE: char = '\u{2}';

/// The stages of all agents that start now, by name.
pub type Stages = BTreeMap<AgentName, StartupStage>;

static STAGES: LazyLock<watch::Sender<Stages>> = LazyLock::new(watch::Sender::default);

/// The present work of a starting agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartupStage {
    pub text: String,
    /// The beginning of the start.
    pub since: Instant,
}

/// Returns the stages and their changes.
#[must_use]
pub fn stages() -> watch::Receiver<Stages> {
    STAGES.subscribe()
}

/// Sets the stage of an agent that starts; ignores other agents.
pub fn enter(agent: &AgentName, text: impl Into<String>) {
    STAGES.send_if_modified(|stages| match stages.get_mut(agent) {
        Some(stage) => {
            stage.text = text.into();
            show(&stage.text);
            true
        }
        None => false,
    });
}

/// Writes the stage for a supervisor that shows it.
fn show(text: &str) {
    static IS_SHOWN: LazyLock<bool> = LazyLock::new(|| std::env::var_os(SHOWN).is_some());
    if *IS_SHOWN {
        // A supervisor that is gone reads nothing.
        let _ = std::io::stderr().write_all(format!("{STAGE}{text}\n").as_bytes());
    }
}

/// Sets the stage of an agent that starts its engine.
pub fn enter_engine(agent: &AgentName, prepacks: bool) {
    let packing = if prepacks { ": prepacking weights" } else { "" };
    enter(agent, format!("starting the engine{packing}"));
}

/// The start of an agent, from [`begin`] until this value is dropped.
#[derive(Debug)]
#[must_use = "the start ends when this is dropped"]
pub struct Starting {
    agent: AgentName,
    log: JoinHandle<()>,
}

/// Begins an agent's start. Its log lines are in the current scope.
pub fn begin(agent: &AgentName) -> Starting {
    let stage = StartupStage {
        text: "opening its model".into(),
        since: Instant::now(),
    };
    show(&stage.text);
    STAGES.send_modify(|stages| {
        stages.insert(agent.clone(), stage);
    });
    let name = agent.clone();
    let log = log_scope::spawn(async move {
        let mut due = tokio::time::interval(LOG_EVERY);
        loop {
            due.tick().await;
            let stage = STAGES.borrow().get(&name).cloned();
            let Some(stage) = stage else { return };
            tracing::info!(
                stage = stage.text,
                seconds = stage.since.elapsed().as_secs(),
                "starting"
            );
        }
    });
    Starting {
        agent: agent.clone(),
        log,
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.log.abort();
        STAGES.send_modify(|stages| {
            stages.remove(&self.agent);
        });
        show("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stage_lasts_until_the_start_ends() {
        let agent = AgentName::new("startup-test").unwrap();
        let stage = || stages().borrow().get(&agent).map(|stage| stage.text.clone());
        enter(&agent, "nothing starts");
        assert_eq!(stage(), None);
        let starting = begin(&agent);
        enter(&agent, "warm start: step 3 of 9");
        assert_eq!(stage().as_deref(), Some("warm start: step 3 of 9"));
        drop(starting);
        assert_eq!(stage(), None);
    }
}
