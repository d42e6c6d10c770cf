use super::super::testing::{any_events, check_total, config, event, graders, problems, task};
use super::*;
use crate::workflows::build;
use proptest::prelude::*;

const SOLVE: [&str; 3] = ["solver", "verifier", "retry"];

fn role(name: &str) -> RoleName {
    RoleName::new(name).unwrap()
}

fn solve_verify(shaping: &str, credit: &str) -> WorkflowConfig {
    let mut config = config("solve-verify", &SOLVE, "prompts = \"short\"");
    config.shaping = toml::from_str(shaping).unwrap();
    config.credit = toml::from_str(credit).unwrap();
    config
}

fn built(config: &WorkflowConfig) -> Result<Arc<dyn Workflow>, Vec<Problem>> {
    build(config, &graders("integer"), &BTreeMap::new())
}

/// s1 = 0, a right rejection, s2 = 1; the solver sampled 7 tokens, as all do here.
fn rescued(config: &WorkflowConfig) -> Vec<SeatReward> {
    let events = [
        event("solver", 0, "6"),
        event("verifier", 0, "reject"),
        event("retry", 0, "5"),
    ];
    match built(config).unwrap().step(&task("2+3=", 5.into()), 0, &events) {
        Step::Done(outcome) => outcome.rewards,
        other => panic!("{other:?}"),
    }
}

fn parts(seat: &SeatReward) -> Vec<(&'static str, f32)> {
    seat.parts.iter().map(|part| (part.name, part.value)).collect()
}

#[test]
fn lengths_are_parts_in_addition_to_the_workflows_own() {
    let config = solve_verify(
        "solver = { overlong = { from = 6, to = 8, penalty = 2.0 }, length = { target = 14, weight = 0.5 } }",
        "",
    );
    let rewards = rescued(&config);
    // n = 7: -(7 - 6) / (8 - 6) x 2; -0.5 x 7 / 14.
    assert_eq!(
        parts(&rewards[0]),
        [("correct", 0.0), ("overlong", -1.0), ("length", -0.25)]
    );
    assert_eq!(parts(&rewards[1]), [("verdict", 1.0), ("gain", 1.0)]);
    let counted = counted(&config, &built(&config).unwrap().roles());
    assert_eq!(part_weights::total(&counted, &rewards[0]), -1.25);
}

#[test]
fn an_operator_stands_in_the_place_of_the_workflows_parts() {
    let mut config = solve_verify(
        "retry = { overlong = { from = 1, to = 2 } }",
        "solver = \"shared\"\nverifier = \"own\"\nretry = { difference = \"solver\" }",
    );
    assert_eq!(
        problems(built(&config).map(|_| ())),
        ["workflow.credit.solver"],
        "gains count"
    );
    let no_gain = BTreeMap::from([("gain".to_owned(), 0.0)]);
    config.reward = BTreeMap::from(["verifier", "retry"].map(|name| (role(name), no_gain.clone())));
    let rewards = rescued(&config);
    // Totals: solver 0, verifier 1, retry 1.
    let mean = (2.0f64 / 3.0) as f32;
    assert_eq!(parts(&rewards[0]), [("correct", 0.0), ("own", 0.0), ("credit", mean)]);
    assert_eq!(parts(&rewards[1]), [("verdict", 1.0), ("gain", 1.0)]);
    let retry = [
        ("correct", 1.0),
        ("gain", 1.0),
        ("overlong", -1.0),
        ("own", 1.0),
        ("credit", 1.0),
    ];
    assert_eq!(parts(&rewards[2]), retry);
    let counted = counted(&config, &built(&config).unwrap().roles());
    let totals: Vec<f64> = rewards.iter().map(|seat| part_weights::total(&counted, seat)).collect();
    // The retry: 1 - 0 for its answer, less 1 for its length.
    assert_eq!(totals, [f64::from(mean), 1.0, 0.0]);
}

#[test]
fn what_clashes_or_would_be_unfair_is_named() {
    let found = |config: &WorkflowConfig| problems(built(config).map(|_| ()));
    let unfair = solve_verify(
        "",
        "solver = { difference = \"verifier\" }\nretry = { difference = \"retry\" }",
    );
    assert_eq!(found(&unfair), ["workflow.credit.retry", "workflow.credit.solver"]);
    let mut signal = config("signal", &["speaker", "listener"], "");
    let length = "speaker = { length = { target = 3, weight = 1.0 } }\nsomeone = { length_penalty = 1.0 }";
    signal.shaping = toml::from_str(length).unwrap();
    signal.credit = BTreeMap::from([(role("listener"), CreditConfig::Shared)]);
    assert_eq!(found(&signal), ["workflow.shaping.someone", "workflow.shaping.speaker"]);
}

#[test]
fn who_has_no_right_answer_is_not_compared_by_length() {
    let mut game = config("adversarial", &["proposer", "solver"], "");
    game.shaping = toml::from_str("proposer = { length_penalty = 1.0 }\nsolver = { length_penalty = 1.0 }").unwrap();
    let found = problems(built(&game).map(|_| ()));
    assert_eq!(found, ["workflow.shaping.proposer.length_penalty"]);
}

#[test]
fn a_workflow_part_named_length_counts_by_the_operator_alone() {
    let mut signal = config("signal", &["speaker", "listener"], "lambda = 0.5");
    signal.credit = BTreeMap::from([(role("speaker"), CreditConfig::Shared)]);
    let counted = counted(&signal, &built(&signal).unwrap().roles());
    let weight = |part: &str| counted[&role("speaker")][part];
    assert_eq!(["success", "length", "own", "credit"].map(weight), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(counted[&role("listener")]["success"], 1.0);
}

#[test]
fn a_seat_without_a_reward_gets_none() {
    let config = solve_verify(
        "solver = { length = { target = 1, weight = 1.0 } }",
        "solver = \"shared\"",
    );
    let workflow = Shaped {
        inner: built(&solve_verify("", "")).unwrap(),
        shaping: config.shaping.clone(),
        credit: config.credit.clone(),
        weights: PartWeights::new(),
    };
    let seat = |name: &str, parts| SeatReward {
        role: role(name),
        seat: 0,
        subkey: String::new(),
        target: None,
        parts,
    };
    let outcome = Outcome {
        rewards: vec![seat("solver", Vec::new())],
        metrics: Vec::new(),
    };
    assert!(workflow.shape(outcome, &[]).rewards[0].parts.is_empty());
}

proptest! {
    #[test]
    fn any_list_of_events_is_answered(events in any_events()) {
        let config = solve_verify(
            "solver = { length = { target = 5, weight = 1.0 } }\nretry = { overlong = { from = 1, to = 9 } }",
            "retry = \"shared\"",
        );
        check_total(built(&config).unwrap().as_ref(), &task("2+3=", 5.into()), &events)?;
    }
}
