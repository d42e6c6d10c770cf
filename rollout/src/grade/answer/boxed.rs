//! Reads `\boxed{...}`, which mathematicians put around an answer.

use std::borrow::Cow;
use std::ops::Range;

use super::alternative::DOUBTS;
use super::correcting::takes_back;
use super::denied;
use super::text::tail;

/// Words between boxes that together are one list.
const JOINING: [&str; 22] = [
    ",", ";", "and", "or", ".or", ",and", ",or", "&", "und", "oder", "y", "o", "et", "ou", "e", ";or", "and/or",
    "andor", "или", "和", "或", "以及",
];

/// Most boxes that are joined to the last one.
const MOST: usize = 64;
/// Longest text between joined boxes, in bytes.
const NEAR: usize = 40;

/// A complete box.
#[derive(Debug, Clone)]
struct Place {
    /// From the command to the brace at the end.
    whole: Range<usize>,
    content: Range<usize>,
}

/// The answer in the last boxes of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Boxed<'a> {
    /// The content. Several boxes that words join are one list.
    pub(crate) content: Cow<'a, str>,
    /// The end of the last box.
    pub(crate) end: usize,
}

/// The boxes of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Boxes<'a> {
    pub(crate) last: Option<Boxed<'a>>,
    /// True if there is a complete box, whatever the text says of it.
    pub(crate) any: bool,
    /// The place of a later box that never ends, and that does not begin to repeat the last one.
    /// Nothing before it is the answer any more.
    pub(crate) cut: Option<usize>,
}

/// Finds the last boxes, with braces matched, without those that the text denies or takes back. One
/// pass, whatever the text is.
pub(crate) fn find(text: &str) -> Boxes<'_> {
    let (mut places, cut) = places(text);
    let any = !places.is_empty();
    if places
        .last()
        .is_some_and(|last| denied::is_taken_back(&text[last.whole.end..]))
    {
        places.clear();
    }
    drop_denied(text, &mut places);
    let last = places.last().cloned();
    let after = |cut: &usize| {
        last.as_ref()
            .is_none_or(|last| last.whole.start < *cut && !repeats(text, last, *cut))
    };
    let cut = cut.filter(after);
    let last = last.filter(|_| cut.is_none()).map(|last| Boxed {
        content: joined(text, &places),
        end: last.whole.end,
    });
    Boxes { last, any, cut }
}

/// Returns the content of the last complete `\boxed{...}` or `\fbox{...}`, if no later one is cut
/// off.
pub(crate) fn last(text: &str) -> Option<Cow<'_, str>> {
    find(text).last.map(|found| found.content)
}

/// Returns every complete box that holds no other, in order, and the last box that never ends.
fn places(text: &str) -> (Vec<Place>, Option<usize>) {
    // Open braces: the position of each, and the beginning of its command if it is a box.
    let mut open: Vec<(usize, Option<usize>)> = Vec::new();
    let mut found: Vec<Place> = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            // An escaped brace is a sign of a set.
            b'\\' if matches!(bytes.get(at + 1), Some(b'{' | b'}' | b'\\')) => at += 1,
            b'{' => open.push((at, command(&text[..at]))),
            b'}' => {
                if let Some((start, Some(command))) = open.pop()
                    && !is_template(&text[start + 1..at])
                    && found.last().is_none_or(|inner| inner.whole.start < command)
                {
                    found.push(Place {
                        whole: command..at + 1,
                        content: start + 1..at,
                    });
                }
            }
            _ => {}
        }
        at += 1;
    }
    let cut = open.iter().rev().find_map(|(_, command)| *command);
    (found, cut)
}

/// Returns true if the box that never ends begins to repeat a complete one, and nothing between
/// them gives another value: `\boxed{18} .. \boxed{1`.
fn repeats(text: &str, last: &Place, cut: usize) -> bool {
    let begun = text[cut..].split_once('{').map_or("", |(_, begun)| begun.trim_end());
    let (before, between) = (&text[..last.whole.start], &text[last.whole.end..cut]);
    let plain = !between.contains(|c: char| c.is_ascii_digit()) && !takes_back(between);
    text[last.content.clone()].starts_with(begun) && (plain || before.ends_with(between.trim_start()))
}

