//! Answers that users of other graders reported as wrongly graded, and others of the same kinds.
//! `dyad grade rollout/src/grade/cases/field_cases.jsonl` grades the same rows.

use broker::codec::parse_exact_json;
use serde::Deserialize;
use serde_json::Value;

use crate::grade::Grader;

#[derive(Deserialize)]
struct Row {
    case: String,
    kind: String,
    text: String,
    label: Value,
    want: f32,
}

#[test]
fn answers_of_the_field_cases_have_their_grades() {
    check(include_str!("../cases/field_cases.jsonl"), 150);
}

/// All currencies, separators, units, relations, bases, times, intervals and announcements that we
/// thought of, right and wrong.
#[test]
fn answers_of_the_same_kinds_have_their_grades() {
    check(include_str!("../cases/kinds.jsonl"), 1500);
}

fn check(lines: &str, least: usize) {
    let row = |line: &str| Row {
        label: parse_exact_json(line.as_bytes()).unwrap().exact()["label"].clone(),
        ..serde_json::from_str(line).unwrap()
    };
    let rows: Vec<Row> = lines.lines().map(row).collect();
    assert!(rows.len() > least);
    let wrong: Vec<String> = rows
        .iter()
        .filter(|row| Grader::new(&row.kind).unwrap().grade(&row.text, &row.label) != row.want)
        .map(|row| {
            format!(
                "{} {} wants {}: {} | {}",
                row.case, row.kind, row.want, row.text, row.label
            )
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
