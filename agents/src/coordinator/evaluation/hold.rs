//! Holds: what makes an evaluation of an asynchronous run one of a single version of each agent's
//! weights. Agents that train are asked to hold, the evaluation begins when all of them do, and
//! they are released when it is over or when `eval.hold_at_most` is.
//!
//! Every heartbeat repeats the hold, and agents go on by themselves when it is not repeated
//! (`agent/holds.rs`). A coordinator that dies, stops or is cut off therefore holds no agent for
//! longer than a lease. Agents that hold fill up, and then have no room: the gate needs no rule for
//! holds.

use std::time::Duration;

use tokio::time::Instant;

/// A hold that agents are asked for.
#[derive(Debug)]
struct Hold {
    /// New for each hold, so that no earlier heartbeat counts for it.
    name: String,
    since: Instant,
    /// The time at which agents are released, even if the evaluation is still under way.
    until: Instant,
}

/// The hold that is asked for now, and the holds before it.
#[derive(Debug, Default)]
pub(crate) struct AskedHolds {
    asked: Option<Hold>,
    /// Holds asked for so far.
    count: u64,
    /// The duration of the newest hold; `None` until agents are released from it.
    lasted: Option<Duration>,
}

impl AskedHolds {
    /// Asks for a hold, of `at_most` this duration.
    pub(crate) fn ask(&mut self, incarnation: &str, at_most: Duration) {
        let since = Instant::now();
        self.count += 1;
        self.lasted = None;
        self.asked = Some(Hold {
            name: format!("{incarnation}/{}", self.count),
            since,
            until: since + at_most,
        });
    }

    /// The name of the hold that is asked for.
    #[must_use]
    pub(crate) fn name(&self) -> Option<&str> {
        self.asked.as_ref().map(|hold| hold.name.as_str())
    }

    /// Returns true if a hold has been asked for as long as it may be.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        self.asked.as_ref().is_some_and(|hold| Instant::now() >= hold.until)
    }

    /// Lets agents train again. Returns true if they were asked to hold.
    pub(crate) fn release(&mut self) -> bool {
        let Some(hold) = self.asked.take() else {
            return false;
        };
        self.lasted = Some(hold.since.elapsed());
        true
    }

    /// The duration of the hold for the evaluation under way: until now, or until agents were
    /// released.
    #[must_use]
    pub(crate) fn duration(&self) -> Option<Duration> {
        let hold = self.asked.as_ref();
        hold.map(|hold| hold.since.elapsed()).or(self.lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_hold_has_a_new_name_and_an_end() {
        let mut holds = AskedHolds::default();
        assert!(!holds.release() && holds.duration().is_none());
        holds.ask("us", Duration::from_secs(2));
        assert_eq!(holds.name(), Some("us/1"));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(holds.is_over() && holds.release());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(holds.duration(), Some(Duration::from_secs(2)));
        holds.ask("us", Duration::from_secs(2));
        assert_eq!((holds.name(), holds.duration()), (Some("us/2"), Some(Duration::ZERO)));
    }
}
