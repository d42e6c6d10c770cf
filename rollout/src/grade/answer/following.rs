//! Decides whether numbers behind an announced sentence replace its value: `Answer: He bought 3
//! tickets. So he paid $15.`

use super::tidy::is_emoji;

/// The meaning of the text behind a sentence for the value of the sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Following {
    /// The value stays the answer.
    Nothing,
    /// More sentences with numbers follow, and none of them gives a result.
    Steps,
    /// The last sentence gives the state again: `Lisa has 15 apples. She buys 5. She has 20.`
    Again,
    /// A result follows, with the last number of the text.
    Result,
}

/// Beginnings of texts that explain an answer, or have nothing to do with it.
const REMARKS: [&str; 22] = [
    "check",
    "verif",
    "confidence",
    "note",
    "explanation",
    "reason",
    "because",
    "this is",
    "that is",
    "that's",
    "this means",
    "let me know",
    "difficulty",
    "unit",
    "steps",
    "here is",
    "here's",
    "source",
    "proof",
    "level",
    "i am",
    "i'm",
];
/// Words before a result.
const CONCLUDING: [&str; 4] = ["so", "thus", "hence", "therefore"];
/// Words of a heading with a result: `Sum: 15`.
const RESULTS: [&str; 13] = [
    "sum",
    "cost",
    "price",
    "profit",
    "result",
    "remaining",
    "left",
    "final",
    "amount",
    "difference",
    "answer",
    "now",
    "product",
];
/// Words of a sentence that gives a state, such as the result of steps.
const STATES: [&str; 6] = ["has", "have", "now", "sum", "left", "ends"];
/// Words with a result, which may also sum up a check.
const TOTALS: [&str; 2] = ["total", "altogether"];

/// Returns the meaning of the text behind a sentence for its value. `subject` is the part of the
/// sentence before the value.
pub(super) fn following(subject: &str, value: &str, behind: &str) -> Following {
    let mark = |c: char| c.is_whitespace() || ".。*_!".contains(c) || is_emoji(c);
    let rest = behind.trim_start_matches(mark);
    let digit = |text: &str| text.contains(|c: char| c.is_ascii_digit());
    if names_another(rest) && last_digits(rest) != last_digits(value) {
        return Following::Result;
    }
    if !digit(rest) || is_remark(rest) || begins_line(&behind[..behind.len() - rest.len()], rest) {
        return Following::Nothing;
    }
    let own = last_digits(value);
    let paragraph = rest.split("\n\n").next().unwrap_or(rest);
    let first = behind.trim_start_matches(['.', '*', '_', ' ']);
    let same = !first.starts_with("\n\n");
    let sentences = rest
        .split_inclusive(['\n', '!', '?'])
        .flat_map(|line| line.split_inclusive(". "));
    let results: Vec<&str> = sentences
        .filter(|sentence| digit(sentence) && concludes(sentence))
        .collect();
    let equation = Some(paragraph).filter(|text| same && text.contains('='));
    let result = results.last().copied().or(equation);
    match result {
        Some(result) if last_digits(result) == own => Following::Nothing,
        // Behind the result no other number may stand, which would count instead.
        Some(result)
            if rest[result.as_ptr().addr() - rest.as_ptr().addr() + result.len()..]
                .contains(|c: char| c.is_ascii_digit()) =>
        {
            Following::Steps
        }
        Some(_) => Following::Result,
        None if same && digit(paragraph) => {
            let last = paragraph
                .split_inclusive(['\n', '!', '?'])
                .flat_map(|line| line.split_inclusive(". "));
            let state = last
                .filter(|text| digit(text))
                .last()
                .is_some_and(|text| contains(text, &STATES));
            match (state, contains(subject, &["has", "have", "is", "are"])) {
                (false, _) => Following::Steps,
                (true, true) => Following::Again,
                (true, false) => Following::Result,
            }
        }
        None => Following::Nothing,
    }
}

/// Returns true if a computation is a step, and the lines behind it compute another result:
/// `16 - 7 = 9`, and `9 * 2 = 18` behind it. A check gives a number that the computation has
/// already.
pub(super) fn is_step(computation: &str, behind: &str) -> bool {
    let mark = |c: char| c.is_whitespace() || ".。*_!-•#".contains(c);
    let same = !behind.trim_start_matches(['.', '*', '_', ' ', '$']).starts_with("\n\n");
    let rest = behind.trim_start_matches(mark);
    let paragraph = rest.split("\n\n").next().unwrap_or(rest);
    let sentences = paragraph.split('\n').flat_map(|line| line.split(". "));
    let Some(last) = sentences.filter(|sentence| sentence.contains('=')).last() else {
        return false;
    };
    let name = |text: &str| {
        let name = text.split('=').next().unwrap_or(text);
        name.chars().filter(|c| c.is_alphanumeric()).count() == 1
    };
    let numbers = |text: &str| {
        let split = text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','));
        split
            .map(last_digits)
            .filter(|digits| !digits.is_empty())
            .collect::<Vec<_>>()
    };
    let result = last_digits(last);
    let known = numbers(computation);
    let both = computation.contains('=') && computation.contains(|c: char| c.is_ascii_digit());
    let plain = !computation.contains('\\') && !name(computation);
    both && plain && same && !is_remark(rest) && !result.is_empty() && !known.contains(&result)
}

