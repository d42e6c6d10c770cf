use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn request(id: u8) -> RequestId {
    RequestId([id; 16])
}

fn group(id: u8) -> GroupId {
    GroupId([id; 16])
}

const LIMITS: Limits = Limits {
    in_flight: 4,
    max_lag: 1,
    imbalance: 2,
    groups: 8,
};

fn router(engines: u32) -> Router {
    let mut router = Router::new(LIMITS);
    for engine in 0..engines {
        router.engine_up(engine, 0);
    }
    router
}

#[test]
fn a_groups_first_turns_go_together_and_the_next_group_elsewhere() {
    let mut router = router(2);
    let first: Vec<_> = (0..3)
        .map(|m| router.assign(request(m), group(1), u16::from(m)))
        .collect();
    assert_eq!(first, [Ok(0), Ok(0), Ok(0)]);
    assert_eq!(router.assign(request(10), group(2), 0), Ok(1));
    // Three against one is within the imbalance of two; four against one is not.
    assert_eq!(router.assign(request(3), group(1), 3), Ok(0));
    assert_eq!(router.assign(request(4), group(1), 4), Ok(1));
}

#[test]
fn a_conversation_stays_where_its_cache_is() {
    let mut router = router(2);
    assert_eq!(router.assign(request(0), group(1), 0), Ok(0));
    assert_eq!(router.assign(request(9), group(2), 0), Ok(1));
    assert_eq!(router.finish(request(0)), Some(0));
    assert_eq!(router.finish(request(9)), Some(1));
    assert_eq!(
        router.assign(request(1), group(2), 0),
        Ok(1),
        "engine 0 is as free and has the lower id"
    );
    // Loaded by more than the imbalance, it is left, and the conversation's home moves with it.
    for id in 20..23 {
        router.assign(request(id), group(2), 0).unwrap();
    }
    let with_0 = |router: &Router| router.loads().next().unwrap().1;
    assert_eq!(with_0(&router), 1);
    assert_eq!(router.assign(request(30), group(2), 0), Ok(0));
}

#[test]
fn what_is_full_refuses_and_says_so() {
    let mut router = router(1);
    assert_eq!(router.room(), 4);
    for id in 0..4 {
        router.assign(request(id), group(1), 0).unwrap();
    }
    assert_eq!(router.assign(request(9), group(1), 0), Err(Refusal::Full { limit: 4 }));
    assert_eq!(router.assign(request(2), group(1), 0), Err(Refusal::Assigned(0)));
    assert_eq!((router.room(), router.in_flight()), (0, 4));
    router.finish(request(2));
    assert_eq!(router.finish(request(2)), None);
    assert_eq!(router.assign(request(9), group(1), 0), Ok(0));
    assert_eq!(
        Router::new(LIMITS).assign(request(0), group(0), 0),
        Err(Refusal::NoEngine { up: 0, behind: 0 })
    );
}

#[test]
fn an_engine_that_is_behind_gets_nothing_new() {
    let mut router = router(2);
    router.assign(request(0), group(1), 0).unwrap();
    router.published(2);
    assert_eq!(
        router.assign(request(1), group(1), 0),
        Err(Refusal::NoEngine { up: 2, behind: 2 })
    );
    router.engine_up(1, 1);
    assert_eq!(router.assign(request(1), group(1), 0), Ok(1), "its home is behind");
    router.engine_up(0, 2);
    assert_eq!(router.finish(request(0)), Some(0), "what it had, it keeps");
    for id in 2..5 {
        router.assign(request(id), group(1), 0).unwrap();
    }
    assert_eq!(router.loads().collect::<Vec<_>>(), [(0, 1), (1, 3)]);
}

#[test]
fn the_requests_of_a_dead_engine_come_back() {
    let mut router = router(2);
    for id in [3, 1, 2] {
        router.assign(request(id), group(1), 0).unwrap();
    }
    assert_eq!(router.engine_down(0), [request(1), request(2), request(3)]);
    assert_eq!((router.in_flight(), router.finish(request(1))), (0, None));
    assert_eq!(
        router.assign(request(1), group(1), 0),
        Ok(1),
        "nothing sticks to the dead"
    );
    assert!(router.engine_down(7).is_empty());
}

#[derive(Debug, Clone)]
enum Event {
    Assign(u8, u8, u16),
    Finish(u8),
    Down(EngineId),
    Up(EngineId, u64),
    Published(u64),
    Forget(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let assign = (0u8..24, 0u8..12, 0u16..3).prop_map(|(r, g, m)| Event::Assign(r, g, m));
    prop_oneof![
        6 => assign,
        4 => (0u8..24).prop_map(Event::Finish),
        1 => (0u32..3).prop_map(Event::Down),
        2 => (0u32..3, 0u64..5).prop_map(|(engine, step)| Event::Up(engine, step)),
        1 => (0u64..5).prop_map(Event::Published),
        1 => (0u8..12).prop_map(Event::Forget),
    ]
}

proptest! {
    /// Against a plain model: each request is with exactly one living engine or with none, none over its limit, nothing
    /// new on one that is behind, and nothing is refused while an engine could take it.
    #[test]
    fn no_request_is_lost_or_assigned_twice(events in prop::collection::vec(event(), 1..200)) {
        let mut router = Router::new(LIMITS);
        let (mut with, mut up): (BTreeMap<RequestId, EngineId>, BTreeMap<EngineId, u64>) = Default::default();
        let mut newest: u64 = 0;
        for event in events {
            let load = |with: &BTreeMap<RequestId, EngineId>, engine| with.values().filter(|w| **w == engine).count();
            match event {
                Event::Assign(r, g, m) => match router.assign(request(r), group(g), m) {
                    Ok(engine) => {
                        prop_assert!(newest.saturating_sub(up[&engine]) <= LIMITS.max_lag);
                        prop_assert!(with.insert(request(r), engine).is_none());
                        prop_assert!(load(&with, engine) <= LIMITS.in_flight);
                    }
                    Err(Refusal::Assigned(engine)) => prop_assert_eq!(with.get(&request(r)), Some(&engine)),
                    Err(refusal) => {
                        let current: BTreeSet<_> = up.iter().filter(|(_, s)| newest.saturating_sub(**s) <= LIMITS.max_lag).map(|(e, _)| *e).collect();
                        prop_assert!(current.iter().all(|e| load(&with, *e) == LIMITS.in_flight));
                        prop_assert_eq!(matches!(refusal, Refusal::NoEngine { .. }), current.is_empty());
                    }
                },
                Event::Finish(r) => prop_assert_eq!(router.finish(request(r)), with.remove(&request(r))),
                Event::Down(engine) => {
                    let lost: Vec<_> = with.iter().filter(|(_, e)| **e == engine).map(|(r, _)| *r).collect();
                    prop_assert_eq!(router.engine_down(engine), lost);
                    with.retain(|_, e| *e != engine);
                    up.remove(&engine);
                }
                Event::Up(engine, step) => {
                    router.engine_up(engine, step);
                    up.insert(engine, step);
                }
                Event::Published(step) => {
                    router.published(step);
                    newest = step;
                }
                Event::Forget(g) => router.forget(group(g)),
            }
            prop_assert_eq!(router.in_flight(), with.len());
            for (engine, count) in router.loads() {
                prop_assert_eq!(count, load(&with, engine));
            }
            let (groups, entries) = router.affinity.sizes();
            prop_assert!(groups <= LIMITS.groups && entries <= 2 * LIMITS.groups + 65);
        }
    }
}
