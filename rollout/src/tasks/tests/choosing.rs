//! Which rows become tasks: sources of files, slices, filters, pass rates.

use broker::protocol::task::Prompt;
use configs::EvalConfig;
use serde_json::json;

use super::*;

fn fixture(name: &str) -> String {
    format!("{}/src/tasks/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

const VERL: &str = "label = \"reward_model.ground_truth\"\nid = \"extra_info.index\"\nepochs = 1\n";

fn verl(more: &str) -> String {
    format!("source = \"parquet:{}\"\n{VERL}{more}", fixture("verl.parquet"))
}

fn labels(source: &mut TaskSource) -> Vec<u64> {
    let tasks = take(source, 1000).into_iter();
    tasks
        .map(|(_, task)| task.label.as_str().unwrap().parse::<u64>().unwrap() / 2)
        .collect()
}

#[test]
fn a_verl_file_loads_as_it_is() {
    let mut source = open(&verl(""), 0);
    let tasks = take(&mut source, 100);
    assert_eq!(ids(&tasks), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!((tasks[3].1.prompt.text(), &tasks[3].1.label), ("3+3=", &json!("6")));
    let stock = source.stock();
    assert_eq!(
        (stock[0].name.as_str(), stock[0].rows, stock[0].tasks),
        ("verl", Some(8), 8)
    );
}

#[test]
fn slices_then_filters_then_limits_choose_rows() {
    for (more, expected) in [
        ("slice = \"2:6\"", &[2, 3, 4, 5][..]),
        ("slice = \"-25%:\"", &[6, 7]),
        ("filter = \"extra_info.level >= 2 and data_source == 'math'\"", &[5, 7]),
        ("slice = \":5\"\nfilter = \"extra_info.index % 2 == 0\"", &[0, 2, 4]),
        (
            "slice = \"1:\"\nfilter = \"extra_info.index % 2 == 0\"\nlimit = 2",
            &[2, 4],
        ),
    ] {
        assert_eq!(labels(&mut open(&verl(more), 0)), expected, "{more}");
    }
    let one = open(
        &verl("slice = \"1:\"\nfilter = \"extra_info.index % 2 == 0\"\nlimit = 2"),
        0,
    )
    .stock();
    assert_eq!((one[0].rows, one[0].tasks), (Some(7), 2));
    for (more, key, says) in [
        ("slice = \"5\"", "tasks.slice", "no slice"),
        ("slice = \"8:\"", "tasks.slice", "leaves none of the 8 rows of verl"),
        ("filter = \"ability ==\"", "tasks.filter", "no expression"),
        (
            "filter = \"ability == 'code'\"",
            "tasks.filter",
            "\"ability == 'code'\" is true of none of the 8 rows of verl",
        ),
        ("params = { objects = 3 }", "tasks.params.objects", "known is: seed"),
    ] {
        let error = TaskSource::open(&config(&verl(more)), 0).err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("{key}: ")) && error.contains(says),
            "{error}"
        );
    }
    let error = TaskSource::open(&config(&verl("filter = \"level > 3\"")), 0)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("verl.parquet, row 0 (from 0): filter: there is nothing under \"level\""),
        "{error}"
    );
}

#[test]
fn lines_and_their_packed_and_split_forms_are_the_same_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..20)
        .map(|n| json!({"prompt": format!("{n}?"), "label": n}).to_string())
        .collect();
    let text = lines.join("\n");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("all.jsonl"), &text).unwrap();
    std::fs::write(
        at("all.jsonl.zst"),
        zstd::stream::encode_all(text.as_bytes(), 3).unwrap(),
    )
    .unwrap();
    std::fs::create_dir(at("all")).unwrap();
    std::fs::write(at("all/train-1.jsonl"), lines[..7].join("\n")).unwrap();
    std::fs::write(at("all/train-2.jsonl"), lines[7..].join("\n")).unwrap();
    let rest = "shuffle = true\nepochs = 2\nslice = \"2:-1\"\nfilter = \"label != 5\"";
    let tasks = |source: String| take(&mut open(&format!("source = \"{source}\"\n{rest}"), 3), 100);
    let shown = folder.path().display();
    let plain = tasks(format!("jsonl:{shown}/all.jsonl"));
    assert_eq!(plain.len(), 32);
    assert_eq!(plain, tasks(format!("jsonl:{shown}/all.jsonl.zst")));
    assert_eq!(plain, tasks(format!("hf:{shown}/all")));
    assert_eq!(plain, tasks(format!("jsonl:{shown}/all/train-*.jsonl")));
}

