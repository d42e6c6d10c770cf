//! Reads the tasks of `dyad publish`: JSON lines, or the rows of a data set.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use broker::protocol::task::Task;
use configs::{RunConfig, TasksConfig};
use rollout::tasks::{MARK, TaskSource};

use crate::base::fault::Usage;
use crate::cli::task_rules::{Checked, Origin, Rules, validate_from};

/// Returns the tasks of a file or a data set. Each of them can be played.
pub(super) fn checked(file: &Path, config: Option<&RunConfig>, rules: &Rules) -> anyhow::Result<Vec<Checked>> {
    let named = file.to_str().unwrap_or_default();
    if !file.exists() && (matches!(named, "mix" | "queue") || named.starts_with("generator:")) {
        return Err(
            Usage::new(format!("{named} cannot be published: only files and data sets can"))
                .hint("a run makes the tasks of its generator itself: set tasks.source")
                .into(),
        );
    }
    let Some(source) = data_set(file) else {
        return validate_from(&Origin::of_file(file), &read(file)?, rules);
    };
    let Some((found, text)) = read_rows(source, config)? else {
        return validate_from(&Origin::default(), &[], rules);
    };
    validate_from(&Origin::of_rows(source, &found), &text, rules)
}

/// Returns the name of a data set, if it has the form of tasks.source and no file has that name.
fn data_set(file: &Path) -> Option<&str> {
    let text = file.to_str()?;
    let kinds = ["jsonl:", "parquet:", "arrow:", "hf:"];
    let known = kinds.iter().any(|kind| text.starts_with(kind));
    (known && !file.exists()).then_some(text)
}

/// Returns a data set and its tasks as lines. Without `tasks.id`, the tasks have the ids under `id`
/// if every row has one and no two rows have the same; else content ids.
fn read_rows(source: &str, config: Option<&RunConfig>) -> anyhow::Result<Option<(TaskSource, Vec<u8>)>> {
    let tasks: TasksConfig = match config {
        Some(config) => config.tasks.on(source.to_owned()),
        None => toml::Table::from_iter([("source".to_owned(), toml::Value::from(source))]).try_into()?,
    };
    let open = |tasks: &TasksConfig| TaskSource::open(tasks, 0);
    if tasks.id.is_none() {
        let id = Some("id".to_owned());
        let named = TasksConfig { id, ..tasks.clone() };
        // Read with this key, a row without an id is an error.
        if let Ok(Some(mut found)) = open(&named) {
            let rows: Vec<_> = found.rows().collect();
            let (all, rows) = (rows.len(), rows.into_iter().flatten().collect::<Vec<_>>());
            let different = rows.iter().map(|task| &task.id).collect::<HashSet<_>>().len();
            if different == all {
                return Ok(Some((found, lines(rows))));
            }
            if different > 0 {
                eprintln!("not every row has an id of its own: the tasks get ids made from their contents");
            }
        }
    }
    let Some(mut found) = open(&tasks).map_err(|error| Usage::new(format!("{error:#}")))? else {
        return Ok(None);
    };
    let rows = found.rows().collect::<Result<Vec<_>, _>>()?;
    Ok(Some((found, lines(rows))))
}

/// Returns tasks as lines. Tasks without ids get content ids later. An equal task after the first
/// gets that id with a number, since a run plays an id once.
fn lines(tasks: Vec<Task>) -> Vec<u8> {
    let mut text = Vec::new();
    let mut equal: HashMap<String, usize> = HashMap::new();
    for mut task in tasks {
        let mut line = broker::codec::encode_json(&task);
        if task.id.is_none() {
            let id = task.resolve_id(None, &line);
            let times = equal.entry(id.clone()).or_default();
            *times += 1;
            if *times > 1 {
                task.id = Some(format!("{id}-{times}"));
                line = broker::codec::encode_json(&task);
            }
        }
        text.extend(line);
        text.push(b'\n');
    }
    text
}

