//! Pages in Chromium, with hostile text.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use tests::program::{Killed, json_folder, json_lines, wait_until};

use super::chromium::Browser;
use super::hostile::{members_stay_text, plant_pair};
use super::{PATIENCE, Pages, config, drawn, id, looks, report, rewards, serve};
use crate::program;

/// Texts that would do harm as markup, code, control sequences or reordered text. Loaded, they ask
/// the canary.
pub(super) fn hostile(canary: &TcpListener) -> Vec<String> {
    let harm = "document.title='owned'";
    let url = format!("http://{}/", canary.local_addr().unwrap());
    let elements = [
        format!("<img src={url} onerror=\"{harm}\">"),
        format!("<script>{harm}</script>"),
        format!("<script src={url}></script>"),
        format!("<svg onload={harm}>"),
        format!("<iframe srcdoc=\"<script>parent.{harm}</script>\">"),
        format!("<iframe src={url}>"),
        format!("<body onload={harm}>"),
        format!("<video src={url} onerror={harm}>"),
        format!("<audio autoplay src={url}>"),
        format!("<input autofocus onfocus={harm}>"),
        format!("<details open ontoggle={harm}>"),
        format!("<object data={url}>"),
        format!("<embed src={url}>"),
        format!("<link rel=stylesheet href={url}>"),
        format!("<style>@import '{url}';</style>"),
        format!("<base href={url}>"),
        format!("<meta http-equiv=refresh content=\"0;url={url}\">"),
        format!("<form action={url}><button autofocus>"),
        format!("<a href=\"javascript:{harm}\">x</a>"),
        format!("<math href=\"javascript:{harm}\">"),
        format!("<template><script>{harm}</script></template>"),
        format!("<select autofocus onfocus={harm}>"),
        "{{constructor.constructor('document.title=1')()}}".to_owned(),
        format!("javascript:{harm}"),
        "\u{202e}desrever\u{202c} \u{200b}hidden\u{7}\u{1b}[31m".to_owned(),
    ];
    let breaks = ["", "\">", "'>", "</script>", "</title>", "</textarea>", "-->", "]]>"];
    let texts = elements
        .iter()
        .flat_map(|element| breaks.map(|end| format!("{end}{element}")));
    texts.collect()
}

