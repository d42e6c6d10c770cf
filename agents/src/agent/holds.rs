//! Holds: coordinators ask an agent to begin no batch, so that an evaluation sees one version of
//! its weights.
//!
//! A hold stands while its coordinator repeats it in each heartbeat, and never longer than the
//! configuration allows. The coordinator may have died, be cut off, or be wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::protocol::control::RunPhase;
use tokio::sync::watch;
use tokio::time::Instant;

use super::AgentStatus;
use crate::engine::EngineClient;

/// Heartbeats come each second and may be late: a shorter lease would lapse between two heartbeats.
const LEAST_LEASE: Duration = Duration::from_secs(5);

/// Silence after which a coordinator's hold or evaluation expires: `run.lease`, at least 5 seconds.
pub(crate) fn lease(run: Duration) -> Duration {
    run.max(LEAST_LEASE)
}

/// The holds that coordinators ask for.
#[derive(Debug)]
pub(crate) struct Holds {
    /// Silence after which a hold that is not repeated ends.
    lease: Duration,
    /// The longest time a hold stands after it was first received.
    most: Duration,
    /// The last heartbeat, by the coordinator's incarnation.
    received: BTreeMap<String, LastBeat>,
}

/// The last heartbeat of a coordinator.
#[derive(Debug)]
struct LastBeat {
    seq: u64,
    at: Instant,
    /// The hold's name, and when it was first received.
    hold: Option<(String, Instant)>,
}

impl Holds {
    /// `run_lease` is the silence after which a peer counts as gone.
    pub(crate) fn new(run_lease: Duration, most: Duration) -> Self {
        Self {
            lease: lease(run_lease),
            most,
            received: BTreeMap::new(),
        }
    }

    /// Records a coordinator's heartbeat `seq`: the hold that it asks for, or `None`. Returns true
    /// if the standing holds changed.
    pub(crate) fn record(&mut self, coordinator: &str, seq: u64, name: Option<&str>, now: Instant) -> bool {
        let before = self.standing(now);
        self.received
            .retain(|_, received| now.duration_since(received.at) < self.lease);
        let known = self.received.get(coordinator);
        // A heartbeat that was overtaken in transit is out of date.
        if known.is_some_and(|known| seq <= known.seq) {
            return false;
        }
        let since = known
            .and_then(|known| known.hold.as_ref())
            .filter(|(known, _)| Some(known.as_str()) == name);
        let since = since.map_or(now, |(_, since)| *since);
        let received = LastBeat {
            seq,
            at: now,
            hold: name.map(|name| (name.to_owned(), since)),
        };
        self.received.insert(coordinator.to_owned(), received);
        self.standing(now) != before
    }

    /// Names of the holds that stand at `now`, and when the first of them ends unless repeated.
    /// Both come from one clock reading, so that a caller that acts on the names and waits for the
    /// end misses no end in between.
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
        self.received.values().filter_map(|received| {
            let (name, since) = received.hold.as_ref()?;
            Some((name.as_str(), (received.at + self.lease).min(*since + self.most)))
        })
    }
}

/// Returns true if a batch may begin while these holds are `asked` for and those are `kept`. In a
/// run that drains nothing new comes, so full batches are trained before a new hold is kept: the
/// last evaluation then sees the weights that the run ends with. A hold that is kept already stays.
pub(crate) fn may_begin(phase: RunPhase, kept: &[String], asked: &[String]) -> bool {
    let begun = asked.iter().any(|name| kept.contains(name));
    asked.is_empty() || (phase == RunPhase::Draining && !begun)
}

