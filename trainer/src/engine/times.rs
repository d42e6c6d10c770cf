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

/// Any two are equal, so that generations compare by their content only.
impl PartialEq for Times {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Times {
    /// Returns the times of a generation that gets its first token now. The engine began its prompt
    /// at `begun`.
    pub(super) fn begun(begun: Instant) -> Self {
        let now = Instant::now();
        Self {
            arrived: begun,
            begun,
            first: now,
            ended: now,
        }
    }

    /// Records that the last token is there now.
    pub(super) fn ended(self) -> Self {
        Self {
            ended: Instant::now(),
            ..self
        }
    }

    /// Sets the arrival of the request. A request that joins a prompt under way begins at its
    /// arrival.
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
