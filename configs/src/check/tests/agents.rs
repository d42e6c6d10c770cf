//! Models, sampling and training of agents.

use super::{GOOD, check, expect, problems};
use crate::{AgentName, Ratio};

/// The doctor of MrlX uses temperature 1.0, and its patient 0.6 with top-p 0.95.
#[test]
fn patient_of_the_8b_recipe_samples_like_the_reference() {
    let config = check(include_str!("../../../doctor-patient-8b.toml")).unwrap_or_else(|p| panic!("{p:#?}"));
    let of = |name: &str| {
        let agent = &config.agents[&AgentName::new(name).unwrap()];
        let sampling = &agent.sampling;
        (
            sampling.temperature,
            sampling.top_p,
            sampling.max_new_tokens,
            agent.train.loss.ratio,
        )
    };
    assert_eq!(of("patient"), (0.6, 0.95, 1024, Ratio::Decoupled));
    assert_eq!(of("doctor"), (1.0, 1.0, 8192, Ratio::Behaviour));
}

#[test]
fn agents_that_train_sample_the_whole_distribution() {
    let sampling = "sampling = { temperature = 0, top_p = 0.9, top_k = 5, min_p = 0.1, max_new_tokens = 16 }";
    let in_b = format!("[agents.b]\n{sampling}");
    expect(
        &[("[agents.b]", &in_b)],
        &[
            ("agents.b.sampling.temperature", "must sample"),
            ("agents.b.sampling.top_p", "write 1.0"),
            ("agents.b.sampling.top_k", "write 0"),
            ("agents.b.sampling.min_p", "write 0.0"),
        ],
    );
    let frozen = format!("{in_b}\ntrain.enabled = false");
    expect(&[("[agents.b]", &frozen)], &[]);
    let weighed = in_b.replace("temperature = 0", "temperature = 0.7") + "\ntrain.loss.ratio = \"decoupled\"";
    expect(&[("[agents.b]", &weighed)], &[]);
    let m2po = weighed.clone() + "\ntrain.loss.kind = \"m2po\"\ntrain.loss.mode = \"mask\"";
    expect(
        &[("[agents.b]", &m2po)],
        &[
            ("agents.b.sampling.top_p", "another train.loss.kind"),
            ("agents.b.sampling.top_k", "another train.loss.kind"),
            ("agents.b.sampling.min_p", "another train.loss.kind"),
        ],
    );
    let sampled = in_b.replace("temperature = 0", "temperature = 0.7");
    let gspo = sampled.clone() + "\ntrain.loss.kind = \"gspo\"";
    expect(
        &[("[agents.b]", &gspo)],
        &[
            ("agents.b.sampling.top_p", "another train.loss.kind than \"gspo\""),
            ("agents.b.sampling.top_k", "another train.loss.kind than \"gspo\""),
            ("agents.b.sampling.min_p", "another train.loss.kind than \"gspo\""),
        ],
    );
    let imitating = sampled
        + "\ntrain.loss.kind = \"cross_entropy\"\ntrain.loss.ratio = \"decoupled\"\ntrain.loss.weight_cap = 0.5";
    let sequential = [
        ("kind = \"signal\"", "kind = \"sequential\""),
        ("speaker = \"a\", listener = \"b\"", "first = \"a\", second = \"b\""),
        ("speaker = { success = 1.0 }, listener = { success = 1.0 }", ""),
    ];
    let [kind, roles, reward] = sequential;
    expect(&[kind, roles, reward, ("[agents.b]", &imitating)], &[]);
    let cut = weighed.clone() + "\ntrain.loss.weight_cap = 0.5";
    expect(
        &[("[agents.b]", &cut)],
        &[("agents.b.train.loss.weight_cap", "write 1.0 or more")],
    );
    let whole = "[agents.b]\ntrain.loss.ratio = \"decoupled\"\ntrain.loss.weight_cap = 0.5";
    expect(&[("[agents.b]", whole)], &[]);
    let foreign = weighed + "\nengine = { kind = \"vllm\", urls = [\"http://127.0.0.1:8000\"] }";
    expect(
        &[("[agents.b]", &foreign), ("mode = \"sync\"", "mode = \"async\"")],
        &[
            ("agents.b.sampling.top_p", "a foreign server"),
            ("agents.b.sampling.top_k", "a foreign server"),
            ("agents.b.sampling.min_p", "a foreign server"),
        ],
    );
    let impossible = frozen
        .replace("top_p = 0.9", "top_p = 0.0")
        .replace("min_p = 0.1", "min_p = 1.0");
    expect(
        &[("[agents.b]", &impossible)],
        &[
            ("agents.b.sampling.top_p", "above 0"),
            ("agents.b.sampling.min_p", "below 1"),
        ],
    );
}

