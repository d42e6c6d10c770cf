//! Runs on data sets: Parquet, a folder of the Hub, a mix of sources, a curriculum by pass rates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};
use tests::program::{Program, json_lines};
use tests::small::Small;
use tests::trace::{audit, final_digest, transcripts};

use crate::program;

const STEPS: i64 = 3;

/// Eight sums in verl's layout, made by pyarrow.
fn parquet() -> PathBuf {
    Program::root().join("rollout/src/tasks/fixtures/verl.parquet")
}

/// Returns a configuration of two tiny untrained models, without tasks.
fn config() -> Small {
    let mut config = Small::of("configs/arithmetic.toml")
        .without("tasks")
        .without("eval")
        .without("agents.solver.train.warm_start")
        .without("agents.verifier.train.warm_start")
        .set("run.train_steps", STEPS)
        .set("run.transcripts", "all")
        .set("workflow.group_size", 4)
        .set("defaults.agent.train.batch_groups", 4)
        .set("tasks.shuffle", true);
    for agent in ["solver", "verifier"] {
        config = config
            .set(&format!("agents.{agent}.model.random.layers"), 1)
            .set(&format!("agents.{agent}.model.random.hidden"), 16)
            .set(&format!("agents.{agent}.model.random.intermediate"), 32);
    }
    config
}

fn of_parquet(config: Small) -> Small {
    config
        .set("tasks.source", format!("parquet:{}", parquet().display()))
        .set("tasks.label", "reward_model.ground_truth")
        .set("tasks.id", "extra_info.index")
}

/// Runs it to its end and returns its folder.
fn run(program: &Program, config: &Small) -> PathBuf {
    program.play("run", &config.save(program), &[])
}

