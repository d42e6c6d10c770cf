//! Arrow files that pyarrow and `datasets` wrote (`fixtures/make.py`).

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Array, StringArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use serde_json::{Value, json};

use super::super::tests::values;
use super::super::{Format, Shard, count, read};
use super::*;

fn fixture(name: &str) -> Shard {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tasks/fixtures");
    Shard::of(folder.join(name)).unwrap()
}

/// `values` as text too, with keys in their order.
fn seen(shards: &[Shard]) -> Vec<String> {
    let rows = values(shards, 0..u64::MAX).unwrap();
    rows.iter().map(Value::to_string).collect()
}

#[test]
fn streams_and_files_have_the_rows_that_datasets_writes_as_json() {
    let lines = values(&[fixture("types.jsonl")], 0..u64::MAX).unwrap();
    let saved = [
        fixture("saved/data-00000-of-00002.arrow"),
        fixture("saved/data-00001-of-00002.arrow"),
    ];
    let footed = [fixture("types.arrow")];
    for (name, shards) in [("saved", &saved[..]), ("types.arrow", &footed[..])] {
        assert!(shards.iter().all(|shard| shard.format == Format::Arrow), "{name}");
        let rows = values(shards, 0..u64::MAX).unwrap();
        assert_eq!((rows.len(), count(shards).unwrap()), (3, 3), "{name}");
        for (row, line) in rows.iter().zip(&lines) {
            let (row, line) = (row.as_object().unwrap(), line.as_object().unwrap());
            assert_eq!(
                row.keys().collect::<Vec<_>>(),
                line.keys().collect::<Vec<_>>(),
                "{name}"
            );
            for (key, value) in line {
                assert_eq!(row.get(key), Some(value), "{name}: {key}");
            }
        }
        assert_eq!(seen(shards), seen(&[fixture("types.parquet")]), "{name}");
    }
}

#[test]
fn what_parquet_has_no_type_of_is_read_in_the_same_way() {
    let expected = [
        json!({
            "view": "short", "bytes": "abc", "large": "abc", "fixed": "ab", "longs": [1, null], "pair": [1, 2],
            "map": [["a", 1], ["b", null]], "word": "u", "words": ["u"], "i16": -32768, "i64": i64::MAX, "u8": 255,
            "u32": u32::MAX, "cents": "1.50", "mills": "1.005", "second": 1_704_164_645_000_i64,
            "deep": {"at": 1_704_164_645_678_i64}, "day": 1_704_153_600_000_i64, "clock": "03:04:05",
            "ticks": "03:04:05.678000", "nanos": "03:00:00.000001",
        }),
        json!({
            "view": null, "bytes": "/wA=", "large": null, "fixed": "//4=", "longs": [], "pair": null, "map": [],
            "word": null, "words": null, "i16": null, "i64": null, "u8": null, "u32": null, "cents": null,
            "mills": null, "second": null, "deep": {"at": null}, "day": null, "clock": null, "ticks": null,
            "nanos": null,
        }),
        json!({
            "view": "longer than the twelve bytes that stand in a view", "bytes": null, "large": "/w==", "fixed": null,
            "longs": null, "pair": [3, 4], "map": null, "word": "u", "words": ["u"], "i16": 7, "i64": i64::MIN, "u8": 0,
            "u32": 0, "cents": "-0.05", "mills": "-2.000", "second": -86_400_000, "deep": null, "day": -86_400_000,
            "clock": "23:59:59", "ticks": "00:00:00", "nanos": "00:00:00",
        }),
    ];
    let rows = values(&[fixture("others.arrow")], 0..9).unwrap();
    assert_eq!(rows.len(), 3);
    for (row, line) in rows.iter().zip(&expected) {
        for (key, value) in line.as_object().unwrap() {
            assert_eq!(row.get(key), Some(value), "{key}");
        }
        assert_eq!(row, line, "no other columns");
    }
}

#[test]
fn reading_goes_on_in_the_middle_of_batches_and_files() {
    // 8 rows in batches of 3, 3 and 2, twice: the rows of the Parquet file.
    let twice = [fixture("verl.arrow"), fixture("verl.arrow")];
    let parquet = [fixture("verl.parquet"), fixture("verl.parquet")];
    assert_eq!(count(&twice).unwrap(), 16);
    let all = values(&parquet, 0..u64::MAX).unwrap();
    for from in 0..17 {
        for to in from..18 {
            let expected = &all[from..to.min(16).max(from)];
            let found = values(&twice, from as u64..to as u64).unwrap();
            assert_eq!(found, expected, "{from}..{to}");
        }
    }
    let mut places = Vec::new();
    read(&twice, &(6..10), &mut |row| {
        places.push(row.place);
        Ok(())
    })
    .unwrap();
    assert_eq!(
        places,
        [6, 7, 0, 1].map(RowPlace::Row),
        "rows count from 0 in each file"
    );
}

