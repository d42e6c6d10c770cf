//! Changes that pages ask for, made as the commands make them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use broker::bus::Bus;
use broker::ids::GroupId;
use broker::topology::Topology;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::Answers;
use crate::base::fault::Usage;
use crate::base::log_scope;
use crate::cli::orders::{self, PhaseOrder};
use crate::cli::publish::sender::{PublishedTasks, send};
use crate::cli::task_rules::{Checked, Rules, validate};
use crate::cli::{checkpoint, ended, exit_code, tasks};
use crate::dashboard::{ChangeRefused, PageChange};
use crate::run_folder::RunFolder;

/// The largest number of tasks or letters that an answer names.
const NAMED: usize = 200;
/// Time for open groups to finish before a checkpoint.
const WITHIN: Duration = Duration::from_secs(60);

impl Answers {
    pub(super) async fn make(&self, folder: &RunFolder, change: PageChange) -> anyhow::Result<Value> {
        match change {
            PageChange::Publish { lines, check } => self.publish(folder, lines, check).await,
            PageChange::Requeue { ids } => self.change_letters(folder, tasks::Order::Requeue(ids)).await,
            PageChange::Drop { ids } => self.change_letters(folder, tasks::Order::Drop(ids)).await,
            PageChange::Edit { id, task, as_id } => {
                let change = tasks::Change {
                    letter: id,
                    edited: task.map(String::into_bytes),
                    as_id,
                    rules: rules(folder).await?,
                    published: folder.published(),
                };
                self.change_letters(folder, tasks::Order::Change(change)).await
            }
            PageChange::Pause => self.order(folder, PhaseOrder::Pause).await,
            PageChange::Resume => self.order(folder, PhaseOrder::Resume).await,
            PageChange::Drain => self.order(folder, PhaseOrder::Drain).await,
            PageChange::Checkpoint => self.checkpoint(folder).await,
        }
    }

    async fn publish(&self, folder: &RunFolder, lines: String, check: bool) -> anyhow::Result<Value> {
        let rules = rules(folder).await?;
        let checked = log_scope::spawn_blocking(move || validate(lines.as_bytes(), &rules)).await??;
        let named = named(folder, &checked);
        if check {
            return Ok(json!({"valid": checked.len(), "tasks": named}));
        }
        ended::require_open(folder)?;
        let manifest = PublishedTasks::open(&folder.published())?;
        let topology = Topology::new(folder.run().clone());
        let (bus, is_own) = match self.own(folder) {
            Some(bus) => (bus, true),
            None => (self.connect_for_change(self.publisher.as_ref(), folder).await?, false),
        };
        let hidden = |_| ProgressBar::hidden();
        let sent = send(bus.clone(), &topology, checked, Some(&manifest), hidden).await;
        if !is_own {
            bus.close().await;
        }
        let sent = sent?;
        Ok(json!({"confirmed": sent.confirmed, "queue_full": sent.refused, "tasks": named}))
    }

    async fn change_letters(&self, folder: &RunFolder, order: tasks::Order) -> anyhow::Result<Value> {
        let topology = Topology::new(folder.run().clone());
        let letters = self.handle_letters(folder, &topology, &order).await?;
        let (_, missing) = order.named_and_missing(&letters);
        Ok(fates(&letters, &missing))
    }

    /// Changes dead letters. Letters that stay return to their queue when their consumer ends.
    async fn handle_letters(
        &self,
        folder: &RunFolder,
        topology: &Topology,
        order: &tasks::Order,
    ) -> anyhow::Result<Vec<tasks::Letter>> {
        let (bus, is_kept) = self.letters_bus(folder).await?;
        let letters = tasks::handle(&bus, topology, order).await;
        if !is_kept {
            bus.close().await;
        }
        letters
    }

    async fn order(&self, folder: &RunFolder, order: PhaseOrder) -> anyhow::Result<Value> {
        let bus = self.operator_bus(folder).await?;
        let given = orders::give(bus.clone(), folder, order).await;
        bus.close().await;
        given?;
        Ok(json!({"done": order.report()}))
    }

    async fn checkpoint(&self, folder: &RunFolder) -> anyhow::Result<Value> {
        let bus = self.operator_bus(folder).await?;
        let taken = checkpoint::take(bus.clone(), folder, WITHIN).await;
        bus.close().await;
        let taken = taken?;
        let done = format!("snapshot {}: {} groups start again", taken.name, taken.voided);
        Ok(json!({"done": done, "snapshot": taken.name, "voided": taken.voided}))
    }

    async fn operator_bus(&self, folder: &RunFolder) -> anyhow::Result<Arc<dyn Bus>> {
        ended::require_open(folder)?;
        if self.own(folder).is_some() {
            let message = "a run in one process takes no orders";
            return Err(Usage::new(message)
                .hint("Ctrl-C stops it and `--resume` goes on; `dyad up` starts a run that takes orders")
                .into());
        }
        self.connect_for_change(self.operator.as_ref(), folder).await
    }
}

/// Returns the rules of the run's tasks. Builds its workflow.
async fn rules(folder: &RunFolder) -> anyhow::Result<Rules> {
    let folder = folder.clone();
    log_scope::spawn_blocking(move || Rules::of(&folder.config()?)).await?
}