/// Returns true if a text only explains the answer before it.
fn is_remark(text: &str) -> bool {
    let head = &text[..text.floor_char_boundary(32)].to_lowercase();
    REMARKS.iter().any(|words| head.starts_with(words)) || text.starts_with(['(', '['])
}

/// Returns true if a list, a heading, a rule or a line of data begins behind the end of a sentence:
/// `- Start: 12`, `### Steps`, `Steps: 3`.
fn begins_line(between: &str, rest: &str) -> bool {
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = digits.len() < rest.len() && digits.starts_with([')', '.']);
    let star = between.rsplit('\n').next().is_some_and(|line| line.starts_with("* "));
    let heading = rest.split_once(':').is_some_and(|(name, _)| {
        let name = name.to_lowercase();
        let few = name.split_whitespace().nth(3).is_none() && !name.contains(['\n', '.', '=', '$']);
        few && !contains(&name, &RESULTS) && !concludes(&name)
    });
    let listed = heading || star || numbered || rest.starts_with(['-', '•', '#', '–', '—']);
    between.contains('\n') && listed
}

/// Returns true if a text is one sentence that only names another value: `That is $18.`
fn names_another(text: &str) -> bool {
    let lower = text.to_lowercase();
    let value = ["that is ", "this is ", "that's "]
        .iter()
        .find_map(|words| lower.strip_prefix(words));
    value.is_some_and(|value| {
        let value = value.trim_start_matches(['$', '*']);
        let rest = value.trim_start_matches(|c: char| c.is_ascii_digit() || ".,".contains(c));
        rest.len() < value.len()
            && rest.split_whitespace().nth(2).is_none()
            && !rest.contains(|c: char| c.is_ascii_digit())
    })
}

/// Returns true if one of these words stands in a text.
fn contains(text: &str, words: &[&str]) -> bool {
    let mut all = text.split(|c: char| !c.is_alphanumeric());
    all.any(|word| words.contains(&word))
}

/// Returns true for a sentence that gives a result.
fn concludes(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let mut words = lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    words.any(|word| CONCLUDING.contains(&word) || TOTALS.contains(&word))
}

/// Returns the digits of the last number of a text.
pub(super) fn last_digits(text: &str) -> String {
    let within = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let text = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let start = text.trim_end_matches(within).len();
    text[start..].replace(',', "")
}

#[cfg(test)]
mod tests {
    use super::{Following, following, is_step};

    #[test]
    fn a_computation_before_another_is_a_step() {
        for (computation, behind, step) in [
            ("16 - 3 - 4 = 9", "\n9 * 2 = 18", true),
            ("16 - 3 - 4 = 9 eggs", ". 9 x 2 = 18.", true),
            ("Eggs = 16", "\nUsed = 7\nMoney = $18 per day.", true),
            ("9 * 2 = 18", "\nCheck: 18 / 3 = 6", false),
            ("9 * 2 = 18", "\n18 / 2 = 9", false),
            ("9 * 2 = 18", "\n\nThere: 4 * 4 = 16", false),
            ("x = 2", "\ny = 3", false),
            ("- $x = 2$", "\n- $x = 3$", false),
            ("18", "\n9 * 4 = 36", false),
        ] {
            assert_eq!(is_step(computation, behind), step, "{computation}{behind}");
        }
    }

    #[test]
    fn numbers_behind_a_value_may_replace_it() {
        for (behind, decided) in [
            ("", Following::Nothing),
            (".\nConfidence: 95%", Following::Nothing),
            (". Check: 18 - 6 = 12.", Following::Nothing),
            (".\n- Start: 12\n- Bought: 6", Following::Nothing),
            (".\n### Steps\n12 and 6", Following::Nothing),
            (".\n(12 + 7)", Following::Nothing),
            (".\nTime taken: 12 s", Following::Nothing),
            (".\nSum: 20", Following::Steps),
            (". He had 12 and bought 6.", Following::Steps),
            (". He had 12 and bought 6. So he has 18.", Following::Nothing),
            (". He had 12 and bought 6. So he has 19.", Following::Result),
            (". So he has 19. He had 12.", Following::Steps),
            (". He buys 2. He has 20 apples.", Following::Again),
            (". That is $20.", Following::Result),
            (". That is 3 times as many as 6.", Following::Nothing),
            (".\nIt costs 3 * 2 = 6.", Following::Result),
            (". \n\nTotal: $15.", Following::Result),
            (".\n\nHe had 12.", Following::Nothing),
        ] {
            assert_eq!(following("Tom has ", "18 apples", behind), decided, "{behind}");
        }
    }
}
