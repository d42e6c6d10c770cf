//! Numbers of the evaluations. `dyad status` prints the last one, and `dyad run` the gains. No
//! command prints earlier ones, so the test computes them from the stored tasks.

use agents::stats::{mean as mean_of, over_tasks};
use serde_json::{Value, json};
use tests::program::{json_folder, json_lines};

use super::Drawn;
use super::rounding::{figure, real, same, signed};

pub(super) fn evaluations(drawn: &mut Drawn<'_>) {
    let mut stored = json_folder(&drawn.folder.join("evals"));
    stored.sort_by_key(|one| one["step"].as_u64());
    let table = cross_play();
    std::fs::write(drawn.folder.join("cross_play.json"), table.to_string()).unwrap();
    drawn.open("evaluations", "All evaluations");
    every_cell(drawn, &table);
    every_evaluation(drawn, &stored);
    gains(drawn);
    tasks(drawn, &stored[0], &stored[stored.len() - 1]);
}

fn every_evaluation(drawn: &mut Drawn<'_>, stored: &[Value]) {
    let status = drawn.command(&["status"]).remove(0);
    let rows = drawn.table("Evaluations");
    assert_eq!(rows.len(), stored.len(), "{rows:?}");
    for (row, one) in rows.iter().zip(stored.iter().rev()) {
        let place = |what: &str| format!("evaluation at step {}, {what}", one["step"]);
        let values = one["values"]["success"].as_object().unwrap().values();
        let values: Vec<f64> = values.map(|value| value.as_f64().unwrap()).collect();
        let mean = mean_of(&values);
        let end = if one["last"] == true { " (last)" } else { "" };
        assert_eq!(row[0]["text"], format!("{}{end}", one["step"]));
        same(&place("mean"), &row[1], &json!(mean), real);
        if one["last"] == true {
            same(
                "the last evaluation",
                &row[1],
                &status["metrics"]["eval"]["success"],
                real,
            );
        }
        let interval = over_tasks(&values).unwrap();
        let interval = format!("{} to {}", real(interval.low), real(interval.high));
        assert_eq!(row[2]["text"], interval, "{}", place("interval"));
        same(&place("tasks"), &row[3], &json!(values.len()), figure);
        let versions = one["versions"].as_object().unwrap().iter();
        let versions = versions.map(|(agent, list)| {
            let of_one = |one: &Value| format!("{}.{}", one["lineage"], one["step"]);
            let list: Vec<String> = list.as_array().unwrap().iter().map(of_one).collect();
            format!("{agent}{}", list.join(", "))
        });
        assert_eq!(row[4]["text"], versions.collect::<String>(), "{}", place("weights"));
    }
}

/// Compares the gains with the line that `dyad run` writes at its end.
fn gains(drawn: &mut Drawn<'_>) {
    let summary = json_lines(&drawn.folder.join("metrics/summary.jsonl")).remove(0);
    let names = summary.as_object().unwrap().keys();
    let names: Vec<&str> = names.filter_map(|name| name.strip_suffix("/before")).collect();
    let rows = drawn.table("Changes");
    assert_eq!(rows.len(), names.len(), "{rows:?}");
    let mut differ = 0;
    for (row, name) in rows.iter().zip(names) {
        let of = |part: &str| summary[format!("{name}/{part}").as_str()].clone();
        let place = |what: &str| format!("change of {name}, {what}");
        assert_eq!(row[0]["text"], name);
        same(&place("before"), &row[1], &of("before"), real);
        same(&place("after"), &row[2], &of("after"), real);
        same(&place("gain"), &row[3], &of("gain"), signed);
        let [low, high] = ["gain_low", "gain_high"].map(|part| signed(of(part).as_f64().unwrap()));
        assert_eq!(row[4]["text"], format!("{low} to {high}"), "{}", place("interval"));
        same(&place("tasks"), &row[5], &of("tasks"), figure);
        differ += usize::from(of("before") != of("after"));
    }
    assert!(differ > 0, "no figure changed: {summary}");
}

fn tasks(drawn: &mut Drawn<'_>, first: &Value, last: &Value) {
    let [before, after] = [first, last].map(|one| one["values"]["success"].as_object().unwrap());
    let rows = drawn.table("Tasks");
    assert_eq!(rows.len(), after.len(), "{rows:?}");
    let mut changed = 0;
    for row in &rows {
        let task = row[0]["text"].as_str().unwrap();
        same(&format!("task {task}, first"), &row[1], &before[task], real);
        same(&format!("task {task}, last"), &row[2], &after[task], real);
        changed += usize::from(before[task] != after[task]);
    }
    drawn.browser.wait_for(&format!("{changed} of {} changed", after.len()));
    let (first, last) = (&first["step"], &last["step"]);
    let title = format!("Tasks: success, step {first} and step {last}");
    drawn.browser.wait_for(&title);
}

/// Returns a table of `dyad cross-play`.
fn cross_play() -> Value {
    let of = |mean: f64| json!({"mean": mean, "low": mean - 0.125, "high": mean + 0.0625});
    json!({
        "figures": ["success", "reward/a"],
        "cells": [["all initial", {"success": of(0.25)}], ["a trained", {"success": of(0.75), "reward/a": of(1.0)}]],
        "differences": [["a trained - all initial", {"success": of(0.5), "reward/a": of(-0.0625)}]],
        "runs": ["r", "it's"],
        "over": "2 runs, Student's t",
    })
}

fn every_cell(drawn: &mut Drawn<'_>, table: &Value) {
    let rows = drawn.table("Cross-play");
    let of = |key: &str| table[key].as_array().unwrap().clone();
    let cells = of("cells").into_iter().map(|row| (row, real as fn(f64) -> String));
    let all = cells.chain(
        of("differences")
            .into_iter()
            .map(|row| (row, signed as fn(f64) -> String)),
    );
    let all: Vec<_> = all.collect();
    assert_eq!(rows.len(), all.len(), "{rows:?}");
    for (row, (stored, shown)) in rows.iter().zip(&all) {
        assert_eq!(row[0]["text"], stored[0]);
        for (cell, figure) in row[1..].iter().zip(of("figures")) {
            let found = &stored[1][figure.as_str().unwrap()];
            let text = match found["mean"].as_f64() {
                None => "–".to_owned(),
                Some(_) => {
                    let [mean, low, high] = ["mean", "low", "high"].map(|part| shown(found[part].as_f64().unwrap()));
                    format!("{mean} ({low} to {high})")
                }
            };
            assert_eq!(cell["text"], text, "{stored}");
        }
    }
    drawn.browser.wait_for("95% intervals over 2 runs, Student's t");
    let copied = drawn.browser.value(
        "(() => { let text; navigator.clipboard.writeText = (copied) => { text = copied; return Promise.resolve(); };
           [...document.querySelectorAll('button')].find((one) => one.textContent === 'Copy command').click();
           return text; })()",
    );
    assert_eq!(copied, "dyad cross-play r $'it\\x27s'");
}
