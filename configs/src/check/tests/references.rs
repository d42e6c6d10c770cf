//! Tests that the large recipes use the numbers of the systems they follow. The page of a recipe
//! lists intended differences.

use std::path::Path;

/// Returns the resolved value of a shipped file at a dotted path.
fn resolved(file: &str, path: &str) -> Option<toml::Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{file}.toml"));
    let config = crate::RunConfig::load(&file).unwrap_or_else(|error| panic!("{error}"));
    let whole = toml::Value::try_from(&config).unwrap();
    let found = path.split('.').try_fold(whole, |at, key| at.get(key).cloned())?;
    // Some numbers are stored as f32.
    let found = found
        .as_float()
        .map_or(found, |number| toml::Value::Float((number * 1e6).round() / 1e6));
    Some(found)
}

#[test]
fn large_recipes_have_the_numbers_of_what_they_follow() {
    let off = || toml::Value::from(false);
    let wanted: [(&str, &str, toml::Value); 31] = [
        // MrlX, TakesTwo
        ("doctor-patient-8b", "agents.doctor.train.checkpoint_every", 11.into()),
        ("doctor-patient-8b", "agents.patient.train.checkpoint_every", 44.into()),
        ("doctor-patient-8b", "graders.rubric.judge.temperature", 0.6.into()),
        ("doctor-patient-8b", "agents.patient.sampling.temperature", 0.6.into()),
        // MrlX, DeepResearch: its models do not reason
        ("deep-research-8b", "agents.main.template_args.enable_thinking", off()),
        ("deep-research-8b", "agents.sub.template_args.enable_thinking", off()),
        ("deep-research-8b", "agents.main.sampling.max_new_tokens", 1024.into()),
        ("deep-research-8b", "agents.main.train.checkpoint_every", 1.into()),
        ("deep-research-8b", "workflow.sampling.sub.max_new_tokens", 1024.into()),
        (
            "deep-research-8b",
            "workflow.sampling.summariser.max_new_tokens",
            2048.into(),
        ),
        (
            "deep-research-8b",
            "workflow.sampling.summariser.temperature",
            0.1.into(),
        ),
        // MrlX, SelfRewarding
        (
            "self-reward-8b",
            "workflow.sampling.answerer.max_new_tokens",
            6144.into(),
        ),
        ("self-reward-8b", "agents.a.sampling.max_new_tokens", 16384.into()),
        ("self-reward-8b", "agents.a.sampling.temperature", 1.0.into()),
        ("self-reward-8b", "workflow.sampling.grader.temperature", 0.6.into()),
        // MinT: 32 tokens leave no room for reasoning
        ("two-lora-qwen3-0.6b", "agents.a.template_args.enable_thinking", off()),
        ("two-lora-qwen3-0.6b", "agents.b.template_args.enable_thinking", off()),
        ("two-lora-qwen3-0.6b", "agents.a.sampling.max_new_tokens", 32.into()),
        // AstraFlow
        ("actor-verifier", "agents.solver.sampling.max_context", 16384.into()),
        ("actor-verifier", "agents.verifier.sampling.max_context", 16384.into()),
        (
            "actor-verifier-no-ds",
            "agents.solver.sampling.max_context",
            16384.into(),
        ),
        (
            "actor-verifier-astraflow",
            "agents.solver.sampling.max_context",
            16384.into(),
        ),
        (
            "actor-verifier-alone",
            "agents.solver.sampling.max_context",
            16384.into(),
        ),
        (
            "actor-verifier-alone-no-ds",
            "agents.solver.sampling.max_context",
            16384.into(),
        ),
        (
            "actor-verifier-alone",
            "agents.solver.train.zero_advantage",
            "refill".into(),
        ),
        (
            "actor-verifier-alone-no-ds",
            "agents.solver.train.zero_advantage",
            "keep".into(),
        ),
        // Miles
        ("adversarial-8b", "agents.thinker.train.kl.coef", 0.0.into()),
        (
            "adversarial-8b",
            "agents.thinker.train.micro_batch_tokens",
            20480.into(),
        ),
        ("adversarial-8b", "agents.thinker.sampling.max_context", 16384.into()),
        (
            "solve-rewrite-select-8b",
            "agents.all.sampling.max_context",
            16384.into(),
        ),
        (
            "solve-rewrite-select-8b",
            "agents.all.train.micro_batch_tokens",
            20480.into(),
        ),
    ];
    for (file, path, value) in wanted {
        assert_eq!(resolved(file, path), Some(value), "{file}.toml: {path}");
    }
}

/// One baseline is the other without dynamic sampling; nothing else differs.
#[test]
fn each_team_has_a_baseline_that_differs_in_the_team_alone() {
    let lines = |file: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{file}.toml"));
        let text = std::fs::read_to_string(path).unwrap();
        let bare = |line: &str| line.split('#').next().unwrap_or_default().trim_end().to_owned();
        text.lines()
            .map(bare)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
    };
    let differ = |one: &str, other: &str| {
        let (one, other) = (lines(one), lines(other));
        let only = |of: &[String], not: &[String]| {
            of.iter()
                .filter(|line| !not.contains(line))
                .cloned()
                .collect::<Vec<_>>()
        };
        only(&one, &other)
    };
    let wanted = ["name = \"actor-verifier-alone-no-ds\"", "zero_advantage = \"keep\""];
    assert_eq!(differ("actor-verifier-alone-no-ds", "actor-verifier-alone"), wanted);
    assert_eq!(
        differ("actor-verifier-no-ds", "actor-verifier"),
        [wanted[0].replace("alone-", ""), wanted[1].to_owned()]
    );
}
