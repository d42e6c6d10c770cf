//! Valid proposals: `left sign right` with whole numbers and an answer that can be computed.

use crate::workflows::arithmetic::ArithmeticProblem;

use crate::workflow::params::Params;

/// The most digits of a number, so that products fit.
const DIGITS: usize = 6;

/// The problems that count as valid.
pub(super) struct Problems {
    pub(super) least: i64,
    pub(super) most: i64,
    pub(super) signs: Vec<char>,
}

impl Problems {
    /// Takes the params `least` (0) and `most` (99) of the numbers, and `signs` ("+"; some of
    /// "+-*").
    pub(super) fn take(params: &mut Params<'_>) -> Self {
        let largest = 10i64.pow(DIGITS as u32) - 1;
        let least = params.integer("least", 0, 0..=largest);
        let most = params.integer("most", 99, 0..=largest);
        let signs = params.text("signs", "+");
        if most < least {
            params.problem("most", format!("{most} is below least, {least}"));
        }
        if signs.is_empty() || !signs.chars().all(|sign| "+-*".contains(sign)) {
            params.problem("signs", format!("{signs:?} is not some of \"+-*\""));
        }
        Self {
            least,
            most,
            signs: signs.chars().collect(),
        }
    }

    /// Returns the problem that a text proposes: the text after its last `Problem:`, or the whole
    /// text, with nothing else in it.
    pub(super) fn read(&self, text: &str) -> Option<ArithmeticProblem> {
        let said = text.rsplit_once("Problem:").map_or(text, |(_, problem)| problem);
        let said: String = said.chars().filter(|c| !c.is_whitespace()).collect();
        let said = said.strip_suffix('=').unwrap_or(&said);
        let at = said.find(|c: char| !c.is_ascii_digit())?;
        let (left, rest) = said.split_at(at);
        let op = rest.chars().next().filter(|sign| self.signs.contains(sign))?;
        let right = &rest[op.len_utf8()..];
        Some(ArithmeticProblem {
            left: self.number(left)?,
            op,
            right: self.number(right)?,
        })
    }

    fn number(&self, digits: &str) -> Option<i64> {
        let plain = (1..=DIGITS).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        let number = plain.then(|| digits.parse().ok()).flatten()?;
        (self.least..=self.most).contains(&number).then_some(number)
    }
}
