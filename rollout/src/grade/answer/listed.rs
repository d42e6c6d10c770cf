//! Reads the values that a sentence lists at its end: `$x = 2$ or $x = -5$`, `2 and 3`, `(2, -3)`.

use std::ops::Range;

use super::alternative::without_index;
use super::boxed::joins;
use super::text::tail;
use super::{delimited, last};
use crate::grade::normal::minus;

/// Most values of a list in a sentence.
const MOST: usize = 16;
/// Bytes before the last value in which its list is looked for.
const REACH: usize = 256;

/// Words before two numbers that are not the answers themselves.
const COMPARING: [&str; 8] = [
    "larger of",
    "smaller of",
    "greater of",
    "lesser of",
    "sum of",
    "product of",
    "difference of",
    "average of",
];

/// Words that make the formulas behind them a condition.
const CONDITIONS: [&str; 14] = [
    "since", "if", "when", "for", "with", "as", "because", "given", "from", "at", "after", "let", "suppose", "where",
];

/// Words before a name with several values: `So x = 2, 3`.
const LEADING: [&str; 12] = [
    "",
    "so",
    "thus",
    "hence",
    "therefore",
    "then",
    "is",
    "are",
    "get",
    "have",
    "gives",
    "solutions",
];

/// The list with which a text ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed<'a> {
    pub(crate) text: &'a str,
    /// True if the last value alone is not the answer. It is in `$3^2=9$ and $x=3$`.
    pub(crate) whole: bool,
}

/// Returns the list or the tuple with which a text ends, if its last value stands in one.
pub(crate) fn listed(text: &str) -> Option<Listed<'_>> {
    let value = last::value(text)?;
    let start = value.as_ptr().addr() - text.as_ptr().addr();
    of_formulas(text, start)
        .or_else(|| tuple(text, start, value))
        .or_else(|| with_colon(text, start, value))
        .or_else(|| plain(text, start, value))
}

/// Returns true if a text ends with several numbers of which each is the answer.
pub(crate) fn is_list(text: &str) -> bool {
    let start = |value: &str| value.as_ptr().addr() - text.as_ptr().addr();
    let found = last::value(text).and_then(|value| plain(text, start(value), value));
    found.is_some_and(|list| list.whole && !list.text.contains('.'))
}

/// Reads formulas between delimiters that words join. The formula at `start` is the last.
fn of_formulas(text: &str, start: usize) -> Option<Listed<'_>> {
    let all = delimited::all(text);
    let last = all.last().filter(|last| (last.start..last.end).contains(&start))?;
    // Formulas may stand in each other, and then no text is between them.
    let joining = |one: &Range<usize>, next: &Range<usize>| joins(text.get(one.end..next.start)?);
    let joined = |pair: &&[Range<usize>]| joining(&pair[0], &pair[1]).is_some();
    let count = 1 + all.windows(2).rev().take(MOST).take_while(joined).count();
    let list = &all[all.len() - count..];
    let [.., before, _] = list else { return None };
    let joining = joining(before, last)?;
    // A comma alone may separate clauses: `Since $x > 0$, $x = 3$`.
    if joining == "," || joining == ";" {
        return are_assignments(text, list).then(|| Listed {
            text: &text[list[0].start..last.end],
            whole: true,
        });
    }
    // `$x_1=2$ or $x_2=3$` names two values of one letter.
    let or = joining.ends_with("or");
    let letter = |name| if or { without_index(name) } else { name };
    let name = |formula: &Range<usize>| name(&text[formula.clone()]).map(letter);
    let first = name(&list[0]).or_else(|| list.iter().find_map(name).filter(|_| or));
    let same = list
        .iter()
        .all(|formula| name(formula).is_none_or(|name| Some(name) == first));
    Some(Listed {
        text: &text[list[0].start..last.end],
        whole: same && !(first.is_none() && list.iter().any(|formula| text[formula.clone()].contains(['<', '>']))),
    })
}

