//! `dyad grade`: grades answers without a model, and says what was read.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use broker::codec::{explain_json, parse_exact_json, strict_json};
use clap::Args;
use rollout::grade::{Grader, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::fault::Usage;
use crate::run_folder::logs::printable;

/// Largest difference between a score and the wanted one that counts as equal.
const CLOSE: f32 = 1e-6;

/// Grade answers with a shipped grader and say what was read
///
/// Either one answer with --kind and --label, or a file with one JSON object per line: kind, text,
/// label and optionally want. The exit code is 1 if a score is not the wanted one.
#[derive(Debug, Args)]
pub struct GradeArgs {
    /// The answer; without --kind a file of JSON lines, or - for standard input
    #[arg(allow_hyphen_values = true, value_name = "TEXT or FILE")]
    pub what: String,
    /// Grader, such as math, gsm8k or choice
    #[arg(long, requires = "label", value_name = "KIND")]
    pub kind: Option<String>,
    /// Known answer: JSON if it is a number or a list, else text
    #[arg(long, requires = "kind", allow_hyphen_values = true, value_name = "LABEL")]
    pub label: Option<String>,
    /// Print one JSON object per answer, and at last a summary
    #[arg(long)]
    pub json: bool,
}

/// A row of the file. Other fields are passed over.
#[derive(Debug, Deserialize)]
struct Row {
    kind: String,
    text: String,
    #[serde(default)]
    label: Value,
    want: Option<Value>,
}

impl Row {
    /// Reads a line as Python writes it, with all digits of the label.
    fn read(line: &str) -> serde_json::Result<Self> {
        let parsed = parse_exact_json(strict_json(line).as_bytes())?;
        let label = parsed.exact().get("label").cloned().unwrap_or_default();
        let row: Self = serde_json::from_value(parsed.value)?;
        Ok(Self { label, ..row })
    }
}

/// A graded row, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Graded {
    score: f32,
    why: String,
    answer: Option<String>,
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    want: Option<Value>,
    /// The time of the grade alone, without the check of the label and the reasons.
    seconds: f64,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    rows: usize,
    /// Rows that name the wanted score.
    wanted: usize,
    /// Rows with another score than the wanted one.
    differ: usize,
    /// Rows with a label that the grader refuses.
    refused: usize,
    /// The mean score.
    mean: f64,
}

pub fn run(args: &GradeArgs) -> anyhow::Result<()> {
    let rows: Box<dyn Iterator<Item = anyhow::Result<Row>>> = match (&args.kind, &args.label) {
        (Some(kind), Some(label)) if !is_file_name(&args.what) => Box::new(std::iter::once(Ok(Row {
            kind: kind.clone(),
            text: args.what.clone(),
            label: read_label(label),
            want: None,
        }))),
        (Some(_), Some(_)) => return Err(not_a_text(&args.what)),
        _ => Box::new(read(Path::new(&args.what))?),
    };
    let mut out = std::io::stdout().lock();
    let summary = grade(rows, args, &mut out)?;
    if args.json {
        writeln!(out, "{}", serde_json::json!({ "summary": summary }))?;
    } else if args.kind.is_none() {
        writeln!(out, "{}", summary_text(&summary))?;
    }
    out.flush()?;
    anyhow::ensure!(
        summary.differ == 0,
        "{} of {} scores are not the wanted ones",
        summary.differ,
        summary.wanted
    );
    Ok(())
}

/// Returns true for one word that ends as a file of rows does. Such a word is no answer.
fn is_file_name(text: &str) -> bool {
    let ends = [".jsonl", ".json"]
        .iter()
        .any(|ending| text.trim_end().ends_with(ending));
    ends && !text.trim().contains(char::is_whitespace)
}

fn not_a_text(name: &str) -> anyhow::Error {
    let problem = match Path::new(name).exists() {
        true => format!("{name} is a file, and --kind grades a text"),
        false => format!("{name} does not exist, and --kind grades a text"),
    };
    Usage::new(problem)
        .hint("to grade a file of JSON lines, name one that exists and leave --kind and --label out")
        .into()
}

