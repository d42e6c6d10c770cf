//! The books of a run: what it was given and what became of it, held against each other by task.
//!
//! They are read from what stays: the publisher's manifest, every ledger, every checkpoint, the refused tasks. While a run
//! goes on, what does not add up yet is in flight; when it has ended, it must add up, and what does not is named.

use std::collections::{BTreeMap, BTreeSet};

use broker::AgentName;
use broker::ids::WeightVersion;
use configs::RunConfig;
use serde::{Deserialize, Serialize};
use trainer::checkpoint::{CheckpointStore, TrainerState};

use super::error::ReportError;
use crate::ledger::{GroupRow, Inspector, RowState};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::read_json_lines;

/// Ids named at most in a message.
const NAMED: usize = 20;

/// What a run was given and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Books {
    /// Every agent that trains has ended: nothing is in flight any more.
    pub ended: bool,
    /// Tasks that the broker has confirmed to `dyad publish`.
    pub published: u64,
    /// Tasks that some ledger has taken.
    pub accepted: u64,
    /// Accepted and not yet finished by every agent that trains.
    pub in_flight: u64,
    /// Closed by every agent that trains, with samples at one at least.
    pub finished: u64,
    /// Closed by every agent without samples, by reason.
    pub abandoned: BTreeMap<String, u64>,
    /// Refused, or dead in a ledger.
    pub dead: u64,
    /// Conversations of closed groups.
    pub conversations: u64,
    /// Conversations that were left out of their group's statistics, in groups that have samples.
    pub invalid_conversations: u64,
    /// Conversations of groups that were abandoned.
    pub abandoned_conversations: u64,
    /// Confirmed to the publisher, and known to no ledger and not refused: they wait in the queue, or are lost.
    pub unseen: Vec<String>,
    /// Tasks in the queue; unknown when the broker could not be asked.
    pub queued: Option<u64>,
    /// Tasks that the ledgers do not agree about, with what each says.
    pub unequal: BTreeMap<String, String>,
    /// What must not be, whether the run goes on or not.
    pub broken: Vec<String>,
}

/// What the books are made from.
struct Ledgers {
    /// By agent that trains: its rows by task.
    rows: BTreeMap<AgentName, BTreeMap<String, GroupRow>>,
    ended: bool,
    broken: Vec<String>,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

/// What the broker says of a run.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Ids of dead tasks.
    pub dead: Vec<String>,
    /// Tasks that wait in their queue.
    pub queued: u64,
}

/// Reads the books; the run may be going on. `asked`: what the broker says, if it could be asked.
pub fn read(folder: &RunFolder, asked: Option<&Asked>) -> Result<Books, ReportError> {
    let config = folder.config()?;
    let ledgers = ledgers(folder, &config)?;
    let mut refused: BTreeSet<String> = asked.iter().flat_map(|asked| asked.dead.iter().cloned()).collect();
    for path in folder.files("refused")? {
        refused.extend(ids(&path)?);
    }
    let published: BTreeSet<String> = match folder.published() {
        path if path.is_file() => ids(&path)?.into_iter().collect(),
        _ => BTreeSet::new(),
    };
    let mut books = balance(&ledgers, &published, &refused, config.workflow.group_size);
    books.queued = asked.map(|asked| asked.queued);
    Ok(books)
}