/// Returns true if each formula gives the value of another letter, and no word before them makes
/// them a condition: `So $x=3$, $y=4$`, but not `When $x=3$, $y=4$`.
fn are_assignments(text: &str, list: &[Range<usize>]) -> bool {
    let mut names: Vec<&str> = list.iter().filter_map(|formula| name(&text[formula.clone()])).collect();
    let letters = names.len() == list.len()
        && names
            .iter()
            .all(|name| name.len() == 1 && name.bytes().all(|byte| byte.is_ascii_alphabetic()));
    names.sort_unstable();
    let different = names.windows(2).all(|pair| pair[0] != pair[1]);
    let clause = tail(&text[..list[0].start], REACH);
    let clause = clause.rsplit(['.', '\n', ';']).next().unwrap_or(clause).to_lowercase();
    let mut words = clause
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty());
    letters && different && !words.any(|word| CONDITIONS.contains(&word) || word.ends_with("ing"))
}

/// Returns what stands before the sign of equality, if a formula has one.
fn name(formula: &str) -> Option<&str> {
    formula.split_once('=').map(|(name, _)| name.trim())
}

/// Reads a tuple or an interval in plain text.
fn tuple<'a>(text: &'a str, start: usize, value: &str) -> Option<Listed<'a>> {
    let end = start + value.len();
    let behind = text[end..].trim_start();
    let close = behind.chars().next().filter(|c| [')', ']', '⟩'].contains(c))?;
    let end = text.len() - behind.len() + close.len_utf8();
    let from = text.floor_char_boundary(start.saturating_sub(REACH));
    let open = from + text[from..start].rfind(['(', '[', '⟨'])?;
    let before = text[..open].chars().next_back();
    let inside = text[open..end - close.len_utf8()].trim_start_matches(['(', '[', '⟨']);
    let plain = |c: char| c.is_ascii_digit() || " .,;/√π∞^*+".contains(c) || minus::is_sign(c);
    let grouped = inside
        .split(',')
        .skip(1)
        .all(|group| group.len() == 3 && group.bytes().all(|b| b.is_ascii_digit()));
    let several = inside.contains([',', ';']) && !grouped && inside.chars().all(plain);
    let apart = before.is_none_or(|c| c.is_whitespace() || ['=', '*', ':'].contains(&c));
    (several && apart).then_some(Listed {
        text: &text[open..end],
        whole: true,
    })
}

/// Reads a time or a ratio in plain text: `3:45 PM`, `2:3`.
fn with_colon<'a>(text: &'a str, start: usize, value: &str) -> Option<Listed<'a>> {
    let before = text[..start].strip_suffix(':')?;
    let digits = before.bytes().rev().take_while(u8::is_ascii_digit).count();
    let from = before.len() - digits;
    let apart = from == 0 || before[..from].ends_with([' ', '*', '(']);
    let mut end = start + value.len();
    let behind = text[end..].trim_start();
    let halves = ["AM", "PM", "am", "pm", "a.m.", "p.m."];
    if let Some(half) = halves.iter().find(|half| behind.starts_with(**half)) {
        end = text.len() - behind.len() + half.len();
    }
    (digits > 0 && apart).then_some(Listed {
        text: &text[from..end],
        whole: true,
    })
}

/// Reads numbers in plain text that words join: `2 and 3`, `x = 2 or x = 3`.
fn plain<'a>(text: &'a str, start: usize, value: &str) -> Option<Listed<'a>> {
    let end = start + value.len();
    let (mut first, mut commas) = (None, true);
    let (mut names, mut rest) = (vec![name_at(&text[..start])], named(&text[..start]));
    for _ in 0..MOST {
        let joining = [", and", ", or", "and", "oder", "or", "und", "ou", "o", "et", "или", ","];
        let trimmed = rest.trim_end();
        let found = joining
            .iter()
            .find_map(|word| Some((*word, trimmed.strip_suffix(word)?)));
        let Some((word, before)) = found else { break };
        if first.is_none() {
            commas = word == ",";
        }
        if commas && word != "," {
            break;
        }
        if !(word.starts_with(',') || before.ends_with(' ')) {
            break;
        }
        let before = before.trim_end();
        let number = last::number(tail(before, REACH)).filter(|number| before.ends_with(number));
        // A comma may stand before the list: `Thus, 2 and 3`.
        let number = match (number, first) {
            (None, Some(_)) => break,
            (number, _) => number?,
        };
        let at = before.len() - number.len();
        if !before[..at].is_empty() && !before[..at].ends_with([' ', '=', '(']) {
            break;
        }
        names.push(name_at(&before[..at]));
        rest = named(&before[..at]);
        first = Some(rest.len());
        if commas && names.iter().any(Option::is_some) {
            break;
        }
    }
    let first = first?;
    // A comma alone may separate clauses, but not behind one name: `x = 2, 3`.
    let word = text[..first]
        .trim_end()
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .to_lowercase();
    let condition = !LEADING.contains(&word.trim_end_matches([',', ':']));
    let ends = text[end..].trim_matches(['.', '*', ' ', '\n']).is_empty();
    if commas && (names[0].is_some() || condition || !ends) {
        return None;
    }
    let compares = COMPARING.iter().any(|words| text[..first].trim_end().ends_with(words));
    (!compares).then(|| Listed {
        text: text[first..end].trim_start(),
        // Several names have a value each: `a = 2 and b = 9`.
        whole: names.windows(2).all(|pair| pair[0] == pair[1] || pair.contains(&None)),
    })
}

