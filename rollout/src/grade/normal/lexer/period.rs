//! Reads repeating decimals.

use super::Lexer;
use crate::grade::normal::numeral;
use crate::grade::normal::token::Token;

impl Lexer<'_> {
    /// Returns the period behind a decimal, and how many of its digits belong to the period:
    /// `0.333...`, `0.(3)`.
    pub(super) fn period(&mut self, number: &str) -> Option<(String, usize)> {
        const DOTS: [&str; 4] = ["...", "\\ldots", "\\dots", "\\cdots"];
        if !number.contains('.') {
            return None;
        }
        if let Some(dots) = DOTS.iter().find(|dots| self.rest.starts_with(**dots)) {
            let (_, period) = numeral::repeated(number)?;
            let least = if period.len() == 1 { 3 } else { 2 };
            self.skip(dots.len());
            return Some((period.to_owned(), period.len() * least));
        }
        let inside = self.rest.strip_prefix('(')?;
        let digits = inside.bytes().take_while(u8::is_ascii_digit).count();
        let closed = digits > 0 && inside[digits..].starts_with(')');
        closed.then(|| {
            self.skip(digits + 2);
            (inside[..digits].to_owned(), 0)
        })
    }

    /// Pushes the period of a repeating decimal.
    pub(super) fn repeat(&mut self, period: String) {
        self.push(Token::Command("overline".into()));
        self.push(Token::Symbol('{'));
        self.push(Token::Number(period, false));
        self.push(Token::Symbol('}'));
    }

    /// Reads the period under a bar or dots, right behind a decimal.
    pub(super) fn marked_period(&mut self, name: &str) -> bool {
        let decimal = matches!(self.out.last(), Some(Token::Number(digits, _)) if digits.contains('.'));
        if !decimal || !["overline", "bar", "dot"].contains(&name) {
            return false;
        }
        let Some(mut period) = self.digits_in_group() else {
            return false;
        };
        if name == "dot" {
            // The dots stand over the first and the last digit: \dot{1}2\dot{3}.
            let before = self.rest;
            let middle = self.take(|c| c.is_ascii_digit()).to_owned();
            match self.rest.strip_prefix("\\dot") {
                Some(rest) => {
                    self.rest = rest;
                    period += &middle;
                    period += &self.digits_in_group().unwrap_or_default();
                }
                None => self.rest = before,
            }
        }
        self.repeat(period);
        true
    }

    /// Returns the digits of the next group, or the next digit.
    fn digits_in_group(&mut self) -> Option<String> {
        let before = self.rest;
        self.rest = self.rest.trim_start();
        let digits = match self.group() {
            Some(group) => group.to_owned(),
            None => self.rest.get(..1)?.to_owned(),
        };
        let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !numeric {
            self.rest = before;
            return None;
        }
        if self.rest.starts_with(digits.as_str()) && !before.trim_start().starts_with('{') {
            self.skip(1);
        }
        Some(digits)
    }
}
