//! Dead letters as text and as JSON.

use std::fmt::Write;

use crate::cli::tasks::letters::Letter;
use crate::run_folder::logs::{one_line, printable};

/// Formats a block for each letter, and the total.
#[must_use]
pub fn render(letters: &[Letter], bodies: bool) -> String {
    if letters.is_empty() {
        return "no dead letters\n".into();
    }
    let mut text = String::new();
    for letter in letters {
        block(&mut text, letter, bodies);
    }
    let _ = match letters.len() {
        1 => writeln!(text, "1 dead letter"),
        count => writeln!(text, "{count} dead letters"),
    };
    text
}

/// Formats each letter as a line of JSON: the fields that the page shows, and `fate`.
///
/// # Errors
/// A letter cannot be written as JSON.
pub fn json_lines(letters: &[Letter], bodies: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    for letter in letters {
        let mut line = serde_json::to_value(&letter.facts)?;
        line["bytes"] = letter.body.len().into();
        line["fate"] = letter.fate.as_str().into();
        if bodies {
            line["body"] = String::from_utf8_lossy(&letter.body).into();
        }
        let _ = writeln!(text, "{}", printable(&line.to_string()));
    }
    Ok(text)
}

fn block(text: &mut String, letter: &Letter, bodies: bool) {
    let kind = if letter.facts.kind.is_empty() {
        "no type"
    } else {
        &letter.facts.kind
    };
    let _ = writeln!(
        text,
        "{}  ({}, {} bytes)  {}",
        one_line(&letter.facts.id),
        one_line(kind),
        letter.body.len(),
        one_line(&letter.fate)
    );
    if let Some(own) = &letter.facts.own {
        let _ = writeln!(text, "    task {}", one_line(own));
    }
    let _ = writeln!(text, "    {}", one_line(&letter.facts.reason));
    let mark = |what: &str, value: &str| match value {
        "" => None,
        value => Some(format!("{what} {}", one_line(value))),
    };
    let times = match letter.facts.attempts {
        0 | 1 => None,
        attempts => Some(format!("{attempts} times")),
    };
    for line in [
        vec![
            mark("at", &letter.facts.stage),
            mark("as", &letter.facts.class),
            mark("first", &letter.facts.first),
            times,
        ],
        vec![mark("from", &letter.facts.queue), mark("under", &letter.facts.key)],
        vec![mark("published by", &letter.facts.user)],
        vec![mark("put here by", &letter.facts.mover)],
    ] {
        let known: Vec<String> = line.into_iter().flatten().collect();
        if !known.is_empty() {
            let _ = writeln!(text, "    {}", known.join(", "));
        }
    }
    if bodies {
        let _ = writeln!(text, "    {}", one_line(&String::from_utf8_lossy(&letter.body)));
    }
}
