//! Hostile text in pages of a live run and of damaged run folders: it stays text.

use std::net::TcpListener;
use std::path::Path;

use broker::bus::{Bus, Outgoing};
use broker::protocol::Kind;
use configs::AgentName;
use serde_json::{Value, json};
use tests::letters::{broker_of, connect, message, topology};
use tests::program::wait_until;

use super::browser::{hostile, is_harmless};
use super::changes::live;
use super::chromium::Browser;
use super::numbers::live_overview;
use super::{PATIENCE, Pages, id, serve};
use crate::program;

const SHORT: &str = "<img src=x onerror=\"document.title='owned'\">";
const SHOWN: &str = "&lt;img src=";

/// Sends a turn and the end of its conversation as a coordinator shares them.
fn share(run: &Path, turn: &Value, end: &Value) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let bus = connect(&broker_of(run).unwrap()).await;
        let topology = topology(&id(run));
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
        let good = json!({"prompt": "o1", "label": "o1", "id": format!("{SHORT}{width}")}).to_string();
        fill(&mut browser, &good);
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
    for run in [kept, other, SHORT] {
        let folder = program.runs().join(run.replace('/', ""));
        for part in ["metrics", "logs", "transcripts"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        let info = json!({"run": run, "name": text, "seed": 1, "version": text, "commit": text, "git": text,
            "source": text, "created_ms": 1});
        std::fs::write(folder.join("run.json"), info.to_string()).unwrap();
        let config = format!("[run]\nmode = {quoted}\n[workflow]\nkind = {quoted}\n[agents.{quoted}]\n");
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
            (&format!("compare/{kept}/{other}"), "no evaluation"),
        ] {
            browser.open(&format!("http://{}/#token={}&/{path}", pages.address, pages.token));
            is_harmless(path, &browser.wait_for(least));
        }
    }
    canary.set_nonblocking(true).unwrap();
    assert!(canary.accept().is_err(), "a page asked another server");
}
