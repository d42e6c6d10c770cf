//! Sources of tasks, from the outside.

use std::collections::BTreeSet;
use std::io::Write as _;

use broker::protocol::task::Prompt;
use configs::EvalConfig;
use serde_json::json;

use super::*;

fn config(text: &str) -> TasksConfig {
    toml::from_str(text).unwrap()
}

fn open(text: &str, seed: u64) -> TaskSource {
    TaskSource::open(&config(text), seed).unwrap().unwrap()
}

fn take(source: &mut TaskSource, n: usize) -> Vec<(Cursor, Task)> {
    (0..n).map_while(|_| source.next().unwrap()).collect()
}

fn ids(tasks: &[(Cursor, Task)]) -> Vec<&str> {
    tasks.iter().map(|(_, task)| task.id.as_deref().unwrap()).collect()
}

fn file(lines: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.jsonl");
    std::fs::File::create(&path)
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let source = format!("source = \"jsonl:{}\"\n", path.display());
    (folder, source)
}

#[test]
fn every_pass_of_signal_shows_each_object_once() {
    let mut source = open("source = \"generator:signal\"", 1);
    let tasks = take(&mut source, 48);
    assert_eq!(ids(&tasks)[..2], ["signal/0/0", "signal/0/1"]);
    assert_eq!(tasks[47].1.id.as_deref(), Some("signal/2/15"));
    let words = |pass: usize| {
        tasks[16 * pass..][..16]
            .iter()
            .map(|(_, t)| t.label.clone())
            .collect::<Vec<_>>()
    };
    for pass in 0..3 {
        assert_eq!(
            words(pass)
                .iter()
                .map(ToString::to_string)
                .collect::<BTreeSet<_>>()
                .len(),
            16
        );
    }
    assert_ne!(words(0), words(1));
    assert_eq!(tasks, take(&mut open("source = \"generator:signal\"", 1), 48));
    assert_ne!(tasks, take(&mut open("source = \"generator:signal\"", 2), 48));
    assert_eq!(
        tasks,
        take(&mut open("source = \"generator:signal\"\nparams = { seed = 1 }", 2), 48)
    );
}

#[test]
fn a_source_goes_on_at_any_cursor() {
    let text = "source = \"generator:signal\"\nparams = { objects = 5 }\nepochs = 3";
    let all = take(&mut open(text, 3), 100);
    assert_eq!(all.len(), 15);
    for (i, (cursor, _)) in all.iter().enumerate() {
        let mut source = open(text, 3);
        source.seek(*cursor);
        assert_eq!(source.order(*cursor), i as u64);
        assert_eq!(take(&mut source, 100), all[i..]);
    }
    let mut source = open(text, 3);
    take(&mut source, 5);
    let stored = source.cursor();
    let mut resumed = open(text, 3);
    resumed.seek(stored);
    assert_eq!(take(&mut resumed, 100), all[5..]);
}

#[test]
fn a_dapo_style_line_loads_as_it_is() {
    let line = json!({
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": "What is 6 x 7?", "name": "x"}],
        "reward_model": {"ground_truth": "42", "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "9a9b6eb4"},
    });
    let (_folder, source) = file(&format!("{line}\n\n{line}\n"));
    let keys = "label = \"reward_model.ground_truth\"\nid = \"extra_info.index\"\nepochs = 2";
    let tasks = take(&mut open(&format!("{source}{keys}"), 0), 100);
    assert_eq!(ids(&tasks), ["9a9b6eb4", "9a9b6eb4", "9a9b6eb4#1", "9a9b6eb4#1"]);
    assert_eq!(
        (tasks[0].1.prompt.text(), &tasks[0].1.label),
        ("What is 6 x 7?", &json!("42"))
    );
}

/// Rows of one plain file are read again where they stand.
#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let (_folder, source) = file("\u{feff}{\"prompt\": \"x\", \"label\": 1}\n{\"prompt\": \"y\", \"label\": 2}\n");
    let tasks = take(&mut open(&format!("{source}epochs = 1"), 0), 100);
    let said: Vec<&str> = tasks.iter().map(|(_, task)| task.prompt.text()).collect();
    assert_eq!(said, ["x", "y"]);
    // A mark elsewhere is a mistake of the line.
    let (_folder, source) = file("{\"prompt\": \"x\", \"label\": 1}\n\u{feff}{\"prompt\": \"y\", \"label\": 2}\n");
    let error = TaskSource::open(&config(&source), 0).err().unwrap().to_string();
    assert!(error.contains("line 2: not JSON"), "{error}");
}

