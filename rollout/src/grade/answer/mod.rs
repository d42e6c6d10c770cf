//! Finds answers in texts: all candidates, in the order in which they are trusted.
//!
//! Each kind tries the candidates until it can use one. A candidate that a kind cannot use, such as
//! a formula in a box for `choice`, hides no other mark.

pub(super) mod alternative;
pub(super) mod announced;
pub(super) mod announcing;
pub(super) mod aside;
pub(super) mod boxed;
pub(super) mod conditional;
pub(super) mod converted;
pub(super) mod correcting;
mod delimited;
pub(super) mod denied;
mod following;
mod hashes;
pub(super) mod last;
pub(super) mod listed;
mod phrase;
pub(super) mod prose;
mod refusal;
mod sentence;
pub(super) mod signs;
mod spaced;
mod steps;
mod tags;
mod text;
pub(super) mod tidy;
pub(super) mod trailer;
pub(super) mod turn;
pub(super) mod undecided;
pub(super) mod unmarked;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

pub(super) use self::delimited::last_row;
pub(super) use self::text::{LONGEST, LONGEST_ANSWER, head, tail};
use super::normal::setting::unwrapped;
use super::normal::unit_names::without_unit;

/// Where an answer stands in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Tagged,
    Boxed,
    Announced,
    /// Behind `####`.
    Hashes,
    /// The last value of a text without a mark, or the whole text.
    Last,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tagged => "in <answer>",
            Self::Boxed => "in the box",
            Self::Announced => "announced",
            Self::Hashes => "behind ####",
            Self::Last => "last",
        })
    }
}

/// A text that may be the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate<'a> {
    pub(super) place: Place,
    pub(super) text: Cow<'a, str>,
}

impl Candidate<'_> {
    /// Returns an announced number or amount without the exclamation marks of its sentence.
    pub(super) fn exclaimed(&self) -> Option<&str> {
        let number = self
            .text
            .strip_suffix('!')
            .filter(|_| [Place::Announced, Place::Hashes].contains(&self.place))?
            .trim_end_matches(['!', '*']);
        let number = number.trim_start_matches('*');
        let digits = number.trim_start_matches(['\\', '$', '€', '£', '₹']);
        let plain = |byte: u8| byte.is_ascii_digit() || [b',', b'.'].contains(&byte);
        (digits.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(plain)).then_some(number)
    }

    /// Returns the texts to search for a number: shortened ones first.
    pub(super) fn forms(&self) -> Vec<Cow<'_, str>> {
        let text = self.text.as_ref();
        let said = [Place::Announced, Place::Hashes].contains(&self.place);
        let plain = aside::without_aside(text).filter(|_| said);
        let found = [
            plain.or_else(|| self.exclaimed()),
            Some(text),
            prose::without_prose(text)
                .or_else(|| without_unit(text))
                .filter(|_| said),
            self.sentence(),
        ];
        let chinese = prose::of_chinese(text).map(Cow::Owned);
        found.into_iter().flatten().map(Cow::Borrowed).chain(chinese).collect()
    }

    /// Returns the last number of a sentence between tags.
    fn sentence(&self) -> Option<&str> {
        let text = denied::undenied(aside::without_reason(&self.text))?;
        let decided = self.place == Place::Tagged && undecided::is_decided(text);
        last::number(text).filter(|_| decided)
    }
}

/// The marked answers of a text.
#[derive(Debug, Default)]
pub(super) struct Marks<'a> {
    /// In the order in which they are trusted.
    pub(super) candidates: Vec<Candidate<'a>>,
    /// True if the text has a box or a tag, whatever it holds, announces a step of a solution, or
    /// gives up. Then the last value of the text is not the answer.
    pub(super) closed: bool,
    /// True if no other mark stands behind the last line with `####`.
    pub(super) hashes_end: bool,
}

/// Returns the marked answers of a text: the box or the tag, whichever ends later, then the other,
/// then announcements from the last to the first, then lines behind `####`. Such a line at the end
/// of the text comes before announcements. A second thought behind them, with another result, takes
/// all of them back.
pub(super) fn marks(text: &str) -> Marks<'_> {
    let found = all_marks(text);
    let replaced = found.candidates.first().is_some_and(|candidate| {
        let plain = !candidate.text.contains(['\\', '^', '/', '=']);
        correcting::second_thought(text).is_some_and(|(at, number)| {
            let other = following::last_digits(&candidate.text) != following::last_digits(number);
            plain && other && all_marks(&text[at..]).candidates.is_empty()
        })
    });
    if replaced { Marks::default() } else { found }
}

