//! Which of several coordinators makes an evaluation.
//!
//! One of them evaluates at a time, with a hold or without: a coordinator that says that it
//! evaluates goes first. If two ask at once, the lesser name goes on. If two have begun before they
//! received each other's heartbeats, the greater name gives its evaluation up. Coordinators that
//! receive each other's heartbeats do so within a lease: what is played in that time is written
//! when it is over.

use broker::protocol::control::{CoordinatorBeat, RunPhase};

/// The stage of a coordinator's evaluation. The later stage goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvalTurn {
    /// Agents are asked to hold for it.
    Asks,
    Plays,
}

/// The stage of another coordinator.
#[must_use]
pub(crate) fn turn_of(beat: &CoordinatorBeat) -> Option<EvalTurn> {
    let asks = || beat.hold.as_ref().map(|_| EvalTurn::Asks);
    let plays = beat.evaluating.then_some(EvalTurn::Plays);
    plays.or_else(asks).filter(|_| beat.phase != RunPhase::Closed)
}

/// Returns true if the coordinator `ours`, at the stage `at` or at none, leaves an evaluation to
/// one of the others: to one that is further, or as far with a lesser name.
pub(crate) fn yields<'a>(
    ours: &str,
    at: Option<EvalTurn>,
    mut others: impl Iterator<Item = (&'a str, EvalTurn)>,
) -> bool {
    others.any(|(other, turn)| Some(turn) > at || (Some(turn) == at && other < ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_further_goes_on_and_of_equals_the_lesser_name() {
        use EvalTurn::{Asks, Plays};
        assert!(!yields("b", None, [].into_iter()));
        for stage in [Asks, Plays] {
            for other in ["a", "c"] {
                assert!(yields("b", None, [(other, stage)].into_iter()), "the first one goes on");
            }
            assert!(!yields("b", Some(stage), [("c", stage)].into_iter()));
            assert!(yields("b", Some(stage), [("c", stage), ("a", stage)].into_iter()));
        }
        assert!(yields("b", Some(Asks), [("c", Plays)].into_iter()), "it has begun");
        assert!(!yields("b", Some(Plays), [("a", Asks)].into_iter()), "we have begun");
    }
}
