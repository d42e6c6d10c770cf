//! Characters that hide or reorder text, in pages.

use agents::run_folder::logs::printable;
use serde_json::json;

use super::chromium::Browser;
use super::{Pages, serve, stopped_run};
use crate::program;

/// Characters that only hide. A terminal shows them as they are.
const HIDDEN: &str = "\u{ad}\u{61c}\u{180e}\u{200b}\u{200d}\u{2028}\u{2060}\u{feff}\u{fff9}\u{e0001}\u{e007f}";
/// Characters that pages show as they are.
const PLAIN: &str = "a\u{e9}\u{540d}\u{1f600}\t\n";

/// A page escapes every character that the commands escape, in text and in titles.
#[test]
fn characters_that_deceive_are_escapes_in_pages() {
    let program = program();
    let Some(mut browser) = Browser::start(&program.home().join("browser")) else {
        return;
    };
    let run = stopped_run(&program);
    let running = serve(&program, &run, &[]);
    let pages = Pages::of(&running);
    let deceives = |c: &char| *c != '\t' && printable(&c.to_string()) != c.to_string();
    let deceiving: Vec<char> = ('\0'..='\u{ffff}').filter(deceives).chain(HIDDEN.chars()).collect();
    assert!(deceiving.len() > 80, "{deceiving:?}");
    browser.open(&format!("http://{}/", pages.address));
    browser.wait_for("<main");
    let mut shown = |texts: &[char]| {
        let texts: Vec<String> = texts.iter().map(char::to_string).collect();
        let script = format!(
            "import('/dom.js').then(({{ h }}) => {}.map((one) => {{
               const made = h('p', {{ title: one }}, one); return [made.textContent, made.title]; }}))",
            json!(texts)
        );
        browser.value(&script)
    };
    let escapes: Vec<[String; 2]> = deceiving
        .iter()
        .map(|c| {
            let escape = format!("\\u{:04x}", u32::from(*c));
            [escape.clone(), escape]
        })
        .collect();
    assert_eq!(shown(&deceiving), json!(escapes));
    let plain: Vec<char> = PLAIN.chars().collect();
    let unchanged: Vec<[String; 2]> = plain.iter().map(|c| [c.to_string(), c.to_string()]).collect();
    assert_eq!(shown(&plain), json!(unchanged));
}
