//! Numbers of the life of a task.

use serde_json::Value;

use super::Drawn;
use super::rounding::count;

/// Compares the task of a trained conversation with `dyad conversation TASK`: its outcome, and in
/// each ledger the samples and their verdicts. A synchronous run trains a group at the next step.
pub(super) fn task(drawn: &mut Drawn<'_>, one: &Value) {
    let task = one["task"].as_str().unwrap();
    let mut printed = drawn.command(&["conversation", task]).into_iter();
    let (fate, members) = (printed.next().unwrap(), printed.count());
    drawn.open(&format!("t/{}", task.replace('/', "%2F")), "trained at step");
    let facts = drawn.rows("main div.facts").remove(0);
    assert_eq!(facts[0]["text"], fate["outcome"]);
    let group = drawn.browser.value("document.querySelector('main div.facts a').hash");
    let is_its_group = group.as_str().unwrap().ends_with(fate["group"].as_str().unwrap());
    assert!(is_its_group, "{group}: {fate}");
    let rows = drawn.table("Ledgers");
    assert_eq!(rows.len(), 2, "{rows:?}");
    let step = one["step"].as_u64().unwrap() + 1;
    let verdict = format!("{} trained at step {step}", count(members as f64, "sample"));
    for (row, agent) in rows.iter().zip(["a", "b"]) {
        let texts: Vec<&str> = row.iter().map(|cell| cell["text"].as_str().unwrap()).collect();
        assert_eq!(texts, [agent, "closed", &members.to_string(), &verdict], "task {task}");
    }
}
