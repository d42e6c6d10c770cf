//! Tests of losses, advantages and KL that exclude each other.

use super::expect;
use crate::check::methods::{METHODS, written};

#[test]
fn losses_of_many_tokens_compose_or_are_rejected_by_name() {
    let refused = |train: &str, key: &str, says: &str| {
        let train = format!("batch_groups = 32\n{train}");
        expect(
            &[("batch_groups = 32", &train)],
            &[(&format!("agents.b.train.{key}"), says)],
        );
    };
    let gspo = "train.loss.kind = \"gspo\"\n";
    let m2po = "train.loss.kind = \"m2po\"\n";
    refused(
        &format!("{gspo}train.loss.ratio = \"decoupled\""),
        "loss.ratio",
        "one ratio per answer",
    );
    refused(
        &format!("{gspo}train.loss.dual_clip = 3.0"),
        "loss.dual_clip",
        "only for",
    );
    refused(
        &format!("{m2po}train.loss.ratio = \"decoupled\""),
        "loss.ratio",
        "loss.mode = \"mask\"",
    );
    refused(&format!("{m2po}train.loss.tau = 0.0"), "loss.tau", "above 0");
    let masked = format!("{m2po}train.loss.mode = \"mask\"\n");
    refused(
        &format!("{masked}train.loss.ratio = \"decoupled\"\ntrain.epochs = 2"),
        "loss.ratio",
        "not later steps",
    );
    refused("train.loss.scope = \"microbatch\"", "loss.kind", "only for \"m2po\"");
    refused(
        "train.loss.kind = \"cispo\"\ntrain.loss.dual_clip = 3.0",
        "loss.dual_clip",
        "only for",
    );
    refused(
        "train.advantage = \"reinforce_plus_plus\"\ntrain.kl.place = \"reward\"",
        "kl.place",
        "there is no KL",
    );
    refused(
        &format!("{masked}train.zero_advantage = \"skip\""),
        "zero_advantage",
        "without advantage",
    );
    refused(
        "train.kl = { coef = 0.1, place = \"reward\" }",
        "kl.place",
        "reinforce_plus_plus",
    );
    let reinforce = "train.advantage = \"reinforce_plus_plus\"\n";
    refused(
        &format!("{reinforce}{gspo}train.kl = {{ coef = 0.1, place = \"reward\" }}"),
        "kl.place",
        "needs one advantage",
    );
    refused(
        &format!("{reinforce}train.zero_advantage = \"skip\""),
        "zero_advantage",
        "such groups have a gradient",
    );
    for aggregation in ["token", "sequence", "conversation", "constant", "role"] {
        for kind in [gspo, m2po, &masked] {
            let train = format!(
                "batch_groups = 32\n{kind}train.loss.agg = {aggregation:?}\ntrain.entropy = 0.01\ntrain.kl.coef = 0.1"
            );
            expect(&[("batch_groups = 32", &train)], &[]);
        }
    }
    let fine = format!(
        "batch_groups = 32\n{masked}train.loss.ratio = \"decoupled\"\n{reinforce}train.kl = {{ coef = 0.1, kind = \"k1\", place = \"reward\" }}"
    );
    expect(&[("batch_groups = 32", &fine)], &[]);
}

/// Such keys would have no effect, without a warning.
#[test]
fn key_without_effect_is_rejected() {
    let train = |train: &str, expected: &[(&str, &str)]| {
        let train = format!("batch_groups = 32\n{train}");
        expect(&[("batch_groups = 32", &train)], expected);
    };
    let cap = "agents.b.train.loss.weight_cap";
    let beta = "agents.b.train.loss.beta";
    let (low, high) = ("agents.b.train.loss.clip_low", "agents.b.train.loss.clip_high");
    train(
        "train.loss = { kind = \"grpo\", weight_cap = 2.0, beta = 0.3 }",
        &[
            (cap, "loss.ratio = \"decoupled\""),
            (beta, "only for loss.kind = \"dro\""),
        ],
    );
    train("train.loss = { ratio = \"decoupled\", weight_cap = 2.0 }", &[]);
    train("train.loss = { kind = \"dro\", beta = 0.3 }", &[]);
    for kind in ["importance_sampling", "dro", "m2po"] {
        train(
            &format!("train.loss = {{ kind = {kind:?}, clip_low = 0.1, clip_high = 0.3 }}"),
            &[(low, "only for loss.kind"), (high, "only for loss.kind")],
        );
    }
    for kind in ["grpo", "cispo", "gspo"] {
        train(
            &format!("train.loss = {{ kind = {kind:?}, clip_low = 0.1, clip_high = 0.3 }}"),
            &[],
        );
    }
    // A key may be set to its default.
    train(
        "train.loss = { kind = \"m2po\", weight_cap = 5.0, beta = 0.05, clip_low = 0.2, clip_high = 0.2 }",
        &[],
    );
}