/// Puts hostile texts into a run: a conversation, a log line, figures, an evaluation, a comment of
/// the configuration.
fn plant(folder: &Path, group: &str, canary: &TcpListener) {
    let mut first = json_folder(&folder.join("transcripts")).remove(0);
    let texts = hostile(canary);
    assert_eq!(texts.len(), 200);
    let text = texts.join(" | ");
    for name in ["task", "status", "prompt", "label"] {
        first[name] = text.as_str().into();
    }
    first["conversation"] = format!("{group}/0").into();
    for (name, value) in [
        ("text", json!(text)),
        ("finish", json!(text)),
        ("versions", json!(["1.6", text])),
        ("tokens", json!(4)),
        ("reads", json!([{"role": text, "content": text}])),
    ] {
        first["turns"][0][name] = value;
    }
    first["step"] = 1_000_000.into();
    first["rewards"] = json!({text.as_str(): {text.as_str(): 1.0, "total": 1.0}});
    std::fs::write(folder.join("transcripts/z.jsonl"), format!("{first}\n")).unwrap();
    let line = json!({"time": text, "level": text, "message": text, text.as_str(): text});
    std::fs::write(folder.join("logs/z.jsonl"), format!("{line}\n")).unwrap();
    let mut figures = json!({"kind": "train", "agent": "a", "step": 3});
    for text in &texts {
        figures[text] = json!(0.5);
    }
    std::fs::write(folder.join("metrics/z.jsonl"), format!("{figures}\n")).unwrap();
    let mut evaluation = json_folder(&folder.join("evals")).remove(0);
    evaluation["step"] = 1_000_000.into();
    evaluation["values"][&text] = json!({text.as_str(): 1.0});
    std::fs::write(folder.join("evals/z.jsonl"), format!("{evaluation}\n")).unwrap();
    let cell = json!([[text, {text.as_str(): {"mean": 0.5, "low": 0.25, "high": 0.75}}]]);
    let table = json!({"figures": [text], "cells": cell, "differences": cell, "runs": [text], "over": text});
    std::fs::write(folder.join("cross_play.json"), table.to_string()).unwrap();
    let config = folder.join("config.toml");
    let comment: String = text.chars().filter(|c| !c.is_control()).collect();
    let toml = std::fs::read_to_string(&config).unwrap() + &format!("\n# {comment}\n");
    std::fs::write(config, toml).unwrap();
    let turn = &first["turns"][0];
    let head = format!("{{\"conversation\":\"{group}/0\",");
    let rest = json!({"role": turn["role"], "seat": 0, "turn": 0, "ids": [7, 7, 7, 7], "pieces": [text, "x", "y", "z"],
        "logprobs": [-4.0, -4.0, -4.0, -4.0], "logprobs_of": text, "spans": [{"version": text, "start": 0, "end": 4}]});
    let trained = json!({"role": turn["role"], "seat": 0, "place": 0, "ids": [7, 7, 7, 7], "training": {"step": 3, "update": 1,
        "logprobs": [-3.5, null, -3.5, -3.5], "ratios": [1.65, null, 1.65, 1.65], "advantages": [0.5, 0.5, 0.5, 0.5],
        "outcomes": ["clipped", "stale", "unknown", "trained"]}});
    let lines = [rest, trained].map(|line| head.clone() + &line.to_string()[1..] + "\n");
    std::fs::write(folder.join("tokens/z.jsonl"), lines.concat()).unwrap();
}

/// Copies a run under another id, and changes one key of its configuration. Returns the id.
fn twin(folder: &Path) -> String {
    let (run, other) = (id(folder), "twin-00000000".to_owned());
    let copy = folder.with_file_name(&other);
    assert!(
        Command::new("cp")
            .arg("-r")
            .args([folder, &copy])
            .status()
            .unwrap()
            .success()
    );
    for (file, old, new) in [
        ("run.json", run.as_str(), other.as_str()),
        ("config.toml", "group_size = 8", "group_size = 4"),
    ] {
        let text = std::fs::read_to_string(copy.join(file)).unwrap();
        assert!(text.contains(old), "{text}");
        std::fs::write(copy.join(file), text.replace(old, new)).unwrap();
    }
    other
}

