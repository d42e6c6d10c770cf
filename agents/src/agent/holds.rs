//! Holds: a coordinator asks an agent to begin no batch, so that an evaluation sees one version of
//! the agent's weights.
//!
//! A hold stands while its coordinator repeats it in each heartbeat, but never longer than
//! `eval.hold_at_most`. Without these two limits, a coordinator that dies, is cut off or has a
//! fault could stop training for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::protocol::control::RunPhase;
use tokio::sync::watch;
use tokio::time::Instant;

use super::AgentStatus;
use crate::engine::EngineClient;

/// The shortest lease. Coordinators send a heartbeat each second. A lease must not expire between
/// two heartbeats, even if one is delayed.
const SHORTEST_LEASE: Duration = Duration::from_secs(5);

/// Silence after which a coordinator's hold or evaluation expires: `run.lease`, at least 5 seconds.
pub(crate) fn lease(run_lease: Duration) -> Duration {
    run_lease.max(SHORTEST_LEASE)
}

/// The holds that coordinators ask for.
#[derive(Debug)]
pub(crate) struct Holds {
    /// Silence of a coordinator after which its hold ends.
    lease: Duration,
    /// The longest time that a hold stands after it was first received.
    longest: Duration,
    /// The last heartbeat of each coordinator. The key is the coordinator's incarnation.
    last_beats: BTreeMap<String, LastBeat>,
}

/// The last heartbeat of a coordinator.
#[derive(Debug)]
struct LastBeat {
    seq: u64,
    at: Instant,
    /// The name of the requested hold, and when that name was first received.
    hold: Option<(String, Instant)>,
}

impl Holds {
    /// Creates an empty set. `run_lease` is `run.lease`, `longest` is `eval.hold_at_most`.
    pub(crate) fn new(run_lease: Duration, longest: Duration) -> Self {
        Self {
            lease: lease(run_lease),
            longest,
            last_beats: BTreeMap::new(),
        }
    }

    /// Records heartbeat `seq` of a coordinator. `name` is the hold that it asks for, if any.
    /// Returns true if the standing holds changed.
    pub(crate) fn record(&mut self, coordinator: &str, seq: u64, name: Option<&str>, now: Instant) -> bool {
        let before = self.standing(now);
        self.last_beats
            .retain(|_, beat| now.duration_since(beat.at) < self.lease);
        let last = self.last_beats.get(coordinator);
        // A heartbeat is stale if a later one overtook it.
        if last.is_some_and(|last| seq <= last.seq) {
            return false;
        }
        let repeated = last
            .and_then(|last| last.hold.as_ref())
            .filter(|(last_name, _)| Some(last_name.as_str()) == name);
        let since = repeated.map_or(now, |(_, since)| *since);
        let beat = LastBeat {
            seq,
            at: now,
            hold: name.map(|name| (name.to_owned(), since)),
        };
        self.last_beats.insert(coordinator.to_owned(), beat);
        self.standing(now) != before
    }

    /// Returns the names of the holds that stand at `now`, and the time when the first of them ends
    /// if no heartbeat repeats it. Both results come from one clock reading. If a hold ends while
    /// the caller acts on the names, the returned time is past, and [`over`] returns at once.
    pub(crate) fn at(&self, now: Instant) -> (Vec<String>, Option<Instant>) {
        (self.standing(now), self.next_end(now))
    }

    fn standing(&self, now: Instant) -> Vec<String> {
        let standing = self.ends().filter(|(_, end)| now < *end);
        standing.map(|(name, _)| name.to_owned()).collect()
    }

    fn next_end(&self, now: Instant) -> Option<Instant> {
        self.ends().map(|(_, end)| end).filter(|end| now < *end).min()
    }

    /// Returns the name and the end of each recorded hold, including holds that have ended.
    fn ends(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.last_beats.values().filter_map(|beat| {
            let (name, since) = beat.hold.as_ref()?;
            Some((name.as_str(), (beat.at + self.lease).min(*since + self.longest)))
        })
    }
}

/// Returns true if a batch may begin. `asked` are the holds that coordinators ask for; `kept` are
/// the holds that the agent has already confirmed.
///
/// A hold that is asked for prevents a batch, except in a draining run. There the agent first
/// trains all full batches and then keeps a new hold, so that the last evaluation sees the run's
/// final weights. A hold that is both kept and asked for prevents batches even then.
pub(crate) fn may_begin(phase: RunPhase, kept: &[String], asked: &[String]) -> bool {
    let is_holding = asked.iter().any(|name| kept.contains(name));
    asked.is_empty() || (phase == RunPhase::Draining && !is_holding)
}

/// Replaces the kept holds by `names`. Pins the engine before the heartbeat reports the holds,
/// because an evaluation begins after that report. Returns true if holding began or ended.
pub(super) fn keep(status: &watch::Sender<AgentStatus>, engine: Option<&dyn EngineClient>, names: Vec<String>) -> bool {
    let kept = status.borrow().holding.clone();
    if kept == names {
        return false;
    }
    let begins_or_ends = kept.is_empty() != names.is_empty();
    if begins_or_ends && let Some(engine) = engine {
        engine.pin(!names.is_empty());
    }
    status.send_modify(|status| status.holding = names);
    begins_or_ends
}

