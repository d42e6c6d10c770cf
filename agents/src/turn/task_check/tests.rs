//! Tasks that cannot be played or won, and those next to them that can.

use std::path::Path;

use broker::protocol::turn::Message;
use rollout::workflow::{Event, RoleSpec, Step, ask};
use serde_json::{Value, json};

use super::*;

/// Returns a shipped configuration with changes by key.
fn config(text: &str, changes: &[(&str, toml::Value)]) -> RunConfig {
    let mut table: toml::Table = text.parse().unwrap();
    for (path, value) in changes {
        let (parents, last) = path.rsplit_once('.').unwrap();
        let mut place = &mut table;
        for parent in parents.split('.') {
            let inner = place.entry(parent).or_insert_with(|| toml::Table::new().into());
            place = inner.as_table_mut().unwrap();
        }
        place.insert(last.to_owned(), value.clone());
    }
    RunConfig::parse(&toml::to_string(&table).unwrap(), Path::new("x.toml")).unwrap()
}

const SIGNAL: &str = include_str!("../../../../configs/signal.toml");
const GUESS: &str = include_str!("../../../../configs/guess-number.toml");

fn checked(config: &RunConfig, task: Value) -> Result<(), String> {
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
    let task = Task::parse(task.to_string().as_bytes(), 1 << 20).unwrap();
    check(config, workflow.as_ref(), &task)
}

