//! One page of the dead letters, collected while all of them pass by. Only the page is kept.

use std::collections::{BTreeMap, VecDeque};

use broker::ids::Digest;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{ApiError, LARGEST};
use super::runs::now_ms;

/// The number of letters in an answer, and the largest one.
const DEFAULT: usize = 100;
const MOST: usize = 200;
/// The bytes of a body in a list, and in an answer to `id`.
const BEGINNING: usize = 2 << 10;
const WHOLE: usize = 384 << 10;
/// The bytes of any other text. All but the body are short, unless a publisher forges them.
const TEXT: usize = 4 << 10;
/// The bytes of a counted class, and the number of classes.
const CLASS: usize = 64;
const CLASSES: usize = 32;
/// The bytes of all letters of an answer, as JSON.
const PAGE: usize = LARGEST / 4 * 3;

/// The page of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) struct LettersQuery {
    #[schemars(range(max = 1_000_000))]
    limit: Option<usize>,
    #[schemars(regex(pattern = "^[0-9]{1,9}-[0-9a-f]{32}$"))]
    cursor: Option<String>,
    #[serde(default)]
    order: LetterOrder,
    /// Only letters with this id, of the message or in the task. Their bodies are whole.
    id: Option<String>,
}

/// The order of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LetterOrder {
    /// The order of the queue and of `dyad tasks dead`.
    #[default]
    Oldest,
    Newest,
}

/// A dead letter.
#[derive(Debug, Clone, Default)]
pub struct DeadLetter {
    pub facts: LetterFacts,
    pub body: Bytes,
}

/// The facts of a dead letter, as `dyad tasks dead` prints them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LetterFacts {
    pub id: String,
    /// The id that the task's own body names, if it differs.
    pub own: Option<String>,
    pub kind: String,
    pub reason: String,
    /// Class of the failure, and the stage at which it happened.
    pub class: String,
    pub stage: String,
    /// Time of the first failure, and the number of failures; 0 if unknown.
    pub first: String,
    pub attempts: u32,
    pub queue: String,
    pub key: String,
    /// Publisher of the task, according to the user that moved it here.
    pub user: String,
    /// User that moved it here, according to the broker.
    pub mover: String,
}

/// A letter in an answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct ShownLetter {
    #[serde(flatten)]
    facts: LetterFacts,
    /// The size of the whole body.
    bytes: usize,
    body: String,
    /// True if `body` is only the beginning; ask for the letter by `id`.
    cut: bool,
}

/// Dead letters.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Letters {
    letters: Vec<ShownLetter>,
    /// The number of all letters in the queue.
    total: u64,
    /// The number of letters of each class.
    classes: BTreeMap<String, u64>,
    /// The cursor of the next page; `None` if this is the last one.
    next: Option<String>,
    /// Why the queue cannot be read.
    offline: Option<String>,
    at_ms: u64,
}

/// A letter's place in the queue and the digest of its content. Letters before it may leave, so it
/// is found at this place or before it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cursor {
    place: u64,
    digest: String,
}

impl Cursor {
    fn of(place: u64, letter: &DeadLetter) -> Self {
        let DeadLetter { facts, body } = letter;
        let (id, first, attempts, size) = (&facts.id, &facts.first, facts.attempts, body.len());
        let head = format!("{id}\n{first}\n{attempts}\n{size}\n");
        let digest = Digest::of(&[head.as_bytes(), &body[..size.min(TEXT)]].concat()).to_string();
        Self { place, digest }
    }

    fn parse(text: &str) -> Result<Self, ApiError> {
        let parts = text.split_once('-');
        let parsed = parts.and_then(|(place, digest)| {
            Some(Self {
                place: place.parse().ok()?,
                digest: digest.to_owned(),
            })
        });
        parsed.ok_or_else(|| ApiError::wrong("the cursor is none of an answer: send the `next` of the last one"))
    }
}

/// Letters kept for an answer, with their places and sizes.
#[derive(Debug, Clone, Default)]
struct Kept {
    letters: VecDeque<(Cursor, ShownLetter, usize)>,
    bytes: usize,
    /// True if there are more letters than these.
    more: bool,
}

/// Collects the letters of an answer.
pub struct LetterPage {
    limit: usize,
    order: LetterOrder,
    id: Option<String>,
    after: Option<Cursor>,
    seen: u64,
    classes: BTreeMap<String, u64>,
    kept: Kept,
    /// The letters before the cursor, once it was found. Used if the newest are first.
    before: Option<Kept>,
    found: bool,
}

impl Default for LetterPage {
    fn default() -> Self {
        Self::of(&LettersQuery::default(), None)
    }
}

impl LetterPage {
    pub(crate) fn new(query: &LettersQuery) -> Result<Self, ApiError> {
        let after = query.cursor.as_deref().map(Cursor::parse).transpose()?;
        Ok(Self::of(query, after))
    }

