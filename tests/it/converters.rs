//! Converters of public data sets: `dyad publish` and a JSONL source accept their output.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tests::program::Program;

use crate::program;

fn convert(script: &str, args: &[&str], lines: impl AsRef<[u8]>) -> Output {
    let mut child = Command::new("python3")
        .arg(Program::root().join("configs/converters").join(script))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_ref()).unwrap();
    child.wait_with_output().unwrap()
}

fn tasks(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

const CONVERTERS: [&str; 4] = [
    "math_problems.py",
    "doctor_patient.py",
    "deep_research.py",
    "healthbench.py",
];

/// Returns a line that every converter can use.
fn usable(id: &str, prompt: &str) -> String {
    json!({"prompt_id": id, "prompt": prompt, "question": prompt, "label": "7", "answer": "7",
           "metadata": {"self_report": "r"}, "rubrics": [{"criterion": "c", "points": 1}]})
    .to_string()
}

/// Returns lines that no converter can use.
fn odd() -> Vec<Vec<u8>> {
    let messages =
        r#"{"prompt_id": "p", "prompt": ["x"], "label": "2", "metadata": {"self_report": "r"}, "rubrics": [3]}"#;
    let half = r#"{"prompt_id": "p", "prompt": "x", "question": "x", "label": "\ud800", "answer": "\ud800",
        "metadata": {"self_report": "r"}, "rubrics": [{"criterion": "\ud800", "points": 1}]}"#;
    let half = half.replace('\n', "");
    let texts = [
        "3",
        "null",
        "\"x\"",
        "[[1]]",
        "{",
        "{}",
        "1e999",
        messages,
        half.as_str(),
        &usable("p", "x")
            .replace("\"7\"", "NaN")
            .replace("\"c\"", "NaN")
            .replace("\"r\"", "NaN"),
        // Python reads these too, even where the value is not used.
        &usable("p", "x").replacen('{', "{\"answer_aliases\": [-Infinity], ", 1),
    ];
    let mut lines: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    lines.push(b"{\"prompt\": \"\xff\"}".to_vec());
    lines.push("[".repeat(100_000).into_bytes());
    lines
}

#[test]
fn an_odd_line_is_named_and_those_behind_it_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Some programs begin a file with a byte-order mark.
    let first = format!("\u{feff}{}", usable("q1", "One?")).into_bytes();
    let mut all = vec![first];
    all.extend(odd());
    all.push(usable("q2", "Two?").into_bytes());
    std::fs::write(path("all.jsonl"), all.join(&b'\n')).unwrap();
    std::fs::write(path("none.jsonl"), "").unwrap();
    for script in CONVERTERS {
        let of = |name: &str| match script {
            "healthbench.py" => convert(script, &[&path(name)], ""),
            _ => convert(script, &[], std::fs::read(path(name)).unwrap()),
        };
        let output = of("all.jsonl");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{script}: {said}");
        let prompts: Vec<Value> = tasks(&output).iter().map(|task| task["prompt"].clone()).collect();
        let asked = |text: &str| match script {
            "healthbench.py" => json!([{"role": "user", "content": text}]),
            _ => json!(text),
        };
        assert_eq!(prompts, [asked("One?"), asked("Two?")], "{script}: {said}");
        assert_eq!(said.lines().count(), odd().len(), "{script}: {said}");
        for number in 2..odd().len() + 2 {
            assert!(said.contains(&format!("line {number}: ")), "{script}: {said}");
        }
        let output = of("none.jsonl");
        assert!(
            output.status.success() && output.stdout.is_empty(),
            "{script}: {output:?}"
        );
    }
}

