//! Numbers of the overview and of the audit.

use serde_json::{Value, json};

use super::rounding::{figure, real, same};
use super::{Drawn, STEPS};

/// Rows of an agent's card after its step, each with its name in a line of metrics.
const CARD: [(&str, &str); 5] = [
    ("reward, last batch", "reward/mean"),
    ("staleness, steps", "staleness/mean"),
    ("groups without a difference", "advantage/zero_share"),
    ("entropy, nats per token", "loss/entropy"),
    ("seconds per batch", "time/train_s"),
];

/// Rows of the table of ledgers, each with its place in the audit of an agent.
const LEDGER: [(&str, &str); 11] = [
    ("groups reserved", "/counts/reserved"),
    ("groups closed", "/counts/closed"),
    ("groups ready", "/counts/ready"),
    ("groups dead", "/counts/dead"),
    ("samples received", "/samples"),
    ("samples trained", "/counts/trained"),
    ("samples counted twice", "/twice"),
    ("groups lost", "/missing"),
    ("duplicate bundles", "/counts/duplicates"),
    ("bundles of a lost attempt", "/counts/other_attempt"),
    ("batches", "/counts/batches"),
];

pub(super) fn overview(drawn: &mut Drawn<'_>) {
    let status = drawn.command(&["status"]).remove(0);
    let metrics = &status["metrics"];
    drawn.open("", "All evaluations");
    let names = drawn.rows("section.agent h3");
    let cards = drawn.rows("section.agent dl.grid");
    assert_eq!((names.len(), cards.len()), (2, 2));
    for (name, card) in names.iter().zip(&cards) {
        let agent = name[0]["text"].as_str().unwrap();
        let line = &metrics["train"][agent];
        let (step, rest) = card.split_at(2);
        assert_eq!(step[1]["text"], format!("{} / {STEPS}", line["step"]), "agent {agent}");
        assert_eq!(rest.len(), 2 * CARD.len(), "agent {agent}: {rest:?}");
        for ((title, key), row) in CARD.iter().zip(rest.chunks(2)) {
            assert_eq!(row[0]["text"], *title);
            assert!(line[*key].is_number(), "{line}");
            same(&format!("overview, agent {agent}, {title}"), &row[1], &line[*key], real);
        }
    }

    let is_shown = |name: &str| name != "step" && !name.starts_with("time/") && !name.starts_with("weights/");
    let line = metrics["eval"].as_object().unwrap();
    let figures: Vec<_> = line
        .iter()
        .filter(|(name, value)| value.is_number() && is_shown(name))
        .collect();
    let rows = drawn.table("Last evaluation");
    assert_eq!(rows.len(), figures.len(), "{rows:?}");
    for (row, (name, value)) in rows.iter().zip(figures) {
        assert_eq!(row[0]["text"], name.as_str());
        same(&format!("overview, last evaluation, {name}"), &row[1], value, real);
    }
    drawn
        .browser
        .wait_for(&format!("Last evaluation, step {}", line["step"]));
    let info = std::fs::read_to_string(drawn.folder.join("run.json")).unwrap();
    let info: Value = serde_json::from_str(&info).unwrap();
    drawn.browser.wait_for(&format!("seed <b>{}</b>", info["seed"]));
    drawn.browser.wait_for("group size <b>8</b>");
}

pub(super) fn audit(drawn: &mut Drawn<'_>) {
    let audit = drawn.command(&["audit"]).remove(0);
    let books = &audit["books"];
    drawn.open("audit", "Nothing lost, nothing counted twice.");
    let entries = |value: &Value| json!(value.as_object().unwrap().len());
    let sum = |map: &Value| -> u64 { map.as_object().unwrap().values().filter_map(Value::as_u64).sum() };
    let tasks = [
        ("accepted", books["accepted"].clone()),
        ("finished", books["finished"].clone()),
        ("abandoned without samples", json!(sum(&books["abandoned"]))),
        ("dead or rejected", books["dead"].clone()),
        ("in flight", books["in_flight"].clone()),
        ("published", books["published"].clone()),
        ("waiting in the queue", books["queued"].clone()),
        (
            "published, seen nowhere",
            json!(books["unseen"].as_array().unwrap().len()),
        ),
        ("ledgers disagree", entries(&books["unequal"])),
        ("conversations", books["conversations"].clone()),
        ("conversations left out", books["invalid_conversations"].clone()),
        (
            "conversations of abandoned groups",
            books["abandoned_conversations"].clone(),
        ),
    ];
    assert!(books["accepted"].as_u64() > Some(0), "{books}");
    let rows = drawn.table("Tasks");
    assert_eq!(rows.len(), tasks.len(), "{rows:?}");
    for (row, (name, value)) in rows.iter().zip(tasks) {
        assert_eq!(row[0]["text"], name);
        same(&format!("audit, {name}"), &row[1], &value, figure);
    }

    let rows = drawn.table("Ledgers");
    assert_eq!(rows.len(), LEDGER.len() + 1, "{rows:?}");
    let agents = audit["agents"].as_object().unwrap();
    for (column, (agent, counts)) in agents.iter().enumerate() {
        for ((name, place), row) in LEDGER.iter().zip(&rows) {
            assert_eq!(row[0]["text"], *name);
            let value = counts.pointer(place).unwrap_or_else(|| panic!("{place}: {counts}"));
            same(
                &format!("audit, agent {agent}, {name}"),
                &row[column + 1],
                value,
                figure,
            );
        }
        let starts = &rows[LEDGER.len()];
        assert_eq!(starts[0]["text"], "trainer starts");
        let place = format!("audit, agent {agent}, trainer starts");
        same(&place, &starts[column + 1], &entries(&counts["lineages"]), figure);
    }
    let (split, uneven) = (&audit["split"], &audit["uneven"]);
    let text = format!("Groups split between attempts: {split}. Uneven: {uneven}.");
    drawn.browser.wait_for(&text);
}
