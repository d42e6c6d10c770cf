//! Who may be shown images.

use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{EngineKind, RunConfig};

/// What an agent with this engine is told: images go to those who see.
#[must_use]
pub fn shown(mut messages: Vec<Message>, engine: EngineKind) -> Vec<Message> {
    if !engine.sees() {
        messages.iter_mut().for_each(|message| message.images.clear());
    }
    messages
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
        let text = include_str!("../../configs/two-lora.toml");
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
        let seeing = config(include_str!("../../configs/image-turns.toml"));
        assert_eq!(check(&seeing, &task(json!([image]))), Ok(()));
    }

    #[test]
    fn only_those_who_see_are_shown() {
        let message = Message::user("x").showing(["https://x.org/a.png".to_owned()]);
        assert_eq!(
            shown(vec![message.clone()], EngineKind::Openai),
            std::slice::from_ref(&message)
        );
        assert_eq!(shown(vec![message], EngineKind::Sglang), [Message::user("x")]);
    }
}
