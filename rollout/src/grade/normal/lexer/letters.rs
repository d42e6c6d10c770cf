//! Reads letters without a backslash: words, units, currencies, names and variables.

use super::Lexer;
use crate::grade::normal::names::{PLAIN, is_mathematics};
use crate::grade::normal::token::Token;
use crate::grade::normal::wide::is_han;
use crate::grade::normal::{currency, greek, scale, stops, unit_names};

impl<'a> Lexer<'a> {
    /// Reads letters without a backslash: `and` or `or` between white space, a unit or another word
    /// of a sentence, a known name, or one variable.
    pub(super) fn word(&mut self) {
        let length = self.rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (run, after) = self.rest.split_at(length);
        let number = self.out.last().is_some_and(Token::is_number);
        let factor = after
            .strip_prefix(' ')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if ["x", "X"].contains(&run) && self.spaced && number && factor {
            self.skip(length);
            return self.push(Token::Symbol('*'));
        }
        if ["choose", "mod"].contains(&run) && self.spaced && number && factor {
            self.skip(length);
            return self.push(Token::Command(run.to_owned()));
        }
        if self.foreign_word() {
            return;
        }
        let next = after.trim_start_matches(' ');
        let value =
            next.starts_with(|c: char| c.is_ascii_digit()) || next.chars().nth(1).is_some_and(|c| " =".contains(c));
        if run == "o" && number && self.spaced && after.starts_with(' ') && value {
            self.skip(length);
            return self.push(Token::Text(run.to_owned()));
        }
        let joining = ["and", "or", "oder", "ou", "und", "et"]
            .iter()
            .find(|word| word.eq_ignore_ascii_case(run));
        if let Some(word) = joining.filter(|_| self.spaced && after.starts_with([' ', '\n', '\t', '\\', '~'])) {
            self.skip(length);
            return self.push(Token::Text((*word).to_owned()));
        }
        if let Some((words, length)) = self.unit(run, after) {
            self.skip(length);
            if ["sq", "cu"].contains(&words) {
                self.rest = self.rest.strip_prefix('.').unwrap_or(self.rest);
            }
            return self.push(Token::Text(words.to_owned()));
        }
        if is_currency(run, after, self.behind_operand()) {
            self.skip(length);
            self.rest = self.rest.strip_prefix('.').unwrap_or(self.rest);
            // `US$5`: the letters belong to the sign behind them.
            let code = if currency::is_code(run) { run } else { "USD" };
            self.push(Token::Text(code.to_owned()));
            self.currency = true;
            return;
        }
        if greek::is_name(run) {
            self.skip(length);
            return self.push(Token::Command(run.to_owned()));
        }
        if let Some(name) = PLAIN.iter().find(|name| run.starts_with(**name)) {
            self.skip(name.len());
            let name = if *name == "infinity" { "infty" } else { name };
            return self.push(Token::Command(name.to_owned()));
        }
        if let Some(c) = self.rest.chars().next() {
            self.skip(c.len_utf8());
            self.push(Token::Letter(c));
        }
    }

    /// Reads a word with letters outside ASCII behind a number: `5 zł`, `5 рублей`. Returns true if
    /// one was there.
    pub(super) fn foreign_word(&mut self) -> bool {
        let word: String = self
            .rest
            .chars()
            .take_while(|c| c.is_alphabetic() && !is_han(*c))
            .collect();
        let number = matches!(self.out.last(), Some(Token::Number(..) | Token::Text(_)));
        if word.is_ascii() || !number {
            return false;
        }
        self.skip(word.len());
        self.push(Token::Text(word));
        true
    }

    /// Returns the words of a unit or of a sentence at the beginning of the rest, with their
    /// length.
    fn unit(&self, run: &'a str, after: &str) -> Option<(&'a str, usize)> {
        let whole = Some((run, run.len()));
        let (number, operand) = (self.out.last().is_some_and(Token::is_number), self.behind_operand());
        let ends = !after.starts_with(|c: char| c.is_alphanumeric() || c == '(');
        if let Some(word) = scale::of_money(run).filter(|_| self.money && ends) {
            return Some((word, run.len()));
        }
        if number
            && (self.spaced || run.len() > 1)
            && let Some(quotient) = unit_names::quotient(self.rest)
        {
            return Some((quotient, quotient.len()));
        }
        let prose = run.len() >= 4 && run.bytes().any(is_vowel) && !is_mathematics(run);
        if !operand {
            let begins = !matches!(self.out.last(), Some(Token::Symbol('{' | '_' | '^')));
            let denominator = matches!(self.out.as_slice(), [.., Token::Text(_), Token::Symbol('/')])
                && unit_names::is_denominator(run);
            return whole.filter(|_| (prose && begins && ends) || denominator);
        }
        if self.is_behind_degrees() && ["C", "F"].contains(&run) {
            return whole;
        }
        let ordinal = !self.spaced && ["st", "nd", "rd", "th"].contains(&run);
        // `sec` and `min` are functions too, unless nothing follows.
        let function = ["sec", "min"].contains(&run) && !after.trim_start_matches(['.', ' ']).is_empty();
        let glued = number && (ordinal || prose || (unit_names::is_glued(run) && !function));
        let known = unit_names::is_spaced(run) && !function;
        let text = matches!(self.out.last(), Some(Token::Number(..) | Token::Text(_)));
        let short = text && (stops::is_short(run) || (run.len() > 1 && scale::changes(run)) || scale::is_percent(run));
        let spaced = self.spaced && (prose || known || short || scale::factor(run).is_some());
        whole.filter(|_| ends && (glued || spaced))
    }

    /// Returns true behind `20^\circ` and `20^{\circ}`.
    fn is_behind_degrees(&self) -> bool {
        match self.out.as_slice() {
            [.., circ, Token::Symbol('}')] | [.., circ] => circ.is_command("circ"),
            [] => false,
        }
    }

    /// Returns true if the last token ends an operand.
    pub(super) fn behind_operand(&self) -> bool {
        match self.out.last() {
            Some(Token::Number(..) | Token::Letter(_) | Token::Text(_) | Token::Set('}')) => true,
            Some(Token::Symbol(c)) => [')', ']', '}', '!', '%', '\''].contains(c),
            Some(Token::Command(name)) => ["pi", "infty", "circ"].contains(&name.as_str()) || greek::is_name(name),
            _ => false,
        }
    }
}

fn is_vowel(byte: u8) -> bool {
    b"aeiouyAEIOUY".contains(&byte)
}

/// Returns true for the code of a currency next to its amount: `Rs. 500`, `500 EUR`, `US$5`.
fn is_currency(run: &str, after: &str, behind_operand: bool) -> bool {
    let next = after.trim_start_matches(' ');
    let dollar = next.starts_with("\\$") || after.starts_with('$');
    if dollar {
        return run.len() <= 3 && run.bytes().all(|byte| byte.is_ascii_uppercase());
    }
    let amount = after.trim_start_matches(['.', ' ', '~', '\\', ',']);
    currency::is_code(run) && (behind_operand || amount.starts_with(|c: char| c.is_ascii_digit()))
}
