//! Hostile text in pages of a live run and of damaged run folders: it stays text.

use std::net::TcpListener;
use std::path::Path;

use broker::bus::amqp::AmqpBus;
use broker::bus::letter::{HEADER_CLASS, HEADER_FIRST, HEADER_REASON, HEADER_STAGE, HEADER_USER};
use broker::bus::{Bus, Outgoing};
use broker::protocol::Kind;
use broker::topology::Topology;
use configs::AgentName;
use serde_json::{Value, json};
use tests::letters::{broker_of, connect, message, topology};
use tests::program::{json_folder, wait_until};

use super::browser::{hostile, is_harmless};
use super::changes::{live, publish_unchecked};
use super::chromium::Browser;
use super::numbers::{letters, live_overview};
use super::{PATIENCE, Pages, id, printed, serve};
use crate::program;

const SHORT: &str = "<img src=x onerror=\"document.title='owned'\">";
const SHOWN: &str = "&lt;img src=";

/// Sends a turn and the end of its conversation as a coordinator shares them.
fn share(run: &Path, turn: &Value, end: &Value) {
    on_the_bus(run, async |bus, topology| {
        let to = topology.to_inference(&AgentName::new("a").unwrap(), "speaker");
        let turns = message(to, Kind::Inference, "hostile", json!([turn]).to_string());
        let ends = message(topology.to_ended(), Kind::Ended, "hostile", json!([end]).to_string());
        for message in [turns, ends] {
            let onlookers = Outgoing {
                durable: false,
                ..message
            };
            bus.publish(onlookers).await.unwrap();
        }
        // It is sent by a task of the bus, which has no confirm.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    });
}

/// Sends messages to the broker of a run.
fn on_the_bus(run: &Path, send: impl AsyncFnOnce(&AmqpBus, &Topology)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let bus = connect(&broker_of(run).unwrap()).await;
        send(&bus, &topology(&id(run))).await;
        bus.close().await;
    });
}

#[test]
fn hostile_live_turns_and_answers_of_the_form_stay_text() {
    let program = program();
    let Some(mut browser) = Browser::start(&program.home().join("browser")) else {
        return;
    };
    let (_up, run) = live(&program);
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = hostile(&canary).join(" | ");
    let running = serve(&program, &id(&run), &["--write"]);
    let pages = Pages::of(&running);
    let open = |path: &str| format!("http://{}/#token={}&/r/{}/{path}", pages.address, pages.token, id(&run));
    let turn = json!({
        "group": "ab010000000000000000000000000000", "task": text, "member": 0, "role": "speaker", "seat": 0, "turn": 0,
        "agent": "a", "text": text, "finish": "stop", "tokens": 1, "mean_logprob": -0.5,
        "version": {"lineage": 1, "step": 4},
    });
    let end = json!({"group": turn["group"], "member": 0, "status": text, "rewards": {(text.as_str()): 1.0}});
    for (width, theme) in [(1280, "light"), (400, "dark")] {
        browser.look(width, theme);
        browser.open(&open("live"));
        browser.wait_for("all shown");
        wait_until("the turn in the page", PATIENCE, || {
            share(&run, &turn, &end);
            browser
                .value("document.querySelectorAll('.ended .chip').length")
                .as_u64()
                > Some(0)
        });
        is_harmless("live", &browser.wait_for(SHOWN));

        browser.open(&open("publish"));
        browser.wait_for("checked by this run's workflow signal");
        let key = json!({"prompt": "o1", "label": "o1", SHORT: SHORT}).to_string();
        let label = json!({"prompt": SHORT, "label": SHORT, "id": SHORT}).to_string();
        for lines in [text.clone(), key, label] {
            fill(&mut browser, &lines);
            wait_until("a refusal", PATIENCE, || {
                let shown = browser.value("document.querySelector('main [role=alert]')?.textContent ?? ''");
                shown.as_str().is_some_and(|shown| shown.contains("line 1"))
            });
            let page = browser.wait_for("role=\"alert\"");
            is_harmless(&format!("publish: {lines}"), &page);
        }
        let id = format!("{SHORT}{width}");
        is_made_of_fields(
            &mut browser,
            &json!({"prompt": "o1", "label": "o1", "id": id, "metadata": {SHORT: SHORT}}),
        );
        browser.wait_for("1 task valid");
        let click = "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Publish').click()";
        browser.value(click);
        is_harmless("published", &browser.wait_for(&format!("watch {SHOWN}")));
    }
    canary.set_nonblocking(true).unwrap();
    assert!(canary.accept().is_err(), "the page asked another server");
    // The two tasks that the form published are played.
    live_overview(&program, &run, &pages, browser, 2);
}

