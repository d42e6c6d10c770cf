use super::*;

fn name(text: &str) -> AgentName {
    AgentName::new(text).unwrap()
}

fn beat(agent: &str, step: u64, ready: u64, reserved: u64, closed: u64) -> Heartbeat {
    Heartbeat {
        version: WeightVersion { lineage: 0, step },
        step,
        capacity: 8 - ready as i64 - reserved as i64,
        ready,
        reserved,
        closed,
        ..crate::testing::heartbeat(&name(agent))
    }
}

fn gate(mode: Mode) -> Gate {
    Gate::new(mode, BTreeMap::from([(name("a"), 4), (name("b"), 8)]))
}

#[test]
fn nothing_is_admitted_before_all_sent_a_heartbeat() {
    let mut gate = gate(Mode::Sync);
    gate.beat(&beat("a", 0, 0, 0, 0), Instant::now());
    assert_eq!(gate.room(0), 0);
    gate.beat(&beat("b", 0, 0, 0, 0), Instant::now());
    assert_eq!(gate.room(0), 4, "the least batch");
    assert_eq!(gate.room(1), 0, "one round at a time");
}

#[test]
fn an_old_heartbeat_does_not_open_the_next_round() {
    let mut gate = gate(Mode::Sync);
    gate.beat(&beat("a", 0, 0, 0, 0), Instant::now());
    gate.beat(&beat("b", 0, 0, 0, 0), Instant::now());
    gate.sent(4);
    assert_eq!(gate.room(0), 0, "both still speak of before the round");
    assert!(!gate.nothing_reserved(), "what was sent has not arrived");
    gate.beat(&beat("a", 1, 0, 0, 4), Instant::now());
    gate.beat(&beat("b", 0, 4, 0, 4), Instant::now());
    assert_eq!(gate.room(0), 4);
    gate.sent(4);
    gate.beat(&beat("b", 0, 8, 0, 8), Instant::now());
    gate.beat(&beat("a", 2, 0, 0, 8), Instant::now());
    assert_eq!(gate.room(0), 0, "b holds a batch it has not trained");
    let mut trained = beat("b", 1, 0, 0, 8);
    trained.version.step = 0;
    gate.beat(&trained, Instant::now());
    assert_eq!(gate.room(0), 0, "b's engine does not serve the new weights yet");
    gate.beat(&beat("b", 1, 0, 0, 8), Instant::now());
    assert_eq!(gate.room(0), 4);
}

#[test]
fn a_goal_out_of_reach_is_given_up_when_the_agent_is_quiet() {
    let mut gate = gate(Mode::Sync);
    let start = Instant::now();
    gate.beat(&beat("a", 0, 0, 0, 0), start);
    gate.beat(&beat("b", 0, 0, 0, 0), start);
    gate.sent(4);
    gate.beat(&beat("b", 0, 4, 0, 4), start);
    gate.beat(&beat("a", 1, 0, 0, 3), start);
    assert_eq!(gate.room(0), 0, "a had one of the bundles before");
    gate.beat(&beat("a", 1, 0, 1, 3), start + QUIET / 2);
    gate.beat(&beat("a", 1, 0, 0, 3), start + QUIET);
    assert_eq!(gate.room(0), 0, "it was not quiet in between");
    gate.beat(&beat("a", 1, 0, 0, 3), start + QUIET * 2);
    assert_eq!(gate.room(0), 4);
}

