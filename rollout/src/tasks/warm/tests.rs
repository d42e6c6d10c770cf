//! Warm starts and pools, against the workflow they are for.

use super::super::VerifierPool;
use super::*;
use crate::workflow::testing::{config, graders, task};
use crate::workflow::{self, Step};

fn workflow_config() -> WorkflowConfig {
    config("solve-verify", &["solver", "verifier", "retry"], "prompts = \"short\"")
}

fn tasks_config() -> TasksConfig {
    toml::from_str("source = \"generator:arithmetic\"\nparams = { min = 1, max = 30, seed = 4 }").unwrap()
}

fn open(warm: &str, seed: u64) -> Result<WarmSource, TasksError> {
    let warm: WarmStartConfig = toml::from_str(&format!("steps = 1\nbatch = 1\n{warm}")).unwrap();
    WarmSource::open(&warm, &workflow_config(), &graders("integer"), &tasks_config(), seed)
}

fn take(warm: &str, n: usize) -> Vec<Example> {
    open(warm, 1).unwrap().take(n).collect()
}

/// `37+48=` gives (37, 48).
fn operands(problem: &str) -> (i64, i64) {
    let (left, right) = problem.split_once('=').unwrap().0.split_once('+').unwrap();
    (left.parse().unwrap(), right.parse().unwrap())
}

#[test]
fn the_solver_learns_in_its_own_prompts() {
    let workflow = workflow::build(&workflow_config(), &graders("integer")).unwrap();
    let examples = take("source = \"generator:arithmetic-solver\"", 2000);
    let retries = examples.iter().filter(|e| e.messages[0].content.ends_with('!')).count();
    assert!((400..600).contains(&retries), "{retries}");
    for example in &examples {
        let prompt = &example.messages[0].content;
        let (left, right) = operands(prompt);
        assert_eq!(example.answer, (left + right).to_string());
        let (problem, rest) = prompt.split_once('=').unwrap();
        if rest.is_empty() {
            let Step::Ask(asks) = workflow.step(&task(prompt, 0.into()), 0, &[]) else {
                panic!()
            };
            assert_eq!(asks[0].messages, example.messages);
        } else {
            assert_ne!(
                rest,
                format!("{}!", left + right),
                "{problem}: the retry's solution was wrong"
            );
        }
    }
    assert_eq!(examples, take("source = \"generator:arithmetic-solver\"", 2000));
    let noisy = take(
        "source = \"generator:arithmetic-solver\"\nparams = { noise = 0.5, retry = 0 }",
        2000,
    );
    let right = |e: &&Example| {
        let (left, right) = operands(&e.messages[0].content);
        e.answer == (left + right).to_string()
    };
    assert!((900..1100).contains(&noisy.iter().filter(right).count()));
}

#[test]
fn the_verifier_sees_as_many_right_as_wrong_solutions() {
    let examples = take("source = \"generator:arithmetic-verifier\"", 2000);
    for example in &examples {
        let prompt = &example.messages[0].content;
        let (left, right) = operands(prompt);
        let shown: i64 = prompt.split_once('=').unwrap().1.trim_end_matches('?').parse().unwrap();
        let verdict = if shown == left + right { "approve" } else { "reject" };
        assert_eq!(example.answer, verdict, "{prompt}");
    }
    let approved = examples.iter().filter(|e| e.answer == "approve").count();
    assert!((900..1100).contains(&approved), "{approved}");
}

#[test]
fn wrong_answers_are_wrong_and_near() {
    let mut random = Random::new("test", 1, &[]);
    for (left, op, right) in [
        (37, '+', 48),
        (0, '+', 0),
        (5, '-', 9),
        (99, '+', 1),
        (10, '-', 10),
        (12, '*', 12),
    ] {
        let item = Problem { left, op, right };
        for _ in 0..200 {
            let wrong = wrong_answer(item, &mut random);
            assert!(
                wrong != item.answer() && (wrong - item.answer()).abs() < 1000,
                "{item:?} {wrong}"
            );
        }
    }
}

#[test]
fn lines_are_read_and_bad_ones_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("warm.jsonl");
    let source = format!("source = \"jsonl:{}\"", path.display());
    let line = |n: u32| {
        format!(
            "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{n}\"}}, {{\"role\": \"assistant\", \"content\": \"{n}!\"}}]}}\n"
        )
    };
    std::fs::write(&path, (0..10).map(line).collect::<String>()).unwrap();
    let examples = take(&source, 20);
    for pass in [&examples[..10], &examples[10..]] {
        let mut answers: Vec<&str> = pass.iter().map(|e| e.answer.as_str()).collect();
        answers.sort_unstable();
        assert_eq!(answers, (0..10).map(|n| format!("{n}!")).collect::<Vec<_>>());
    }
    for bad in [
        "{}",
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}",
        "[",
    ] {
        std::fs::write(&path, format!("{}\n{bad}\n", line(1))).unwrap();
        assert!(
            open(&source, 0)
                .err()
                .unwrap()
                .to_string()
                .contains("warm.jsonl, line 3: "),
            "{bad}"
        );
    }
}

#[test]
fn wrong_settings_are_named() {
    for (warm, key) in [
        ("source = \"generator:poems\"", "warm_start.source"),
        (
            "source = \"generator:arithmetic-solver\"\nparams = { noise = 2 }",
            "warm_start.params.noise",
        ),
        (
            "source = \"generator:arithmetic-solver\"\nparams = { loud = 2 }",
            "warm_start.params.loud",
        ),
    ] {
        let error = open(warm, 0).err().unwrap().to_string();
        assert!(error.starts_with(&format!("{key}: ")), "{error}");
    }
}

#[test]
fn a_pool_is_balanced_and_frozen() {
    let solutions = || (0..100i64).map(|i| (task("2+3=", 5.into()), if i % 4 == 0 { "5" } else { "6" }.to_owned()));
    let choose = |size| VerifierPool::choose(&workflow_config(), &graders("integer"), solutions(), size, 3);
    let pool = choose(20).unwrap();
    assert_eq!(pool.items(), choose(20).unwrap().items());
    assert_eq!(pool.items().iter().filter(|item| item.right).count(), 10);
    assert_eq!(choose(1000).unwrap().items().len(), 50);
    let say = |text: fn(bool) -> &'static str| {
        pool.items()
            .iter()
            .map(|i| text(i.right).to_owned())
            .collect::<Vec<_>>()
    };
    for (answers, accuracy) in [
        (say(|right| if right { "approve" } else { "reject" }), 1.0),
        (say(|_| "approve"), 0.5),
        (say(|_| "reject"), 0.5),
        (say(|_| "hm"), 0.0),
        (vec![], 0.0),
    ] {
        assert_eq!(pool.balanced_accuracy(&answers), accuracy);
    }
    let right_only = [(task("2+3=", 5.into()), "5".to_owned())];
    assert!(VerifierPool::choose(&workflow_config(), &graders("integer"), right_only, 10, 0).is_err());
}
