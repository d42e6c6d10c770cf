//! Cuts a text where the model goes on to another question, as base models do: `The answer is 18.
//! Question: Tom has 3 apples ..`

use super::text::{LONGEST, head, tail};
use crate::reasoning::{Mark, visible};

/// Signs around the word with which a line begins.
const SIGNS: &str = "#*_>-=[]{}` ";
/// Words before a number or a colon that begin another question.
const QUESTIONS: [&str; 12] = [
    "question",
    "problem",
    "exercise",
    "example",
    "q",
    "puzzle",
    "task",
    "follow-up",
    "bonus",
    "问题",
    "题目",
    "例题",
];
/// Words before those.
const BEFORE: [&str; 5] = ["next ", "new ", "another ", "follow-up ", "bonus "];
/// Beginnings of a line with which a prompt begins.
const PROMPTS: [&str; 11] = [
    "human:",
    "user:",
    "instruction:",
    "[inst]",
    "<|user|>",
    "<|im_start|>",
    "<|start_header_id|>",
    "<｜user｜>",
    "you are an ai assistant",
    "you are a helpful",
    "here is another ",
];
/// Names of speakers that a line consists of where the tokens around them were left out.
const SPEAKERS: [&str; 3] = ["user", "human", "assistant"];
/// Tokens behind which a prompt begins in the middle of a line.
const TOKENS: [&str; 8] = [
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "</s>",
    "<eos>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
];
/// First letters of all of these words.
const BEGINNINGS: &str = "abefhinpqtuy<";
/// Most places at which a text may be cut.
const MOST: usize = 64;
/// Most words of an answer that stands alone.
const FEW: usize = 3;
/// Most bytes of a line that are read.
const NEAR: usize = 64;

/// The beginning of another turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// A question, which may also be the first one, asked again.
    Question,
    /// A prompt or the end of the answer.
    Prompt,
}

/// Returns the part of a text before another question. An answer must stand there: behind a mark,
/// or alone, or before a prompt at all. Lines within reasoning are left alone. `marked` returns
/// true for a text that marks an answer, and `any` for a text with an answer.
pub(in crate::grade) fn first(text: &str, marked: impl Fn(&str) -> bool, any: impl Fn(&str) -> bool) -> &str {
    let mut start = 0;
    for (at, turn, open) in places(text) {
        let part = tail(visible(&text[start..at], open), LONGEST).trim();
        let alone = part.len() <= NEAR && part.split_whitespace().nth(FEW).is_none();
        let answers = !part.is_empty()
            && (marked(part)
                || (alone && marked(&format!("\\boxed{{{part}}}")))
                || (turn == Turn::Prompt && any(part)));
        if answers {
            return &text[..at];
        }
        start = at;
    }
    text
}

/// Returns the places where another question may begin, each with true if the text since the one
/// before it begins within reasoning.
fn places(text: &str) -> Vec<(usize, Turn, bool)> {
    let (open, close) = (Mark::Open.text(), Mark::Close.text());
    // A template may have opened the reasoning.
    let closes = text.find(close);
    let mut inside = closes.is_some_and(|at| !text[..at].contains(open));
    let (mut begun, mut found, mut at) = (inside, Vec::new(), 0);
    for line in text.split_inclusive('\n') {
        let mut places = Vec::new();
        places.extend(turn(line).filter(|_| at > 0).map(|turn| (at, turn)));
        if line.contains('<') {
            // `<s>20</s>` is a text that HTML strikes out.
            let is_token = |token: &&&str| **token != "</s>" || !line.contains("<s>");
            let ends = TOKENS.iter().filter(is_token).filter_map(|token| line.find(token));
            places.extend(ends.map(|end| (at + end, Turn::Prompt)));
            places.sort_unstable_by_key(|(at, _)| *at);
        }
        for (at, turn) in places.into_iter().filter(|_| !inside) {
            found.push((at, turn, begun));
            begun = false;
            if found.len() == MOST {
                return found;
            }
        }
        if line.contains('<') {
            inside = match (line.rfind(open), line.rfind(close)) {
                (None, None) => inside,
                (open, close) => open > close,
            };
        }
        at += line.len();
    }
    found
}