/// The drawn version follows from the other agent's step. A round that began before that version is
/// served would be played against an undefined version.
#[test]
fn a_round_waits_for_who_plays_with_the_past() {
    let past = crate::turn::past::tests::past("p", 0);
    let gate = |mode| gate(mode).with_pasts([(name("p"), past.clone())]);
    let serves = |version, serving| Heartbeat {
        version,
        serving,
        ..beat("p", 0, 0, 0, 0)
    };
    let mut sync = gate(Mode::Sync);
    sync.beat(&beat("a", 0, 0, 0, 0), Instant::now());
    sync.beat(&beat("b", 0, 0, 0, 0), Instant::now());
    assert_eq!(
        (sync.room(0), sync.idle(), sync.still()),
        (0, false, false),
        "no heartbeat of p arrived"
    );
    let waits_for = |gate: &Gate| {
        gate.waits_for()
            .map(|(agent, past)| (agent.clone(), past.config.of.clone()))
    };
    assert_eq!(waits_for(&sync), Some((name("p"), name("a"))));
    sync.beat(&serves(past.expected(0), false), Instant::now());
    assert_eq!(sync.room(0), 0, "p does not serve");
    sync.beat(&beat("a", 0, 0, 1, 0), Instant::now());
    assert_eq!(waits_for(&sync), None, "something else is waited for too");
    sync.beat(&beat("a", 0, 0, 0, 0), Instant::now());
    sync.beat(&serves(past.expected(0), true), Instant::now());
    assert_eq!(waits_for(&sync), None);
    assert_eq!((sync.room(0), sync.idle(), sync.still()), (4, true, true));
    sync.beat(&beat("a", 9, 0, 0, 0), Instant::now());
    assert_eq!(sync.room(0), 4, "there is no renewal before step 10");
    sync.beat(&beat("a", 10, 0, 0, 0), Instant::now());
    assert_eq!((sync.room(0), sync.idle(), sync.still()), (0, false, false));
    sync.beat(&serves(past.expected(10), true), Instant::now());
    assert_eq!(sync.room(0), 4);
    let mut without = gate(Mode::Async);
    without.beat(&beat("a", 10, 0, 0, 0), Instant::now());
    without.beat(&beat("b", 0, 0, 0, 0), Instant::now());
    assert_eq!(without.room(0), 8, "it comes when it comes");
    assert_eq!(waits_for(&without), None);
}

/// Without rounds only an evaluation waits for a renewal, since it must be of one version of it.
#[test]
fn an_evaluation_waits_for_the_due_past_and_its_hold() {
    let past = crate::turn::past::tests::past("p", 0);
    let mut gate = gate(Mode::Async).with_pasts([(name("p"), past.clone())]);
    let holding = |agent: &str, step: u64| Heartbeat {
        holding: vec!["c/1".to_owned()],
        ..beat(agent, step, 0, 0, 0)
    };
    let now = Instant::now();
    gate.beat(&holding("a", 10), now);
    gate.beat(&holding("b", 0), now);
    assert_eq!(gate.held("c/1"), None, "no heartbeat of p arrived");
    let plays = |version, serving, held: bool| Heartbeat {
        version,
        serving,
        holding: holding("p", 0).holding.into_iter().filter(|_| held).collect(),
        ..beat("p", 0, 0, 0, 0)
    };
    let (before, due) = (past.version(0, 0), past.version(1, 0));
    for (version, serving, held) in [(due, true, false), (due, false, true), (before, true, true)] {
        gate.beat(&plays(version, serving, held), now);
        assert_eq!(gate.held("c/1"), None, "{version:?} {serving} {held}");
    }
    let version = |step| WeightVersion { lineage: 0, step };
    // Any step of that renewal, and any later renewal.
    for serves in [due, past.version(1, 10), past.version(2, 10)] {
        gate.beat(&plays(serves, true, true), now);
        let held = BTreeMap::from([(name("a"), version(10)), (name("b"), version(0)), (name("p"), serves)]);
        assert_eq!(gate.held("c/1"), Some(held));
    }
    assert_eq!(gate.held("c/2"), None, "another hold");
}

