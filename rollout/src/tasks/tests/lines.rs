//! Lines of a file: what they hold, and what is wrong with them.

use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;

use super::*;
use crate::grade::Grader;

#[test]
fn a_dapo_style_line_loads_as_it_is() {
    let line = json!({
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": "What is 6 x 7?", "name": "x"}],
        "reward_model": {"ground_truth": "42", "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "9a9b6eb4"},
    });
    let (_folder, source) = file(&format!("{line}\n\n{line}\n"));
    let keys = "label = \"reward_model.ground_truth\"\nid = \"extra_info.index\"\nepochs = 2";
    let tasks = take(&mut open(&format!("{source}{keys}"), 0), 100);
    assert_eq!(ids(&tasks), ["9a9b6eb4", "9a9b6eb4", "9a9b6eb4#1", "9a9b6eb4#1"]);
    assert_eq!(
        (tasks[0].1.prompt.text(), &tasks[0].1.label),
        ("What is 6 x 7?", &json!("42"))
    );
}

/// A plain file is read again where its rows stand; a list goes through the spool.
#[test]
fn labels_that_floats_round_are_texts() {
    let row = |label: &str| format!("{{\"prompt\": \"x\", \"answer\": {{\"value\": {label}}}}}");
    let rows = [
        row("18446744073709551616"),
        row("12.50"),
        row("1e400"),
        row("[0.1, 0.10000000000000000555]"),
    ];
    for text in [rows.join("\n"), format!("[{}]", rows.join(","))] {
        let (folder, source) = file(&text);
        let path = folder.path().join("rows.json");
        std::fs::write(&path, &text).unwrap();
        let listed = format!("source = {:?}\n", format!("jsonl:{}", path.display()));
        let source = if text.starts_with('[') { listed } else { source };
        let tasks = take(
            &mut open(&format!("{source}label = \"answer.value\"\nepochs = 1"), 0),
            100,
        );
        let labels: Vec<_> = tasks.into_iter().map(|(_, task)| task.label).collect();
        let kept = json!(["18446744073709551616", 12.5, "1e400", [0.1, "0.10000000000000000555"]]);
        assert_eq!(json!(labels), kept);
    }
}

/// Writes a Parquet table with a prompt in each row and a column of floats, which may be null.
fn table_of_floats(path: &Path, labels: &[Option<f64>]) {
    let columns = "message table { optional binary prompt (UTF8); optional double label; }";
    let schema = Arc::new(parse_message_type(columns).unwrap());
    let file = std::fs::File::create(path).unwrap();
    let mut table = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut rows = table.next_row_group().unwrap();
    let prompts = vec![ByteArray::from(b"Year?".to_vec()); labels.len()];
    let levels = vec![1_i16; labels.len()];
    let mut column = rows.next_column().unwrap().unwrap();
    let writer = column.typed::<ByteArrayType>();
    writer
        .write_batch(prompts.as_slice(), Some(levels.as_slice()), None)
        .unwrap();
    column.close().unwrap();
    // A level of 0 marks a null, which has no value.
    let levels: Vec<i16> = labels.iter().map(|label| i16::from(label.is_some())).collect();
    let present: Vec<f64> = labels.iter().flatten().copied().collect();
    let mut column = rows.next_column().unwrap().unwrap();
    let writer = column.typed::<DoubleType>();
    writer
        .write_batch(present.as_slice(), Some(levels.as_slice()), None)
        .unwrap();
    column.close().unwrap();
    rows.close().unwrap();
    table.close().unwrap();
}

/// Table programs turn a column of whole numbers into floats if one of its values is missing. They
/// write the missing one as null or as NaN.
#[test]
fn labels_that_a_table_made_floats_are_graded_as_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("floats.parquet");
    table_of_floats(&path, &[Some(72.0), None, Some(f64::NAN), Some(1995.0)]);
    let text = format!("source = \"parquet:{}\"\nepochs = 1", path.display());
    let tasks = take(&mut open(&text, 0), 100);
    let labels: Vec<_> = tasks.into_iter().map(|(_, task)| task.label).collect();
    assert_eq!(json!(labels), json!([72.0, null, null, 1995.0]));
    for (kind, before, behind) in [
        ("exact", "", ""),
        ("match", "", ""),
        ("integer", "\\boxed{", "}"),
        ("gsm8k", "#### ", ""),
        ("math", "\\boxed{", "}"),
    ] {
        let grader = Grader::new(kind).unwrap();
        for (label, year) in [(&labels[0], 72), (&labels[3], 1995)] {
            assert_eq!(grader.check_label(label), Ok(()), "{kind}: {label}");
            let grade = |number: i32| grader.grade(&format!("{before}{number}{behind}"), label);
            assert_eq!((grade(year), grade(year + 1)), (1.0, 0.0), "{kind}: {label}");
        }
        assert!(grader.check_label(&labels[1]).is_err(), "{kind}: a missing label");
    }
}

