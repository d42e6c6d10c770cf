//! Statistics of conversations that are made by hand.

use broker::protocol::failure::Failure;
use broker::protocol::turn::Finish;
use rollout::workflow::Part;

use super::*;
use crate::coordinator::actor::bench::generation;
use crate::run_folder::tests::config_in;

fn talk(dominance: f64) -> ConversationStats {
    let mut config = config_in(std::path::Path::new("runs"));
    let agents: Vec<AgentName> = config.agents.keys().cloned().collect();
    config.workflow.kind = "doctor-patient".into();
    config.workflow.roles = [role("doctor"), role("patient")].into_iter().zip(agents).collect();
    config.workflow.reward.clear();
    config.workflow.params = "turns = 2".parse().unwrap();
    config.workflow.dominance = dominance;
    for agent in config.agents.values_mut() {
        agent.train.batch_groups = 1;
    }
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
    ConversationStats::new(&config, workflow.as_ref())
}

fn role(name: &str) -> RoleName {
    RoleName::new(name).unwrap()
}

/// Turns of (role, tokens, cut), each role's reward, and how well the team did.
fn member(turns: &[(&str, usize, bool)], rewards: &[(&str, f32)], success: f64) -> MemberEnd {
    let turn = |(at, (name, tokens, cut)): (usize, &(&str, usize, bool))| {
        let key = TurnKey {
            member: 0,
            role: role(name),
            seat: 0,
            turn: at as u16,
        };
        let finish = if *cut { Finish::Length } else { Finish::Stop };
        let made = Generation {
            output_ids: vec![0; *tokens],
            finish,
            ..generation(0)
        };
        (key, made)
    };
    let seat = |(name, value): &(&str, f32)| SeatReward {
        role: role(name),
        seat: 0,
        subkey: String::new(),
        target: None,
        parts: vec![Part {
            name: "all",
            value: *value,
        }],
    };
    MemberEnd::Ended {
        outcome: Outcome {
            rewards: rewards.iter().map(seat).collect(),
            metrics: vec![("success", success)],
        },
        turns: turns.iter().enumerate().map(turn).collect(),
    }
}

fn line(talk: &mut ConversationStats, members: &[MemberEnd]) -> Option<Metrics> {
    let is_cut = |_: &TurnKey, made: &Generation| made.finish == Finish::Length;
    talk.add(members, |seat| f64::from(seat.parts[0].value), is_cut);
    talk.line(7)
}

#[test]
fn turns_tokens_and_shares_are_those_of_the_conversations() {
    let mut talk = talk(0.9);
    assert_eq!(talk.most_turns, Some(3));
    let members = [
        member(
            &[("doctor", 2, false), ("patient", 1, false), ("doctor", 3, true)],
            &[("doctor", 1.0), ("patient", 0.5)],
            1.0,
        ),
        member(&[("doctor", 2, false)], &[("doctor", 0.0)], 0.0),
        MemberEnd::Failed {
            failure: Failure::other("x"),
            turns: Vec::new(),
        },
    ];
    let line = line(&mut talk, &members).unwrap();
    for (name, value) in [
        ("conversations", 2.0),
        ("multi_agent/avg_turns", 2.0),
        ("multi_agent/early_termination_rate", 0.5),
        ("multi_agent/truncation_rate", 0.5),
        ("multi_agent/conversation_token_count", 4.0),
        ("multi_agent/conversation_token_count/p95", 6.0),
        ("loss_mask/role_split", 0.875),
        ("loss_mask/role_split/doctor", 0.875),
        ("loss_mask/role_split/patient", 0.125),
        ("reward/avg", 0.5),
        ("reward/avg/doctor", 0.5),
        ("reward/avg/patient", 0.5),
        ("success", 0.5),
    ] {
        assert_eq!(
            line.get(name).and_then(serde_json::Value::as_f64),
            Some(value),
            "{name}"
        );
    }
    assert!(talk.line(8).is_none(), "a line needs a batch of its own");
}

