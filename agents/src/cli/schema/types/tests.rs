//! The published schemas are those of this build, and say what the types say.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use broker::RoleName;
use jsonschema::Validator;
use proptest::prelude::*;
use rollout::workflow::program::{Decision, Grade, read_answer};

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn validator(name: &str) -> Validator {
    jsonschema::draft202012::new(&find(name).unwrap().schema()).unwrap()
}

fn faults(validator: &Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|error| error.to_string()).collect()
}

/// When a change is meant: `DYAD_GOLDEN=write cargo test -p agents schema`.
#[test]
fn the_files_are_what_this_build_says() {
    for one in &ALL {
        let path = root().join(format!("configs/schema/{}.json", one.name));
        if std::env::var_os("DYAD_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::write(&path, one.text()).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(
            golden,
            one.text(),
            "configs/schema/{}.json is of another build",
            one.name
        );
        assert!(jsonschema::draft202012::meta::is_valid(&one.schema()), "{}", one.name);
    }
}

#[test]
fn shipped_tasks_are_tasks_by_the_schema_too() {
    let validator = validator("task");
    let (mut tasks, mut others) = (0, 0);
    let files = std::fs::read_dir(root().join("configs/data")).unwrap();
    for file in files.map(|file| file.unwrap().path()) {
        if file.extension().is_none_or(|ending| ending != "jsonl") {
            continue;
        }
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let read = Task::parse(line.as_bytes(), 1 << 20);
            let said = faults(&validator, &serde_json::from_str(line).unwrap());
            assert_eq!(
                read.is_ok(),
                said.is_empty(),
                "{}: {line}: {read:?} {said:?}",
                file.display()
            );
            // Demonstrations of warm starts are no tasks.
            *(if read.is_ok() { &mut tasks } else { &mut others }) += 1;
        }
    }
    assert!(tasks > 100 && others > 0, "{tasks} {others}");
}

