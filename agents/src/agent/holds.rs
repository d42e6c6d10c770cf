//! What coordinators ask an agent to hold for: to begin no batch, so that an evaluation is of one version of its weights.
//!
//! A hold stands while its coordinator repeats it, in each of its heartbeats, and never longer than the configuration says: who
//! asked for it may have died, be cut off, or be wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::protocol::control::RunPhase;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Status;
use crate::engine::EngineClient;

/// Heartbeats come each second, and one may be late: a hold of a shorter lease would lapse between two of them.
const LEAST_LEASE: Duration = Duration::from_secs(5);

/// After how long without a word a coordinator's hold, or its evaluation, counts for nothing: `run.lease`, and not below 5 seconds.
pub(crate) fn lease(run: Duration) -> Duration {
    run.max(LEAST_LEASE)
}

/// The holds that are asked for.
#[derive(Debug)]
pub(crate) struct Holds {
    /// After how long a hold that is not repeated is over.
    lease: Duration,
    /// How long one stands at most, from when it was first heard.
    most: Duration,
    /// By the coordinator's incarnation.
    heard: BTreeMap<String, Heard>,
}

/// What a coordinator said last.
#[derive(Debug)]
struct Heard {
    seq: u64,
    at: Instant,
    /// The hold's name, and when it was first heard.
    hold: Option<(String, Instant)>,
}

impl Holds {
    /// `run_lease`: after how long in this run who is silent counts as away.
    pub(crate) fn new(run_lease: Duration, most: Duration) -> Self {
        Self {
            lease: lease(run_lease),
            most,
            heard: BTreeMap::new(),
        }
    }

    /// A coordinator asks, in its heartbeat of number `seq`, for this hold or for none. Answers whether other holds stand than
    /// before.
    pub(crate) fn hear(&mut self, coordinator: &str, seq: u64, name: Option<&str>, now: Instant) -> bool {
        let before = self.standing(now);
        self.heard.retain(|_, heard| now.duration_since(heard.at) < self.lease);
        let known = self.heard.get(coordinator);
        // One that was overtaken on its way says what is no longer so.
        if known.is_some_and(|known| seq <= known.seq) {
            return false;
        }
        let since = known
            .and_then(|known| known.hold.as_ref())
            .filter(|(known, _)| Some(known.as_str()) == name);
        let since = since.map_or(now, |(_, since)| *since);
        let heard = Heard {
            seq,
            at: now,
            hold: name.map(|name| (name.to_owned(), since)),
        };
        self.heard.insert(coordinator.to_owned(), heard);
        self.standing(now) != before
    }

    /// Names of the holds that stand at `now`, and when the first of them is over if it is not heard again. Of one reading of the clock:
    /// whoever acts on the names and waits for the end misses no end that falls in between.
    pub(crate) fn at(&self, now: Instant) -> (Vec<String>, Option<Instant>) {
        (self.standing(now), self.until(now))
    }

    fn standing(&self, now: Instant) -> Vec<String> {
        let standing = self.ends().filter(|(_, end)| now < *end);
        standing.map(|(name, _)| name.to_owned()).collect()
    }

    fn until(&self, now: Instant) -> Option<Instant> {
        self.ends().map(|(_, end)| end).filter(|end| now < *end).min()
    }

    fn ends(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.heard.values().filter_map(|heard| {
            let (name, since) = heard.hold.as_ref()?;
            Some((name.as_str(), (heard.at + self.lease).min(*since + self.most)))
        })
    }
}

/// Whether a batch may be begun while these holds are `asked` for and those are `kept`. Where a run is drained nothing new comes, and what
/// is full is trained before a new hold is kept: the last evaluation is of the weights that the run ends with. A hold that is kept already
/// is kept on.
pub(crate) fn may_begin(phase: RunPhase, kept: &[String], asked: &[String]) -> bool {
    let begun = asked.iter().any(|name| kept.contains(name));
    asked.is_empty() || (phase == RunPhase::Draining && !begun)
}

/// Keeps these holds and no others: the engine follows before the heartbeat says so. Whether keeping began or ended with it.
pub(super) fn keep(status: &watch::Sender<Status>, engine: Option<&dyn EngineClient>, names: Vec<String>) -> bool {
    let known = status.borrow().holding.clone();
    if known == names {
        return false;
    }
    let turned = known.is_empty() != names.is_empty();
    if turned && let Some(engine) = engine {
        engine.pin(!names.is_empty());
    }
    status.send_modify(|status| status.holding = names);
    turned
}