#[test]
fn a_bad_line_in_leave_out_is_reported_and_the_rest_stays_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let questions = format!("{}\n{}\n", usable("q1", "One?"), usable("q2", "Two?"));
    std::fs::write(path("all.jsonl"), questions).unwrap();
    let hard = format!("{{\"prompt\": \"?\"}}\n3\n{}\n", usable("q2", "Two?"));
    std::fs::write(path("hard.jsonl"), hard).unwrap();
    let (all, hard) = (path("all.jsonl"), path("hard.jsonl"));
    let output = convert("healthbench.py", &[&all, "--leave-out", &hard], "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("hard.jsonl, line 1: it has no prompt_id") && said.contains("line 2: "),
        "{said}"
    );
    let ids: Vec<Value> = tasks(&output).iter().map(|task| task["id"].clone()).collect();
    assert_eq!(ids, ["q1"]);
}

#[test]
fn dapo_and_deepscaler_lines_become_tasks() {
    let asked = "Solve the following math problem step by step. The last line of your response should be of the form \
                Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\nWhat is 3+4?\n\nRemember \
                to put your answer on its own line after \"Answer:\".";
    let given = [
        json!({"prompt": [{"role": "user", "content": asked}], "label": "7"}),
        json!({"prompt": [{"role": "user", "content": asked}], "reward_model": {"ground_truth": "7"}}),
        json!({"prompt": "Halve 2/3. Please reason step by step, and put your final answer within \\boxed{}.",
               "solution": "It is \\boxed{\\frac{1}{3}}."}),
        json!({"problem": "Count\nto 5.", "answer": 5, "solution": "One, two .."}),
    ];
    let good = convert("math_problems.py", &[], lines(&given));
    assert!(good.status.success(), "{good:?}");
    let expected = [
        json!({"prompt": "What is 3+4?", "label": "7"}),
        json!({"prompt": "Halve 2/3.", "label": "\\frac{1}{3}"}),
        json!({"prompt": "Count\nto 5.", "label": "5"}),
    ];
    assert_eq!(tasks(&good), expected);
    let kept = convert("math_problems.py", &["--keep-instructions"], lines(&given[..1]));
    assert_eq!(tasks(&kept)[0]["prompt"], asked);
    let bad = [
        json!({"problem": "Prove it.", "solution": "It is clear."}),
        json!([1]),
        given[3].clone(),
    ];
    let bad = convert("math_problems.py", &[], format!("{}{{", lines(&bad)));
    assert_eq!((bad.status.code(), tasks(&bad).len()), (Some(1), 1));
    let said = String::from_utf8_lossy(&bad.stderr);
    for (line, what) in [("line 1", "no answer"), ("line 2", "no JSON object"), ("line 4", "")] {
        assert!(said.lines().any(|l| l.starts_with(line) && l.contains(what)), "{said}");
    }
}

/// The output can be played: a coordinator checks every line of a source with the workflow before
/// it starts.
#[test]
fn mtmeddialog_lines_become_cases_that_can_be_played() {
    let given = [
        json!({"prompt": [{"role": "system", "content": "rules"}, {"role": "user", "content": "My throat is sore."}],
               "reward_model": {"ground_truth": {"diagnosis": "angina", "recommendation": "rest"},
                                "enhanced_description": "It has hurt for a week."}}),
        json!({"prompt": "..", "metadata": {"chief_complaint": "My knee hurts.", "self_report": "I fell.",
               "solution": "Diagnosis: a sprain\nRecommendation: cool it", "facts": {"fall": "yes"}}}),
    ];
    let output = convert("doctor_patient.py", &[], lines(&given));
    assert!(output.status.success(), "{output:?}");
    let cases = tasks(&output);
    let expected = [
        json!({"prompt": "My throat is sore.", "label": {"diagnosis": "angina", "recommendation": "rest"},
               "metadata": {"self_report": "It has hurt for a week."}}),
        json!({"prompt": "My knee hurts.", "label": {"diagnosis": "a sprain", "recommendation": "cool it"},
               "metadata": {"self_report": "I fell.", "facts": {"fall": "yes"}}}),
    ];
    assert_eq!(cases, expected);
    let folder = tempfile::tempdir().unwrap();
    let (file, config) = (folder.path().join("cases.jsonl"), folder.path().join("config.toml"));
    let tiny = std::fs::read_to_string(Program::root().join("configs/doctor-patient.toml")).unwrap();
    let check = |cases: &[Value]| {
        std::fs::write(&file, lines(cases)).unwrap();
        let source = format!("source = \"jsonl:{}\"", file.display());
        let text = tiny.replace("source = \"jsonl:configs/data/cases-tiny.jsonl\"", &source);
        std::fs::write(&config, text).unwrap();
        let program = program();
        program.output(&["check", "-q", config.to_str().unwrap()])
    };
    assert!(check(&cases[1..]).status.success());
    // The rule judges by facts, and the first case has none.
    let refused = check(&cases);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("cases.jsonl, line 1: task 1 of cases: metadata.facts is missing"),
        "{said}"
    );
    let bad = convert("doctor_patient.py", &["--report", "notes"], lines(&given));
    assert_eq!((bad.status.code(), tasks(&bad).len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("line 1: it has no self report"));
}

