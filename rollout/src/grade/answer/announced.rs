//! Finds the answers that a text announces: `The answer is 5`, `Answer: 5`, `Respuesta: 5`.

use super::announcing::places;
use super::conditional::{is_asked, is_confirmed};
use super::following::{Following, following, is_step};
use super::phrase::before_total;
use super::steps::{is_list_of_steps, is_single_item};
use super::text::{is_word, without_marks};
use super::tidy::{is_emoji, without_bullet, without_marks_before};
use super::trailer::without_citation;
use super::{delimited, sentence};

/// Most words of an answer in words alone. A longer text is a sentence about something.
const MOST_WORDS: usize = 5;
/// Most announcements that are looked at.
const MOST: usize = 48;

/// Words before an answer that say nothing about it.
const LEADING: [&str; 16] = [
    "probably",
    "likely",
    "definitely",
    "certainly",
    "therefore",
    "thus",
    "hence",
    "then",
    "so",
    "now",
    "also",
    "indeed",
    "clearly",
    "simply",
    "exactly",
    "just",
];

/// Other words at the beginning of a line about the answer.
const FILLING: [&str; 13] = [
    "a", "an", "the", "not", "in", "fact", "still", "quite", "very", "rather", "bit", "little", "really",
];

/// Words that begin a step of a solution.
const STEPS: [&str; 6] = ["let", "first", "we", "consider", "suppose", "note"];

/// Words that describe an answer instead of giving it.
const STATES: &str = "verified correct right wrong incorrect confirmed checked consistent inconsistent valid \
    reasonable plausible sensible accurate final done clear obvious evident subtle tricky simple \
    easy hard difficult given found obtained computed calculated derived determined expressed \
    written shown what that as this same see above below following";

/// Returns the announced texts, the last first.
pub(crate) fn lines(text: &str) -> Vec<&str> {
    found(text).0
}

/// Returns the announced texts, the last first, and true if the last announcement is a step of a
/// solution without a result, so that the last number of the text is no answer. Each announcement
/// is read up to the next, so this is one pass.
pub(super) fn found(text: &str) -> (Vec<&str>, bool) {
    let mut until = text.len();
    let mut found = Vec::new();
    let mut open = false;
    for place in places(text).into_iter().rev().take(MOST) {
        let behind = text.get(place.end..until);
        let line = behind.and_then(|behind| json_value(&text[..place.end], behind).or_else(|| said(behind)));
        // A solution stands before its answer, or behind the word `Answer`.
        let solved = text[..place.start].contains(char::is_alphanumeric) || text[place.clone()].contains("inal");
        let line = line.and_then(|said| match said.following {
            Following::Nothing => Some(said.line),
            Following::Steps | Following::Again if solved => Some(said.line),
            Following::Steps => {
                open |= until == text.len();
                None
            }
            Following::Again | Following::Result => None,
        });
        let line = line.and_then(|line| match line.split_once('?') {
            Some((asked, reply)) if is_asked(&text[..place.start]) => Some(asked).filter(|_| is_confirmed(reply)),
            _ => Some(line),
        });
        found.extend(line);
        until = place.start;
    }
    (found, open)
}

/// An announced text.
struct Said<'a> {
    line: &'a str,
    following: Following,
}

impl<'a> Said<'a> {
    fn alone(line: &'a str) -> Self {
        let following = Following::Nothing;
        Self { line, following }
    }
}

/// Returns the value of a JSON key: the `18` of `{"answer": 18, "steps": 3}`.
fn json_value<'a>(before: &str, behind: &'a str) -> Option<Said<'a>> {
    let quote = before
        .strip_suffix(':')?
        .trim_end()
        .chars()
        .next_back()
        .filter(|c| ['"', '\''].contains(c))?;
    let value = behind.trim_start();
    let inside = value.strip_prefix(quote);
    let (value, ends): (&str, &[char]) = match (inside, value.starts_with('[')) {
        (Some(inside), _) => (inside, &[quote]),
        (None, true) => return value.find(']').map(|end| Said::alone(&value[..=end])),
        (None, false) => (value, &[',', '}', '\n']),
    };
    let end = value.find(ends).unwrap_or(value.len());
    Some(value[..end].trim())
        .filter(|value| !value.is_empty())
        .map(Said::alone)
}

