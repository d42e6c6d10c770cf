//! Changes by pages of `dyad dashboard --write`: publishing, dead letters, orders.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use broker::bus::Bus;
use broker::protocol::Kind;
use serde_json::{Value, json};
use tests::letters::{broker_of, connect, message, topology};
use tests::program::{Killed, Program, json_lines, wait_until};
use tests::small::Small;

use super::memory::stays_in_its_budget;
use super::{PATIENCE, Pages, id, serve};
use crate::program;

/// Dead letters that are looked at again and again.
const LETTERS: usize = 1000;
const BODY: usize = 6000;
const LOOKS: usize = 60;
const PAGE: usize = 200;

/// A run on published tasks alone, with a batch that eight tasks fill.
fn queued() -> Small {
    Small::of("configs/signal.toml")
        .replace("tasks.source", "queue")
        .without("tasks.params")
        .replace("run.mode", "async")
        .set("run.transcripts", "all")
        .replace("run.train_steps", 1_000_000)
        .replace("workflow.group_size", 4)
        .replace("defaults.agent.train.batch_groups", 4)
}

/// Publishes tasks by message id and body, past the checks of `dyad publish`.
pub(super) fn publish_unchecked(run: &Path, tasks: impl IntoIterator<Item = (String, String)>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let bus = connect(&broker_of(run).unwrap()).await;
        let topology = topology(&id(run));
        let to = topology.to(&topology.tasks());
        for (id, body) in tasks {
            bus.publish(message(to.clone(), Kind::Task, &id, body)).await.unwrap();
        }
        bus.close().await;
    });
}