/// Logits divided by less are infinite, and every turn of the run would fail.
#[test]
fn temperature_below_the_least_is_rejected() {
    let of_b = |temperature: &str, trains: &str| {
        let sampling = format!("sampling = {{ temperature = {temperature}, max_new_tokens = 16 }}");
        let b = format!("[agents.b]\n{sampling}\ntrain.enabled = {trains}");
        problems(&[("[agents.b]", &b)])
    };
    for (good, trains) in [("0.01", "true"), ("0.01", "false"), ("0.0", "false"), ("10.0", "true")] {
        assert_eq!(of_b(good, trains), [""; 0], "{good}");
    }
    for cold in ["0.0099", "1e-38"] {
        let wrong = format!(
            "agents.b.sampling.temperature: is {cold}: logits are divided by it, and below 0.01 they overflow; write 0.01 or more"
        );
        assert_eq!(of_b(cold, "true"), std::slice::from_ref(&wrong));
        assert_eq!(of_b(cold, "false"), [wrong + ", or 0 for the likeliest token"]);
    }
}

#[test]
fn an_agents_steps_follow_from_its_batch_and_the_leads() {
    let steps = |text: &str| -> Vec<u64> {
        let config = check(text).unwrap();
        config.agents.keys().map(|name| config.steps_of(name)).collect()
    };
    // Ten steps of the lead agent a are 160 groups: five batches of 32.
    assert_eq!(steps(GOOD), [10, 5]);
    assert_eq!(steps(&GOOD.replace("lead = \"a\"", "lead = \"b\"")), [20, 10]);
    let odd = GOOD.replace("train_steps = 10", "train_steps = 9");
    assert_eq!(steps(&odd), [9, 5]);
}

#[test]
fn context_cap_outside_the_model_or_without_room_is_rejected() {
    for (cap, says) in [(16, "no room"), (513, "more than model.random.max_context = 512")] {
        let of_b = format!("[agents.b]\nsampling = {{ max_new_tokens = 16, max_context = {cap} }}");
        expect(&[("[agents.b]", &of_b)], &[("agents.b.sampling.max_context", says)]);
    }
    // 0 is the context of the model.
    for cap in [17, 0] {
        let of_b = format!("[agents.b]\nsampling = {{ max_new_tokens = 16, max_context = {cap} }}");
        expect(&[("[agents.b]", &of_b)], &[]);
    }
}

#[test]
fn template_args_with_a_taken_or_illegal_name_are_rejected() {
    let written =
        |args: &str| format!("[agents.b]\n[agents.b.template_args]\n{args}\n[agents.b.train]\nbatch_groups = 32");
    let args = |args: &str, expected: &[(&str, &str)]| {
        expect(&[("[agents.b]\ntrain.batch_groups = 32", &written(args))], expected);
    };
    args("enable_thinking = false\nmood = { kinds = [1, 0.5, \"calm\"] }", &[]);
    args(
        "messages = []\neos_token = \"\"\nnamespace = 1\nrange = 1\ndict = 1\ndebug = 1\nstrftime_now = 1\n\"en-able\" = 1\n\"1st\" = 1",
        &[
            ("agents.b.template_args.messages", "set for every"),
            ("agents.b.template_args.eos_token", "set for every"),
            ("agents.b.template_args.namespace", "set for every"),
            ("agents.b.template_args.range", "set for every"),
            ("agents.b.template_args.dict", "set for every"),
            ("agents.b.template_args.debug", "set for every"),
            ("agents.b.template_args.strftime_now", "write template_date"),
            ("agents.b.template_args.en-able", "not a name"),
            ("agents.b.template_args.1st", "not a name"),
        ],
    );
    let text = GOOD.replace(
        "[defaults.agent]",
        "[defaults.agent]\ntemplate_args.enable_thinking = false",
    );
    let text = text.replace("[agents.b]", "[agents.b]\ntemplate_args.mood = 1");
    let config = check(&text).unwrap();
    let names: Vec<Vec<&str>> = config
        .agents
        .values()
        .map(|agent| agent.template_args.keys().map(String::as_str).collect())
        .collect();
    assert!(
        names.iter().all(|of_agent| of_agent.contains(&"enable_thinking")),
        "{names:?}"
    );
    assert_eq!(names.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2], "{names:?}");
}