/// Waits until the time `until`, the end of a hold. Returns at once if that time is past. Waits for
/// ever if `until` is `None`.
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
    const LONGEST: Duration = Duration::from_secs(60);

    fn holds() -> (Holds, Instant) {
        (Holds::new(LEASE, LONGEST), Instant::now())
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_hold_stands_until_it_is_withdrawn_or_not_repeated() {
        let (mut holds, start) = holds();
        assert!(!holds.record("c1", 1, None, start) && holds.next_end(start).is_none());
        assert!(holds.record("c1", 2, Some("c1/1"), start));
        assert_eq!(holds.standing(start), ["c1/1"]);
        assert!(!holds.record("c1", 3, Some("c1/1"), start + seconds(10)), "repeated");
        assert_eq!(holds.next_end(start + seconds(10)), Some(start + seconds(25)));
        assert!(!holds.standing(start + seconds(24)).is_empty());
        assert!(
            holds.standing(start + seconds(25)).is_empty(),
            "its coordinator is silent"
        );
        assert!(
            holds.record("c1", 4, Some("c1/1"), start + seconds(26)),
            "the coordinator paused longer than its lease and resumes"
        );
        assert!(holds.record("c1", 5, None, start + seconds(27)));
        assert!(holds.standing(start + seconds(27)).is_empty());
    }

    #[test]
    fn coordinators_hold_and_release_independently() {
        let (mut holds, start) = holds();
        assert!(holds.record("c1", 1, Some("c1/1"), start) && holds.record("c2", 1, Some("c2/1"), start));
        assert_eq!(holds.standing(start), ["c1/1", "c2/1"]);
        assert!(holds.record("c1", 2, None, start));
        assert_eq!(holds.standing(start), ["c2/1"]);
        assert!(
            holds.record("c2", 2, Some("c2/2"), start),
            "a new evaluation has a new hold"
        );
        assert_eq!(holds.standing(start), ["c2/2"]);
    }

    /// A coordinator sends heartbeats concurrently, so they can arrive out of order.
    #[test]
    fn an_overtaken_heartbeat_is_ignored() {
        let (mut holds, start) = holds();
        assert!(!holds.record("c1", 8, None, start));
        assert!(!holds.record("c1", 7, Some("c1/1"), start));
        assert!(holds.standing(start).is_empty());
    }

    #[test]
    fn a_repeated_hold_ends_after_the_longest_time() {
        let (mut holds, start) = holds();
        for second in 0..200 {
            let now = start + seconds(second);
            holds.record("c1", second + 1, Some("c1/1"), now);
            assert_eq!(holds.standing(now).is_empty(), second >= 60, "second {second}");
        }
    }

    /// Only the end of the hold wakes a holding trainer. A trainer that missed it would hold for
    /// ever.
    #[tokio::test(start_paused = true)]
    async fn a_hold_that_ends_before_the_wait_is_over_at_once() {
        let (mut holds, start) = holds();
        holds.record("c1", 1, Some("c1/1"), start);
        let end = start + LEASE;
        let (names, until) = holds.at(end - Duration::from_nanos(1));
        assert_eq!((names, until), (vec!["c1/1".to_owned()], Some(end)));
        tokio::time::advance(LEASE + seconds(9)).await;
        let late = Instant::now();
        over(until).await;
        assert_eq!(late.elapsed(), Duration::ZERO, "the wait ends without another event");
        assert_eq!(holds.at(end), (Vec::new(), None));
        let never = tokio::time::timeout(seconds(1000), over(None)).await;
        assert!(never.is_err(), "without a hold the wait goes on");
    }

    #[test]
    fn a_short_lease_does_not_expire_between_heartbeats() {
        let start = Instant::now();
        let mut holds = Holds::new(Duration::from_millis(1100), LONGEST);
        for second in 0..20 {
            // Each heartbeat is 300 ms late.
            let received = start + Duration::from_millis(1300 * second);
            holds.record("c1", second + 1, Some("c1/1"), received);
            let before = received + Duration::from_millis(1299);
            assert_eq!(holds.at(before).0, ["c1/1"], "after heartbeat {second}");
        }
        assert_eq!(lease(LEASE), LEASE, "a longer lease is unchanged");
    }

    #[test]
    fn a_draining_run_trains_full_batches_before_a_new_hold() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let may = |phase, kept: &[&str], asked: &[&str]| may_begin(phase, &names(kept), &names(asked));
        for phase in [RunPhase::Running, RunPhase::Paused, RunPhase::Draining] {
            assert!(may(phase, &[], &[]), "no coordinator asks for a hold");
            assert!(may(phase, &["c/1"], &[]), "the coordinator withdrew the kept hold");
            assert!(
                !may(phase, &["c/1"], &["c/1"]),
                "an evaluation may be using the kept hold"
            );
            let draining = phase == RunPhase::Draining;
            assert_eq!(may(phase, &[], &["c/1"]), draining);
            assert_eq!(
                may(phase, &["c/1"], &["c/2"]),
                draining,
                "the new hold replaces the kept one"
            );
        }
    }

    proptest! {
        /// Tries random heartbeats of three coordinators, stale and repeated ones included.
        #[test]
        fn no_hold_stands_a_lease_after_the_last_heartbeat(
            beats in prop::collection::vec((0..3u8, 0..40u64, prop::option::of(0..3u8), 0..20u64), 0..40)
        ) {
            let (mut holds, mut now) = holds();
            for (coordinator, seq, name, pause) in beats {
                now += seconds(pause);
                let name = name.map(|name| name.to_string());
                let before = holds.standing(now);
                let changed = holds.record(&coordinator.to_string(), seq, name.as_deref(), now);
                prop_assert_eq!(changed, holds.standing(now) != before);
                prop_assert_eq!(holds.next_end(now).is_some(), !holds.standing(now).is_empty());
                if let Some(end) = holds.next_end(now) {
                    prop_assert!(end > now && end <= now + LEASE);
                }
            }
            prop_assert!(holds.standing(now + LEASE).is_empty());
        }
    }
}
