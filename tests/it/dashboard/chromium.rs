//! A headless Chromium, driven over its debugging pipe.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};
use tests::program::wait_for;

const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    sent: u64,
}

/// Returns the path of an installed Chromium.
fn installed() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&folders)
        .find_map(|folder| names.iter().map(|name| folder.join(name)).find(|path| path.is_file()))
}

impl Browser {
    /// Starts a browser with its files in `folder`; `None` where none is installed.
    pub(super) fn start(folder: &Path) -> Option<Self> {
        let Some(program) = installed() else {
            eprintln!("no Chromium on this machine: the pages were not drawn");
            return None;
        };
        std::fs::create_dir_all(folder).unwrap();
        let [to, from] = ["to", "from"].map(|name| folder.join(name));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        // The browser reads commands from descriptor 3 and answers on 4.
        let child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<\"$0/to\" 4>\"$0/from\""])
            .arg(folder)
            .arg(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut browser = Self {
            child,
            to: File::options().write(true).open(to).unwrap(),
            from: BufReader::new(File::open(from).unwrap()),
            session: None,
            sent: 0,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        browser.call("Emulation.setFocusEmulationEnabled", json!({"enabled": true}));
        Some(browser)
    }

    /// Calls a method of the debugging protocol, which must succeed.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params)
            .unwrap_or_else(|answer| panic!("{method}: {answer}"))
    }

    /// Returns the result of a method, or the answer with its error.
    fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        write!(self.to, "{message}\0").unwrap();
        loop {
            let mut answer = Vec::new();
            self.from.read_until(0, &mut answer).unwrap();
            let answer = answer.strip_suffix(&[0]).expect("the browser has ended");
            let answer: Value = serde_json::from_slice(answer).unwrap();
            // Events have no id.
            if answer["id"] == self.sent {
                return match answer["error"].is_null() {
                    true => Ok(answer["result"].clone()),
                    false => Err(answer),
                };
            }
        }
    }

    /// Sets the width of the window and its colour scheme.
    pub(super) fn look(&mut self, width: u32, scheme: &str) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": scheme}));
    }

    /// Loads a page again, even if only the fragment of its URL differs.
    pub(super) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.call("Page.navigate", json!({"url": url}));
    }

    /// Returns the value of an expression in the page.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Moves the pointer to a place in the window, in pixels.
    pub(super) fn point_at(&mut self, x: f64, y: f64) {
        let moved = json!({"type": "mouseMoved", "x": x, "y": y});
        self.call("Input.dispatchMouseEvent", moved);
    }

    /// Presses and releases a key: Tab, Enter, Escape, or a character.
    pub(super) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Escape" => (27, ""),
            character => (0, character),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let pressed = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", pressed);
        }
    }

    /// Lets pages run scripts, or forbids them.
    pub(super) fn allow_scripts(&mut self, allow: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": !allow}));
    }

    /// Keeps a picture of the page, for people, in `target/tmp/pages`.
    pub(super) fn keep_picture(&mut self, name: &str) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
        std::fs::create_dir_all(&folder).unwrap();
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = BASE64.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }

    /// Waits until the page's HTML has the text. Returns the HTML.
    pub(super) fn wait_for(&mut self, text: &str) -> String {
        wait_for(&format!("{text:?} in the page"), PATIENCE, || {
            let asked = json!({"expression": "document.documentElement?.outerHTML ?? ''", "returnByValue": true});
            // A page that is being replaced answers with an error.
            let answer = self.try_call("Runtime.evaluate", asked).ok()?;
            let html = answer["result"]["value"].as_str().unwrap_or_default();
            html.contains(text).then(|| html.to_owned())
        })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
