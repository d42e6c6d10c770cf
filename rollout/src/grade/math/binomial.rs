//! Reads binomial coefficients in notations other than `\binom{n}{k}`: `{}^{10}C_4`, `C_{10}^4`,
//! `nCr(10, 4)`.

use super::pieces::is_command;
use crate::grade::normal::token::Token;

/// Rewrites each such coefficient as `n \choose k`, and each number of arrangements, `{}^{10}P_4`,
/// as a quotient of factorials. Returns `None` if the tokens have neither.
pub(super) fn with_binomials(tokens: &[Token]) -> Option<Vec<Token>> {
    let (mut out, mut at, mut found) = (Vec::with_capacity(tokens.len()), 0, false);
    while at < tokens.len() {
        let free = out.last().is_none_or(is_operator);
        let rest = &tokens[at..];
        let signed = || {
            around_letter(rest)
                .or_else(|| after_letter(rest))
                .or_else(|| as_function(rest))
        };
        let read = in_words(rest).or_else(|| if free { signed() } else { None });
        match read {
            Some((selection, used)) => {
                out.extend(selection.tokens());
                at += used;
                found = true;
            }
            None => {
                out.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    found.then_some(out)
}

/// A selection of `k` of `n` things, ordered or not.
struct Selection {
    n: Token,
    k: Token,
    ordered: bool,
}

impl Selection {
    fn tokens(self) -> Vec<Token> {
        let sign = Token::Symbol;
        let (n, k) = (self.n, self.k);
        if self.ordered {
            let bottom = [sign('('), n.clone(), sign('-'), k, sign(')'), sign('!')];
            return [
                vec![sign('{'), n, sign('!'), sign('/')],
                bottom.to_vec(),
                vec![sign('}')],
            ]
            .concat();
        }
        vec![sign('{'), n, Token::Command("choose".to_owned()), k, sign('}')]
    }

    /// Makes the selection that a letter names.
    fn of(letter: char, n: &Token, k: &Token) -> Option<Self> {
        let ordered = match letter {
            'C' => false,
            'P' => true,
            _ => return None,
        };
        let (n, k) = (n.clone(), k.clone());
        Some(Self { n, k, ordered })
    }
}

/// Returns true if a factor may begin behind this token.
fn is_operator(token: &Token) -> bool {
    matches!(
        token,
        Token::Symbol('+' | '-' | '*' | '/' | '=' | '(' | '{' | '|' | ',')
    ) || is_command(token, "frac")
}

/// Returns a whole number, alone or in braces, and the number of its tokens.
fn number(tokens: &[Token]) -> Option<(&Token, usize)> {
    let whole = |token: &Token| matches!(token, Token::Number(digits, _) if !digits.contains('.'));
    match tokens {
        [Token::Symbol('{'), one, Token::Symbol('}'), ..] if whole(one) => Some((one, 3)),
        [one, ..] if whole(one) => Some((one, 1)),
        _ => None,
    }
}

/// Reads `{}^{10}C_4` and `{}_{10}C_4`.
fn around_letter(tokens: &[Token]) -> Option<(Selection, usize)> {
    let [Token::Symbol('^' | '_'), rest @ ..] = tokens else {
        return None;
    };
    let (n, length) = number(rest)?;
    let [Token::Letter(letter), Token::Symbol('_'), behind @ ..] = &rest[length..] else {
        return None;
    };
    let (k, last) = number(behind)?;
    Some((Selection::of(*letter, n, k)?, 3 + length + last))
}

/// Reads `C_{10}^4` and `C^4_{10}`: the larger number stands below.
fn after_letter(tokens: &[Token]) -> Option<(Selection, usize)> {
    let [Token::Letter(letter), Token::Symbol(first @ ('^' | '_')), rest @ ..] = tokens else {
        return None;
    };
    let (one, length) = number(rest)?;
    let [Token::Symbol(second @ ('^' | '_')), rest @ ..] = &rest[length..] else {
        return None;
    };
    let (other, last) = number(rest)?;
    let (n, k) = if *first == '_' { (one, other) } else { (other, one) };
    let size = |token: &Token| match token {
        Token::Number(digits, _) => digits.parse::<u64>().ok(),
        _ => None,
    };
    (first != second && size(n)? > size(k)?).then_some(())?;
    Some((Selection::of(*letter, n, k)?, 3 + length + last))
}

/// Reads `nCr(10, 4)` and `nPr(10, 4)`.
fn as_function(tokens: &[Token]) -> Option<(Selection, usize)> {
    let [
        Token::Letter('n'),
        Token::Letter(letter),
        Token::Letter('r' | 'k'),
        Token::Symbol('('),
        rest @ ..,
    ] = tokens
    else {
        return None;
    };
    let (n, length) = number(rest)?;
    let [Token::Symbol(',' | ';'), rest @ ..] = &rest[length..] else {
        return None;
    };
    let (k, last) = number(rest)?;
    (rest.get(last) == Some(&Token::Symbol(')'))).then_some(())?;
    Some((Selection::of(*letter, n, k)?, 6 + length + last))
}

/// Reads `10 \text{ choose } 4`.
fn in_words(tokens: &[Token]) -> Option<(Selection, usize)> {
    let (n, length) = number(tokens)?;
    let [Token::Text(words), rest @ ..] = &tokens[length..] else {
        return None;
    };
    let (k, last) = number(rest)?;
    let selection = Selection::of('C', n, k).filter(|_| words.trim() == "choose")?;
    Some((selection, 1 + length + last))
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn selections_have_many_notations() {
        for (answer, label, same) in [
            ("{}^{10}C_4", "210", true),
            ("^{10}C_{4}", "210", true),
            ("{}_{10}C_4", "210", true),
            ("_{10}P_2", "90", true),
            ("C_{10}^{4}", "210", true),
            ("C^4_{10}", "210", true),
            ("2 \\cdot {}^5C_2", "20", true),
            ("C_6^2 \\cdot C_4^2", "90", true),
            ("nCr(10, 4)", "210", true),
            ("10 \\text{ choose } 4", "210", true),
            ("{}^{10}C_4", "\\binom{10}{4}", true),
            ("{}^{10}C_4", "104", false),
            ("C_2^4", "1", false),
            ("x^{10}C_4", "210", false),
            ("_{10}P_2", "45", false),
        ] {
            assert_eq!(equal(answer, label), same, "{answer} and {label}");
        }
    }
}
