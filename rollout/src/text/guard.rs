//! Prevents message contents from becoming control tokens. It puts a mark into every piece of text
//! that the tokenizer would read as an added token, and the text is cut there before it is encoded.

use serde_json::Value;

/// Range of the characters that serve as marks: private-use characters, which no template contains.
const MARKS: std::ops::RangeInclusive<u32> = 0xE000..=0xF8FF;

/// The texts of the tokens that messages must not produce.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard {
    literals: Vec<String>,
}

impl Guard {
    /// Keeps only texts of two or more characters. A single character cannot be cut, and no control
    /// token is that short.
    pub(super) fn new(literals: impl IntoIterator<Item = String>) -> Self {
        let mut literals: Vec<String> = literals.into_iter().filter(|l| l.chars().nth(1).is_some()).collect();
        literals.sort_unstable();
        literals.dedup();
        Self { literals }
    }

    /// Puts `mark` after the first character of every literal in `text`, overlapping literals
    /// included.
    pub(super) fn mark(&self, text: &str, mark: char) -> String {
        if !self.literals.iter().any(|literal| text.contains(literal.as_str())) {
            return text.to_owned();
        }
        let mut marked = String::with_capacity(text.len() + 16);
        for (at, c) in text.char_indices() {
            marked.push(c);
            if self
                .literals
                .iter()
                .any(|literal| text[at..].starts_with(literal.as_str()))
            {
                marked.push(mark);
            }
        }
        marked
    }
}

impl Guard {
    /// Returns the literal that occurs first in a text.
    pub(super) fn first_in(&self, text: &str) -> Option<&str> {
        let places = self
            .literals
            .iter()
            .filter_map(|literal| Some((text.find(literal.as_str())?, literal)));
        places.min_by_key(|(at, _)| *at).map(|(_, literal)| literal.as_str())
    }

    /// Puts marks into every text of a JSON value, names of fields included.
    pub(super) fn mark_all(&self, value: &Value, mark: char) -> Value {
        match value {
            Value::String(text) => self.mark(text, mark).into(),
            Value::Array(list) => list.iter().map(|item| self.mark_all(item, mark)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, field)| (self.mark(name, mark), self.mark_all(field, mark)))
                .collect(),
            other => other.clone(),
        }
    }
}

/// Returns private-use characters that occur in none of the texts.
pub(super) fn free_marks<const N: usize>(texts: &[&str]) -> Option<[char; N]> {
    let mut free = MARKS
        .filter_map(char::from_u32)
        .filter(|c| texts.iter().all(|text| !text.contains(*c)));
    let mut marks = ['\0'; N];
    for mark in &mut marks {
        *mark = free.next()?;
    }
    Some(marks)
}