#[test]
fn group_of_one_needs_an_advantage_of_the_batch() {
    let alone = ("group_size = 8", "group_size = 1");
    let reinforce = (
        "batch_groups = 16",
        "batch_groups = 16\nadvantage = \"reinforce_plus_plus\"",
    );
    expect(&[alone, reinforce], &[]);
    expect(&[alone], &[("workflow.group_size", "compares with the batch")]);
    let one_of_two = ("batch_groups = 32", "batch_groups = 32\ntrain.advantage = \"loo\"");
    expect(
        &[alone, reinforce, one_of_two],
        &[("workflow.group_size", "compares with the batch")],
    );
}

#[test]
fn cross_entropy_needs_a_workflow_with_known_answers() {
    let imitating = |more: &str| format!("batch_groups = 32\ntrain.loss.kind = \"cross_entropy\"\n{more}");
    let path = "agents.b.train.loss.kind";
    expect(
        &[("batch_groups = 32", &imitating(""))],
        &[(path, "has no known answers")],
    );
    let sequential = [
        ("kind = \"signal\"", "kind = \"sequential\""),
        ("speaker = \"a\", listener = \"b\"", "first = \"a\", second = \"b\""),
        ("speaker = { success = 1.0 }, listener = { success = 1.0 }", ""),
    ];
    let with = |more: &str, expected: &[(&str, &str)]| {
        let train = imitating(more);
        let [kind, roles, reward] = sequential;
        expect(&[kind, roles, reward, ("batch_groups = 32", &train)], expected);
    };
    with("", &[]);
    with("train.entropy = 0.1", &[(path, "neither KL nor entropy")]);
    with("train.kl.coef = 0.1", &[(path, "neither KL nor entropy")]);
    let zero = "agents.b.train.zero_advantage";
    with("train.zero_advantage = \"skip\"", &[(zero, "no advantages")]);
    // These alarms would check the labels.
    with(
        "train.alarms = { repetition = 0.5, sameness = 0.9, least_tokens = 1.0, most_tokens = 9.0, entropy = 0.1 }",
        &[
            ("agents.b.train.alarms.repetition", "known answers and not samples"),
            ("agents.b.train.alarms.sameness", "known answers and not samples"),
            ("agents.b.train.alarms.least_tokens", "known answers and not samples"),
            ("agents.b.train.alarms.most_tokens", "known answers and not samples"),
        ],
    );
}

#[test]
fn alarms_have_bounds_that_can_be() {
    let alarms =
        "batch_groups = 32\ntrain.alarms = { repetition = 1.5, sameness = -0.1, least_tokens = -1.0, entropy = 0.1 }";
    expect(
        &[("batch_groups = 32", alarms)],
        &[
            ("agents.b.train.alarms.repetition", "0.0 to 1.0"),
            ("agents.b.train.alarms.sameness", "0.0 to 1.0"),
            ("agents.b.train.alarms.least_tokens", "0 or more"),
        ],
    );
}

#[test]
fn a_mean_length_can_be_within_its_alarms() {
    let with = |least: f64, expected: &[(&str, &str)]| {
        let alarms = format!("batch_groups = 32\ntrain.alarms = {{ least_tokens = {least:?}, most_tokens = 4.0 }}");
        expect(&[("batch_groups = 32", &alarms)], expected);
    };
    with(4.0, &[]);
    with(5.0, &[("agents.b.train.alarms.least_tokens", "always warn")]);
}

