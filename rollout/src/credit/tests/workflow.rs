//! The whole way from `solve-verify` to advantages, against gradients in closed form.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use broker::ids::{Attempt, GroupId};
use broker::protocol::bundle::BundleContent;
use broker::protocol::task::Task;
use broker::{AgentName, RoleName};
use configs::{Advantage, GraderConfig, WorkflowConfig};

use super::super::*;
use crate::advantage;
use crate::group::{GroupHead, GroupRun, Rules, RunSpec, Wanted, assemble};
use crate::sample::tests::generation;
use crate::shuffle::SplitMix;
use crate::workflow::Workflow;
use crate::workflows::build;

const ROLES: [&str; 3] = ["solver", "verifier", "retry"];

fn solve_verify() -> (Arc<dyn Workflow>, Rules) {
    let config: WorkflowConfig = serde_json::from_value(serde_json::json!({
        "kind": "solve-verify", "group_size": MEMBERS, "params": {"prompts": "short"},
        "roles": {"solver": "a", "verifier": "a", "retry": "a"},
    }))
    .unwrap();
    let grader: GraderConfig = serde_json::from_value(serde_json::json!({"kind": "integer"})).unwrap();
    let graders = BTreeMap::from([("correct".to_owned(), grader)]);
    let workflow = build(&config, &graders, &BTreeMap::new()).unwrap_or_else(|problems| panic!("{problems:?}"));
    let rules = Rules::new(
        &config,
        &workflow.roles(),
        BTreeSet::from([AgentName::new("a").unwrap()]),
    );
    (workflow, rules)
}

#[test]
fn every_part_of_solve_verify_is_a_fair_credit() {
    let term = |name, settled| Term { name, settled };
    for spec in solve_verify().0.roles() {
        let turn = ROLES.iter().position(|role| *role == spec.name.as_str()).unwrap();
        for (part, _) in &spec.parts {
            let (added, subtracted) = match *part {
                "correct" => (vec![term("its own score", turn)], vec![]),
                "verdict" => (vec![term("verdict", 1)], vec![]),
                "gain" => (vec![term("s2", 2)], vec![term("s1", 0)]),
                new => panic!("{new} of {}: what settles it?", spec.name),
            };
            assert_eq!(check(turn, &added, &subtracted), Ok(()), "{part} of {}", spec.name);
        }
    }
}

const MEMBERS: u16 = 4;
/// The first attempt is right; a right attempt is rejected; a wrong one is rejected; the retry is
/// right.
const RIGHT: f64 = 0.4;
const REJECT: [f64; 2] = [0.2, 0.7];
const MENDED: f64 = 0.6;

/// Answers drawn as coins. The one token of each generation says what was drawn: 1 for right or
/// rejecting.
fn answer(run: &GroupRun, wanted: &Wanted, random: &mut SplitMix) -> (bool, String) {
    let first_right = run
        .events(wanted.key.member)
        .first()
        .is_some_and(|event| event.text == "5");
    let drawn = |chance: f64, random: &mut SplitMix| random.unit() < chance;
    let number = |right: bool| if right { "5" } else { "4" }.to_owned();
    match wanted.key.role.as_str() {
        "solver" => {
            let right = drawn(RIGHT, random);
            (right, number(right))
        }
        "verifier" => {
            let rejects = drawn(REJECT[usize::from(!first_right)], random);
            (rejects, if rejects { "reject" } else { "approve" }.to_owned())
        }
        _ => {
            let right = drawn(MENDED, random);
            (right, number(right))
        }
    }
}

/// The policy gradient of one group, per logit: solver, verifier on wrong and on right attempts,
/// retry.
fn gradient(workflow: &Arc<dyn Workflow>, rules: &Rules, random: &mut SplitMix) -> [f64; 4] {
    let spec = RunSpec {
        workflow: workflow.clone(),
        task: Arc::new(Task::parse(br#"{"prompt": "2+3=", "label": 5}"#, 100).unwrap()),
        task_id: "t".into(),
        run_seed: 0,
        group_size: MEMBERS,
        retries: 1,
        min_valid: rules.min_valid,
    };
    let mut run = GroupRun::new(spec);
    let mut first_right = BTreeMap::new();
    while !run.is_done() {
        for wanted in run.take_wanted() {
            let (drawn, text) = answer(&run, &wanted, random);
            if wanted.key.role.as_str() == "solver" {
                first_right.insert(wanted.key.member, drawn);
            }
            let mut turn = generation(&[7], &[u32::from(drawn)]);
            turn.text = text;
            run.on_result(wanted.key, turn).unwrap();
        }
    }
    let head = GroupHead {
        group: GroupId([0; 16]),
        attempt: Attempt([0; 16]),
        task: "t".into(),
        order: 0,
    };
    let bundle = assemble(&head, rules, &run.finish())
        .bundles
        .remove(&AgentName::new("a").unwrap())
        .unwrap();
    let BundleContent::Samples(samples) = bundle.content else {
        panic!("empty")
    };
    let advantages = advantage::of_group(Advantage::Loo, &samples).values;
    let mut gradient = [0.0; 4];
    for (sample, advantage) in samples.iter().zip(advantages) {
        let drawn = f64::from(sample.rows[0].ids[1]);
        let right = first_right[&sample.member];
        let (logit, chance) = match sample.role.as_str() {
            "solver" => (0, RIGHT),
            "verifier" => (if right { 2 } else { 1 }, REJECT[usize::from(!right)]),
            _ => (3, MENDED),
        };
        gradient[logit] += advantage * (drawn - chance);
    }
    gradient
}

#[test]
fn solve_verify_trains_its_stated_objectives() {
    let n = f64::from(MEMBERS);
    let slope = |p: f64| p * (1.0 - p);
    // The verifier earns [verdict right] + 0.5 (s2 - s1 if it rejected).
    let wrong = n * (1.0 - RIGHT) * slope(REJECT[1]) * (1.0 + 0.5 * MENDED);
    let right = n * RIGHT * slope(REJECT[0]) * (0.5 * (MENDED - 1.0) - 1.0);
    // A retry that is alone in its group has no comparison and earns 0.
    let tried = RIGHT * REJECT[0] + (1.0 - RIGHT) * REJECT[1];
    let compared = n * tried * (1.0 - (1.0 - tried).powi(i32::from(MEMBERS) - 1));
    let truth = [n * slope(RIGHT), wrong, right, compared * slope(MENDED)];

    let (workflow, rules) = solve_verify();
    assert_eq!(rules.weights[&RoleName::new("verifier").unwrap()]["gain"], 0.5);
    let mut random = SplitMix::new(3);
    let groups = 4000;
    let (mut sums, mut squares) = ([0.0; 4], [0.0; 4]);
    for _ in 0..groups {
        let found = gradient(&workflow, &rules, &mut random);
        for ((sum, square), found) in sums.iter_mut().zip(&mut squares).zip(found) {
            *sum += found;
            *square += found * found;
        }
    }
    let count = f64::from(groups);
    for (logit, name) in ["solver", "verifier on wrong", "verifier on right", "retry"]
        .iter()
        .enumerate()
    {
        let mean = sums[logit] / count;
        let error = ((squares[logit] / count - mean * mean) / count).sqrt();
        let off = (mean - truth[logit]) / error;
        assert!(
            off.abs() <= 3.0,
            "{name}: {mean:.4} for {:.4}, {off:.1} standard errors",
            truth[logit]
        );
        // Precise enough to detect a part that is missing or counted twice.
        assert!(
            error < 0.05 * truth[logit].abs(),
            "{name}: {error:.4} of {:.4}",
            truth[logit]
        );
    }
}