/// Types lines into the form, after what it said of earlier ones is gone.
fn fill(browser: &mut Browser, lines: &str) {
    let set = format!(
        "(() => {{ document.querySelectorAll('main .message').forEach((one) => one.remove());
           const field = document.querySelector('[aria-label^=\"Tasks, one\"]');
           field.value = {}; field.dispatchEvent(new Event('input')); }})()",
        json!(lines)
    );
    browser.value(&set);
}

/// Types a task into the form's fields. It becomes a line when its further fields are an object.
fn is_made_of_fields(browser: &mut Browser, task: &Value) {
    fill(browser, "");
    let more = json!({"metadata": task["metadata"]}).to_string();
    for (fields, made) in [
        (SHORT, Value::Null),
        ("[1]", Value::Null),
        (more.as_str(), task.clone()),
    ] {
        let values = json!([task["prompt"], task["label"], task["id"], fields]);
        let line = browser.value(&format!(
            "(() => {{ const form = document.querySelector('main .form');
               form.querySelectorAll('textarea').forEach((one, at) => (one.value = {values}[at]));
               form.querySelector('button').click();
               return document.querySelector('[aria-label^=\"Tasks, one\"]').value; }})()"
        ));
        let line: Value = serde_json::from_str(line.as_str().unwrap()).unwrap_or_default();
        assert_eq!(line, made);
        let is_refused = browser.value("document.querySelector('main .form [role=alert]') !== null");
        assert_eq!(is_refused, made.is_null(), "{fields}");
        is_harmless("a task of fields", &browser.wait_for("Add as a line"));
    }
}

#[test]
fn hostile_run_folders_stay_text() {
    let program = program();
    let Some(mut browser) = Browser::start(&program.home().join("browser")) else {
        return;
    };
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = hostile(&canary).join(" | ");
    let quoted = json!(text);
    let (kept, other) = ("kept-00000000", "other-00000000");
    let mut texts = hostile(&canary);
    texts.rotate_left(8);
    let text_of_other = texts.join(" | ");
    for run in [kept, other, SHORT] {
        let quoted = if run == other {
            json!(text_of_other)
        } else {
            quoted.clone()
        };
        let folder = program.runs().join(run.replace('/', ""));
        for part in ["metrics", "logs", "transcripts"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        let info = json!({"run": run, "name": text, "seed": 1, "version": text, "commit": text, "git": text,
            "source": text, "created_ms": 1});
        std::fs::write(folder.join("run.json"), info.to_string()).unwrap();
        let config =
            format!("[run]\nmode = {quoted}\n[workflow]\nkind = {quoted}\n[agents.{quoted}]\nname = {quoted}\n");
        std::fs::write(folder.join("config.toml"), config).unwrap();
        let end = json!({"stopped": {"reason": text, "at_ms": 1}});
        std::fs::write(folder.join("ended.json"), end.to_string()).unwrap();
    }
    let running = serve(&program, "", &["--write"]);
    let pages = Pages::of(&running);
    let listed = pages.json("/api/runs");
    let runs: Vec<&str> = listed["runs"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["run"].as_str())
        .collect();
    assert_eq!(runs, [kept, other], "a name that is no id is not listed");
    assert_eq!(listed["runs"][0]["workflow"], text.as_str());
    for (width, theme) in [(1280, "light"), (400, "dark")] {
        browser.look(width, theme);
        for (path, least) in [
            ("", "onerror="),
            (&format!("r/{kept}/"), "config.toml"),
            (&format!("compare/{kept}/{other}"), "Configuration: 4 keys differ"),
        ] {
            browser.open(&format!("http://{}/#token={}&/{path}", pages.address, pages.token));
            is_harmless(path, &browser.wait_for(least));
        }
        let keys = browser.value(
            "[...document.querySelectorAll('table[aria-label=Configuration] tbody tr')].map((row) =>
          [...row.children].map((one) => one.textContent.includes('<img src=http')))",
        );
        let [of_one, of_both] = [[true, true, false], [false, true, true]];
        assert_eq!(keys, json!([of_one, [true, false, true], of_both, of_both]));
    }
    canary.set_nonblocking(true).unwrap();
    assert!(canary.accept().is_err(), "a page asked another server");
}

