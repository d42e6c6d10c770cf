//! Reads an answer: a value, a set, a tuple or interval, a union, a matrix, a relation, or words.

use super::base::based;
use super::binomial::with_binomials;
use super::brackets::{european, with_brackets};
use super::budget::LONGEST;
use super::clock::Clock;
use super::collection::{collection, without};
use super::computation::spelled_twice;
use super::condition;
use super::congruence::{Congruence, congruence, congruences};
use super::digits;
use super::expr::Expr;
use super::groups::{all_merged, merged};
use super::names::name_of_points;
use super::number::Number;
use super::op::op;
use super::pieces::{is_command, is_separator, signed, split, top_level, trimmed, with_ampersands};
use super::relation::{self, Relation};
use super::system;
use super::words::{in_words, letters, with_equals_signs, with_joined_relations};
use crate::grade::answer::last_row;
use crate::grade::normal::lexer::tokens as lexed;
use crate::grade::normal::setting::undelimited;
use crate::grade::normal::token::Token;
use crate::grade::normal::unit::stripped;
use crate::grade::normal::words::{is_words, meaning, plain_words};

/// Deepest nesting of sets and tuples.
const DEEPEST: usize = 6;

/// An answer as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// A formula, and true if a percent sign followed it.
    Value(Expr, bool),
    /// One value in several spellings: `1/3 \approx 0.33`.
    Same(Vec<Answer>),
    /// Three or more terms.
    Ratio(Vec<Expr>),
    Time(Clock),
    /// Elements without an order: `\{..\}`, a bare list, both signs of `\pm`.
    Set(Vec<Answer>),
    /// A tuple or an interval, with its brackets.
    Tuple(char, char, Vec<Answer>),
    Union(Vec<Answer>),
    Matrix(Vec<Vec<Answer>>),
    Relation(Vec<Relation>),
    Named(Named),
    /// Anything else, in lower case.
    Words(String),
}

/// A name and its value, as in `x = 5`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Named {
    pub(super) name: Vec<Token>,
    pub(super) value: Box<Answer>,
    /// The relation, if both sides are formulas.
    pub(super) relation: Option<Relation>,
    /// True if the value alone says the same. It does not for an equation of several variables that
    /// is a label: 25 is no circle.
    pub(super) stands: bool,
}

/// The side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Answer,
    Label,
}

/// How deep a piece stands, and on which side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub(super) depth: usize,
    pub(super) side: Side,
}

impl Context {
    pub(super) fn deeper(self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self
        }
    }
}

impl Answer {
    /// Reads a text as an answer. A text that is nothing else is [`Self::Words`].
    pub(super) fn parse(text: &str, side: Side) -> Self {
        if text.len() > LONGEST {
            let Some(digits) = digits::long(text) else {
                return Self::Words(plain_words(text));
            };
            return digits::value(&digits).map_or(Self::Words(digits), |value| Self::Value(value, false));
        }
        if let Some(plain) = system::unescaped(text) {
            return Self::parse(&plain, side);
        }
        let rows = system::listed(undelimited(text));
        let text = rows.as_deref().unwrap_or(text);
        // `500/-` is how rupees are written.
        let text = last_row(undelimited(text)).trim_end_matches("/-");
        let words = || Self::Words(plain_words(text));
        if let Some(time) = Clock::read(text) {
            return Self::Time(time);
        }
        if let Some(name) = based(text) {
            return Self::Value(Expr::Variable(name), false);
        }
        if let Some(number) = in_words(text) {
            return Self::Value(number, false);
        }
        if let Some(found) = congruence(text) {
            return of_congruence(found, side);
        }
        if let Some(several) = congruences(text) {
            return Self::Set(several.into_iter().map(|found| of_congruence(found, side)).collect());
        }
        let text = meaning(text).unwrap_or(text);
        if is_words(text) {
            return words();
        }
        let context = Context { depth: 0, side };
        lexed(text)
            .and_then(|tokens| read(&tokens, context))
            .unwrap_or_else(words)
    }
}

/// Returns a remainder with its modulus. An answer stands for its remainder too: the question may
/// have named the modulus.
fn of_congruence(found: Congruence, side: Side) -> Answer {
    let words = Answer::Words(format!("{} mod {}", found.remainder, found.modulus));
    match Number::whole(found.remainder).filter(|_| side == Side::Answer && !found.of_variable) {
        Some(number) => Answer::Same(vec![Answer::Value(Expr::Number(number, 0), false), words]),
        None => words,
    }
}

