//! Checks that a workflow keeps its contract before it is played. Programs and participants are
//! asked; a Rust type is played.

use broker::protocol::task::Task;
use broker::protocol::turn::TurnOutcome;
use configs::{OwnKinds, PROCESS, REMOTE, RunConfig};
use rollout::workflow::{Ask, contract};

use crate::participant::Host;

/// Largest number of characters shown of a question or an answer.
const SHOWN: usize = 2000;

/// Tries a user's own workflow with made-up conversations before any is printed.
pub(super) async fn keeps_contract(config: &RunConfig, host: &Host, task: &Task) -> anyhow::Result<()> {
    let kind = &config.workflow.kind;
    let (kept, conversations) = if OwnKinds::installed().has_workflow(kind) {
        (contract::check(host.workflow(), task), contract::CONVERSATIONS)
    } else if kind.starts_with(PROCESS) || kind.starts_with(REMOTE) {
        (played(config, host, task).await, contract::PLAYED)
    } else {
        return Ok(());
    };
    kept.map_err(|broken| anyhow::anyhow!("workflow {kind} does not keep its contract: {broken}"))?;
    eprintln!("{kind} keeps its contract in {conversations} made-up conversations");
    Ok(())
}

async fn played(config: &RunConfig, host: &Host, task: &Task) -> Result<(), String> {
    for number in 0..contract::PLAYED {
        let mut played = contract::Played::new(host.workflow(), task, number);
        loop {
            let wanted = played.wanted()?;
            if wanted.is_empty() {
                break;
            }
            for ask in wanted {
                let text = twice(host, &ask, config.workflow.retries).await?;
                played.says(&ask, &text);
            }
        }
    }
    Ok(())
}

/// Returns a program's answer. A coordinator may ask again after a restart, so the same question
/// must have the same answer.
async fn twice(host: &Host, ask: &Ask, tries: u32) -> Result<String, String> {
    let (first, second) = (said(host, ask, tries).await?, said(host, ask, tries).await?);
    if first == second {
        return Ok(first);
    }
    Err(format!(
        "it gave two answers to the same question, and a restart may ask again. Derive the answer from the \
         question alone: no state between lines, no clock, and random values only from its `seed`\n\
         the question: {}\nthe first answer: {}\nthe second answer: {}",
        question(ask),
        shown(&first),
        shown(&second)
    ))
}

/// Returns the first answer within `tries` tries, as in a run.
async fn said(host: &Host, ask: &Ask, tries: u32) -> Result<String, String> {
    let mut why = String::new();
    for _ in 0..tries.max(1) {
        match host.ask(&ask.role, &ask.messages).await {
            TurnOutcome::Done(made) => return Ok(made.text),
            TurnOutcome::Failed { failure, retry } => {
                why = failure.to_string();
                if !retry {
                    break;
                }
            }
        }
    }
    Err(format!("it gave no answer: {why}\nthe question: {}", question(ask)))
}

fn question(ask: &Ask) -> String {
    shown(ask.messages.first().map_or("", |message| &message.content))
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}.. ({} bytes)", &text[..at], text.len()),
    }
}
