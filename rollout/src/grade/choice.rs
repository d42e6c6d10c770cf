//! The grader `choice`: the letter that an answer chooses.

use serde_json::Value;

use super::answer::wide::{is_han, narrow};
use super::answer::{boxed, tags};
use super::label;

/// The letters that a choice may have.
const LETTERS: std::ops::RangeInclusive<char> = 'A'..='J';

/// Commands that set the type of a letter.
const SETTING: [&str; 30] = [
    "text",
    "textbf",
    "textit",
    "textrm",
    "textsf",
    "texttt",
    "textnormal",
    "mathrm",
    "mathbf",
    "mathit",
    "mathsf",
    "mathtt",
    "boldsymbol",
    "operatorname",
    "displaystyle",
    "underline",
    "bm",
    "bf",
    "rm",
    "it",
    "sf",
    "emph",
    "mbox",
    "hbox",
    "boxed",
    "fbox",
    "left",
    "right",
    "quad",
    "qquad",
];

/// Words that announce a choice right after them.
const ANNOUNCING: [&str; 15] = [
    "answer is",
    "answer:",
    "answer**:",
    "choice is",
    "option is",
    "答案是",
    "答案为",
    "答案应为",
    "答案应是",
    "答案应该是",
    "答案应该为",
    "答案:",
    "答案**:",
    "选",
    "选择",
];
/// Words that cancel an announcement if they stand right before it. They mean: not, must not,
/// wrongly, a candidate, if.
const RETRACTING: [&str; 23] = [
    "不",
    "别",
    "勿",
    "没",
    "未",
    "误",
    "错",
    "候",
    "若",
    "不能",
    "不该",
    "不应",
    "不应该",
    "不要",
    "不可",
    "不会",
    "没有",
    "排除",
    "避免",
    "如果",
    "假设",
    "假如",
    "要是",
];

/// Returns true if the answer chooses the label's letter.
pub(super) fn is_right(text: &str, label: &Value) -> bool {
    answer(text).is_some_and(|found| Some(found) == labelled(label))
}

/// Returns true if both texts choose the same letter.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    answer(a).is_some_and(|found| Some(found) == answer(b))
}

pub(super) fn is_label(label: &Value) -> bool {
    labelled(label).is_some()
}

fn labelled(label: &Value) -> Option<char> {
    letter(&label::text(label)?)
}

/// Returns the letter that a text consists of, in any of the usual forms: `B`, `(b)`, `B.`,
/// `**B**`, `B) a tree`, `\textbf{(B) } 12`, `（B）`.
fn letter(text: &str) -> Option<char> {
    beginning(&narrowed(text), false)
}

/// Replaces wide and Chinese signs with ASCII signs.
fn narrowed(text: &str) -> String {
    text.chars().map(narrow).collect()
}

/// Returns the letter at the beginning of a text. With `said`, the text follows an announcement,
/// and words may follow a capital letter: `B because ..`, `B因为 ..`.
fn beginning(text: &str, said: bool) -> Option<char> {
    let inner = unset(text);
    let inside = unset(inner.trim_start_matches(['(', '[']));
    let mut chars = inside.chars();
    let first = chars.next()?;
    let letter = first.to_ascii_uppercase();
    // Inside a sentence, a small letter and `I` are words.
    let small = first.is_ascii_lowercase() || letter == 'I';
    let (rest, closed) = without_closing(chars.as_str());
    if !said && is_one_of_several(rest) {
        return None;
    }
    let behind = rest.trim_start();
    let ends = match rest.chars().next() {
        None | Some(')' | ']') => true,
        // `e.g.`, `B.12`
        Some('.' | ',' | ':' | ';' | '!' | '?') => !small || !rest[1..].starts_with(char::is_alphanumeric),
        Some(next) if is_han(next) => said && !small,
        Some(next) if closed => !next.is_alphanumeric(),
        Some(next) if next.is_whitespace() => {
            let line = said && rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n');
            let bracketed = inner.len() > inside.len() && behind.starts_with([')', ']']);
            behind.is_empty() || line || bracketed || (said && !small)
        }
        _ => false,
    };
    (LETTERS.contains(&letter) && ends).then_some(letter)
}

/// Returns true if only single letters follow: `A, C` is a set of choices, not one choice.
fn is_one_of_several(rest: &str) -> bool {
    let mut others = rest
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .peekable();
    let is_choice = |word: &str| word.len() == 1 && word.starts_with(|c| LETTERS.contains(&c));
    rest.starts_with(',') && others.peek().is_some() && others.all(is_choice)
}