#[track_caller]
fn refused(config: &RunConfig, task: Value, says: &[&str]) {
    let said = checked(config, task.clone()).expect_err(&task.to_string());
    for part in says {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn object_outside_of_the_signal_game_is_refused() {
    let config = config(SIGNAL, &[]);
    let checked = |prompt: &str, label: &str| checked(&config, json!({ "prompt": prompt, "label": label }));
    assert_eq!(checked("o3", "o3"), Ok(()));
    let prompt = checked("o99", "o99").unwrap_err();
    assert!(prompt.starts_with("the prompt has the word \"o99\""), "{prompt}");
    let label = checked("o3", "o99").unwrap_err();
    assert!(label.starts_with("the label has the word \"o99\""), "{label}");
}

#[test]
fn label_longer_than_a_turn_of_the_listener_is_refused() {
    let two = json!({"prompt": "o3", "label": "o3 o4"});
    refused(
        &config(SIGNAL, &[]),
        two.clone(),
        &[
            "the label is \"o3 o4\", of 2 words",
            "the limit of the listener's turn is 1",
            "raise agents.b.sampling.max_new_tokens",
        ],
    );
    let wide = [("defaults.agent.sampling.max_new_tokens", 2.into())];
    let key = "raise workflow.params.answer_tokens";
    refused(&config(SIGNAL, &wide), two.clone(), &[key]);
    let wider = [wide.as_slice(), &[("workflow.params.answer_tokens", 2.into())]].concat();
    assert_eq!(checked(&config(SIGNAL, &wider), two.clone()), Ok(()));
    let spaced = json!({"prompt": "o3", "label": "o3  o4"});
    refused(&config(SIGNAL, &wider), spaced, &["write one space there"]);
    let narrow = [
        wider.as_slice(),
        &[("workflow.sampling.listener.max_new_tokens", 1.into())],
    ]
    .concat();
    refused(
        &config(SIGNAL, &narrow),
        two,
        &["raise workflow.sampling.listener.max_new_tokens"],
    );
}

#[test]
fn signal_task_without_an_object_is_refused() {
    let config = config(SIGNAL, &[]);
    refused(&config, json!({"prompt": "", "label": "o3"}), &["the prompt is empty"]);
    refused(
        &config,
        json!({"prompt": " \n", "label": "o3"}),
        &["the prompt is empty"],
    );
    refused(&config, json!({"prompt": "o3", "label": " "}), &["the label is empty"]);
    refused(&config, json!({"prompt": "o3"}), &["the label is null"]);
    let before = json!([{"role": "user", "content": "o1"}, {"role": "user", "content": ""}]);
    assert_eq!(checked(&config, json!({"prompt": before, "label": "o3"})), Ok(()));
}

#[test]
fn speaker_without_a_symbol_is_refused() {
    let words: Vec<toml::Value> = (0..16).map(|index| format!("o{index}").into()).collect();
    let mute = [("defaults.agent.model.random.tokenizer.words", words.into())];
    let task = json!({"prompt": "o3", "label": "o3"});
    refused(
        &config(SIGNAL, &mute),
        task.clone(),
        &["no word of the speaker's agent is among s0 to s23"],
    );
    let free = [mute.as_slice(), &[("workflow.params.symbols", 0.into())]].concat();
    assert_eq!(checked(&config(SIGNAL, &free), task), Ok(()));
}

/// Such a game only tests that a run works.
#[test]
fn agents_with_byte_tokenizers_play_with_any_object() {
    let bytes = config(SIGNAL, &[("defaults.agent.model.random.tokenizer", "bytes".into())]);
    assert_eq!(checked(&bytes, json!({"prompt": "o99 x", "label": "o99 x"})), Ok(()));
    refused(
        &bytes,
        json!({"prompt": "o".repeat(40), "label": "o"}),
        &["has 41 tokens"],
    );
}

#[test]
fn secret_that_the_asker_cannot_say_is_refused() {
    let secret = |secret: i64, high: Value| json!({"prompt": "?", "label": secret, "metadata": {"high": high}});
    let words = config(GUESS, &[]);
    assert_eq!(checked(&words, secret(7, json!(7))), Ok(()));
    refused(
        &words,
        secret(9, json!(9)),
        &["the label is 9, and no word of the asker's agent is that number"],
    );
    refused(
        &words,
        secret(9, json!(7)),
        &["the label is 9; it is the secret, a whole number from 0 to 7"],
    );
    refused(&words, secret(9, json!(-1)), &["metadata.high is -1"]);
    refused(
        &words,
        json!({"prompt": "?", "label": 1}),
        &["metadata.high is missing"],
    );
    let bytes = config(GUESS, &[("defaults.agent.model.random.tokenizer", "bytes".into())]);
    assert_eq!(checked(&bytes, secret(9, json!(9))), Ok(()));
    refused(
        &bytes,
        secret(10, json!(10)),
        &["the label is 10, of 2 bytes", "the limit of the asker's turn is 1"],
    );
}

/// The word that begins the answer counts.
#[test]
fn prompt_that_leaves_no_room_for_an_answer_is_refused() {
    let prompt = |words: usize| json!({"prompt": vec!["o1"; words].join(" "), "label": "o1"});
    let plain = config(SIGNAL, &[]);
    assert_eq!(checked(&plain, prompt(30)), Ok(()));
    let says = [
        "the first prompt of the speaker has 32 tokens",
        "agents.a.model.random.max_context is 32",
    ];
    refused(&plain, prompt(31), &says);
    let capped = config(SIGNAL, &[("agents.a.sampling.max_context", 8.into())]);
    assert_eq!(checked(&capped, prompt(6)), Ok(()));
    refused(&capped, prompt(7), &["agents.a.sampling.max_context is 8"]);
    let role = config(SIGNAL, &[("workflow.sampling.speaker.max_context", 4.into())]);
    refused(&role, prompt(3), &["workflow.sampling.speaker.max_context is 4"]);
    let scripted = ("defaults.agent.engine.kind", "scripted".into());
    assert_eq!(checked(&config(SIGNAL, &[scripted]), prompt(40)), Ok(()));
    // Another template may leave words out.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.jinja");
    std::fs::write(&path, "{% if add_generation_prompt %}<|assistant|>{% endif %}").unwrap();
    let own = [("agents.a.chat_template", path.to_str().unwrap().into())];
    assert_eq!(checked(&config(SIGNAL, &own), prompt(40)), Ok(()));
}

/// Asks for a prompt of a hundred words, with one more word for some seeds.
struct Long {
    kind: &'static str,
    by_seed: bool,
}

impl Workflow for Long {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn roles(&self) -> Vec<RoleSpec> {
        Vec::new()
    }

    fn check_task(&self, _: &Task) -> Result<(), String> {
        Ok(())
    }

    fn step(&self, _: &Task, seed: u64, _: &[Event]) -> Step {
        let words = if self.by_seed && seed % 2 == 1 { 101 } else { 100 };
        let role = RoleName::new("speaker").unwrap();
        Step::Ask(vec![ask(&role, 0, vec![Message::user("o1 ".repeat(words))])])
    }
}

#[test]
fn long_prompt_is_refused_only_if_every_seed_has_it() {
    let config = config(SIGNAL, &[]);
    let task = Task::parse(br#"{"prompt": "o1"}"#, 1 << 20).unwrap();
    let checked = |kind, by_seed| check(&config, &Long { kind, by_seed }, &task);
    let said = checked("signal", false).unwrap_err();
    assert!(
        said.contains("the first prompt of the speaker has 101 tokens"),
        "{said}"
    );
    assert_eq!(checked("signal", true), Ok(()));
    for kind in ["process", "remote", "own"] {
        assert_eq!(checked(kind, false), Ok(()), "{kind}");
    }
}

#[test]
fn task_for_agents_without_generated_models_is_not_checked() {
    let mut config = config(SIGNAL, &[]);
    let task = json!({"prompt": "o99", "label": "o99"});
    refused(&config, task.clone(), &["the prompt has the word \"o99\""]);
    for agent in config.agents.values_mut() {
        agent.model = ModelConfig::Served("m".into());
    }
    assert_eq!(checked(&config, task), Ok(()));
}

#[test]
fn spelling_of_a_number_with_other_characters_counts() {
    let task = json!({"prompt": "?", "label": 9, "metadata": {"high": 9}});
    for (word, known) in [("n9", true), ("09", true), ("3-9", true), ("9-3", false), ("19", false)] {
        let words: Vec<toml::Value> = vec![word.into(), "higher".into(), "lower".into()];
        let words = config(GUESS, &[("defaults.agent.model.random.tokenizer.words", words.into())]);
        assert_eq!(checked(&words, task.clone()).is_ok(), known, "{word}");
    }
}

#[test]
fn task_that_a_generator_makes_beyond_the_vocabulary_is_refused() {
    let found = |changes: &[(&str, toml::Value)], text| {
        let config = config(text, changes);
        let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
        let problems = crate::turn::tasks::problems(&config, workflow.as_ref());
        match problems.first() {
            Some((key, error)) => Err(format!("{key}: {error}")),
            None => Ok(()),
        }
    };
    assert_eq!(found(&[], SIGNAL), Ok(()));
    assert_eq!(found(&[], GUESS), Ok(()));
    for (key, text, says) in [
        (
            "tasks.params.objects",
            SIGNAL,
            "tasks.source: task 17 of signal: the prompt has the word \"o16\"",
        ),
        (
            "tasks.params.numbers",
            GUESS,
            "tasks.source: task 9 of guess-number: the label is 8, and no word",
        ),
        (
            "eval.params.objects",
            SIGNAL,
            "eval.source: task 17 of signal: the prompt has the word \"o16\"",
        ),
    ] {
        let mut changes = vec![(key, 20.into())];
        if key.starts_with("eval") {
            changes.push(("eval.tasks", 20.into()));
        }
        let said = found(&changes, text).unwrap_err();
        assert!(said.starts_with(says), "{said}");
        let params = key.rsplit_once('.').unwrap().0;
        assert!(said.contains(&format!("made from {params}")), "{said}");
    }
}
