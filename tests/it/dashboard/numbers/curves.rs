//! Values of charts, as their legends show them below the cursor.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tests::program::metrics;

use super::Drawn;
use super::rounding::figure;

/// Charts of training, each with the name of its figure.
const TRAINING: [(&str, &str); 7] = [
    ("Reward in training", "reward/mean"),
    ("Groups without a difference in reward", "advantage/zero_share"),
    ("Size of advantages", "advantage/abs"),
    ("Loss", "loss"),
    ("Entropy", "loss/entropy"),
    ("KL to the reference", "loss/reference_kl"),
    ("Spread of rewards", "reward/std"),
];

/// Charts of evaluations. Their legends name figures.
const EVALUATIONS: [&str; 2] = ["Evaluated success", "Evaluated reward"];

/// Moves the cursor over each chart, and returns each state of its legend: labels with values.
pub(super) const LEGENDS: &str = "[...document.querySelectorAll('.chart')].map((chart) => {
  const over = chart.querySelector('.u-over');
  const { left, top, width, height } = over.getBoundingClientRect();
  const points = [];
  for (let at = 0; at <= width; at += 2) {
    over.dispatchEvent(new MouseEvent('mousemove', { clientX: left + at, clientY: top + height / 2 }));
    const shown = [...chart.querySelectorAll('.u-series')].map((row) =>
      ['.u-label', '.u-value'].map((part) => row.querySelector(part).textContent));
    if (JSON.stringify(shown) !== JSON.stringify(points.at(-1))) points.push(shown);
  }
  return { title: chart.querySelector('h3').textContent, points };
})";

pub(super) fn curves(drawn: &mut Drawn<'_>) {
    let train = metrics(&drawn.folder, "train");
    let eval = metrics(&drawn.folder, "eval");
    for (page, charts) in [("charts/learning", TRAINING.len() + EVALUATIONS.len()), ("", 2)] {
        drawn.open(page, "u-over");
        let found = drawn.browser.value(LEGENDS);
        let found = found.as_array().unwrap();
        assert_eq!(found.len(), charts, "charts of {page:?}");
        for chart in found {
            let title = chart["title"].as_str().unwrap();
            let of_training = TRAINING.iter().find(|(known, _)| *known == title);
            let expected = match of_training {
                Some((_, key)) => points(&train, |line| vec![(text(&line["agent"]), line[*key].clone())]),
                None => {
                    assert!(EVALUATIONS.contains(&title), "{title} is compared with nothing");
                    let is_reward = title == "Evaluated reward";
                    points(&eval, |line| figures(line, is_reward))
                }
            };
            let shown: BTreeSet<String> = chart["points"].as_array().unwrap().iter().map(text).collect();
            assert_eq!(shown, expected, "{title}: each point as [label, value]");
        }
    }
}

/// Compares smoothed curves with moving averages of their figures.
pub(super) fn smoothed(drawn: &mut Drawn<'_>) {
    drawn.open("charts/learning", "u-over");
    let set = |value: u64| {
        format!(
            "(() => {{ const slider = document.querySelector('[aria-label=Smoothing]');
               slider.value = {value}; slider.dispatchEvent(new Event('input')); }})()"
        )
    };
    drawn.browser.value(&set(80));
    let train = metrics(&drawn.folder, "train");
    let found = drawn.browser.value(LEGENDS);
    for (title, key) in TRAINING {
        let mut means: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let expected = points(&train, |line| {
            let (mean, total) = means.entry(text(&line["agent"])).or_default();
            *mean = *mean * 0.8 + line[key].as_f64().unwrap() * (1.0 - 0.8);
            *total = *total * 0.8 + (1.0 - 0.8);
            vec![(text(&line["agent"]), json!(*mean / *total))]
        });
        let chart = found.as_array().unwrap().iter().find(|chart| chart["title"] == title);
        let shown = chart.unwrap()["points"].as_array().unwrap();
        let shown: BTreeSet<String> = shown.iter().map(text).collect();
        assert_eq!(shown, expected, "{title}, smoothed");
    }
    drawn.browser.value(&set(0));
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns success, or the rewards, of an evaluation.
fn figures(line: &Value, is_reward: bool) -> Vec<(String, Value)> {
    let line = line.as_object().unwrap().iter();
    let is_wanted = |name: &str| name.starts_with("reward/") == is_reward && (is_reward || name == "success");
    line.filter(|(name, _)| is_wanted(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the legend at each step, of the labels and values that the lines have there.
fn points(lines: &[Value], mut values: impl FnMut(&Value) -> Vec<(String, Value)>) -> BTreeSet<String> {
    let mut steps: BTreeMap<u64, BTreeMap<String, String>> = BTreeMap::new();
    for line in lines {
        for (label, value) in values(line) {
            let value = figure(value.as_f64().unwrap_or_else(|| panic!("{label}: {line}")));
            let step = line["step"].as_u64().unwrap();
            steps.entry(step).or_default().insert(label, value);
        }
    }
    assert!(steps.len() > 3, "{steps:?}");
    let legend = |(step, values): (u64, BTreeMap<String, String>)| {
        let step = ("step".to_owned(), step.to_string());
        let rows: Vec<Value> = std::iter::once(step)
            .chain(values)
            .map(|(label, value)| json!([label, value]))
            .collect();
        json!(rows).to_string()
    };
    steps.into_iter().map(legend).collect()
}
