use std::sync::Arc;

use broker::protocol::task::{Prompt, Task};
use proptest::prelude::*;

use super::*;
use crate::sample::Malformed;
use crate::sample::tests::generation;
use crate::workflow::{Part, RoleSpec, SeatReward, Step, Workflow};

/// Two writers speak at once and each once more after a reader has spoken; then it ends.
struct Panel;

fn role(name: &str) -> RoleName {
    RoleName::new(name).unwrap()
}

fn ask(name: &str, seat: u16, turn: u16) -> Ask {
    Ask {
        role: role(name),
        seat,
        turn,
        messages: Vec::new(),
        max_new_tokens: None,
        stop: Vec::new(),
    }
}

impl Workflow for Panel {
    fn kind(&self) -> &'static str {
        "panel"
    }
    fn roles(&self) -> Vec<RoleSpec> {
        vec![]
    }
    fn check_task(&self, _: &Task) -> Result<(), String> {
        Ok(())
    }
    fn step(&self, _: &Task, _: u64, events: &[Event]) -> Step {
        let count = |name| events.iter().filter(|e| e.role.as_str() == name).count();
        match (count("writer"), count("reader")) {
            (0..2, _) => Step::Ask(vec![ask("writer", 1, 0), ask("writer", 0, 0)]),
            (2, 0) => Step::Ask(vec![ask("reader", 0, 0)]),
            (2..4, _) => Step::Ask(vec![ask("writer", 0, 1), ask("writer", 1, 1)]),
            _ => Step::Done(Outcome {
                rewards: vec![SeatReward {
                    role: role("reader"),
                    seat: 0,
                    subkey: String::new(),
                    target: None,
                    parts: vec![Part {
                        name: "order",
                        value: events.len() as f32,
                    }],
                }],
                metrics: vec![],
            }),
        }
    }
}

/// Asks for a generation that is impossible.
struct Stuck(u16);

impl Workflow for Stuck {
    fn kind(&self) -> &'static str {
        "stuck"
    }
    fn roles(&self) -> Vec<RoleSpec> {
        vec![]
    }
    fn check_task(&self, _: &Task) -> Result<(), String> {
        Ok(())
    }
    fn step(&self, _: &Task, _: u64, _: &[Event]) -> Step {
        Step::Ask(if self.0 == 0 {
            vec![]
        } else {
            vec![ask("writer", 0, self.0)]
        })
    }
}

fn spec(group_size: u16, min_valid: usize) -> RunSpec {
    let task = Task {
        id: None,
        workflow: None,
        prompt: Prompt::Text("go".into()),
        label: serde_json::Value::Null,
        metadata: serde_json::Map::new(),
        tools: None,
    };
    RunSpec {
        workflow: Arc::new(Panel),
        task: Arc::new(task),
        task_id: "t/0".into(),
        run_seed: 1,
        group_size,
        retries: 2,
        min_valid,
    }
}

fn key(member: u16, name: &str, seat: u16, turn: u16) -> TurnKey {
    TurnKey {
        member,
        role: role(name),
        seat,
        turn,
    }
}

/// An answer that is a function of the request.
fn answer(wanted: &Wanted) -> Generation {
    let mut prompt = wanted.held.clone();
    prompt.push(100 + u32::from(wanted.key.seat));
    generation(&prompt, &[(wanted.seed % 50) as u32, u32::from(wanted.key.turn)])
}

#[test]
fn asks_come_in_order_and_once() {
    let mut run = GroupRun::new(spec(2, 1));
    let keys = |wanted: &[Wanted]| wanted.iter().map(|w| w.key.clone()).collect::<Vec<_>>();
    let first = run.take_wanted();
    let all = [
        key(0, "writer", 0, 0),
        key(0, "writer", 1, 0),
        key(1, "writer", 0, 0),
        key(1, "writer", 1, 0),
    ];
    assert_eq!(keys(&first), all);
    assert_eq!(first[0].seed, seed(1, "t/0", &all[0]));
    assert!(run.take_wanted().is_empty());
    assert_eq!(keys(&run.wanted()), all);
    run.requeue(&all[2]);
    assert_eq!(keys(&run.take_wanted()), all[2..3]);
    run.requeue_roles(|role| role.as_str() == "writer");
    assert_eq!(keys(&run.take_wanted()), all);
    run.on_result(all[1].clone(), answer(&first[1])).unwrap();
    assert!(run.take_wanted().is_empty(), "the other writer is still in flight");
    run.on_result(all[0].clone(), answer(&first[0])).unwrap();
    assert_eq!(keys(&run.take_wanted()), [key(0, "reader", 0, 0)]);
}

