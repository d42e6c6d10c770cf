//! Who may be shown images.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use broker::{AgentName, RoleName};
use configs::{EngineKind, RunConfig};
use rollout::text::{TextError, text_only};
use rollout::workflow::Workflow;

/// What an agent with this engine is told as this role: images go to those who see. Who reads text only is told the text of what was shown
/// before and answered, and of a workflow whose prompts all have the task's pictures ([`Workflow::shares_pictures`]). A picture
/// that is meant for it stays: then it cannot be asked ([`readable`]), and the turn fails.
#[must_use]
pub fn shown(
    workflow: &dyn Workflow,
    (agent, role): (&AgentName, &RoleName),
    engine: EngineKind,
    mut messages: Vec<Message>,
) -> Vec<Message> {
    if engine.sees() {
        return messages;
    }
    let answered = messages.iter().rposition(|message| message.role == "assistant");
    let text_alone = if workflow.shares_pictures() {
        messages.len()
    } else {
        answered.unwrap_or(0)
    };
    let mut pictures = 0;
    for message in messages.iter_mut().take(text_alone) {
        pictures += std::mem::take(&mut message.images).len();
    }
    if pictures > 0 {
        tell_once(agent, role);
    }
    messages
}

/// Whether an agent with this engine can be told the messages.
///
/// # Errors
/// Its renderer says the same: it reads text only, and they have an image.
pub fn readable(messages: &[Message], engine: EngineKind) -> Result<(), TextError> {
    if engine.sees() { Ok(()) } else { text_only(messages) }
}

/// Says once of each agent that it is told the text of messages with pictures.
fn tell_once(agent: &AgentName, role: &RoleName) {
    static TOLD: Mutex<BTreeSet<AgentName>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.insert(agent.clone()) {
        tracing::info!(%agent, %role, "the agent reads text only: of messages with pictures it is told the text (said once)");
    }
}

/// Whether somebody in this run sees what the task shows.
///
/// # Errors
/// Names who does not.
pub fn check(config: &RunConfig, task: &Task) -> Result<(), String> {
    if !task.prompt.has_images() {
        return Ok(());
    }
    let players = config.workflow.roles.values();
    let players: Vec<_> = players
        .filter_map(|name| Some((name, config.agents.get(name)?)))
        .collect();
    if players.iter().any(|(_, agent)| agent.engine.kind.sees()) {
        return Ok(());
    }
    let mut blind: Vec<String> = players
        .iter()
        .map(|(name, agent)| format!("{name} (engine.kind = {:?})", agent.engine.kind.name()))
        .collect();
    blind.dedup();
    Err(format!(
        "the prompt has an image, and the agents of this run read text only: {}; let an agent with engine.kind = \"openai\" play a role",
        blind.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_with_an_image_needs_somebody_who_sees() {
        let config = |text: &str| RunConfig::parse(text, Path::new("x.toml")).unwrap();
        let text = include_str!("../../../configs/two-lora.toml");
        let image = json!({"type": "image_url", "image_url": {"url": "https://x.org/a.png"}});
        let task = |content| -> Task {
            serde_json::from_value(json!({"prompt": [{"role": "user", "content": content}], "label": 1})).unwrap()
        };
        let blind = config(text);
        assert_eq!(check(&blind, &task(json!("2+3="))), Ok(()));
        let said = check(&blind, &task(json!([image]))).unwrap_err();
        assert!(
            said.contains("a (engine.kind = \"embedded\"), b") && said.contains("openai"),
            "{said}"
        );
        let seeing = config(include_str!("../../../configs/image-turns.toml"));
        assert_eq!(check(&seeing, &task(json!([image]))), Ok(()));
    }

    fn picture(text: &str) -> Message {
        Message::user(text).showing(["https://x.org/a.png".to_owned()])
    }

    /// The workflow of a shipped configuration, as it is or with a program in its place.
    fn workflow(kind: &str) -> std::sync::Arc<dyn Workflow> {
        let text = include_str!("../../../configs/image-turns.toml");
        let mut config = RunConfig::parse(text, Path::new("x.toml")).unwrap();
        if kind != "sequential" {
            config.workflow.kind = kind.to_owned();
            config.workflow.params = toml::Table::new();
        }
        rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap()
    }

    fn told(workflow: &dyn Workflow, engine: EngineKind, messages: &[Message]) -> Vec<Message> {
        let (agent, role) = (AgentName::new("a").unwrap(), RoleName::new("second").unwrap());
        shown(workflow, (&agent, &role), engine, messages.to_vec())
    }

    #[test]
    fn a_picture_that_is_meant_for_who_cannot_see_is_refused() {
        let program = workflow("remote:referee");
        let meant = [picture("look")];
        assert_eq!(told(&*program, EngineKind::Openai, &meant), meant);
        assert!(readable(&meant, EngineKind::Openai).is_ok());
        for engine in [EngineKind::Embedded, EngineKind::Sglang, EngineKind::Vllm] {
            let left = told(&*program, engine, &meant);
            let why = readable(&left, engine).unwrap_err().to_string();
            assert!(why.contains("https://x.org/a.png") && why.contains("openai"), "{why}");
        }
        // Another message behind it does not make it one of the past: nobody has answered it.
        let two = [picture("look"), Message::user("what is it?")];
        assert_eq!(told(&*program, EngineKind::Embedded, &two), two);
    }

    #[test]
    fn pictures_of_the_past_and_of_a_task_that_all_roles_share_are_told_as_text() {
        let past = |first| [first, Message::new("assistant", "red"), Message::user("so?")];
        let program = workflow("remote:referee");
        assert_eq!(
            told(&*program, EngineKind::Embedded, &past(picture("look"))),
            past(Message::user("look"))
        );
        assert_eq!(
            told(&*program, EngineKind::Openai, &past(picture("look"))),
            past(picture("look"))
        );
        let shipped = workflow("sequential");
        assert_eq!(
            told(&*shipped, EngineKind::Sglang, &[picture("colour")]),
            [Message::user("colour")]
        );
        assert_eq!(
            told(&*shipped, EngineKind::Openai, &[picture("colour")]),
            [picture("colour")]
        );
    }
}