/// Keeps exactly these holds: the engine is pinned before the heartbeat says so. Returns true if
/// holding began or ended.
pub(super) fn keep(status: &watch::Sender<AgentStatus>, engine: Option<&dyn EngineClient>, names: Vec<String>) -> bool {
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

/// Waits until a hold ends, for ever if there is none; returns at once if it has ended already.
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
    fn a_hold_stands_until_it_is_withdrawn_or_not_repeated() {
        let (mut holds, start) = holds();
        assert!(!holds.record("c1", 1, None, start) && holds.until(start).is_none());
        assert!(holds.record("c1", 2, Some("c1/1"), start));
        assert_eq!(holds.standing(start), ["c1/1"]);
        assert!(!holds.record("c1", 3, Some("c1/1"), start + seconds(10)), "repeated");
        assert_eq!(holds.until(start + seconds(10)), Some(start + seconds(25)));
        assert!(!holds.standing(start + seconds(24)).is_empty());
        assert!(
            holds.standing(start + seconds(25)).is_empty(),
            "its coordinator is silent"
        );
        assert!(
            holds.record("c1", 4, Some("c1/1"), start + seconds(26)),
            "the coordinator was halted and resumes"
        );
        assert!(holds.record("c1", 5, None, start + seconds(27)));
        assert!(holds.standing(start + seconds(27)).is_empty());
    }

    #[test]
    fn each_of_several_coordinators_holds_and_releases_by_itself() {
        let (mut holds, start) = holds();
        assert!(holds.record("c1", 1, Some("c1/1"), start) && holds.record("c2", 1, Some("c2/1"), start));
        assert_eq!(holds.standing(start), ["c1/1", "c2/1"]);
        assert!(holds.record("c1", 2, None, start));
        assert_eq!(holds.standing(start), ["c2/1"]);
        assert!(
            holds.record("c2", 2, Some("c2/2"), start),
            "another evaluation is another hold"
        );
        assert_eq!(holds.standing(start), ["c2/2"]);
    }

    /// Heartbeats are sent concurrently.
    #[test]
    fn a_heartbeat_that_was_overtaken_holds_nothing() {
        let (mut holds, start) = holds();
        assert!(!holds.record("c1", 8, None, start));
        assert!(!holds.record("c1", 7, Some("c1/1"), start));
        assert!(holds.standing(start).is_empty());
    }

    #[test]
    fn a_hold_ends_though_it_is_repeated_for_ever() {
        let (mut holds, start) = holds();
        for second in 0..200 {
            let now = start + seconds(second);
            holds.record("c1", second + 1, Some("c1/1"), now);
            assert_eq!(holds.standing(now).is_empty(), second >= 60, "second {second}");
        }
    }

    /// No other event wakes a trainer that holds.
    #[tokio::test(start_paused = true)]
    async fn a_hold_that_lapses_after_the_look_is_over_at_once() {
        let (mut holds, start) = holds();
        holds.record("c1", 1, Some("c1/1"), start);
        let end = start + LEASE;
        let (names, until) = holds.at(end - Duration::from_nanos(1));
        assert_eq!((names, until), (vec!["c1/1".to_owned()], Some(end)));
        tokio::time::advance(LEASE + seconds(9)).await;
        let late = Instant::now();
        over(until).await;
        assert_eq!(late.elapsed(), Duration::ZERO, "it waits for no other wake-up");
        assert_eq!(holds.at(end), (Vec::new(), None));
        let never = tokio::time::timeout(seconds(1000), over(None)).await;
        assert!(never.is_err(), "no hold has no end");
    }

    #[test]
    fn a_short_lease_does_not_lapse_between_heartbeats() {
        let start = Instant::now();
        let mut holds = Holds::new(Duration::from_millis(1100), MOST);
        for second in 0..20 {
            // Each heartbeat is 300 ms late.
            let received = start + Duration::from_millis(1300 * second);
            holds.record("c1", second + 1, Some("c1/1"), received);
            let before = received + Duration::from_millis(1299);
            assert_eq!(holds.at(before).0, ["c1/1"], "after beat {second}");
        }
        assert_eq!(lease(LEASE), LEASE, "a longer lease is unchanged");
    }

    #[test]
    fn a_drained_run_trains_full_batches_before_a_new_hold() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let may = |phase, kept: &[&str], asked: &[&str]| may_begin(phase, &names(kept), &names(asked));
        for phase in [RunPhase::Running, RunPhase::Paused, RunPhase::Draining] {
            assert!(may(phase, &[], &[]), "no coordinator asks");
            assert!(may(phase, &["c/1"], &[]), "it is taken back");
            assert!(
                !may(phase, &["c/1"], &["c/1"]),
                "it is kept, and an evaluation may be running"
            );
            let last = phase == RunPhase::Draining;
            assert_eq!(may(phase, &[], &["c/1"]), last);
            assert_eq!(may(phase, &["c/1"], &["c/2"]), last, "the kept hold is an earlier one");
        }
    }

    proptest! {
        /// Whatever was received: a lease after the last heartbeat nothing is held.
        #[test]
        fn no_hold_stands_a_lease_after_the_last_heartbeat(
            said in prop::collection::vec((0..3u8, 0..40u64, prop::option::of(0..3u8), 0..20u64), 0..40)
        ) {
            let (mut holds, mut now) = holds();
            for (coordinator, seq, name, pause) in said {
                now += seconds(pause);
                let name = name.map(|name| name.to_string());
                let before = holds.standing(now);
                let changed = holds.record(&coordinator.to_string(), seq, name.as_deref(), now);
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
