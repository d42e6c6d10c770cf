//! Decides which agents receive images.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use broker::{AgentName, RoleName};
use configs::{EngineKind, RunConfig};
use rollout::text::{TextError, text_only};
use rollout::workflow::Workflow;

/// Returns the messages that an agent with this engine receives in this role. An engine with vision
/// receives every image. An engine without vision receives only the text of images already
/// answered. It also receives only the text where all prompts carry the task's images
/// ([`Workflow::shares_pictures`]). An unanswered image addressed to it stays, and the turn then
/// fails ([`readable`]).
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
        log_once(agent, role);
    }
    messages
}

/// Checks that an agent with this engine can read the messages.
///
/// # Errors
/// The engine reads text only and a message has an image. Its renderer gives the same error.
pub fn readable(messages: &[Message], engine: EngineKind) -> Result<(), TextError> {
    if engine.sees() { Ok(()) } else { text_only(messages) }
}

/// Logs once for each agent that it receives only the text of messages with images.
fn log_once(agent: &AgentName, role: &RoleName) {
    static LOGGED: Mutex<BTreeSet<AgentName>> = Mutex::new(BTreeSet::new());
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if logged.insert(agent.clone()) {
        tracing::info!(%agent, %role, "the agent reads text only: it receives the text of messages with images, without the images (logged once)");
    }
}

/// Checks that an agent in this run can see the images of the task.
///
/// # Errors
/// Names the agents without vision.
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
    fn a_task_with_an_image_needs_an_agent_with_vision() {
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

    /// Returns the workflow of a shipped configuration, as it is or with a program in its place.
    fn workflow(kind: &str) -> std::sync::Arc<dyn Workflow> {
        let text = include_str!("../../../configs/image-turns.toml");
        let mut config = RunConfig::parse(text, Path::new("x.toml")).unwrap();
        if kind != "sequential" {
            config.workflow.kind = kind.to_owned();
            config.workflow.params = toml::Table::new();
        }
        rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap()
    }

    fn received(workflow: &dyn Workflow, engine: EngineKind, messages: &[Message]) -> Vec<Message> {
        let (agent, role) = (AgentName::new("a").unwrap(), RoleName::new("second").unwrap());
        shown(workflow, (&agent, &role), engine, messages.to_vec())
    }

    #[test]
    fn an_image_for_an_engine_without_vision_is_rejected() {
        let program = workflow("remote:referee");
        let meant = [picture("look")];
        assert_eq!(received(&*program, EngineKind::Openai, &meant), meant);
        assert!(readable(&meant, EngineKind::Openai).is_ok());
        for engine in [EngineKind::Embedded, EngineKind::Sglang, EngineKind::Vllm] {
            let left = received(&*program, engine, &meant);
            let why = readable(&left, engine).unwrap_err().to_string();
            assert!(why.contains("https://x.org/a.png") && why.contains("openai"), "{why}");
        }
        // A later user message leaves the image unanswered, so it is not yet part of the past.
        let two = [picture("look"), Message::user("what is it?")];
        assert_eq!(received(&*program, EngineKind::Embedded, &two), two);
    }

    #[test]
    fn answered_and_shared_images_are_received_as_text() {
        let past = |first| [first, Message::new("assistant", "red"), Message::user("so?")];
        let program = workflow("remote:referee");
        assert_eq!(
            received(&*program, EngineKind::Embedded, &past(picture("look"))),
            past(Message::user("look"))
        );
        assert_eq!(
            received(&*program, EngineKind::Openai, &past(picture("look"))),
            past(picture("look"))
        );
        let shipped = workflow("sequential");
        assert_eq!(
            received(&*shipped, EngineKind::Sglang, &[picture("colour")]),
            [Message::user("colour")]
        );
        assert_eq!(
            received(&*shipped, EngineKind::Openai, &[picture("colour")]),
            [picture("colour")]
        );
    }
}
