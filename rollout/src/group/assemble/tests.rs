use super::super::compare_lengths;
use super::*;
use crate::sample::tests::generation;
use crate::workflow::Part;
use broker::protocol::bundle::Sample;
use broker::protocol::turn::LogProbs;

fn role(name: &str) -> RoleName {
    RoleName::new(name).unwrap()
}

fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

fn key(member: u16, name: &str, turn: u16) -> TurnKey {
    TurnKey {
        member,
        role: role(name),
        seat: 0,
        turn,
    }
}

fn seat(name: &str, parts: &[(&'static str, f32)]) -> SeatReward {
    let parts = parts.iter().map(|(name, value)| Part { name, value: *value }).collect();
    SeatReward {
        role: role(name),
        seat: 0,
        subkey: String::new(),
        target: None,
        parts,
    }
}

/// Solver and verifier speak once each; the verifier's `gain` has weight 0.5.
fn rules(min_group: f64) -> Rules {
    let config: WorkflowConfig = serde_json::from_value(serde_json::json!({
        "kind": "solve-verify", "group_size": 4, "min_group": min_group,
        "roles": {"solver": "a", "retry": "a", "verifier": "b", "judge": "c"},
        "reward": {"verifier": {"gain": 0.5}},
    }))
    .unwrap();
    let spec = |name, parts: &[(&'static str, f64)]| RoleSpec {
        name: role(name),
        parts: parts.to_vec(),
    };
    let specs = [
        spec("solver", &[("correct", 2.0)]),
        spec("retry", &[("correct", 1.0)]),
        spec("verifier", &[("verdict", 1.0), ("gain", 0.0)]),
    ];
    Rules::new(&config, &specs, BTreeSet::from([agent("a"), agent("b")]))
}

fn head() -> GroupHead {
    GroupHead {
        group: GroupId([7; 16]),
        attempt: Attempt([1; 16]),
        task: "t".into(),
        order: 3,
    }
}

fn ended(member: u16, correct: f32) -> MemberEnd {
    MemberEnd::Ended {
        outcome: Outcome {
            rewards: vec![
                seat("verifier", &[("verdict", 1.0), ("gain", correct)]),
                seat("solver", &[("correct", correct)]),
            ],
            metrics: vec![("success", f64::from(correct))],
        },
        turns: vec![
            (key(member, "verifier", 0), generation(&[5], &[6])),
            (key(member, "solver", 0), generation(&[1, 2], &[3, 4])),
        ],
    }
}

fn failed() -> MemberEnd {
    MemberEnd::Failed {
        failure: Failure::other("the engine is gone"),
        turns: vec![(key(0, "solver", 0), generation(&[1, 2], &[3, 4]))],
    }
}

fn samples(bundle: &Bundle) -> &[Sample] {
    match &bundle.content {
        BundleContent::Samples(samples) => samples,
        BundleContent::Empty { reason } | BundleContent::Dead { reason } => panic!("empty: {reason}"),
    }
}

fn change(end: &mut MemberEnd, change: impl FnOnce(&mut Outcome, &mut Vec<(TurnKey, Generation)>)) {
    match end {
        MemberEnd::Ended { outcome, turns } => change(outcome, turns),
        MemberEnd::Failed { .. } => panic!("failed"),
    }
}

#[test]
fn each_training_agent_gets_its_own_seats_with_weighted_rewards() {
    let members = [ended(0, 1.0), ended(1, 0.0), failed(), ended(3, 1.0)];
    let Assembled { bundles, summary } = assemble(&head(), &rules(0.75), &members);
    // `judge` is played by c, which is frozen, so there is no bundle.
    assert_eq!(bundles.keys().cloned().collect::<Vec<_>>(), [agent("a"), agent("b")]);
    let a = &bundles[&agent("a")];
    let of = |bundle| {
        samples(bundle)
            .iter()
            .map(|s| (s.member, s.role.clone(), s.reward))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(a),
        [
            (0, "solver".into(), 2.0),
            (1, "solver".into(), 0.0),
            (3, "solver".into(), 2.0)
        ]
    );
    assert_eq!(
        of(&bundles[&agent("b")]),
        [
            (0, "verifier".into(), 1.5),
            (1, "verifier".into(), 1.0),
            (3, "verifier".into(), 1.5)
        ]
    );
    assert_eq!((a.conversations, a.part, a.parts, a.order), (3, 0, 1, 3));
    assert_eq!(a.digest, digest(a));
    assert_eq!((summary.conversations, summary.valid, summary.tokens), (4, 3, 9));
    assert_eq!(
        summary.failed,
        BTreeMap::from([(Failure::other("the engine is gone"), 1)])
    );
    assert!((summary.rewards[&role("verifier")] - 4.0 / 3.0).abs() < 1e-12);
    assert!((summary.metrics["success"] - 2.0 / 3.0).abs() < 1e-12);
}

#[test]
fn a_group_below_its_least_closes_empty_for_all_with_one_reason() {
    let members = [ended(0, 1.0), ended(1, 0.0), failed(), failed()];
    let Assembled { bundles, summary } = assemble(&head(), &rules(0.75), &members);
    let reason = summary.empty.unwrap();
    assert!(
        reason.contains("2 of 4") && reason.contains("the engine is gone"),
        "{reason}"
    );
    for bundle in bundles.values() {
        assert_eq!(bundle.content, BundleContent::Empty { reason: reason.clone() });
    }
    // ceil(0.5 * 4) = 2 are enough.
    assert_eq!(assemble(&head(), &rules(0.5), &members).summary.empty, None);
}

#[test]
fn a_missing_reward_takes_its_seat_out_and_no_other() {
    let mut members = [ended(0, 1.0), ended(1, 0.0), ended(2, 0.0), ended(3, 1.0)];
    change(&mut members[1], |outcome, _| {
        outcome.rewards[0].parts[0].value = f32::NAN
    });
    let Assembled { bundles, summary } = assemble(&head(), &rules(0.75), &members);
    let members_of = |agent| samples(&bundles[&agent]).iter().map(|s| s.member).collect::<Vec<_>>();
    assert_eq!(members_of(agent("a")), [0, 1, 2, 3]);
    assert_eq!(members_of(agent("b")), [0, 2, 3]);
    assert_eq!(
        (bundles[&agent("a")].conversations, bundles[&agent("b")].conversations),
        (4, 3)
    );
    assert_eq!(
        (summary.valid, summary.failed[&Failure::other("its reward is missing")]),
        (3, 1)
    );
    change(&mut members[2], |_, turns| turns[0].1.logprobs[0] = f32::NAN);
    let empty = assemble(&head(), &rules(0.75), &members).summary.empty.unwrap();
    assert!(
        empty.contains("role verifier") && empty.contains("reward is missing"),
        "{empty}"
    );
}

#[test]
fn a_role_that_was_never_reached_makes_nothing_invalid() {
    // Retry is played in conversation 2 only.
    let mut members = [ended(0, 1.0), ended(1, 1.0), ended(2, 0.0), ended(3, 1.0)];
    change(&mut members[2], |outcome, turns| {
        outcome.rewards.push(seat("retry", &[("correct", 1.0)]));
        turns.push((key(2, "retry", 0), generation(&[1, 2], &[9])));
    });
    let Assembled { bundles, summary } = assemble(&head(), &rules(1.0), &members);
    assert_eq!(summary.empty, None);
    let roles: Vec<_> = samples(&bundles[&agent("a")])
        .iter()
        .map(|s| (s.member, s.role.as_str()))
        .collect();
    assert_eq!(
        roles,
        [(0, "solver"), (1, "solver"), (2, "retry"), (2, "solver"), (3, "solver")]
    );
}

#[test]
fn an_agent_without_seats_gets_an_empty_bundle() {
    let mut members = [ended(0, 1.0), ended(1, 1.0), ended(2, 0.0), ended(3, 1.0)];
    for member in &mut members {
        change(member, |outcome, _| drop(outcome.rewards.remove(0)));
    }
    let Assembled { bundles, summary } = assemble(&head(), &rules(1.0), &members);
    assert_eq!(summary.empty, None);
    assert_eq!(samples(&bundles[&agent("a")]).len(), 4);
    assert!(matches!(bundles[&agent("b")].content, BundleContent::Empty { .. }));
}

#[test]
fn what_a_workflow_gets_wrong_is_not_trained() {
    let mut members = [ended(0, 1.0), ended(1, 1.0), ended(2, 0.0), ended(3, 1.0)];
    change(&mut members[0], |outcome, _| {
        let twice = outcome.rewards[0].clone();
        outcome.rewards.push(twice);
    });
    change(&mut members[1], |_, turns| drop(turns.remove(0)));
    let summary = assemble(&head(), &rules(0.5), &members).summary;
    assert_eq!(
        summary.failed[&Failure::other("the workflow rewarded one seat twice")],
        2
    );
    assert_eq!(
        summary.failed[&Failure::other("a seat was rewarded that never spoke")],
        1
    );
    assert_eq!(summary.valid, 2);
}

#[test]
fn the_order_of_turns_and_rewards_does_not_reach_the_digest() {
    let members = [ended(0, 1.0), ended(1, 0.0), ended(2, 0.0), ended(3, 1.0)];
    let mut shuffled = members.clone();
    for member in &mut shuffled {
        change(member, |outcome, turns| {
            outcome.rewards.reverse();
            turns.reverse();
        });
    }
    let digests = |members| {
        let bundles = assemble(&head(), &rules(0.75), members).bundles;
        bundles.into_values().map(|b| b.digest).collect::<Vec<_>>()
    };
    assert_eq!(digests(&members), digests(&shuffled));
    let another = GroupHead {
        attempt: Attempt([2; 16]),
        order: 9,
        ..head()
    };
    let again = assemble(&another, &rules(0.75), &members).bundles;
    assert_eq!(
        digests(&members),
        again.into_values().map(|b| b.digest).collect::<Vec<_>>()
    );
}

#[test]
fn a_turn_at_its_token_limit_marks_its_sample_truncated() {
    let mut members = [ended(0, 1.0), ended(1, 0.0), ended(2, 0.0), ended(3, 1.0)];
    change(&mut members[2], |_, turns| turns[1].1.finish = Finish::Length);
    let Assembled { bundles, summary } = assemble(&head(), &rules(0.75), &members);
    let statuses: Vec<_> = samples(&bundles[&agent("a")]).iter().map(|s| s.status).collect();
    use SampleStatus::{Completed, Truncated};
    assert_eq!(statuses, [Completed, Completed, Truncated, Completed]);
    assert_eq!(summary.truncated, 1);
}

#[test]
fn bounded_turn_at_its_limit_is_whole() {
    let mut members = [ended(0, 1.0), ended(1, 0.0), ended(2, 0.0), ended(3, 1.0)];
    for member in &mut members {
        change(member, |_, turns| turns[1].1.finish = Finish::Length);
    }
    let bounded = |tokens: u32| Rules {
        whole_turns: [(role("solver"), tokens)].into(),
        ..rules(0.75)
    };
    for (tokens, truncated) in [(2, 0), (3, 4)] {
        let summary = assemble(&head(), &bounded(tokens), &members).summary;
        assert_eq!(
            summary.truncated, truncated,
            "turns have 2 tokens, and {tokens} are whole"
        );
    }
}

#[test]
fn a_trained_agent_must_sample_and_a_frozen_one_may_be_greedy() {
    let greedy = |who: &str| {
        let mut members = [ended(0, 1.0), ended(1, 0.0)];
        for (member, end) in members.iter_mut().enumerate() {
            change(end, |outcome, turns| {
                outcome.rewards.push(seat("judge", &[("correct", 1.0)]));
                turns.push((key(member as u16, "judge", 0), generation(&[5], &[6])));
                let turn = turns.iter_mut().find(|(key, _)| key.role == role(who));
                turn.unwrap().1.temperature = 0.0;
            });
        }
        assemble(&head(), &rules(0.25), &members).summary.empty
    };
    assert_eq!(greedy("judge"), None);
    let said = greedy("solver").unwrap();
    assert!(said.contains("greedily"), "{said}");
}

#[test]
fn only_a_trained_agent_needs_log_probs_of_its_sampling() {
    let empty = |who: &str, of: LogProbs| {
        let mut members = [ended(0, 1.0), ended(1, 0.0)];
        for (member, end) in members.iter_mut().enumerate() {
            change(end, |outcome, turns| {
                outcome.rewards.push(seat("judge", &[("correct", 1.0)]));
                turns.push((key(member as u16, "judge", 0), generation(&[5], &[6])));
                let turn = turns.iter_mut().find(|(key, _)| key.role == role(who));
                turn.unwrap().1.logprobs_of = of;
            });
        }
        assemble(&head(), &rules(0.25), &members).summary.empty
    };
    for of in [LogProbs::Tempered, LogProbs::Raw, LogProbs::Unknown, LogProbs::Absent] {
        assert_eq!(empty("judge", of), None);
        let said = empty("solver", of).unwrap();
        assert!(said.contains(&format!("sampled from ({})", of.name())), "{said}");
    }
    for of in [LogProbs::Sampled, LogProbs::Truncated] {
        assert_eq!(empty("solver", of), None);
    }
}

#[test]
fn lengths_are_compared_over_the_group_where_that_is_asked_for() {
    let mut rules = rules(0.5);
    let solver = rules.weights.get_mut(&role("solver")).unwrap();
    // A weight without a spec belongs to a part of a program's own.
    solver.insert("length_penalty".into(), 2.0);
    let mut alone = [ended(0, 1.0)];
    compare_lengths(&rules, &mut alone);
    assert_eq!(alone, [ended(0, 1.0)]);
    rules.compared.insert(role("solver"));
    let mut members = [ended(0, 1.0), ended(1, 1.0), ended(2, 0.0), failed()];
    // The solvers sampled 2, 4 and 2 tokens.
    change(&mut members[1], |_, turns| {
        turns[1].1 = generation(&[1, 2], &[3, 4, 5, 6])
    });
    compare_lengths(&rules, &mut members);
    let bundles = assemble(&head(), &rules, &members).bundles;
    let of = |name: &str| -> Vec<f32> { samples(&bundles[&agent(name)]).iter().map(|s| s.reward).collect() };
    // 2 x correct + 2 x (0.5, -0.5, 0): the wrong answer is as short as the shortest and gains
    // nothing.
    assert_eq!(of("a"), [3.0, 1.0, 0.0]);
    assert_eq!(of("b"), [1.5, 1.5, 1.0]);
    let first = &samples(&bundles[&agent("a")])[0];
    let parts: Vec<(&str, f32)> = first
        .parts
        .iter()
        .map(|part| (part.name.as_str(), part.value))
        .collect();
    assert_eq!(parts, [("correct", 1.0), ("length_penalty", 0.5)]);
}

#[test]
fn answers_to_another_problem_are_compared_with_their_own() {
    let mut rules = rules(0.5);
    rules.compared.insert(role("solver"));
    let mut members = [ended(0, 1.0), ended(1, 1.0), ended(2, 1.0), ended(3, 1.0)];
    for (member, (problem, tokens)) in members.iter_mut().zip([("a", 9), ("a", 9), ("b", 1), ("b", 3)]) {
        change(member, |outcome, turns| {
            outcome.rewards[1].subkey = problem.into();
            turns[1].1 = generation(&[1, 2], &vec![3; tokens]);
        });
    }
    compare_lengths(&rules, &mut members);
    let penalty = |end: &MemberEnd| match end {
        MemberEnd::Ended { outcome, .. } => outcome.rewards[1].parts.last().unwrap().value,
        MemberEnd::Failed { .. } => panic!("failed"),
    };
    assert_eq!(members.iter().map(penalty).collect::<Vec<_>>(), [0.0, 0.0, 0.5, -0.5]);
}