#[test]
fn a_row_lists_its_tools_under_a_key_of_ones_choice() {
    let row = |tools: serde_json::Value| json!({"prompt": "x", "label": 1, "can": {"use": tools}});
    let bound = json!([{"name": "search", "bind": {"corpus": "case-17", "top": null}}, {"name": "visit", "bind": null}, "look"]);
    let lines = format!("{}\n{}\n{}\n", row(bound), row(json!([])), row(json!(null)));
    let (_folder, source) = file(&lines);
    let tasks = take(&mut open(&format!("{source}tools = \"can.use\"\nepochs = 1"), 0), 100);
    let first = &tasks[0].1;
    assert!(first.offers("search") && first.offers("visit") && first.offers("look") && !first.offers("fly"));
    assert_eq!(
        (first.bound("search"), first.bound("look")),
        (json!({"corpus": "case-17"}).as_object(), None),
        "a column of structs has null where a row has nothing"
    );
    assert_eq!(tasks[1].1.tools.as_deref(), Some(&[][..]));
    assert!(tasks[2].1.tools.is_none() && tasks[2].1.offers("fly"));
    // A row that lost its list does not get all tools.
    let (_folder, lost) = file(&format!("{}\n", json!({"prompt": "x", "label": 1, "can": {}})));
    let refused = TaskSource::open(&config(&format!("{lost}tools = \"can.use\"")), 0)
        .map(|_| ())
        .unwrap_err();
    let refused = format!("{refused:?}");
    assert!(
        refused.contains("can.use") && refused.contains("null for all tools"),
        "{refused}"
    );
    // Without the key, a column of that name belongs to a different program.
    let other = format!(
        "{}\n",
        json!({"prompt": "x", "label": 1, "tools": [{"type": "function"}]})
    );
    let (_folder, source) = file(&other);
    assert!(take(&mut open(&source, 0), 1)[0].1.tools.is_none());
    let refused = TaskSource::open(&config(&format!("{source}tools = \"tools\"")), 0)
        .map(|_| ())
        .unwrap_err();
    assert!(format!("{refused:?}").contains("{name, bind}"), "{refused:?}");
}

