//! Play alone: what groups need, waves, and results.

use broker::ids::Attempt;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{TurnFrame, TurnOutcome};

use super::*;
use crate::coordinator::actor::bench::{Bench, generation, result, speaker};

/// A play with one open group of four conversations.
async fn play() -> (Bench, Play, GroupId, Lease) {
    let mut bench = Bench::new(|_| {}).await;
    let (group, lease) = bench.open("t").await;
    let open = bench.take_open(&group);
    let mut play = Play::default();
    play.insert(group, open);
    (bench, play, group, lease)
}

fn turns(steps: Vec<Step>) -> usize {
    let turns = |step: Step| match step {
        Step::Ask(_, turns) => turns.len(),
        Step::Close(_) => 0,
    };
    steps.into_iter().map(turns).sum()
}

#[tokio::test]
async fn a_group_is_asked_for_once_and_closed_at_its_end() {
    let (_bench, mut play, group, _) = play().await;
    assert!(play.is_between_waves());
    assert_eq!(turns(play.take_steps()), 4);
    assert!(!play.is_between_waves(), "turns are outstanding");
    assert!(play.take_steps().is_empty(), "nothing has happened since");
    (0..4).for_each(|member| play.give_up(group, member, Failure::other("for the test")));
    assert_eq!(play.take_steps(), [Step::Close(group)]);
    assert!(play.begin_close(&group) && !play.begin_close(&group));
}

#[tokio::test]
async fn a_group_is_closed_after_its_last_commit() {
    let (_bench, mut play, group, lease) = play().await;
    play.mark_dead(group, Failure::other("for the test"));
    assert!(play.begin_commit(&group).is_some());
    assert!(play.take_steps().is_empty(), "its commit is under way");
    assert_eq!(play.end_commit(group, None), CommitEnd::Stale, "another lease");
    assert_eq!(play.end_commit(group, Some(lease)), CommitEnd::Ours);
    assert_eq!(play.take_steps(), [Step::Close(group)]);
}

#[tokio::test]
async fn a_wave_is_complete_with_its_last_result() {
    let (_bench, mut play, group, lease) = play().await;
    let results: Vec<TurnResult> = (0..2)
        .map(|member| result(lease, &speaker(member), TurnOutcome::Done(generation(7))))
        .collect();
    let missing = results.iter().map(|result| result.request).collect();
    let agent = AgentName::new("a").unwrap();
    let frame = TurnFrame {
        reply_to: "us".into(),
        wave: None,
        prompts: Vec::new(),
        samplings: Vec::new(),
        requests: Vec::new(),
    };
    play.begin_wave(missing, vec![(agent.clone(), frame)]);
    assert!(
        play.has_wave() && play.wave_of(&agent).is_empty(),
        "it asks a for nothing"
    );
    let (stale, whole) = play.add_to_wave(vec![results[0].clone(), results[0].clone()], None);
    assert!(stale == 1 && whole.is_none());
    let (_, whole) = play.add_to_wave(vec![results[1].clone()], None);
    assert_eq!(whole.unwrap().0, results);
    assert!(!play.has_wave() && play.has(&group));
}

#[tokio::test]
async fn results_of_another_attempt_are_stale() {
    let (bench, play, _, lease) = play().await;
    let of = |lease: Lease| result(lease, &speaker(0), TurnOutcome::Done(generation(7)));
    let other = Lease {
        attempt: Attempt([9; 16]),
        ..lease
    };
    let sorted = play.sort(bench.specs(), vec![of(other), of(lease), of(lease)]);
    assert_eq!((sorted.stale, sorted.by_group.len()), (1, 1));
    assert_eq!(sorted.by_group[&lease.group].len(), 1, "copies count once");
}

#[tokio::test(start_paused = true)]
async fn silent_turns_are_wanted_again() {
    let (_bench, mut play, _, _) = play().await;
    play.take_steps();
    play.requeue_silent(|_, _| true);
    assert!(play.take_steps().is_empty(), "they are not silent yet");
    tokio::time::advance(SILENT * 2).await;
    play.requeue_silent(|_, _| false);
    assert!(play.take_steps().is_empty(), "their agent is away");
    play.requeue_silent(|_, _| true);
    assert_eq!(turns(play.take_steps()), 4);
}
