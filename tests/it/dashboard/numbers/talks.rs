//! Numbers of the list of conversations, and of one conversation.

use serde_json::{Value, json};
use tests::program::wait_until;

use super::super::PATIENCE;
use super::Drawn;
use super::group::{group_of, seats, strips};
use super::rounding::{count, figure, real, same};

/// Loads the next conversations of the list, if there are more.
const MORE: &str =
    "[...document.querySelectorAll('button')].find((one) => one.textContent === 'More conversations')?.click()";

/// Compares the whole list. Returns all conversations, the newest first.
pub(super) fn list(drawn: &mut Drawn<'_>) -> Vec<Value> {
    let mut stored = drawn.command(&["conversations", "--last", "100000"]);
    stored.reverse();
    drawn.open("conversations", "conversations shown");
    let all = format!("{} shown, all that match", count(stored.len() as f64, "conversation"));
    wait_until("all conversations", PATIENCE, || {
        drawn.browser.value(MORE);
        let text = drawn.browser.value("document.getElementById('main').textContent");
        text.as_str().unwrap().contains("all that match")
    });
    drawn.browser.wait_for(&all);
    let rows = drawn.table("Conversations");
    assert_eq!(rows.len(), stored.len());
    // The rewards of all rows, one after the other.
    let mut rewards = drawn.rows("table[aria-label=\"Conversations\"] .item").into_iter();
    for (row, one) in rows.iter().zip(&stored) {
        let (group, member) = one["conversation"].as_str().unwrap().split_once('/').unwrap();
        let place = format!("the list, {group}/{member}");
        assert_eq!(row[0]["text"], format!("{}/{member}", &group[..8]));
        assert_eq!(row[1]["text"], one["task"]);
        same(&place, &row[2], &one["step"], figure);
        for (seat, parts) in one["rewards"].as_object().unwrap() {
            let shown = rewards
                .next()
                .unwrap_or_else(|| panic!("{place} has no reward of {seat}"));
            assert_eq!(shown[0]["text"], seat.as_str(), "{place}");
            same(&format!("{place}, {seat}"), &shown[1], &parts["total"], real);
        }
    }
    assert!(rewards.next().is_none(), "rewards of no conversation");
    stored
}

/// Compares a conversation: its figures, turns, times, rewards and advantages.
pub(super) fn conversation(drawn: &mut Drawn<'_>, id: &str) {
    let stored = drawn.command(&["conversation", id]).remove(0);
    let members = group_of(drawn, id.split('/').next().unwrap());
    drawn.open(&format!("c/{id}"), "Copy JSON");
    let facts = drawn.rows("main > .facts").remove(0);
    let metrics = stored["metrics"].as_object().unwrap();
    assert_eq!(facts.len(), metrics.len() + 2, "{facts:?}");
    same(id, &facts[1], &stored["step"], |step| format!("step {}", figure(step)));
    for (shown, (name, value)) in facts[2..].iter().zip(metrics) {
        same(id, shown, value, |value| format!("{name} {}", real(value)));
    }

    let (tops, turns) = (drawn.rows("article.turn .top"), stored["turns"].as_array().unwrap());
    assert_eq!(tops.len(), turns.len(), "{tops:?}");
    for (top, turn) in tops.iter().zip(turns) {
        let place = format!("{id}, turn of {}", turn["role"]);
        same(&place, &top[2], &turn["tokens"], |tokens| count(tokens, "token"));
        let versions = turn["versions"].as_array().cloned();
        let versions = versions.unwrap_or_else(|| vec![turn["version"].clone()]);
        for (chip, version) in top[3..].iter().zip(&versions) {
            assert_eq!(chip["text"], format!("weights {}", version.as_str().unwrap()));
        }
        let of = match turn["logprobs_of"].as_str() {
            None | Some("sampled") => String::new(),
            Some(of) => format!(" ({of})"),
        };
        let mean = |value: f64| format!("mean log-prob {:.3}{of}", value + 0.0);
        same(&place, &top[3 + versions.len()], &turn["mean_logprob"], mean);
    }
    let bars = "[...document.querySelectorAll('article.turn svg.time')].map((one) => one.getAttribute('aria-label'))";
    let expected: Vec<String> = turns.iter().map(|turn| times(&turn["time"])).collect();
    assert_eq!(drawn.browser.value(bars), json!(expected), "{id}");

    let seats = seats(drawn);
    let mut rows = drawn.rows("section.seat table tbody tr").into_iter();
    let panels = drawn.rows("section.seat");
    for (seat, panel) in seats.iter().zip(&panels) {
        let earned = &stored["earned"][seat.as_str()];
        let place = format!("{id}, {seat}");
        for (name, how, value) in sums(earned) {
            let row = rows.next().unwrap_or_else(|| panic!("{place} has no row {name}"));
            assert_eq!(row[0]["text"], name, "{place}");
            assert!(how.is_none_or(|how| row[1]["text"] == how), "{place}, {name}: {row:?}");
            same(&format!("{place}, {name}"), &row[2], &json!(value), real);
        }
        let compared = &earned["compared"];
        let number = |key: &str| compared[key].as_f64().unwrap();
        if compared.is_object() {
            let kind = compared["kind"].as_str().unwrap();
            let (mean, std) = (real(number("mean")), real(number("std")));
            let text = format!("{kind}, {} compared: mean {mean}, std {std}", number("conversations"));
            let is_there = panel.iter().any(|child| child["text"] == text.as_str());
            assert!(is_there, "{place}: {text:?} in {panel:?}");
        }
    }
    assert!(rows.next().is_none(), "{id} has rows of no seat");
    let baseline = |seat: &str| stored["earned"][seat]["compared"]["baseline"].as_f64();
    strips(drawn, &members, &seats, baseline);
}

