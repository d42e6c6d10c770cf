//! Shipped workflows and programs, played with scripted answers and with engines.

use std::path::Path;

use clap::Parser;

use super::scripted::says;
use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the shipped example, with the absolute path of its program because tests run in the
/// crate's folder.
fn example(kind: &str) -> RunConfig {
    let text = std::fs::read_to_string(root().join("configs/programs.toml")).unwrap();
    let text = text
        .replace("process:configs/", &format!("process:{}/configs/", root().display()))
        // Python starts slowly on a busy machine.
        .replace("timeout = \"10s\"", "timeout = \"120s\"");
    let mut config = RunConfig::parse(&text, Path::new("programs.toml")).unwrap();
    if kind != "process" {
        config.workflow.kind = kind.into();
        config.workflow.params = "prompts = \"short\"".parse().unwrap();
        let grader = serde_json::from_value(serde_json::json!({"kind": "integer"})).unwrap();
        config.graders.insert("correct".into(), grader);
    }
    config
}

async fn played(
    config: &RunConfig,
    task: Task,
    members: u16,
    seed: u64,
    says: &Says,
) -> anyhow::Result<Vec<Transcript>> {
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
    let host = Host::start(workflow.clone(), None);
    let task = Arc::new(task);
    let ends = scripted::play(config, (&workflow, &host), task.clone(), members, seed, says).await?;
    Ok(transcripts(config, &host, &task, ends))
}

