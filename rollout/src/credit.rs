//! Which reward a turn may be credited with, so that its policy gradient is that of the stated
//! objective.
//!
//! - A term may credit a turn only if it is settled at or after that turn. An earlier term carries
//!   no information about the turn.
//! - A term may be subtracted from a turn's reward only if it was settled before the turn began.
//!   Then it is a control variate: it changes the variance and not the mean. Subtracting a term
//!   that the turn can influence changes the objective.
//!
//! Example: a first attempt (score s1), a verifier and a retry (score s2). The gain `s2 - s1` may
//! go to the verifier and to the retry, because s1 was settled before both. It may never go to the
//! first attempt, which would be paid for being wrong.

/// A score in a conversation, and the turn that settles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    pub name: &'static str,
    /// The place of the settling turn in the conversation's order of turns. A turn that began only
    /// after other turns had ended comes after them.
    pub settled: usize,
}

/// A reward that would train a different objective from the one it states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreditError {
    #[error("turn {turn} is credited with `{term}`, settled at turn {settled}: the turn cannot influence it")]
    Before {
        turn: usize,
        term: &'static str,
        settled: usize,
    },
    #[error(
        "turn {turn} has `{term}` subtracted, settled at turn {settled}: it can influence that, so subtracting it changes \
         the objective; subtract only what is settled before the turn begins"
    )]
    Influenced {
        turn: usize,
        term: &'static str,
        settled: usize,
    },
}

/// Checks whether turn `turn` may earn the `added` terms less the `subtracted` ones.
pub fn check(turn: usize, added: &[Term], subtracted: &[Term]) -> Result<(), CreditError> {
    if let Some(term) = added.iter().find(|term| term.settled < turn) {
        return Err(CreditError::Before {
            turn,
            term: term.name,
            settled: term.settled,
        });
    }
    match subtracted.iter().find(|term| term.settled >= turn) {
        Some(term) => Err(CreditError::Influenced {
            turn,
            term: term.name,
            settled: term.settled,
        }),
        None => Ok(()),
    }
}

/// Returns the change that a verifier's rejection made: `s2 - s1` if it rejected and a retry was
/// scored, else `None`, because an approval changes nothing.
#[must_use]
pub fn gain(first: f32, rejected: bool, retry: Option<f32>) -> Option<f32> {
    retry.filter(|_| rejected).map(|retry| retry - first)
}

#[cfg(test)]
mod tests;
