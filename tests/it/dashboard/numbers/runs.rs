//! Numbers of the table of runs, and of the comparison of two.

use std::path::Path;

use serde_json::Value;
use tests::program::{json_folder, metrics};

use super::rounding::{figure, real, same, signed};
use super::{Drawn, STEPS, id, printed};

/// Compares both rows of the table with `dyad status`.
pub(super) fn table(drawn: &mut Drawn<'_>, other: &Path) {
    // The table comes after the page's first line.
    drawn.open_page("", &id(other));
    let rows = drawn.table("Runs");
    assert_eq!(rows.len(), 2, "{rows:?}");
    for folder in [drawn.folder.as_path(), other] {
        let run = id(folder);
        let row = rows.iter().find(|row| row[1]["text"] == run.as_str());
        let row = row.unwrap_or_else(|| panic!("{run} is not in the table: {rows:?}"));
        let status = printed(drawn.program, &["status", "--run", &run]).remove(0);
        let metrics = &status["metrics"];
        let text = format!("{} / {STEPS}", metrics["train"]["a"]["step"]);
        assert_eq!(row[5]["text"], text, "{run}");
        let evaluations = json_folder(&folder.join("evals"));
        let first = evaluations.iter().min_by_key(|one| one["step"].as_u64()).unwrap();
        let values = first["values"]["success"].as_object().unwrap().values();
        let values: Vec<f64> = values.map(|value| value.as_f64().unwrap()).collect();
        let first = values.iter().sum::<f64>() / values.len() as f64;
        let last = metrics["eval"]["success"].as_f64().unwrap();
        let text = format!("{} \u{2192} {}", real(first), real(last));
        assert_eq!(row[6]["text"], text, "{run}");
        let points = drawn.browser.value(&format!(
            "document.querySelector('a[href=\"#/r/{run}\"]').closest('tr').querySelector('polyline').getAttribute('points')"
        ));
        is_reward_curve(points.as_str().unwrap(), folder);
    }
}

/// Asserts that points of the table are the mean rewards of agent a, which leads.
fn is_reward_curve(points: &str, folder: &Path) {
    let lines = metrics(folder, "train");
    let of_a = lines.iter().filter(|line| line["agent"] == "a");
    let rewards: Vec<f64> = of_a.map(|line| line["reward/mean"].as_f64().unwrap()).collect();
    let low = rewards.iter().copied().fold(f64::INFINITY, f64::min);
    let high = rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    assert!(high > low, "{rewards:?}");
    let heights: Vec<f64> = points
        .split(' ')
        .map(|point| point.split_once(',').unwrap().1.parse().unwrap())
        .collect();
    let expected = rewards.iter().map(|reward| 21.0 - 18.0 * (reward - low) / (high - low));
    assert_eq!(heights.len() as u64, STEPS);
    let differs = |(drawn, expected): (&f64, f64)| (drawn - expected).abs() > 0.06;
    assert!(!heights.iter().zip(expected).any(differs), "{points}: {rewards:?}");
}

/// Compares the last evaluations of both runs with those of `dyad compare`.
pub(super) fn comparison(drawn: &mut Drawn<'_>, other: &str) {
    let (file, runs) = (drawn.program.home().join("compared.json"), drawn.program.runs());
    let args = [
        "compare",
        drawn.run.as_str(),
        other,
        "--json",
        file.to_str().unwrap(),
        "--runs",
        runs.to_str().unwrap(),
    ];
    drawn.program.succeed(&args);
    let compared: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let page = format!("compare/{}/{other}", drawn.run);
    drawn.open_page(&page, "trained tokens");
    let rows = drawn.table("Last evaluations");
    let (tokens, figures) = rows.split_last().unwrap();
    let expected = compared["rows"].as_array().unwrap();
    assert_eq!(figures.len(), expected.len(), "{rows:?}");
    for (row, one) in figures.iter().zip(expected) {
        let metric = one["metric"].as_str().unwrap();
        assert_eq!(row[0]["text"], metric);
        for (cell, side) in [(1, "a"), (2, "b")] {
            same(&format!("comparison of {metric}, {side}"), &row[cell], &one[side], real);
        }
        let of = |part: &str| one["difference"][part].as_f64().unwrap();
        let (mean, low, high) = (of("mean"), of("low"), of("high"));
        let text = format!("{} ({} to {}) ", signed(mean), signed(low), signed(high));
        let shown = row[3]["text"].as_str().unwrap();
        let rest = shown.strip_prefix(&text);
        let marked = if low > 0.0 || high < 0.0 { "excludes 0" } else { "" };
        assert_eq!(
            rest,
            Some(marked),
            "comparison of {metric}: {shown:?} begins with {text:?}"
        );
    }
    assert!(expected.iter().any(|one| one["a"] != one["b"]), "{compared}");
    for (cell, at) in [(1, 0), (2, 1)] {
        let value = compared["trained_tokens"][at].as_f64().unwrap();
        assert_eq!(tokens[cell]["text"], figure(value), "trained tokens");
    }
}
