//! Tasks of evaluations, which are never trained on.

use broker::protocol::task::Prompt;
use configs::EvalConfig;
use serde_json::json;

use super::*;

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