#[test]
fn what_is_no_task_is_none_by_the_schema_either() {
    let validator = validator("task");
    let image = |url: &str| {
        format!(r#"{{"prompt":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}]}}"#)
    };
    let long = format!(r#"{{"prompt":"x","id":"{}"}}"#, "i".repeat(201));
    for (line, is_task) in [
        (r#"{"prompt":"x"}"#, true),
        (r#"{"prompt":"x","label":null,"id":null,"workflow":null}"#, true),
        (
            r#"{"prompt":[{"role":"user","content":"x"}],"label":[1,{}],"metadata":{"rubric":["a"]},"id":"t"}"#,
            true,
        ),
        (&image("data:image/png;base64,iVBOR"), true),
        (r#"{"prompt":"x","tools":[]}"#, true),
        (r#"{"prompt":"x","tools":null}"#, true),
        (
            r#"{"prompt":"x","tools":["search",{"name":"visit"},{"name":"look","bind":{"corpus":"a","n":[1]}}]}"#,
            true,
        ),
        (r#"{"prompt":"x","tools":"search"}"#, false),
        (r#"{"prompt":"x","tools":[{"bind":{}}]}"#, false),
        (
            r#"{"prompt":"x","tools":[{"name":"search","kind":"process:x.py"}]}"#,
            false,
        ),
        (r#"{"prompt":"x","tools":[{"name":"search","bind":["a"]}]}"#, false),
        (r"{}", false),
        (r#"["x"]"#, false),
        (r#"{"prompt":7}"#, false),
        (r#"{"prompt":"x","lable":3}"#, false),
        (r#"{"prompt":"x","id":7}"#, false),
        (r#"{"prompt":"x","id":""}"#, false),
        (r#"{"prompt":"x","id":"a\nb"}"#, false),
        (r#"{"prompt":"x","metadata":[]}"#, false),
        (r#"{"prompt":[{"role":"tools","content":"[]"}]}"#, false),
        (r#"{"prompt":[{"role":"wizard","content":"x"}]}"#, false),
        (r#"{"prompt":[]}"#, false),
        (r#"{"prompt":[{"role":"user","content":"x","name":"y"}]}"#, false),
        (
            r#"{"prompt":[{"role":"user","content":[{"type":"audio","text":"x"}]}]}"#,
            false,
        ),
        (&image("file:///etc/passwd"), false),
        (&image("https://x .org"), false),
        (&long, false),
    ] {
        let said = faults(&validator, &serde_json::from_str(line).unwrap());
        assert_eq!(Task::parse(line.as_bytes(), 1 << 20).is_ok(), is_task, "{line}");
        assert_eq!(said.is_empty(), is_task, "{line}: {said:?}");
    }
}

/// JSON that is often a task, and often nearly one.
fn any_task() -> impl Strategy<Value = Value> {
    let text = || "[a-z:/ ]{0,12}".prop_map(Value::from);
    let odd = || {
        prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            Just(json!([])),
            Just(json!({}))
        ]
    };
    let url = prop_oneof![
        Just("https://x.org/a.png"),
        Just("data:image/png;base64,aa"),
        Just("ftp://x"),
        Just("http:// x")
    ];
    let part = prop_oneof![
        text().prop_map(|text| json!({"type": "text", "text": text})),
        url.prop_map(|url| json!({"type": "image_url", "image_url": {"url": url}})),
        Just(json!({"type": "image_url", "image_url": "https://x.org"})),
        odd(),
    ];
    let content = prop_oneof![4 => text(), 3 => prop::collection::vec(part, 0..3).prop_map(Value::from), 1 => odd()];
    let role = prop_oneof![4 => Just(json!("user")), 1 => Just(json!("tools")), 1 => Just(json!("wizard")), 1 => odd()];
    let message = (role, content).prop_map(|(role, content)| json!({"role": role, "content": content}));
    let prompt = prop_oneof![2 => text(), 4 => prop::collection::vec(message, 0..3).prop_map(Value::from), 1 => odd()];
    let tool = prop_oneof![
        3 => text(),
        3 => Just(json!({"name": "search", "bind": {"corpus": 1}})),
        1 => Just(json!({"name": "search", "kind": "http://x"})),
        1 => odd(),
    ];
    let tools = prop::collection::vec(tool, 0..3).prop_map(Value::from);
    let field = |key: &'static str, value: BoxedStrategy<Value>| prop::option::of(value.prop_map(move |v| (key, v)));
    let fields = (
        prop::option::weighted(0.9, prompt.prop_map(|value| ("prompt", value))),
        field("id", prop_oneof![3 => text(), 1 => odd()].boxed()),
        field("label", prop_oneof![text(), odd()].boxed()),
        field("metadata", odd().boxed()),
        field("tools", prop_oneof![3 => tools, 1 => odd()].boxed()),
        prop::option::weighted(0.1, Just(("more", json!(1)))),
    );
    fields.prop_map(|(a, b, c, d, e, f)| {
        let given = [a, b, c, d, e, f].into_iter().flatten();
        given.map(|(key, value)| (key.to_owned(), value)).collect()
    })
}

proptest! {
    #[test]
    fn the_schema_and_the_type_agree_on_any_task(value in any_task()) {
        let (read, said) = (Task::parse(value.to_string().as_bytes(), 1 << 20), faults(&validator("task"), &value));
        prop_assert_eq!(read.is_ok(), said.is_empty(), "{}: {:?} {:?}", value, read, said);
    }
}

#[test]
fn shipped_configurations_and_wrong_ones() {
    let validator = validator("config");
    let json = |text: &str| serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
    let mut seen = 0;
    for file in std::fs::read_dir(root().join("configs"))
        .unwrap()
        .map(|file| file.unwrap().path())
    {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".toml") || name == "Cargo.toml" {
            continue;
        }
        let said = faults(&validator, &json(&std::fs::read_to_string(&file).unwrap()));
        assert!(said.is_empty(), "{name}: {said:?}");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
    let good = std::fs::read_to_string(root().join("configs/signal.toml")).unwrap();
    for (key, value) in [
        ("run.train_steps", json!("4")),
        ("run.mode", json!("both")),
        ("run.lease", json!("15 parsecs")),
        ("run.message_cap", json!(1_048_576)),
        ("workflow.group_sise", json!(4)),
        ("workflow.group_size", json!(70_000)),
        ("agents.a.train.loss.kind", json!("ppo")),
        ("agents.a.engine.slots", json!(-1)),
        ("agents.a.template_date", json!("26 Jul 2024")),
        ("agents.A", json!({})),
        ("defaults.agents", json!({})),
    ] {
        let mut table = json(&good);
        let (parents, last) = key.rsplit_once('.').unwrap();
        let mut place = &mut table;
        for parent in parents.split('.') {
            place = place
                .as_object_mut()
                .unwrap()
                .entry(parent)
                .or_insert_with(|| json!({}));
        }
        place[last] = value;
        let text = toml::to_string(&table).unwrap();
        assert!(!faults(&validator, &table).is_empty(), "the schema takes {key}");
        assert!(
            RunConfig::parse(&text, Path::new("x.toml")).is_err(),
            "the type takes {key}"
        );
    }
}

/// What the shipped programs are really asked, and really answer.
#[test]
fn the_examples_in_python_speak_by_the_schemas() {
    let task: Task = serde_json::from_str(r#"{"id":"sum","prompt":"2+3=","label":5,"metadata":{"k":[1]}}"#).unwrap();
    let event = json!({"role": "solver", "seat": 0, "turn": 0, "text": "5", "finish": "stop", "tokens": 1});
    let verdict = json!({"role": "verifier", "seat": 0, "turn": 0, "text": "approve", "finish": "length", "tokens": 1});
    let step = |events: Vec<&Value>| Question::Step {
        seed: 7,
        params: json!({}),
        events: events
            .into_iter()
            .map(|event| serde_json::from_value(event.clone()).unwrap())
            .collect(),
        task: task.clone(),
    };
    let role = RoleName::new("solver").unwrap().to_string();
    let grade = Question::Grade {
        role,
        text: "5".into(),
        task: task.clone(),
    };
    for (file, name, questions) in [
        (
            "solve_verify.py",
            "workflow",
            vec![step(vec![]), step(vec![&event]), step(vec![&event, &verdict])],
        ),
        ("reward.py", "grade", vec![grade]),
    ] {
        let (asks, answers) = (
            validator(&format!("{name}-question")),
            validator(&format!("{name}-answer")),
        );
        let mut child = Command::new("python3")
            .arg(root().join("configs/programs").join(file))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, mut from) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        for (id, question) in questions.iter().enumerate() {
            let line = serde_json::to_string(question).unwrap();
            let line = crate::participant::with_id(&line, id as u64).unwrap();
            let said = faults(&asks, &serde_json::from_str(&line).unwrap());
            assert!(said.is_empty(), "{line}: {said:?}");
            writeln!(to, "{line}").unwrap();
            let mut answer = String::new();
            from.read_line(&mut answer).unwrap();
            let said = faults(&answers, &serde_json::from_str(&answer).unwrap());
            assert!(said.is_empty(), "{answer}: {said:?}");
            assert!(read_answer(question, &answer).is_ok(), "{answer}");
        }
        drop(to);
        child.wait().unwrap();
    }
}

#[test]
fn answers_that_programs_may_not_give_are_refused_by_both() {
    let (step, grade) = (validator("workflow-answer"), validator("grade-answer"));
    for (text, good) in [
        (r#"{"id":1,"ask":[{"role":"solver","prompt":"?","stop":["\n"]}]}"#, true),
        (
            r#"{"id":1,"done":{"rewards":[{"role":"solver","parts":{"reward":1}}],"metrics":{"success":1}}}"#,
            true,
        ),
        (r#"{"id":1,"ask":[{"role":"solver","promt":"?"}]}"#, false),
        (r#"{"id":1,"ask":[{"prompt":"?"}]}"#, false),
        (r#"{"id":1,"done":{"metrics":{"success":1}}}"#, false),
        (r#"{"id":1}"#, false),
        (r#"{"id":1,"ask":[],"done":{"rewards":[],"metrics":{}}}"#, false),
    ] {
        let mut value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(step.is_valid(&value), good, "{text}: {:?}", faults(&step, &value));
        value.as_object_mut().unwrap().remove("id");
        assert!(!step.is_valid(&value), "without an id: {text}");
        assert_eq!(serde_json::from_value::<Decision>(value).is_ok(), good, "{text}");
    }
    for (text, good) in [
        (r#"{"id":1,"reward":0.5}"#, true),
        (r#"{"id":1,"reward":null}"#, true),
        (r#"{"id":1,"reward":"5"}"#, false),
        (r#"{"id":1,"reward":1,"why":"x"}"#, false),
    ] {
        let mut value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(grade.is_valid(&value), good, "{text}: {:?}", faults(&grade, &value));
        value.as_object_mut().unwrap().remove("id");
        assert_eq!(serde_json::from_value::<Grade>(value).is_ok(), good, "{text}");
    }
    for name in ["workflow-answer", "grade-answer", "tool-answer"] {
        assert!(
            validator(name).is_valid(&json!({"id": 1, "error": "no model"})),
            "{name}"
        );
    }
    // As some write what is not there.
    for (schema, answer) in [
        (&grade, json!({"id": 1, "error": null, "reward": 0.5})),
        (
            &step,
            json!({"id": 1, "error": null, "ask": [{"role": "solver", "prompt": "?"}]}),
        ),
    ] {
        assert!(schema.is_valid(&answer), "{answer}: {:?}", faults(schema, &answer));
    }
}
