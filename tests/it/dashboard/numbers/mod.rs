//! Numbers as a browser draws them: each equals that of its command, rounded as the commands round.

mod curves;
mod evaluations;
mod group;
pub(super) mod letters;
mod live;
mod overview;
mod rounding;
mod runs;
mod tabs;
mod talks;
mod task;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::program::Program;
use tests::small::Small;

use super::chromium::Browser;
use super::{Pages, config, id, printed, serve};
use crate::program;

/// The last step of a run.
const STEPS: u64 = 12;

/// A function that reads an element: its text, and its own title or the first one in it.
const READ: &str = "const read = (one) => ({ text: one.textContent,
  title: one.title || one.querySelector('[title]')?.title || '' });";

/// A finished run, and the browser that draws its pages.
struct Drawn<'a> {
    program: &'a Program,
    run: String,
    folder: PathBuf,
    /// The URL of the pages, with the token.
    url: String,
    browser: Browser,
}

impl Drawn<'_> {
    /// Opens a page of the run, and waits until it has the text.
    fn open(&mut self, path: &str, text: &str) {
        let path = format!("r/{}/{path}", self.run);
        self.open_page(&path, text);
    }

    /// Opens any page, and waits until it has the text.
    fn open_page(&mut self, path: &str, text: &str) {
        self.browser.open(&format!("{}&/{path}", self.url));
        self.browser.wait_for(text);
    }

    /// Returns the rows of the table with this name.
    fn table(&mut self, name: &str) -> Vec<Vec<Value>> {
        self.rows(&format!("table[aria-label=\"{name}\"] tbody tr"))
    }

    /// Returns the children of each element that the selector finds, each with text and title.
    fn rows(&mut self, selector: &str) -> Vec<Vec<Value>> {
        let found = self.browser.value(&format!(
            "(() => {{ {READ} return [...document.querySelectorAll('{selector}')].map((row) =>
               [...row.children].map(read)); }})()"
        ));
        let rows = found.as_array().unwrap().iter();
        rows.map(|row| row.as_array().unwrap().clone()).collect()
    }

    /// Returns what a command prints of the run with `--json`.
    fn command(&self, args: &[&str]) -> Vec<Value> {
        printed(self.program, &[args, &["--run", self.run.as_str()]].concat())
    }
}

/// Makes a run with rewards of several values, and evaluations that differ.
fn varied(seed: i64) -> Small {
    let words = vec!["o0", "o1", "o2", "o3", "s0", "s1", "s2", "s3"];
    config()
        .set("run.seed", seed)
        .set("run.train_steps", i64::try_from(STEPS).unwrap())
        .set("tasks.params.objects", 4)
        .set("eval.params.objects", 4)
        .set("eval.every", 4)
        .set("workflow.params.symbols", 4)
        .set("workflow.params.lambda", 0.15)
        .set("defaults.agent.train.optimizer.lr", 0.01)
        .set("defaults.agent.model.random.tokenizer.words", words)
}

/// Plays two runs with other seeds, costs of a message and kinds of advantages. Returns the folder
/// of each.
fn two_runs(program: &Program) -> [PathBuf; 2] {
    let first = program.play("run", &varied(4).save(program), &[]);
    let (other, runs) = (varied(1).set("workflow.params.lambda", 0.4), program.runs());
    let other = other.set("defaults.agent.train.advantage", "grpo");
    program.succeed(&["run", &other.save(program), "--folder", runs.to_str().unwrap()]);
    let mut folders = std::fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().path());
    let second = folders.find(|path| *path != first && path.join("run.json").is_file());
    let second = second.expect("a second run");
    [first, second]
}

/// Compares the functions of the pages with the rules, also in the middle of two values.
fn rules(drawn: &mut Drawn<'_>) {
    let values = [
        0.0625,
        -0.0625,
        0.1875,
        12_344.5,
        12_345.5,
        -0.0,
        3.0,
        -0.000_12,
        99_999.0,
        1_234_567.0,
    ];
    let script = format!(
        "import('/numbers.js').then(({{ real, figure, signed }}) =>
           {}.map((one) => [real(one), figure(one), signed(one)]))",
        json!(values)
    );
    let expected = values.map(|value| [rounding::real(value), rounding::figure(value), rounding::signed(value)]);
    assert_eq!(drawn.browser.value(&script), json!(expected));
}

/// Compares the overview of a live run with `dyad status --json`, once `groups` groups were played.
pub(super) fn live_overview(program: &Program, run: &Path, pages: &Pages, browser: Browser, groups: u64) {
    let mut drawn = Drawn {
        program,
        run: id(run),
        folder: run.to_owned(),
        url: format!("http://{}/#token={}", pages.address, pages.token),
        browser,
    };
    live::overview(&mut drawn, groups);
}

#[test]
fn numbers_in_pages_equal_those_of_the_commands() {
    let program = program();
    let Some(browser) = Browser::start(&program.home().join("browser")) else {
        return;
    };
    let [first, second] = two_runs(&program);
    let running = serve(&program, "", &[]);
    let pages = Pages::of(&running);
    let mut drawn = Drawn {
        program: &program,
        run: id(&first),
        folder: first,
        url: format!("http://{}/#token={}", pages.address, pages.token),
        browser,
    };
    drawn.browser.look(1280, "light");
    overview::overview(&mut drawn);
    rules(&mut drawn);
    overview::audit(&mut drawn);
    curves::curves(&mut drawn);
    curves::smoothed(&mut drawn);
    tabs::tabs(&mut drawn);
    evaluations::evaluations(&mut drawn);
    let stored = talks::list(&mut drawn);
    let best = best(&stored);
    let evaluated = stored.iter().find(|one| one["eval"] == true).unwrap();
    for one in [best, evaluated] {
        talks::conversation(&mut drawn, one["conversation"].as_str().unwrap());
    }
    talks::tokens(&mut drawn, evaluated);
    group::group(&mut drawn, best, "loo");
    task::task(&mut drawn, best);
    runs::table(&mut drawn, &second);
    runs::comparison(&mut drawn, &id(&second));
    (drawn.run, drawn.folder) = (id(&second), second);
    let stored = drawn.command(&["conversations", "--last", "100000"]);
    group::group(&mut drawn, self::best(&stored), "grpo");
}

/// Returns the trained conversation in which the speaker earned most.
fn best(stored: &[Value]) -> &Value {
    let reward = |one: &&Value| one["rewards"]["speaker"]["total"].as_f64().unwrap();
    let trained = stored.iter().filter(|one| one["eval"] != true);
    let best = trained.max_by(|a, b| reward(a).total_cmp(&reward(b))).unwrap();
    assert!(reward(&best) > 0.0, "no trained conversation has a positive reward");
    best
}
