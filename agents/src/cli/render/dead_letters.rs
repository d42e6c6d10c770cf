//! Dead letters as text.

use std::fmt::Write;

use crate::cli::tasks::letters::Letter;
use crate::run_folder::logs::one_line;

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
