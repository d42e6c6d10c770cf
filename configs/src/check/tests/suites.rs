//! Tests of suites: presets are filled in, and mistakes are reported.

use super::*;

const EVAL: &str = "[graders.answer]";

#[test]
fn preset_needs_only_a_source_and_yields_to_written_keys() {
    let text = GOOD.to_owned()
        + "[eval.suites.aime24]\nsource = \"jsonl:a\"\n[eval.suites.math500]\nsource = \"jsonl:m\"\nsamples = 1\nprompt = \"q\"\n[eval.suites.mine]\nsource = \"jsonl:x\"\n";
    let suites = check(&text).unwrap().eval.suites;
    let aime = &suites["aime24"];
    assert_eq!(
        (aime.prompt.as_deref(), aime.label.as_deref()),
        (Some("problem"), Some("answer"))
    );
    assert_eq!(
        (aime.samples, aime.temperature, aime.grader.as_deref()),
        (Some(32), Some(0.6), Some("math"))
    );
    let math = &suites["math500"];
    assert_eq!(
        (math.prompt.as_deref(), math.label.as_deref(), math.samples),
        (Some("q"), Some("answer"), Some(1))
    );
    let mine = &suites["mine"];
    assert_eq!(
        (mine.prompt.as_deref(), mine.samples, mine.grader.as_deref()),
        (None, None, None)
    );
}

#[test]
fn what_a_suite_says_wrongly_is_named() {
    let suite = |lines: &str| problems(&[(EVAL, &format!("[eval.suites.hard]\n{lines}\n{EVAL}"))]);
    for (lines, path, says) in [
        ("samples = 4", "eval.suites.hard.source", "missing"),
        ("source = \"tasks.jsonl\"", "eval.suites.hard.source", "jsonl:PATH"),
        ("source = \"jsonl:x\"\ntasks = 0", "eval.suites.hard.tasks", "1 or more"),
        (
            "source = \"jsonl:x\"\ntemperature = 0.0",
            "eval.suites.hard.temperature",
            "all the same",
        ),
        (
            "source = \"jsonl:x\"\ntemperature = 0.001",
            "eval.suites.hard.temperature",
            "is 0.001: logits are divided by it, and below 0.01 they overflow",
        ),
        (
            "source = \"jsonl:x\"\ngrader = \"maths\"",
            "eval.suites.hard.grader",
            "neither a kind",
        ),
        (
            "source = \"jsonl:x\"\nevery = 0",
            "eval.suites.hard.every",
            "1 for every",
        ),
        ("source = \"jsonl:x\"\nsample = 4", "eval.suites.hard.sample", "samples"),
    ] {
        let found = suite(lines);
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("{path}: ")) && found[0].contains(says),
            "{lines}: {found:?}"
        );
    }
    assert_eq!(
        suite("source = \"jsonl:x\"\ngrader = \"answer\""),
        [""; 0],
        "one of [graders] by its name"
    );
}

#[test]
fn suite_with_every_needs_evaluations_and_a_free_name() {
    let suite = |name: &str, eval: &str, tasks: &str| {
        let text = format!("[eval]\n{eval}\n[eval.suites.{name}]\nsource = \"jsonl:x\"\nevery = 2\n{EVAL}");
        problems(&[(EVAL, &text), ("source = \"generator:signal\"", tasks)])
    };
    let (own, file) = ("source = \"generator:signal\"", "source = \"jsonl:x\"");
    assert_eq!(suite("hard", "every = 5", own), [""; 0]);
    // Only the last evaluation plays the suite.
    assert_eq!(suite("hard", "source = \"jsonl:e\"", file), [""; 0]);
    // Without a source and without `eval.every` the run evaluates nothing.
    for tasks in [own, file] {
        let found = suite("hard", "every = 0", tasks);
        assert!(
            found.len() == 1 && found[0].starts_with("eval.suites.hard.every: "),
            "{found:?}"
        );
    }
    let found = suite("reward", "every = 5", own);
    assert!(
        found.len() == 1 && found[0].starts_with("eval.suites.reward: "),
        "{found:?}"
    );
}