#[test]
fn template_date_must_be_a_day_of_the_calendar() {
    let with = |date: &str| format!("[agents.b]\ntemplate_date = {date}");
    let leap: crate::Date = "2028-02-29".parse().unwrap();
    for date in ["\"2028-02-29\"", "2028-02-29"] {
        let config = check(&GOOD.replace("[agents.b]", &with(date))).unwrap();
        let dates: Vec<_> = config.agents.values().map(|agent| agent.template_date).collect();
        assert_eq!(dates, [None, Some(leap)], "{date}");
    }
    for date in [
        "\"2026-02-29\"",
        "\"26 Jul 2024\"",
        "\"today\"",
        "2026-11-23T10:00:00",
        "\"2026-11-23T10:00:00\"",
    ] {
        expect(
            &[("[agents.b]", &with(date))],
            &[("agents.b.template_date", "write for example \"2026-11-23\"")],
        );
    }
    expect(
        &[("[agents.b]", &with("20261123"))],
        &[(
            "agents.b.template_date",
            "write a text in quotes; for example template_date = \"2026-11-23\"",
        )],
    );
}

#[test]
fn models_must_have_a_shape() {
    expect(
        &[(
            "layers = 2, hidden = 64, heads = 4",
            "layers = 0, hidden = 66, heads = 4, kv_heads = 3, embedding_std = -1.0, max_context = 256",
        )],
        &[
            ("defaults.agent.model.random.layers", "1 or more"),
            ("defaults.agent.model.random.hidden", "multiple"),
            ("defaults.agent.model.random.kv_heads", "divide"),
            ("defaults.agent.model.random.embedding_std", "0 or more"),
            ("agents.a.sampling.max_new_tokens", "no room"),
            ("agents.b.sampling.max_new_tokens", "no room"),
        ],
    );
    expect(
        &[("heads = 4", "heads = 4, head_dim = 7")],
        &[("defaults.agent.model.random.head_dim", "even")],
    );
    expect(
        &[(
            "tokenizer = \"bytes\"",
            "tokenizer = { words = [\"a\", \"b c\", \"a\"] }",
        )],
        &[
            ("defaults.agent.model.random.tokenizer.words", "\"a\" twice"),
            ("defaults.agent.model.random.tokenizer.words", "white space"),
        ],
    );
}

#[test]
fn a_model_of_another_kind_replaces_the_default_one() {
    let config = GOOD.replace("[agents.b]", "[agents.b]\nmodel.path = \"models/b\"");
    let config = check(&config).unwrap();
    assert!(matches!(
        config.agents.values().last().unwrap().model,
        crate::ModelConfig::Path(_)
    ));
}

#[test]
fn training_must_make_sense() {
    expect(
        &[
            (
                "batch_groups = 16",
                "batch_groups = 16\nminibatches = 64\nepochs = 0\nzero_advantage = \"skip\"\nentropy = 0.01\nrole_weights = { speaker = -1.0 }\nloss = { clip_low = 1.5, clip_high = 0.0 }\nkl.coef = -0.1",
            ),
            ("lr = 3e-4", "lr = 0.0, beta2 = 1.0, clip_norm = -1.0"),
            (
                "train.batch_groups = 32",
                "train.warm_start = { source = \"x\", steps = 0, batch = 0 }",
            ),
        ],
        &[
            ("defaults.agent.train.minibatches", "whole groups"),
            ("defaults.agent.train.epochs", "1 or more"),
            ("defaults.agent.train.zero_advantage", "write \"keep\""),
            ("defaults.agent.train.role_weights.speaker", "0 or more"),
            ("defaults.agent.train.role_weights.speaker", "b does not play"),
            ("defaults.agent.train.loss.clip_low", "at most 1"),
            ("defaults.agent.train.loss.clip_high", "above 0"),
            ("defaults.agent.train.kl.coef", "0 or more"),
            ("defaults.agent.train.optimizer.lr", "above 0"),
            ("defaults.agent.train.optimizer.beta2", "below 1"),
            ("defaults.agent.train.optimizer.clip_norm", "0 or more"),
            ("agents.b.train.warm_start.source", "jsonl:PATH"),
            ("agents.b.train.warm_start.steps", "1 or more"),
            ("agents.b.train.warm_start.batch", "1 or more"),
        ],
    );
    expect(
        &[
            ("[agents.a]", "[agents.a]\ntrain.enabled = false"),
            ("[agents.b]", "[agents.b]\ntrain.enabled = false"),
        ],
        &[("agents", "no agent that trains"), ("run.lead", "does not train")],
    );
}

