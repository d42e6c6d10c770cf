//! Details of pages: versions of a turn, tokens that were not trained, keys of the configuration,
//! the command that plays a conversation again.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tests::program::{Program, json_folder};

use super::Pages;
use super::chromium::Browser;

/// Asks the modules of the page for the tokens of a sample that was dropped for each reason.
const DROPPED: &str = "Promise.all([import('/tokens.js'), import('/talks.js')]).then(([tokens, talks]) =>
  ['zero_advantage', 'truncated', 'role_weight', 'no_target', 'target_unfit', 'stale'].map((reason) => {
    const verdicts = [{ member: 2, role: 'speaker', seat: 0, step: 3, reason }];
    const verdict = talks.verdictOf({ agents: { a: { row: {}, verdicts } } }, 'a', 2, 'speaker');
    const turn = { role: 'speaker', seat: 0, turn: 0, tokens: 1 };
    const record = { ...turn, ids: [7], pieces: ['x'], logprobs: [-1], spans: [], training: [] };
    const token = tokens.tokensOf([record], turn, verdict).querySelector('.body .tok');
    return [token.dataset.outcome, token.className, token.title.split('\\n').at(-1)];
  }))";

/// Checks pages of a finished run with a planted conversation, member 0 of `group`.
pub(super) fn details_are_shown(browser: &mut Browser, program: &Program, pages: &Pages, (run, group): (&str, &str)) {
    let open = |path: &str| format!("http://{}/#token={}&/r/{run}/{path}", pages.address, pages.token);
    browser.open(&open(&format!("c/{group}/0")));
    browser.wait_for("tok p3 clipped");
    versions_have_a_chip_each(browser);
    tokens_say_why_they_did_not_train(browser);
    let planted = pages.json(&format!("/api/runs/{run}/conversations/{group}/0"));
    let (args, _) = arguments(&copied(browser));
    says_each_answer(&args, &planted["transcript"]);
    let folder = program.runs().join(run);
    let ended = json_folder(&folder.join("transcripts"));
    let real = ended.iter().find(|one| one["eval"] != true).unwrap();
    browser.open(&open(&format!("c/{}", real["conversation"].as_str().unwrap())));
    browser.wait_for("Copy test");
    let (mut args, task) = arguments(&copied(browser));
    says_each_answer(&args, real);
    args[2] = folder.join("config.toml").to_str().unwrap().to_owned();
    args[4] = program.file("replayed.jsonl", &task);
    args.push("--json".into());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let printed = program.output(&args).stdout;
    let again: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!((&again["rewards"], &again["task"]), (&real["rewards"], &real["task"]));
    browser.open(&open("config"));
    browser.wait_for("# default: \"first\"");
    keys_are_explained(browser);
}

fn versions_have_a_chip_each(browser: &mut Browser) {
    let chips = "[...document.querySelector('article.turn').querySelectorAll('.top > .chip > code')]";
    let shown = browser.value(&format!("{chips}.map((one) => one.textContent)"));
    let shown = shown.as_array().unwrap();
    assert_eq!((shown.len(), &shown[0]), (2, &json!("1.6")), "{shown:?}");
    assert!(shown[1].as_str().unwrap().contains("<img src=http"), "{shown:?}");
}

fn tokens_say_why_they_did_not_train(browser: &mut Browser) {
    let titles = "[...document.querySelectorAll('.tokens .body .tok')].map((one) =>
      [one.dataset.outcome, one.title.split('\\n').filter((line) => line.startsWith('step'))[0]])";
    let name = |text: &str| format!("step 3, update 1: {text}");
    assert_eq!(
        browser.value(titles),
        json!([
            ["clipped", name("clipped: its ratio is out of bounds")],
            ["stale", name("not trained: too old")],
            ["unknown", name("trained, or clipped by its micro-batch")],
            ["trained", name("trained")],
        ])
    );
    let whole = |text: &str| json!(["dropped", "tok p1 dropped", format!("step 3: not trained: {text}")]);
    let reasons = [
        "its advantage is 0",
        "its answer was cut off",
        "the weight of its role is 0",
        "it has no known answer",
        "its known answer does not fit",
        "too old",
    ];
    assert_eq!(browser.value(DROPPED), json!(reasons.map(whole)));
}

fn keys_are_explained(browser: &mut Browser) {
    let marked = "[...document.querySelectorAll('.toml .changed')].map((one) =>
      [one.previousSibling.textContent.trim(), one.nextSibling.textContent.trim()])";
    let marked = browser.value(marked);
    let marked = marked.as_array().unwrap();
    assert!(
        marked.contains(&json!(["transcripts =", "# default: \"first\""])),
        "{marked:?}"
    );
    assert!(marked.iter().all(|one| one[0] != "empty_groups ="), "{marked:?}");
    let title = "[...document.querySelectorAll('.toml .name')].find((one) =>
      one.textContent.startsWith('empty_groups')).title";
    let title = browser.value(title);
    assert!(title.as_str().unwrap().starts_with("Groups of own tasks"), "{title}");
}

/// Returns the text that the button `Copy test` copies.
fn copied(browser: &mut Browser) -> String {
    let text = browser.value(
        "(() => { let text; navigator.clipboard.writeText = (copied) => { text = copied; return Promise.resolve(); };
         [...document.querySelectorAll('button')].find((one) => one.textContent === 'Copy test').click();
         return text; })()",
    );
    text.as_str().unwrap().to_owned()
}

/// Returns the arguments that bash gives to `dyad`, and its standard input.
fn arguments(command: &str) -> (Vec<String>, String) {
    let is_hidden = |c: char| c.is_control() || c == '\u{202e}';
    assert!(!command.contains(is_hidden), "{command:?}");
    let mut bash = Command::new("bash")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let script = format!("dyad() {{ printf '%s\\0' \"$@\"; cat; }}\n{command}\n");
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut parts: Vec<String> = text.split('\0').map(str::to_owned).collect();
    let task = parts.pop().unwrap();
    (parts, task)
}

/// Asserts that the arguments give every turn its text.
fn says_each_answer(args: &[String], transcript: &Value) {
    let says: Vec<&String> = args.iter().skip_while(|arg| *arg != "--say").collect();
    let turns = transcript["turns"].as_array().unwrap();
    let text = |key: &str, turn: &Value| turn[key].as_str().unwrap().to_owned();
    let said = |turn: &Value| {
        let answer = format!("{}@{}={}", text("role", turn), turn["turn"], text("text", turn));
        ["--say".to_owned(), answer]
    };
    let expected: Vec<String> = turns.iter().flat_map(said).collect();
    assert_eq!(says.into_iter().cloned().collect::<Vec<_>>(), expected);
    assert_eq!(args[..4], ["workflow", "test", args[2].as_str(), "--task"]);
}
