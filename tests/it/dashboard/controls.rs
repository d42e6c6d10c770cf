//! Controls of pages: keys, the pause of live conversations, filters.

use serde_json::{Value, json};
use tests::program::wait_until;
use tests::trace::batches;

use super::chromium::Browser;
use super::{PATIENCE, Pages, config, id, stopped_run};
use crate::program;

/// The index of the chosen row in the list of conversations.
const CHOSEN: &str = "[...document.querySelectorAll('tbody tr')].findIndex((row) => row.classList.contains('at'))";
/// The targets of the links in the list of conversations.
const LISTED: &str = "[...document.querySelectorAll('td.id a')].map((one) => one.getAttribute('href'))";

/// Presses keys one after another.
fn press(browser: &mut Browser, keys: &str) {
    keys.split(' ').for_each(|key| browser.press(key));
}

/// Presses keys, and waits until the page is the one with this hash.
fn goes_to(browser: &mut Browser, keys: &str, hash: &str) {
    press(browser, keys);
    wait_until(&format!("{hash} after {keys}"), PATIENCE, || {
        browser.value("location.hash") == hash
    });
}

/// Sets a control and lets the page know.
fn set(browser: &mut Browser, label: &str, value: &str) {
    browser.value(&format!(
        "(() => {{ const control = document.querySelector('main [aria-label=\"{label}\"]');
           control.value = {}; control.dispatchEvent(new Event('change')); }})()",
        json!(value)
    ));
}

fn texts(found: Value) -> Vec<String> {
    let found = found.as_array().unwrap().iter();
    found.map(|one| one.as_str().unwrap().to_owned()).collect()
}

#[test]
fn keys_pause_and_filters_do_what_they_say() {
    let program = program();
    let Some(mut browser) = Browser::start(&program.home().join("browser")) else {
        return;
    };
    let endless = config().set("run.train_steps", 1_000_000).save(&program);
    let runs = program.runs();
    let folder = ["--folder", runs.to_str().unwrap(), "--dashboard=127.0.0.1:0"];
    let running = program.start_with(&[&["run", &endless][..], &folder].concat(), &[]);
    let pages = Pages::of(&running);
    let folder = program.run_folder();
    // The page opens a single run by itself.
    stopped_run(&program);
    wait_until("evaluations", PATIENCE, || batches(&folder, "a") > 6);
    let open = |path: &str| {
        format!(
            "http://{}/#token={}&/r/{}/{path}",
            pages.address,
            pages.token,
            id(&folder)
        )
    };
    browser.look(1280, "light");
    keys_choose_conversations(&mut browser, &open);
    keys_open_pages(&mut browser, &open);
    filters_of_the_list_are_those_of_the_api(&mut browser, &open, &pages, &id(&folder));
    a_pause_keeps_the_page(&mut browser, &open, || batches(&folder, "a"));
    filters_of_live_turns_hide_the_others(&mut browser);
}

fn keys_choose_conversations(browser: &mut Browser, open: &impl Fn(&str) -> String) {
    browser.open(&open("conversations?kind=train"));
    browser.wait_for("conversations shown");
    let rows = texts(browser.value(LISTED));
    for (keys, chosen) in [("j", 0), ("j j", 2), ("k", 1)] {
        press(browser, keys);
        assert_eq!(browser.value(CHOSEN), chosen, "after {keys}");
    }
    for (key, row) in [("Enter", 1), ("j", 2), ("k", 1)] {
        goes_to(browser, key, &rows[row]);
        browser.wait_for(&heading(&rows[row]));
    }
    let (place, _) = rows[1].rsplit_once('/').unwrap();
    goes_to(browser, "u", &place.replace("/c/", "/g/"));
    browser.wait_for("Tick two members");
    for (key, member) in [("n", 0), ("n", 1), ("n", 2), ("p", 1)] {
        let hash = format!("{place}/{member}");
        goes_to(browser, key, &hash);
        browser.wait_for(&heading(&hash));
    }
}

/// Returns the heading of the conversation with this hash.
fn heading(hash: &str) -> String {
    let (group, member) = hash.split_once("/c/").and_then(|(_, id)| id.split_once('/')).unwrap();
    format!("<code>{}/{member}</code>", &group[..12])
}