fn ids(path: &std::path::Path) -> Result<Vec<String>, ReportError> {
    let lines: Vec<Named> = read_json_lines(path).map_err(|source| ReportError::Io {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    Ok(lines.into_iter().map(|line| line.id).collect())
}

fn ledgers(folder: &RunFolder, config: &RunConfig) -> Result<Ledgers, ReportError> {
    let mut all = Ledgers {
        rows: BTreeMap::new(),
        ended: true,
        broken: Vec::new(),
    };
    let trains = |name: &AgentName| config.agents.get(name).is_some_and(|agent| agent.train.enabled);
    for name in config.participants().into_iter().filter(trains) {
        let path = folder.ledger(&name);
        let mut rows = BTreeMap::new();
        if path.is_file() {
            let inspector = Inspector::open(&path)?;
            all.ended &= inspector.has_ended()?;
            all.broken.extend(effects(folder, &name, &inspector)?);
            rows.extend(inspector.groups()?.into_iter().map(|row| (row.task.clone(), row)));
        } else {
            all.ended = false;
        }
        all.rows.insert(name, rows);
    }
    // On several hosts each has the ledgers of its own agents only.
    let here =
        |name: &AgentName| folder.log(name.as_str()).is_file() || folder.checkpoints(name).join("LATEST").is_file();
    let absent = |name: &AgentName| !folder.ledger(name).is_file();
    for name in all.rows.keys().filter(|name| absent(name) && here(name)) {
        all.broken.push(format!(
            "agent {name}: it was here and its ledger is not; `dyad audit --repair {name}` makes one from the others'"
        ));
    }
    all.rows.retain(|name, _| !absent(name) || here(name));
    Ok(all)
}

/// Whether the verdicts are those that were recorded, and those that the newest checkpoint was written with.
fn effects(folder: &RunFolder, name: &AgentName, inspector: &Inspector) -> Result<Vec<String>, ReportError> {
    let mut broken: Vec<String> = inspector
        .damaged_batches()?
        .into_iter()
        .map(|at| {
            format!(
                "agent {name}: the verdicts of batch {}.{} were changed",
                at.lineage, at.step
            )
        })
        .collect();
    let checkpoints = CheckpointStore::new(&folder.checkpoints(name), 1);
    // A checkpoint that cannot be read is the trainer's business: it takes an earlier one.
    let newest = checkpoints
        .latest()
        .ok()
        .and_then(|newest| TrainerState::read(&newest.folder).ok());
    let Some((state, (lineage, step))) = newest.and_then(|state| state.version.map(|version| (state, version))) else {
        return Ok(broken);
    };
    let meta: serde_json::Value = serde_json::from_str(&state.meta).unwrap_or_default();
    let said = meta["deterministic"]["consumed"].as_str().map(str::to_owned);
    let counted = inspector.consumed(WeightVersion { lineage, step });
    if said.is_some() && said != counted.ok().map(|counted| counted.digest.to_string()) {
        broken.push(format!(
            "agent {name}: the checkpoint of step {step} was trained on other samples than its ledger has verdicts for"
        ));
    }
    Ok(broken)
}

fn balance(ledgers: &Ledgers, published: &BTreeSet<String>, refused: &BTreeSet<String>, size: u16) -> Books {
    let tasks: BTreeSet<&String> = ledgers.rows.values().flat_map(BTreeMap::keys).collect();
    let mut books = Books {
        ended: ledgers.ended,
        published: published.len() as u64,
        accepted: tasks.len() as u64,
        // What a person has published again is in the ledgers.
        dead: refused.iter().filter(|id| !tasks.contains(id)).count() as u64,
        broken: ledgers.broken.clone(),
        ..Books::default()
    };
    for task in &tasks {
        let rows: Vec<Option<&GroupRow>> = ledgers.rows.values().map(|rows| rows.get(*task)).collect();
        books.enter(task, &rows, u64::from(size), ledgers);
    }
    books.unseen = published
        .iter()
        .filter(|id| !tasks.contains(id) && !refused.contains(*id))
        .cloned()
        .collect();
    books
}

impl Books {
    /// One task with the row of every agent that trains.
    fn enter(&mut self, task: &str, rows: &[Option<&GroupRow>], size: u64, ledgers: &Ledgers) {
        let state = |row: &Option<&GroupRow>| row.map(|row| row.state);
        if rows
            .iter()
            .any(|row| matches!(state(row), None | Some(RowState::Reserved)))
        {
            self.in_flight += 1;
            let says = ledgers.rows.keys().zip(rows).map(|(name, row)| match row {
                None => format!("{name} has no row"),
                Some(row) => format!("{name} has it {:?}", row.state).to_lowercase(),
            });
            let says = says.collect::<Vec<_>>().join(", ");
            self.unequal.insert(task.to_owned(), says);
            return;
        }
        if rows.iter().any(|row| state(row) == Some(RowState::Dead)) {
            self.dead += 1;
            return;
        }
        self.conversations += size;
        let filled = rows.iter().flatten().filter(|row| row.samples > 0);
        match filled.map(|row| row.conversations.unwrap_or(size)).max() {
            Some(valid) => {
                self.finished += 1;
                self.invalid_conversations += size.saturating_sub(valid);
            }
            None => {
                let reason = rows
                    .iter()
                    .flatten()
                    .find_map(|row| row.reason.clone())
                    .unwrap_or_default();
                *self.abandoned.entry(reason).or_default() += 1;
                self.abandoned_conversations += size;
            }
        }
    }

    /// What must not be, in words.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let mut found = self.broken.clone();
        if !self.ended {
            return found;
        }
        // A run that ends by its number of steps leaves what it did not take in the queue.
        if self.queued.is_some_and(|queued| queued < self.unseen.len() as u64) {
            found.push(format!(
                "{} published tasks are in no ledger, were not refused, and {} are in the queue: {}",
                self.unseen.len(),
                self.queued.unwrap_or(0),
                some(self.unseen.iter().cloned())
            ));
        }
        if !self.unequal.is_empty() {
            found.push(format!(
                "{} tasks were not finished by every agent: {}",
                self.unequal.len(),
                some(self.unequal.iter().map(|(task, says)| format!("{task} ({says})")))
            ));
        }
        found
    }

    /// Rows of (what, how many), for tables.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("tasks published", self.published),
            ("tasks accepted", self.accepted),
            ("  of them in flight", self.in_flight),
            ("  of them finished", self.finished),
            ("  of them abandoned", self.abandoned.values().sum()),
            ("tasks dead", self.dead),
            ("tasks not taken", self.unseen.len() as u64),
            ("conversations ended", self.conversations),
            ("  of them left out", self.invalid_conversations),
            ("  of them abandoned", self.abandoned_conversations),
        ]
    }
}