#[test]
fn a_seat_holds_its_own_ids_and_no_other() {
    let mut run = GroupRun::new(spec(1, 1));
    let (mut second_turns, mut turns) = (Vec::new(), 0);
    while !run.is_done() {
        for wanted in run.take_wanted() {
            if wanted.key.turn == 1 {
                second_turns.push((wanted.key.seat, wanted.held[0], wanted.held.len()));
            }
            // Its one answer so far, of two tokens, after a prompt of one token.
            assert_eq!(wanted.sampled, if wanted.held.is_empty() { 0 } else { 2 });
            turns += 1;
            run.on_result(wanted.key.clone(), answer(&wanted)).unwrap();
        }
    }
    assert_eq!((turns, second_turns), (5, vec![(0, 100, 3), (1, 101, 3)]));
    assert_eq!(run.events(0).len(), 5);
    assert!(run.outcome(0).is_some());
}

#[test]
fn held_ids_that_did_not_travel_are_put_back() {
    // The same group three times: with whole prompts, with the parts of them that the agent leaves
    // out, and restored from those.
    let compact = |wanted: &Wanted| {
        let mut made = answer(wanted);
        // One held id fewer than there are: the last one may have been cut off.
        let kept = wanted.held.len().saturating_sub(1);
        made.prompt_ids.drain(..kept);
        made.kept = kept as u32;
        made
    };
    let play = |answer: &dyn Fn(&Wanted) -> Generation| {
        let (mut run, mut log) = (GroupRun::new(spec(2, 1)), Vec::new());
        while !run.is_done() {
            for wanted in run.take_wanted() {
                log.push((wanted.key.clone(), answer(&wanted)));
                run.on_result(wanted.key.clone(), answer(&wanted)).unwrap();
            }
        }
        (run.finish(), log)
    };
    let (whole, _) = play(&answer);
    let (put_back, log) = play(&compact);
    assert!(log.iter().any(|(_, made)| made.kept > 0), "something was left out");
    assert_eq!(put_back, whole);
    assert_eq!(GroupRun::restore(spec(2, 1), log).unwrap().finish(), whole);
}

#[test]
fn a_prompt_of_more_held_ids_than_there_are_is_refused() {
    let mut run = GroupRun::new(spec(1, 1));
    let wanted = run.take_wanted().remove(0);
    let mut forged = answer(&wanted);
    forged.kept = 1;
    assert_eq!(
        run.on_result(wanted.key, forged),
        Err(Refusal::Malformed(Malformed::Kept { kept: 1, held: 0 }))
    );
}

#[test]
fn a_result_counts_once_and_only_where_it_is_wanted() {
    let mut run = GroupRun::new(spec(1, 1));
    let wanted = run.take_wanted().remove(0);
    let reader = key(0, "reader", 0, 0);
    assert_eq!(
        run.on_result(reader.clone(), generation(&[1], &[2])),
        Err(Refusal::Unwanted(reader))
    );
    let broken = generation(&[], &[2]);
    assert_eq!(
        run.on_result(wanted.key.clone(), broken),
        Err(Refusal::Malformed(Malformed::NoPrompt))
    );
    assert!(run.events(0).is_empty());
    assert_eq!(run.on_result(wanted.key.clone(), answer(&wanted)), Ok(()));
    assert_eq!(
        run.on_result(wanted.key.clone(), answer(&wanted)),
        Err(Refusal::Unwanted(wanted.key))
    );
    let absent = key(9, "writer", 0, 0);
    assert_eq!(
        run.on_result(absent.clone(), generation(&[1], &[2])),
        Err(Refusal::Unwanted(absent))
    );
}

#[test]
fn a_failed_turn_is_asked_again_until_its_tries_are_spent() {
    let mut run = GroupRun::new(spec(2, 1));
    let wanted = run.take_wanted();
    assert_eq!(
        run.on_failure(&wanted[0].key, &Failure::other("no memory"), true),
        Some(false)
    );
    assert_eq!(run.take_wanted(), wanted[..1], "the same request with the same seed");
    assert_eq!(
        run.on_failure(&wanted[0].key, &Failure::other("no memory"), true),
        Some(true)
    );
    assert_eq!(
        run.on_failure(&wanted[0].key, &Failure::other("no memory"), true),
        None,
        "its conversation has ended"
    );
    assert_eq!(run.wanted().len(), 2, "only the other conversation goes on");
    assert_eq!(
        run.on_failure(&wanted[2].key, &Failure::other("the context is too long"), false),
        Some(true)
    );
    assert!(run.is_done());
    let reasons: Vec<_> = run
        .finish()
        .into_iter()
        .map(|end| match end {
            MemberEnd::Failed { failure, .. } => failure.reason,
            MemberEnd::Ended { .. } => panic!("ended"),
        })
        .collect();
    assert!(
        reasons[0].contains("no memory") && reasons[0].contains("2 tries"),
        "{reasons:?}"
    );
    assert_eq!(reasons[1], "the context is too long");
}