#[test]
fn an_id_that_two_rows_have_is_an_error_that_names_both() {
    let folder = tempfile::tempdir().unwrap();
    let row = |n: u64| json!({"prompt": "?", "label": n, "id": n % 3}).to_string() + "\n";
    std::fs::write(folder.path().join("a.jsonl"), (0..3).map(row).collect::<String>()).unwrap();
    std::fs::write(folder.path().join("b.jsonl"), (3..5).map(row).collect::<String>()).unwrap();
    let text = format!("source = \"jsonl:{}/*.jsonl\"\nid = \"id\"\n", folder.path().display());
    let error = |text: &str| TaskSource::open(&config(text), 0).err().unwrap().to_string();
    let twice = error(&(text.clone() + "slice = \"1:\""));
    assert!(
        twice.contains("b.jsonl, line 2: the id \"1\" is also that of ") && twice.contains("a.jsonl, line 2, which"),
        "{twice}"
    );
    assert!(TaskSource::open(&config(&(text + "slice = \"1:4\"")), 0).is_ok());

    let long = json!({"prompt": "?", "label": 1, "id": "x".repeat(180)}).to_string();
    let path = folder.path().join("long.jsonl");
    std::fs::write(&path, long).unwrap();
    let source = format!("source = \"jsonl:{}\"\n", path.display());
    assert!(TaskSource::open(&config(&format!("id = \"id\"\n{source}")), 0).is_ok());
    let mixed = error(&format!(
        "source = \"mix\"\nid = \"id\"\n[[mix]]\nname = \"a-longer-name\"\n{source}"
    ));
    assert!(
        mixed.contains("long.jsonl, line 1: id is \"xxx") && mixed.contains("175 bytes"),
        "{mixed}"
    );
    let rounded = json!({"prompt": "?", "label": 1, "id": 2.5}).to_string();
    std::fs::write(&path, &rounded).unwrap();
    assert!(TaskSource::open(&config(&format!("id = \"id\"\n{source}")), 0).is_ok());
    std::fs::write(&path, rounded.replace("2.5", "12345678901234567890123")).unwrap();
    let rounded = error(&format!("id = \"id\"\n{source}"));
    assert!(
        rounded.contains("id is 1.2345678901234568e+22: write it as a text"),
        "{rounded}"
    );
}

#[test]
fn an_evaluation_plays_a_repeated_row_once_and_rejects_its_id() {
    let row = |label: u64| json!({"prompt": "?", "label": label, "id": 7}).to_string();
    let other = json!({"prompt": "?", "label": 3, "id": 8}).to_string();
    let tasks = config("source = \"queue\"\nid = \"id\"\nepochs = 1");
    let on = |lines: &[String]| {
        let (folder, source) = file(&lines.join("\n"));
        let eval: EvalConfig = toml::from_str(&source).unwrap();
        (folder, eval)
    };
    let (_folder, eval) = on(&[row(1), row(1), other.clone(), row(1)]);
    let mut again = TaskSource::open_eval(&eval, &tasks, 0).unwrap().unwrap();
    assert_eq!((again.stock()[0].rows, again.stock()[0].tasks), (Some(4), 2));
    assert_eq!(ids(&take(&mut again, 9)), ["7", "8"]);
    let (_folder, eval) = on(&[row(1), other, row(2)]);
    let error = TaskSource::open_eval(&eval, &tasks, 0).err().unwrap().to_string();
    assert!(
        error.contains("line 3: the id \"7\" is also that of ") && error.contains("line 1, which"),
        "{error}"
    );
    // The player distinguishes the tasks of a suite.
    let mut suite = TaskSource::open_suite("hard", &eval, &tasks, 0).unwrap().unwrap();
    assert_eq!(ids(&take(&mut suite, 9)), ["7", "8", "7"]);
}

