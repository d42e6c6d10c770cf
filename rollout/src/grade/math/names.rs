//! Separates the name of a value from a formula: `f(x)`, `S_{10}`, `\angle ABC`, `P(X=2)`.

use super::accents;
use super::pieces::is_command;
use crate::grade::normal::token::Token;

/// Letters of functions: what stands in brackets behind one is its argument.
const FUNCTIONS: [char; 9] = ['f', 'g', 'h', 'F', 'G', 'H', 'P', 'E', 'T'];
/// Named functions that may give the value of a side.
const NAMED: [&str; 11] = [
    "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "lg", "det", "gcd",
];
/// Commands that are not understood and may have a value.
const OPAQUE: [&str; 18] = [
    "lim", "sum", "int", "prod", "iint", "overline", "max", "min", "mathbb", "ldots", "bmod", "mod", "oplus", "ominus",
    "otimes", "odot", "star", "diamond",
];
const LONGEST: usize = 14;

/// Returns true for the name of a value: letters, with brackets and commas, without numbers and
/// signs.
pub(super) fn is_name(tokens: &[Token]) -> bool {
    let letter = tokens.first().is_some_and(|token| !token.is_number());
    if !letter || tokens.len() > LONGEST {
        return false;
    }
    is_application(tokens)
        || is_marked_letter(tokens)
        || is_derivative(tokens)
        || is_points(tokens)
        || is_value_of_function(tokens)
        || is_plain_name(tokens)
}

/// Returns true for a sum, a limit or another formula that is not read, as the left side of its
/// value.
pub(super) fn is_opaque_name(tokens: &[Token]) -> bool {
    let opaque = |token: &Token| matches!(token, Token::Command(name) if OPAQUE.contains(&name.as_str()));
    let words = matches!(tokens, [Token::Text(_)]);
    let term = |token: &Token| matches!(token, Token::Letter(_) | Token::Symbol(':'));
    let ratio = tokens.contains(&Token::Symbol(':')) && tokens.iter().all(term);
    let of_words = tokens.iter().any(|token| matches!(token, Token::Text(_)))
        && tokens
            .iter()
            .all(|token| matches!(token, Token::Text(_) | Token::Symbol('{' | '}' | '/')) || is_command(token, "frac"));
    let count = tokens.first() == Some(&Token::Symbol('#'));
    // `3 \circ 4` is an operation, and `45^\circ x` has degrees.
    let operation = |three: &[Token]| {
        let degrees = matches!(three[0], Token::Symbol('^' | '{'));
        !degrees && is_command(&three[1], "circ") && matches!(three[2], Token::Number(..) | Token::Letter(_))
    };
    words
        || of_words
        || count
        || ratio
        || tokens.windows(3).any(operation)
        || tokens.iter().any(opaque)
        || is_bracketed_points(tokens)
}

/// Returns true for a determinant or a product of matrices.
pub(super) fn has_matrix(tokens: &[Token]) -> bool {
    tokens.iter().any(|token| is_command(token, "begin matrix"))
}

/// Returns true for `f(..)` and `P(..)`, whatever the argument is.
fn is_application(tokens: &[Token]) -> bool {
    let (c, rest) = match tokens {
        [Token::Letter(c), rest @ ..] | [Token::Symbol('{'), Token::Letter(c), Token::Symbol('}'), rest @ ..] => {
            (c, rest)
        }
        _ => return false,
    };
    let rest = without_mark(rest);
    let bracket = |open: char, close: char| {
        rest.first() == Some(&Token::Symbol(open)) && rest.last() == Some(&Token::Symbol(close))
    };
    FUNCTIONS.contains(c) && (bracket('(', ')') || bracket('[', ']'))
}

/// Returns true for letters with an accent: `\vec{v}`, `\hat p`, `\overrightarrow{AB}`.
fn is_marked_letter(tokens: &[Token]) -> bool {
    let [Token::Command(accent), on @ ..] = tokens else {
        return false;
    };
    let letter = |token: &Token| matches!(token, Token::Letter(_));
    let marked = match on {
        [one] => letter(one),
        [Token::Symbol('{'), inside @ .., Token::Symbol('}')] => !inside.is_empty() && inside.iter().all(letter),
        _ => false,
    };
    marked && accents::is_accent(accent)
}

/// Returns true for `\frac{dy}{dx}`.
fn is_derivative(tokens: &[Token]) -> bool {
    let group = |group: &[Token]| {
        matches!(
            group,
            [
                Token::Symbol('{'),
                Token::Letter('d'),
                Token::Letter(_),
                Token::Symbol('}')
            ]
        )
    };
    match tokens {
        [first, rest @ ..] if is_command(first, "frac") && rest.len() == 8 => group(&rest[..4]) && group(&rest[4..]),
        _ => false,
    }
}

