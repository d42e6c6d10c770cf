use serde_json::json;

use super::*;
use crate::run_folder::tests::config_in;

/// Adds a line.
fn add(figures: &mut Figures, process: &str, line: &Value) {
    figures.add(process, line.as_object().unwrap());
}

fn curve(figures: &Figures, key: (&str, &str, &str), most: usize) -> Thinned {
    figures.curve(key).unwrap().thin(most)
}

/// Returns the bytes of all cells and rows.
fn bytes(figures: &Figures) -> usize {
    let of = |table: &Table| {
        let cells: usize = table.columns.values().map(Vec::capacity).sum();
        cells * size_of::<Cell>() + table.rows.capacity() * size_of::<Row>()
    };
    figures.tables.values().map(of).sum()
}

#[test]
fn files_are_read_as_they_grow_and_a_repeated_step_counts_once() {
    let base = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
    let cache = Cache::default();
    let values = || {
        let read = |figures: &Figures| {
            let curve = figures.curve(("train", "a", "loss"))?.thin(9);
            Some(curve.x.into_iter().zip(curve.mean).collect::<Vec<_>>())
        };
        cache.with(&folder, read).unwrap().unwrap_or_default()
    };
    assert!(values().is_empty());
    let line =
        |step: u64, loss: f64| format!("{{\"kind\":\"train\",\"agent\":\"a\",\"step\":{step},\"loss\":{loss}}}\n");
    let mut text = line(1, 0.5) + &line(2, 0.25);
    std::fs::write(folder.metrics("a"), &text).unwrap();
    assert_eq!(values(), [(1, 0.5), (2, 0.25)]);
    text += &(line(2, 0.75) + &line(3, 0.125));
    std::fs::write(folder.metrics("a"), &text).unwrap();
    assert_eq!(values(), [(1, 0.5), (2, 0.75), (3, 0.125)]);
    std::fs::write(folder.metrics("a"), line(1, 0.5)).unwrap();
    assert_eq!(values(), [(1, 0.5)], "a file that became shorter");
}

#[test]
fn figures_of_a_long_run_stay_small_and_keep_every_spike() {
    const STEPS: u64 = 10_000;
    let mut figures = Figures::default();
    let named = (0..150).map(|number| format!("part/{number}"));
    let all = named.chain(["kind", "step", "agent"].map(str::to_owned));
    let mut line: Map<String, Value> = all.map(|name| (name, Value::Null)).collect();
    for step in 1..=STEPS {
        let value = if step == 77 { 900.0 } else { step as f64 };
        line.values_mut().for_each(|figure| *figure = value.into());
        line["kind"] = "train".into();
        line["step"] = step.into();
        for agent in ["a", "b"] {
            line["agent"] = agent.into();
            figures.add(agent, &line);
        }
    }
    assert!(bytes(&figures) <= 7 << 20, "{} bytes", bytes(&figures));
    let found = curve(&figures, ("train", "b", "part/7"), 2000);
    let (points, last) = (found.x.len(), *found.x.last().unwrap());
    assert!((100..2000).contains(&points), "{points}");
    assert_eq!((found.count, last), (STEPS, STEPS));
    assert!(found.x.is_sorted());
    let (min, max) = (found.min.unwrap(), found.max.unwrap());
    assert_eq!(max.iter().copied().fold(0.0, f64::max), STEPS as f64);
    assert_eq!(min.iter().copied().fold(9.0, f64::min), 1.0);
    assert!(max.iter().take(points / 10).any(|value| *value == 900.0), "{max:?}");
    let few = curve(&figures, ("train", "b", "part/7"), 1);
    let sum = (1..=STEPS).sum::<u64>() as f64 + 900.0 - 77.0;
    assert_eq!(few.mean, [sum / STEPS as f64]);
}

#[test]
fn lines_of_a_coordinator_are_points_of_their_own() {
    let mut figures = Figures::default();
    for second in 0..100_001_u64 {
        let line = json!({"kind": "coordinator", "step": second / 100, "groups": second, "time/elapsed_s": second});
        add(&mut figures, "coordinator", &line);
    }
    assert!(bytes(&figures) <= 7 << 20, "{} bytes", bytes(&figures));
    let found = curve(&figures, ("coordinator", "coordinator", "groups"), 2000);
    assert!(found.x.len() > 1000, "{}", found.x.len());
    assert_eq!((found.count, found.max.unwrap().last()), (100_001, Some(&100_000.0)));
    assert!(found.x.is_sorted() && found.t.is_sorted());
    assert_eq!(found.t.last().unwrap(), &Some(100_000.0));
}

#[test]
fn figure_that_few_lines_have_keeps_its_steps() {
    let mut figures = Figures::default();
    for step in [4, 2, 1, 3] {
        let mut line = json!({"kind": "eval", "step": step, "success": step});
        if step % 2 == 0 {
            line["rare"] = json!(step * 10);
        }
        add(&mut figures, "coordinator", &line);
    }
    let rare = |figures: &Figures| {
        let found = curve(figures, ("eval", "", "rare"), 9);
        (found.x, found.mean)
    };
    assert_eq!(rare(&figures), (vec![2, 4], vec![20.0, 40.0]));
    figures.tables.values_mut().for_each(Table::widen);
    assert_eq!(rare(&figures), (vec![3, 4], vec![20.0, 40.0]));
    let all = curve(&figures, ("eval", "", "success"), 9);
    assert_eq!((all.x, all.mean), (vec![1, 3, 4], vec![1.0, 2.5, 4.0]));
}

#[test]
fn points_before_a_step_are_left_out() {
    let mut figures = Figures::default();
    for step in 0..5 {
        let mut line = json!({"kind": "train", "agent": "a", "step": step, "x": step});
        if step < 2 {
            line["early"] = json!(step);
        }
        add(&mut figures, "a", &line);
    }
    let since = |name: &str, step| {
        let curve = figures.curve(("train", "a", name)).unwrap();
        curve.since(step).thin(9).x
    };
    assert_eq!(since("x", 0), [0, 1, 2, 3, 4]);
    assert_eq!(since("x", 3), [3, 4]);
    assert_eq!(since("early", 1), [1]);
    assert!(since("x", 5).is_empty() && since("early", 4).is_empty());
}

#[test]
fn merged_points_keep_their_spikes() {
    let mut figures = Figures::default();
    for step in 0..5 {
        let value = if step == 3 { 9.0 } else { 1.0 };
        add(
            &mut figures,
            "a",
            &json!({"kind": "train", "agent": "a", "step": step, "x": value}),
        );
    }
    let whole = curve(&figures, ("train", "a", "x"), 5);
    assert_eq!((whole.min, whole.mean.len()), (None, 5));
    let thinned = curve(&figures, ("train", "a", "x"), 3);
    assert_eq!(thinned.x, [1, 3, 4]);
    assert_eq!(thinned.mean, [1.0, 5.0, 1.0]);
    assert_eq!(thinned.max, Some(vec![1.0, 9.0, 1.0]));
    assert_eq!(thinned.count, 5);
}
