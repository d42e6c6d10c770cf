//! The scope of log lines: the process of a run, and the conversation, that they are about.
//!
//! A span holds the scope. Tasks and threads that are started here inherit it.

use std::future::Future;

use broker::AgentName;
use broker::ids::{GroupId, TurnKey};
use tokio::task::JoinHandle;
use tracing::{Instrument, Span};

/// The field with the name of the process: an agent's name or [`COORDINATOR`]. It selects the log
/// file where several processes share one.
pub const PROCESS: &str = "process";
/// The process name of a coordinator.
pub const COORDINATOR: &str = "coordinator";

/// Returns the scope of an agent. Its level keeps it under any log filter.
#[must_use]
pub fn agent(name: &AgentName) -> Span {
    tracing::error_span!("agent", process = %name, agent = %name)
}

/// Returns the scope of a coordinator.
#[must_use]
pub fn coordinator() -> Span {
    tracing::error_span!("coordinator", process = COORDINATOR)
}

/// Returns the scope of one turn of a conversation, inside the current scope.
#[must_use]
pub fn turn(group: GroupId, member: u16, role: &str, turn: u16) -> Span {
    tracing::error_span!(
        "turn",
        conversation_id = %format_args!("{group}/{member}"),
        role,
        turn,
        agent = tracing::field::Empty
    )
}

/// Returns the scope of a turn for the coordinator, which names the agent that plays it.
#[must_use]
pub fn turn_of(agent: Option<&AgentName>, group: GroupId, key: &TurnKey) -> Span {
    let span = turn(group, key.member, key.role.as_str(), key.turn);
    if let Some(agent) = agent {
        span.record("agent", tracing::field::display(agent));
    }
    span
}

/// Spawns a task in the current scope.
pub fn spawn<T>(task: T) -> JoinHandle<T::Output>
where
    T: Future + Send + 'static,
    T::Output: Send + 'static,
{
    tokio::spawn(task.in_current_span())
}

/// Runs blocking work in the current scope.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    tokio::task::spawn_blocking(inherit(work))
}

/// Returns the work of a thread, bound to the current scope.
pub fn inherit<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let span = Span::current();
    move || span.in_scope(work)
}
