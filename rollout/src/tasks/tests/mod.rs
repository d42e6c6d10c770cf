//! Sources of tasks, from the outside.

mod choosing;
mod held_out;
mod lines;
mod mixing;

use std::collections::BTreeSet;
use std::io::Write as _;

use super::*;

fn config(text: &str) -> TasksConfig {
    toml::from_str(text).unwrap()
}

fn open(text: &str, seed: u64) -> TaskSource {
    TaskSource::open(&config(text), seed).unwrap().unwrap()
}

fn take(source: &mut TaskSource, n: usize) -> Vec<(Cursor, Task)> {
    (0..n).map_while(|_| source.next().unwrap()).collect()
}

fn ids(tasks: &[(Cursor, Task)]) -> Vec<&str> {
    tasks.iter().map(|(_, task)| task.id.as_deref().unwrap()).collect()
}

fn file(lines: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.jsonl");
    std::fs::File::create(&path)
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let source = format!("source = \"jsonl:{}\"\n", path.display());
    (folder, source)
}

#[test]
fn every_pass_of_signal_shows_each_object_once() {
    let mut source = open("source = \"generator:signal\"", 1);
    let tasks = take(&mut source, 48);
    assert_eq!(ids(&tasks)[..2], ["signal/0/0", "signal/0/1"]);
    assert_eq!(tasks[47].1.id.as_deref(), Some("signal/2/15"));
    let words = |pass: usize| {
        tasks[16 * pass..][..16]
            .iter()
            .map(|(_, t)| t.label.clone())
            .collect::<Vec<_>>()
    };
    for pass in 0..3 {
        assert_eq!(
            words(pass)
                .iter()
                .map(ToString::to_string)
                .collect::<BTreeSet<_>>()
                .len(),
            16
        );
    }
    assert_ne!(words(0), words(1));
    assert_eq!(tasks, take(&mut open("source = \"generator:signal\"", 1), 48));
    assert_ne!(tasks, take(&mut open("source = \"generator:signal\"", 2), 48));
    assert_eq!(
        tasks,
        take(&mut open("source = \"generator:signal\"\nparams = { seed = 1 }", 2), 48)
    );
}

#[test]
fn a_source_goes_on_at_any_cursor() {
    let text = "source = \"generator:signal\"\nparams = { objects = 5 }\nepochs = 3";
    let all = take(&mut open(text, 3), 100);
    assert_eq!(all.len(), 15);
    for (i, (cursor, _)) in all.iter().enumerate() {
        let mut source = open(text, 3);
        source.seek(*cursor);
        assert_eq!(source.order(*cursor), i as u64);
        assert_eq!(take(&mut source, 100), all[i..]);
    }
    let mut source = open(text, 3);
    take(&mut source, 5);
    let stored = source.cursor();
    let mut resumed = open(text, 3);
    resumed.seek(stored);
    assert_eq!(take(&mut resumed, 100), all[5..]);
}

#[test]
fn a_task_that_the_workflow_cannot_play_is_found_before_the_run() {
    let (_folder, source) = file("{\"prompt\": \"p\", \"label\": 1}\n\n{\"prompt\": \"p\", \"label\": 2}\n");
    let mut source = TaskSource::open(&config(&source), 0).unwrap().unwrap();
    let judge = |task: &Task| {
        if task.label == 1 {
            Ok(())
        } else {
            Err("the label is no 1".to_owned())
        }
    };
    let error = source.check(judge).unwrap_err().to_string();
    assert!(
        error.ends_with("tasks.jsonl, line 3: task 2 of tasks: the label is no 1"),
        "{error}"
    );
    let error = source.check(|_| Err("no".to_owned())).unwrap_err().to_string();
    assert!(
        error.contains("task 1 of tasks: no (the first of 2 of 2 tasks, 100.0 %"),
        "{error}"
    );
    source.check(|_| Ok(())).unwrap();
    assert_eq!(source.cursor(), Cursor::default(), "nothing was drawn");
}