#[test]
fn pages_are_drawn_in_a_browser_and_hostile_text_stays_text() {
    let program = program();
    let Some(mut browser) = Browser::start(&program.home().join("browser")) else {
        return;
    };
    let folder = program.play("run", &config().save(&program), &[]);
    report::shows_the_values_at_the_pointer(&mut browser, &folder.join("report.html"));
    let run = id(&folder);
    let transcripts = json_folder(&folder.join("transcripts"));
    let trained = transcripts.iter().find(|one| one["eval"] != true).unwrap();
    let task = trained["task"].as_str().unwrap().replace('/', "%2F");
    let group = "ab010000000000000000000000000000";
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    plant(&folder, group, &canary);
    let pair = "cd010000000000000000000000000000";
    plant_pair(&folder, pair, &hostile(&canary));
    let other = twin(&folder);
    let running = serve(&program, "", &["--write"]);
    let pages = Pages::of(&running);
    let runs = [
        ("", "tick two runs"),
        (&*format!("compare/{run}/{other}"), "Configuration: 1 keys differ"),
    ];
    let of_run = [
        ("", "entropy, nats per token"),
        (&*format!("c/{group}/0"), "tok p3 clipped"),
        (&*format!("g/{group}"), "&lt;img src=http"),
        (&*format!("t/{task}"), "8 samples trained at step"),
        (
            "t/%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D'owned'%22%3E",
            "&lt;img src=x onerror",
        ),
        ("conversations", "&lt;img src=http"),
        ("charts/learning", "Reward in training"),
        ("charts/learning?q=onerror", "onerror="),
        ("evaluations", "95% intervals over &lt;img src=http"),
        ("logs/z", "\\u202e"),
        ("audit", "Nothing lost, nothing counted twice."),
        ("letters", "No dead letters."),
        ("config", "&lt;img src=http"),
        ("live", "No live turns"),
        ("publish", "Nothing can be published: run"),
        ("orders", "The run takes no orders: run"),
    ];
    let of_run = of_run.map(|(path, expected)| (format!("r/{run}/{path}"), expected));
    let all: Vec<(String, &str)> = of_run
        .into_iter()
        .chain(runs.map(|(path, expected)| (path.to_owned(), expected)))
        .collect();
    let open = |browser: &mut Browser, path: &str| {
        browser.open(&format!("http://{}/#token={}&/{path}", pages.address, pages.token));
    };
    let looks = [1280, 360]
        .into_iter()
        .flat_map(|width| ["light", "dark"].map(|theme| (width, theme)));
    for (width, theme) in looks {
        browser.look(width, theme);
        for (path, expected) in &all {
            open(&mut browser, path);
            let page = browser.wait_for(expected);
            assert!(page.contains(&format!("data-theme=\"{theme}\"")), "{path}: {theme}");
            is_harmless(path, &page);
            let name = path.replace(&run, "RUN").replace('/', "-");
            browser.keep_picture(&format!("{name}-{width}-{theme}"));
            looks::is_readable(&mut browser, path, width);
            if (width, theme) == (360, "dark") {
                looks::keys_reach_everything(&mut browser, path);
            }
        }
    }
    open(&mut browser, &format!("r/{run}/g/{pair}"));
    members_stay_text(&mut browser, &hostile(&canary));
    drawn::details_are_shown(&mut browser, &program, &pages, (&run, group));
    open(&mut browser, "");
    browser.wait_for(&other);
    looks::focus_outlives_redrawing(&mut browser, &format!("a[href='#/r/{run}']"));
    looks::open_by_keys(&mut browser, &format!("#/r/{run}"));
    looks::open_by_keys(&mut browser, &format!("#/r/{run}/conversations"));
    browser.wait_for("conversations shown");
    let first = browser.value("document.querySelector('td.id a').getAttribute('href')");
    looks::open_by_keys(&mut browser, first.as_str().unwrap());
    open(&mut browser, "");
    browser.wait_for(&other);
    browser.value("document.querySelectorAll('main input[type=checkbox]').forEach((one) => one.click())");
    browser.wait_for(&format!("#/compare/{run}/{other}"));
    browser.allow_scripts(false);
    open(&mut browser, "");
    browser.wait_for("These pages need JavaScript.");
    let named = browser.value("document.querySelector('noscript code')?.innerText");
    assert_eq!(named, "report.html");
    canary.set_nonblocking(true).unwrap();
    assert!(canary.accept().is_err(), "a page asked another server");
}

/// Asserts that a page made nothing of foreign text.
pub(super) fn is_harmless(path: &str, page: &str) {
    let body = page.split("<body>").nth(1).unwrap_or_default();
    assert!(!page.contains("<title>owned"), "{path}: a script ran");
    for made in ["<img", "<script>", "<iframe", "onload=\"", "\u{202e}", "\u{1b}"] {
        assert!(!body.contains(made), "{path}: foreign text became {made:?}");
    }
}

/// Collects each turn's conversation, role and time of appearance.
const WATCH: &str = "window.seen = []; new MutationObserver((changes) => {
  for (const node of changes.flatMap((change) => [...change.addedNodes])) {
    if (!node.classList?.contains('line')) continue;
    const [group, member] = node.closest('.talk').querySelector('a').hash.split('/').slice(-2);
    const role = node.querySelector('.who').textContent;
    seen.push([`${group}/${member} ${role}`, Date.now()]);
  }
}).observe(document.getElementById('main'), { childList: true, subtree: true })";