fn some(names: impl Iterator<Item = String>) -> String {
    let mut list: Vec<String> = names.take(NAMED + 1).collect();
    if list.len() > NAMED {
        list.truncate(NAMED);
        list.push("...".into());
    }
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use broker::ids::{Attempt, Digest, GroupId};

    use super::*;

    fn row(task: &str, state: RowState, samples: u64, reason: Option<&str>) -> GroupRow {
        GroupRow {
            group: GroupId([0; 16]),
            task: task.into(),
            state,
            winner: Some((Attempt([0; 16]), Digest([0; 16]))),
            samples,
            conversations: Some(samples),
            reason: reason.map(str::to_owned),
        }
    }

    fn ledgers(a: Vec<GroupRow>, b: Vec<GroupRow>) -> Ledgers {
        let by_task = |rows: Vec<GroupRow>| rows.into_iter().map(|row| (row.task.clone(), row)).collect();
        let names = ["a", "b"].map(|name| AgentName::new(name).unwrap());
        Ledgers {
            rows: names.into_iter().zip([by_task(a), by_task(b)]).collect(),
            ended: true,
            broken: Vec::new(),
        }
    }

    fn set(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_task_is_entered_once() {
        use RowState::{Closed, Dead};
        let one = || {
            vec![
                row("done", Closed, 3, None),
                row("thin", Closed, 0, Some("too few")),
                row("bad", Dead, 0, Some("dead: poison")),
            ]
        };
        let books = balance(
            &ledgers(one(), one()),
            &set(&["done", "thin", "bad", "junk"]),
            &set(&["junk"]),
            4,
        );
        assert_eq!(books.violations(), Vec::<String>::new());
        let figures = (
            books.published,
            books.accepted,
            books.finished,
            books.dead,
            books.in_flight,
        );
        assert_eq!(figures, (4, 3, 1, 2, 0));
        assert_eq!(books.abandoned, BTreeMap::from([("too few".into(), 1)]));
        let talks = (
            books.conversations,
            books.invalid_conversations,
            books.abandoned_conversations,
        );
        assert_eq!(talks, (8, 1, 4));
    }

    #[test]
    fn what_does_not_add_up_at_the_end_is_named() {
        use RowState::{Closed, Reserved};
        let a = vec![row("x", Closed, 3, None), row("y", Closed, 3, None)];
        let mut books = ledgers(a, vec![row("y", Reserved, 0, None)]);
        let mut found = balance(&books, &set(&["x", "y", "z"]), &set(&[]), 4);
        found.queued = Some(1);
        assert!(
            !found.violations().join("\n").contains("published"),
            "it waits in the queue"
        );
        found.queued = Some(0);
        let text = found.violations().join("\n");
        for part in [
            "z",
            "x (a has it closed, b has no row)",
            "y (a has it closed, b has it reserved)",
        ] {
            assert!(text.contains(part), "{text}");
        }
        books.ended = false;
        let live = balance(&books, &set(&["x", "y", "z"]), &set(&[]), 4);
        assert_eq!(
            (live.in_flight, live.violations()),
            (2, vec![]),
            "in flight while the run goes on"
        );
    }
}