/// Returns the announced text, up to the end of its line or sentence, or a displayed formula. Lines
/// that lead to the next line (`as follows:`) and empty lines are skipped.
fn said(behind: &str) -> Option<Said<'_>> {
    let mut rest = behind;
    loop {
        let value = without_marks_before(rest);
        let below = rest[..rest.len() - value.len()].contains('\n');
        rest = without_leading(if below { without_bullet(value) } else { value });
        if let Some(formula) = delimited::set_off(rest) {
            return Some(Said::alone(formula));
        }
        if is_list_of_steps(rest) {
            return None;
        }
        rest = rest
            .strip_prefix("1. ")
            .filter(|_| below && is_single_item(rest))
            .unwrap_or(rest);
        let whole = rest.lines().next()?;
        let ends = |c: char| ['.', ' ', '*', '_', '。'].contains(&c) || is_emoji(c);
        let line = first_cell(first_sentence(whole)).split("<br").next()?;
        let line = without_citation(line).unwrap_or(line).trim_end_matches(ends);
        let leads = line.ends_with(':') && !line.contains(|c: char| c.is_ascii_digit() || ['$', '\\'].contains(&c));
        if !leads {
            let line = before_total(without_shout(without_leading(line)));
            let behind = &rest[line.as_ptr().addr() - rest.as_ptr().addr() + line.len()..];
            return match sentence::value(line) {
                Some(value) => Some(Said {
                    line: value,
                    following: following(&line[..line.len() - value.len()], value, behind),
                }),
                None if is_step(line, behind) => Some(Said {
                    line,
                    following: Following::Result,
                }),
                None => Some(line).filter(|line| !line.is_empty()).map(Said::alone),
            };
        }
        rest = &rest[whole.len()..];
    }
}

/// Returns the first sentence of a line. `Rs. 500`, `i.e. 120`, `...` and `18. Or 20` go on.
fn first_sentence(line: &str) -> &str {
    let abbreviated = |at: usize| {
        let word = line[..at].rsplit([' ', '(', ',']).next().unwrap_or_default();
        ["i.e", "e.g", "Rs", "approx", "vs", "ca", "resp"].contains(&word)
    };
    let end = line
        .match_indices(". ")
        .map(|(at, _)| at)
        .find(|at| !abbreviated(*at) && !line[..*at].ends_with("..") && !line[*at..].starts_with(". Or "));
    &line[..end.unwrap_or(line.len())]
}

/// Returns a line without other fields behind it: the `90` of `90 | Confidence: 95%`.
fn first_cell(line: &str) -> &str {
    let fields = line.split_once(" | ").filter(|(_, others)| others.contains(':'));
    fields.map_or(line, |(first, _)| first)
}

/// Removes the exclamation marks behind a word: `18 apples!` has no factorial.
fn without_shout(line: &str) -> &str {
    let calm = line.trim_end_matches(['!', ' ', '*']);
    let letters = calm.chars().rev().take_while(|c| c.is_alphabetic()).count();
    if letters > 1 { calm } else { line }
}

/// Returns the `5` of `therefore 5` and of `not 4 but 5`.
fn without_leading(mut line: &str) -> &str {
    if let Some((_, rest)) = line.strip_prefix("not ").and_then(|rest| rest.split_once(" but ")) {
        line = rest;
    }
    line = line.strip_prefix("a total of ").unwrap_or(line);
    while let Some((word, rest)) = line.split_once(' ')
        && LEADING.contains(&without_marks(word).to_ascii_lowercase().as_str())
    {
        line = rest.trim_start_matches([' ', '*', '_']);
    }
    line
}

