//! `dyad conversation ID`: shows a conversation and its rewards, or what became of a task.

use clap::Args;

use super::render::conversation::render;
use super::select::RunArg;
use super::task_fate::{self, TaskFate};
use crate::base::fault::Usage;
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
    let transcripts = folder.path().join("transcripts");
    // The id of a task may look like the beginning of a conversation's.
    let fate = task_fate::of_tasks(&folder, std::slice::from_ref(&args.id))?.pop();
    let found = match &fate {
        Some(_) => conversations_of(&transcripts, &args.id)?,
        None => {
            let found = find_conversation(&transcripts, &args.id)?;
            if found.is_empty() {
                conversations_of(&transcripts, &args.id)?
            } else {
                found
            }
        }
    };
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