/// The delay counts from the generation in the log, which is shortly before the commit.
#[test]
fn live_pages_show_turns_and_silent_agents() {
    let program = program();
    let Some(mut browser) = Browser::start(&program.home().join("browser")) else {
        return;
    };
    let endless = config()
        .set("run.train_steps", 1_000_000)
        .without("eval")
        .save(&program);
    browser.look(1280, "light");
    let since = Instant::now();
    let up = program.start_with(
        &[
            "up",
            &endless,
            "--folder",
            program.runs().to_str().unwrap(),
            "--dashboard=127.0.0.1:0",
        ],
        &[("RUST_LOG", "agents=debug"), ("DYAD_LAUNCHER", crate::LIGHT)],
    );
    let shown = Pages::of(&up);
    let run = program.run_folder();
    let open =
        |pages: &Pages, path: &str| format!("http://{}/#token={}&/r/{}/{path}", pages.address, pages.token, id(&run));
    browser.open(&open(&shown, "live"));
    browser.wait_for("<h1>Live conversations");
    browser.value(WATCH);
    wait_until("a turn in the page", PATIENCE, || {
        browser.value("seen.length").as_u64() > Some(0)
    });
    println!(
        "from `dyad up --dashboard` to the first turn: {:.1} s",
        since.elapsed().as_secs_f32()
    );
    wait_until("turns in the page", PATIENCE, || {
        browser.value("seen.length").as_u64() > Some(200)
    });
    let seen = browser.value("seen");
    browser.wait_for(">live<");
    wait_until("the rewards of an ended conversation", PATIENCE, || {
        browser
            .value("document.querySelectorAll('.ended .chip').length")
            .as_u64()
            > Some(1)
    });
    let ended = browser.value(rewards::ENDED);
    browser.keep_picture("live");
    let killed = Killed::of(&up, "b");
    browser.open(&open(&shown, ""));
    for text in [
        ">silent<",
        "no heartbeat: it loads its model, or it is gone",
        "waits for agent b",
    ] {
        browser.wait_for(text);
    }
    drop(killed);
    let running = serve(&program, &id(&run), &["--write"]);
    let pages = Pages::of(&running);
    for (path, expected) in [
        ("publish", "checked by this run's workflow signal"),
        ("orders", "Then the run ends."),
    ] {
        browser.open(&open(&pages, path));
        browser.wait_for(expected);
    }
    drop(up);
    rewards::are_those_of_the_transcripts(&ended, &json_folder(&run.join("transcripts")));
    let lines = ["a", "b"].map(|agent| json_lines(&run.join(format!("logs/{agent}.jsonl"))));
    let is_made = |line: &Value| line["message"] == "a turn was generated";
    let made: Vec<Value> = lines.into_iter().flatten().filter(is_made).collect();
    let times: Vec<&Value> = made.iter().map(|line| &line["time"]).collect();
    let times = browser.value(&format!("{}.map(Date.parse)", json!(times)));
    let name = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("conversation_id"), text("role"))
    };
    let times = times.as_array().unwrap().iter().filter_map(Value::as_i64);
    let made: BTreeMap<String, i64> = made.iter().map(name).zip(times).collect();
    let mut delays: Vec<i64> = seen
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| Some(one[1].as_i64()? - made.get(one[0].as_str()?)?))
        .collect();
    delays.sort_unstable();
    assert!(
        delays.len() > 100,
        "{} of the turns are in the logs: {seen}",
        delays.len()
    );
    let (median, most) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    println!(
        "from generation to page: {median} ms in the middle, {most} ms at most, {} turns",
        delays.len()
    );
    assert!(median < 5000, "{median} ms");
}