pub(in crate::cli) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    if file.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .read_to_end(&mut text)
            .context("cannot read standard input")?;
    } else {
        let unread = |error| Usage::new(format!("cannot read {}: {error}", file.display()));
        text = rollout::tasks::read_unpacked(file).map_err(unread)?;
    }
    if text.starts_with(&[0x1f, 0x8b]) {
        return Err(Usage::new(format!("{} is gzip: name the file .gz", file.display())).into());
    }
    if text.starts_with(MARK.as_bytes()) {
        text.drain(..MARK.len());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::render;
    use crate::cli::task_rules::validate;

    #[test]
    fn refused_line_or_row_is_named_with_its_file_and_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("more.jsonl");
        let good = r#"{"prompt": "1+1=", "label": 2}"#;
        std::fs::write(&path, format!("{good}\n\n{{\"prompt\": \"1+2=\", \"label\": \"x\"}}\n")).unwrap();
        let text = include_str!("../../../../configs/arithmetic.toml");
        let config = RunConfig::parse(text, Path::new("a.toml")).unwrap();
        let rules = Rules::of(&config).unwrap();
        let said = |file: &str| render(&checked(file.as_ref(), Some(&config), &rules).unwrap_err());
        let path = path.display().to_string();
        let lines = said(&path);
        assert!(
            lines.starts_with(&format!("error: 1 of 2 lines of {path} are not tasks")),
            "{lines}"
        );
        assert!(lines.contains("\n  line 3: the label is \"x\""), "{lines}");
        let rows = said(&format!("jsonl:{path}"));
        assert!(
            rows.starts_with(&format!("error: 1 of 2 rows of jsonl:{path} are not tasks")),
            "{rows}"
        );
        assert!(
            rows.contains(&format!("\n  {path}, line 3: the label is \"x\"")),
            "{rows}"
        );
        std::fs::write(&path, r#"{"prompt": [{"role": "user", "content": 5}], "label": 2}"#).unwrap();
        let wanted = "prompt[0].content is 5: write a text";
        for (name, place) in [
            (path.clone(), "line 1: "),
            (format!("jsonl:{path}"), "more.jsonl, line 1: "),
        ] {
            let said = said(&name);
            assert!(said.contains(wanted) && said.contains(place), "{said}");
        }
    }

    #[test]
    fn data_set_is_recognised_by_its_prefix() {
        for source in ["jsonl:a", "parquet:a", "arrow:a", "hf:a"] {
            assert_eq!(data_set(Path::new(source)), Some(source));
        }
        for file in ["a.arrow", "arrow", "-"] {
            assert_eq!(data_set(Path::new(file)), None, "{file}");
        }
    }

    #[test]
    fn sources_that_only_a_run_can_read_are_refused() {
        for name in ["generator:signal", "mix", "queue"] {
            let said = render(&checked(name.as_ref(), None, &Rules::default()).unwrap_err());
            assert!(said.contains("only files and data sets can"), "{said}");
        }
    }

    #[test]
    fn byte_order_mark_is_not_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        std::fs::write(&path, "\u{feff}{\"prompt\": \"o1\"}\n").unwrap();
        let tasks = validate(&read(&path).unwrap(), &Rules::of_signal()).unwrap();
        assert_eq!(tasks[0].body, br#"{"prompt": "o1"}"#.as_slice());
    }

    #[test]
    fn packed_file_is_published_as_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        // The line {"prompt": "o1"}, as `gzip -n` packs it.
        let packed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\x56\x2a\x28\xca\xcf\x2d\x28\x51\xb2\x52\x50\xca\x37\x54\xaa\xe5\x02\x00\x50\xb6\x46\x34\x11\x00\x00\x00";
        let named = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, packed).unwrap();
            read(&path)
        };
        assert_eq!(named("a.jsonl.gz").unwrap(), b"{\"prompt\": \"o1\"}\n");
        let error = render(&named("a.jsonl").unwrap_err());
        assert!(error.contains("a.jsonl is gzip: name the file .gz"), "{error}");
    }

    #[test]
    fn data_set_rows_need_no_ids_and_ignore_the_generator() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("more.jsonl");
        std::fs::write(
            &path,
            "{\"prompt\": \"1+1=\", \"label\": 2}\n{\"prompt\": \"1+2=\", \"label\": 3}\n",
        )
        .unwrap();
        let text = include_str!("../../../../configs/arithmetic.toml");
        let mut config = RunConfig::parse(text, Path::new("a.toml")).unwrap();
        config.tasks.params.insert("max".into(), toml::Value::from(9));
        let source = format!("jsonl:{}", path.display());
        let (_, text) = read_rows(&source, Some(&config)).unwrap().unwrap();
        let lines: Vec<serde_json::Value> = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.get("id").is_none()), "{lines:?}");
    }

    #[test]
    fn data_set_rows_keep_unique_ids_and_equal_rows_are_all_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("more.jsonl");
        let text = include_str!("../../../../configs/arithmetic.toml");
        let config = RunConfig::parse(text, Path::new("a.toml")).unwrap();
        let rules = Rules::of(&config).unwrap();
        let ids = |rows: &[&str]| {
            let rows = rows
                .iter()
                .map(|keys| format!("{{\"prompt\": \"1+1=\", \"label\": 2{keys}}}\n"));
            std::fs::write(&path, rows.collect::<String>()).unwrap();
            let source = format!("jsonl:{}", path.display());
            let tasks = checked(source.as_ref(), Some(&config), &rules).unwrap();
            tasks.into_iter().map(|task| task.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[", \"id\": \"x\"", ", \"id\": 7"]), ["x", "7"]);
        let equal = ids(&["", "", ""]);
        assert_eq!(equal[1..], [2, 3].map(|number| format!("{}-{number}", equal[0])));
        for unusable in [[", \"id\": 7", ", \"id\": 7"], [", \"id\": 7", ""]] {
            assert_eq!(ids(&unusable), equal[..2], "{unusable:?}");
        }
    }
}