/// Removes the type setting before a letter: white space, dollar signs, stars, braces, quotes,
/// commands.
fn unset(mut text: &str) -> &str {
    let mark = |c: char| c.is_whitespace() || ['$', '*', '{', '}', '~', '"', '“', '”', '`'].contains(&c);
    loop {
        let rest = text.trim_start_matches(mark).trim_start_matches("__");
        let rest = without_command(rest).unwrap_or(rest);
        if rest.len() == text.len() {
            return rest;
        }
        text = rest;
    }
}

/// Removes one type-setting command, formula sign or space command at the beginning of a text.
fn without_command(text: &str) -> Option<&str> {
    let command = text.strip_prefix('\\')?;
    let length = command.bytes().take_while(u8::is_ascii_alphabetic).count();
    if length == 0 {
        return command.strip_prefix(['(', '[', ',', ';', ':', '!', ' ']);
    }
    let (name, rest) = command.split_at(length);
    SETTING.contains(&name).then_some(rest)
}

/// Removes the end of a letter's type setting. Also returns true if braces or stars closed it,
/// which shows that the letter stands alone.
fn without_closing(mut text: &str) -> (&str, bool) {
    let mut closed = false;
    loop {
        // A space may stand before the brace: `\textbf{B } 12`.
        let spaced = Some(text.trim_start()).filter(|text| text.starts_with('}'));
        let closing = spaced
            .unwrap_or(text)
            .strip_prefix(['}', '*'])
            .or_else(|| text.strip_prefix("__"));
        let quiet = ["\\right", "\\)", "\\]", "$", "\"", "”", "`"]
            .iter()
            .find_map(|sign| text.strip_prefix(sign));
        match closing.or(quiet) {
            Some(rest) => text = rest,
            None => return (text, closed),
        }
        closed |= closing.is_some();
    }
}

/// Returns the chosen letter. It is searched in this order:
/// - the box,
/// - the text between `<answer>` and `</answer>`,
/// - the last "answer is" or "answer:" that has a letter after it,
/// - the last letter in brackets,
/// - the text itself.
fn answer(text: &str) -> Option<char> {
    chosen(&narrowed(text))
}

fn chosen(text: &str) -> Option<char> {
    if let Some(content) = boxed::last(text) {
        return letter(content).or_else(|| announced(content));
    }
    if let Some(content) = tags::last_block(text, "answer") {
        return letter(content).or_else(|| chosen(content));
    }
    announced(text).or_else(|| bracketed(text)).or_else(|| letter(text))
}

fn announced(text: &str) -> Option<char> {
    let lower = text.to_ascii_lowercase();
    let ends = |words: &&str| {
        let found = lower.match_indices(*words);
        let kept = found.filter(|(at, _)| !RETRACTING.iter().any(|word| lower[..*at].ends_with(word)));
        kept.map(|(at, words)| at + words.len()).collect::<Vec<usize>>()
    };
    let mut ends: Vec<usize> = ANNOUNCING.iter().flat_map(ends).collect();
    ends.sort_unstable();
    ends.into_iter().rev().find_map(|end| said(&text[end..]))
}

/// Returns the letter after an announcement: `: **B**`, ` option (b).`
fn said(behind: &str) -> Option<char> {
    let rest = unset(behind.trim_start_matches([':', ' ', '*', '\n']));
    let named = ["option", "choice", "letter", "选项"].iter().find_map(|word| {
        let (begun, rest) = rest.split_at_checked(word.len())?;
        let apart = !word.is_ascii() || rest.starts_with(char::is_whitespace);
        (begun.eq_ignore_ascii_case(word) && apart).then_some(rest)
    });
    beginning(named.unwrap_or(rest), true)
}

