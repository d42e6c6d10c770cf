//! Metrics: `metrics/<process>.jsonl`, one flat JSON object per line, plus TensorBoard events.
//!
//! Names have the field's usual prefixes: `reward/mean`, `staleness/mean`, `loss`, `grad_norm`.
//! Metrics that depend on the clock begin with `time/`, so that equal runs have equal metrics apart
//! from those.

pub mod figures;
mod tensorboard;

use std::io;
use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value};

use crate::run_folder::logs::Appender;
use tensorboard::EventFile;

/// One line of metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics(Map<String, Value>);

impl Metrics {
    /// Starts a line of the given kind, for example `train`, `eval` or `coordinator`.
    #[must_use]
    pub fn new(kind: &str, step: u64) -> Self {
        Self(Map::new()).with("kind", kind).with("step", step)
    }

    /// Starts the line of one training batch of one agent.
    #[must_use]
    pub fn train(agent: &broker::AgentName, step: u64) -> Self {
        Self::new("train", step).with("agent", agent.as_str())
    }

    /// Starts the line of one evaluation.
    #[must_use]
    pub fn eval(step: u64) -> Self {
        Self::new("eval", step)
    }

    /// Adds or replaces a value. Numbers that are not finite become `null`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.set(name, value);
        self
    }

    /// Same as [`Metrics::with`], in place.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    fn step(&self) -> u64 {
        self.0.get("step").and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns the numbers by name, prefixed by the kind unless it is `train` or `conversations`.
    fn scalars(&self) -> Vec<(String, f64)> {
        let kind = self.0.get("kind").and_then(Value::as_str).unwrap_or_default();
        let prefix = if ["train", "conversations"].contains(&kind) {
            String::new()
        } else {
            format!("{kind}/")
        };
        self.0
            .iter()
            .filter(|(name, _)| *name != "step")
            .filter_map(|(name, value)| Some((format!("{prefix}{name}"), value.as_f64()?)))
            .collect()
    }
}

/// Writes the metrics of one process, off the hot path. Clones share the file.
#[derive(Debug, Clone)]
pub struct MetricsWriter {
    lines: Appender,
    events: Option<EventFile>,
    start: Instant,
}

impl MetricsWriter {
    /// Appends to the file at `path`, and begins a TensorBoard file in the folder `events` if
    /// given.
    pub fn open(path: &Path, events: Option<&Path>) -> io::Result<Self> {
        Ok(Self {
            lines: Appender::open(path)?,
            events: events.map(EventFile::create).transpose()?,
            start: Instant::now(),
        })
    }

    /// Returns a writer of the same process to another file.
    pub fn to_file(&self, path: &Path) -> io::Result<Self> {
        Ok(Self {
            lines: Appender::open(path)?,
            ..self.clone()
        })
    }

    /// Writes a line, with `time/elapsed_s` (seconds since the writer was opened) if it is missing.
    /// Never waits for the disk.
    pub fn write(&self, mut metrics: Metrics) {
        let elapsed = (self.start.elapsed().as_secs_f64() * 1e3).round() / 1e3;
        metrics.0.entry("time/elapsed_s").or_insert_with(|| elapsed.into());
        if let Some(events) = &self.events {
            events.write(metrics.step(), &metrics.scalars());
        }
        if let Ok(line) = serde_json::to_vec(&metrics.0) {
            self.lines.line(line);
        }
    }

    /// Writes all pending lines. Blocks the thread.
    pub fn flush(&self) {
        self.lines.flush();
        if let Some(events) = &self.events {
            events.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train() -> Metrics {
        let agent = broker::AgentName::new("a").unwrap();
        Metrics::train(&agent, 3)
            .with("reward/mean", 0.5)
            .with("loss", f64::NAN)
    }

    #[test]
    fn lines_are_flat_objects_in_their_order_with_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let (path, events) = (
            folder.path().join("metrics/a.jsonl"),
            folder.path().join("tensorboard/a"),
        );
        let writer = MetricsWriter::open(&path, Some(&events)).unwrap();
        writer.write(train());
        writer.write(Metrics::eval(3).with("time/elapsed_s", 1.5));
        writer.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let start = r#"{"kind":"train","step":3,"agent":"a","reward/mean":0.5,"loss":null,"time/elapsed_s":"#;
        assert!(lines[0].starts_with(start), "{}", lines[0]);
        assert_eq!(lines[1..], [r#"{"kind":"eval","step":3,"time/elapsed_s":1.5}"#]);
        assert_eq!(std::fs::read_dir(&events).unwrap().count(), 1);
    }

    #[test]
    fn tensorboard_gets_the_numbers() {
        assert_eq!(train().scalars(), [("reward/mean".to_owned(), 0.5)]);
        assert_eq!(
            Metrics::eval(1).with("success", 1).scalars(),
            [("eval/success".to_owned(), 1.0)]
        );
    }
}