/// Writes a group of two members with hostile texts: each has 8 turns, and the texts of one are not
/// in the order of the other's.
pub(super) fn plant_pair(folder: &Path, group: &str, texts: &[String]) {
    let mut transcript = json_folder(&folder.join("transcripts")).remove(0);
    transcript["eval"] = true.into();
    let turn = transcript["turns"][0].clone();
    let mut lines = String::new();
    for (member, shift) in [0, 8].into_iter().enumerate() {
        let mut texts = texts.to_vec();
        texts.rotate_left(shift);
        let said = |(number, texts): (usize, &[String])| {
            let mut turn = turn.clone();
            turn["turn"] = number.into();
            turn["text"] = texts.join("\n").into();
            turn
        };
        transcript["conversation"] = format!("{group}/{member}").into();
        transcript["turns"] = texts.chunks(texts.len() / 8).enumerate().map(said).collect();
        lines += &format!("{transcript}\n");
    }
    std::fs::write(folder.join("transcripts/y.jsonl"), lines).unwrap();
}

/// Compares the two members of such a group in the page, which shows it.
pub(super) fn members_stay_text(browser: &mut Browser, texts: &[String]) {
    browser.wait_for("Tick two members");
    browser.value("document.querySelectorAll('input[data-member]').forEach((one) => one.click())");
    is_harmless("two members", &browser.wait_for("<ins>"));
    for side in ["odd", "even"] {
        let shown = browser.value(&format!(
            "[...document.querySelectorAll('.two > .turn:nth-child({side}) .body')].map((one) =>
               one.textContent).join('\\n')"
        ));
        let shown = shown.as_str().unwrap();
        let is_plain = |text: &&String| !text.contains(|c: char| c.is_control() || c == '\u{202e}');
        let missing: Vec<&String> = texts
            .iter()
            .filter(is_plain)
            .filter(|text| !shown.contains(*text))
            .collect();
        assert!(missing.is_empty(), "{side} members do not show {missing:?}");
    }
}

