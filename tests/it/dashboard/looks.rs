//! Rules for every page as a browser draws it: it fits the window, its text has contrast, and keys
//! reach everything in it.

use serde_json::{Value, json};
use tests::program::wait_until;

use super::PATIENCE;
use super::chromium::Browser;

/// Returns the texts with a contrast below 4.5 against their ground, each with its contrast. WCAG
/// exempts controls that are disabled.
const FAINT: &str = "(() => {
  const parsed = (text) => text.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], under) => [r, g, b].map((value, at) => a * value + (1 - a) * under[at]);
  const ground = (one) => {
    if (!one) return [255, 255, 255];
    const own = parsed(getComputedStyle(one).backgroundColor);
    return (own[3] ?? 1) === 1 ? own : over(own, ground(one.parentElement));
  };
  const light = (colour) => colour.map((value) => value / 255).map((value) =>
    (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, at) => sum + [0.2126, 0.7152, 0.0722][at] * value, 0);
  const contrast = (colour, one) => {
    const own = ground(one);
    const [low, high] = [light(over(parsed(colour), own)), light(own.slice(0, 3))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  const check = (one, colour, text) => {
    const value = contrast(colour, one);
    if (value < 4.5) found.push([text.slice(0, 40), one.className, value]);
  };
  for (const one of document.querySelectorAll('body *')) {
    if (!one.checkVisibility() || one.closest(':disabled, noscript') || one.tagName === 'OPTION') continue;
    const style = getComputedStyle(one);
    const text = [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join('').trim();
    if (text) check(one, one.tagName === 'text' ? style.fill : style.color, text);
    if (one.placeholder) check(one, getComputedStyle(one, '::placeholder').color, one.placeholder);
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(one.tagName)) check(one, style.color, one.tagName);
  }
  return found;
})()";

/// Watches the focus: elements that had it, and those that did not show it. Returns how many
/// elements a key must reach.
const WATCH: &str = "(() => {
  window.named = (one) => [one.tagName, one.getAttribute('href'), one.getAttribute('aria-label'),
    one.textContent.slice(0, 99)].join(' ');
  window.usable = () => [...document.querySelectorAll('a[href], button, input, select, textarea, summary')]
    .filter((one) => one.checkVisibility() && !one.disabled);
  window.reached = new Set();
  window.unseen = [];
  addEventListener('focusin', ({ target }) => {
    reached.add(named(target));
    const { outlineStyle, outlineWidth } = getComputedStyle(target);
    if (outlineStyle === 'none' || parseFloat(outlineWidth) < 2) unseen.push(named(target));
  });
  return usable().length;
})()";

/// The most keys until the focus is back at the first element.
const MOST: u64 = 400;

/// Asserts that a page fits the window, and that its text has contrast.
pub(super) fn is_readable(browser: &mut Browser, path: &str, width: u32) {
    let wide = browser.value("document.documentElement.scrollWidth").as_u64();
    assert!(wide <= Some(u64::from(width)), "{path}: {wide:?} pixels at {width}");
    // The links of a narrow window are one line above the page.
    let links = browser.value("document.getElementById('nav').offsetHeight").as_u64();
    assert!(width > 860 || links < Some(60), "{path}: links of {links:?} pixels");
    assert_eq!(
        browser.value(FAINT),
        json!([]),
        "{path} at {width}: text, class, contrast"
    );
}

/// Asserts that the Tab key reaches everything on a page, and that the focus is visible.
pub(super) fn keys_reach_everything(browser: &mut Browser, path: &str) {
    let usable = browser.value(WATCH).as_u64().unwrap();
    assert!(usable > 3 && usable < MOST, "{path}: {usable} elements");
    // Boxes that scroll have the focus too.
    for _ in 0..usable + 20 {
        browser.press("Tab");
    }
    let missed = browser.value("usable().map(named).filter((one) => !reached.has(one))");
    assert_eq!(missed, json!([]), "{path}: no key reaches them");
    assert_eq!(browser.value("unseen"), json!([]), "{path}: the focus is not visible");
}

/// Presses Tab until the focus is on a link with this hash, then Enter. Waits for that page.
pub(super) fn open_by_keys(browser: &mut Browser, hash: &str) {
    let focused = "document.activeElement?.getAttribute('href') ?? ''";
    let keys = (0..MOST).find(|_| {
        browser.press("Tab");
        browser.value(focused) == hash
    });
    assert!(keys.is_some(), "no key reaches {hash}");
    browser.press("Enter");
    wait_until(hash, PATIENCE, || browser.value("location.hash") == hash);
}

/// Asserts that the focus stays on an element while the page draws it again.
pub(super) fn focus_outlives_redrawing(browser: &mut Browser, selector: &str) {
    let find = format!("document.querySelector({})", json!(selector));
    browser.value(&format!("window.before = {find}; before.focus()"));
    wait_until("the page to be drawn again", PATIENCE, || {
        browser.value("!before.isConnected") == true
    });
    let focused = browser.value(&format!("document.activeElement === {find}"));
    assert_eq!(focused, Value::Bool(true), "{selector}");
}