/// Reads the ids of all letters, page by page.
fn every_letter(pages: &Pages, path: &str) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = pages.json(&format!("{path}?limit={PAGE}{cursor}"));
        assert_eq!(page["total"], LETTERS);
        let letters = page["letters"].as_array().unwrap();
        ids.extend(letters.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

pub(super) fn live(program: &Program) -> (tests::program::Running, std::path::PathBuf) {
    let running = program.launch("up", &queued().save(program), &[]);
    let run = program.run_folder();
    wait_until("the run to be running", PATIENCE, || {
        let lines = json_lines(&run.join("logs/coordinator.jsonl"));
        lines.iter().any(|line| line["message"] == "the run is running")
    });
    (running, run)
}

/// A letter of the page has the values that `dyad tasks dead --json` prints.
fn equals_the_command(program: &Program, run: &Path, shown: &Value) {
    let id = shown["id"].as_str().unwrap();
    let printed = program.succeed(&["tasks", "dead", id, "--json", "--run", run.to_str().unwrap()]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    for (field, value) in printed.as_object().unwrap() {
        // A letter that is only read has no fate in the page.
        assert!(field == "fate" || shown[field] == *value, "{field}: {value} {shown}");
    }
    assert!(
        printed["attempts"].is_u64() && printed["fate"].is_string() && printed["body"] == shown["body"],
        "{printed}"
    );
}

#[test]
fn pages_publish_handle_dead_letters_and_give_orders() {
    let program = program();
    let (mut up, run) = live(&program);
    let name = id(&run);
    let running = serve(&program, &name, &["--write"]);
    let pages = Pages::of(&running);
    let api = |path: &str| format!("/api/runs/{name}/{path}");
    let post = |path: &str, body: Value| pages.post(&api(path), &body);
    assert_eq!(pages.json(&api("facts"))["writes"], true);

    // A bad line: the words of `dyad publish`.
    let bad = "{\"prompt\": \"o1\", \"label\": \"o1\"}\n{\"prompt\": \"o99\", \"label\": \"o99\"}\n";
    let file = program.file("bad.jsonl", bad);
    let runs = program.runs();
    let command = program.fail(2, &["publish", &file, "--run", &name, "--runs", runs.to_str().unwrap()]);
    let command = command.replace(&format!(" of {file}"), "");
    for path in ["tasks?check=1", "tasks"] {
        let (status, answer) = post(path, json!({"lines": bad}));
        assert_eq!(status, 400, "{answer}");
        let words = answer["error"].as_str().unwrap();
        assert!(command.contains(words), "{words}\n--- but the command says\n{command}");
    }

    // Good lines: judged, sent, played.
    let good: String = (0..4)
        .map(|n| format!("{{\"prompt\": \"o{n}\", \"label\": \"o{n}\", \"id\": \"mine-{n}\"}}\n"))
        .collect();
    let (status, answer) = post("tasks?check=1", json!({"lines": good}));
    assert_eq!((status, &answer["valid"]), (200, &json!(4)), "{answer}");
    let (status, answer) = post("tasks", json!({"lines": good}));
    assert_eq!((status, &answer["confirmed"]), (200, &json!(4)), "{answer}");
    let group = answer["tasks"][0]["group"].as_str().unwrap().to_owned();
    wait_until("the published group to be played", PATIENCE, || {
        let reply = pages.get(&api(&format!("groups/{group}")));
        reply.status == 200 && reply.body.contains("mine-0")
    });

    wait_until("its task to have an outcome", PATIENCE, || {
        let life = pages.json(&api("tasks/mine-0"));
        assert_eq!(life["group"], group.as_str(), "{life}");
        life["outcome"] == "played" && life["is_final"] == true
    });

    // A killed agent is silent until its supervisor starts it again.
    let killed = Killed::of(&up, "b");
    let since = Instant::now();
    wait_until("agent b to be silent", PATIENCE, || {
        let status = pages.json(&api("status"));
        let waits = status["waits"].to_string();
        status["live"]["agents"]["b"].is_null() && waits.contains("no heartbeat")
    });
    println!("silent after {:.1} s", since.elapsed().as_secs_f32());
    drop(killed);
    wait_until("agent b to be back", PATIENCE, || {
        pages.json(&api("status"))["live"]["agents"]["b"].is_object()
    });

    // Looking takes nothing away, and an unknown id changes nothing.
    let poison = |n| {
        (
            format!("bad-{n}"),
            json!({"prompt": "o99", "id": format!("bad-{n}"), "pad": "x".repeat(BODY)}).to_string(),
        )
    };
    publish_unchecked(&run, (0..LETTERS).map(poison));
    let letters = || usize::try_from(pages.json(&api("letters"))["total"].as_u64().unwrap()).unwrap();
    wait_until("all dead letters", PATIENCE, || {
        post("letters/requeue", json!({"ids": ["no-such-letter"]}));
        letters() == LETTERS
    });
    let life = pages.json(&api("tasks/bad-0"));
    let text = life["text"].as_str().unwrap();
    assert!(
        life["outcome"] == "rejected" && text.contains("the body is not a task"),
        "{life}"
    );
    let since = Instant::now();
    let first = every_letter(&pages, &api("letters"));
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), LETTERS);
    for _ in 1..LOOKS / (LETTERS / PAGE) {
        let (status, answer) = post("letters/requeue", json!({"ids": ["no-such-letter"]}));
        assert_eq!((status, &answer["missing"]), (200, &json!(["no-such-letter"])));
        assert_eq!(every_letter(&pages, &api("letters")), first, "in the same order");
    }
    println!("{LOOKS} looks took {:.1} s", since.elapsed().as_secs_f32());
    let listed = pages.json(&api("letters?order=newest&limit=1"));
    assert_eq!(listed["letters"][0]["id"], *first.last().unwrap());
    let one = &pages.json(&api("letters?id=bad-7"))["letters"][0];
    equals_the_command(&program, &run, one);
    assert_eq!(
        (one["cut"].as_bool(), one["bytes"].as_u64() > Some(BODY as u64)),
        (Some(false), true)
    );
    assert!(one["body"].as_str().unwrap().contains(&"x".repeat(BODY)));
    stays_in_its_budget(running.pid());
    let (status, answer) = post("letters/drop", json!({"ids": ["bad-1"]}));
    assert_eq!(status, 409, "not confirmed: {answer}");
    let (status, answer) = post("letters/drop", json!({"ids": ["bad-1"], "confirm": name}));
    assert_eq!(
        (status, &answer["letters"][0]["fate"]),
        (200, &json!("dropped")),
        "{answer}"
    );
    let task = "{\"prompt\": \"o5\", \"label\": \"o5\"}";
    let (status, answer) = post("letters/edit", json!({"id": "bad-2", "task": task, "as_id": "mended"}));
    assert_eq!(
        (status, &answer["letters"][0]["fate"]),
        (200, &json!("requeued as mended")),
        "{answer}"
    );
    assert_eq!(letters(), LETTERS - 2);
    // An answer about many letters is small enough, whatever their bodies are.
    let most: Vec<&String> = first
        .iter()
        .filter(|id| !["bad-1", "bad-2", "bad-3"].contains(&id.as_str()))
        .collect();
    let (status, answer) = post("letters/drop", json!({"ids": most, "confirm": name}));
    assert_eq!(
        (status, &answer["fates"]),
        (200, &json!({"dropped": LETTERS - 3})),
        "{answer}"
    );
    assert_eq!(letters(), 1);

    // Orders.
    pages.pause_and_resume(&name);
    let (status, _) = post("orders", json!({"order": "drain"}));
    assert_eq!(status, 409, "not confirmed");
    let (status, answer) = post("orders", json!({"order": "drain", "confirm": name}));
    assert_eq!(status, 200, "{answer}");
    up.finish(PATIENCE);
    let (status, answer) = post("orders", json!({"order": "pause"}));
    assert_eq!(status, 409);
    assert!(answer["error"].as_str().unwrap().contains("ended at"), "{answer}");
}
