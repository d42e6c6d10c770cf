//! Warm starts and pools, against the workflow they are for.

use broker::protocol::task::Task;

use super::super::arithmetic::ArithmeticProblem;
use super::super::solve_verify::SolveVerify;
use super::super::solve_verify::verifier_pool::{VerifierPool, judge};
use super::*;
use crate::workflow::Step;
use crate::workflow::testing::{config, event, graders, task};
use crate::workflows;

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
fn the_second_learns_neither_to_copy_nor_to_differ() {
    let tasks = tasks_config();
    let open = |role: &str, params: &str| -> Vec<Example> {
        let text = format!("steps = 1\nbatch = 1\nsource = \"generator:arithmetic-{role}\"\nparams = {{ {params} }}");
        let warm: WarmStartConfig = toml::from_str(&text).unwrap();
        let workflow = config("sequential", &["first", "second"], "prompts = \"short\"");
        let source = WarmSource::open(&warm, &workflow, &graders("integer"), &tasks, 1).unwrap();
        source.take(1000).collect()
    };
    for example in open("first", "") {
        let (left, right) = operands(&example.messages[0].content);
        assert_eq!(example.answer, (left + right).to_string());
    }
    let second = open("second", "");
    let same = |example: &Example| {
        let shown = example.messages[0].content.split_once('=').unwrap().1;
        shown.trim_end_matches('?') == example.answer
    };
    let copies = second.iter().filter(|example| same(example)).count();
    assert!((420..580).contains(&copies), "{copies} of 1000 are shown the answer");
    let slipping = open("second", "slip = 0.5");
    let wrong = slipping
        .iter()
        .zip(&second)
        .filter(|(slip, plain)| slip.answer != plain.answer)
        .count();
    assert!((100..400).contains(&wrong), "{wrong}: half of those with a carry");
    assert_eq!(second, open("second", ""), "the same seed, the same examples");
}

#[test]
fn solvers_rewriters_and_selectors_learn_in_their_own_prompts() {
    let team = config(
        "solve-rewrite-select",
        &["solver", "rewriter", "selector"],
        "prompts = \"short\"\nnum_parallel = 3",
    );
    let open = |params: &str| {
        let text =
            format!("steps = 1\nbatch = 1\nsource = \"generator:arithmetic-selecting\"\nparams = {{ {params} }}");
        let warm: WarmStartConfig = toml::from_str(&text).unwrap();
        WarmSource::open(&warm, &team, &graders("integer"), &tasks_config(), 1)
    };
    let take = |params: &str| open(params).unwrap().take(3000).collect::<Vec<_>>();
    let (mut by_role, mut right) = ([0, 0, 0], 0);
    for example in take("slip = 0.5") {
        let prompt = &example.messages[0].content;
        let (left, other) = operands(prompt);
        let shown: Vec<&str> = prompt.split_once('=').unwrap().1.split_terminator(',').collect();
        let (role, own) = match shown.as_slice() {
            [] => (0, example.answer.as_str()),
            [candidates @ .., "?"] => {
                let (own, number) = example.answer.split_once(' ').unwrap();
                let number: usize = number.parse().unwrap();
                let agreeing = candidates.iter().position(|candidate| *candidate == own);
                assert!(
                    agreeing.is_none_or(|at| at + 1 == number) && (1..=3).contains(&number),
                    "{example:?}"
                );
                (2, own)
            }
            attempts => {
                assert_eq!(attempts.len(), 3, "{prompt}");
                (1, example.answer.as_str())
            }
        };
        by_role[role] += 1;
        right += u32::from(own == (left + other).to_string());
    }
    assert!(by_role.iter().all(|n| (850..1150).contains(n)), "{by_role:?}");
    assert!(
        (1900..2800).contains(&right),
        "half of those with a carry slip: {right}"
    );
    assert_eq!(
        take("slip = 0.5"),
        take("slip = 0.5"),
        "the same seed, the same examples"
    );
    let alone = take("roles = [\"selector\"]");
    assert!(alone.iter().all(|example| example.messages[0].content.ends_with('?')));
    for bad in ["roles = [\"judge\"]", "roles = []", "roles = 3"] {
        let error = open(bad).err().unwrap().to_string();
        assert!(error.starts_with("warm_start.params.roles: "), "{error}");
    }
    let other = WarmSource::open(
        &toml::from_str("steps = 1\nbatch = 1\nsource = \"generator:arithmetic-selecting\"").unwrap(),
        &workflow_config(),
        &graders("integer"),
        &tasks_config(),
        1,
    );
    assert!(other.err().unwrap().to_string().starts_with("workflow.kind: "));
}