/// Compares the log-probs of the drawn tokens with the records, and their mean with that of each
/// turn.
pub(super) fn tokens(drawn: &mut Drawn<'_>, one: &Value) {
    let id = one["conversation"].as_str().unwrap();
    let stored = drawn.command(&["conversation", id]).remove(0);
    let path = format!("runs/{}/conversations/{id}/tokens", drawn.run);
    drawn.open(&format!("c/{id}"), "tokens by log-prob");
    let shown = drawn.browser.value(
        "[...document.querySelectorAll('article.turn')].map((turn) =>
           [...turn.querySelectorAll('.tokens .body .tok')].map((token) => Number(token.dataset.logprob)))",
    );
    let read = format!("import('/server.js').then(({{ get }}) => get('{path}'))");
    let records = drawn.browser.value(&read);
    let records = records["tokens"].as_array().unwrap();
    let (shown, turns) = (shown.as_array().unwrap(), stored["turns"].as_array().unwrap());
    assert_eq!((shown.len(), records.len()), (turns.len(), turns.len()), "{id}");
    for (shown, turn) in shown.iter().zip(turns) {
        let is_of_turn = |one: &&Value| one["role"] == turn["role"] && one["turn"] == turn["turn"];
        let record = records.iter().find(is_of_turn).unwrap();
        assert_eq!(*shown, record["logprobs"], "{id}: {turn}");
        let values = shown.as_array().unwrap().iter().filter_map(Value::as_f64);
        let sum: f64 = values.sum();
        let stated = turn["mean_logprob"].as_f64().unwrap() * turn["tokens"].as_f64().unwrap();
        assert!(sum < 0.0 && (sum - stated).abs() < 1e-4, "{id}: {sum} is not {stated}");
    }
}

/// Returns the rows of a seat: name, the numbers it is made of, value.
fn sums(earned: &Value) -> Vec<(String, Option<String>, f64)> {
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap_or_else(|| panic!("{key}: {of}"));
    let row = |part: &Value| {
        let (value, weight) = (number(part, "value"), number(part, "weight"));
        let how = format!("{} \u{d7} {}", real(value), figure(weight));
        (
            part["name"].as_str().unwrap().to_owned(),
            Some(how),
            value * weight + 0.0,
        )
    };
    let mut rows: Vec<_> = earned["parts"].as_array().unwrap().iter().map(row).collect();
    rows.push(("reward".to_owned(), None, number(earned, "total")));
    let compared = &earned["compared"];
    if compared.is_object() {
        rows.push(("baseline".to_owned(), None, number(compared, "baseline")));
        if number(compared, "scale") != 1.0 {
            rows.push(("scale".to_owned(), None, number(compared, "scale")));
        }
        rows.push(("advantage".to_owned(), None, number(compared, "advantage")));
    }
    rows
}

/// Returns the text of a turn's bar of times. The way to the engine and back is the rest.
fn times(time: &Value) -> String {
    let at = |key: &str| time[key].as_f64().unwrap_or_else(|| panic!("{key}: {time}"));
    let messages = at("answered") - at("asked") - at("queue") - at("prompt") - at("decode");
    let parts = [
        ("queue", at("queue")),
        ("prompt", at("prompt")),
        ("decode", at("decode")),
        ("messages", messages),
        ("commit", at("committed") - at("answered")),
    ];
    let parts = parts.map(|(name, seconds)| format!("{name} {} s", real(seconds)));
    format!("asked after {} s: {}", real(at("asked")), parts.join(", "))
}
