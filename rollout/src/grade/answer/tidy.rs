//! Removes what is no part of an answer: struck-out words, emoji, and tokens that end a text.

use std::borrow::Cow;

/// Tokens and tags with which a text or a line ends.
const TOKENS: [&str; 8] = [
    "</s>",
    "<br>",
    "<br/>",
    "<br />",
    "</p>",
    "<eos>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
];
/// Longest text that is struck out, in bytes.
const STRUCK: usize = 64;

/// Returns a text without the tokens at its end.
pub(in crate::grade) fn without_tokens(mut text: &str) -> &str {
    loop {
        let rest = text.trim_end();
        let known = TOKENS.iter().find_map(|token| rest.strip_suffix(token));
        let Some(before) = known.or_else(|| without_special(rest)) else {
            return text;
        };
        text = before;
    }
}

/// Removes `<|im_end|>` and its like from the end of a text.
fn without_special(text: &str) -> Option<&str> {
    let inside = text.strip_suffix("|>")?;
    let (before, name) = inside.rsplit_once("<|")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!name.is_empty() && name.bytes().all(plain)).then_some(before)
}

/// Returns a text without the parts that are struck out: the `18` of `~~17~~ 18`. In LaTeX `~~` is
/// white space: then a command or a brace stands next to it.
pub(in crate::grade) fn unstruck(text: &str) -> Cow<'_, str> {
    let (mut kept, mut done, mut at) = (String::new(), 0, 0);
    while let Some(found) = text[at..].find("~~") {
        let start = at + found;
        at = start + 2;
        if let Some(length) = struck(&text[..start], &text[at..]) {
            kept.push_str(&text[done..start]);
            at += length + 2;
            done = at;
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    kept.push_str(&text[done..]);
    Cow::Owned(kept)
}

/// Returns the length of the part that is struck out between these texts.
fn struck(before: &str, behind: &str) -> Option<usize> {
    let near = &behind[..behind.floor_char_boundary(STRUCK)];
    let inside = &near[..near.find("~~")?];
    let free = before.is_empty() || before.ends_with(|c: char| c.is_whitespace() || "*_(:$".contains(c));
    let ends = !behind[inside.len() + 2..].starts_with(|c: char| c.is_alphanumeric() || c == '~');
    let plain = !inside.replace("\\$", "").contains(['\\', '{', '}', '\n']);
    let tight = !inside.is_empty() && inside.trim().len() == inside.len();
    (free && ends && plain && tight).then_some(inside.len())
}

/// Tags that only set words apart.
const SETTING: [&str; 10] = ["b", "i", "u", "p", "em", "strong", "code", "span", "div", "mark"];

/// Returns a text without tags of HTML: the `18` of `<b>18</b>`. A tag that is never closed may be
/// an inequality.
pub(in crate::grade) fn without_html(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.contains("</") {
        return text;
    }
    SETTING.iter().fold(text, |text, name| {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        if text.contains(&open) && text.contains(&close) {
            Cow::Owned(text.replace(&open, "").replace(&close, ""))
        } else {
            text
        }
    })
}

/// Removes marks before a value. The sign `>` is one in an arrow and at the beginning of a line;
/// else the value is an inequality.
pub(super) fn without_marks_before(text: &str) -> &str {
    let mark = |c: char| c.is_whitespace() || [':', '*', '_', '=', '}'].contains(&c) || is_emoji(c);
    let mut rest = text.trim_start_matches("...").trim_start_matches(mark);
    while let Some(behind) = rest.strip_prefix('>') {
        let before = &text[..text.len() - rest.len()];
        if !(before.ends_with(['=', '-']) || before.trim_end_matches([' ', '>']).ends_with('\n')) {
            break;
        }
        rest = behind.trim_start_matches(mark);
    }
    rest
}

/// Returns the words of a formula that is a sentence, without its typesetting: `She makes $18` for
/// `\text{She makes \$18}`. Returns `None` if other commands stand in it.
pub(super) fn untypeset(formula: &str) -> Option<String> {
    let plain = formula
        .replace("\\text{", "")
        .replace("\\mbox{", "")
        .replace("\\$", "$");
    let plain = plain.replace(['}', '~'], " ").replace("\\ ", " ");
    let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    (!plain.contains(['\\', '{', '=', '^'])).then_some(plain)
}

/// Removes the sign of a list with one item from a line: the `18` of `- 18`.
pub(super) fn without_bullet(text: &str) -> &str {
    let item = ["- ", "– ", "— ", "• "]
        .iter()
        .find_map(|sign| Some((*sign, text.strip_prefix(*sign)?)));
    let single = item.filter(|(sign, item)| {
        let mut below = item.lines().skip(1).map(str::trim_start);
        !below.any(|line| line.starts_with(sign))
    });
    single.map_or(text, |(_, item)| item.trim_start_matches([' ', '*', '_']))
}

/// Signs that mark the answer before them as wrong.
const CROSSES: [char; 6] = ['❌', '❎', '✗', '✘', '✕', '✖'];

/// Returns true if a text begins with a sign that marks the answer before it as wrong.
pub(super) fn is_crossed_out(behind: &str) -> bool {
    behind
        .trim_start_matches([' ', '*', '.', '$', '_'])
        .starts_with(CROSSES)
}

/// Returns true for emoji, ticks and other signs of joy, and the end of a proof.
pub(super) fn is_emoji(c: char) -> bool {
    !CROSSES.contains(&c)
        && matches!(c, '\u{2600}'..='\u{27bf}' | '\u{1f300}'..='\u{1faff}' | '\u{fe0f}' | '\u{200d}' | '\u{2b50}' | '∎' | '■')
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{unstruck, untypeset, without_html, without_tokens};

    #[test]
    fn typesetting_is_removed_from_words() {
        for (text, plain) in [
            ("<b>18</b>", "18"),
            ("<p>It is <strong>$18</strong>.</p>", "It is $18."),
            ("a<b>c", "a<b>c"),
            ("<answer>18</answer>", "<answer>18</answer>"),
        ] {
            assert_eq!(without_html(Cow::Borrowed(text)), plain, "{text}");
        }
        assert_eq!(
            untypeset("\\text{She has } 18 \\text{ eggs}").as_deref(),
            Some("She has 18 eggs")
        );
        assert_eq!(untypeset("\\frac{1}{2}"), None);
    }

    #[test]
    fn tokens_at_the_end_are_removed() {
        for (text, plain) in [
            ("18<|im_end|>\n", "18"),
            ("18</s><|endoftext|>", "18"),
            ("18<br>", "18"),
            ("18 ", "18 "),
            ("a <| b |>", "a <| b |>"),
            ("|>", "|>"),
        ] {
            assert_eq!(without_tokens(text), plain, "{text}");
        }
    }

    #[test]
    fn struck_out_words_are_removed() {
        for (text, plain) in [
            ("~~17~~ 18", " 18"),
            ("it is 18 ~~17~~.", "it is 18 ."),
            (
                "\\textbf{(A)}~~5 \\qquad \\textbf{(B)}~~6",
                "\\textbf{(A)}~~5 \\qquad \\textbf{(B)}~~6",
            ),
            ("5 ~~ 6 ~~ 7", "5 ~~ 6 ~~ 7"),
            ("~~", "~~"),
            ("~~~~", "~~~~"),
        ] {
            assert_eq!(unstruck(text), plain, "{text}");
        }
    }
}