/// Rows of one plain file are read again where they stand.
#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let (_folder, source) = file("\u{feff}{\"prompt\": \"x\", \"label\": 1}\n{\"prompt\": \"y\", \"label\": 2}\n");
    let tasks = take(&mut open(&format!("{source}epochs = 1"), 0), 100);
    let said: Vec<&str> = tasks.iter().map(|(_, task)| task.prompt.text()).collect();
    assert_eq!(said, ["x", "y"]);
    // A mark elsewhere is a mistake of the line.
    let (_folder, source) = file("{\"prompt\": \"x\", \"label\": 1}\n\u{feff}{\"prompt\": \"y\", \"label\": 2}\n");
    let error = TaskSource::open(&config(&source), 0).err().unwrap().to_string();
    assert!(error.contains("line 2: not JSON"), "{error}");
}

#[test]
fn a_row_lists_its_tools_under_a_key_of_ones_choice() {
    let row = |tools: serde_json::Value| json!({"prompt": "x", "label": 1, "can": {"use": tools}});
    let bound = json!([{"name": "search", "bind": {"corpus": "case-17", "top": null}}, {"name": "visit", "bind": null}, "look"]);
    let lines = format!("{}\n{}\n{}\n", row(bound), row(json!([])), row(json!(null)));
    let (_folder, source) = file(&lines);
    let tasks = take(&mut open(&format!("{source}tools = \"can.use\"\nepochs = 1"), 0), 100);
    let first = &tasks[0].1;
    assert!(first.offers("search") && first.offers("visit") && first.offers("look") && !first.offers("fly"));
    assert_eq!(
        (first.bound("search"), first.bound("look")),
        (json!({"corpus": "case-17"}).as_object(), None),
        "a column of structs has null where a row has nothing"
    );
    assert_eq!(tasks[1].1.tools.as_deref(), Some(&[][..]));
    assert!(tasks[2].1.tools.is_none() && tasks[2].1.offers("fly"));
    // A row that lost its list does not get all tools.
    let (_folder, lost) = file(&format!("{}\n", json!({"prompt": "x", "label": 1, "can": {}})));
    let refused = TaskSource::open(&config(&format!("{lost}tools = \"can.use\"")), 0)
        .map(|_| ())
        .unwrap_err();
    let refused = format!("{refused:?}");
    assert!(
        refused.contains("can.use") && refused.contains("null for all tools"),
        "{refused}"
    );
    // Without the key, a column of that name belongs to a different program.
    let other = format!(
        "{}\n",
        json!({"prompt": "x", "label": 1, "tools": [{"type": "function"}]})
    );
    let (_folder, source) = file(&other);
    assert!(take(&mut open(&source, 0), 1)[0].1.tools.is_none());
    let refused = TaskSource::open(&config(&format!("{source}tools = \"tools\"")), 0)
        .map(|_| ())
        .unwrap_err();
    assert!(format!("{refused:?}").contains("{name, bind}"), "{refused:?}");
}