/// The output of MrlX's own conversion, and lines of the parquet file that it reads. In the latter
/// the prompt is a whole rendered chat.
#[test]
fn both_forms_of_mtmeddialog_become_the_same_case() {
    let solution = json!({"diagnosis": "angina", "recommendation": "rest"});
    let user = |text: &str| json!([{"role": "user", "content": text}]);
    let rules =
        "You are a doctor.\nRewards:\nbe right.\nPatient's description: My throat is sore.\n\nDecide next action:";
    let chat =
        |text: &str| format!("<|im_start|>user\n{text}\nAlways think.<|im_end|>\n<|im_start|>assistant\n<think>");
    let raw = |text: &str| {
        json!({"data_source": "mtmed", "prompt": user(&chat(text)), "extra_info": {"index": 0},
        "reward_model": {"ground_truth": solution, "enhanced_description": "It has hurt for a week."}})
    };
    let given = [
        json!({"extra_info": {"index": 0, "solution": solution, "chief_complaint": "My throat is sore.",
                              "self_report": "It has hurt for a week."}, "messages": user("Hello.")}),
        json!({"extra_info": {"solution": solution, "self_report": "It has hurt for a week."}, "messages": user(rules)}),
        raw(rules),
    ];
    let output = convert("doctor_patient.py", &[], lines(&given));
    assert!(output.status.success(), "{output:?}");
    let case = json!({"prompt": "My throat is sore.", "label": solution,
                      "metadata": {"self_report": "It has hurt for a week."}});
    assert_eq!(tasks(&output), [case.clone(), case.clone(), case]);
    let bad = [
        raw("My throat is sore."),
        raw("Patient's description: My throat is sore."),
    ];
    let bad = convert("doctor_patient.py", &[], lines(&bad));
    assert_eq!((bad.status.code(), tasks(&bad).len()), (Some(1), 0), "{bad:?}");
    let said = String::from_utf8_lossy(&bad.stderr);
    assert!(said.matches("its prompt is a rendered chat").count() == 2, "{said}");
}