/// Grades each row and prints it.
fn grade(
    rows: impl Iterator<Item = anyhow::Result<Row>>,
    args: &GradeArgs,
    out: &mut impl Write,
) -> anyhow::Result<Summary> {
    let (mut summary, mut total) = (Summary::default(), 0.0);
    for (index, row) in rows.enumerate() {
        let row = row?;
        let wanted = row.want.as_ref().map(wanted).transpose();
        let wanted = wanted.map_err(|why| Usage::new(format!("row {}: {why}", index + 1)))?;
        let grader = Grader::new(&row.kind).map_err(Usage::new)?;
        let refused = grader.check_label(&row.label).is_err();
        let verdict = grader.explain(&row.text, &row.label);
        let differs = wanted.is_some_and(|wanted| (wanted - verdict.score).abs() > CLOSE);
        summary.rows += 1;
        summary.wanted += usize::from(wanted.is_some());
        summary.differ += usize::from(differs);
        summary.refused += usize::from(refused);
        total += f64::from(verdict.score);
        if args.json {
            let seconds = seconds(grader, &row);
            writeln!(out, "{}", serde_json::to_string(&graded(verdict, row.want, seconds))?)?;
        } else {
            write!(
                out,
                "{}",
                printable(&line(index + 1, &verdict, wanted.filter(|_| differs)))
            )?;
        }
    }
    summary.mean = if summary.rows == 0 {
        0.0
    } else {
        total / summary.rows as f64
    };
    Ok(summary)
}

/// Returns the time of one grade.
fn seconds(grader: Grader, row: &Row) -> f64 {
    let began = Instant::now();
    let _ = grader.grade(&row.text, &row.label);
    began.elapsed().as_secs_f64()
}

fn graded(verdict: Verdict, want: Option<Value>, seconds: f64) -> Graded {
    Graded {
        seconds,
        score: verdict.score,
        why: verdict.why,
        answer: verdict.answer,
        label: verdict.label,
        want,
    }
}

/// Formats a verdict as a line.
fn line(number: usize, verdict: &Verdict, missed: Option<f32>) -> String {
    let read = |text: &Option<String>| text.as_ref().map_or("none".to_owned(), |text| format!("{text:?}"));
    let missed = missed.map_or_else(String::new, |wanted| format!("  WANTED {wanted}"));
    format!(
        "{number}  {}  answer {}  label {}  {}{missed}\n",
        verdict.score,
        read(&verdict.answer),
        read(&verdict.label),
        verdict.why
    )
}

fn summary_text(summary: &Summary) -> String {
    let share = 100.0 * summary.refused as f64 / summary.rows.max(1) as f64;
    format!(
        "{} answers, mean {:.3}; {} of {} wanted scores differ; {} labels refused ({share:.1} %)",
        summary.rows, summary.mean, summary.differ, summary.wanted, summary.refused
    )
}

/// Reads the wanted score: true, false, or a number from 0 to 1.
fn wanted(want: &Value) -> Result<f32, String> {
    let score = match want {
        Value::Bool(right) => Some(f32::from(u8::from(*right))),
        number => number
            .as_f64()
            .filter(|score| (0.0..=1.0).contains(score))
            .map(|score| score as f32),
    };
    score.ok_or_else(|| format!("want is {want}: write true, false or a number from 0 to 1"))
}

/// Reads a label of the command line: a number or a list of texts in JSON, else a text.
fn read_label(label: &str) -> Value {
    match parse_exact_json(label.as_bytes()).map(|parsed| parsed.exact().clone()) {
        Ok(number @ Value::Number(_)) => number,
        Ok(Value::Array(list)) if list.iter().all(Value::is_string) => Value::Array(list),
        _ => Value::String(label.to_owned()),
    }
}

