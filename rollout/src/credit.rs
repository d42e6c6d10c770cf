//! Which reward a turn may be credited with, so that its policy gradient is that of the stated objective.
//!
//! - A term may credit a turn only if it is settled at or after that turn: what was settled before tells nothing about it.
//! - A term may be subtracted from a turn's reward only if it was settled before the turn began. Then it is a control variate:
//!   it changes the variance and not the mean. Subtracting what the turn can influence changes the objective.
//!
//! So with a first attempt (score s1), a verifier and a retry (score s2), the gain `s2 - s1` may go to the verifier and to the
//! retry, for s1 was settled before both; never to the first attempt, which would be paid for being wrong.

/// A score in a conversation: which turn settles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    pub name: &'static str,
    /// Place of the settling turn in the conversation's order of turns. A turn that began only when others had ended comes
    /// after them.
    pub settled: usize,
}

/// A reward that would train something else than what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreditError {
    #[error("turn {turn} is credited with `{term}`, settled at turn {settled}: it had no part in it")]
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

/// Whether turn `turn` may earn the `added` terms less the `subtracted` ones.
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

/// What a verifier's rejection changed: `s2 - s1` if it rejected and a retry was scored, else `None`, for an approval changes
/// nothing.
#[must_use]
pub fn gain(first: f32, rejected: bool, retry: Option<f32>) -> Option<f32> {
    retry.filter(|_| rejected).map(|retry| retry - first)
}

#[cfg(test)]
mod tests;
