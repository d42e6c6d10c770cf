//! A conversation as text.

use std::fmt::Write;

use super::earned::earned;
use crate::participant::{PROGRAM, TOOL};
use crate::run_folder::logs::{Transcript, TranscriptTurn, printable, prompt_text};

/// The source of log-probs that `dyad workflow test` gives a turn without an engine.
pub(in crate::cli) const SCRIPTED: &str = "scripted";

/// Formats the turns of a conversation, then the rewards and the workflow's figures.
#[must_use]
pub fn render(transcript: &Transcript) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "conversation {}  task {}  {}",
        transcript.conversation, transcript.task, transcript.status
    );
    let _ = writeln!(text, "\n  task\n{}", indent(&prompt_text(&transcript.prompt)));
    let label = prompt_text(&transcript.label);
    if !label.is_empty() {
        let _ = writeln!(text, "    (label: {label})");
    }
    for turn in &transcript.turns {
        let seat = if turn.seat == 0 {
            String::new()
        } else {
            format!("/{}", turn.seat)
        };
        for read in &turn.reads {
            let _ = writeln!(
                text,
                "\n  {}{seat} reads, {}\n{}",
                turn.role,
                read.role,
                indent(&read.content)
            );
        }
        if [PROGRAM, TOOL].contains(&turn.agent.as_str()) {
            let _ = writeln!(text, "\n  {}{seat}, {}\n{}", turn.role, turn.agent, indent(&turn.text));
            continue;
        }
        let _ = writeln!(
            text,
            "\n  {}{seat}, agent {}  ({})\n{}",
            turn.role,
            turn.agent,
            origin(turn),
            indent(&turn.text)
        );
    }
    let _ = writeln!(text, "\n  rewards");
    for (label, found) in &transcript.earned {
        text.push_str(&earned(label, found));
    }
    // Runs from before reward weights were stored have only the values.
    let unweighted = transcript
        .rewards
        .iter()
        .filter(|(role, _)| !transcript.earned.contains_key(*role));
    for (role, parts) in unweighted {
        let parts: Vec<String> = parts.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
        let _ = writeln!(text, "    {role:12} {}", parts.join("  "));
    }
    if !transcript.metrics.is_empty() {
        let _ = writeln!(text, "\n  figures");
    }
    for (name, value) in &transcript.metrics {
        let _ = writeln!(text, "    {name:24} {value:.3}");
    }
    printable(&text).into_owned()
}

/// Describes how an agent's turn came about.
fn origin(turn: &TranscriptTurn) -> String {
    if turn.logprobs_of == SCRIPTED {
        return format!("{SCRIPTED}, {}", turn.finish);
    }
    // The mean of a sure answer rounds to -0.000.
    let mean = format!("{:.3}", turn.mean_logprob);
    let mean = if mean == "-0.000" { "0.000" } else { &mean };
    let tokens = if turn.tokens == 1 { "token" } else { "tokens" };
    format!(
        "{} {tokens}, weights {}, {}, mean log-prob {mean}{}",
        turn.tokens,
        turn.version,
        turn.finish,
        logprobs_of(&turn.logprobs_of)
    )
}

/// Returns the source of a mean log-prob, if it is not plain sampling without truncation.
fn logprobs_of(name: &str) -> String {
    match name {
        "" | "sampled" => String::new(),
        other => format!(" ({other})"),
    }
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversation_is_formatted() {
        let transcript = Transcript {
            conversation: "ab01/3".into(),
            task: "t1".into(),
            prompt: serde_json::json!([{"role": "system", "content": "Speak."}, {"role": "user", "content": "o3"}]),
            label: "o3".into(),
            turns: vec![TranscriptTurn {
                role: "speaker".into(),
                agent: "a".into(),
                text: "s7".into(),
                tokens: 1,
                version: "1.40".into(),
                finish: "stop".into(),
                mean_logprob: -0.25,
                ..TranscriptTurn::default()
            }],
            rewards: [(
                "speaker".to_owned(),
                [("success".to_owned(), 1.0), ("total".to_owned(), 1.0)].into(),
            )]
            .into(),
            metrics: [("success".to_owned(), 1.0)].into(),
            status: "completed".into(),
            ..Transcript::default()
        };
        let expected = "conversation ab01/3  task t1  completed\n\n  task\n    system: Speak.\n    user: o3\n    (label: o3)\n\n  \
                        speaker, agent a  (1 token, weights 1.40, stop, mean log-prob -0.250)\n    s7\n\n  rewards\n    \
                        speaker      success 1.000  total 1.000\n\n  figures\n    success                  1.000\n";
        assert_eq!(render(&transcript), expected);
    }

    #[test]
    fn unusual_source_of_log_probs_is_shown() {
        let shown = |of: &str| {
            render(&Transcript {
                turns: vec![TranscriptTurn {
                    logprobs_of: of.into(),
                    ..TranscriptTurn::default()
                }],
                ..Transcript::default()
            })
        };
        assert!(shown("truncated").contains("mean log-prob 0.000 (truncated))"));
        assert!(shown("scripted").ends_with("agent   (scripted, )\n\n\n  rewards\n"));
        for plain in ["sampled", ""] {
            assert!(shown(plain).contains("mean log-prob 0.000)"), "{plain}");
        }
    }

    #[test]
    fn mean_of_a_sure_answer_has_no_sign() {
        let turns = vec![TranscriptTurn {
            mean_logprob: -1e-7,
            ..TranscriptTurn::default()
        }];
        let shown = render(&Transcript {
            turns,
            ..Transcript::default()
        });
        assert!(shown.contains("mean log-prob 0.000)"), "{shown}");
    }

    #[test]
    fn control_characters_of_a_model_are_escaped() {
        let hostile = "s7\u{1b}]0;owned\u{7}\u{9b}6n";
        let transcript = Transcript {
            task: hostile.into(),
            prompt: hostile.into(),
            label: hostile.into(),
            turns: vec![TranscriptTurn {
                text: hostile.into(),
                finish: hostile.into(),
                ..TranscriptTurn::default()
            }],
            ..Transcript::default()
        };
        let shown = render(&transcript);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        assert!(shown.contains("s7\\u001b]0;owned"), "{shown}");
    }
}