#[test]
fn a_row_without_a_label_says_null_there() {
    let rubric = json!([{"criterion": "names rest", "points": 1}]);
    let row = json!({"prompt": "?", "label": null, "metadata": {"rubric": rubric}});
    let (_folder, source) = file(&row.to_string());
    let task = take(&mut open(&source, 0), 1).remove(0).1;
    assert_eq!((task.label, &task.metadata["rubric"]), (json!(null), &rubric));
    for row in ["{\"prompt\": \"?\", \"lable\": 5}", "{\"prompt\": null, \"label\": 5}"] {
        let (_folder, source) = file(row);
        let error = TaskSource::open(&config(&source), 0).err().unwrap().to_string();
        assert!(error.contains("there is nothing under"), "{error}");
    }
}

#[test]
fn images_of_rows_come_with_their_prompts() {
    let keys = "prompt = \"problem\"\nlabel = \"answer\"\nimages = \"images\"\nepochs = 1";
    let source = format!("source = \"parquet:{}\"\n{keys}", fixture("images.parquet"));
    let tasks = take(&mut open(&source, 0), 9);
    let images = tasks[0].1.prompt.images();
    assert!(images.len() == 1 && images[0].url.starts_with("data:image/png;base64,iVBORw0KGgo"));
    assert_eq!(tasks[0].1.prompt.text(), "Which colour?");
    assert_eq!(tasks[1].1.prompt, Prompt::Text("No picture.".into()));
}

