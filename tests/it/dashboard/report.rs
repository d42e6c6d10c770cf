//! The charts of `report.html` in Chromium.

use std::path::Path;

use tests::program::wait_until;

use super::PATIENCE;
use super::chromium::Browser;

/// Scrolls to the first chart of the report. Returns its place, and the text for the values at its
/// left and its right end: of the first line that has a point there.
const CHART: &str = "(() => {
  const svg = document.querySelector('figure svg[data-lines]'), lines = JSON.parse(svg.dataset.lines);
  svg.scrollIntoView({ block: 'center' });
  const box = svg.getBoundingClientRect(), places = lines.flatMap(([, points]) => points.map(([x]) => x));
  const text = (x) => {
    const [name, points] = lines.find(([, points]) => points.some((point) => point[0] === x));
    const value = points.find((point) => point[0] === x)[1];
    return [`${svg.dataset.x} ${+x.toPrecision(4)}: `, `${name} ${+value.toPrecision(4)}`];
  };
  const ends = [text(Math.min(...places)), text(Math.max(...places))];
  return { left: box.left, right: box.right, middle: box.top + box.height / 2, ends };
})()";

const SHOWN: &str = "document.querySelector('figure output').textContent";

/// Asserts that a chart of the report shows its values while the pointer is over it.
pub(super) fn shows_the_values_at_the_pointer(browser: &mut Browser, report: &Path) {
    browser.look(1280, "light");
    browser.open(&format!("file://{}", report.display()));
    browser.wait_for("</output>");
    wait_until("the whole report", PATIENCE, || {
        browser.value("document.readyState") == "complete"
    });
    let chart = browser.value(CHART);
    let [left, right, middle] = ["left", "right", "middle"].map(|side| chart[side].as_f64().unwrap());
    assert_ne!(chart["ends"][0], chart["ends"][1], "{chart}");
    for (across, end) in [(left + 2.0, &chart["ends"][0]), (right - 2.0, &chart["ends"][1])] {
        browser.point_at(across, middle);
        let [place, value] = [0_usize, 1].map(|part| end[part].as_str().unwrap());
        wait_until(&format!("{place}{value} below the chart"), PATIENCE, || {
            let shown = browser.value(SHOWN);
            let shown = shown.as_str().unwrap();
            shown.starts_with(place) && shown.contains(value)
        });
    }
    // The margin of the page.
    browser.point_at(1.0, 1.0);
    wait_until("no values below the chart", PATIENCE, || browser.value(SHOWN) == "");
}