/// Returns true if a line reads as an answer. It begins like a formula, or it is a few words that
/// do not only describe an answer.
pub(crate) fn reads(line: &str) -> bool {
    let mut words = line
        .split_whitespace()
        .map(without_marks)
        .filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return false };
    let second = words.next();
    let article = ["a", "A"].contains(&first) && second.is_some_and(is_word);
    if !article && !is_word(first) {
        return line.contains(|c: char| c.is_alphanumeric() || ['∞', '∅', '\\'].contains(&c));
    }
    if STEPS.contains(&first.to_ascii_lowercase().as_str()) {
        return false;
    }
    let few = line.split_whitespace().nth(MOST_WORDS).is_none();
    let all = [Some(first), second].into_iter().flatten().chain(words);
    let tells = |word: &String| !LEADING.contains(&word.as_str()) && !FILLING.contains(&word.as_str());
    let mut telling = all.map(str::to_ascii_lowercase).filter(tells);
    few && telling
        .next()
        .is_some_and(|word| !STATES.split(' ').any(|state| state == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the last announced text that reads as an answer.
    fn answer(text: &str) -> Option<&str> {
        lines(text).into_iter().find(|line| reads(line))
    }

    #[test]
    fn an_announced_answer_may_stand_on_the_line_below() {
        for (text, line) in [
            ("The answer is: \n\n$$\\frac{3}{4}$$", "\\frac{3}{4}"),
            ("The answer is:\n\n\\[ \\frac{3}{4}. \\]\nI am sure.", "\\frac{3}{4}."),
            ("Answer:\n$$\n\\frac{3}{4}\n$$", "\\frac{3}{4}"),
            ("**Answer:**\n$\\frac{1}{2}$", "$\\frac{1}{2}$"),
            ("**Answer**: $\\frac{1}{2}$", "$\\frac{1}{2}$"),
            ("### Final Answer:\r\n\r\n  5\r\n", "5"),
            ("#### Final Answer\n72", "72"),
            ("Answer:\n\\(x+1\\) apples", "\\(x+1\\) apples"),
            ("The answer is as follows:\n\n$$x=5$$", "x=5"),
            ("The answer is therefore:\n5", "5"),
            ("Answer: $$1$$ or $$2$$", "$$1$$ or $$2$$"),
            ("Answer: $$5$$.", "5"),
            ("Answer:\n\\[\\begin{aligned} x &= 3+4 \\\\ &= 7 \\end{aligned}\\]", "7"),
        ] {
            assert_eq!(answer(text), Some(line), "{text}");
        }
    }

    #[test]
    fn announcements_without_an_answer_are_skipped() {
        for (text, line) in [
            ("Answer: 5\n\nThis answer is verified.", "5"),
            ("The answer is 5. I checked: this answer is right.", "5"),
            ("Answer: 5. So the answer is indeed correct!", "5"),
            (
                "Answer: 5\nThe answer is consistent with the first two lines of the table",
                "5",
            ),
            ("Answer: 5\nWe are asked what the answer is.", "5"),
            ("Answer: 5\nDo not say that the answer isn't 6", "5"),
            ("Answer: 5\nIf the answer is 6, then the sum is odd.", "5"),
            ("Answer: 5\nThe answer could be 6", "5"),
            ("Answer: 5\nNow you know what the answer is", "5"),
            ("Answer: 5\nThe answer is even.", "even"),
            ("Answer: 5\nThe answer is no real solution", "no real solution"),
            ("Answer: 5\nThe answer is x", "x"),
            ("Answer: 5\nThe answer is a", "a"),
            ("Answer: 5\nThe answer is sin x", "sin x"),
            ("Answer: 5\nThe answer is ∞.", "∞"),
            ("The answer is therefore $5$.", "$5$"),
            ("The answer is thus, simply, even.", "even"),
            ("The answer is not 5", "not 5"),
            ("The answer is not 4 but 5", "5"),
            ("The answer is 15 in total: 5 for each of the 3 kids.", "15"),
            ("The answer is a total of 15.", "15"),
            ("The answer is Rs. 500. It is much.", "Rs. 500"),
            ("The answer is probably 5.", "5"),
            ("**Answer:** Tim has **10** apples", "**10** apples"),
            ("Final Answer: The total cost is $10.", "$10"),
            ("Answer: The probability is $\\frac{1}{2}$.", "$\\frac{1}{2}$"),
            ("Answer: The number is not 5", "The number is not 5"),
            ("Answer: January 5", "January 5"),
            ("Answer:7", "7"),
        ] {
            assert_eq!(answer(text), Some(line), "{text}");
        }
        for text in [
            "The answer is correct.",
            "Answer: Lisa has 5 apples. She buys 3 more.",
            "Answer:\n\n1. Lisa has 5 apples.\n2. She buys 3 more.",
            "Answer: Let x be the number.",
            "The answer is a bit subtle. We get $\\frac{1}{2}$.",
            "So what the answer is",
        ] {
            assert_eq!(answer(text), None, "{text}");
        }
    }

    #[test]
    fn a_key_of_json_announces_its_value() {
        for (text, value) in [
            ("{\"answer\": 18}", "18"),
            ("{\"answer\": \"18\"}", "18"),
            ("{'answer': '18', 'steps': 3}", "18"),
            ("{\"final_answer\" : 18, \"steps\": 3}", "18"),
            ("{\"answer\": [1, 2], \"steps\": 3}", "[1, 2]"),
            ("{\n  \"answer\": 18\n}", "18"),
            ("{\"arguments\": {\"answer\": \"\\\\frac{1}{2}\"}}", "\\\\frac{1}{2}"),
            ("\"Answer\": 18 apples", "18 apples"),
        ] {
            assert_eq!(answer(text), Some(value), "{text}");
        }
    }

    #[test]
    fn other_words_and_languages_announce_too() {
        for text in [
            "The answer should be 5.",
            "The correct answer would be 5",
            "The answer to the question is 5.",
            "Answer = 5",
            "answer equals 5",
            "Final answer - 5",
            "Antwort: 5",
            "Die Antwort lautet 5.",
            "Respuesta: 5",
            "La respuesta es 5.",
            "Réponse : 5",
            "La réponse est 5",
            "Risposta: 5",
            "A resposta é 5.",
            "Ответ: 5",
            "答案是5",
            "答案：5",
            "答えは5",
            "정답: 5",
            "정답은 5",
            "Đáp án: 5",
        ] {
            assert_eq!(answer(text), Some("5"), "{text}");
        }
    }
}
