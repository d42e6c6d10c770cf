use super::*;
use proptest::prelude::*;

fn request(id: u8) -> RequestId {
    RequestId([id; 16])
}

fn group(id: u8) -> GroupId {
    GroupId([id; 16])
}

const LIMITS: Limits = Limits {
    max_lag: 1,
    imbalance: 2,
    groups: 8,
};

fn router(engines: usize) -> ReplicaPicker {
    ReplicaPicker::new(LIMITS, engines)
}

#[test]
fn first_turns_of_a_group_share_an_engine() {
    let mut router = router(2);
    let first: Vec<_> = (0..3)
        .map(|m| router.assign(request(m), group(1), u16::from(m)))
        .collect();
    assert_eq!(first, [0, 0, 0]);
    assert_eq!(router.assign(request(10), group(2), 0), 1);
    // Three against one is within the imbalance of two, and four against one is not.
    assert_eq!(router.assign(request(3), group(1), 3), 0);
    assert_eq!(router.assign(request(4), group(1), 4), 1);
}

#[test]
fn a_conversation_stays_where_it_was_until_that_is_loaded() {
    let mut router = router(2);
    assert_eq!(router.assign(request(0), group(1), 0), 0);
    assert_eq!(router.assign(request(9), group(2), 0), 1);
    assert_eq!(
        (router.finish(request(0)), router.finish(request(9))),
        (Some(0), Some(1))
    );
    assert_eq!(router.finish(request(9)), None);
    assert_eq!(
        router.assign(request(1), group(2), 0),
        1,
        "engine 0 is as free and comes first"
    );
    assert_eq!(router.assign(request(1), group(3), 7), 1, "it is there already");
    for id in 20..23 {
        router.assign(request(id), group(2), 0);
    }
    assert_eq!(router.loads(), [1, 3], "the last one was beyond the imbalance");
    assert_eq!(
        router.assign(request(30), group(2), 0),
        0,
        "and its conversation's home moved with it"
    );
}

#[test]
fn an_engine_that_is_behind_gets_nothing_new() {
    let mut router = router(2);
    router.assign(request(0), group(1), 0);
    router.serves(1, 2);
    assert_eq!(
        router.assign(request(1), group(1), 0),
        1,
        "its home is two steps behind"
    );
    router.serves(0, 1);
    for id in 2..4 {
        router.assign(request(id), group(2), 0);
    }
    assert_eq!(router.loads(), [3, 1], "one step is no lag");
    assert_eq!(router.finish(request(0)), Some(0), "what it had, it kept");
}

#[test]
fn requests_of_an_absent_engine_move_to_another() {
    let mut router = router(2);
    for id in 0..2 {
        assert_eq!(router.assign(request(id), group(1), u16::from(id)), 0);
    }
    router.serves(0, 9);
    router.is_away(0, true);
    assert_eq!(router.assign(request(7), group(1), 0), 1, "its home is away, and newer");
    assert_eq!(router.release(), [(request(0), 0), (request(1), 0)]);
    assert_eq!(router.loads(), [0, 1]);
    assert_eq!(router.assign(request(0), group(1), 0), 1);
    router.is_away(1, true);
    assert!(router.release().is_empty(), "no engine is there to take requests");
    assert_eq!(router.assign(request(1), group(1), 1), 0);
    router.is_away(0, false);
    assert_eq!(router.release(), [(request(0), 1), (request(7), 1)]);
}

proptest! {
    /// Each request has one engine or none, and a stale engine gets no new request.
    #[test]
    fn every_request_has_one_engine(
        events in prop::collection::vec((0u8..4, 0u8..24, 0u8..12, 0u16..3, 0u64..5), 1..200)
    ) {
        let mut router = router(3);
        let mut with: BTreeMap<RequestId, EngineId> = BTreeMap::new();
        let mut steps = [0; 3];
        for (what, r, g, m, step) in events {
            match what {
                0 | 1 => {
                    let engine = router.assign(request(r), group(g), m);
                    if let Some(before) = with.insert(request(r), engine) {
                        prop_assert_eq!(before, engine, "it is there already");
                    } else {
                        let newest = steps.iter().max().unwrap();
                        prop_assert!(newest - steps[engine] <= LIMITS.max_lag);
                    }
                }
                2 => prop_assert_eq!(router.finish(request(r)), with.remove(&request(r))),
                _ => {
                    steps[usize::from(r % 3)] = step;
                    router.serves(usize::from(r % 3), step);
                }
            }
            let loads: Vec<usize> = (0..3).map(|e| with.values().filter(|w| **w == e).count()).collect();
            prop_assert_eq!(router.loads(), loads);
            let (groups, entries) = router.affinity.sizes();
            prop_assert!(groups <= LIMITS.groups && entries <= LIMITS.groups + 1);
        }
    }
}
