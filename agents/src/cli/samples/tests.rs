//! Exports of small run folders, read back.

use std::collections::BTreeMap;

use broker::ids::{Attempt, Digest};
use broker::protocol::bundle::{Bundle, BundleContent, Sample};
use broker::protocol::reserve::Reserve;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::json;

use super::*;
use crate::cli::exit_code::code;
use crate::ledger::tests::sample;
use crate::ledger::{Ledger, SampleVerdict, TrainingVerdict};
use crate::run_folder::logs::{Compared, Earned, TranscriptTurn, Transcripts};
use crate::run_folder::tests::config_in;

type Line = BTreeMap<String, Field>;

/// The columns of a file whose rewards have the parts `length` and `success`.
const NAMES: [&str; 22] = [
    "step",
    "prompt",
    "completion",
    "reward",
    "reward/length",
    "reward/success",
    "advantage",
    "agent",
    "role",
    "seat",
    "turn",
    "conversation",
    "group",
    "task",
    "label",
    "version",
    "tokens",
    "mean_logprob",
    "finish",
    "status",
    "eval",
    "verdict",
];

fn run_folder(base: &Path) -> RunFolder {
    RunFolder::create(base, &config_in(base), None).unwrap()
}

fn group(folder: &RunFolder, task: &str) -> GroupId {
    GroupId::new(folder.run(), task)
}

fn turn(agent: &str, role: &str, seat: u16, text: &str) -> TranscriptTurn {
    TranscriptTurn {
        role: role.into(),
        seat,
        turn: 4,
        agent: agent.into(),
        text: text.into(),
        tokens: 2,
        version: "1.3".into(),
        finish: "stop".into(),
        mean_logprob: -0.5,
        logprobs_of: "sampled".into(),
        ..TranscriptTurn::default()
    }
}

fn conversation(folder: &RunFolder, task: &str, step: u64, turns: Vec<TranscriptTurn>) -> Transcript {
    Transcript {
        conversation: format!("{}/0", group(folder, task)),
        task: task.into(),
        prompt: "say x".into(),
        turns,
        status: "completed".into(),
        step,
        ..Transcript::default()
    }
}

/// Returns the rewards of one seat, as a transcript has them.
fn rewards(seat: &str, parts: &[(&str, f64)]) -> (String, BTreeMap<String, f64>) {
    let parts = parts.iter().map(|(name, value)| ((*name).to_owned(), *value));
    (seat.to_owned(), parts.collect())
}

fn write_transcripts(folder: &RunFolder, process: &str, transcripts: &[Transcript]) {
    let written = Transcripts::open(&folder.transcripts(process)).unwrap();
    transcripts.iter().for_each(|one| written.write(one));
    written.flush();
}

/// Makes the ledger of an agent with a verdict on the group of `t1`; that of `t2` closed empty.
fn write_ledger(folder: &RunFolder, agent: &str, role: &str, verdict: TrainingVerdict) {
    let name = AgentName::new(agent).unwrap();
    let mut ledger = Ledger::open(&folder.ledger(&name), folder.run(), &name).unwrap();
    let samples = vec![Sample {
        role: role.into(),
        ..sample(0)
    }];
    let empty = BundleContent::Empty {
        reason: "too few".into(),
    };
    for (order, task, content) in [(0, "t1", BundleContent::Samples(samples)), (1, "t2", empty)] {
        let request = Reserve {
            group: group(folder, task),
            task: task.into(),
            order,
            body: vec![],
            seal: None,
        };
        ledger.reserve(&[request], 9).unwrap();
        let bundle = Bundle {
            group: group(folder, task),
            task: task.into(),
            order,
            attempt: Attempt([1; 16]),
            digest: Digest([0; 16]),
            part: 0,
            parts: 1,
            conversations: 1,
            content,
        };
        ledger.stage(&[bundle]).unwrap();
    }
    let lineage = ledger.begin_lineage(None).unwrap();
    let verdict = SampleVerdict {
        group: group(folder, "t1"),
        member: 0,
        role: role.into(),
        seat: 0,
        verdict,
    };
    ledger.record_batch(lineage, 1, &[verdict]).unwrap();
}

fn open(path: &Path) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(path).unwrap()).unwrap()
}