#[test]
fn text_prompts_limits_and_shuffles() {
    let lines: String = (0..20)
        .map(|i| format!("{{\"q.x\": \"{i}?\", \"a\": [{i}]}}\n"))
        .collect();
    let (_folder, source) = file(lines.trim_end());
    let text = format!("{source}prompt = \"q.x\"\nlabel = \"a.0\"\nlimit = 6\nepochs = 1\n");
    let plain = take(&mut open(&text, 0), 100);
    assert_eq!(ids(&plain)[5], "tasks/0/5");
    assert_eq!(
        plain.iter().map(|(_, t)| t.label.as_u64().unwrap()).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    let mixed = take(&mut open(&format!("{text}shuffle = true"), 0), 100);
    let labels: Vec<u64> = mixed.iter().map(|(_, t)| t.label.as_u64().unwrap()).collect();
    assert_ne!(labels, [0, 1, 2, 3, 4, 5]);
    assert_eq!(labels.into_iter().collect::<BTreeSet<_>>(), (0..6).collect());
}

#[test]
fn errors_name_file_and_line() {
    let good = "{\"prompt\": \"1+1=\", \"label\": 2}";
    for (bad, reason) in [
        ("{", "not JSON"),
        ("3", "no JSON object"),
        ("{\"question\": \"x\", \"label\": 1}", "the row has: question, label"),
        ("{\"prompt\": \"x\"}", "nothing under \"label\""),
        ("{\"prompt\": null, \"label\": 1}", "nothing under \"prompt\""),
        ("{\"prompt\": 3, \"label\": 1}", "neither a text nor a list"),
        ("{\"prompt\": [], \"label\": 1}", "empty"),
        (
            "{\"prompt\": [{\"role\": \"root\", \"content\": \"\"}], \"label\": 1}",
            "\"root\"",
        ),
        (
            "{\"prompt\": [{\"role\": \"user\"}], \"label\": 1}",
            "message 0 has no content",
        ),
        (
            "{\"prompt\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\"}]}], \"label\": 1}",
            "message 0 has tool_calls, which would be lost",
        ),
        (
            "{\"prompt\": \"cut \\ud83d\", \"label\": 1}",
            "ensure_ascii=False and errors=\"replace\"",
        ),
        ("{\"prompt\": \"x\", \"label\": NaN}", "NaN is no JSON: write null"),
    ] {
        let (_folder, source) = file(&format!("{good}\n\n{bad}\n{good}\n"));
        let error = TaskSource::open(&config(&source), 0).err().unwrap().to_string();
        assert!(
            error.contains("tasks.jsonl, line 3: ") && error.contains(reason),
            "{error}"
        );
    }
    let (_folder, source) = file("\n\n");
    assert!(
        TaskSource::open(&config(&source), 0)
            .err()
            .unwrap()
            .to_string()
            .contains("has no tasks")
    );
    let missing = TaskSource::open(&config("source = \"jsonl:/nowhere/x.jsonl\""), 0)
        .err()
        .unwrap();
    assert!(missing.to_string().contains("/nowhere/x.jsonl"));
}

#[test]
fn what_stands_under_metadata_goes_with_the_task() {
    let with = r#"{"prompt": "p", "label": 1, "metadata": {"self_report": "hot", "facts": {"fever": "hot"}}}"#;
    let (_folder, source) = file(&format!("{with}\n{{\"prompt\": \"p\", \"label\": 1}}\n"));
    let mut source = TaskSource::open(&config(&source), 0).unwrap().unwrap();
    let tasks = take(&mut source, 2);
    assert_eq!(tasks[0].1.metadata["self_report"], "hot");
    assert_eq!(tasks[0].1.metadata["facts"]["fever"], "hot");
    assert!(tasks[1].1.metadata.is_empty());
    let (_folder, source) = file("{\"prompt\": \"p\", \"label\": 1, \"metadata\": \"x\"}\n");
    let mut source = TaskSource::open(&config(&source), 0).unwrap().unwrap();
    assert_eq!(take(&mut source, 1)[0].1.metadata["metadata"], "x");
}

#[test]
fn a_task_that_the_workflow_cannot_play_is_found_before_the_run() {
    let (_folder, source) = file("{\"prompt\": \"p\", \"label\": 1}\n\n{\"prompt\": \"p\", \"label\": 2}\n");
    let mut source = TaskSource::open(&config(&source), 0).unwrap().unwrap();
    let judge = |task: &Task| {
        if task.label == 1 {
            Ok(())
        } else {
            Err("the label is no 1".to_owned())
        }
    };
    let error = source.check(judge).unwrap_err().to_string();
    assert!(error.ends_with("task 2 of tasks: the label is no 1"), "{error}");
    let error = source.check(|_| Err("no".to_owned())).unwrap_err().to_string();
    assert!(
        error.contains("task 1 of tasks: no (the first of 2 of 2 tasks, 100.0 %"),
        "{error}"
    );
    source.check(|_| Ok(())).unwrap();
    assert_eq!(source.cursor(), Cursor::default(), "nothing was drawn");
}

#[test]
fn wrong_settings_are_named_by_key() {
    for (text, key) in [
        ("source = \"generator:poems\"", "tasks.source"),
        (
            "source = \"generator:signal\"\nparams = { object = 3 }",
            "tasks.params.object",
        ),
        (
            "source = \"generator:signal\"\nparams = { objects = 0 }",
            "tasks.params.objects",
        ),
        (
            "source = \"generator:arithmetic\"\nparams = { max = 5 }",
            "tasks.params.max",
        ),
        (
            "source = \"generator:arithmetic\"\nparams = { max = 99999 }",
            "tasks.params.max",
        ),
        (
            "source = \"generator:arithmetic\"\nparams = { ops = [\"/\"] }",
            "tasks.params.ops",
        ),
        (
            "source = \"generator:arithmetic\"\nparams = { seed = -1 }",
            "tasks.params.seed",
        ),
    ] {
        let error = TaskSource::open(&config(text), 0).err().unwrap().to_string();
        assert!(error.starts_with(&format!("{key}: ")), "{error}");
    }
    assert!(TaskSource::open(&config("source = \"queue\""), 0).unwrap().is_none());
}

#[test]
fn held_out_problems_are_never_trained_on() {
    let tasks =
        config("source = \"generator:arithmetic\"\nparams = { min = 1, max = 40, ops = [\"+\", \"-\"] }\nepochs = 1");
    let eval = EvalConfig {
        source: None,
        tasks: None,
        ..EvalConfig::default()
    };
    let mut train = TaskSource::open(&tasks, 1).unwrap().unwrap();
    let mut held_out = TaskSource::open_eval(&eval, &tasks, 2).unwrap().unwrap();
    let problems = |source: &mut TaskSource| take(source, 10_000).into_iter().map(|(_, t)| t).collect::<Vec<_>>();
    let (train, held_out) = (problems(&mut train), problems(&mut held_out));
    let text = |task: &Task| match &task.prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Messages(_) => panic!(),
    };
    let seen: BTreeSet<String> = train.iter().map(text).collect();
    assert_eq!(train.len() + held_out.len(), 40 * 40 * 2);
    assert!(
        (0.15..0.25).contains(&(held_out.len() as f64 / 3200.0)),
        "{}",
        held_out.len()
    );
    for task in &held_out {
        let text = text(task);
        assert!(!seen.contains(&text));
        if let Some((left, right)) = text.trim_end_matches('=').split_once('+') {
            assert!(!seen.contains(&format!("{right}+{left}=")), "{text} is given away");
        }
    }
    for task in train.iter().chain(&held_out).take(500) {
        let text = text(task);
        let sum = text.trim_end_matches('=');
        let value = |(a, b): (&str, &str), f: fn(i64, i64) -> i64| f(a.parse().unwrap(), b.parse().unwrap());
        let expected = match sum.split_once('+') {
            Some(pair) => value(pair, |a, b| a + b),
            None => value(sum.split_once('-').unwrap(), |a, b| a - b),
        };
        assert_eq!(task.label, json!(expected), "{text}");
    }
}