#[test]
fn a_schedule_ends_below_where_it_begins() {
    let written = |keys: &str, expected: &[(&str, &str)]| {
        let optimizer = format!("optimizer = {{ lr = 3e-4, {keys} }}");
        expect(&[("optimizer = { lr = 3e-4 }", &optimizer)], expected);
    };
    written("schedule = \"cosine\", min_lr = 3e-5", &[]);
    written("schedule = \"linear\", min_lr = 3e-4", &[]);
    let key = "defaults.agent.train.optimizer.min_lr";
    written("schedule = \"cosine\", min_lr = 4e-4", &[(key, "more than lr")]);
    written("schedule = \"cosine\", min_lr = -1.0", &[(key, "0 or more")]);
    written("min_lr = 3e-5", &[(key, "schedule is \"constant\"")]);
}

#[test]
fn synchronous_rounds_do_not_refill() {
    expect(
        &[(
            "batch_groups = 32",
            "batch_groups = 32\ntrain.zero_advantage = \"refill\"",
        )],
        &[("agents.b.train.zero_advantage", "cannot draw more groups")],
    );
}

#[test]
fn a_pull_on_every_group_skips_none() {
    let skip = "batch_groups = 32\ntrain.zero_advantage = \"skip\"\ntrain.loss.kind = \"dro\"";
    expect(
        &[("batch_groups = 32", skip)],
        &[("agents.b.train.zero_advantage", "also acts on groups without advantage")],
    );
}

#[test]
fn synchronous_batches_are_whole_rounds() {
    expect(
        &[("batch_groups = 32", "batch_groups = 24")],
        &[(
            "agents.b.train.batch_groups",
            "multiple of the smallest batch, 16 of agent a",
        )],
    );
    expect(
        &[
            ("mode = \"sync\"", "mode = \"async\""),
            ("batch_groups = 32", "batch_groups = 24"),
        ],
        &[],
    );
}

#[test]
fn first_rank_is_on_the_device_of_the_agent() {
    let ranks = |devices: &str| format!("[agents.b]\ntrain.devices = {devices}");
    expect(&[("[agents.b]", &ranks("[\"cpu\", \"cpu\"]"))], &[]);
    let problem = ("agents.b.train.devices", "does not begin with cpu");
    expect(&[("[agents.b]", &ranks("[\"cuda:0\", \"cuda:1\"]"))], &[problem]);
    let mixed = ("agents.b.train.devices", "mixes CPU and GPUs");
    expect(&[("[agents.b]", &ranks("[\"cpu\", \"cuda:1\"]"))], &[mixed]);
    let frozen = ranks("[\"cpu\", \"cpu\"]") + "\ntrain.enabled = false";
    expect(
        &[("[agents.b]", &frozen)],
        &[("agents.b.train.devices", "agents that train")],
    );
}

#[test]
fn shards_need_ranks_that_split_them() {
    let shard = "[agents.b]\ntrain.shard = \"optimizer\"";
    let problem = ("agents.b.train.shard", "needs several ranks");
    expect(&[("[agents.b]", shard)], &[problem]);
    let ranks = format!("{shard}\ntrain.devices = [\"cpu\", \"cpu\"]");
    expect(&[("[agents.b]", &ranks)], &[]);
}

#[test]
fn external_trainer_is_refused_what_it_does_not_have() {
    let with = |more: &str| format!("[agents.b]\ntrain.command = [\"./train\"]\n{more}");
    let path = "agents.b.train.command";
    expect(&[("[agents.b]", &with(""))], &[]);
    for (more, says) in [
        ("lora = { rank = 4 }", "does not support adapters"),
        ("train.ema = { decay = 0.9 }", "does not support averages"),
        (
            "train.loss = { kind = \"m2po\" }",
            "does not support losses of many tokens",
        ),
        (
            "train.loss = { kind = \"gspo\", agg = \"sequence\" }",
            "does not support losses of many tokens",
        ),
        ("train.devices = [\"cpu\", \"cpu\"]", "chooses its devices"),
        ("train.enabled = false", "agents that train"),
    ] {
        expect(&[("[agents.b]", &with(more))], &[(path, says)]);
    }
}
