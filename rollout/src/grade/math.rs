//! Mathematical answers: found in text, brought to one form, compared as text or by value.
//!
//! Not a computer algebra system: answers with unknowns are compared as normalised text only.

use serde_json::Value;

use super::value::{Number, evaluate};
use super::{boxed, label_text};

/// Longest answer that is compared, in bytes.
const LONGEST: usize = 512;

/// Whether the answer in `text` equals the label.
pub(super) fn right(text: &str, label: &Value) -> bool {
    let Some(label) = label_text(label) else { return false };
    let label = boxed::last(&label).unwrap_or(&label);
    let usable = |answer: &&str| !answer.trim().is_empty() && answer.len() <= LONGEST;
    answer(text)
        .filter(usable)
        .is_some_and(|answer| equal(&normal(answer), &normal(label), 0))
}

/// A label must be a text or a number with something in it.
pub(super) fn is_label(label: &Value) -> bool {
    label_text(label).is_some_and(|text| !text.trim().is_empty() && text.len() <= LONGEST)
}

/// The last boxed answer; else what follows the last "answer is" or "answer:" on its line; else the last number.
fn answer(text: &str) -> Option<&str> {
    boxed::last(text)
        .or_else(|| announced(text))
        .or_else(|| last_number(text))
}

fn announced(text: &str) -> Option<&str> {
    let lower = text.to_ascii_lowercase();
    let end = ["answer is", "answer:"]
        .iter()
        .filter_map(|w| lower.rfind(w).map(|at| at + w.len()))
        .max()?;
    let line = text[end..].trim_start_matches([':', ' ', '*']).lines().next()?;
    let line = line.split(". ").next()?.trim_end_matches(['.', ' ', '*']);
    (!line.is_empty()).then_some(line)
}

fn last_number(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let within = |b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b',' | b'/');
    let start = bytes[..end].iter().rposition(|b| !within(b)).map_or(0, |at| at + 1);
    let start = start + bytes[start..end].iter().position(u8::is_ascii_digit)?;
    let negative = start > 0 && bytes[start - 1] == b'-';
    let operand = negative && start > 1 && (bytes[start - 2].is_ascii_alphanumeric() || bytes[start - 2] == b')');
    Some(&text[start - usize::from(negative && !operand)..end])
}

/// Equal as text, by value, or part by part.
fn equal(a: &str, b: &str, depth: usize) -> bool {
    if a == b {
        return true;
    }
    if let (Some(a), Some(b)) = (evaluate(a), evaluate(b)) {
        return Number::equal(&a, &b);
    }
    let (Some((a_frame, a)), Some((b_frame, b))) = (parts(a), parts(b)) else {
        return false;
    };
    depth < 4 && a_frame == b_frame && a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| equal(a, b, depth + 1))
}

/// A tuple, interval, set or bare list with its brackets.
fn parts(text: &str) -> Option<((char, char), Vec<&str>)> {
    let brackets = [("(", '('), ("[", '['), ("\\{", '{')];
    let ends = [(")", ')'), ("]", ']'), ("\\}", '}')];
    let open = brackets.iter().find(|(open, _)| text.starts_with(open));
    let close = ends.iter().find(|(close, _)| text.ends_with(close));
    let (frame, inner) = match (open, close) {
        (Some((open, o)), Some((close, c))) if text.len() >= open.len() + close.len() => {
            ((*o, *c), &text[open.len()..text.len() - close.len()])
        }
        _ => ((' ', ' '), text),
    };
    let (mut list, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                list.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    list.push(&inner[start..]);
    (list.len() > 1).then_some((frame, list))
}

/// One way of writing for many: no spacing, no delimiters, no units, one kind of fraction, no thousands' commas.
fn normal(text: &str) -> String {
    let mut text = text.trim().to_owned();
    for (from, to) in [
        ("\\left", ""),
        ("\\right", ""),
        ("\\!", ""),
        ("\\,", ""),
        ("\\;", ""),
        ("\\:", ""),
        ("\\ ", ""),
        ("~", ""),
        ("\\$", ""),
        ("$", ""),
        ("\\%", ""),
        ("%", ""),
        ("^{\\circ}", ""),
        ("^\\circ", ""),
        ("\\degree", ""),
        ("tfrac", "frac"),
        ("dfrac", "frac"),
        ("\\cdot", "*"),
        ("\\times", "*"),
        ("\\div", "/"),
        ("−", "-"),
        ("\\pi", "π"),
        ("\\infty", "∞"),
        ("\\dots", "..."),
    ] {
        text = text.replace(from, to);
    }
    let text = without_texts(&text);
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let text = text.trim_end_matches(['.', ',', ';']);
    let text = match text.split_once('=') {
        Some((name, value)) if name.chars().count() <= 2 && !value.contains('=') => value,
        _ => text,
    };
    if is_grouped(text) {
        text.replace(',', "")
    } else {
        text.to_owned()
    }
}

/// A text in words keeps its words if it is all there is; beside mathematics it is a unit and goes.
fn without_texts(text: &str) -> String {
    let mut out = text.to_owned();
    for command in ["\\text{", "\\textbf{", "\\mathrm{", "\\mbox{"] {
        while let Some(at) = out.find(command) {
            let Some(close) = out[at..].find('}').map(|offset| at + offset) else {
                break;
            };
            let inner = out[at + command.len()..close].to_owned();
            let alone = out[..at].trim().is_empty() && out[close + 1..].trim().is_empty();
            let choice = inner.trim().trim_matches(['(', ')']).len() == 1;
            out.replace_range(at..=close, if alone || choice { inner.trim() } else { "" });
        }
    }
    out
}

/// `1,234,567.8`
fn is_grouped(text: &str) -> bool {
    let whole = text.trim_start_matches('-').split('.').next().unwrap_or_default();
    let mut groups = whole.split(',');
    let digits = |group: &str| group.bytes().all(|b| b.is_ascii_digit());
    let first = groups
        .next()
        .is_some_and(|group| (1..=3).contains(&group.len()) && digits(group));
    let mut rest = groups.peekable();
    first && rest.peek().is_some() && rest.all(|group| group.len() == 3 && digits(group))
}