#[test]
fn text_prompts_limits_and_shuffles() {
    let lines: String = (0..20)
        .map(|i| format!("{{\"q.x\": \"{i}?\", \"a\": [{i}]}}\n"))
        .collect();
    let (_folder, source) = file(lines.trim_end());
    let text = format!("{source}prompt = \"q.x\"\nlabel = \"a.0\"\nlimit = 6\nepochs = 1\n");
    let plain = take(&mut open(&text, 0), 100);
    assert_eq!(ids(&plain)[5], "tasks/0/5");
    assert_eq!(
        plain.iter().map(|(_, t)| t.label.as_u64().unwrap()).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    let mixed = take(&mut open(&format!("{text}shuffle = true"), 0), 100);
    let labels: Vec<u64> = mixed.iter().map(|(_, t)| t.label.as_u64().unwrap()).collect();
    assert_ne!(labels, [0, 1, 2, 3, 4, 5]);
    assert_eq!(labels.into_iter().collect::<BTreeSet<_>>(), (0..6).collect());
}

#[test]
fn errors_name_file_and_line() {
    let good = "{\"prompt\": \"1+1=\", \"label\": 2}";
    for (bad, reason) in [
        ("{", "not JSON"),
        ("3", "no JSON object, but 3"),
        ("{\"question\": \"x\", \"label\": 1}", "the row has: question, label"),
        ("{\"prompt\": \"x\"}", "nothing under \"label\""),
        ("{\"prompt\": null, \"label\": 1}", "nothing under \"prompt\""),
        (
            "{\"prompt\": 3, \"label\": 1}",
            "prompt is 3, neither a text nor a list",
        ),
        ("{\"prompt\": [], \"label\": 1}", "empty"),
        (
            "{\"prompt\": [{\"role\": \"root\", \"content\": \"\"}], \"label\": 1}",
            "\"root\"",
        ),
        (
            "{\"prompt\": [{\"role\": \"user\"}], \"label\": 1}",
            "prompt[0].content is missing: write a text",
        ),
        (
            "{\"prompt\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\"}]}], \"label\": 1}",
            "prompt[0].tool_calls would be lost",
        ),
        (
            "{\"prompt\": \"cut \\ud83d\", \"label\": 1}",
            "ensure_ascii=False and errors=\"replace\"",
        ),
        ("{\"prompt\": \"x\", \"label\": NaN}", "NaN is no JSON: write null"),
    ] {
        let (_folder, source) = file(&format!("{good}\n\n{bad}\n{good}\n"));
        let error = TaskSource::open(&config(&source), 0).err().unwrap().to_string();
        assert!(
            error.contains("tasks.jsonl, line 3: ") && error.contains(reason),
            "{error}"
        );
    }
    let (_folder, source) = file("\n\n");
    assert!(
        TaskSource::open(&config(&source), 0)
            .err()
            .unwrap()
            .to_string()
            .contains("has no tasks")
    );
    let missing = TaskSource::open(&config("source = \"jsonl:/nowhere/x.jsonl\""), 0)
        .err()
        .unwrap();
    assert!(missing.to_string().contains("/nowhere/x.jsonl"));
}

/// Returns the fault of a file of this name and content.
fn fault(name: &str, content: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    let source = format!("source = \"jsonl:{}\"", path.display());
    TaskSource::open(&config(&source), 0).err().unwrap().to_string()
}

#[test]
fn content_of_another_kind_is_named_with_the_fix() {
    for (name, content, says) in [
        (
            "a.jsonl",
            &b"[{\"prompt\": \"x\", \"label\": 1}]"[..],
            "one JSON list: name it .json",
        ),
        (
            "a.jsonl",
            b"[\n  {\"prompt\": \"x\"}\n]\n",
            "one JSON list: name it .json",
        ),
        ("a.jsonl", b"\x1f\x8b\x08\0", "it is gzip: name the file .gz"),
        ("a.jsonl", b"\x28\xb5\x2f\xfd", "it is Zstandard: name the file .zst"),
        (
            "a.csv",
            b"prompt,label\nx,1\n",
            "; .csv is not read: write JSON lines or Parquet",
        ),
    ] {
        let said = fault(name, content);
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn usual_key_of_a_row_is_proposed() {
    for (row, says) in [
        (
            r#"{"messages": "x", "label": 1}"#,
            ": write tasks.prompt = \"messages\"",
        ),
        (
            r#"{"prompt": "x", "answer": 1}"#,
            ": write tasks.label = \"answer\". A task",
        ),
        (r#"{"text": "x", "label": 1}"#, "the row has: text, label"),
    ] {
        let said = fault("a.jsonl", row.as_bytes());
        assert!(said.contains(says) && said.contains("the row has: "), "{said}");
    }
}

#[test]
fn source_without_its_kind_is_completed() {
    for (source, says) in [
        ("d/ok.jsonl", "did you mean jsonl:d/ok.jsonl?"),
        ("d/ok.json.gz", "did you mean jsonl:d/ok.json.gz?"),
        ("d/ok.parquet", "did you mean parquet:d/ok.parquet?"),
        ("src", "did you mean hf:src?"),
        ("csv:x", "CSV is not read: write JSON lines or Parquet"),
        ("x", "write jsonl:PATH"),
    ] {
        let error = TaskSource::open(&config(&format!("source = {source:?}")), 0)
            .err()
            .unwrap();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn what_stands_under_metadata_goes_with_the_task() {
    let with = r#"{"prompt": "p", "label": 1, "metadata": {"self_report": "hot", "facts": {"fever": "hot"}}}"#;
    let (_folder, source) = file(&format!("{with}\n{{\"prompt\": \"p\", \"label\": 1}}\n"));
    let mut source = TaskSource::open(&config(&source), 0).unwrap().unwrap();
    let tasks = take(&mut source, 2);
    assert_eq!(tasks[0].1.metadata["self_report"], "hot");
    assert_eq!(tasks[0].1.metadata["facts"]["fever"], "hot");
    assert!(tasks[1].1.metadata.is_empty());
    let (_folder, source) = file("{\"prompt\": \"p\", \"label\": 1, \"metadata\": \"x\"}\n");
    let mut source = TaskSource::open(&config(&source), 0).unwrap().unwrap();
    assert_eq!(take(&mut source, 1)[0].1.metadata["metadata"], "x");
}
