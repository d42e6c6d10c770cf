//! Reads the words of text commands: `\\text{5 m}`, `\\mathrm{2~million}`.

use super::{Lexer, tokens};
use crate::grade::normal::token::Token;
use crate::grade::normal::unit_names::without_unit;
use crate::grade::normal::{minus, numeral};

impl Lexer<'_> {
    /// Pushes the words of a text command. A number with its unit is read as outside of it, and a
    /// letter behind the number is a unit.
    pub(super) fn words(&mut self, words: &str) {
        let last = self.rest.trim_matches(['.', '$', ' ', '!']).is_empty();
        let alone = self.out.is_empty() && last;
        // In a list, an argument or a subscript the unit may be all that differs.
        let has_place = last && !matches!(self.out.last(), Some(Token::Symbol('_' | '(' | ',' | '{')));
        let amount = without_unit(words).unwrap_or(words);
        let bare = !words.contains(char::is_alphabetic);
        let allowed = |before: &str| if before.is_empty() { has_place || bare } else { alone };
        let found = number(words).filter(|before| !self.behind_operand() && allowed(before));
        match found.and_then(|_| tokens(amount)) {
            Some(found) => {
                found.into_iter().for_each(|token| self.push(token));
                let end = amount.as_ptr().addr() - words.as_ptr().addr() + amount.len();
                let unit = words[end..].trim();
                if !unit.is_empty() {
                    self.push(Token::Text(unit.to_owned()));
                }
            }
            None => self.push(Token::Text(words.to_owned())),
        }
    }

    /// Returns true behind words. A small letter set upright is a variable, unless it is the unit
    /// of a number.
    pub(super) fn behind_words(&self) -> bool {
        match self.out.as_slice() {
            [before @ .., Token::Text(words)] => {
                let mut letters = words.trim().chars();
                let small = letters.next().is_some_and(char::is_lowercase) && letters.next().is_none();
                !small || before.last().is_some_and(Token::is_number)
            }
            _ => false,
        }
    }
}

/// Returns the words before the number, if words hold a single number with its sign and its
/// currency.
fn number(words: &str) -> Option<&str> {
    let words = words.trim().trim_start_matches(minus::is_sign);
    let start = words.find(|c: char| c.is_ascii_digit())?;
    let mut rest = &words[start + numeral::read(&words[start..])?.length..];
    while let Some(group) = rest
        .strip_prefix(',')
        .filter(|group| group.bytes().take_while(u8::is_ascii_digit).count() == 3)
    {
        rest = &group[3..];
    }
    let below = rest
        .strip_prefix('/')
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let rest = below.map_or(rest, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    // The power of a unit, and the hyphen of a compound.
    let rest = ["^2", "^3"]
        .iter()
        .find_map(|power| rest.strip_suffix(power))
        .unwrap_or(rest);
    let compound = rest
        .strip_prefix('-')
        .filter(|rest| rest.starts_with(char::is_alphabetic));
    let plain = |c: char| !(c.is_ascii_digit() || "+*=^_<>()[]".contains(c) || minus::is_sign(c));
    let before = &words[..start];
    let sign = |c: char| c.is_whitespace() || "$€£₹¥\\.".contains(c) || minus::is_sign(c);
    let alone = before.chars().all(|c| plain(c) && c != '/') && compound.unwrap_or(rest).chars().all(plain);
    alone.then_some(before.trim_matches(sign))
}
