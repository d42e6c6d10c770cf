//! `dyad conversation ID`: shows a conversation and its rewards, or what became of a task.

use clap::Args;

use super::render::conversation::render;
use super::select::RunArg;
use super::task_fate::{self, TaskFate};
use crate::base::fault::Usage;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::{Transcript, conversations_of, find_conversation, one_line, printable};

/// Largest number of conversations shown when several ids match.
const MOST: usize = 20;

/// Show a conversation and its rewards, or a task's outcome
#[derive(Debug, Args)]
pub struct ConversationArgs {
    /// `<group>/<member>` or the beginning of it, or a task's id
    pub id: String,
    /// Print the stored JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// Print the messages that each agent read before each of its turns
    #[arg(long)]
    pub prompts: bool,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &ConversationArgs) -> anyhow::Result<()> {
    if args.id.trim().is_empty() {
        return Err(Usage::new("the id is empty")
            .hint("name a conversation or a task")
            .into());
    }
    let folder = args.run.folder()?;
    let (fate, mut found) = look_up(&folder, &args.id)?;
    if !args.prompts && !args.json {
        let turns = found.iter_mut().flat_map(|transcript| &mut transcript.turns);
        turns.for_each(|turn| turn.reads.clear());
    }
    if let Some(fate) = fate {
        args.show(&fate, &found)?;
        if found.is_empty() {
            return Ok(());
        }
    }
    if found.is_empty() {
        return Err(Usage::new(format!("run {} has no transcript and no task {:?}", folder.run(), args.id))
            .hint("the ids are in transcripts/*.jsonl; run.transcripts selects which conversations are written; an open one has no transcript yet; `dyad tasks dead` lists rejected tasks")
            .into());
    }
    for transcript in found.iter().take(MOST) {
        if args.json {
            println!("{}", printable(&serde_json::to_string(transcript)?));
        } else {
            println!("{}", render(transcript));
        }
    }
    if found.len() > MOST {
        eprintln!("... and {} more match", found.len() - MOST);
    }
    Ok(())
}

/// Returns the outcome of the task with this id, if there is one, and the conversations about it.
/// An id of no task is that of a conversation, or the beginning of one.
fn look_up(folder: &RunFolder, id: &String) -> anyhow::Result<(Option<TaskFate>, Vec<Transcript>)> {
    let transcripts = folder.path().join("transcripts");
    let fate = task_fate::of_tasks(folder, std::slice::from_ref(id))?.pop();
    let mut found = Vec::new();
    if fate.is_none() {
        found = find_conversation(&transcripts, id)?;
    }
    if found.is_empty() {
        found = conversations_of(&transcripts, id)?;
    }
    Ok((fate, found))
}

impl ConversationArgs {
    /// Prints the outcome of a task, before its conversations.
    fn show(&self, fate: &TaskFate, conversations: &[Transcript]) -> anyhow::Result<()> {
        if self.json {
            println!("{}", printable(&serde_json::to_string(fate)?));
        } else {
            println!("{}", printable(&outcome_line(fate, conversations)));
        }
        Ok(())
    }
}

/// Returns a task's outcome with its group, and the number of conversations that were written.
pub(super) fn outcome_line(fate: &TaskFate, conversations: &[Transcript]) -> String {
    let group = fate.group.map(|group| format!("  group {group}")).unwrap_or_default();
    let written = match conversations.len() {
        0 => String::new(),
        1 => "  1 conversation written".into(),
        count => format!("  {count} conversations written"),
    };
    format!(
        "task {}  {}{group}{written}",
        one_line(&fate.task),
        one_line(&fate.outcome.text())
    )
}

#[cfg(test)]
mod tests {
    use super::super::task_fate::Outcome;
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn id_of_a_task_comes_before_the_beginning_of_a_conversation() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let other = Transcript {
            conversation: format!("dd1{}/0", "0".repeat(29)),
            task: "another".into(),
            ..Transcript::default()
        };
        let line = serde_json::to_string(&other).unwrap();
        std::fs::write(folder.path().join("transcripts/c.jsonl"), line + "\n").unwrap();
        let found = |id: &str| look_up(&folder, &id.to_owned()).unwrap();
        assert_eq!((found("dd1").0, found("dd1").1.len()), (None, 1));
        std::fs::write(folder.published(), "{\"id\":\"dd1\"}\n").unwrap();
        let (fate, conversations) = found("dd1");
        assert_eq!(fate.unwrap().outcome, Outcome::Queued);
        assert!(
            conversations.is_empty(),
            "they are about another task: {conversations:?}"
        );
    }

    #[test]
    fn outcome_of_a_task_is_one_line() {
        let fate = TaskFate {
            task: "t1".into(),
            group: None,
            outcome: Outcome::Dead("crashed:\nx".into()),
        };
        assert_eq!(outcome_line(&fate, &[]), "task t1  dead letter: crashed:\\nx");
        let text = outcome_line(
            &TaskFate {
                group: Some(broker::ids::GroupId([1; 16])),
                outcome: Outcome::Played,
                ..fate
            },
            &[Transcript::default()],
        );
        assert!(text.starts_with("task t1  played  group 0101"), "{text}");
        assert!(text.ends_with("1 conversation written"), "{text}");
    }
}