pub(super) fn read(tokens: &[Token], context: Context) -> Option<Answer> {
    if context.depth > DEEPEST {
        return None;
    }
    let tokens = trimmed(tokens);
    if let [Token::Text(words)] = tokens {
        if let Some(letters) = letters(words).filter(|_| context.depth == 0) {
            return Some(Answer::Set(letters.into_iter().map(Answer::Words).collect()));
        }
        return Some(Answer::Words(plain_words(words)));
    }
    let changed = european(tokens)
        .or_else(|| with_brackets(tokens))
        .or_else(|| in_proportion(tokens))
        .or_else(|| with_alternative(tokens))
        .or_else(|| with_joined_relations(tokens))
        .or_else(|| with_equals_signs(tokens))
        .or_else(|| with_binomials(tokens))
        .or_else(|| with_ampersands(tokens, |token| op(token).is_some()));
    let tokens = changed.as_deref().unwrap_or(tokens);
    if let Some(computed) = with_grouped_digits(tokens, context) {
        return Some(computed);
    }
    let merged = merged(tokens);
    let tokens = merged.as_deref().unwrap_or(tokens);
    if let Some(formula) = condition::before_words(tokens) {
        return read(formula, context.deeper());
    }
    let pieces = split(tokens, is_separator)?;
    if pieces.len() > 1 {
        if let Some(formula) = condition::of_list(&pieces).or_else(|| solved(&pieces)) {
            return read(formula, context.deeper());
        }
        let all = elements(&pieces, context)?;
        let twice = || spelled_twice(&all).filter(|_| top_level(tokens, |token| is_word(token, "or")).is_some());
        return Some(together(tokens, &all).or_else(twice).unwrap_or(Answer::Set(all)));
    }
    if let Some(last) = concluded(tokens) {
        return read(last, context.deeper());
    }
    if let Some(name) = name_of_points(tokens) {
        return Some(Answer::Words(name));
    }
    let cleaned = stripped(tokens);
    let has_units = cleaned.len() < tokens.len();
    let tokens = trimmed(&cleaned);
    if let Some(at) = top_level(tokens, |t| is_command(t, "in")).filter(|at| is_member(&tokens[..*at])) {
        return read(&tokens[at + 1..], context.deeper());
    }
    let pieces = split(tokens, |t| is_command(t, "cup"))?;
    if pieces.len() > 1 {
        return list(&pieces, context).map(Answer::Union);
    }
    if let Some(left) = without(tokens, context) {
        return Some(left);
    }
    if top_level(tokens, |t| op(t).is_some()).is_some() {
        return relation::read(tokens, has_units, context);
    }
    if has_both_signs(tokens) {
        return Some(Answer::Set(vec![
            read(&signed(tokens, '+'), context.deeper())?,
            read(&signed(tokens, '-'), context.deeper())?,
        ]));
    }
    collection(tokens, context)
        .or_else(|| value(tokens))
        .or_else(|| named_point(tokens, context))
}

/// Reads `P(3,-2)`. A point `C` of an answer may be a number of choices too.
fn named_point(tokens: &[Token], context: Context) -> Option<Answer> {
    let (name, coordinates) = condition::point(tokens)?;
    let value = read(coordinates, context.deeper()).filter(|value| matches!(value, Answer::Tuple(..)))?;
    let chosen = match &value {
        Answer::Tuple('(', ')', pair) if name == Token::Letter('C') && context.side == Side::Answer => {
            match pair.as_slice() {
                [
                    Answer::Value(n @ Expr::Number(..), false),
                    Answer::Value(k @ Expr::Number(..), false),
                ] => {
                    let chosen = Expr::Binomial(Box::new(n.clone()), Box::new(k.clone()));
                    chosen.number().map(|_| Answer::Value(chosen, false))
                }
                _ => None,
            }
        }
        _ => None,
    };
    let point = Answer::Named(Named {
        name: vec![name],
        value: Box::new(value),
        relation: None,
        stands: true,
    });
    Some(match chosen {
        Some(chosen) => Answer::Same(vec![point, chosen]),
        None => point,
    })
}

/// Returns the last equation of a list if it gives the value of the letter of all others, which are
/// steps: `3x = 54; x = 18`.
fn solved<'a>(pieces: &[&'a [Token]]) -> Option<&'a [Token]> {
    let (last, steps) = pieces.split_last()?;
    let [letter @ Token::Letter(_), Token::Symbol('='), value @ ..] = *last else {
        return None;
    };
    let other = |token: &Token| matches!(token, Token::Letter(_)) && token != letter;
    let step = |step: &&[Token]| {
        let named = matches!(step, [first, Token::Symbol('='), ..] if first == letter);
        step.contains(letter) && step.contains(&Token::Symbol('=')) && !named && !step.iter().any(other)
    };
    let solved = !value.is_empty() && !value.contains(letter) && !value.iter().any(other);
    (solved && steps.iter().all(step)).then_some(last)
}

/// Returns true for the name of a member of a set: `x` of `x \in A`, but not `\forall x`.
fn is_member(name: &[Token]) -> bool {
    let quantifier = |token: &Token| match token {
        Token::Command(name) => ["forall", "exists", "nexists", "neg", "not"].contains(&name.as_str()),
        Token::Text(words) => words
            .split(' ')
            .any(|word| ["all", "every", "any", "each", "some"].contains(&word)),
        _ => false,
    };
    !name.iter().any(quantifier)
}