/// Returns what begins with a line.
fn turn(line: &str) -> Option<Turn> {
    let sign = |c: char| SIGNS.contains(c);
    let line = line.trim();
    let begins = |c: char| !c.is_ascii() || BEGINNINGS.contains(c.to_ascii_lowercase());
    if !line.starts_with(['[', '<']) && !line.trim_start_matches(sign).starts_with(begins) {
        return None;
    }
    let near = head(line, NEAR).to_lowercase();
    if PROMPTS.iter().any(|words| near.starts_with(words)) {
        return Some(Turn::Prompt);
    }
    let bare = near.trim_start_matches(sign);
    if SPEAKERS.contains(&bare) || PROMPTS.iter().any(|words| bare.starts_with(words)) {
        return Some(Turn::Prompt);
    }
    let rest = BEFORE.iter().find_map(|word| bare.strip_prefix(word)).unwrap_or(bare);
    let behind = QUESTIONS.iter().find_map(|word| rest.strip_prefix(word))?;
    let number = behind.trim_start_matches([' ', '#']);
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let numbered = rest.len() < number.len();
    let ends = rest.trim_start_matches(sign);
    let colon = ends.starts_with([':', '：', ')']);
    (colon || (numbered && (ends.is_empty() || number[..number.len() - rest.len()].ends_with('.'))))
        .then_some(Turn::Question)
}

#[cfg(test)]
mod tests {
    use super::{Turn, first, turn};

    #[test]
    fn a_line_that_begins_another_question_is_known() {
        for line in [
            "Question: Tom",
            "**Question 2:** Tom",
            "Q: Tom",
            "Q2. Tom",
            "### Problem 3",
            "Exercise #4: Tom",
            "Follow-up: And in a week?",
            "Next question: And in a week?",
            "问题：小明",
        ] {
            assert_eq!(turn(line), Some(Turn::Question), "{line}");
        }
        for line in [
            "Human: Tom",
            "### Instruction:",
            "<|im_start|>user",
            "user\n",
            "[INST] Tom",
        ] {
            assert_eq!(turn(line), Some(Turn::Prompt), "{line}");
        }
        for line in [
            "Questions are hard.",
            "Problem solved.",
            "The question: 5",
            "Users pay $5",
            "q = 5",
            "Step 2: 5",
            "Example of it",
            "",
        ] {
            assert_eq!(turn(line), None, "{line}");
        }
    }

    #[test]
    fn a_text_ends_before_another_question_if_it_answers() {
        let marked = |text: &str| text.contains("boxed") && text.contains('5');
        let any = |text: &str| text.contains('5');
        for (text, kept) in [
            ("\\boxed{5}\n\nQuestion: 6?\n\\boxed{7}", "\\boxed{5}\n\n"),
            ("5\n\nQuestion: 6?\n\\boxed{7}", "5\n\n"),
            ("It is 5.\nUser: 6?", "It is 5.\n"),
            ("It is 5.<|endoftext|>Human: 6?", "It is 5."),
            ("Q: 3?\n\\boxed{5}\nQ: 6?", "Q: 3?\n\\boxed{5}\n"),
            (
                "We know that it is 5.\nQuestion: 6?",
                "We know that it is 5.\nQuestion: 6?",
            ),
            ("Question: 5?", "Question: 5?"),
            (
                "<think>\\boxed{5}\nQ: x\n</think>7",
                "<think>\\boxed{5}\nQ: x\n</think>7",
            ),
            ("\\boxed{5}\nQ: x\n</think>7", "\\boxed{5}\nQ: x\n</think>7"),
            (
                "hm\n</think>\\boxed{5}\nUser: x\n<think>7</think>",
                "hm\n</think>\\boxed{5}\n",
            ),
        ] {
            assert_eq!(first(text, marked, any), kept, "{text}");
        }
    }
}