fn keys_open_pages(browser: &mut Browser, open: &impl Fn(&str) -> String) {
    browser.open(&open("conversations"));
    browser.wait_for("conversations shown");
    press(browser, "/");
    assert_eq!(browser.value("document.activeElement.ariaLabel"), "Search");
    press(browser, "j");
    assert_eq!(browser.value(CHOSEN), -1, "a field takes its keys");
    assert_eq!(browser.value("document.activeElement.value"), "j");
    press(browser, "Escape");
    let field = browser.value("[document.activeElement.tagName, document.querySelector('[aria-label=Search]').value]");
    assert_eq!(field, json!(["BODY", ""]), "Escape leaves a search and clears it");
    browser.open(&open("conversations"));
    browser.wait_for("conversations shown");
    press(browser, "j");
    assert_eq!(browser.value(CHOSEN), 0);
    press(browser, "?");
    let help = "document.getElementById('help')";
    assert_eq!(browser.value(&format!("{help}.open")), true);
    let keys = browser.value(&format!(
        "Object.fromEntries([...{help}.querySelectorAll('dt')].map((one) =>
           [one.textContent, one.nextSibling.textContent]))"
    ));
    press(browser, "j");
    assert_eq!(browser.value(CHOSEN), 0, "the list of keys takes all keys");
    press(browser, "Escape");
    assert_eq!(browser.value(&format!("{help}.open")), false);
    let names = "[...document.querySelectorAll('#nav a')].map((one) => [one.textContent, one.getAttribute('href')])";
    for link in browser.value(names).as_array().unwrap() {
        let (name, hash) = (link[0].as_str().unwrap().to_lowercase(), link[1].as_str().unwrap());
        let mut keys = keys.as_object().unwrap().iter();
        let (key, _) = keys.find(|(_, page)| **page == name).expect("a key for each page");
        goes_to(browser, &key.replace(" then", ""), hash);
    }
    goes_to(browser, "g r", "#/");
    browser.wait_for("tick two runs");
}

fn filters_of_the_list_are_those_of_the_api(
    browser: &mut Browser,
    open: &impl Fn(&str) -> String,
    pages: &Pages,
    run: &str,
) {
    // The oldest stay the same while the run goes on.
    browser.open(&open("conversations?sort=oldest"));
    browser.wait_for("conversations shown");
    for (label, value, query) in [
        ("Kind", "eval", "kind=eval"),
        ("Success", "0", "kind=eval&success=0"),
        ("Kind", "train", "kind=train&success=0"),
        ("Reward", "<0.5", "kind=train&success=0&reward=%3C0.5"),
        ("Role", "listener", "kind=train&success=0&reward=%3C0.5&role=listener"),
        ("Step", ">1000000", "step=%3E1000000"),
    ] {
        browser.value("document.querySelector('h1').dataset.old = true");
        set(browser, label, value);
        wait_until(&format!("{label} {value} in the URL"), PATIENCE, || {
            let is_new = "!document.querySelector('[data-old]') && decodeURIComponent(location.hash)";
            browser.value(is_new).as_str().is_some_and(|hash| hash.contains(value))
        });
        browser.wait_for(if value == ">1000000" {
            "No conversation matches"
        } else {
            "conversations shown"
        });
        let path = format!("/api/runs/{run}/conversations?sort=oldest&limit=50&{query}");
        let expected = pages.json(&path)["conversations"].clone();
        let name = |one: &Value| format!("/{}", one["conversation"].as_str().unwrap());
        let expected: Vec<String> = expected.as_array().unwrap().iter().map(name).collect();
        let shown = texts(browser.value(LISTED));
        assert!(
            shown.len() <= expected.len() && shown.is_empty() == expected.is_empty(),
            "{label} {value}"
        );
        let is_other = |(shown, expected): (&String, &String)| !shown.ends_with(expected);
        assert!(
            !shown.iter().zip(&expected).any(is_other),
            "{label} {value}: {shown:?} {expected:?}"
        );
    }
}

const LINES: &str = "document.querySelectorAll('main .line').length";

fn a_pause_keeps_the_page(browser: &mut Browser, open: &impl Fn(&str) -> String, batches: impl Fn() -> usize) {
    browser.open(&open("live"));
    wait_until("live turns", PATIENCE, || browser.value(LINES).as_u64() > Some(3));
    browser.press(" ");
    let feed = "document.querySelector('.feed').textContent";
    let kept = browser.value(feed);
    let before = batches();
    wait_until("more batches", PATIENCE, || batches() > before + 4);
    assert_eq!(browser.value(feed), kept, "the page stands still");
    let button = "document.querySelector('main button').textContent";
    assert_eq!(browser.value(button), "Paused");
    browser.press(" ");
    wait_until("turns after the pause", PATIENCE, || browser.value(feed) != kept);
    assert_eq!(browser.value(button), "Pause");
}

fn filters_of_live_turns_hide_the_others(browser: &mut Browser) {
    let speakers = "[...document.querySelectorAll('main .line .who')].map((one) => one.textContent.trim())";
    let evaluations =
        "[...document.querySelectorAll('main .talk .top')].map((one) => one.textContent.includes('evaluation'))";
    for (label, value, shown, expected) in [
        ("Role", "listener", speakers, json!("listener")),
        ("Role", "", speakers, Value::Null),
        ("Agent", "a", speakers, json!("speaker")),
        ("Kind", "eval", evaluations, json!(true)),
        ("Kind", "train", evaluations, json!(false)),
    ] {
        set(browser, label, value);
        let mut found = Vec::new();
        wait_until(&format!("live turns with {label} {value}"), PATIENCE, || {
            found = browser.value(shown).as_array().unwrap().clone();
            let is_mixed = found.iter().any(|one| *one != found[0]);
            found.len() > 8 && (!expected.is_null() || is_mixed)
        });
        assert!(
            expected.is_null() || found.iter().all(|one| *one == expected),
            "{label} {value}: {found:?}"
        );
    }
}