/// Returns the ids of the first tasks, and the groups that they become.
fn named(folder: &RunFolder, tasks: &[Checked]) -> Vec<Value> {
    let first = tasks.iter().take(NAMED);
    first
        .map(|task| json!({"id": task.id, "group": GroupId::new(folder.run(), &task.id).to_string()}))
        .collect()
}

/// Returns the results of a change to letters: the first letters, and a count of each result. The
/// change is already made, so the answer stays small however many letters there are.
fn fates(letters: &[tasks::Letter], missing: &[String]) -> Value {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for letter in letters {
        *counts.entry(&letter.fate).or_default() += 1;
    }
    let first = letters.iter().take(NAMED);
    let first = first.map(|one| json!({"id": one.facts.id, "fate": one.fate, "kept": one.kept}));
    json!({
        "letters": first.collect::<Vec<_>>(),
        "fates": counts,
        "missing": &missing[..missing.len().min(NAMED)],
    })
}

/// Returns the words of the command for an error.
pub(super) fn refused(error: &anyhow::Error) -> ChangeRefused {
    let status = match exit_code::code(error) {
        2 => 400,
        75 => 503,
        _ => 500,
    };
    let text = exit_code::render(error);
    let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
    ChangeRefused { status, message }
}

#[cfg(test)]
mod tests {
    use broker::bus::memory::MemoryBus;

    use super::*;
    use crate::dashboard::LetterFacts;
    use crate::run_folder::tests::config_in;

    fn run_here(base: &std::path::Path) -> (RunFolder, Answers) {
        let folder = RunFolder::create(base, &config_in(base), None).unwrap();
        let bus: Arc<dyn Bus> = MemoryBus::new();
        let answers = Answers {
            own: Some((folder.run().clone(), bus)),
            ..Answers::default()
        };
        (folder, answers)
    }

    #[tokio::test]
    async fn wrong_line_is_refused_in_the_words_of_publish() {
        let base = tempfile::tempdir().unwrap();
        let (folder, answers) = run_here(base.path());
        let lines = "{\"prompt\": \"o1\", \"label\": \"o1\"}\n{\"prompt\": \"o99\"}\n";
        let publish = |check| PageChange::Publish {
            lines: lines.to_owned(),
            check,
        };
        let rules = Rules::of(&folder.config().unwrap()).unwrap();
        let command = exit_code::render(&validate(lines.as_bytes(), &rules).unwrap_err());
        for check in [true, false] {
            let error = answers.make(&folder, publish(check)).await.unwrap_err();
            let refused = refused(&error);
            assert_eq!(refused.status, 400);
            assert_eq!(format!("error: {}", refused.message), command.trim_end());
            assert!(refused.message.contains("line 2"), "{}", refused.message);
        }
        assert!(!folder.published().exists(), "nothing was sent");
    }

    #[tokio::test]
    async fn published_task_arrives_and_its_group_is_named() {
        let base = tempfile::tempdir().unwrap();
        let (folder, answers) = run_here(base.path());
        let bus = answers.own(&folder).unwrap();
        let topology = Topology::new(folder.run().clone());
        let names = folder.config().unwrap().participants();
        bus.declare(&topology, &names).await.unwrap();
        let publish = PageChange::Publish {
            lines: r#"{"prompt": "o1", "label": "o1", "id": "mine"}"#.into(),
            check: false,
        };
        let answer = answers.make(&folder, publish).await.unwrap();
        assert_eq!(answer["confirmed"], 1);
        let group = GroupId::new(folder.run(), "mine").to_string();
        assert_eq!(answer["tasks"][0]["group"], group);
        let mut tasks = bus.consume(&topology.tasks(), 1).await.unwrap();
        assert_eq!(tasks.next().await.unwrap().message_id.as_deref(), Some("mine"));
        let noted = std::fs::read_to_string(folder.published()).unwrap();
        assert!(noted.contains("mine"), "{noted}");
    }

    #[test]
    fn answer_of_a_change_to_many_letters_is_small() {
        let letter = |number: usize| tasks::Letter {
            facts: LetterFacts {
                id: format!("t{number}"),
                ..LetterFacts::default()
            },
            body: vec![b'x'; 6000].into(),
            fate: "dropped".into(),
            ..tasks::Letter::default()
        };
        let letters: Vec<_> = (0..1000).map(letter).collect();
        let missing: Vec<_> = (0..1000).map(|number| format!("m{number}")).collect();
        let answer = fates(&letters, &missing);
        assert_eq!(answer["fates"], json!({"dropped": 1000}));
        assert_eq!(
            answer["letters"][0],
            json!({"id": "t0", "fate": "dropped", "kept": false})
        );
        assert_eq!(answer["missing"].as_array().unwrap().len(), NAMED);
        assert!(answer.to_string().len() < 30_000);
    }

    #[tokio::test]
    async fn run_in_one_process_takes_no_orders() {
        let base = tempfile::tempdir().unwrap();
        let (folder, answers) = run_here(base.path());
        for order in [PageChange::Pause, PageChange::Drain, PageChange::Checkpoint] {
            let refused = refused(&answers.make(&folder, order).await.unwrap_err());
            assert_eq!(refused.status, 400);
            assert!(refused.message.contains("dyad up"), "{}", refused.message);
        }
    }
}