/// Returns the name before the sign of equality at the end of a text.
fn name_at(text: &str) -> Option<char> {
    let rest = text.trim_end().strip_suffix('=')?;
    rest.trim_end().chars().next_back().filter(char::is_ascii_alphabetic)
}

/// Removes the name of a value from the end of a text: `x =`.
fn named(text: &str) -> &str {
    let Some(rest) = text.trim_end().strip_suffix('=') else {
        return text.trim_end_matches(' ');
    };
    let rest = rest.trim_end();
    let name = rest.chars().next_back().filter(char::is_ascii_alphabetic);
    let before = name.map_or(rest, |_| &rest[..rest.len() - 1]);
    if before.ends_with(|c: char| !c.is_whitespace()) {
        text
    } else {
        before.trim_end_matches(' ')
    }
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn the_values_at_the_end_of_a_sentence_are_one_list() {
        for (text, list, whole) in [
            ("The roots are $-3$, $1$, and $4$.", "-3$, $1$, and $4", true),
            ("So $x = 2$ or $x = -5$.", "x = 2$ or $x = -5", true),
            (
                "The solutions are \\((1,2)\\) and \\((3,4)\\).",
                "(1,2)\\) and \\((3,4)",
                true,
            ),
            ("So $x=2$ and $y=-3$.", "x=2$ and $y=-3", false),
            ("We have $3^2=9$ and $x=3$.", "3^2=9$ and $x=3", false),
            ("So $x=3$, $y=4$.", "x=3$, $y=4", true),
            ("It is $x \\le -3$ or $x > 2$.", "x \\le -3$ or $x > 2", false),
            ("The roots are 2 and 3.", "2 and 3", true),
            ("The roots are 1, 2, and 3.", "1, 2, and 3", true),
            ("Therefore x = 2 or x = -3.", "x = 2 or x = -3", true),
            ("Thus, x = 2 or x = -3.", "x = 2 or x = -3", true),
            ("So, 2 and 3.", "2 and 3", true),
            ("Thus a = 2, b = 3, and c = 9.", "a = 2, b = 3, and c = 9", false),
            ("So x = 2, -3.", "x = 2, -3", true),
            ("Also x = 2 oder x = 3.", "x = 2 oder x = 3", true),
            ("It is at the point (2, -3).", "(2, -3)", true),
            ("The interval is [2, 3].", "[2, 3]", true),
            ("The time is 3:45 PM.", "3:45 PM", true),
            ("The ratio is 2:3.", "2:3", true),
        ] {
            let found = listed(text).unwrap();
            assert_eq!((found.text, found.whole), (list, whole), "{text}");
        }
        for text in [
            "Since $x > 0$, $x = 3$.",
            "When $x=3$, $y=4$.",
            "We have $x+1=4$, $x=3$.",
            "It is the larger of 2 and 3.",
            "For $n=1$ and $n=2$ the sum is $3$.",
            "He has 12 left, 3",
            "For n = 2, 3",
            "n = 2, 3 people",
            "n = 2, m = 3",
            "He earns $5 and $7",
            "It is (1,234).",
            "f(2, 3)",
            "There are 3 (2 of them red, 1 blue).",
            "For a and 3",
            "\\(2 $x=5$\\)",
            "5",
            "",
        ] {
            assert_eq!(listed(text), None, "{text}");
        }
    }
}