/// A heartbeat that says nothing is reserved may be older than what was sent.
#[test]
fn nothing_is_reserved_only_when_all_that_was_sent_has_arrived() {
    let mut gate = gate(Mode::Async);
    gate.beat(&beat("a", 0, 0, 0, 0), Instant::now());
    assert!(!gate.nothing_reserved(), "no heartbeat of b arrived");
    gate.beat(&beat("b", 0, 0, 0, 0), Instant::now());
    assert!(gate.nothing_reserved() && gate.settled() && gate.still());
    gate.sent(1);
    assert!(!gate.nothing_reserved() && !gate.settled() && !gate.still());
    gate.beat(&beat("a", 0, 1, 0, 1), Instant::now());
    gate.beat(&beat("b", 0, 0, 1, 0), Instant::now());
    assert!(!gate.nothing_reserved(), "b's bundle is under way");
    gate.beat(&beat("b", 0, 1, 0, 1), Instant::now());
    assert!(gate.nothing_reserved() && gate.settled());
    gate.beat(&beat("b", 0, 1, 3, 1), Instant::now());
    assert!(gate.still() && !gate.nothing_reserved(), "rows that wait move nothing");
    gate.beat(&beat("b", 0, 8, 0, 1), Instant::now());
    assert!(!gate.still(), "a full batch is about to be trained");
}

/// Heartbeats from before the hold, or from a step under way, begin no evaluation.
#[test]
fn all_hold_when_each_says_so_and_serves_what_it_made() {
    let mut gate = gate(Mode::Async);
    let holding = |agent: &str, step: u64, held: &[&str]| Heartbeat {
        holding: held.iter().map(|name| (*name).to_owned()).collect(),
        ..beat(agent, step, 0, 0, 0)
    };
    let now = Instant::now();
    gate.beat(&holding("a", 3, &["c/2"]), now);
    assert_eq!(gate.held("c/2"), None, "no heartbeat of b arrived");
    gate.beat(&holding("b", 5, &[]), now);
    assert_eq!(gate.held("c/2"), None, "b goes on");
    gate.beat(&holding("b", 5, &["c/1"]), now);
    assert_eq!(gate.held("c/2"), None, "b holds for what was before");
    let mut late = holding("b", 6, &["c/2"]);
    late.version.step = 5;
    gate.beat(&late, now);
    assert_eq!(gate.held("c/2"), None, "b's engine does not serve its newest weights");
    gate.beat(&holding("b", 6, &["d/1", "c/2"]), now);
    let version = |step| WeightVersion { lineage: 0, step };
    let held = BTreeMap::from([(name("a"), version(3)), (name("b"), version(6))]);
    assert_eq!(gate.held("c/2"), Some(held));
}

/// A joint snapshot need not wait for an evaluation.
#[test]
fn an_agent_that_holds_is_still_however_full() {
    let mut gate = gate(Mode::Async);
    gate.beat(&beat("a", 0, 0, 0, 0), Instant::now());
    let full = beat("b", 0, 8, 0, 0);
    gate.beat(&full, Instant::now());
    assert!(!gate.still() && !gate.idle());
    let holding = vec!["c/1".to_owned()];
    gate.beat(&Heartbeat { holding, ..full }, Instant::now());
    assert!(gate.still() && gate.idle());
}

#[test]
fn a_group_that_closed_empty_is_replaced() {
    let mut gate = gate(Mode::Sync);
    gate.beat(&beat("a", 0, 0, 0, 0), Instant::now());
    gate.beat(&beat("b", 0, 0, 0, 0), Instant::now());
    gate.sent(4);
    gate.beat(&beat("a", 0, 3, 0, 4), Instant::now());
    gate.beat(&beat("b", 0, 3, 0, 4), Instant::now());
    assert_eq!(gate.room(0), 1);
}

#[test]
fn asynchronous_room_is_the_least_capacity_less_what_is_open() {
    let mut gate = gate(Mode::Async);
    gate.beat(&beat("a", 0, 2, 1, 0), Instant::now());
    gate.beat(&beat("b", 0, 0, 1, 0), Instant::now());
    assert_eq!(gate.room(1), 5, "the one reserved group is the open one");
    assert_eq!(gate.room(6), 0);
}