    fn of(query: &LettersQuery, after: Option<Cursor>) -> Self {
        Self {
            limit: query.limit.unwrap_or(DEFAULT).clamp(1, MOST),
            order: query.order,
            id: query.id.clone(),
            after,
            seen: 0,
            classes: BTreeMap::new(),
            kept: Kept::default(),
            before: None,
            found: false,
        }
    }

    /// Takes notice of the next letter of the queue.
    pub fn see(&mut self, letter: &DeadLetter) {
        self.seen += 1;
        self.count(&letter.facts.class);
        let place = Cursor::of(self.seen, letter);
        let can_be = self.after.as_ref().is_some_and(|after| place.place <= after.place);
        let is_cursor = can_be && self.after.as_ref().is_some_and(|after| place.digest == after.digest);
        self.found |= is_cursor;
        match self.order {
            LetterOrder::Oldest if is_cursor => self.kept = Kept::default(),
            LetterOrder::Oldest if self.after.is_some() && !self.found => {}
            LetterOrder::Newest if is_cursor => {
                self.before = Some(self.kept.clone());
                self.keep(place, letter);
            }
            _ => self.keep(place, letter),
        }
    }

    /// Counts a class. There are few, unless a publisher forges them.
    fn count(&mut self, class: &str) {
        let class = cut(class, CLASS).0;
        let is_counted = self.classes.len() < CLASSES || self.classes.contains_key(&class);
        let class = if is_counted { class } else { "other".to_owned() };
        *self.classes.entry(class).or_default() += 1;
    }

    fn keep(&mut self, place: Cursor, letter: &DeadLetter) {
        let is_named = |id: &String| *id == letter.facts.id || Some(id) == letter.facts.own.as_ref();
        if !self.id.as_ref().is_none_or(is_named) || self.order == LetterOrder::Oldest && self.kept.more {
            return;
        }
        let shown = ShownLetter::of(letter, if self.id.is_some() { WHOLE } else { BEGINNING });
        self.kept.push(place, shown, self.limit, self.order);
    }

    /// Returns the answer. `looked` is the number of all letters, or why they cannot be read.
    pub(crate) fn finish(self, looked: Result<u64, String>) -> Result<Letters, ApiError> {
        if looked.is_ok() && self.after.is_some() && !self.found {
            return Err(ApiError::new(
                410,
                "the letter at the cursor has left the queue: begin at the first page",
            ));
        }
        let kept = self.before.unwrap_or(self.kept);
        let mut letters: Vec<_> = kept.letters.into();
        if self.order == LetterOrder::Newest {
            letters.reverse();
        }
        let last = letters.last().filter(|_| kept.more);
        Ok(Letters {
            next: last.map(|(at, _, _)| format!("{}-{}", at.place, at.digest)),
            letters: letters.into_iter().map(|(_, letter, _)| letter).collect(),
            total: looked.as_ref().map_or(0, |total| (*total).max(self.seen)),
            classes: self.classes,
            offline: looked.err(),
            at_ms: now_ms(),
        })
    }
}

impl Kept {
    /// Adds a letter. Too many letters lose the last one, or the oldest if the newest are wanted.
    fn push(&mut self, place: Cursor, letter: ShownLetter, limit: usize, order: LetterOrder) {
        let size = serde_json::to_vec(&letter).map_or(0, |json| json.len());
        self.bytes += size;
        self.letters.push_back((place, letter, size));
        while self.letters.len() > limit || (self.bytes > PAGE && self.letters.len() > 1) {
            let lost = match order {
                LetterOrder::Oldest => self.letters.pop_back(),
                LetterOrder::Newest => self.letters.pop_front(),
            };
            self.bytes -= lost.map_or(0, |(_, _, size)| size);
            self.more = true;
        }
    }
}

impl ShownLetter {
    fn of(letter: &DeadLetter, longest: usize) -> Self {
        let DeadLetter { facts, body } = letter;
        // A character has at most 4 bytes.
        let start = String::from_utf8_lossy(&body[..body.len().min(longest + 4)]);
        let (text, is_cut) = cut(&start, longest);
        let short = |text: &String| cut(text, TEXT).0;
        Self {
            facts: LetterFacts {
                id: facts.id.clone(),
                own: facts.own.as_ref().map(short),
                kind: short(&facts.kind),
                reason: short(&facts.reason),
                class: short(&facts.class),
                stage: short(&facts.stage),
                first: short(&facts.first),
                attempts: facts.attempts,
                queue: short(&facts.queue),
                key: short(&facts.key),
                user: short(&facts.user),
                mover: short(&facts.mover),
            },
            bytes: body.len(),
            body: text,
            cut: is_cut,
        }
    }
}

/// Returns the beginning of a text, and whether it was longer.
fn cut(text: &str, longest: usize) -> (String, bool) {
    let end = text.floor_char_boundary(longest);
    (text[..end].to_owned(), end < text.len())
}

#[cfg(test)]
mod tests;