#[test]
fn a_success_clears_the_strikes_of_its_turn_alone() {
    let mut run = GroupRun::new(spec(1, 1));
    let wanted = run.take_wanted();
    assert_eq!(run.on_failure(&wanted[0].key, &Failure::other("x"), true), Some(false));
    assert_eq!(run.on_failure(&wanted[1].key, &Failure::other("x"), true), Some(false));
    run.on_result(wanted[0].key.clone(), answer(&wanted[0])).unwrap();
    assert_eq!(run.on_failure(&wanted[1].key, &Failure::other("x"), true), Some(true));
    let MemberEnd::Failed { turns, .. } = run.finish().remove(0) else {
        panic!("ended")
    };
    let said: Vec<&TurnKey> = turns.iter().map(|(key, _)| key).collect();
    assert_eq!(said, [&wanted[0].key], "what was said before it failed can be read");
}

#[test]
fn a_group_that_can_no_longer_train_is_abandoned() {
    let mut run = GroupRun::new(spec(4, 3));
    run.give_up(0, Failure::other("x"));
    assert!(!run.is_done());
    run.give_up(3, Failure::other("x"));
    assert!(run.is_done() && run.take_wanted().is_empty());
}

#[test]
fn what_was_decided_to_have_failed_has_failed_for_its_reason() {
    let mut run = GroupRun::new(spec(3, 3));
    run.give_up_all([(0, "x"), (2, "y"), (9, "unknown")].map(|(member, why)| (member, Failure::engine(why))));
    assert!(run.is_done() && run.wanted().is_empty());
    let failures: Vec<Failure> = run
        .finish()
        .into_iter()
        .map(|end| match end {
            MemberEnd::Failed { failure, .. } => failure,
            MemberEnd::Ended { .. } => Failure::other("ended"),
        })
        .collect();
    assert_eq!(failures, [Failure::engine("x"), abandoned(), Failure::engine("y")]);
    assert!(failures[1].to_string().starts_with("too many"), "{failures:?}");
}

#[test]
fn a_workflow_that_would_never_end_fails_its_conversations() {
    for (turn, words) in [(0, "asks for nothing"), (5, "asks for turn 5 of writer/0")] {
        let run = GroupRun::new(RunSpec {
            workflow: Arc::new(Stuck(turn)),
            ..spec(1, 1)
        });
        assert!(run.is_done());
        assert!(matches!(&run.finish()[0], MemberEnd::Failed { failure, .. } if failure.reason.contains(words)));
    }
}

proptest! {
    /// For every order of answers, failures and takeovers, every turn counts once and every
    /// conversation ends. A group rebuilt from its committed turns wants exactly the same turns as
    /// the first group.
    #[test]
    fn any_order_ends_and_any_takeover_agrees(choices in prop::collection::vec((any::<prop::sample::Index>(), 0u8..10), 60)) {
        let spec = spec(3, 1);
        let mut run = GroupRun::new(spec.clone());
        let (mut flying, mut committed) = (Vec::new(), Vec::new());
        for (pick, fate) in choices {
            flying.extend(run.take_wanted());
            if flying.is_empty() {
                break;
            }
            let wanted: Wanted = flying.remove(pick.index(flying.len()));
            match fate {
                0 => {
                    run = GroupRun::restore(spec.clone(), committed.clone()).unwrap();
                    flying.clear();
                }
                1 => run.requeue(&wanted.key),
                _ => {
                    let answer = answer(&wanted);
                    prop_assert_eq!(run.on_result(wanted.key.clone(), answer.clone()), Ok(()));
                    committed.push((wanted.key, answer));
                }
            }
            let again = GroupRun::restore(spec.clone(), committed.clone()).unwrap();
            prop_assert_eq!(again.wanted(), run.wanted());
        }
        let mut keys: Vec<_> = committed.iter().map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys.dedup();
        prop_assert_eq!(keys.len(), committed.len());
        prop_assert_eq!(run.is_done(), committed.len() == 15);
    }
}