/// Returns true if a box shows only where an answer goes: `\boxed{...}`, `\boxed{your answer}`.
fn is_template(content: &str) -> bool {
    let words = content
        .replace("\\text{", "")
        .replace(['{', '}', '[', ']', '<', '>', '$'], "");
    let words = words.trim().to_lowercase();
    [
        "...",
        "…",
        "\\ldots",
        "\\dots",
        "\\cdots",
        "your answer",
        "your final answer",
        "final answer",
    ]
    .contains(&words.as_str())
}

/// Returns the beginning of the command of a box at the end of a text.
fn command(before: &str) -> Option<usize> {
    let before = before.trim_end();
    let name = ["\\boxed", "\\fbox"].into_iter().find(|name| before.ends_with(name))?;
    Some(before.len() - name.len())
}

/// Drops the last boxes if the text denies them: `\boxed{18}, not \boxed{20}`.
fn drop_denied(text: &str, places: &mut Vec<Place>) {
    let first = places.len() - last_joined(text, places);
    if let Some(place) = places.get(first) {
        let before = &text[..place.whole.start];
        // `x is not \boxed{0}` alone may be the answer.
        if denied::is_contrast(before) || (first > 0 && denied::is_rejected(before)) {
            places.truncate(first);
        }
    }
}

/// Returns the number of boxes at the end that words join as a list.
fn last_joined(text: &str, places: &[Place]) -> usize {
    let pairs = places.windows(2).rev();
    let joins = |pair: &&[Place]| {
        let before = tail(&text[..pair[0].whole.start], NEAR);
        is_joining(text.get(pair[0].whole.end..pair[1].whole.start), before)
    };
    places.len().min(1 + pairs.take(MOST).take_while(joins).count())
}

/// Returns the content of the last box, or of the boxes that words join to it as a list.
fn joined<'a>(text: &'a str, places: &[Place]) -> Cow<'a, str> {
    let list: Vec<&str> = places[places.len() - last_joined(text, places)..]
        .iter()
        .map(|place| &text[place.content.clone()])
        .collect();
    match list.as_slice() {
        [one, others @ ..] if others.iter().all(|other| other == one) => Cow::Borrowed(one),
        several => Cow::Owned(several.join(", ")),
    }
}

/// Returns true if the text between two boxes makes one list of them. The name that stands before
/// the first may stand before the second: `x = \boxed{2}` or `x = \boxed{3}`.
fn is_joining(between: Option<&str>, before: &str) -> bool {
    let Some(between) = between.filter(|between| between.len() <= NEAR && !between.contains("\n\n")) else {
        return false;
    };
    let (words, before) = (without_doubt(bare(between)), bare(before));
    let named = words.strip_suffix('=').and_then(|rest| rest.char_indices().next_back());
    let name = named.map(|(at, _)| &words[at..]).filter(|name| before.ends_with(name));
    JOINING.contains(&name.map_or(words.as_str(), |name| words.trim_end_matches(name)))
}

/// Returns the `or` of `or maybe`.
fn without_doubt(words: String) -> String {
    let doubts = DOUBTS.iter().map(|doubt| doubt.replace(' ', ""));
    let or = doubts
        .filter_map(|doubt| Some(words.strip_suffix(&doubt)?.to_owned()))
        .find(|or| or.ends_with("or"));
    or.unwrap_or(words)
}

/// Returns the word or the sign between two formulas, if it makes one list of them.
pub(super) fn joins(between: &str) -> Option<&'static str> {
    let words = Some(between).filter(|between| between.len() <= NEAR).map(bare)?;
    JOINING.into_iter().find(|joining| *joining == words)
}

