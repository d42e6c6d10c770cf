//! Prints the time of single grades: of hostile texts, or of each row of a file of JSON lines.
//!
//!     cargo run --release -p rollout --example grade_times [FILE.jsonl]

use std::error::Error;
use std::time::Instant;

use rollout::grade::Grader;
use serde_json::{Value, json};

/// Bytes of a hostile text.
const LENGTH: usize = 65_000;
/// Pieces that are repeated to a hostile text.
const PIECES: [&str; 40] = [
    "1",
    "1.1.",
    "1 2 3 4 ",
    "word ",
    "1,234,",
    "-1",
    "0.",
    "{",
    "}",
    "\\boxed{",
    "\\boxed{1} ",
    "\\frac",
    "^{",
    "2^",
    "(",
    "[1,",
    "1+",
    "x+",
    "$",
    "$5 ",
    "\\text{",
    "\\text{5 m} ",
    "answer is ",
    "The answer is 5. ",
    "answer:\n",
    "#### 5\n",
    "####",
    "<answer>",
    "<answer>5</answer>",
    "<think>x</think>",
    "1=1=",
    "1/2 ",
    "a or b ",
    "(A) ",
    "x:\n",
    "中国",
    "5米",
    "Question: 5\n",
    "not \\boxed{5} ",
    "~~5~~ ",
];

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(file) => of_file(&std::fs::read_to_string(file)?),
        None => of_hostile_texts(),
    }
}

/// Shortest time that Linux counts well, in milliseconds.
const ENOUGH: f64 = 60.0;

/// Returns this thread's processor time in milliseconds.
fn processor() -> Result<f64, Box<dyn Error>> {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = counted.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e6)
}

/// Returns the milliseconds of one grade: the mean of as many as give [`ENOUGH`].
fn milliseconds(grader: Grader, text: &str, label: &Value) -> Result<f64, Box<dyn Error>> {
    let (began, mut grades) = (processor()?, 0.0);
    loop {
        for _ in 0..4 {
            std::hint::black_box(grader.grade(text, label));
            grades += 1.0;
        }
        let used = processor()? - began;
        if used >= ENOUGH || grades >= 4000.0 {
            return Ok(used / grades);
        }
    }
}

/// Returns the milliseconds of the shortest of five grades by the clock. A row is too short for
/// [`processor`].
fn shortest(grader: Grader, text: &str, label: &Value) -> f64 {
    let once = |_| {
        let began = Instant::now();
        std::hint::black_box(grader.grade(text, label));
        began.elapsed().as_secs_f64() * 1000.0
    };
    (0..5).map(once).fold(f64::INFINITY, f64::min)
}

fn of_hostile_texts() -> Result<(), Box<dyn Error>> {
    let kinds = ["exact", "match", "integer", "gsm8k", "math", "choice", "f1"];
    println!(
        "{:24} {}",
        "ms a grade",
        kinds.map(|kind| format!("{kind:>8}")).join("")
    );
    let line = |name: &str, text: &str, label: &Value| -> Result<(), Box<dyn Error>> {
        print!("{name:24} ");
        for kind in kinds {
            print!("{:8.2}", milliseconds(Grader::new(kind)?, text, label)?);
        }
        println!();
        Ok(())
    };
    for piece in PIECES {
        let text = piece.repeat(LENGTH / piece.len());
        line(&format!("{piece:?}"), &text, &json!("5"))?;
        line("  in a box", &format!("\\boxed{{{text}}}"), &json!("5"))?;
    }
    let digits = "7".repeat(100_000);
    line(
        "100000 digits, as label",
        &format!("\\boxed{{{digits}}}"),
        &json!(digits),
    )?;
    line("5, label of 100000", "\\boxed{5}", &json!(digits))?;
    line("1 MB of words", &"word ".repeat(200_000), &json!("5"))?;
    line("1 MB of digits", &"1".repeat(1_000_000), &json!("5"))?;
    line("tower", &format!("\\boxed{{{}9}}", "9^".repeat(120)), &json!("5"))?;
    line(
        "nesting",
        &format!("\\boxed{{{}1{}}}", "(".repeat(120), ")".repeat(120)),
        &json!("5"),
    )?;
    Ok(())
}

fn of_file(lines: &str) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for line in lines.lines() {
        let row: Value = serde_json::from_str(line)?;
        let field = |key: &str| row[key].as_str().ok_or_else(|| format!("{key} is no text: {line}"));
        let grader = Grader::new(field("kind")?)?;
        times.push(shortest(grader, field("text")?, &row["label"]));
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    let last = times.last().copied().unwrap_or(0.0);
    println!(
        "{} rows, ms a grade: p50 {:.3}, p99 {:.3}, most {last:.3}",
        times.len(),
        at(0.5),
        at(0.99)
    );
    Ok(())
}
