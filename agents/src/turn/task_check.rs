//! Checks that the agents of a run can play a task, before any of them receives it.

use std::collections::BTreeSet;

use broker::protocol::task::Task;
use configs::{ModelConfig, RunConfig, TokenizerConfig};
use rollout::workflow::{Workflow, check_task};

use super::image_support;

/// Checks that the workflow accepts the task and that its agents can read it.
///
/// # Errors
/// Returns the reason for the publisher of the task.
pub fn check(config: &RunConfig, workflow: &dyn Workflow, task: &Task) -> Result<(), String> {
    check_task(workflow, task)?;
    image_support::check(config, task)?;
    check_words(config, workflow, task)
}

/// Checks a task of the signal game against the vocabularies of agents that know listed words only.
/// Unknown words all look the same to the speaker, and the listener cannot say them.
fn check_words(config: &RunConfig, workflow: &dyn Workflow, task: &Task) -> Result<(), String> {
    if workflow.kind() != "signal" {
        return Ok(());
    }
    let label = task.label.as_str().unwrap_or_default();
    for (role, place, text) in [("speaker", "prompt", task.prompt.text()), ("listener", "label", label)] {
        if let Some(known) = words_of(config, role)
            && let Some(word) = text.split_whitespace().find(|word| !known.contains(word))
        {
            return Err(unknown(word, place, role));
        }
    }
    Ok(())
}

fn unknown(word: &str, place: &str, role: &str) -> String {
    format!(
        "the {place} has the word {word:?}, which is not in the vocabulary of the {role}'s agent: use a word of its \
         model.random.tokenizer, or add it there and begin a new run"
    )
}

/// Returns the words of the role's agent, if it knows listed words only.
fn words_of<'a>(config: &'a RunConfig, role: &str) -> Option<BTreeSet<&'a str>> {
    let mut roles = config.workflow.roles.iter();
    let (_, name) = roles.find(|(found, _)| found.as_str() == role)?;
    let agent = config.agents.get(name)?;
    match &agent.model {
        ModelConfig::Random(model) => match &model.tokenizer {
            TokenizerConfig::Words(words) => Some(words.iter().map(String::as_str).collect()),
            TokenizerConfig::Bytes => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn object_outside_of_the_signal_game_is_refused() {
        let text = include_str!("../../../configs/signal.toml");
        let config = RunConfig::parse(text, Path::new("signal.toml")).unwrap();
        let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
        let checked = |prompt: &str, label: &str| {
            let line = serde_json::json!({ "prompt": prompt, "label": label }).to_string();
            check(&config, workflow.as_ref(), &Task::parse(line.as_bytes(), 1000).unwrap())
        };
        assert_eq!(checked("o3", "o3"), Ok(()));
        let prompt = checked("o99", "o99").unwrap_err();
        assert!(prompt.starts_with("the prompt has the word \"o99\""), "{prompt}");
        let label = checked("o3", "o99").unwrap_err();
        assert!(label.starts_with("the label has the word \"o99\""), "{label}");
    }
}
