//! Numbers as the graders `gsm8k` and `integer` read them.

use super::answer::{Answer, Side};
use super::budget::{Budget, LONGEST};
use super::digits;
use super::expr::Expr;
use super::number::Number;
use super::same::same;
use super::words::in_words;
use crate::grade::normal::number_words::counted;

/// An answer that is a number, or one number in several spellings.
#[derive(Debug)]
pub(crate) struct Quantity(Answer);

impl Quantity {
    /// Reads a text that is one number, with its currency, its unit and its name.
    pub(crate) fn read(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return digits::long(text).map(|_| Self(Answer::parse(text, Side::Answer)));
        }
        if let Some(number) = counted(text).and_then(Number::whole) {
            return Some(Self(Answer::Value(Expr::Number(number, 0), false)));
        }
        if !(text.contains(char::is_numeric) || in_words(text).is_some()) {
            return None;
        }
        let answer = Answer::parse(text, Side::Answer);
        is_number(&answer).then_some(Self(answer))
    }

    /// Returns true if both are the same number.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        same(&self.0, &other.0, &Budget::new())
    }
}

fn is_number(answer: &Answer) -> bool {
    match answer {
        Answer::Value(expr, _) => value(expr).is_some(),
        Answer::Named(named) => named.stands && is_number(&named.value),
        Answer::Same(terms) => terms.iter().any(is_number),
        Answer::Time(time) => time.hour().is_some(),
        _ => false,
    }
}

fn value(expr: &Expr) -> Option<Number> {
    let mut names = std::collections::BTreeSet::new();
    expr.variables(&mut names);
    expr.number()
        .filter(|value| names.is_empty() && value.as_real().is_some())
}

/// Returns the digits of a text that is one whole number.
pub(crate) fn whole(text: &str) -> Option<String> {
    Quantity::read(text).and_then(|quantity| whole_digits(&quantity.0))
}

fn whole_digits(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Value(expr, _) => {
            let exact = value(expr)?.exact.filter(num_rational::Ratio::is_integer)?;
            Some(exact.to_integer().to_string())
        }
        Answer::Named(named) => whole_digits(&named.value),
        Answer::Same(terms) => terms.iter().find_map(whole_digits),
        Answer::Time(time) => time.hour().map(|hour| hour.to_string()),
        _ => None,
    }
}