/// Skips a prime or the mark of an inverse: `f'(x)`, `f^{-1}(x)`.
fn without_mark(tokens: &[Token]) -> &[Token] {
    match tokens {
        [Token::Symbol('\''), rest @ ..] => without_mark(rest),
        [
            Token::Symbol('^'),
            Token::Symbol('{'),
            Token::Symbol('-'),
            Token::Number(one, _),
            Token::Symbol('}'),
            rest @ ..,
        ] if one == "1" => rest,
        [Token::Symbol('^'), Token::Letter('T'), rest @ ..] => rest,
        rest => rest,
    }
}

/// Returns true for capitals: the length `AB`, also between bars.
fn is_points(tokens: &[Token]) -> bool {
    let tokens = match tokens {
        [Token::Symbol('|'), inside @ .., Token::Symbol('|')] => inside,
        all => all,
    };
    let capital = |token: &Token| matches!(token, Token::Letter(c) if c.is_ascii_uppercase());
    !tokens.is_empty() && tokens.len() <= 5 && tokens.iter().all(capital)
}

/// Returns true for the area `[ABC]`.
fn is_bracketed_points(tokens: &[Token]) -> bool {
    match tokens {
        [Token::Symbol('['), inside @ .., Token::Symbol(']')] => is_points(inside),
        _ => false,
    }
}

/// Returns true for `\sin\theta` and `\log_2 x`, without signs.
fn is_value_of_function(tokens: &[Token]) -> bool {
    let sign = |token: &Token| matches!(token, Token::Symbol('+' | '-' | '*' | '/' | '^'));
    let function = |token: &Token| matches!(token, Token::Command(name) if NAMED.contains(&name.as_str()));
    let letters = tokens.iter().skip(1).any(|token| !token.is_number());
    matches!(tokens, [first, ..] if function(first))
        && letters
        && !tokens.iter().any(sign)
        && !tokens[1..].iter().any(function)
}

fn is_plain_name(tokens: &[Token]) -> bool {
    let marked = match tokens {
        [first @ Token::Letter(_), rest @ ..] => {
            let rest = without_mark(rest);
            std::iter::once(first).chain(rest).cloned().collect()
        }
        all => all.to_vec(),
    };
    let tokens = marked.as_slice();
    let part = |token: &Token| match token {
        Token::Letter(_) | Token::Text(_) => true,
        Token::Command(name) => name.chars().all(|c| c.is_ascii_alphabetic()) && name != "frac" && name != "sqrt",
        Token::Symbol(c) => ['(', ')', ',', '_', '{', '}', '\''].contains(c),
        // The number of a subscript.
        Token::Number(digits, _) => digits.len() <= 3,
        Token::Set(_) => false,
    };
    let bracketed = tokens
        .iter()
        .any(|t| *t == Token::Symbol('(') || is_command(t, "angle"));
    tokens.len() <= 9 && tokens.iter().all(part) && (letters(tokens) <= 1 || bracketed)
}

/// Counts letters and commands outside subscripts.
fn letters(tokens: &[Token]) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < tokens.len() {
        at += match &tokens[at..] {
            [Token::Symbol('_'), Token::Symbol('{'), rest @ ..] => {
                2 + rest.iter().position(|t| *t == Token::Symbol('}')).unwrap_or(rest.len())
            }
            [Token::Symbol('_'), _, ..] => 2,
            [Token::Letter(_) | Token::Command(_), ..] => {
                count += 1;
                1
            }
            _ => 1,
        };
    }
    count
}
/// Returns the name of points in capitals, with the sign of an angle or a triangle before it. An
/// angle is the same from both ends.
pub(super) fn name_of_points(tokens: &[Token]) -> Option<String> {
    let (sign, points) = match tokens {
        [Token::Command(sign), points @ ..] if ["angle", "triangle"].contains(&sign.as_str()) => {
            (sign.as_str(), points)
        }
        points => ("", points),
    };
    let points = match points {
        [Token::Symbol('{'), inside @ .., Token::Symbol('}')] => inside,
        all => all,
    };
    let letters = |token: &Token| match token {
        Token::Letter(c) if c.is_ascii_uppercase() => Some(c.to_string()),
        Token::Text(name) if name.bytes().all(|byte| byte.is_ascii_uppercase()) => Some(name.clone()),
        _ => None,
    };
    let name = points.iter().map(letters).collect::<Option<Vec<_>>>()?.concat();
    let back: String = name.chars().rev().collect();
    let name = if sign == "angle" && back < name { back } else { name };
    let several = name.len() > 1;
    let words = if sign.is_empty() {
        name
    } else {
        format!("{sign} {name}")
    };
    several.then(|| words.to_lowercase())
}