/// Tasks and corpus are played together: `dyad check` reads both.
#[test]
fn questions_become_tasks_and_their_context_a_corpus() {
    let asked = "Answer the given question. You must think first. Question: When was it?\n";
    let given = [
        json!({"question": "What is the capital of France?", "answer": "Paris"}),
        json!({"id": "q7", "question": "Who wrote it?", "golden_answers": ["Ada", "Ada Lovelace"]}),
        json!({"question": "Which stone?", "answer": "amber", "answer_aliases": ["burmite", "amber"],
               "paragraphs": [{"idx": 0, "title": "Amber", "paragraph_text": "Amber floats."}]}),
        json!({"prompt": [{"role": "user", "content": asked}], "reward_model": {"ground_truth": {"target": ["1843"]}}}),
        json!({"question": "Which floats?", "answer": "amber",
               "context": {"title": ["Amber", "Jade", "Amber"],
                           "sentences": [["Amber floats."], ["Jade ", "sinks."], ["Another amber."]]}}),
        json!({"question": "Which sinks?", "answer": "jade", "context": [["Jade", ["Jade ", "sinks."]]]}),
        json!({"id": "0", "contents": "\"Ruby\"\nRuby is red."}),
        json!({"question": "Which floats?", "answer": "jade"}),
    ];
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus");
    std::fs::create_dir(&corpus).unwrap();
    let file = corpus.join("documents.jsonl");
    let args = ["--corpus", file.to_str().unwrap()];
    let output = convert("deep_research.py", &args, lines(&given));
    assert!(output.status.success(), "{output:?}");
    let expected = [
        json!({"prompt": "What is the capital of France?", "label": "Paris"}),
        json!({"id": "q7", "prompt": "Who wrote it?", "label": ["Ada", "Ada Lovelace"]}),
        json!({"prompt": "Which stone?", "label": ["amber", "burmite"]}),
        json!({"prompt": "When was it?", "label": "1843"}),
        json!({"prompt": "Which floats?", "label": "amber"}),
        json!({"prompt": "Which sinks?", "label": "jade"}),
    ];
    assert_eq!(tasks(&output), expected);
    let written = std::fs::read_to_string(&file).unwrap();
    let documents: Vec<Value> = written
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let document = |id: &str, title: &str, text: &str| json!({"id": id, "title": title, "text": text});
    assert_eq!(
        documents,
        [
            document("Amber", "Amber", "Amber floats."),
            document("Jade", "Jade", "Jade sinks."),
            document("Amber (2)", "Amber", "Another amber."),
            document("Ruby", "Ruby", "Ruby is red."),
        ]
    );
    let again = convert("deep_research.py", &args, lines(&given));
    assert!(!again.status.success(), "a corpus is not written over");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);

    let (source, config) = (folder.path().join("questions.jsonl"), folder.path().join("config.toml"));
    std::fs::write(&source, &output.stdout).unwrap();
    let tiny = std::fs::read_to_string(Program::root().join("configs/deep-research.toml")).unwrap();
    let text = tiny
        .replace(
            "jsonl:configs/data/stones-tiny.jsonl",
            &format!("jsonl:{}", source.display()),
        )
        .replace("corpus:configs/data/stones", &format!("corpus:{}", corpus.display()));
    assert_eq!(text.matches(&folder.path().display().to_string()).count(), 4, "{text}");
    std::fs::write(&config, text).unwrap();
    let program = program();
    let said = program.output(&["check", config.to_str().unwrap()]);
    assert!(said.status.success(), "{said:?}");
    assert!(
        String::from_utf8_lossy(&said.stdout).contains("questions has 6 tasks"),
        "{said:?}"
    );

    let half = folder.path().join("half.jsonl");
    let with = |question: &str, key: &str, value: Value| json!({"question": question, "answer": "a", key: value});
    let bad = [
        with("One?", "context", json!({"title": 5, "sentences": []})),
        with(
            "Two?",
            "paragraphs",
            json!([{"title": "Half", "paragraph_text": "half"}, 3]),
        ),
    ];
    let output = convert("deep_research.py", &["--corpus", half.to_str().unwrap()], lines(&bad));
    assert_eq!((output.status.code(), tasks(&output).len()), (Some(1), 0), "{output:?}");
    assert_eq!(
        std::fs::read_to_string(&half).unwrap(),
        "",
        "a line's documents are written with it or not at all"
    );

    let bad = [json!({"question": "Why?"}), json!([1]), given[0].clone()];
    let bad = convert("deep_research.py", &[], lines(&bad));
    assert_eq!((bad.status.code(), tasks(&bad).len()), (Some(1), 1));
    let said = String::from_utf8_lossy(&bad.stderr);
    assert!(
        said.contains("line 1: it has no answer") && said.contains("line 2: it is no JSON object"),
        "{said}"
    );
}