/// Geometry3K in the Hub's layout (`images`, `problem`, `answer`, one shard a split), by the keys
/// of the recipe that reads it.
#[test]
fn geometry3k_is_read_as_the_hub_has_it() {
    let recipe: toml::Table = include_str!("../../../../configs/image-turns-7b.toml").parse().unwrap();
    let mut keys: TasksConfig = recipe["tasks"].clone().try_into().unwrap();
    assert!(keys.source.starts_with("hf:hiyouga/geometry3k"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for split in ["train", "test"] {
        let shard = folder.path().join(format!("data/{split}-00000-of-00001.parquet"));
        std::fs::copy(fixture("images.parquet"), shard).unwrap();
    }
    (keys.source, keys.shuffle) = (format!("hf:{}:train", folder.path().display()), false);
    let tasks = take(&mut TaskSource::open(&keys, 0).unwrap().unwrap(), 2);
    assert_eq!(
        (tasks[0].1.prompt.images().len(), tasks[0].1.label.as_str()),
        (1, Some("red"))
    );
    assert_eq!(tasks[0].1.prompt.text(), "Which colour?");
}

/// Output of `DatasetDict.save_to_disk` for rows that were shuffled and chosen, and the JSON lines
/// of the same data.
#[test]
fn folders_of_save_to_disk_are_the_tasks_of_their_lines() {
    let keys = "label = \"answer.text\"\nid = \"id\"\nepochs = 1\n";
    let of = |source: &str, more: &str| open(&format!("source = \"{source}\"\n{keys}{more}"), 0);
    let lines = take(&mut of(&format!("jsonl:{}", fixture("pictures.jsonl")), ""), 99);
    assert_eq!(ids(&lines), ["3", "8", "12", "13", "14", "16", "10", "15", "1"]);
    let folder = fixture("pictures");
    let shard = format!("arrow:{folder}/train/data-00000-of-00001.arrow");
    for source in [
        format!("hf:{folder}"),
        format!("hf:{folder}:train"),
        format!("arrow:{folder}"),
        shard,
    ] {
        assert_eq!(take(&mut of(&source, ""), 99), lines, "{source}");
        let mut again = of(&source, "");
        again.seek(lines[4].0);
        assert_eq!(take(&mut again, 99), lines[4..], "{source}");
    }
    assert_eq!(ids(&take(&mut of(&format!("hf:{folder}:test"), ""), 99)), ["19", "3"]);
    let chosen = take(
        &mut of(&format!("hf:{folder}"), "slice = \"1:-4\"\nfilter = \"id % 4 == 0\"\n"),
        99,
    );
    assert_eq!(ids(&chosen), ["8", "12"]);
    let shown = take(
        &mut of(&format!("hf:{folder}"), "images = \"image\"\nslice = \"1:3\"\n"),
        99,
    );
    let images = shown[0].1.prompt.images();
    assert!(images.len() == 1 && images[0].url.starts_with("data:image/png;base64,iVBORw0KGgo"));
    assert_eq!(shown[1].1.prompt.text(), "12?");
    let text = format!("source = \"hf:{folder}:dev\"\n{keys}");
    let error = TaskSource::open(&config(&text), 0).err().unwrap().to_string();
    assert!(error.contains("no split dev: it has train, test"), "{error}");
}

fn rates(folder: &tempfile::TempDir, of: impl Fn(u64) -> Option<f64>) -> String {
    let mut source = open(&verl(""), 0);
    let mut text = String::new();
    for task in source.each() {
        let (task, key) = task.unwrap();
        let n: u64 = task.id.as_deref().unwrap().parse().unwrap();
        if let Some(pass_rate) = of(n) {
            let rate = PassRate {
                key,
                task: n.to_string(),
                pass_rate,
                conversations: 8,
            };
            text += &(serde_json::to_string(&rate).unwrap() + "\n");
        }
    }
    let path = folder.path().join("rates.jsonl");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn pass_rates_choose_a_band_and_order_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = rates(&folder, |n| Some(n as f64 / 7.0));
    let with = |more: &str, curriculum: &str| {
        verl(&format!(
            "{more}\ncurriculum = {{ pass_rates = \"{file}\"{curriculum} }}"
        ))
    };
    assert_eq!(labels(&mut open(&with("", ", min = 0.2, max = 0.8"), 0)), [2, 3, 4, 5]);
    assert_eq!(
        labels(&mut open(&with("", ", stages = 4"), 0)),
        [6, 7, 4, 5, 2, 3, 0, 1]
    );
    let two = with("shuffle = true", ", stages = 4").replace("epochs = 1", "epochs = 2");
    let passes = labels(&mut open(&two, 1));
    let stages = |pass: &[u64]| {
        pass.chunks(2)
            .map(|stage| stage.iter().max().unwrap() / 2)
            .collect::<Vec<_>>()
    };
    assert_eq!(stages(&passes[..8]), [3, 2, 1, 0]);
    let mut second = passes[8..].to_vec();
    assert_ne!(stages(&second), [3, 2, 1, 0], "the second pass is shuffled as a whole");
    second.sort_unstable();
    assert_eq!(second, (0..8).collect::<Vec<_>>());
    let error = TaskSource::open(&config(&with("", ", min = 0.9, max = 0.95")), 0)
        .err()
        .unwrap();
    assert!(
        error.to_string().starts_with("tasks.curriculum: of the 8 rows"),
        "{error}"
    );
}

#[test]
fn missing_pass_rates_are_reported_under_their_key() {
    let text = verl("curriculum = { pass_rates = \"/nowhere/nix.jsonl\" }");
    let error = TaskSource::open(&config(&text), 0).err().unwrap().to_string();
    let wanted = "tasks.curriculum.pass_rates: cannot read /nowhere/nix.jsonl: No such file";
    assert!(error.starts_with(wanted), "{error}");
}

#[test]
fn tasks_without_a_rate_are_an_error_unless_configured() {
    let folder = tempfile::tempdir().unwrap();
    let file = rates(&folder, |n| (n % 2 == 0).then_some(if n < 4 { 1.0 } else { 0.0 }));
    let with = |more: &str| verl(&format!("curriculum = {{ pass_rates = \"{file}\", stages = 3{more} }}"));
    let error = TaskSource::open(&config(&with("")), 0).err().unwrap().to_string();
    assert!(
        error.contains("4 tasks of verl have no pass rate") && error.contains("unmeasured"),
        "{error}"
    );
    assert_eq!(labels(&mut open(&with(", unmeasured = \"drop\""), 0)), [0, 2, 4, 6]);
    assert_eq!(
        labels(&mut open(&with(", unmeasured = \"keep\""), 0)),
        [0, 2, 1, 3, 5, 4, 6, 7]
    );
    for (line, says) in [
        ("{\"key\": \"x\", \"pass_rate\": 2}", "not from 0 to 1"),
        ("{}", "missing field"),
    ] {
        std::fs::write(&file, format!("\n{line}\n")).unwrap();
        let error = TaskSource::open(&config(&with("")), 0).err().unwrap().to_string();
        assert!(
            error.contains("rates.jsonl, line 2: ") && error.contains(says),
            "{error}"
        );
    }
}