/// Waits until a hold is over, for ever if there is none; one that is over already is waited for no more.
pub(crate) async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEASE: Duration = Duration::from_secs(15);
    const MOST: Duration = Duration::from_secs(60);

    fn holds() -> (Holds, Instant) {
        (Holds::new(LEASE, MOST), Instant::now())
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_hold_stands_until_it_is_taken_back_or_not_repeated() {
        let (mut holds, start) = holds();
        assert!(!holds.hear("c1", 1, None, start) && holds.until(start).is_none());
        assert!(holds.hear("c1", 2, Some("c1/1"), start));
        assert_eq!(holds.standing(start), ["c1/1"]);
        assert!(!holds.hear("c1", 3, Some("c1/1"), start + seconds(10)), "repeated");
        assert_eq!(holds.until(start + seconds(10)), Some(start + seconds(25)));
        assert!(!holds.standing(start + seconds(24)).is_empty());
        assert!(
            holds.standing(start + seconds(25)).is_empty(),
            "its coordinator is silent"
        );
        assert!(
            holds.hear("c1", 4, Some("c1/1"), start + seconds(26)),
            "it was halted, and goes on"
        );
        assert!(holds.hear("c1", 5, None, start + seconds(27)));
        assert!(holds.standing(start + seconds(27)).is_empty());
    }

    #[test]
    fn any_of_several_coordinators_holds_and_each_lets_go_for_itself() {
        let (mut holds, start) = holds();
        assert!(holds.hear("c1", 1, Some("c1/1"), start) && holds.hear("c2", 1, Some("c2/1"), start));
        assert_eq!(holds.standing(start), ["c1/1", "c2/1"]);
        assert!(holds.hear("c1", 2, None, start));
        assert_eq!(holds.standing(start), ["c2/1"]);
        assert!(
            holds.hear("c2", 2, Some("c2/2"), start),
            "another evaluation is another hold"
        );
        assert_eq!(holds.standing(start), ["c2/2"]);
    }

    /// Heartbeats are sent side by side.
    #[test]
    fn a_heartbeat_that_was_overtaken_holds_nothing() {
        let (mut holds, start) = holds();
        assert!(!holds.hear("c1", 8, None, start));
        assert!(!holds.hear("c1", 7, Some("c1/1"), start));
        assert!(holds.standing(start).is_empty());
    }

    #[test]
    fn repeated_for_ever_a_hold_is_over_all_the_same() {
        let (mut holds, start) = holds();
        for second in 0..200 {
            let now = start + seconds(second);
            holds.hear("c1", second + 1, Some("c1/1"), now);
            assert_eq!(holds.standing(now).is_empty(), second >= 60, "second {second}");
        }
    }

    /// Nothing else wakes a trainer that holds.
    #[tokio::test(start_paused = true)]
    async fn a_hold_that_lapses_after_it_was_looked_at_is_over_at_once() {
        let (mut holds, start) = holds();
        holds.hear("c1", 1, Some("c1/1"), start);
        let end = start + LEASE;
        let (names, until) = holds.at(end - Duration::from_nanos(1));
        assert_eq!((names, until), (vec!["c1/1".to_owned()], Some(end)));
        tokio::time::advance(LEASE + seconds(9)).await;
        let late = Instant::now();
        over(until).await;
        assert_eq!(late.elapsed(), Duration::ZERO, "it waits for no other wake-up");
        assert_eq!(holds.at(end), (Vec::new(), None));
        let never = tokio::time::timeout(seconds(1000), over(None)).await;
        assert!(never.is_err(), "what does not stand has no end");
    }

    #[test]
    fn a_lease_as_short_as_a_heartbeat_lapses_between_no_two_of_them() {
        let start = Instant::now();
        let mut holds = Holds::new(Duration::from_millis(1100), MOST);
        for second in 0..20 {
            // Each is 300 ms late.
            let heard = start + Duration::from_millis(1300 * second);
            holds.hear("c1", second + 1, Some("c1/1"), heard);
            let before = heard + Duration::from_millis(1299);
            assert_eq!(holds.at(before).0, ["c1/1"], "after beat {second}");
        }
        assert_eq!(lease(LEASE), LEASE, "a longer one is as it was written");
    }

    #[test]
    fn what_is_full_is_trained_before_a_new_hold_of_a_drained_run() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let may = |phase, kept: &[&str], asked: &[&str]| may_begin(phase, &names(kept), &names(asked));
        for phase in [RunPhase::Running, RunPhase::Paused, RunPhase::Draining] {
            assert!(may(phase, &[], &[]), "nobody asks");
            assert!(may(phase, &["c/1"], &[]), "it is taken back");
            assert!(
                !may(phase, &["c/1"], &["c/1"]),
                "it is kept, and an evaluation may be under way"
            );
            let last = phase == RunPhase::Draining;
            assert_eq!(may(phase, &[], &["c/1"]), last);
            assert_eq!(
                may(phase, &["c/1"], &["c/2"]),
                last,
                "the one that was kept is of before"
            );
        }
    }

    proptest! {
        /// Whatever was heard: when nobody says anything more, nothing is held a lease later.
        #[test]
        fn nothing_stands_a_lease_after_the_last_word(
            said in prop::collection::vec((0..3u8, 0..40u64, prop::option::of(0..3u8), 0..20u64), 0..40)
        ) {
            let (mut holds, mut now) = holds();
            for (coordinator, seq, name, pause) in said {
                now += seconds(pause);
                let name = name.map(|name| name.to_string());
                let before = holds.standing(now);
                let changed = holds.hear(&coordinator.to_string(), seq, name.as_deref(), now);
                prop_assert_eq!(changed, holds.standing(now) != before);
                prop_assert_eq!(holds.until(now).is_some(), !holds.standing(now).is_empty());
                if let Some(until) = holds.until(now) {
                    prop_assert!(until > now && until <= now + LEASE);
                }
            }
            prop_assert!(holds.standing(now + LEASE).is_empty());
        }
    }
}
