//! Tests: all problems of a file are listed at once, each with its key path and the fix.
#![allow(clippy::unwrap_used)]

mod agents;
mod engines;
mod follow_on;
mod foreign;
mod fronts;
mod losses;
mod participants;
mod pasts;
mod properties;
mod references;
mod rewards;
mod suites;
mod tools;

use std::path::Path;

use super::resolve;
use crate::Problem;
use crate::{ConfigError, RunConfig};

const GOOD: &str = r#"
[run]
name = "test"
mode = "sync"
train_steps = 10
lead = "a"
[tasks]
source = "generator:signal"
[workflow]
kind = "signal"
group_size = 8
roles = { speaker = "a", listener = "b" }
reward = { speaker = { success = 1.0 }, listener = { success = 1.0 } }
[graders.answer]
kind = "exact"
[defaults.agent]
model.random = { layers = 2, hidden = 64, heads = 4, tokenizer = "bytes" }
[defaults.agent.train]
batch_groups = 16
optimizer = { lr = 3e-4 }
[agents.a]
[agents.b]
train.batch_groups = 32
"#;

fn check(text: &str) -> Result<RunConfig, Vec<Problem>> {
    resolve(text.parse().unwrap())
}

/// Returns the problems as `path: message`, after these replacements in the good file.
fn problems(replacements: &[(&str, &str)]) -> Vec<String> {
    let mut text = GOOD.to_owned();
    for (from, to) in replacements {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    let problems = check(&text).err().unwrap_or_default();
    problems
        .into_iter()
        .map(|p| format!("{}: {}", p.path, p.message))
        .collect()
}

/// Expects exactly these problems, each with its path and a part of its message.
#[track_caller]
fn expect(replacements: &[(&str, &str)], expected: &[(&str, &str)]) {
    let found = problems(replacements);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (path, says) in expected {
        let named = found
            .iter()
            .any(|f| f.starts_with(&format!("{path}: ")) && f.contains(says));
        assert!(named, "{path} should say {says:?}: {found:#?}");
    }
}

#[test]
fn the_good_file_is_good() {
    let config = check(GOOD).unwrap();
    let batches: Vec<usize> = config.agents.values().map(|a| a.train.batch_groups).collect();
    assert_eq!(batches, [16, 32]);
}

#[test]
fn five_different_mistakes_are_all_named() {
    expect(
        &[
            ("train_steps = 10", ""),
            ("group_size = 8", "group_sizes = 8"),
            ("kind = \"signal\"", "kind = \"singal\""),
            ("lr = 3e-4", "lr = \"fast\""),
            ("listener = \"b\" }", "listener = \"c\" }"),
        ],
        &[
            ("run.train_steps", "is missing"),
            ("workflow.group_sizes", "did you mean \"group_size\"?"),
            ("workflow.group_size", "is missing; for example group_size = 8"),
            ("workflow.kind", "did you mean \"signal\"?"),
            ("defaults.agent.train.optimizer.lr", "write a number, without quotes"),
            ("workflow.roles.listener", "\"c\" is not an agent: write \"a\" or \"b\""),
            ("agents.b", "plays no role"),
        ],
    );
}

#[test]
fn the_whole_error_lists_every_problem_with_its_path() {
    let text = GOOD
        .replace("train_steps = 10", "train_steps = 0")
        .replace("[agents.a]", "[agents.a]\nhistroy = \"keep\"");
    let error = RunConfig::parse(&text, Path::new("x.toml")).unwrap_err();
    assert!(matches!(&error, ConfigError::Invalid { problems, .. } if problems.len() == 2));
    let text = error.to_string();
    assert!(text.starts_with("x.toml cannot be used:"), "{text}");
    assert!(
        text.contains("\n  agents.a.histroy: is not known here: did you mean \"history\"?"),
        "{text}"
    );
    assert!(text.contains("\n  run.train_steps: is 0"), "{text}");
}

#[test]
fn keys_of_other_programs_give_our_keys() {
    expect(
        &[
            ("train_steps = 10", "train_steps = 10\nmax_steps = 5"),
            ("group_size = 8", "group_size = 8\nn_samples_per_prompt = 8"),
            (
                "[agents.a]",
                "[agents.a]\nrollout_batch_size = 4\nmax_tokens_per_gpu = 4096\ntemperature = 0.8",
            ),
            ("[agents.b]", "[agents.b]\ntrain.num_generations = 4"),
        ],
        &[
            ("run.max_steps", "run.train_steps"),
            ("workflow.n_samples_per_prompt", "workflow.group_size"),
            ("agents.a.rollout_batch_size", "agents.NAME.train.batch_groups"),
            ("agents.a.max_tokens_per_gpu", "agents.NAME.train.micro_batch_tokens"),
            ("agents.a.temperature", "it belongs at agents.NAME.sampling.temperature"),
            ("agents.b.train.num_generations", "workflow.group_size"),
        ],
    );
}

#[test]
fn types_are_explained_in_words_of_the_file() {
    expect(
        &[
            (
                "train_steps = 10",
                "train_steps = \"10\"\nmessage_cap = \"huge\"\nlease = 5",
            ),
            ("mode = \"sync\"", "mode = \"snyc\""),
            ("group_size = 8", "group_size = 70000\nretries = -1"),
            ("batch_groups = 16", "batch_groups = 1.5\nenabled = \"yes\"\nkl = 0.1"),
            ("tokenizer = \"bytes\"", "tokenizer = { word = [\"a\"] }"),
        ],
        &[
            (
                "run.train_steps",
                "is the text \"10\": write a whole number, 0 or more, without quotes",
            ),
            ("run.message_cap", "1 MiB"),
            ("run.lease", "write a text in quotes; for example \"15s\""),
            ("run.mode", "did you mean \"sync\"?"),
            ("workflow.group_size", "from 0 to 65535"),
            ("workflow.retries", "0 or more"),
            ("defaults.agent.train.batch_groups", "is the number 1.5"),
            ("defaults.agent.train.enabled", "write true or false"),
            ("defaults.agent.train.kl", "a table"),
            ("defaults.agent.model.random.tokenizer", "write one of bytes, words"),
        ],
    );
}

#[test]
fn missing_tables_are_named_once() {
    let found = check("").unwrap_err();
    let paths: Vec<&str> = found.iter().map(|p| p.path.as_str()).collect();
    assert_eq!(paths, ["run", "tasks", "workflow", "agents"]);
    expect(
        &[(
            "model.random = { layers = 2, hidden = 64, heads = 4, tokenizer = \"bytes\" }",
            "",
        )],
        &[
            ("agents.a.model", "[agents.NAME.model.random]"),
            ("agents.b.model", "is missing"),
        ],
    );
}

#[test]
fn names_that_cannot_travel_are_named() {
    expect(
        &[
            ("[agents.b]", "[agents.\"B 2\"]"),
            ("listener = \"b\"", "listener = \"B 2\""),
        ],
        &[
            ("agents.B 2", "is not a name"),
            ("workflow.roles.listener", "is not a name"),
        ],
    );
    expect(&[("name = \"test\"", "name = \"My Run\"")], &[("run.name", "a-z")]);
}

#[test]
fn the_run_must_make_sense() {
    expect(
        &[
            (
                "mode = \"sync\"",
                "broker = \"rabbit:5672\"\nstate = \"redis://\"\nlease = \"0s\"\nmessage_cap = \
                 \"1 KiB\"",
            ),
            ("lead = \"a\"", "lead = \"z\""),
            ("source = \"generator:signal\"", "source = \"signal\"\nlimit = 0"),
            (
                "[graders.answer]\nkind = \"exact\"",
                "[graders.answer]\nkind = \"exakt\"\n[eval]\nevery = 5\nsource = \"queue\"\ntasks = 0\npool = 100\nvotes = 4\nstop_at = 2.0",
            ),
        ],
        &[
            ("run.broker", "amqp[s]://user:password@host:port/vhost"),
            ("run.state", "redis[s]://user:password@host:port/db"),
            ("run.lease", "15s"),
            ("run.message_cap", "16 KiB"),
            ("run.lead", "write \"a\" or \"b\""),
            ("tasks.source", "jsonl:PATH"),
            ("tasks.limit", "remove it"),
            ("graders.answer.kind", "did you mean \"exact\"?"),
            ("eval.source", "jsonl:PATH"),
            ("eval.tasks", "1 or more"),
            ("eval.pool", "solve-verify"),
            ("eval.votes", "solo"),
            ("eval.stop_at", "at most 1"),
        ],
    );
    for (broker, state) in [
        ("memory:", "local:"),
        ("amqps://u:p@h:5671/v", "rediss://h"),
        ("amqp://h", "redis://:p@h:1/2"),
    ] {
        let urls = format!("mode = \"sync\"\nbroker = \"{broker}\"\nstate = \"{state}\"");
        expect(&[("mode = \"sync\"", &urls)], &[]);
    }
    for (broker, state) in [
        ("amqp://", "redis://h:1/x"),
        ("amqp://127.0.0.1:99999", "http://x"),
        ("amqp://h/a/b", "redis://h:0"),
    ] {
        let urls = format!("mode = \"sync\"\nbroker = \"{broker}\"\nstate = \"{state}\"");
        let wanted = [("run.broker", "amqp[s]://"), ("run.state", "redis[s]://")];
        expect(&[("mode = \"sync\"", &urls)], &wanted);
    }
    for url in ["amqp://[::1]:5672/%2F", "amqp://u:p@h?heartbeat=10", "amqp://h"] {
        assert_eq!(super::broker_url(url), None, "{url}");
    }
}

#[test]
fn hold_needs_an_asynchronous_run_and_outlasts_the_lease() {
    let grader = "[graders.answer]\nkind = \"exact\"";
    let with = |keys: &str| format!("{grader}\n[eval]\n{keys}");
    let asynchronous = ("mode = \"sync\"", "mode = \"async\"");
    expect(&[(grader, &with("hold = false"))], &[("eval.hold", "remove it")]);
    for sound in [
        "hold = false",
        "hold_at_most = \"15s\"",
        "hold = false\nhold_at_most = \"1s\"",
    ] {
        expect(&[asynchronous, (grader, &with(sound))], &[]);
    }
    let short = with("hold_at_most = \"14s\"");
    expect(
        &[asynchronous, (grader, &short)],
        &[("eval.hold_at_most", "run.lease (15s)")],
    );
    assert!(check(GOOD).unwrap().eval.hold, "evaluations hold weights by default");
}

/// Zero turns the check off. Less than a second would end agents on a busy machine.
#[test]
fn stuck_after_below_a_second_is_rejected() {
    let with = |time: &str| format!("tokenizer = \"bytes\" }}\nengine.stuck_after = \"{time}\"");
    let model = "tokenizer = \"bytes\" }";
    for sound in ["0s", "1s", "2h"] {
        expect(&[(model, &with(sound))], &[]);
    }
    expect(
        &[(model, &with("999ms"))],
        &[("defaults.agent.engine.stuck_after", "1s or more")],
    );
}

#[test]
fn the_workflow_must_make_sense() {
    expect(
        &[
            (
                "group_size = 8",
                "group_size = 1\nmin_group = 1.5\ndominance = 2.0\nretries = 0",
            ),
            ("listener = { success = 1.0 }", "listner = { success = inf }"),
            ("listener = \"b\" }", "listener = \"a\" }"),
        ],
        &[
            ("workflow.group_size", "2 or more"),
            ("workflow.min_group", "0.0 to 1.0"),
            ("workflow.dominance", "0.0 to 1.0"),
            ("workflow.retries", "1 or more"),
            ("workflow.reward.listner", "\"listener\" or \"speaker\""),
            ("workflow.reward.listner.success", "finite"),
            ("agents.b", "plays no role"),
        ],
    );
    expect(
        &[("group_size = 8", "group_size = 0")],
        &[("workflow.group_size", "1 or more")],
    );
}

#[test]
fn defaults_are_checked_where_they_are_written() {
    expect(
        &[(
            "[defaults.agent]\n",
            "[defaults.agents]\nx = 1\n[defaults.agent]\nmodle = 1\n",
        )],
        &[
            ("defaults.agents", "[defaults.agent]"),
            ("defaults.agent.modle", "did you mean \"model\"?"),
        ],
    );
    let found = check(&format!(
        "defaults = 3\n{}",
        GOOD.split("[defaults.agent]").next().unwrap()
    ))
    .unwrap_err();
    assert!(found.iter().any(|p| p.path == "defaults"), "{found:?}");
    assert!(found.iter().any(|p| p.path == "agents"), "{found:?}");
}

#[test]
fn an_adapter_is_new_or_read() {
    let with = |lora: &str| format!("[agents.a]\nlora = {lora}");
    let adapter = |lora: &str, expected: &[(&str, &str)]| expect(&[("[agents.a]", &with(lora))], expected);
    adapter("{}", &[]);
    adapter("{ path = \"somewhere\" }", &[]);
    adapter("{ rank = 4, alpha = 8, targets = [\"unembed\"] }", &[]);
    adapter(
        "{ rank = 0, alpha = 0.0, targets = [] }",
        &[
            ("agents.a.lora.rank", "1 or more"),
            ("agents.a.lora.alpha", "above 0"),
            ("agents.a.lora.targets", "attn"),
        ],
    );
    adapter(
        "{ path = \"somewhere\", rank = 4 }",
        &[("agents.a.lora.path", "write only path")],
    );
}

#[test]
fn shipped_configurations_are_valid_and_round_trip() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        if path.extension().is_none_or(|e| e != "toml") || name == "Cargo.toml" {
            continue;
        }
        let config = RunConfig::load(&path).unwrap_or_else(|e| panic!("{e}"));
        let written = toml::to_string(&config).unwrap();
        let again = RunConfig::parse(&written, &path).unwrap_or_else(|e| panic!("as resolved, {e}"));
        assert_eq!(toml::to_string(&again).unwrap(), written, "{}", path.display());
    }
}

#[test]
fn transcripts_keep_one_conversation_per_group_by_default() {
    let config = check(GOOD).unwrap();
    assert_eq!(config.run.transcripts, crate::TranscriptPolicy::First);
}