/// Returns the computation `1,000 + 500 = 1,500`. Its commas group digits, since the sides are
/// equal that way.
fn with_grouped_digits(tokens: &[Token], context: Context) -> Option<Answer> {
    top_level(tokens, |t| op(t).is_some())?;
    let merged = all_merged(tokens)?;
    match relation::read(&stripped(&merged), false, context.deeper())? {
        same @ Answer::Same(_) => Some(same),
        Answer::Named(Named {
            name,
            value,
            relation,
            stands,
        }) if matches!(*value, Answer::Same(_)) => Some(Answer::Named(Named {
            name,
            value,
            relation,
            stands,
        })),
        _ => None,
    }
}

/// Returns true for a word between the elements of a list.
fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Text(word) if word.trim().trim_matches(',').trim() == wanted)
}

/// Returns the chain of inequalities that all must hold: `x > 1 and x < 3`.
fn together(tokens: &[Token], all: &[Answer]) -> Option<Answer> {
    if top_level(tokens, |token| is_separator(token) && !is_word(token, "and")).is_some() {
        return None;
    }
    let chain = |one: &Answer| match one {
        Answer::Relation(chain) => Some(chain.clone()),
        _ => None,
    };
    let chains: Vec<Vec<Relation>> = all.iter().map(chain).collect::<Option<_>>()?;
    Some(Answer::Relation(chains.concat()))
}

/// Returns `3:2` for `3 to 2`.
fn in_proportion(tokens: &[Token]) -> Option<Vec<Token>> {
    let is_to = |token: &Token| matches!(token, Token::Text(word) if word.trim() == "to");
    let ratio = tokens.iter().any(is_to) && tokens.iter().all(|token| is_to(token) || token.is_number());
    let sign = |token: &Token| {
        if is_to(token) {
            Token::Symbol(':')
        } else {
            token.clone()
        }
    };
    ratio.then(|| tokens.iter().map(sign).collect())
}

/// Returns `5/2 or 2.5` for `5/2 (or 2.5)`. The brackets may be set upright, alone or with the
/// number.
fn with_alternative(tokens: &[Token]) -> Option<Vec<Token>> {
    let (last, rest) = tokens.split_last()?;
    let joined = |before: &[Token], after: &[Token]| {
        let or = [Token::Text("or".to_owned())];
        (!before.is_empty() && !after.is_empty()).then(|| [before, &or, after].concat())
    };
    let is = |token: &Token, words: &str| matches!(token, Token::Text(text) if text.trim() == words);
    match last {
        Token::Symbol(')') => {
            let at = rest.iter().position(|token| *token == Token::Symbol('('))?;
            match &rest[at + 1..] {
                [or, after @ ..] if is(or, "or") => joined(&rest[..at], after),
                // Right behind a bracket the word is read as letters.
                [Token::Letter('o'), Token::Letter('r'), after @ ..] => joined(&rest[..at], after),
                _ => None,
            }
        }
        Token::Text(text) if text.trim() == ")" => {
            let at = rest.iter().position(|token| is(token, "(or"))?;
            joined(&rest[..at], &rest[at + 1..])
        }
        Token::Text(text) => {
            let number = text.trim().strip_prefix("(or ")?.strip_suffix(')')?;
            joined(rest, &lexed(number)?)
        }
        _ => None,
    }
}

/// Returns what stands behind the last arrow: `2x = 10 \Rightarrow x = 5`. Behind the arrow of a
/// statement of logic stands no value.
fn concluded(tokens: &[Token]) -> Option<&[Token]> {
    let pieces = split(tokens, |t| is_command(t, "implies"))?;
    let last = pieces.last().filter(|_| pieces.len() > 1)?;
    let value = |token: &Token| token.is_number() || *token == Token::Symbol('=');
    last.iter().any(value).then_some(*last)
}

pub(super) fn list(pieces: &[&[Token]], context: Context) -> Option<Vec<Answer>> {
    pieces.iter().map(|piece| read(piece, context.deeper())).collect()
}

/// Reads the elements of a set. An element with both signs gives two elements.
pub(super) fn elements(pieces: &[&[Token]], context: Context) -> Option<Vec<Answer>> {
    let mut all = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match read(piece, context.deeper())? {
            Answer::Set(both) if has_both_signs(piece) => all.extend(both),
            one => all.push(one),
        }
    }
    Some(all)
}

/// Returns true if `\pm` or `\mp` is there, unless a set may hold it in an element.
fn has_both_signs(tokens: &[Token]) -> bool {
    let sign = tokens.iter().any(|t| is_command(t, "pm") || is_command(t, "mp"));
    sign && !tokens.contains(&Token::Set('{'))
}

fn value(tokens: &[Token]) -> Option<Answer> {
    let (percent, tokens) = match tokens {
        [before @ .., Token::Symbol('%')] => (true, before),
        all => (false, all),
    };
    let terms = split(tokens, |t| *t == Token::Symbol(':'))?;
    let exprs: Option<Vec<Expr>> = terms.iter().map(|term| Expr::parse(term)).collect();
    Some(match <[Expr; 2]>::try_from(exprs?) {
        // A ratio of two numbers is their quotient.
        Ok([above, below]) => Answer::Value(Expr::Quotient(Box::new(above), Box::new(below)), percent),
        Err(mut exprs) if exprs.len() == 1 => Answer::Value(exprs.pop()?, percent),
        Err(exprs) => Answer::Ratio(exprs),
    })
}
