//! Admission alone: what it takes, asks for and claims.

use std::sync::Arc;

use broker::protocol::reserve::ReserveAnswer;
use broker::store::Claim;

use super::*;
use crate::coordinator::actor::bench::{Bench, task};

fn candidate(id: &str) -> Candidate {
    let task: Arc<_> = task(id);
    Candidate {
        body: broker::codec::encode_json(task.as_ref()).into(),
        task,
        id: id.into(),
        order: None,
        delivery: None,
        held: false,
    }
}

fn answer(agent: &str, group: GroupId, verdict: ReserveVerdict) -> ReserveAnswerFrame {
    ReserveAnswerFrame {
        agent: agent.into(),
        answers: vec![ReserveAnswer { group, verdict }],
    }
}

async fn admission() -> (Bench, Admission) {
    let bench = Bench::new(|_| {}).await;
    let feed = Feed::open(&bench.env().config).unwrap();
    (bench, Admission::new(feed))
}

#[tokio::test]
async fn a_group_is_claimed_after_every_ledger_has_it() {
    let (bench, mut admission) = admission().await;
    let (env, trainers) = (bench.env(), bench.env().trainers());
    let group = GroupId::new(&env.run, "t");
    assert_eq!(admission.take(group, candidate("t"), false).group, Some(group));
    assert_eq!(
        admission.take(group, candidate("t"), false).group,
        None,
        "it is under way"
    );
    let asked = admission.requests(&[group], env);
    assert_eq!((asked.len(), asked[0].0.as_str()), (1, "a"));
    assert!(admission.due(Instant::now()).is_empty(), "the request was just sent");
    let ignored = admission.answered(answer("b", group, ReserveVerdict::Granted), &trainers);
    assert!(ignored.next.is_empty(), "b was not asked yet");
    let first = admission.answered(answer("a", group, ReserveVerdict::Granted), &trainers);
    assert_eq!(first.next, [group]);
    let mut last = admission.answered(answer("b", group, ReserveVerdict::Granted), &trainers);
    let (claimed, admitting) = last.claims.remove(0);
    assert_eq!(claimed, group);
    assert_eq!(admission.begin_claim(group, admitting), None);
    assert!(admission.claims(&group) && !admission.is_idle());
}

#[tokio::test]
async fn a_dead_task_is_not_asked_for_again() {
    let (bench, mut admission) = admission().await;
    let group = GroupId::new(&bench.env().run, "t");
    admission.take(group, candidate("t"), false);
    let reason = "the reason".to_owned();
    let dead = answer("a", group, ReserveVerdict::Dead { reason });
    let found = admission.answered(dead, &bench.env().trainers());
    assert!(found.claims.is_empty() && admission.is_idle());
}

#[tokio::test]
async fn an_owner_that_lives_keeps_its_group() {
    let (bench, mut admission) = admission().await;
    let group = GroupId::new(&bench.env().run, "t");
    admission.begin_claim(group, Admitting::new(candidate("t"), 0));
    let theirs = |beat| {
        let owner = "another".to_owned();
        Ok(Claim::Theirs { owner, beat, fence: 1 })
    };
    let Claiming::Watch(admitting) = admission.claimed(group, theirs(1)) else {
        panic!("the first look watches");
    };
    admission.begin_claim(group, admitting);
    assert!(
        matches!(admission.claimed(group, theirs(2)), Claiming::Leave),
        "its beat has moved"
    );
    assert!(admission.is_idle());
}

#[test]
fn requests_are_split_by_number_and_by_bytes() {
    let request = |bytes: usize| Reserve {
        group: GroupId::new(&RunId::new("r").unwrap(), "t"),
        task: "t".into(),
        order: 0,
        body: vec![0; bytes],
        seal: None,
    };
    let lengths = |sizes: &[usize]| {
        let requests = sizes.iter().map(|size| request(*size)).collect();
        frames(requests, 100).map(|frame| frame.len()).collect::<Vec<_>>()
    };
    assert_eq!(lengths(&[]), [0; 0]);
    assert_eq!(lengths(&[1; 65]), [64, 1]);
    assert_eq!(lengths(&[50, 50, 1]), [2, 1]);
    assert_eq!(lengths(&[500, 60, 60, 40]), [1, 1, 2]);
}