#[test]
fn a_grade_is_no_turn() {
    let said = [("doctor", 2, false), ("patient", 1, false)];
    let lengths = |more: &[(&str, usize, bool)]| {
        let line = line(&mut talk(0.9), &[member(&[&said, more].concat(), &[], 1.0)]).unwrap();
        ["multi_agent/avg_turns", "multi_agent/early_termination_rate"]
            .map(|name| line.get(name).and_then(serde_json::Value::as_f64))
    };
    assert_eq!(lengths(&[]), [Some(2.0), Some(1.0)]);
    for other in ["grade-doctor", "workflow", "tool-search"] {
        assert_eq!(lengths(&[(other, 5, false)]), lengths(&[]), "{other}");
    }
    assert_eq!(lengths(&[("doctor", 1, false)]), [Some(3.0), Some(0.0)]);
}

/// The judging turns of `self-reward` are like this: many tokens, in no loss.
#[test]
fn who_earns_nothing_has_no_part_of_what_is_trained_on() {
    let mut talk = talk(0.8);
    let members = [member(
        &[("doctor", 1, false), ("patient", 99, false)],
        &[("doctor", 1.0)],
        1.0,
    )];
    let found = line(&mut talk, &members).unwrap();
    assert_eq!(found.get("loss_mask/role_split/doctor"), Some(&1.0.into()));
    assert_eq!(found.get("loss_mask/role_split/patient"), None);
    talk.trained.remove(&role("patient"));
    line(&mut talk, &members).unwrap();
    assert_eq!(talk.dominant, None, "a single trained role gives no warning");
}

#[test]
fn roles_that_earn_nothing_are_not_trained() {
    let mut config = config_in(std::path::Path::new("runs"));
    let agent = config.agents.keys().next().cloned().unwrap();
    config.workflow.kind = "self-reward".into();
    config.workflow.roles = [role("answerer"), role("grader")]
        .map(|role| (role, agent.clone()))
        .into();
    config.workflow.reward.clear();
    config.workflow.params = toml::Table::new();
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
    assert!(
        ConversationStats::new(&config, workflow.as_ref())
            .trained
            .iter()
            .eq([&role("answerer")])
    );
}

#[test]
fn a_role_that_says_nearly_everything_is_named_while_it_does() {
    let mut talk = talk(0.8);
    let both = [("doctor", 1.0), ("patient", 1.0)];
    let said =
        |doctor: usize, patient: usize| member(&[("doctor", doctor, false), ("patient", patient, false)], &both, 0.0);
    line(&mut talk, &[said(9, 1)]).unwrap();
    assert_eq!(talk.dominant, Some(role("doctor")));
    line(&mut talk, &[said(8, 2)]).unwrap();
    assert_eq!(talk.dominant, None, "at the bound is within it");
    line(&mut talk, &[member(&[("doctor", 9, false)], &both[..1], 0.0)]).unwrap();
    assert_eq!(talk.dominant, Some(role("doctor")), "the other fell silent");
}

#[test]
fn a_role_that_gains_while_the_team_loses_is_named() {
    let mut talk = talk(1.0);
    // Chances of (success, doctor, patient) among 100 conversations.
    let window = |success: usize, doctor: usize, patient: usize| -> Vec<MemberEnd> {
        let one = |i: usize| {
            let flag = |n: usize| f32::from(u8::from(i < n));
            let rewards = [("doctor", flag(doctor)), ("patient", flag(patient))];
            member(
                &[("doctor", 1, false), ("patient", 1, false)],
                &rewards,
                f64::from(flag(success)),
            )
        };
        (0..100).map(one).collect()
    };
    line(&mut talk, &window(60, 50, 20)).unwrap();
    line(&mut talk, &window(58, 48, 60)).unwrap();
    assert_eq!(talk.eating, None, "within the noise the team does as well");
    line(&mut talk, &window(20, 10, 60)).unwrap();
    assert_eq!(talk.eating, Some(role("patient")));
    line(&mut talk, &window(20, 10, 20)).unwrap();
    assert_eq!(talk.eating, None, "no role gains");
    line(&mut talk, &window(90, 90, 60)).unwrap();
    assert_eq!(talk.eating, None);
}