#[test]
fn evaluations_take_the_same_few_tasks_each_time() {
    let tasks = config("source = \"generator:arithmetic\"\nshuffle = true\nepochs = 5\nlimit = 3");
    let eval = EvalConfig {
        source: None,
        tasks: Some(50),
        every: 5,
        ..EvalConfig::default()
    };
    let once = |seed| take(&mut TaskSource::open_eval(&eval, &tasks, seed).unwrap().unwrap(), 1000);
    assert_eq!(once(1), once(1));
    assert_eq!(once(1).len(), 50);
    let distinct: BTreeSet<String> = once(1).iter().map(|(_, t)| t.prompt.text().to_owned()).collect();
    assert_eq!(distinct.len(), 50);
}

#[test]
fn evaluations_have_keys_of_their_own() {
    let row = json!({"q": "1+1", "a": 2, "prompt": "2+2", "label": 4, "n": "first", "id": "second", "use": ["search"], "may": ["visit"]});
    let (_folder, source) = file(&format!("{row}\n"));
    let source = source
        .trim_start_matches("source = ")
        .trim()
        .trim_matches('"')
        .to_owned();
    let tasks = config("source = \"queue\"\nid = \"id\"\ntools = \"use\"");
    let first = |eval: EvalConfig| {
        let eval = EvalConfig {
            source: Some(source.clone()),
            ..eval
        };
        take(&mut TaskSource::open_eval(&eval, &tasks, 0).unwrap().unwrap(), 1)
            .remove(0)
            .1
    };
    let text = |text: &str| Some(text.to_owned());
    let inherited = first(EvalConfig::default());
    assert_eq!(
        (inherited.id.as_deref(), inherited.prompt.text()),
        (Some("second"), "2+2")
    );
    assert!(inherited.offers("search") && !inherited.offers("fly"), "as in training");
    let own_tools = first(EvalConfig {
        tools: text("may"),
        ..EvalConfig::default()
    });
    assert!(own_tools.offers("visit") && !own_tools.offers("search"));
    let own = EvalConfig {
        prompt: text("q"),
        label: text("a"),
        ..EvalConfig::default()
    };
    assert_eq!(
        first(own.clone()).id.as_deref(),
        Some("tasks/0/0"),
        "the id belongs to rows with other keys"
    );
    assert!(first(own.clone()).tools.is_none(), "and so do the tools");
    let named = first(EvalConfig {
        id: text("n"),
        tools: text("use"),
        ..own
    });
    assert_eq!(named.id.as_deref(), Some("first"));
    assert!(named.offers("search") && !named.offers("fly"));
}

mod choosing;
mod mixing;