#[test]
fn images_are_structs_of_bytes_and_paths() {
    let rows = values(&[fixture("pictures/train/data-00000-of-00001.arrow")], 0..3).unwrap();
    assert_eq!((&rows[0]["id"], &rows[0]["image"]), (&json!(3), &Value::Null));
    assert_eq!(
        (&rows[1]["id"], &rows[1]["image"]["path"]),
        (&json!(8), &json!("8.png"))
    );
    let bytes = rows[1]["image"]["bytes"].as_str().unwrap();
    assert!(bytes.starts_with("iVBORw0KGgo"), "{bytes}");
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    for (name, says) in [
        ("lz4.arrow", "is packed with LZ4, which is not read"),
        (
            "durations.arrow",
            "the column runs[].took is of a type that is not read (Duration(ms))",
        ),
    ] {
        let error = values(&[fixture(name)], 0..9).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(says), "{error}");
    }
}

/// The fixture's bytes, and a file for changed bytes.
fn copied(name: &str) -> (Vec<u8>, tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.arrow");
    (std::fs::read(fixture(name).path).unwrap(), folder, path)
}

#[test]
fn a_file_that_is_cut_off_is_an_error_wherever_it_is_cut() {
    for name in ["verl.arrow", "types.arrow"] {
        let (whole, _folder, path) = copied(name);
        let near = whole.len() - 80;
        for length in (0..near).step_by(13).chain(near..whole.len()) {
            std::fs::write(&path, &whole[..length]).unwrap();
            let shard = [Shard::of(path.clone()).unwrap()];
            for error in [
                values(&shard, 0..u64::MAX).unwrap_err().to_string(),
                count(&shard).unwrap_err().to_string(),
            ] {
                let says = error.contains("cut.arrow cannot be read as Arrow") && error.contains("cut off");
                assert!(says, "{name}, {length} bytes: {error}");
            }
        }
    }
}

#[test]
fn what_follows_the_end_of_a_stream_is_not_passed_over() {
    let (whole, _folder, path) = copied("verl.arrow");
    std::fs::write(&path, [whole.clone(), whole].concat()).unwrap();
    let error = values(&[Shard::of(path).unwrap()], 0..u64::MAX)
        .unwrap_err()
        .to_string();
    assert!(error.contains("bytes follow the mark"), "{error}");
}

#[test]
fn a_damaged_file_is_an_error_or_other_values() {
    for name in ["verl.arrow", "types.arrow"] {
        let (whole, _folder, path) = copied(name);
        damage(name, &whole, &path, 3);
    }
}

/// Changes one byte at regular distances. A reader must give an error that names the file, or other
/// values.
fn damage(name: &str, whole: &[u8], path: &Path, every: usize) {
    for at in (0..whole.len()).step_by(every) {
        let mut changed = whole.to_vec();
        changed[at] ^= 0xff;
        std::fs::write(path, &changed).unwrap();
        if let Err(error) = values(&[Shard::of(path.to_owned()).unwrap()], 0..9) {
            assert!(error.to_string().contains("cut.arrow"), "{name}, {at}: {error}");
        }
    }
}

/// Packed buffers give their unpacked length.
#[test]
fn a_damaged_packed_file_is_an_error_or_other_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.arrow");
    let rows = StringArray::from_iter_values((0..64).map(|row| format!("What is {row} + {row}? {}", "x".repeat(40))));
    let batch = RecordBatch::try_from_iter([("prompt", Arc::new(rows) as Arc<dyn Array>)]).unwrap();
    let options = IpcWriteOptions::default()
        .try_with_compression(Some(CompressionType::ZSTD))
        .unwrap();
    let mut stream = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options.clone()).unwrap();
    let mut footed = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    stream.write(&batch).unwrap();
    footed.write(&batch).unwrap();
    for (name, whole) in [
        ("stream", stream.into_inner().unwrap()),
        ("file", footed.into_inner().unwrap()),
    ] {
        std::fs::write(&path, &whole).unwrap();
        let shard = [Shard::of(path.clone()).unwrap()];
        let read = values(&shard, 0..99).unwrap();
        assert_eq!(read.len(), 64, "{name}");
        assert!(
            read[7]["prompt"].as_str().unwrap().starts_with("What is 7 + 7?"),
            "{name}"
        );
        damage(name, &whole, &path, 1);
        for at in (7..whole.len()).step_by(8) {
            let mut changed = whole.clone();
            changed[at] ^= 0x80;
            std::fs::write(&path, &changed).unwrap();
            // The least number there is, in the place of 0.
            let _ = values(&shard, 0..9);
        }
        // High bytes at multiples of 8: some are lengths, which then exceed the memory of a
        // machine.
        let says = |at: usize| {
            let mut changed = whole.clone();
            changed[at] ^= 0x7f;
            std::fs::write(&path, &changed).unwrap();
            let fault = values(&shard, 0..9).err().map(|error| error.to_string());
            fault.is_some_and(|fault| fault.contains("unpacked, which cannot be"))
        };
        assert!((5..whole.len()).step_by(8).any(says), "{name}");
    }
}