#[test]
fn tasks_of_a_generator_are_checked_from_first_to_last() {
    for (objects, checked) in [(1, 1), (16, 16), (4096, 4096), (100_000, 4096)] {
        let text = format!("source = \"generator:signal\"\nparams = {{ objects = {objects} }}");
        let seen = std::cell::RefCell::new(BTreeSet::new());
        let note = |task: &Task| {
            seen.borrow_mut().insert(task.prompt.text().to_owned());
            Ok(())
        };
        open(&text, 0).check(note).unwrap();
        let seen = seen.into_inner();
        assert_eq!(seen.len(), checked, "{objects}");
        assert!(
            seen.contains("o0") && seen.contains(&format!("o{}", objects - 1)),
            "{objects}"
        );
    }
    let judge = |task: &Task| match task.prompt.text() {
        "o15" => Err("no such object".to_owned()),
        _ => Ok(()),
    };
    let error = open("source = \"generator:signal\"", 0).check(judge).unwrap_err();
    assert_eq!(error.to_string(), "task 16 of signal: no such object");
}

/// Rows that a filter leaves out count in the place, and each file counts its own.
#[test]
fn unplayable_task_of_several_files_is_found_by_file_and_row() {
    let folder = tempfile::tempdir().unwrap();
    let row = |label: u64| format!("{{\"prompt\": \"p\", \"label\": {label}}}");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a.jsonl"), format!("{}\n\n{}\n", row(0), row(1))).unwrap();
    std::fs::write(path("b.json"), format!("[{}, {}, {}]", row(0), row(1), row(2))).unwrap();
    for (pattern, filter, wrong, place) in [
        ("*.json*", "true", 2, "b.json, row 2 (from 0): task 5 of "),
        ("*.json*", "label > 0", 2, "b.json, row 2 (from 0): task 3 of "),
        ("*.jsonl", "label > 0", 1, "a.jsonl, line 3: task 1 of "),
        ("a.json*", "true", 1, "a.jsonl, line 3: task 2 of "),
    ] {
        let text = format!("source = \"jsonl:{}\"\nfilter = {filter:?}", path(pattern).display());
        let mut source = TaskSource::open(&config(&text), 0).unwrap().unwrap();
        let judge = |task: &Task| match task.label == wrong {
            true => Err("no".to_owned()),
            false => Ok(()),
        };
        let error = source.check(judge).unwrap_err().to_string();
        assert!(error.contains(place), "{pattern} {filter}: {error}");
        let (number, _) = error.split_once(" of ").unwrap();
        let number: u64 = number.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(error.starts_with(&source.row_place(number - 1).unwrap()), "{error}");
    }
}

#[test]
fn wrong_settings_are_named_by_key() {
    for (text, key) in [
        ("source = \"generator:poems\"", "tasks.source"),
        (
            "source = \"generator:signal\"\nparams = { object = 3 }",
            "tasks.params.object",
        ),
        (
            "source = \"generator:signal\"\nparams = { objects = 0 }",
            "tasks.params.objects",
        ),
        (
            "source = \"generator:arithmetic\"\nparams = { max = 5 }",
            "tasks.params.max",
        ),
        (
            "source = \"generator:arithmetic\"\nparams = { max = 99999 }",
            "tasks.params.max",
        ),
        (
            "source = \"generator:arithmetic\"\nparams = { ops = [\"/\"] }",
            "tasks.params.ops",
        ),
        (
            "source = \"generator:arithmetic\"\nparams = { seed = -1 }",
            "tasks.params.seed",
        ),
    ] {
        let error = TaskSource::open(&config(text), 0).err().unwrap().to_string();
        assert!(error.starts_with(&format!("{key}: ")), "{error}");
    }
    assert!(TaskSource::open(&config("source = \"queue\""), 0).unwrap().is_none());
}
