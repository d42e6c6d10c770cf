//! Answers that users of other graders reported as wrongly graded, and others of the same kinds.
//! `dyad grade rollout/src/grade/cases/field_cases.jsonl` grades the same rows.

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
    let rows: Vec<Row> = include_str!("../cases/field_cases.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(rows.len() > 150);
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
