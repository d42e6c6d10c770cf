//! How long is waited and how often something is tried again. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Between two looks at the other agent's step.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Between two looks at a checkpoint that is still to be written: at most in rounds, which wait for it, and always where nobody does.
const ROUNDS_LOOK: Duration = Duration::from_millis(250);
const FREE_LOOK: Duration = Duration::from_millis(200);
/// The same error so many times in succession is for good.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Between two words about one that waits.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// A checkpoint that does not come for so long may be where it cannot be seen.
const LONG: Duration = Duration::from_secs(60);

/// The pause before the next look, after one of `pause` that found nothing. `strict`: rounds wait for it.
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
    told: Option<Instant>,
}

/// What is done about an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It came too often.
    GiveUp,
    /// Try again after the pause; `tell` at times.
    Again { pause: Duration, tell: bool },
}

impl Patience {
    /// One more error, as it reads. `ends`: what comes [`TRIES`] times is given up on.
    pub(crate) fn count(&mut self, error: &str, ends: bool, now: Instant) -> Verdict {
        self.times = if self.last == error { self.times + 1 } else { 1 };
        error.clone_into(&mut self.last);
        if ends && self.times >= TRIES {
            return Verdict::GiveUp;
        }
        let tell = self.told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY);
        if tell {
            self.told = Some(now);
        }
        let pause = FIRST_PAUSE * 2_u32.pow((self.times - 1).min(TRIES - 2));
        Verdict::Again { pause, tell }
    }

    /// It went well.
    pub(crate) fn renew(&mut self) {
        *self = Self::default();
    }
}

/// Says from time to time that nothing has come yet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    since: Option<Instant>,
    told: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It may still be on its way.
    Soon,
    /// Something is likely to be wrong.
    Long,
}

impl Waiting {
    /// Nothing was found at `now`; answers what is to be said about it.
    pub(crate) fn word(&mut self, now: Instant) -> Option<Word> {
        let since = *self.since.get_or_insert(now);
        let told = self.told.get_or_insert(now);
        if now.duration_since(*told) < TELL_EVERY {
            return None;
        }
        *told = now;
        let long = now.duration_since(since) >= LONG;
        Some(if long { Word::Long } else { Word::Soon })
    }

    /// It is there.
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
    fn the_same_error_is_given_up_on_where_rounds_wait() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        let mut pauses = Vec::new();
        for time in 1..TRIES {
            match patience.count("no such file", true, now) {
                Verdict::Again { pause, tell } => {
                    assert_eq!(tell, time == 1, "said once in ten seconds");
                    pauses.push(pause);
                }
                Verdict::GiveUp => panic!("after {time}"),
            }
        }
        assert_eq!(pauses, [1, 2, 4, 8].map(seconds));
        assert_eq!(patience.count("no such file", true, now), Verdict::GiveUp);
        let again = patience.count("another", true, now + seconds(10));
        let pause = FIRST_PAUSE;
        assert_eq!(again, Verdict::Again { pause, tell: true }, "another error begins anew");
    }

    #[test]
    fn without_rounds_it_is_tried_for_ever_and_success_forgets() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        for _ in 0..50 {
            let Verdict::Again { pause, .. } = patience.count("no such file", false, now) else {
                panic!("given up");
            };
            assert!(pause <= seconds(8));
        }
        patience.renew();
        let again = patience.count("no such file", true, now);
        let pause = FIRST_PAUSE;
        assert_eq!(again, Verdict::Again { pause, tell: true });
    }

    #[test]
    fn who_waits_says_so_and_after_a_minute_what_may_be_wrong() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let words: Vec<Option<Word>> = [0, 9, 10, 11, 20, 60, 61]
            .map(|at| waiting.word(start + seconds(at)))
            .into();
        assert_eq!(
            words,
            [
                None,
                None,
                Some(Word::Soon),
                None,
                Some(Word::Soon),
                Some(Word::Long),
                None
            ]
        );
        waiting.over();
        assert_eq!(waiting.word(start + seconds(90)), None, "it waits for another");
    }

    #[test]
    fn looks_grow_rare_and_rounds_wait_no_quarter_of_a_second_too_long() {
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