fn bracketed(text: &str) -> Option<char> {
    let chars: Vec<char> = text.chars().collect();
    let within = |w: &&[char]| w[0] == '(' && w[2] == ')' && LETTERS.contains(&w[1].to_ascii_uppercase());
    chars.windows(3).rfind(within).map(|w| w[1].to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_letter_is_found() {
        for (text, chosen) in [
            ("B", Some('B')),
            ("b", Some('B')),
            ("(C)", Some('C')),
            ("D.", Some('D')),
            ("D. a tree", Some('D')),
            ("\\boxed{A}", Some('A')),
            ("\\boxed{\\text{(E)}}", Some('E')),
            ("(A) is wrong, so the answer is B.", Some('B')),
            ("Answer: **C**", Some('C')),
            ("the answer is (d)", Some('D')),
            ("<answer>B</answer>", Some('B')),
            ("<answer> the answer is B </answer>", Some('B')),
            ("either (A) or (B)", Some('B')),
            ("A tree", None),
            ("Because", None),
            ("", None),
            ("\\boxed{42} (A)", None),
            ("answer: é", None),
            ("The correct option is (H).", Some('H')),
            ("My choice is option F", Some('F')),
            ("**Answer: B**", Some('B')),
            ("Answer: [C]", Some('C')),
            ("the answer is A, not B", Some('A')),
            ("the answer is A. No, the answer is B.", Some('B')),
            ("\\boxed{A} or \\boxed{C}", Some('C')),
            ("\\boxed{\\text{D}}", Some('D')),
            ("\\boxed{B) a tree}", Some('B')),
            ("<think>(A)</think><answer>(C)</answer>", Some('C')),
            ("<answer>none of them</answer> (B)", None),
            ("K", None),
            ("(K)", None),
            ("A's", None),
            ("AB", None),
            ("（A）", Some('A')),
            ("Ｂ", Some('B')),
            ("答案：B", Some('B')),
            ("**答案**：B。", Some('B')),
            ("正确答案是 (c)。", Some('C')),
            ("答案为【D】", Some('D')),
            ("Answer：B", Some('B')),
            ("选B", Some('B')),
            ("所以我选择B、因为它最大", Some('B')),
            ("故选B因为它最大", Some('B')),
            ("选B。不选A，也不能选择C。如果选D就错了", Some('B')),
            ("选项A是错的，所以答案是选项B。", Some('B')),
            ("\\boxed{选（B）}", Some('B')),
            ("答案是A，不要选B", Some('A')),
            ("候选A的理由不成立，答案应为B", Some('B')),
            ("选项（B）不对，答案应该是A", Some('A')),
            ("假设选A，矛盾，没有选B的理由。故选C", Some('C')),
            ("A、C", None),
            ("A, C", None),
            ("\\boxed{A,C}", None),
            ("B, I think", Some('B')),
            ("答案是苹果", None),
            ("选Bob", None),
            ("A股", None),
            ("The answer is a bit subtle, but it is (C)", Some('C')),
            ("The answer is a bit subtle.", None),
            ("The answer is a", Some('A')),
            ("The answer is a.", Some('A')),
            ("The answer is a\nbecause of the tree", Some('A')),
            ("The answer is b, because of the tree", Some('B')),
            ("The answer is e.g. five, so (B)", Some('B')),
            ("The answer is A because of the tree", Some('A')),
            ("Answer: I think it is (C)", Some('C')),
            ("Answer: I", Some('I')),
            ("Answer: **b** because", Some('B')),
            ("**Answer**: B", Some('B')),
            ("__B__", Some('B')),
            ("The answer is \"B\".", Some('B')),
            ("The answer is $B$ because", Some('B')),
            ("The answer is \\(B\\).", Some('B')),
            ("Answer: Option **B**", Some('B')),
            ("Answer: optionally B", None),
            (
                "Answer: B\nLet me double check that the answer is consistent.",
                Some('B'),
            ),
            (
                "The answer is B. I am sure that this answer is right, since the choice is clear.",
                Some('B'),
            ),
            ("Answer: B/C", None),
            ("\\boxed{\\textbf{(B)}}", Some('B')),
            ("\\boxed{\\textbf{B}}", Some('B')),
            ("\\boxed{\\mathrm{B}}", Some('B')),
            ("\\boxed{\\mathbf{(b)}}", Some('B')),
            ("\\boxed{\\textbf{(B) } 12}", Some('B')),
            ("\\boxed{\\textbf{(B)}\\ 12}", Some('B')),
            ("$\\boxed{\\textbf{(B)}~\\frac{1}{2}}$", Some('B')),
            ("\\boxed{\\mathrm{(B) \\ }12}", Some('B')),
            ("\\boxed{\\textbf{B } 12}", Some('B')),
            ("\\boxed{\\textbf{B} 12}", Some('B')),
            ("\\boxed{\\text{B: }12}", Some('B')),
            ("\\boxed{\\rm (B)}", Some('B')),
            ("\\boxed{(\\text{B})}", Some('B')),
            ("\\boxed{\\left(B\\right)}", Some('B')),
            ("\\boxed{( B )}", Some('B')),
            ("\\boxed{\\text{Answer: (B)}}", Some('B')),
            ("\\boxed{**B**}", Some('B')),
            ("\\boxed{\\text{A tree}}", None),
            ("\\boxed{(A tree)}", None),
            ("\\boxed{B_{1}}", None),
            ("\\boxed{B^2}", None),
            ("\\boxed{\\textbf{B}12}", None),
            ("\\boxed{\\mathcal{B}}", None),
        ] {
            assert_eq!(answer(text), chosen, "{text}");
        }
    }

    #[test]
    fn long_texts_without_a_letter_cost_one_pass() {
        for piece in [
            "answer: a x ",
            "answer: ",
            "answer is \\text{",
            "(",
            "\\textbf",
            "**",
            "answer: a} ",
            "选",
            "不选A",
            "答案是",
            "（",
        ] {
            let text = piece.repeat(60_000 / piece.len());
            assert!(answer(&text).is_none() || piece.contains('}'), "{piece}");
        }
    }
}
