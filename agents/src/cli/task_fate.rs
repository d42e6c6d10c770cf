//! The fate of a task: its rows in the ledgers, its rejection, its conversations.

use std::collections::{BTreeMap, BTreeSet};

use broker::ids::GroupId;
use configs::RunConfig;
use serde::{Deserialize, Serialize};

use crate::ledger::{GroupRow, Inspector, RowState};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::read_json_lines;

/// The outcome of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "reason")]
pub(super) enum Outcome {
    /// Every agent that trains has closed its group, with samples.
    Played,
    /// Every agent that trains has closed its group without samples.
    Empty(String),
    /// It was accepted, then failed: its letter is in the dead letters.
    Dead(String),
    /// The coordinator refused it: its letter is in the dead letters.
    Rejected(String),
    /// It was accepted and is not finished.
    Open,
    /// The broker has confirmed it, and no agent has accepted it.
    Queued,
}

impl Outcome {
    /// Returns true if nothing more will happen to the task.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self, Self::Open | Self::Queued)
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Played => "played".into(),
            Self::Empty(reason) => format!("closed without samples: {reason}"),
            Self::Dead(reason) => format!("dead letter: {reason}"),
            Self::Rejected(reason) => format!("rejected, dead letter: {reason}"),
            Self::Open => "being played, or waiting for an agent that trains".into(),
            Self::Queued => "waiting in the task queue".into(),
        }
    }
}

/// A task and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct TaskFate {
    pub(super) task: String,
    /// The group that played it, once an agent has accepted it.
    pub(super) group: Option<GroupId>,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

#[derive(Deserialize)]
struct Noted {
    id: String,
    /// The task's own id, if a rejected message had one.
    #[serde(default)]
    task: Option<String>,
    #[serde(default)]
    reason: String,
}

/// Returns the outcomes of these tasks, in their order. A task that the run does not know is left
/// out.
pub(super) fn of_tasks(folder: &RunFolder, tasks: &[String]) -> anyhow::Result<Vec<TaskFate>> {
    let wanted: BTreeSet<&str> = tasks.iter().map(String::as_str).collect();
    let rows = rows(folder, &folder.config()?, &wanted)?;
    let mut by_task: BTreeMap<&str, Vec<&GroupRow>> = BTreeMap::new();
    for row in &rows {
        by_task.entry(&row.task).or_default().push(row);
    }
    let is_in_ledgers = wanted.iter().all(|task| by_task.contains_key(task));
    let (reasons, published) = match is_in_ledgers {
        true => (BTreeMap::new(), BTreeSet::new()),
        false => (rejections(folder)?, published(folder)?),
    };
    let fate = |task: &String| {
        let own = by_task.get(task.as_str()).map(Vec::as_slice).unwrap_or_default();
        let outcome = match reasons.get(task) {
            _ if !own.is_empty() => outcome(own),
            Some(reason) => Outcome::Rejected(reason.clone()),
            None if published.contains(task.as_str()) => Outcome::Queued,
            None => return None,
        };
        Some(TaskFate {
            task: task.clone(),
            group: own.first().map(|row| row.group),
            outcome,
        })
    };
    Ok(tasks.iter().filter_map(fate).collect())
}

/// Returns the reasons of rejected tasks. The newest counts.
fn rejections(folder: &RunFolder) -> anyhow::Result<BTreeMap<String, String>> {
    let mut reasons = BTreeMap::new();
    for path in folder.files("refused")? {
        for Noted { id, task, reason } in read_json_lines(&path)? {
            reasons.extend([Some(id), task].into_iter().flatten().map(|id| (id, reason.clone())));
        }
    }
    Ok(reasons)
}

/// Returns the ids of the tasks that were published from this machine.
fn published(folder: &RunFolder) -> anyhow::Result<BTreeSet<String>> {
    let published = match folder.published() {
        path if path.is_file() => read_json_lines::<Noted>(&path)?,
        _ => Vec::new(),
    };
    Ok(published.into_iter().map(|noted| noted.id).collect())
}

/// Returns the rows of these tasks' groups in all ledgers on this machine.
fn rows(folder: &RunFolder, config: &RunConfig, tasks: &BTreeSet<&str>) -> anyhow::Result<Vec<GroupRow>> {
    let mut rows = Vec::new();
    for name in config.participants() {
        let trains = config.agents.get(&name).is_some_and(|agent| agent.train.enabled);
        if trains && let Some(ledger) = Inspector::find(&folder.ledger(&name))? {
            for task in tasks {
                rows.extend(ledger.group(GroupId::new(folder.run(), task))?);
            }
        }
    }
    Ok(rows)
}

fn outcome(rows: &[&GroupRow]) -> Outcome {
    if let Some(dead) = rows.iter().find(|row| row.state == RowState::Dead) {
        return Outcome::Dead(dead.reason.clone().unwrap_or_default());
    }
    if rows.iter().any(|row| row.state == RowState::Reserved) {
        return Outcome::Open;
    }
    if rows.iter().any(|row| row.samples > 0) {
        return Outcome::Played;
    }
    Outcome::Empty(rows.iter().find_map(|row| row.reason.clone()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn rejected_and_waiting_tasks_have_an_outcome() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        std::fs::write(folder.published(), "{\"id\":\"t1\"}\n{\"id\":\"t2\"}\n").unwrap();
        let path = folder.refused("coordinator-x");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let refused =
            "{\"id\":\"t2\",\"reason\":\"the label is 5\"}\n{\"id\":\"0f\",\"task\":\"t4\",\"reason\":\"no\"}\n";
        std::fs::write(path, refused).unwrap();
        let ids = ["t1", "t2", "t3", "t4"].map(str::to_owned);
        let outcomes: Vec<Outcome> = of_tasks(&folder, &ids)
            .unwrap()
            .into_iter()
            .map(|fate| fate.outcome)
            .collect();
        let rejected = |reason: &str| Outcome::Rejected(reason.into());
        assert_eq!(outcomes, [Outcome::Queued, rejected("the label is 5"), rejected("no")]);
    }

    #[test]
    fn a_dead_row_decides_the_outcome() {
        let row = |state, samples| GroupRow {
            group: GroupId([1; 16]),
            task: "t".into(),
            state,
            winner: None,
            samples,
            conversations: None,
            reason: Some("why".into()),
        };
        let (dead, open, closed) = (
            row(RowState::Dead, 0),
            row(RowState::Reserved, 0),
            row(RowState::Closed, 4),
        );
        assert_eq!(outcome(&[&closed, &dead]), Outcome::Dead("why".into()));
        assert_eq!(outcome(&[&closed, &open]), Outcome::Open);
        assert_eq!(outcome(&[&closed, &row(RowState::Closed, 0)]), Outcome::Played);
        assert_eq!(outcome(&[&row(RowState::Closed, 0)]), Outcome::Empty("why".into()));
    }
}