#[test]
fn the_solver_learns_in_its_own_prompts() {
    let workflow = workflows::build(&workflow_config(), &graders("integer"), &BTreeMap::new()).unwrap();
    let examples = take("source = \"generator:arithmetic-solver\"", 2000);
    let retries = examples.iter().filter(|e| e.messages[0].content.contains('!')).count();
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
                format!("{}!reject", left + right),
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
fn a_solver_alone_begins_as_in_a_team() {
    let warm: WarmStartConfig =
        toml::from_str("steps = 1\nbatch = 1\nsource = \"generator:arithmetic-solver\"").unwrap();
    let alone = config("solo", &["solver"], "prompts = \"short\"");
    let source = WarmSource::open(&warm, &alone, &graders("integer"), &tasks_config(), 1).unwrap();
    let in_team = take("source = \"generator:arithmetic-solver\"", 200);
    assert_eq!(source.take(200).collect::<Vec<_>>(), in_team);
    let signal = config("signal", &["speaker"], "");
    assert!(WarmSource::open(&warm, &signal, &graders("integer"), &tasks_config(), 1).is_err());
}

#[test]
fn slips_are_forgotten_carries_in_their_part() {
    let examples = take(
        "source = \"generator:arithmetic-solver\"\nparams = { slip = 0.6, retry = 0.0, max = 60 }",
        4000,
    );
    let (mut carries, mut slips) = (0, 0);
    for example in &examples {
        let (left, right) = operands(&example.messages[0].content);
        let carry = left % 10 + right % 10 > 9;
        let slipped = example.answer == (left + right - 10).to_string();
        assert!(slipped && carry || example.answer == (left + right).to_string());
        (carries, slips) = (carries + u32::from(carry), slips + u32::from(slipped));
    }
    let part = f64::from(slips) / f64::from(carries);
    assert!((0.55..0.65).contains(&part), "{part}");
    for (left, op, right, slipped) in [
        (37, '+', 48, 75),
        (32, '+', 48, 70),
        (99, '+', 1, 90),
        (1, '+', 2, 3),
        (52, '-', 38, 24),
        (5, '*', 7, 35),
    ] {
        assert_eq!(ArithmeticProblem { left, op, right }.slipped(), slipped);
    }
}

#[test]
fn a_retry_adopts_the_answer_of_a_verifier_that_answers_first() {
    let warm = "source = \"generator:arithmetic-solver\"\nparams = { slip = 0.5, retry = 1.0, answer_first = true }";
    let mut right = 0;
    for example in take(warm, 1000) {
        let prompt = &example.messages[0].content;
        let (shown, critique) = prompt.split_once('=').unwrap().1.split_once('!').unwrap();
        assert_eq!(critique, format!("{} reject", example.answer), "{prompt}");
        assert_ne!(
            shown, example.answer,
            "{prompt}: a verifier rejects no answer that it agrees with"
        );
        let (left, right_operand) = operands(prompt);
        right += u32::from(example.answer == (left + right_operand).to_string());
    }
    assert!((300..800).contains(&right), "right and wrong ones are adopted: {right}");
}

#[test]
fn a_verifier_may_answer_first_and_judges_by_its_own_answer() {
    let warm = "source = \"generator:arithmetic-verifier\"\nparams = { slip = 0.5, solve = 0.2, answer_first = true }";
    let workflow = SolveVerify::new(&workflow_config(), &graders("integer")).unwrap();
    let (mut bare, mut approved) = (0, 0);
    for example in take(warm, 4000) {
        let prompt = &example.messages[0].content;
        let (left, right) = operands(prompt);
        let item = ArithmeticProblem { left, op: '+', right };
        let shown = prompt.split_once('=').unwrap().1.trim_end_matches('?');
        let own = if shown.is_empty() {
            bare += 1;
            example.answer.clone()
        } else {
            let (own, verdict) = example.answer.split_once(' ').unwrap();
            assert_eq!(verdict, if own == shown { "approve" } else { "reject" }, "{prompt}");
            assert_eq!(workflow.verdict(&example.answer), Some(own == shown));
            approved += u32::from(own == shown);
            own.to_owned()
        };
        assert!(
            [item.answer(), item.slipped()].contains(&own.parse().unwrap()),
            "{prompt} {own}"
        );
    }
    assert!((700..900).contains(&bare), "{bare}");
    assert!((1450..1750).contains(&approved), "half of the rest: {approved}");
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
        let item = ArithmeticProblem { left, op, right };
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
    // The byte-order mark of some programs does not belong to the first line.
    let all: String = (0..10).map(line).collect();
    std::fs::write(&path, format!("{MARK}{all}")).unwrap();
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
        (
            "source = \"generator:arithmetic-verifier\"\nparams = { answer_first = 1 }",
            "warm_start.params.answer_first",
        ),
        (
            "source = \"generator:arithmetic-solver\"\nparams = { solve = 0.5 }",
            "warm_start.params.solve",
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
    assert_eq!(pool, choose(20).unwrap());
    assert_eq!(
        VerifierPool::from_lines(&pool.lines()).unwrap(),
        pool,
        "what is kept is what was chosen"
    );
    assert_eq!(VerifierPool::from_lines("{}\n").unwrap_err().0, 1);
    assert_eq!((pool.tasks().len(), choose(1000).unwrap().tasks().len()), (20, 50));
    let judge = judge(&workflow_config(), &graders("integer")).unwrap();
    let accuracy = |says: fn(bool) -> &'static str| {
        let score = |(i, task): (usize, &Task)| {
            judge.check_task(task).unwrap();
            let Step::Done(outcome) = judge.step(task, 0, &[event("verifier", 0, says(i < 10))]) else {
                panic!()
            };
            outcome.metrics[0].1
        };
        pool.tasks().iter().enumerate().map(score).sum::<f64>() / 20.0
    };
    assert_eq!(accuracy(|right| if right { "approve" } else { "reject" }), 1.0);
    assert_eq!(accuracy(|_| "approve"), 0.5);
    assert_eq!(accuracy(|_| "reject"), 0.5);
    assert_eq!(accuracy(|_| "hm"), 0.0);
    let right_only = [(task("2+3=", 5.into()), "5".to_owned())];
    assert!(VerifierPool::choose(&workflow_config(), &graders("integer"), right_only, 10, 0).is_err());
}