#[test]
fn hostile_dead_letters_stay_text() {
    let program = program();
    let Some(mut browser) = Browser::start(&program.home().join("browser")) else {
        return;
    };
    let (_up, run) = live(&program);
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    let texts = hostile(&canary);
    let letter = |(n, text): (usize, &String)| {
        let task = json!({"prompt": text, "id": text, "label": text, text.as_str(): text});
        (format!("hostile-{n}"), task.to_string())
    };
    publish_unchecked(&run, texts.iter().enumerate().map(letter));
    // The last ones are no JSON. The very last one has forged headers.
    let last = texts.len() - 1;
    let raw = texts[..last].iter().enumerate();
    publish_unchecked(&run, raw.map(|(n, text)| (format!("raw-{n}"), text.clone())));
    forge(&run, &format!("raw-{last}"), &texts[last]);
    let running = serve(&program, &id(&run), &["--write"]);
    let pages = Pages::of(&running);
    wait_until("all dead letters", PATIENCE, || {
        let letters = pages.json(&format!("/api/runs/{}/letters", id(&run)));
        letters["total"] == 2 * texts.len()
    });
    for (width, theme) in [(1280, "light"), (360, "dark")] {
        browser.look(width, theme);
        browser.open(&format!(
            "http://{}/#token={}&/r/{}/letters",
            pages.address,
            pages.token,
            id(&run)
        ));
        for shown in [100, 200, 300, 400] {
            browser.wait_for(&format!("{shown} of 400 letters shown"));
            browser.value("[...document.querySelectorAll('button')].find((one) => one.textContent.startsWith('Show more'))?.click()");
        }
        let printed = printed(&program, &["tasks", "dead", "--run", &id(&run)]);
        letters::letters(&mut browser, &printed);
        let page = browser.wait_for("raw-199");
        assert!(page.contains("&lt;img src=http"), "the letters are shown");
        assert!(page.contains(&format!("from <code>{SHOWN}")), "the publisher is shown");
        is_harmless("letters", &page);
        browser.value("document.querySelectorAll('details').forEach((one) => one.open = true)");
        is_harmless("opened letters", &browser.wait_for("Publish this instead"));
        messages_are_marked(&mut browser);
        edits_are_checked(&mut browser);
        browser.value("document.querySelector('.tools input[type=checkbox]').click()");
        browser.wait_for("Requeue 400 selected letters");
        browser.value(
            "[...document.querySelectorAll('button')].find((one) => one.textContent.startsWith('Remove 4')).click()",
        );
        browser.wait_for("Remove 400 selected letters for good? This cannot be taken back.");
    }
    canary.set_nonblocking(true).unwrap();
    assert!(canary.accept().is_err(), "the page asked another server");
}

/// Puts a letter into the dead letters that has `text` in each header.
fn forge(run: &Path, name: &str, text: &str) {
    on_the_bus(run, async |bus, topology| {
        let headers = [HEADER_USER, HEADER_REASON, HEADER_CLASS, HEADER_STAGE, HEADER_FIRST];
        let headers = headers.map(|header| (header.to_owned(), format!("{SHORT}{text}")));
        let letter = Outgoing {
            headers: headers.into(),
            ..message(topology.to(&topology.dead()), Kind::Task, name, text)
        };
        bus.publish(letter).await.unwrap();
    });
}

/// Checks the first message, which is JSON: its names and texts are marked, and all characters
/// stay.
fn messages_are_marked(browser: &mut Browser) {
    let marked = "(() => { const text = document.querySelector('main td pre');
      const all = (kind) => [...text.querySelectorAll('.json-' + kind)].map((one) => one.textContent);
      return [all('name'), all('text').length, JSON.stringify(JSON.parse(text.textContent), null, 2) === text.textContent];
    })()";
    wait_until("a marked message", PATIENCE, || {
        let found = browser.value(marked);
        let names = found[0].as_array().unwrap();
        names.len() == 4 && names.contains(&json!("\"prompt\"")) && found[1] == 4 && found[2] == true
    });
}

/// Types into the first editor: a task that is refused, then one that is not.
fn edits_are_checked(browser: &mut Browser) {
    const EDITOR: &str = "document.querySelector('textarea')";
    let send = format!("{EDITOR}.parentElement.querySelector('button').disabled");
    let refused = json!({"prompt": "o99", "id": SHORT}).to_string();
    let good = "{\"prompt\": \"o1\",\n \"label\": \"o1\"}";
    for (task, verdict, is_disabled) in [
        (refused.as_str(), "line 1", true),
        (SHORT, "JSON", true),
        (good, "1 task valid: nothing was sent yet", false),
    ] {
        browser.value(&format!(
            "{EDITOR}.value = {}; {EDITOR}.dispatchEvent(new Event('input'))",
            json!(task)
        ));
        wait_until(&format!("the verdict on {task}"), PATIENCE, || {
            let shown = browser.value(&format!("{EDITOR}.nextElementSibling.textContent"));
            shown.as_str().is_some_and(|shown| shown.contains(verdict))
        });
        assert_eq!(browser.value(&send), is_disabled, "{task}");
        is_harmless("an edited letter", &browser.wait_for("Publish this instead"));
    }
}
