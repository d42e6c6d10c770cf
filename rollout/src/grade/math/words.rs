//! Reads words in a formula: numbers, letters of choices, verbs and conjunctions.

use super::expr::Expr;
use super::number::Number;
use super::op::op;
use super::pieces::top_level;
use crate::grade::normal::number_words::spelled_out;
use crate::grade::normal::token::Token;
use crate::grade::normal::words::plain_words;

/// Returns the number that words spell, also with its sign: `negative two`.
pub(super) fn in_words(text: &str) -> Option<Expr> {
    let number = |text: &str| {
        spelled_out(text)
            .and_then(Number::whole)
            .map(|number| Expr::Number(number, 0))
    };
    number(text).or_else(|| {
        let plain = plain_words(text);
        let rest = ["negative ", "minus "]
            .iter()
            .find_map(|sign| plain.strip_prefix(sign))?;
        number(rest).map(|number| Expr::Negative(Box::new(number)))
    })
}

/// Returns the letters of choices: `(A), (C)`, `A and C`.
pub(super) fn letters(words: &str) -> Option<Vec<String>> {
    let pieces = words
        .split([',', ';', ' '])
        .map(|piece| piece.trim_matches(['(', ')', '.']));
    let pieces: Vec<&str> = pieces.filter(|piece| !piece.is_empty() && *piece != "and").collect();
    let single = |piece: &&str| piece.len() == 1 && piece.bytes().all(|byte| byte.is_ascii_uppercase());
    let several = pieces.len() > 1 && (words.contains([',', ';']) || words.contains(" and "));
    (several && pieces.iter().all(single)).then(|| pieces.iter().map(|piece| piece.to_lowercase()).collect())
}

/// Returns the relations that `\lor` and `\land` join with the words for these signs. Between
/// statements of logic the signs stay.
pub(super) fn with_joined_relations(tokens: &[Token]) -> Option<Vec<Token>> {
    let word = |token: &Token| match token {
        Token::Command(name) if name == "lor" => Some("or"),
        Token::Command(name) if name == "land" => Some("and"),
        _ => None,
    };
    let relates = tokens.iter().any(|token| op(token).is_some());
    (relates && tokens.iter().any(|token| word(token).is_some())).then(|| {
        let put = |token: &Token| word(token).map_or_else(|| token.clone(), |word| Token::Text(word.into()));
        tokens.iter().map(put).collect()
    })
}

/// Returns `N = 11` for `N\text{ is }11`.
pub(super) fn with_equals_signs(tokens: &[Token]) -> Option<Vec<Token>> {
    const EQUALS: [&str; 4] = ["is", "equals", "is equal to", "are"];
    let is_sign = |token: &Token| matches!(token, Token::Text(words) if EQUALS.contains(&words.trim()));
    let at = top_level(tokens, is_sign)?;
    let number = |token: &Token| token.is_number() || *token == Token::Symbol('-');
    let stands = at > 0 && !tokens[at - 1].is_number() && tokens.get(at + 1).is_some_and(number);
    stands.then(|| {
        let mut changed = tokens.to_vec();
        changed[at] = Token::Symbol('=');
        changed
    })
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn words_in_a_formula_have_their_meaning() {
        for (answer, label, same) in [
            ("negative two", "-2", true),
            ("minus one", "-1", true),
            ("\\text{negative }8", "-8", true),
            ("\\text{negative two}", "2", false),
            ("\\text{twelve hundred}", "1200", true),
            ("17 \\text{ (mod } 20)", "17", true),
            ("17 \\pmod{20}", "17 \\pmod{30}", false),
            ("17", "17 \\pmod{20}", false),
            ("1204 \\equiv 204 \\pmod{1000}", "204", true),
            ("x \\equiv 3 \\pmod 5", "3", false),
            ("\\text{(A), (C)}", "A, C", true),
            ("\\text{A and C}", "\\text{C, A}", true),
            ("\\text{A and C}", "A, B", false),
            ("x \\le -3 \\lor x \\ge 2", "(-\\infty,-3]\\cup[2,\\infty)", true),
            ("x > 1 \\land x < 4", "(1,4)", true),
            ("x > 1 \\land x < 4", "(-\\infty,4)\\cup(1,\\infty)", false),
            ("p \\lor q", "p \\land q", false),
            ("N\\text{ is }11", "11", true),
            ("\\text{minimum value is }11", "11", true),
            ("\\text{at most }11", "11", false),
        ] {
            assert_eq!(equal(answer, label), same, "{answer} and {label}");
        }
    }
}