#[test]
fn opponents_are_frozen() {
    let adversarial = |opponents: &str, more: &str, expected: &[(&str, &str)]| {
        let kind = format!("kind = \"adversarial\"\nparams = {{ opponents = {opponents} }}");
        let agents = format!("train.batch_groups = 32\n[agents.c]\n{more}");
        expect(
            &[
                ("kind = \"signal\"", &kind),
                (
                    "speaker = \"a\", listener = \"b\"",
                    "proposer = \"a\", solver = \"b\", past = \"c\"",
                ),
                ("speaker = { success = 1.0 }, listener = { success = 1.0 }", ""),
                ("train.batch_groups = 32", &agents),
            ],
            expected,
        );
    };
    let refused = [("workflow.roles.past", "write agents.c.train.enabled = false")];
    adversarial("{ solver = [\"past\"] }", "", &refused);
    adversarial("{ solver = [\"past\"] }", "train.enabled = false", &[]);
    // The workflow rejects a parameter of another shape.
    for odd in ["3", "[\"past\"]", "{ solver = \"past\" }", "{ solver = [3] }"] {
        adversarial(odd, "", &[]);
    }
}

#[test]
fn an_average_has_a_decay_and_a_reference_needs_it() {
    let train = |keys: &str, expected: &[(&str, &str)]| {
        let train = format!("batch_groups = 32\n{keys}");
        expect(&[("batch_groups = 32", &train)], expected);
    };
    train("train.ema.decay = 0.999\ntrain.kl = { coef = 0.1, ref = \"ema\" }", &[]);
    train("train.ema.decay = 0.0", &[]);
    train("train.ema.decay = 1.0", &[("agents.b.train.ema.decay", "below 1")]);
    let reference = "agents.b.train.kl.ref";
    train(
        "train.kl = { coef = 0.1, ref = \"ema\" }",
        &[(reference, "no average is kept")],
    );
    train(
        "train.ema.decay = 0.9\ntrain.kl.ref = \"ema\"",
        &[(reference, "there is no KL")],
    );
}

/// The settings of each method are a legal configuration.
#[test]
fn settings_of_published_methods_are_legal() {
    for method in METHODS {
        let keys: String = method.keys.iter().map(|key| format!("\ntrain.{key}")).collect();
        let train = format!("batch_groups = 32{keys}");
        expect(
            &[("mode = \"sync\"", "mode = \"async\""), ("batch_groups = 32", &train)],
            &[],
        );
        assert!(method.names.iter().all(|name| written(name).is_some()), "{method:?}");
    }
    assert_eq!(written("pop"), None);
}

#[test]
fn name_of_a_method_gives_its_settings() {
    let advised = |line: &str, key: &str, says: &str| {
        let train = format!("batch_groups = 32\n{line}");
        expect(&[("batch_groups = 32", &train)], &[(key, says)]);
    };
    let kind = "agents.b.train.loss.kind";
    advised(
        "train.loss.kind = \"ppo\"",
        kind,
        "write PPO below an agent's train as loss.kind = \"grpo\"",
    );
    advised(
        "train.loss.kind = \"Reinforce++\"",
        kind,
        "advantage = \"reinforce_plus_plus\"",
    );
    advised(
        "train.loss.kind = \"rloo\"",
        kind,
        "advantage = \"loo\", loss.kind = \"importance_sampling\"",
    );
    advised("train.loss.kind = \"dpo\"", kind, "not from pairs of answers");
    advised(
        "train.loss.agg = \"dr_grpo\"",
        "agents.b.train.loss.agg",
        "loss.agg = \"constant\"",
    );
    advised(
        "train.advantage = \"gspo\"",
        "agents.b.train.advantage",
        "loss.kind = \"gspo\"",
    );
    advised("train.advantage = \"gae\"", "agents.b.train.advantage", "no critic");
    advised("train.loss = \"dapo\"", "agents.b.train.loss", "loss.clip_high = 0.28");
    advised("train.algorithm = \"m2po\"", "agents.b.train.algorithm", "write M2PO");
    advised(
        "train.algorithm = \"mine\"",
        "agents.b.train.algorithm",
        "here it is agents.NAME.train.loss.kind",
    );
    // A misspelt value of the key is not read as a method.
    advised("train.loss.kind = \"GRPO\"", kind, "did you mean \"grpo\"?");
    advised(
        "train.advantage = \"Reinforce-plus-plus\"",
        "agents.b.train.advantage",
        "did you mean \"reinforce_plus_plus\"?",
    );
    advised("train.loss.kind = \"cispoo\"", kind, "did you mean \"cispo\"?");
}