/// Returns a text without white space, delimiters and typesetting.
fn bare(text: &str) -> String {
    let mut words = text.to_lowercase();
    for mark in ["\\text", "\\quad", "\\qquad", "\\(", "\\)", "\\,", "\\;", "\\ "] {
        words = words.replace(mark, "");
    }
    words
        .chars()
        .filter(|c| !c.is_whitespace() && !"$*_{}(".contains(*c))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_complete_box_counts() {
        for (text, content) in [
            ("\\boxed{1}. \\boxed{2}", Some("2")),
            ("\\boxed{1}, no: \\boxed{2}", Some("2")),
            ("\\boxed {3}", Some("3")),
            ("\\fbox{4} and {5}", Some("4")),
            ("\\boxed{\\boxed{7}}", Some("7")),
            ("\\boxed{\\frac{1}{2}}}", Some("\\frac{1}{2}")),
            ("\\boxed{\\left\\{ 1 \\right.}", Some("\\left\\{ 1 \\right.")),
            ("}{ \\boxed{é} {", Some("é")),
            ("\\boxed{6 {} \\fbox{8}", Some("8")),
            ("\\boxed 5", None),
            ("\\boxed x{5}", None),
            ("\\boxed{5}, as \\boxed{...} asks", Some("5")),
            ("put it in \\boxed{\\text{your answer}}", None),
            ("\\boxed{18}, not $\\boxed{20}$", Some("18")),
            ("\\boxed{18} rather than \\boxed{20} or \\boxed{21}", Some("18")),
            ("18, not \\boxed{20}", None),
            ("x is not \\boxed{0}", Some("0")),
            ("\\boxed{18} is less than \\boxed{20}", Some("20")),
            ("\\boxed{18}. That is wrong. The answer is 20.", None),
            ("\\boxed{18} is wrong only if the answer is 20.", Some("18")),
            ("\\boxed{1, 2, \\ldots}", Some("1, 2, \\ldots")),
            ("{5}", None),
            ("", None),
        ] {
            assert_eq!(last(text).as_deref(), content, "{text}");
        }
    }

    #[test]
    fn joined_boxes_are_one_list() {
        for (text, content) in [
            ("\\boxed{2} and \\boxed{3}", "2, 3"),
            ("$\\boxed{2}$, $\\boxed{3}$, or $\\boxed{4}$", "2, 3, 4"),
            ("\\boxed{2}\\text{ and }\\boxed{3}", "2, 3"),
            ("\\boxed{1}. Then \\boxed{2} or \\boxed{3}", "2, 3"),
            ("$x = \\boxed{2}$ or $x = \\boxed{3}$", "2, 3"),
            ("$x = \\boxed{2}$ and $y = \\boxed{3}$", "3"),
            ("\\boxed{6}, no: \\boxed{7}", "7"),
            ("\\boxed{840}.\n\n\\boxed{840}", "840"),
        ] {
            assert_eq!(last(text).as_deref(), Some(content), "{text}");
        }
    }

    #[test]
    fn a_box_that_is_cut_off_takes_earlier_boxes_back() {
        for text in [
            "\\boxed{1} \\boxed{2",
            "\\boxed{41}. Wait: \\boxed{\\frac{4}{2}",
            "\\boxed{18}. Wait: \\boxed{",
            "\\boxed{18}. Then 9 * 3 = 27, so \\boxed{",
        ] {
            let boxes = find(text);
            assert!(boxes.last.is_none() && boxes.cut.is_some(), "{text}");
        }
        assert!(find("\\boxed{1 \\boxed{2}").cut.is_none());
        for text in [
            "\\boxed{18}\n\\boxed{",
            "\\boxed{18}. So it is \\boxed{1",
            "9 * 2 = \\boxed{18}\n9 * 2 = \\boxed{18}\n9 * 2 = \\boxed{1",
        ] {
            assert_eq!(last(text).as_deref(), Some("18"), "{text}");
        }
    }

    #[test]
    fn boxes_that_never_end_cost_one_pass() {
        let text = "\\boxed{".repeat(9000);
        assert_eq!(last(&text), None);
        assert_eq!(last(&format!("{text}\\boxed{{1}}")).as_deref(), Some("1"));
        let many = "\\boxed{1}, ".repeat(6000);
        assert!(last(&many).is_some());
    }
}