/// Reads the rows of a file.
fn read(path: &Path) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Row>> + use<>> {
    let input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(std::io::BufReader::new(std::io::stdin()))
    } else {
        let file = std::fs::File::open(path).map_err(|error| {
            Usage::new(format!("cannot read {}: {error}", path.display()))
                .hint("name a file of JSON lines, or give one answer with --kind and --label")
        })?;
        Box::new(std::io::BufReader::new(file))
    };
    let path: PathBuf = path.to_owned();
    let lines = (1..).zip(input.lines());
    let filled = lines.filter(|(_, line)| line.as_ref().map_or(true, |line| !line.trim().is_empty()));
    Ok(filled.map(move |(number, line)| {
        let line = line.with_context(|| format!("reading {}", path.display()))?;
        Row::read(&line).map_err(|error| {
            let why = explain_json(line.as_bytes(), &error);
            Usage::new(format!("{}, line {number}: {why}", path.display()))
                .hint("a row is {\"kind\": \"math\", \"text\": \"...\", \"label\": \"...\", \"want\": true}; want may be left out")
                .into()
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(json: bool) -> GradeArgs {
        GradeArgs {
            what: String::new(),
            kind: None,
            label: None,
            json,
        }
    }

    /// Grades rows and returns the output with its summary.
    fn graded(rows: &[&str], json: bool) -> anyhow::Result<(String, Summary)> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("rows.jsonl");
        std::fs::write(&path, rows.join("\n"))?;
        let mut out = Vec::new();
        let summary = grade(read(&path)?, &args(json), &mut out)?;
        Ok((String::from_utf8(out)?, summary))
    }

    #[test]
    fn rows_are_graded_and_counted() {
        let rows = [
            r#"{"kind": "math", "text": "\\boxed{5}", "label": 5, "want": true, "class": "x"}"#,
            "",
            r#"{"kind": "choice", "text": "Answer: B", "label": "C", "want": 1}"#,
            r#"{"kind": "integer", "text": "5", "label": "five"}"#,
        ];
        let (text, summary) = graded(&rows, false).unwrap();
        assert!(text.contains("WANTED 1") && text.contains("refused label"), "{text}");
        assert_eq!(
            (summary.rows, summary.wanted, summary.differ, summary.refused),
            (3, 2, 1, 1)
        );
        let (json, _) = graded(&rows, true).unwrap();
        let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&first["score"], &first["answer"], &first["want"]),
            (&1.0.into(), &"5".into(), &true.into())
        );
    }

    #[test]
    fn the_summary_has_the_share_of_refused_labels() {
        let row = r#"{"kind": "gsm8k", "text": "5", "label": "6 apples and 7 pears"}"#;
        let (_, summary) = graded(&[row, r#"{"kind": "gsm8k", "text": "5", "label": 5}"#], false).unwrap();
        assert!(summary_text(&summary).ends_with("1 labels refused (50.0 %)"));
    }

    #[test]
    fn a_file_that_is_not_there_is_no_answer() {
        let of = |what: &str| GradeArgs {
            what: what.to_owned(),
            kind: Some("math".to_owned()),
            label: Some("5".to_owned()),
            json: true,
        };
        for what in ["nowhere.jsonl", "folder/nowhere.json"] {
            let error = run(&of(what)).unwrap_err();
            assert!(error.is::<Usage>() && error.to_string().contains(what), "{error}");
        }
        assert!(run(&of("I wrote 5 into rows.jsonl")).is_ok());
    }

    #[test]
    fn rows_are_read_as_python_writes_them() {
        let rows = [
            r#"{"kind": "math", "text": "cut \ud83d \\boxed{5}", "label": 5, "want": 1}"#,
            r#"{"kind": "math", "text": "\\boxed{5}", "label": NaN, "want": 0}"#,
            r#"{"kind": "exact", "text": "18446744073709551616", "label": 18446744073709551616, "want": 1}"#,
            r#"{"kind": "exact", "text": "12.50", "label": 12.50, "want": 1}"#,
        ];
        let (text, summary) = graded(&rows, false).unwrap();
        assert_eq!((summary.differ, summary.refused), (0, 1), "{text}");
        let (json, _) = graded(&rows, true).unwrap();
        let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert!(first["seconds"].as_f64().unwrap() > 0.0);
    }

    #[test]
    fn an_answer_may_be_negative() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: GradeArgs,
        }
        for given in [
            ["grade", "--kind", "math", "--label", "5", "-5"],
            ["grade", "-5", "--kind", "math", "--label", "5"],
        ] {
            let args = <Command as clap::Parser>::try_parse_from(given).unwrap().args;
            assert_eq!((args.what.as_str(), args.kind.as_deref()), ("-5", Some("math")));
        }
    }

    #[test]
    fn bad_rows_are_wrong_usage() {
        let is_usage = |error: &anyhow::Error| error.is::<Usage>();
        for (row, why) in [
            ("{", "line 1"),
            (r#"{"kind": "fuzzy", "text": "5", "label": 5}"#, "fuzzy"),
            (r#"{"kind": "math", "text": "5", "label": 5, "want": 7}"#, "want is 7"),
        ] {
            let error = graded(&[row], false).unwrap_err();
            assert!(is_usage(&error), "{row}");
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(is_usage(&read(Path::new("nowhere.jsonl")).err().unwrap()));
    }

    #[test]
    fn label_of_the_command_line_keeps_its_digits() {
        for (label, value) in [
            ("72", serde_json::json!(72)),
            ("18446744073709551616", serde_json::json!("18446744073709551616")),
            ("1.50", serde_json::json!(1.5)),
            ("[1,2]", serde_json::json!("[1,2]")),
            ("[\"a\", \"b\"]", serde_json::json!(["a", "b"])),
            ("x^2", serde_json::json!("x^2")),
        ] {
            assert_eq!(read_label(label), value, "{label}");
        }
    }
}
