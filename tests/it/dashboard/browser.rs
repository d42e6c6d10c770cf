//! Pages in Chromium, with hostile text.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tests::program::json_folder;

use super::{Pages, config, id, serve};
use crate::program;

/// Texts that would do harm as markup, code, control sequences or reordered text. Loaded, they ask
/// the canary.
fn hostile(canary: &TcpListener) -> Vec<String> {
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

/// Returns the browser, where one is installed.
fn chromium() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&folders)
        .find_map(|folder| names.iter().map(|name| folder.join(name)).find(|path| path.is_file()))
}

#[test]
fn pages_are_drawn_in_a_browser_and_hostile_text_stays_text() {
    let Some(chromium) = chromium() else {
        eprintln!("no Chromium on this machine: the pages were not drawn");
        return;
    };
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    let run = id(&folder);
    let group = "ab010000000000000000000000000000";
    let mut first = json_folder(&folder.join("transcripts")).remove(0);
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    let texts = hostile(&canary);
    assert_eq!(texts.len(), 200);
    let text = texts.join(" | ");
    for name in ["task", "status", "prompt", "label"] {
        first[name] = text.as_str().into();
    }
    first["conversation"] = format!("{group}/0").into();
    first["turns"][0]["text"] = text.as_str().into();
    first["turns"][0]["finish"] = text.as_str().into();
    first["step"] = 1_000_000.into();
    first["rewards"] = serde_json::json!({text.as_str(): {text.as_str(): 1.0, "total": 1.0}});
    std::fs::write(folder.join("transcripts/z.jsonl"), format!("{first}\n")).unwrap();
    let line = serde_json::json!({"time": text, "level": text, "message": text, text.as_str(): text});
    std::fs::write(folder.join("logs/z.jsonl"), format!("{line}\n")).unwrap();

    let running = serve(&program, &run, &["--write"]);
    let pages = Pages::of(&running);
    let profile = program.home().join("browser");
    let draw = |path: &str, width: u32, dark: bool| -> String {
        let mut command = Command::new(&chromium);
        command
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--virtual-time-budget=6000",
                "--dump-dom",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--window-size={width},900"))
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
            .arg(format!(
                "http://{}/#token={}&/r/{run}/{path}",
                pages.address, pages.token
            ));
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let conversation = format!("c/{group}/0");
    let groups = format!("g/{group}");
    for (path, expected) in [
        ("", "entropy, nats per token"),
        (conversation.as_str(), "&lt;script&gt;"),
        (groups.as_str(), "&lt;img src=http"),
        ("conversations", "&lt;img src=http"),
        ("charts/learning", "Reward in training"),
        ("evaluations", "95% interval"),
        ("logs/z", "\\u202e"),
        ("audit", "Nothing lost, nothing counted twice."),
        ("letters", "The queue cannot be read"),
        ("config", "train_steps"),
        ("live", "No live turns"),
        ("publish", "checked by this run's workflow signal"),
        ("orders", "Then the run ends."),
    ] {
        for (width, dark) in [(1280, false), (400, true)] {
            let page = draw(path, width, dark);
            let body = page.split("<body>").nth(1).unwrap_or_default();
            assert!(body.contains(expected), "{path} at {width} lacks {expected:?}:\n{body}");
            let theme = if dark { "dark" } else { "light" };
            assert!(page.contains(&format!("data-theme=\"{theme}\"")), "{path}: {theme}");
            assert!(!page.contains("<title>owned"), "{path}: a script ran");
            for made in ["<img", "<script>", "<iframe", "onload=\"", "\u{202e}", "\u{1b}"] {
                assert!(!body.contains(made), "{path}: foreign text became {made:?}");
            }
        }
    }
    canary.set_nonblocking(true).unwrap();
    assert!(canary.accept().is_err(), "a page asked another server");
}
