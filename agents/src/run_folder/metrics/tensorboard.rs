//! TensorBoard event files: framed records of a small protobuf message
//! (tensorflow/core/util/event.proto).
//!
//! A record is `length u64 LE, masked crc32c(length) u32 LE, data, masked crc32c(data) u32 LE`.
//! `Event` has `wall_time` = 1 (double), `step` = 2 (varint), `file_version` = 3 (string) and
//! `summary` = 5. The field `value` = 1 of the summary has `tag` = 1 and `simple_value` = 2
//! (float).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// One event file. A few hundred bytes a step, written immediately.
#[derive(Debug, Clone)]
pub(crate) struct EventFile(Arc<Mutex<BufWriter<File>>>);

impl EventFile {
    /// Creates a file in the folder; TensorBoard reads all of its files as one run.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let now = wall_time();
        let name = format!("events.out.tfevents.{:.6}.{}.dyad", now, std::process::id());
        let mut file = BufWriter::new(File::create(folder.join(name))?);
        let mut event = Vec::new();
        double(&mut event, 1, now);
        bytes(&mut event, 3, b"brain.Event:2");
        file.write_all(&record(&event))?;
        file.flush()?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    pub(crate) fn write(&self, step: u64, scalars: &[(String, f64)]) {
        let record = record(&event(wall_time(), step, scalars));
        if let Ok(mut file) = self.0.lock() {
            // Metrics are also in the JSON lines: a full disk costs the chart, not the run.
            let _ = file.write_all(&record).and_then(|()| file.flush());
        }
    }

    pub(crate) fn flush(&self) {
        if let Ok(mut file) = self.0.lock() {
            let _ = file.flush();
        }
    }
}

fn wall_time() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}

fn event(time: f64, step: u64, scalars: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in scalars {
        let mut entry = Vec::new();
        bytes(&mut entry, 1, tag.as_bytes());
        entry.push(2 << 3 | 5);
        entry.extend((*value as f32).to_le_bytes());
        bytes(&mut summary, 1, &entry);
    }
    let mut event = Vec::new();
    double(&mut event, 1, time);
    event.push(2 << 3);
    varint(&mut event, step);
    bytes(&mut event, 5, &summary);
    event
}

fn double(out: &mut Vec<u8>, field: u8, value: f64) {
    out.push(field << 3 | 1);
    out.extend(value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [
        &length[..],
        &masked_crc(&length).to_le_bytes(),
        data,
        &masked_crc(data).to_le_bytes(),
    ]
    .concat()
}

/// Returns the masked checksum of TFRecord: rotated and offset, so that a checksum of checksums is
/// not degenerate.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the CRC-32C (Castagnoli), bit by bit: event files are small.
fn crc32c(data: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    };
    !data.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_castagnoli() {
        // The check value of the CRC catalogue, and a vector of RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn an_event_has_the_bytes_of_the_protobuf() {
        let bytes = event(1.5, 300, &[("loss".into(), 0.25)]);
        let expected = [
            &[0x09][..],
            &1.5f64.to_le_bytes(),
            &[0x10, 0xac, 0x02],
            &[0x2a, 13, 0x0a, 11, 0x0a, 4],
            b"loss",
            &[0x15],
            &0.25f32.to_le_bytes(),
        ]
        .concat();
        assert_eq!(bytes, expected);
        let framed = record(&bytes);
        assert_eq!(framed.len(), bytes.len() + 16);
        assert_eq!(framed[..8], (bytes.len() as u64).to_le_bytes());
    }
}
