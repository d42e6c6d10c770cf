//! The last lines of a run with two agents that answer in turn, in the form of MinT's recipe.

use std::fmt::Write;

use configs::{AgentConfig, AgentName, LossKind, RoleName, RunConfig};
use serde_json::Value;

use crate::cli::last_metrics::LastMetrics;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::{Transcript, one_line, read_json_lines};

/// Returns the lines, or an empty text for other workflows.
pub fn lines(folder: &RunFolder, last: &LastMetrics) -> anyhow::Result<String> {
    let config = folder.config()?;
    if config.workflow.kind != "sequential" {
        return Ok(String::new());
    }
    let mut conversation: Option<Transcript> = None;
    for path in folder.files("transcripts")? {
        let trained = read_json_lines::<Transcript>(&path)?
            .into_iter()
            .filter(|t| !t.eval && !t.turns.is_empty());
        conversation = trained.chain(conversation).max_by_key(|transcript| transcript.step);
    }
    let checkpoint = |agent: &AgentName| {
        let root = folder.checkpoints(agent);
        let latest = std::fs::read_to_string(root.join("LATEST")).ok()?;
        Some(root.join(latest.trim()).display().to_string())
    };
    Ok(render(&config, conversation.as_ref(), last, checkpoint))
}

fn render(
    config: &RunConfig,
    conversation: Option<&Transcript>,
    last: &LastMetrics,
    checkpoint: impl Fn(&AgentName) -> Option<String>,
) -> String {
    let agents = config.participants();
    let mode = match agents.len() {
        1 => "single-client role switching",
        _ => "concurrent two-client",
    };
    let mut text = format!("Mode: {mode}\n");
    for role in ["first", "second"] {
        let _ = write!(
            text,
            "{}",
            conversation.and_then(|c| said(config, c, role)).unwrap_or_default()
        );
    }
    for (name, agent) in agents.iter().filter_map(|name| Some((name, config.agents.get(name)?))) {
        let loss = last
            .train
            .get(name.as_str())
            .and_then(|line| line.get("loss"))
            .and_then(Value::as_f64);
        if let Some(loss) = loss {
            let _ = writeln!(text, "Agent {name} {}={loss:.6}", loss_name(agent));
        }
    }
    text.push_str("Final checkpoints:\n");
    for name in &agents {
        let place = checkpoint(name).unwrap_or_else(|| "none".into());
        let _ = writeln!(text, "  Agent {name}: {place}");
    }
    text
}

fn said(config: &RunConfig, conversation: &Transcript, role: &str) -> Option<String> {
    let agent = config.workflow.roles.get(&RoleName::new(role).ok()?)?;
    let turn = conversation.turns.iter().find(|turn| turn.role == role)?;
    let reward = conversation.rewards.get(role)?.get("total")?;
    let answer = one_line(turn.text.trim()).into_owned();
    Some(format!(
        "Agent {agent} ({role}) response: {answer} | reward={reward:?}\n"
    ))
}

fn loss_name(agent: &AgentConfig) -> &'static str {
    match agent.train.loss.kind {
        LossKind::CrossEntropy => "train_cross_entropy",
        _ => "train_loss",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::run_folder::logs::TranscriptTurn;

    #[test]
    fn lines_equal_the_recipes() {
        let text = include_str!("../../../../configs/two-lora.toml");
        let config = RunConfig::parse(text, Path::new("two-lora.toml")).unwrap();
        let turn = |role: &str, text: &str| TranscriptTurn {
            role: role.into(),
            text: text.into(),
            ..TranscriptTurn::default()
        };
        let reward = |role: &str, value: f64| (role.to_owned(), BTreeMap::from([("total".to_owned(), value)]));
        let conversation = Transcript {
            turns: vec![turn("first", "5\n6"), turn("second", " 5 ")],
            rewards: BTreeMap::from([reward("first", -0.25), reward("second", 1.0)]),
            ..Transcript::default()
        };
        let mut last = LastMetrics::default();
        for (agent, loss) in [("a", 7.044352), ("b", 6.422852)] {
            let line = serde_json::json!({"loss": loss});
            last.train.insert(agent.into(), line.as_object().unwrap().clone());
        }
        let checkpoint = |agent: &AgentName| (agent.as_str() == "a").then(|| "runs/x/checkpoints/a/step-1".to_owned());
        let text = render(&config, Some(&conversation), &last, checkpoint);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Mode: concurrent two-client");
        assert!(
            lines[1].starts_with("Agent a (first) response: 5") && lines[1].ends_with("6 | reward=-0.25"),
            "{text}"
        );
        assert_eq!(
            lines[2..],
            [
                "Agent b (second) response: 5 | reward=1.0",
                "Agent a train_cross_entropy=7.044352",
                "Agent b train_cross_entropy=6.422852",
                "Final checkpoints:",
                "  Agent a: runs/x/checkpoints/a/step-1",
                "  Agent b: none",
            ]
        );
    }
}