fn sum() -> Task {
    Task::parse(br#"{"id": "sum", "prompt": "2+3=", "label": 5}"#, 1000).unwrap()
}

fn answers() -> Says {
    says(
        &[
            "solver=5",
            "solver=6",
            "verifier=approve",
            "verifier=reject",
            "verifier=hm",
            "retry=5",
            "retry=7",
        ]
        .map(String::from),
    )
    .unwrap()
}

#[tokio::test]
async fn python_workflow_plays_like_the_rust_one() {
    let python = played(&example("process"), sum(), 16, 3, &answers()).await.unwrap();
    let rust = played(&example("solve-verify"), sum(), 16, 3, &answers())
        .await
        .unwrap();
    assert_eq!((python.len(), rust.len()), (16, 16));
    let mut retries = 0;
    for (python, rust) in python.iter().zip(&rust) {
        assert_eq!(python.status, "completed");
        let said = |transcript: &Transcript| {
            let agents = transcript.turns.iter().filter(|turn| turn.agent != "program");
            agents
                .map(|turn| (turn.role.clone(), turn.text.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(said(python), said(rust));
        assert_eq!(python.rewards, rust.rewards);
        for (name, value) in &python.metrics {
            assert_eq!(rust.metrics.get(name), Some(value), "{name}");
        }
        retries += usize::from(python.rewards.contains_key("retry"));
    }
    assert!(
        (1..16).contains(&retries),
        "{retries} of 16 retried: the answers reach too little of the workflow"
    );
}

#[tokio::test]
async fn python_reward_pays_for_the_number_and_penalises_words() {
    let mut config = example("solve-verify");
    if let Some(grader) = config.graders.get_mut("correct") {
        grader.kind = format!("process:{}/configs/programs/reward.py", root().display());
        grader.timeout = configs::HumanDuration::from_secs(120);
    }
    let says = says(&["solver=it is 5", "verifier=approve"].map(String::from)).unwrap();
    let played = played(&config, sum(), 1, 0, &says).await.unwrap();
    assert!(
        (played[0].rewards["solver"]["correct"] - 0.8).abs() < 1e-6,
        "{:?}",
        played[0].rewards
    );
    assert!(played[0].turns.iter().any(|turn| turn.role == "grade-solver"));
}

/// The transcript shows the weights, credit and advantages of training.
#[tokio::test]
async fn transcript_has_weights_credit_and_advantages() {
    let mut config = example("solve-verify");
    config.workflow.shaping = toml::from_str("solver = { length = { target = 2, weight = 0.5 } }").unwrap();
    config.workflow.credit = toml::from_str("verifier = { difference = \"solver\" }").unwrap();
    let played = played(&config, sum(), 16, 3, &answers()).await.unwrap();
    for transcript in &played {
        assert!(transcript.earned.keys().eq(transcript.rewards.keys()));
        for (role, earned) in &transcript.earned {
            let summed: f64 = earned.parts.iter().map(|part| part.value * part.weight).sum();
            assert!((summed - earned.total).abs() < 1e-9, "{role}: {earned:?}");
            assert_eq!(earned.total, transcript.rewards[role]["total"]);
            assert_eq!(earned.credit.is_some(), role == "verifier");
        }
        // Every answer has one token, half of the target, so half of the weight is lost.
        let solver = &transcript.earned["solver"];
        let length = solver.parts.iter().find(|part| part.name == "length").unwrap();
        assert_eq!((length.value, length.weight), (-0.25, 1.0));
        // Only the solver has a length reward.
        let credit = transcript.earned["verifier"].credit.as_ref().unwrap();
        assert!(
            (credit.credit - (credit.own - (solver.total + 0.25))).abs() < 1e-6,
            "{credit:?}"
        );
    }
    let totals: Vec<f64> = played
        .iter()
        .map(|transcript| transcript.earned["solver"].total)
        .collect();
    assert!(
        totals.windows(2).any(|pair| pair[0] != pair[1]),
        "all alike: {totals:?}"
    );
    for (transcript, total) in played.iter().zip(&totals) {
        let compared = transcript.earned["solver"].compared.as_ref().unwrap();
        let others = (totals.iter().sum::<f64>() - total) / 15.0;
        assert_eq!(compared.conversations, 16);
        assert!(
            (compared.advantage - (total - others)).abs() < 1e-6,
            "{compared:?}, {totals:?}"
        );
    }
    let shown = render(&played[0]);
    assert!(
        shown.contains("length -0.250 x 1") && shown.contains("by difference from solver"),
        "{shown}"
    );
    assert!(shown.contains("16 in the group: mean"), "{shown}");
}

#[tokio::test]
async fn scripted_answers_have_neither_tokens_nor_weights() {
    let config = example("process");
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
    let says = answers();
    let scripted = Answers::Scripted(workflow.clone(), Host::start(workflow, None), &says);
    let mut played = played(&config, sum(), 1, 0, &says).await.unwrap();
    scripted.name_weights(&mut played[0]);
    let shown = render(&played[0]);
    assert!(shown.contains("solver, agent solver  (scripted, stop)\n"), "{shown}");
    assert!(!shown.contains(", weights ") && !shown.contains(" token"), "{shown}");
}

/// Returns the recipe with absolute paths of its documents.
fn research() -> RunConfig {
    let text = std::fs::read_to_string(root().join("configs/deep-research.toml")).unwrap();
    let stones = format!("corpus:{}/configs/data/stones", root().display());
    let text = text.replace("corpus:configs/data/stones", &stones);
    RunConfig::parse(&text, Path::new("deep-research.toml")).unwrap()
}

fn call(name: &str, argument: &str, value: &str) -> String {
    format!("<tool_call>{{\"name\":\"{name}\",\"arguments\":{{\"{argument}\":\"{value}\"}}}}</tool_call>")
}

/// Returns the roles that were asked when sub searches and reads a document, and the number of
/// search results.
async fn searched(tools: &str) -> (Vec<String>, usize) {
    let given = [
        format!("main@0={}", call("research", "task", "hard")),
        format!("sub@0={}", call("search", "query", "hard")),
        format!("sub@1={}", call("visit", "id", "amber.md")),
        "sub@2=<result>red</result>".into(),
        "main@1=<answer>red</answer>".into(),
    ];
    let line = format!("{{\"id\": \"hard\", \"prompt\": \"hard\", \"label\": \"red\"{tools}}}");
    let task = Task::parse(line.as_bytes(), 1000).unwrap();
    let mut config = research();
    // The tiny models' context has no room for all results.
    config.workflow.tool_limits.context = 0;
    let played = played(&config, task, 1, 0, &says(&given).unwrap()).await.unwrap();
    let turns = &played[0].turns;
    let found = turns.iter().find(|turn| turn.role == "sub-search").unwrap();
    let named = found.text.lines().filter(|line| line.contains(". [")).count();
    (turns.iter().map(|turn| turn.role.clone()).collect(), named)
}

#[tokio::test]
async fn task_narrows_the_tools_and_binds_an_argument() {
    let (asked, named) = searched("").await;
    assert_eq!(asked, ["main", "sub", "sub-search", "sub", "sub-visit", "sub", "main"]);
    assert!(named > 1, "{named}");
    let (asked, named) = searched(", \"tools\": [{\"name\": \"search\", \"bind\": {\"top\": 1}}]").await;
    assert_eq!(
        asked,
        ["main", "sub", "sub-search", "sub", "sub", "main"],
        "visit is not offered"
    );
    assert_eq!(named, 1);
}

/// Tests the whole path of a call: documents on disk, a sub agent's conversation, and the printed
/// transcript.
#[tokio::test]
async fn tools_are_really_called_and_printed() {
    let config = research();
    let given = [
        format!("main@0={}", call("research", "task", "amber")),
        format!("sub@0={}", call("search", "query", "amber")),
        format!("sub@1={}", call("visit", "id", "amber.md")),
        "sub@2=<result>yellow</result>".into(),
        "main@1=<answer>yellow</answer>".into(),
    ];
    let task = Task::parse(br#"{"id": "amber", "prompt": "amber", "label": "yellow"}"#, 1000).unwrap();
    let played = played(&config, task, 1, 0, &says(&given).unwrap()).await.unwrap();
    let spoke: Vec<(&str, &str)> = played[0]
        .turns
        .iter()
        .map(|turn| (turn.role.as_str(), turn.agent.as_str()))
        .collect();
    let expected = [
        ("main", "main"),
        ("sub", "sub"),
        ("sub-search", "tool"),
        ("sub", "sub"),
        ("sub-visit", "tool"),
        ("sub", "sub"),
        ("main", "main"),
    ];
    assert_eq!(spoke, expected);
    assert!(
        (played[0].rewards["sub"]["total"] - 1.5).abs() < 1e-6,
        "{:?}",
        played[0].rewards
    );
    let shown = render(&played[0]);
    let found = "  sub-search, tool\n    1. [amber.md] amber\n    amber amber is yellow and light\n";
    assert!(
        shown.contains(found) && shown.contains("\"query\":\"amber\""),
        "{shown}"
    );
}

#[tokio::test]
async fn failing_program_leaves_no_reward() {
    let mut config = example("solve-verify");
    if let Some(grader) = config.graders.get_mut("correct") {
        grader.kind = format!("process:{}/configs/programs/reward.py", root().display());
        grader.timeout = configs::HumanDuration::from_secs(120);
    }
    config.workflow.retries = 2;
    // There is no label, so the example's program raises an error.
    let task = Task::parse(br#"{"id": "sum", "prompt": "2+3=", "label": "five"}"#, 1000).unwrap();
    let says = says(&["solver=5", "verifier=approve"].map(String::from)).unwrap();
    let played = played(&config, task, 1, 0, &says).await.unwrap();
    let status = &played[0].status;
    assert!(
        status.starts_with("failed: ") && status.ends_with("(the last of 2 tries)"),
        "{status}"
    );
    assert!(played[0].rewards.is_empty());
}

#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    args: TestArgs,
}

fn typed(rest: &[&str]) -> TestArgs {
    let fixed = ["test", "c.toml", "--task", "t.jsonl"];
    Typed::parse_from(fixed.into_iter().chain(rest.iter().copied())).args
}

#[tokio::test]
async fn engines_answer_as_in_training_and_the_seed_draws() {
    let text = std::fs::read_to_string(root().join("configs/signal.toml")).unwrap();
    let mut config = RunConfig::parse(&text, Path::new("signal.toml")).unwrap();
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
    let table = AnswerTable::open(&typed(&["--engine"]), &config).unwrap().unwrap();
    let mut source = rollout::tasks::TaskSource::open(&config.tasks, 0).unwrap().unwrap();
    let task = Arc::new(source.rows().next().unwrap().unwrap());
    let mut said = Vec::new();
    for seed in [1, 1, 2] {
        config.run.seed = seed;
        let host = Host::start(workflow.clone(), None);
        let player = table.player(&config, workflow.clone(), host);
        let ends = engine_answers::play(&player, task.clone(), 8).await.unwrap();
        let transcripts = transcripts(&config, player.host(), &task, ends);
        assert!(
            transcripts
                .iter()
                .all(|one| one.turns.len() == 2 && one.rewards.contains_key("speaker"))
        );
        said.push(transcripts);
    }
    assert_eq!(said[0], said[1]);
    assert_ne!(said[0], said[2]);
    let words: std::collections::BTreeSet<_> = said[0].iter().map(|one| one.turns[0].text.clone()).collect();
    assert!(words.len() > 1, "sampled, so that members differ: {words:?}");
}

#[test]
fn scripted_answers_with_engines_are_rejected() {
    let config = example("process");
    assert!(
        AnswerTable::open(&typed(&["--say", "solver=5"]), &config)
            .unwrap()
            .is_none()
    );
    let error = AnswerTable::open(&typed(&["--say", "solver=5", "--engine"]), &config)
        .err()
        .unwrap();
    assert!(error.to_string().contains("--say"), "{error}");
}

/// A call that reached no tool is in no turn. The agent and the user of the command both read the
/// error.
#[tokio::test]
async fn prompts_of_agents_are_shown() {
    let config = research();
    let given = [
        format!("main@0={}", call("resaerch", "task", "amber")),
        "main@1=<answer>yellow</answer>".into(),
    ];
    let task = Arc::new(Task::parse(br#"{"id": "amber", "prompt": "amber", "label": "yellow"}"#, 1000).unwrap());
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
    let host = Host::start(workflow.clone(), None);
    let says = says(&given).unwrap();
    let ends = scripted::play(&config, (&workflow, &host), task.clone(), 1, 0, &says)
        .await
        .unwrap();
    let refused = "  main reads, tool\n    error: there is no tool \"resaerch\"";
    for all in [false, true] {
        let transcripts = read(&config, &host, (&task, "amber"), ends.clone(), all);
        let shown = render(&transcripts[0]);
        assert!(shown.contains(refused), "{shown}");
        let prompt = transcripts[0].turns[0]
            .reads
            .last()
            .map(|message| message.content.contains("amber"));
        assert_eq!(prompt, all.then_some(true), "{shown}");
    }
}

#[tokio::test]
async fn failed_conversation_shows_its_earlier_turns() {
    let mut config = example("solve-verify");
    if let Some(grader) = config.graders.get_mut("correct") {
        grader.kind = format!("process:{}/configs/programs/reward.py", root().display());
        grader.timeout = configs::HumanDuration::from_secs(120);
    }
    config.workflow.retries = 1;
    let task = Task::parse(br#"{"id": "sum", "prompt": "2+3=", "label": "five"}"#, 1000).unwrap();
    let says = says(&["solver=it is 5", "verifier=approve"].map(String::from)).unwrap();
    let played = played(&config, task, 1, 0, &says).await.unwrap();
    let shown = render(&played[0]);
    assert!(
        shown.contains("failed: ") && shown.contains("it is 5") && shown.contains("approve"),
        "{shown}"
    );
}
