//! Times of a group's turns at this coordinator. A turn that an earlier owner of the group
//! committed has none.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use broker::ids::TurnKey;
use broker::protocol::turn::EngineTimes;

use crate::run_folder::logs::TurnTime;

/// The times of a group's turns, from the start of the group.
pub struct TurnTimes {
    begun: Instant,
    /// The time of `begun` on the wall clock.
    pub began_at: SystemTime,
    turns: HashMap<TurnKey, Timed>,
    /// The first request and the last commit of each conversation.
    conversations: Vec<Span>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    asked: Option<Duration>,
    committed: Option<Duration>,
}

struct Timed {
    asked: Duration,
    /// The workflow's limit on its tokens.
    limit: Option<u32>,
    answered: Option<Duration>,
    committed: Option<Duration>,
    engine: Option<EngineTimes>,
}

impl Default for TurnTimes {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            began_at: SystemTime::now(),
            turns: HashMap::new(),
            conversations: Vec::new(),
        }
    }
}

impl TurnTimes {
    /// Records that a turn of at most `limit` tokens is requested now. A repeated request keeps the
    /// first time.
    pub(super) fn ask(&mut self, key: &TurnKey, limit: Option<u32>) {
        let asked = self.begun.elapsed();
        self.span(key).asked.get_or_insert(asked);
        self.turns.entry(key.clone()).or_insert(Timed {
            asked,
            limit,
            answered: None,
            committed: None,
            engine: None,
        });
    }

    /// Records that the answer to a requested turn arrives now, and how long its engine needed. The
    /// answer to a repeated request replaces an earlier one. A copy of a committed one changes
    /// nothing.
    pub(super) fn answer(&mut self, key: &TurnKey, engine: Option<EngineTimes>) {
        let now = self.begun.elapsed();
        if let Some(timed) = self.turns.get_mut(key).filter(|timed| timed.committed.is_none()) {
            timed.answered = Some(now);
            timed.engine = engine;
        }
    }

    /// Records that a turn is committed now. Returns the time since its first request.
    pub(super) fn commit(&mut self, key: &TurnKey) -> Option<Duration> {
        let now = self.begun.elapsed();
        self.span(key).committed = Some(now);
        let timed = self.turns.get_mut(key)?;
        timed.committed = Some(now);
        Some(now.saturating_sub(timed.asked))
    }

    fn span(&mut self, key: &TurnKey) -> &mut Span {
        let number = usize::from(key.member);
        if number >= self.conversations.len() {
            self.conversations.resize(number + 1, Span::default());
        }
        &mut self.conversations[number]
    }

    /// Returns the time from the first request of a conversation's turns to their last commit. Only
    /// the requests and commits of this coordinator count.
    #[must_use]
    pub fn conversation(&self, number: usize) -> Option<Duration> {
        let span = self.conversations.get(number)?;
        Some(span.committed?.saturating_sub(span.asked?))
    }

    /// Returns the workflow's limit on the tokens of a turn that was requested here, if it set one.
    #[must_use]
    pub fn limit(&self, key: &TurnKey) -> Option<Option<u32>> {
        self.turns.get(key).map(|timed| timed.limit)
    }

    /// Returns the times of a committed turn.
    #[must_use]
    pub fn of(&self, key: &TurnKey) -> Option<TurnTime> {
        let timed = self.turns.get(key)?;
        let engine = |part: fn(EngineTimes) -> Duration| timed.engine.map(|times| part(times).as_secs_f64());
        Some(TurnTime {
            asked: timed.asked.as_secs_f64(),
            queue: engine(|times| times.queue),
            prompt: engine(|times| times.prompt),
            decode: engine(|times| times.decode),
            answered: timed.answered.map(|answered| answered.as_secs_f64()),
            committed: timed.committed?.as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use configs::RoleName;

    use super::*;

    #[test]
    fn turn_has_times_once_it_was_asked_for_and_committed_here() {
        let key = TurnKey {
            member: 3,
            role: RoleName::new("solver").unwrap(),
            seat: 0,
            turn: 1,
        };
        let mut times = TurnTimes::default();
        let engine = EngineTimes {
            prompt: Duration::from_millis(20),
            ..EngineTimes::default()
        };
        times.answer(&key, Some(engine));
        assert_eq!(times.commit(&key), None, "an earlier owner asked for it");
        times.ask(&key, Some(8));
        assert_eq!((times.of(&key), times.limit(&key)), (None, Some(Some(8))));
        std::thread::sleep(Duration::from_millis(2));
        times.ask(&key, None);
        times.answer(&key, Some(engine));
        let took = times.commit(&key).unwrap();
        let of = times.of(&key).unwrap();
        assert!(
            took >= Duration::from_millis(2),
            "{took:?} since it was first asked for"
        );
        assert!((of.committed - of.asked - took.as_secs_f64()).abs() < 1e-6, "{of:?}");
        assert_eq!((of.queue, of.prompt, of.decode), (Some(0.0), Some(0.02), Some(0.0)));
        let answered = of.answered.unwrap();
        assert!(of.asked + 0.002 <= answered && answered <= of.committed, "{of:?}");
        assert_eq!(times.conversation(3), Some(took));
        assert_eq!((times.conversation(2), times.conversation(4)), (None, None));
        times.answer(&key, None);
        assert_eq!(times.of(&key), Some(of), "a copy comes late");
    }
}
