//! Pauses and retries of a past opponent. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Pause between two looks at the other agent's step.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Pauses between two looks at a checkpoint that is not yet written: the longest in rounds, which
/// wait for it, and the constant one otherwise.
const ROUNDS_LOOK: Duration = Duration::from_millis(250);
const FREE_LOOK: Duration = Duration::from_millis(200);
/// The number of equal errors in succession that ends the agent.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two log lines about a wait.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// A checkpoint that is missing for this long may be invisible to this process.
const LONG: Duration = Duration::from_secs(60);

/// The pause before the next look, after a pause of `pause` found nothing. `strict` is true if
/// rounds wait for it.
pub(crate) fn next_pause(strict: bool, pause: Duration) -> Duration {
    if strict {
        (pause * 2).min(ROUNDS_LOOK)
    } else {
        FREE_LOOK
    }
}

/// Counts equal errors in succession.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    last: String,
    times: u32,
    logged: Option<Instant>,
}

/// The reaction to an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterError {
    /// It came too often.
    GiveUp,
    /// Try again after the pause; `log` is true from time to time.
    Again { pause: Duration, log: bool },
}

impl Patience {
    /// Counts one more error. If `ends`, an error that comes [`TRIES`] times in succession is
    /// final.
    pub(crate) fn count(&mut self, error: &str, ends: bool, now: Instant) -> AfterError {
        self.times = if self.last == error { self.times + 1 } else { 1 };
        error.clone_into(&mut self.last);
        if ends && self.times >= TRIES {
            return AfterError::GiveUp;
        }
        let log = self.logged.is_none_or(|logged| now.duration_since(logged) >= LOG_EVERY);
        if log {
            self.logged = Some(now);
        }
        let pause = FIRST_PAUSE * 2_u32.pow((self.times - 1).min(TRIES - 2));
        AfterError::Again { pause, log }
    }

    /// Forgets all errors after a success.
    pub(crate) fn renew(&mut self) {
        *self = Self::default();
    }
}

/// Limits how often a wait is logged.
#[derive(Debug, Default)]
pub(crate) struct WaitLog {
    since: Option<Instant>,
    logged: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitMessage {
    /// The checkpoint may still be on its way.
    Soon,
    /// Something is likely to be wrong.
    Long,
}

impl WaitLog {
    /// Records that nothing was found at `now`; returns the message to log, if one is due.
    pub(crate) fn message(&mut self, now: Instant) -> Option<WaitMessage> {
        let since = *self.since.get_or_insert(now);
        let logged = self.logged.get_or_insert(now);
        if now.duration_since(*logged) < LOG_EVERY {
            return None;
        }
        *logged = now;
        let long = now.duration_since(since) >= LONG;
        Some(if long { WaitMessage::Long } else { WaitMessage::Soon })
    }

    /// Ends the wait: the checkpoint is there.
    pub(crate) fn over(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_repeated_error_ends_the_agent_where_rounds_wait() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        let mut pauses = Vec::new();
        for time in 1..TRIES {
            match patience.count("no such file", true, now) {
                AfterError::Again { pause, log } => {
                    assert_eq!(log, time == 1, "logged once in ten seconds");
                    pauses.push(pause);
                }
                AfterError::GiveUp => panic!("after {time}"),
            }
        }
        assert_eq!(pauses, [1, 2, 4, 8].map(seconds));
        assert_eq!(patience.count("no such file", true, now), AfterError::GiveUp);
        let again = patience.count("another", true, now + seconds(10));
        let pause = FIRST_PAUSE;
        assert_eq!(
            again,
            AfterError::Again { pause, log: true },
            "another error starts at the first pause"
        );
    }

    #[test]
    fn without_rounds_retries_never_end_and_success_resets_them() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        for _ in 0..50 {
            let AfterError::Again { pause, .. } = patience.count("no such file", false, now) else {
                panic!("given up");
            };
            assert!(pause <= seconds(8));
        }
        patience.renew();
        let again = patience.count("no such file", true, now);
        let pause = FIRST_PAUSE;
        assert_eq!(again, AfterError::Again { pause, log: true });
    }

    #[test]
    fn a_wait_is_logged_and_warned_about_after_a_minute() {
        let (mut waiting, start) = (WaitLog::default(), Instant::now());
        let messages: Vec<Option<WaitMessage>> = [0, 9, 10, 11, 20, 60, 61]
            .map(|at| waiting.message(start + seconds(at)))
            .into();
        assert_eq!(
            messages,
            [
                None,
                None,
                Some(WaitMessage::Soon),
                None,
                Some(WaitMessage::Soon),
                Some(WaitMessage::Long),
                None
            ]
        );
        waiting.over();
        assert_eq!(
            waiting.message(start + seconds(90)),
            None,
            "it waits for another checkpoint"
        );
    }

    #[test]
    fn pauses_grow_up_to_a_quarter_of_a_second_in_rounds() {
        let mut pause = LOOK_EVERY;
        let mut pauses = Vec::new();
        for _ in 0..5 {
            pause = next_pause(true, pause);
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [40, 80, 160, 250, 250]);
        assert_eq!(next_pause(false, LOOK_EVERY), LOOK_EVERY * 10);
    }
}
