//! Rows of real files made by pyarrow (`fixtures/make.py`), compared with the output of `datasets`.

use std::io::Write as _;

use std::path::Path;

use serde_json::Value;

use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/tasks/fixtures")
        .join(name)
}

fn shard(path: PathBuf) -> Shard {
    Shard::of(path).unwrap()
}

/// The values of some rows.
pub(super) fn values(shards: &[Shard], range: Range<u64>) -> Result<Vec<Value>, TasksError> {
    let mut found = Vec::new();
    read(shards, &range, &mut |row| {
        found.push(row.parsed.value);
        Ok(())
    })?;
    Ok(found)
}

#[test]
fn parquet_rows_are_the_json_that_datasets_writes() {
    let ours = values(&[shard(fixture("types.parquet"))], 0..u64::MAX).unwrap();
    let theirs = values(&[shard(fixture("types.jsonl"))], 0..u64::MAX).unwrap();
    assert_eq!(ours.len(), 3);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let (ours, theirs) = (ours.as_object().unwrap(), theirs.as_object().unwrap());
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
        for (key, value) in theirs {
            assert_eq!(ours.get(key), Some(value), "{key}");
        }
    }
}

#[test]
fn ranges_go_over_row_groups_and_files() {
    // 8 rows in groups of 3.
    let twice = [shard(fixture("verl.parquet")), shard(fixture("verl.parquet"))];
    assert_eq!(count(&twice).unwrap(), 16);
    let all = values(&twice, 0..u64::MAX).unwrap();
    let index = |value: &Value| value["extra_info"]["index"].as_u64().unwrap();
    assert_eq!(
        all.iter().map(index).collect::<Vec<_>>(),
        (0..8).chain(0..8).collect::<Vec<_>>()
    );
    for from in 0..17 {
        for to in from..18 {
            let expected = &all[from..to.min(16).max(from)];
            assert_eq!(
                values(&twice, from as u64..to as u64).unwrap(),
                expected,
                "{from}..{to}"
            );
        }
    }
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    for (name, says) in [
        (
            "lz4.parquet",
            "the column data_source is packed with LZ4: write the file with",
        ),
        ("nanos.parquet", "the column when.at is of a type that is not read"),
        ("twice.parquet", "it has several columns label"),
        ("twice.arrow", "it has several columns task.label"),
    ] {
        let error = values(&[shard(fixture(name))], 0..9).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(says), "{error}");
    }
    let error = Shard::of("a/b.csv".into()).unwrap_err();
    assert!(
        error.contains("b.csv is of no kind") && error.contains(".parquet"),
        "{error}"
    );
}

#[test]
fn damaged_parquet_is_an_error_wherever_it_is_cut_or_changed() {
    let whole = std::fs::read(fixture("verl.parquet")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.parquet");
    for length in (0..whole.len()).step_by(97) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = values(&[shard(path.clone())], 0..9).unwrap_err().to_string();
        assert!(
            error.contains("cut.parquet cannot be read as Parquet"),
            "{length}: {error}"
        );
    }
    // A changed byte may be within a value; then rows are read.
    for at in (0..whole.len()).step_by(41) {
        let mut changed = whole.clone();
        changed[at] ^= 0xff;
        std::fs::write(&path, &changed).unwrap();
        if let Err(error) = values(&[shard(path.clone())], 0..9) {
            assert!(error.to_string().contains("cut.parquet"), "{at}: {error}");
        }
    }
}

#[test]
fn a_line_without_end_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endless.jsonl");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len((64 << 20) + 2).unwrap();
    let error = values(&[shard(path)], 0..9).unwrap_err().to_string();
    assert!(
        error.contains("endless.jsonl, line 1: is longer than 67108864 bytes"),
        "{error}"
    );
}

#[test]
fn packed_lines_and_lists_are_read_as_plain_ones() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "{\"n\": 0}\n\n{\"n\": 1}\n{\"n\": 2}\n";
    let list = "\n [{\"n\": 0}, {\"n\": 1}, {\"n\": 2}]";
    let gzip = |text: &str| {
        // Two members, as pigz and `cat a.gz b.gz` write them.
        let member = |part: &str| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(part.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let (first, second) = text.split_at(10);
        [member(first), member(second)].concat()
    };
    let marked = |text: &str| format!("\u{feff}{text}");
    let zstd = |text: &str| zstd::stream::encode_all(text.as_bytes(), 3).unwrap();
    let files = [
        ("a.jsonl", lines.as_bytes().to_vec()),
        ("a.jsonl.gz", gzip(lines)),
        ("a.jsonl.zst", zstd(lines)),
        ("b.json", list.as_bytes().to_vec()),
        ("b.json.gz", gzip(list)),
        ("c.json", lines.as_bytes().to_vec()),
        // Line ends of some programs on Windows.
        ("marked.jsonl", marked(lines).into_bytes()),
        ("marked.jsonl.gz", gzip(&marked(lines))),
        ("marked.json", marked(list).into_bytes()),
    ];
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let one = [shard(path.clone())];
        let numbers = |range| -> Vec<u64> {
            let found = values(&one, range).unwrap();
            found.iter().map(|value| value["n"].as_u64().unwrap()).collect()
        };
        assert_eq!((count(&one).unwrap(), numbers(0..9)), (3, vec![0, 1, 2]), "{name}");
        assert_eq!(numbers(1..2), [1], "{name}");
        assert_eq!(Shard::lines(path).format, one[0].format, "{name}");
    }
    let wide = folder.path().join("wide.jsonl");
    std::fs::write(&wide, b"\xff\xfe{\0}\0\n\0").unwrap();
    let error = values(&[shard(wide)], 0..9).unwrap_err().to_string();
    assert!(
        error.contains("wide.jsonl, line 1: it begins as UTF-16 does"),
        "{error}"
    );
    let cut = folder.path().join("cut.jsonl.gz");
    std::fs::write(&cut, &gzip(lines)[..40]).unwrap();
    assert!(
        values(&[shard(cut)], 0..9)
            .unwrap_err()
            .to_string()
            .contains("cut.jsonl.gz")
    );
}
