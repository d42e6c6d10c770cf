//! Times of a generation.

use std::time::Instant;

use broker::protocol::turn::EngineTimes;

/// The moments at which a generation arrived, began, got its first token and ended.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    arrived: Instant,
    begun: Instant,
    first: Instant,
    ended: Instant,
}

/// Any two are equal: generations with the same content are the same, however long they took.
impl PartialEq for Times {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Times {
    /// A generation that has its first token now. The engine began with its prompt at `begun`.
    pub(super) fn begun(begun: Instant) -> Self {
        let now = Instant::now();
        Self {
            arrived: begun,
            begun,
            first: now,
            ended: now,
        }
    }

    /// It has its last token now.
    pub(super) fn ended(self) -> Self {
        Self {
            ended: Instant::now(),
            ..self
        }
    }

    /// Sets when it arrived. It may have joined a prompt that was being computed.
    pub(super) fn arrived(&mut self, arrived: Instant) {
        self.arrived = arrived;
        self.begun = self.begun.max(arrived);
    }

    /// Returns the times between these moments.
    #[must_use]
    pub fn durations(&self) -> EngineTimes {
        EngineTimes {
            queue: self.begun.saturating_duration_since(self.arrived),
            prompt: self.first.saturating_duration_since(self.begun),
            decode: self.ended.saturating_duration_since(self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn request_that_joins_a_prompt_has_waited_for_nothing() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let made = Times {
            arrived: begun,
            begun,
            first: at(5),
            ended: at(9),
        };
        let of = |arrived| {
            let mut times = made;
            times.arrived(arrived);
            let EngineTimes { queue, prompt, decode } = times.durations();
            [queue, prompt, decode].map(|time| time.as_millis())
        };
        assert_eq!(of(begun - Duration::from_millis(3)), [3, 5, 4]);
        assert_eq!(of(at(2)), [0, 3, 4]);
    }
}