fn read(path: &Path) -> Vec<Line> {
    let reader = open(path);
    let mut lines = Vec::new();
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let cells = row.get_column_iter();
        lines.push(cells.map(|(name, field)| (name.clone(), field.clone())).collect());
    }
    lines
}

fn text(text: &str) -> Field {
    Field::Str(text.to_owned())
}

#[test]
fn rows_of_two_files_have_every_column() {
    let base = tempfile::tempdir().unwrap();
    let folder = run_folder(base.path());
    let hostile = "h\u{e9}\0\n\"}],\u{202e}\u{1f600}";
    let earned = Earned {
        compared: Some(Compared {
            advantage: 0.25,
            ..Compared::default()
        }),
        ..Earned::default()
    };
    let turns = vec![
        turn("a", "speaker", 0, hostile),
        turn("tool", "search", 0, "found"),
        turn("b", "listener", 0, ""),
    ];
    let later = Transcript {
        prompt: json!([{"role": "user", "content": "x"}]),
        label: json!({"word": "x"}),
        rewards: [
            rewards("speaker", &[("success", 1.0), ("total", 1.5)]),
            rewards("listener", &[("length", f64::NAN), ("total", 0.5)]),
        ]
        .into(),
        earned: [("speaker".to_owned(), earned)].into(),
        ..conversation(&folder, "t1", 1, turns)
    };
    let silent = TranscriptTurn {
        tokens: 0,
        ..turn("a", "speaker", 0, "never")
    };
    write_transcripts(&folder, "coordinator-0", &[later]);
    write_transcripts(
        &folder,
        "coordinator-1",
        &[conversation(&folder, "t2", 0, vec![silent])],
    );
    write_ledger(&folder, "a", "speaker", TrainingVerdict::Trained);
    write_ledger(&folder, "b", "listener", TrainingVerdict::Discarded("stale".into()));
    let out = base.path().join("samples.parquet");
    let said = write(&folder, &out).unwrap();
    assert!(said.starts_with("3 rows of 2 conversations in "), "{said}");
    assert!(
        said.contains("run.transcripts = \"first\"") && !said.contains("ledger"),
        "{said}"
    );

    let schema = open(&out).metadata().file_metadata().schema_descr().columns().to_vec();
    assert_eq!(schema.iter().map(|column| column.name()).collect::<Vec<_>>(), NAMES);
    let lines = read(&out);
    let id = group(&folder, "t1").to_string();
    let wanted = [
        Field::Long(1),
        text(r#"[{"role":"user","content":"x"}]"#),
        text(hostile),
        Field::Double(1.5),
        Field::Null,
        Field::Double(1.0),
        Field::Double(0.25),
        text("a"),
        text("speaker"),
        Field::Long(0),
        Field::Long(4),
        text(&format!("{id}/0")),
        text(&id),
        text("t1"),
        text(r#"{"word":"x"}"#),
        text("1.3"),
        Field::Long(2),
        Field::Double(-0.5),
        text("stop"),
        text("completed"),
        Field::Bool(false),
        text("trained at step 1"),
    ];
    let wanted: Line = NAMES.iter().map(|name| (*name).to_owned()).zip(wanted).collect();
    assert_eq!(lines[1], wanted);
    let (first, last) = (&lines[0], &lines[2]);
    assert_eq!((&first["prompt"], &first["task"]), (&text("say x"), &text("t2")));
    for null in ["reward", "reward/success", "advantage", "label", "mean_logprob"] {
        assert_eq!(first[null], Field::Null, "{null}");
    }
    assert_eq!(first["verdict"], text("too few"));
    assert!(matches!(last["reward/length"], Field::Double(value) if value.is_nan()));
    assert_eq!((&last["completion"], &last["agent"]), (&text(""), &text("b")));
    assert_eq!(
        (&last["reward"], &last["advantage"]),
        (&Field::Double(0.5), &Field::Null)
    );
    assert_eq!(last["verdict"], text("stale"));
}

#[test]
fn conversation_that_was_written_again_counts_once() {
    let base = tempfile::tempdir().unwrap();
    let folder = run_folder(base.path());
    let said = |text: &str, step| conversation(&folder, "t1", step, vec![turn("a", "speaker", 0, text)]);
    let of_eval = Transcript {
        conversation: "no id".into(),
        eval: true,
        ..said("evaluated", 2)
    };
    write_transcripts(&folder, "coordinator-0", &[said("lost", 1), of_eval]);
    write_transcripts(&folder, "coordinator-1", &[said("lost too", 1), said("kept", 3)]);
    let out = base.path().join("samples.parquet");
    let summary = write(&folder, &out).unwrap();
    assert!(summary.starts_with("2 rows of 2 conversations"), "{summary}");
    for agent in ["a", "b"] {
        assert!(summary.contains(&format!("the ledger of {agent} is not")), "{summary}");
    }
    let lines = read(&out);
    assert_eq!(
        (&lines[0]["completion"], &lines[1]["completion"]),
        (&text("evaluated"), &text("kept"))
    );
    assert_eq!(
        (&lines[0]["eval"], &lines[0]["group"]),
        (&Field::Bool(true), &text("no id"))
    );
    assert_eq!(lines[1]["verdict"], Field::Null);
}

#[test]
fn reward_belongs_to_the_seat_that_its_key_names() {
    let base = tempfile::tempdir().unwrap();
    let folder = run_folder(base.path());
    let seats = || vec![turn("a", "speaker", 0, "x"), turn("a", "speaker", 2, "y")];
    let both = Transcript {
        rewards: [
            rewards("speaker/0", &[("total", 0.5)]),
            rewards("speaker/2", &[("total", 1.0)]),
        ]
        .into(),
        ..conversation(&folder, "t1", 1, seats())
    };
    let unknown = Transcript {
        rewards: [rewards("speaker", &[("total", 1.0)])].into(),
        ..conversation(&folder, "t2", 2, seats())
    };
    let alone = Transcript {
        rewards: [rewards("speaker", &[("total", 0.25)])].into(),
        ..conversation(&folder, "t3", 3, vec![turn("a", "speaker", 2, "z")])
    };
    write_transcripts(&folder, "coordinator-0", &[both, unknown, alone]);
    let out = base.path().join("samples.parquet");
    write(&folder, &out).unwrap();
    let found: Vec<Field> = read(&out).iter().map(|line| line["reward"].clone()).collect();
    let [half, one, quarter] = [0.5, 1.0, 0.25].map(Field::Double);
    assert_eq!(found, [half, one, Field::Null, Field::Null, quarter]);
}

#[test]
fn row_groups_are_bounded() {
    let base = tempfile::tempdir().unwrap();
    let folder = run_folder(base.path());
    let turns = |count| vec![turn("a", "speaker", 0, "x"); count];
    let long = conversation(&folder, "t1", 1, turns(TURNS));
    let short = conversation(&folder, "t2", 2, turns(1));
    write_transcripts(&folder, "coordinator-0", &[long, short]);
    let out = base.path().join("samples.parquet");
    write(&folder, &out).unwrap();
    let reader = open(&out);
    let rows: Vec<i64> = reader
        .metadata()
        .row_groups()
        .iter()
        .map(|group| group.num_rows())
        .collect();
    assert_eq!(rows, [TURNS as i64, 1]);
}

#[test]
fn export_that_cannot_be_made_leaves_no_file() {
    let base = tempfile::tempdir().unwrap();
    let folder = run_folder(base.path());
    let out = base.path().join("samples.parquet");
    let refused = |out: &Path| {
        let error = write(&folder, out).unwrap_err();
        assert_eq!(code(&error), 2, "{error:#}");
        error.to_string()
    };
    assert!(refused(&out).contains("no transcript to export"));
    assert!(!out.exists());
    let left = std::fs::read_dir(base.path()).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        left.iter().all(|name| !name.to_string_lossy().contains(".new")),
        "{left:?}"
    );
    write_transcripts(&folder, "coordinator-0", &[conversation(&folder, "t1", 1, Vec::new())]);
    assert!(refused(&base.path().join("missing/x.parquet")).contains("cannot be written"));
    fs::write(&out, "kept").unwrap();
    assert!(refused(&out).contains("there is a file or a folder of this name"));
    assert_eq!(fs::read_to_string(&out).unwrap(), "kept");
    fs::remove_file(&out).unwrap();
    assert!(write(&folder, &out).unwrap().starts_with("0 rows of 1 conversations"));
    assert!(read(&out).is_empty());
}