/// Returns the marks of a text, whatever is said behind them without a mark.
fn all_marks(text: &str) -> Marks<'_> {
    let boxes = boxed::find(text);
    // Behind a box that was cut off, only what stands below its line counts.
    let open = boxes.cut.map(|cut| {
        let line = text[cut..].find('\n').map_or(text.len(), |length| cut + length);
        &text[line..]
    });
    let text = open.unwrap_or(text);
    let stays = |place: &Range<usize>| {
        let behind = &text[place.end..];
        !denied::is_taken_back(behind.strip_prefix("</answer>").unwrap_or(behind))
    };
    let tag = tags::last_answer(text).filter(stays);
    let closed = tag.is_some() || boxes.any || open.is_some();
    let ends = [
        tag.as_ref().map(|tag| tag.end),
        boxes.last.as_ref().map(|boxed| boxed.end),
    ];
    let boxed_end = ends.into_iter().flatten().max().unwrap_or(0);
    let mut candidates = Vec::new();
    let tag_first = match (&tag, &boxes.last) {
        // A box inside the tag is the answer, and what stands around it is not.
        (Some(tag), Some(boxed)) => tag.end > boxed.end && boxed.end <= tag.start,
        _ => true,
    };
    let tagged = tag.map(|place| (Place::Tagged, Cow::Borrowed(&text[place])));
    let boxed = boxes.last.map(|found| (Place::Boxed, found.content));
    let both = if tag_first { [tagged, boxed] } else { [boxed, tagged] };
    for (place, content) in both.into_iter().flatten() {
        inside(place, content, &mut candidates);
    }
    let (announced, open) = announced::found(text);
    let end = |line: &str| line.as_ptr().addr() - text.as_ptr().addr() + line.len();
    let stays = |line: &&str| !denied::is_taken_back(&text[end(line)..]);
    let announced = without_begun(text, announced);
    let hashes = without_begun(text, hashes::lines(text).filter(stays).collect());
    let marked = boxed_end.max(announced.first().map_or(0, |line| end(line)));
    let last = hashes.first().map_or(0, |line| end(line));
    let few = hashes
        .first()
        .is_some_and(|line| line.split_whitespace().nth(2).is_none());
    let ends = few && text[last..].trim().is_empty();
    let (first, others) = hashes.split_at(usize::from(ends));
    let places = [
        (Place::Hashes, first),
        (Place::Announced, &announced),
        (Place::Hashes, others),
    ];
    for (place, lines) in places {
        candidates.extend(lines.iter().map(|line| Candidate {
            place,
            text: Cow::Borrowed(*line),
        }));
    }
    let closed = closed || open || (candidates.is_empty() && refusal::gives_up(text));
    Marks {
        candidates,
        closed,
        hashes_end: last > marked,
    }
}

/// Removes the last of several lines if it was cut off where it repeats the two before it: the `1`
/// of `#### 18`, `#### 18`, `#### 1`. The last stands first.
fn without_begun<'a>(text: &str, mut lines: Vec<&'a str>) -> Vec<&'a str> {
    if let [last, before, first, ..] = lines[..]
        && before == first
        && before
            .strip_prefix(last)
            .is_some_and(|rest| rest.starts_with(char::is_alphanumeric))
        && text.ends_with(last)
    {
        lines.remove(0);
    }
    lines
}

/// Adds what a mark holds: an announcement inside it, then all of it.
fn inside<'a>(place: Place, content: Cow<'a, str>, candidates: &mut Vec<Candidate<'a>>) {
    let inner = unwrapped(&content);
    // The words may be set upright, and then their brace stands before the answer.
    let lines = announced::lines(inner)
        .into_iter()
        .map(|line| line.trim_start_matches(['}', ' ']));
    let braces = |line: &str, brace: char| line.matches(brace).count();
    let mut whole = lines.filter(|line| braces(line, '{') == braces(line, '}'));
    if let Some(line) = whole.find(|line| announced::reads(line)) {
        candidates.push(Candidate {
            place,
            text: Cow::Owned(line.to_owned()),
        });
    }
    // A box may hold a sentence: `\boxed{\text{She makes \$18 a day}}`.
    let plain = tidy::untypeset(inner).filter(|plain| place == Place::Boxed && undecided::is_decided(plain));
    let value = plain
        .as_deref()
        .and_then(|plain| sentence::value(plain.trim_end_matches('.')));
    let number = value.and_then(|value| prose::without_prose(value).or(Some(value)));
    candidates.extend(number.map(|number| Candidate {
        place,
        text: Cow::Owned(number.to_owned()),
    }));
    candidates.push(Candidate { place, text: content });
}

/// Returns the marked answer: between the last `<answer>` and `</answer>`, else in the last
/// `\boxed{}`, else the whole text. Typesetting around all of it (`\text{Paris}`) is removed.
pub(super) fn marked(text: &str) -> Cow<'_, str> {
    let found = match tags::last_answer(text) {
        Some(place) => Cow::Borrowed(&text[place]),
        None => boxed::last(text).unwrap_or(Cow::Borrowed(text)),
    };
    match found {
        Cow::Borrowed(found) => Cow::Borrowed(unwrapped(found.trim())),
        Cow::Owned(found) => Cow::Owned(unwrapped(found.trim()).to_owned()),
    }
}
