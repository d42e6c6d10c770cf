//! Numbers of a live run that waits for tasks: the overview has those of `dyad status --json`.

use serde_json::{Value, json};
use tests::program::wait_until;

use super::Drawn;
use super::rounding::figure;
use crate::dashboard::PATIENCE;

/// The facts of a coordinator, each with its name in a heartbeat.
const COORDINATOR: [(&str, &str); 5] = [
    ("groups open", "open_groups"),
    ("groups done", "finished_groups"),
    ("conversations", "finished_conversations"),
    ("turns", "turns"),
    ("tasks dead", "dead_tasks"),
];

/// Reads the overview: facts and buffer of each agent, facts and rates of the coordinator, queues.
const OVERVIEW: &str = "(() => {
  const facts = (place) => Object.fromEntries([...place.querySelectorAll('dl.grid dt')].map((name) =>
    [name.textContent, name.nextElementSibling.textContent]));
  const all = (selector) => [...document.querySelectorAll(selector)];
  const cards = all('section.agent').map((card) => { const { step, 'weights served': weights } = facts(card);
    return [card.querySelector('h3').textContent, step, weights, card.querySelector('p.num').textContent]; });
  const heading = all('h2').find((one) => one.textContent.startsWith('Coordinator'));
  const queues = all('table[aria-label=Queues] tbody tr').map((row) =>
    [row.firstChild.title, row.children[1].textContent, row.lastChild.title]);
  const rates = heading.querySelector('.soft')?.textContent ?? '';
  return { cards, coordinator: facts(heading.parentElement), queues, rates };
})()";

/// Compares the overview with the command once `groups` groups were played.
pub(super) fn overview(drawn: &mut Drawn<'_>, groups: u64) {
    drawn.open("", "aria-label=\"Queues\"");
    wait_until("the numbers of `dyad status --json` in the page", PATIENCE, || {
        let live = &drawn.command(&["status"]).remove(0)["live"];
        let expected = expected(live);
        let shown = drawn.browser.value(OVERVIEW);
        if shown != expected {
            eprintln!("{shown}\n{expected}");
        }
        let mut beats = live["coordinators"].as_object().into_iter().flatten();
        shown == expected && beats.any(|(_, beat)| beat["finished_groups"].as_u64() >= Some(groups))
    });
}

/// Returns the overview that belongs to a live state.
fn expected(live: &Value) -> Value {
    let number = |value: &Value| figure(value.as_f64().unwrap_or(f64::NAN));
    let card = |(name, beat): (&String, &Value)| {
        let version = &beat["version"];
        let room = beat["capacity"].as_i64().unwrap_or_default().max(0);
        let buffer = format!("{} ready   {} reserved   {room} free", beat["ready"], beat["reserved"]);
        let step = format!("{} / 1000000", beat["step"]);
        json!([
            name,
            step,
            format!("{}.{}", version["lineage"], version["step"]),
            buffer
        ])
    };
    let beat = live["coordinators"].as_object().and_then(|beats| beats.values().next());
    let coordinator = beat.map(|beat| COORDINATOR.map(|(title, key)| (title.to_owned(), json!(number(&beat[key])))));
    let entries = |key: &str| live[key].as_object().into_iter().flatten();
    let rate = |key: &str| live[key].as_f64().map(|rate| figure(rate.round()));
    let rates = rate("conversations_per_s").zip(rate("turns_per_s"));
    let rates = rates.map(|(talks, turns)| format!(" {talks} conversations/s, {turns} turns/s"));
    json!({
        "rates": rates.unwrap_or_default(),
        "cards": entries("agents").map(card).collect::<Vec<_>>(),
        "coordinator": coordinator.into_iter().flatten().collect::<serde_json::Map<_, _>>(),
        "queues": entries("queues").map(|(name, depth)| {
            json!([name, number(depth), live["queue_limits"][name].to_string()])
        }).collect::<Vec<_>>(),
    })
}