/// Returns the number of training conversations of each task, by its id.
fn played(run: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in transcripts(run) {
        *counts.entry(line["task"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

fn trained(run: &Path) -> u64 {
    ["solver", "verifier"]
        .iter()
        .map(|agent| audit(run, agent).counts.trained)
        .sum()
}

/// Exports a run's samples, which have every turn and the verdicts of its ledgers.
fn samples_are_exported(program: &Program, run: &Path) {
    let out = program.home().join("samples.parquet");
    program.succeed(&["samples", run.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let reader = SerializedFileReader::new(File::open(&out).unwrap()).unwrap();
    let (mut texts, mut trained_samples) = (Vec::new(), BTreeSet::new());
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let cells: BTreeMap<&str, &Field> = row
            .get_column_iter()
            .map(|(name, cell)| (name.as_str(), cell))
            .collect();
        let shown = |name: &str| cells[name].to_string();
        let Field::Str(text) = cells["completion"] else {
            panic!("{row:?}")
        };
        texts.push(text.clone());
        if shown("verdict").contains("trained at step") {
            assert!(matches!(cells["reward"], Field::Double(_)), "{row:?}");
            trained_samples.insert(["conversation", "role", "seat"].map(shown));
        }
    }
    assert_eq!(
        trained_samples.len() as u64,
        trained(run),
        "each trained sample has turns"
    );
    let mut wanted: Vec<String> = Vec::new();
    for line in transcripts(run) {
        let turns = line["turns"].as_array().unwrap().iter();
        wanted.extend(turns.map(|turn| turn["text"].as_str().unwrap().to_owned()));
    }
    texts.sort();
    wanted.sort();
    assert_eq!(texts, wanted);
}

#[test]
fn a_run_trains_on_a_parquet_file_and_does_so_again_bit_for_bit() {
    let (once, again) = (program(), program());
    let first = run(&once, &of_parquet(config()));
    // Three steps of four tasks: eight of the first pass, four of the second.
    let counts = played(&first);
    assert!((0..8).all(|n| counts.get(&n.to_string()) == Some(&4)), "{counts:?}");
    assert_eq!(counts.keys().filter(|id| id.ends_with("#1")).count(), 4, "{counts:?}");
    assert!(trained(&first) > 0);
    samples_are_exported(&once, &first);
    let second = run(&again, &of_parquet(config()));
    for agent in ["solver", "verifier"] {
        assert_eq!(
            final_digest(&first, agent),
            final_digest(&second, agent),
            "agent {agent}"
        );
    }
}

#[test]
fn a_run_trains_on_a_mix_by_weights_and_check_counts_its_tasks() {
    let program = program();
    let hub = program.home().join("sums");
    std::fs::create_dir_all(hub.join("data")).unwrap();
    std::fs::copy(parquet(), hub.join("data/train-00000-of-00001.parquet")).unwrap();
    let lines: String = (0..30)
        .map(|n| json!({"q": format!("{n}+1="), "a": n + 1}).to_string() + "\n")
        .collect();
    let file = program.home().join("plus-one.jsonl");
    std::fs::write(&file, lines).unwrap();
    let mix: toml::Table = format!(
        "[[mix]]\nsource = \"hf:{}:train\"\nname = \"sums\"\nweight = 3.0\nlabel = \"reward_model.ground_truth\"\nfilter = \"extra_info.level > 0\"\n[[mix]]\nsource = \"jsonl:{}\"\nprompt = \"q\"\nlabel = \"a\"\nslice = \"10:\"\n",
        hub.display(),
        file.display()
    )
    .parse()
    .unwrap();
    let config = config()
        .set("tasks.source", "mix")
        .set("tasks.stopping", "all_exhausted")
        .set("tasks.mix", mix["mix"].clone());
    let checked = program.succeed(&["check", &config.save(&program)]);
    for line in [
        "# tasks: sums has 6 tasks of 8 rows; 59 in a pass",
        "# tasks: plus-one has 20 tasks; 20 in a pass",
    ] {
        assert!(checked.contains(line), "{line} is not in\n{checked}");
    }
    let counts = played(&run(&program, &config));
    let of = |name: &str| counts.keys().filter(|id| id.starts_with(name)).count();
    assert_eq!((of("sums/"), of("plus-one/")), (9, 3), "{counts:?}");
}

#[test]
fn pass_rates_of_an_evaluation_order_the_next_run() {
    let program = program();
    let whole = of_parquet(config()).save(&program);
    let rates = program.home().join("rates.jsonl");
    let measure = |more: &[&str]| {
        let mut args = vec!["eval", &whole, "--pass-rates", rates.to_str().unwrap()];
        args.extend(more);
        program.succeed(&args);
        json_lines(&rates)
    };
    let own = measure(&["--own-tasks", "--samples", "2"]);
    let named = format!("hard={}", parquet().display());
    let suite = measure(&["--suite", &named, "--samples", "2"]);
    let keys = |lines: &[Value]| -> Vec<String> {
        let mut keys: Vec<String> = lines
            .iter()
            .map(|line| line["key"].as_str().unwrap().to_owned())
            .collect();
        keys.sort();
        keys
    };
    assert_eq!(own.len(), 8);
    assert_eq!(keys(&own), keys(&suite), "a task's key depends on its content alone");
    assert!(
        own.iter()
            .all(|line| line["conversations"] == 2 && line["pass_rate"].is_number()),
        "{own:?}"
    );
    // These models solve nothing, so the rates are made up.
    let lines: String = own
        .iter()
        .map(|line| {
            let n: f64 = line["task"].as_str().unwrap().parse().unwrap();
            json!({"key": line["key"], "pass_rate": n / 7.0}).to_string() + "\n"
        })
        .collect();
    std::fs::write(&rates, lines).unwrap();
    let config = of_parquet(config())
        .set("run.train_steps", 1)
        .set("tasks.curriculum.pass_rates", rates.to_str().unwrap())
        .set("tasks.curriculum.max", 0.9)
        .set("tasks.curriculum.stages", 2);
    let counts = played(&run(&program, &config));
    // Among tasks 0 to 6 the easier stage has 3; one of the harder stage follows.
    assert!(["4", "5", "6"].iter().all(|id| counts.contains_key(*id)), "{counts:?}");
    assert!(!counts.contains_key("7") && counts.len() == 4, "{counts:?}");
}

#[test]
fn pass_rates_of_a_mix_are_those_of_its_own_tasks() {
    let program = program();
    let file = program.home().join("plus-one.jsonl");
    let line = |n: u64| json!({"prompt": format!("{n}+1="), "label": (n + 1).to_string()}).to_string() + "\n";
    std::fs::write(&file, (0..4).map(line).collect::<String>()).unwrap();
    let mix: toml::Table = format!(
        "[[mix]]\nsource = \"parquet:{}\"\nname = \"sums\"\nlabel = \"reward_model.ground_truth\"\n[[mix]]\nsource = \"jsonl:{}\"\n",
        parquet().display(),
        file.display()
    )
    .parse()
    .unwrap();
    let mixed = || config().set("tasks.source", "mix").set("tasks.mix", mix["mix"].clone());
    let whole = mixed().save(&program);
    let rates = program.home().join("rates.jsonl");
    let rates = rates.to_str().unwrap();
    program.succeed(&["eval", &whole, "--own-tasks", "--pass-rates", rates]);
    // A task without a rate is an error.
    let next = mixed().set("tasks.curriculum.pass_rates", rates);
    let checked = program.succeed(&["check", &next.save(&program)]);
    for line in ["# tasks: sums has 8 tasks", "# tasks: plus-one has 4 tasks"] {
        assert!(checked.contains(line), "{line} is not in\n{checked}");
    }
}

/// The reader panics on the damage, which is no bug of ours.
#[test]
fn a_damaged_data_set_is_an_error_that_names_it() {
    let program = program();
    let mut bytes = std::fs::read(parquet().with_extension("arrow")).unwrap();
    // High bytes of the lengths of buffers.
    for at in [2236, 3518] {
        bytes[at] = 0xff;
    }
    let damaged = program.home().join("damaged.arrow");
    std::fs::write(&damaged, bytes).unwrap();
    let config = of_parquet(config()).set("tasks.source", format!("arrow:{}", damaged.display()));
    let (file, runs) = (config.save(&program), program.runs());
    let (file, runs) = (file.as_str(), runs.to_str().unwrap());
    for args in [&["check", file][..], &["run", file, "--folder", runs]] {
        let said = program.fail(2, args);
        assert!(
            said.contains("damaged.arrow cannot be read as Arrow"),
            "{args:?}: {said}"
        );
        assert!(!said.contains("panicked") && !said.contains("bug"), "{args:?}: {said}");
    }
}

#[test]
fn graded_file_ends_with_1_if_a_score_is_not_the_wanted_one() {
    let program = program();
    let row = |label: u32, want: u32| {
        format!(r#"{{"kind": "math", "text": "\\boxed{{5}}", "label": {label}, "want": {want}}}"#)
    };
    for (want, code) in [(0, 0), (1, 1)] {
        let file = program.file("rows.jsonl", &format!("{}\n{}\n", row(5, 1), row(6, want)));
        let output = program.output(&["grade", &file]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("2 answers, mean 0.500"), "{said}");
    }
}

/// 24,940 answers in two draws; `make agreement` compares other graders on the first.
#[test]
fn pairs_of_known_verdict_are_graded_right() {
    let program = program();
    let pairs = Program::root().join("rollout/agreement/pairs.py");
    for seed in ["1", "7"] {
        let file = program.home().join("pairs.jsonl");
        let made = Command::new("python3")
            .arg(&pairs)
            .arg(&file)
            .args(["--seed", seed])
            .status();
        assert!(made.unwrap().success());
        let output = program.output(&["grade", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stdout);
        let wrong: Vec<&str> = said
            .lines()
            .filter(|line| line.ends_with("WANTED 0") || line.ends_with("WANTED 1"))
            .collect();
        assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
        assert!(
            said.contains("; 0 of 24940 wanted scores differ"),
            "{}",
            said.lines().last().unwrap()
        );
    }
}
