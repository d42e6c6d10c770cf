//! The figures of metrics files as columns, read by offset as the files grow.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::run_folder::logs::lines;
use crate::run_folder::{FolderError, RunFolder};

/// The number of runs with figures in memory.
const KEPT: usize = 3;
/// The most points of a coordinator's figure. It writes a line each second, so 86,400 in a day;
/// every second point is given up when they are too many.
const MOST: usize = 16_384;

/// The kind of a line, the agent or process that it is about, and the name of the figure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub(crate) struct Key {
    pub(crate) kind: String,
    pub(crate) of: String,
    pub(crate) name: String,
}

/// One value of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) step: u64,
    pub(crate) seconds: Option<f64>,
    pub(crate) value: f64,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    offsets: HashMap<PathBuf, u64>,
    pub(crate) series: BTreeMap<Key, Vec<Point>>,
}

impl Figures {
    /// Reads what was written since the last call.
    fn extend(&mut self, folder: &RunFolder) -> Result<(), FolderError> {
        for path in folder.files("metrics")? {
            let process = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if process != "summary" {
                // A file that cannot be read now is read at the next call.
                let _ = self.read(&path, &process);
            }
        }
        Ok(())
    }

    fn read(&mut self, path: &Path, process: &str) -> std::io::Result<()> {
        loop {
            let before = self.offsets.get(path).copied().unwrap_or(0);
            let (found, end) = lines::forward(path, before)?;
            for (_, line) in &found {
                if let Ok(line) = serde_json::from_slice(line) {
                    self.add(process, &line);
                }
            }
            self.offsets.insert(path.to_owned(), end);
            if found.is_empty() {
                return Ok(());
            }
        }
    }

    fn add(&mut self, process: &str, line: &Map<String, Value>) {
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, step) = (text("kind"), line.get("step").and_then(Value::as_u64));
        let of = match kind {
            "train" | "checkpoint" | "discarded" => text("agent"),
            "coordinator" => process,
            _ => "",
        };
        let seconds = line.get("time/elapsed_s").and_then(Value::as_f64);
        for (name, value) in line.iter().filter(|(name, _)| *name != "step") {
            let (Some(value), Some(step)) = (value.as_f64(), step) else {
                continue;
            };
            let key = Key {
                kind: kind.to_owned(),
                of: of.to_owned(),
                name: name.clone(),
            };
            let points = self.series.entry(key).or_default();
            let point = Point { step, seconds, value };
            // A step that was trained again after a restart has its last value. A coordinator
            // writes many lines in a step.
            match points.binary_search_by_key(&step, |point| point.step) {
                Ok(at) if kind != "coordinator" => points[at] = point,
                Err(at) if kind != "coordinator" => points.insert(at, point),
                _ => {
                    points.push(point);
                    if points.len() == MOST {
                        let mut place = 0;
                        points.retain(|_| {
                            place += 1;
                            place % 2 == 0
                        });
                    }
                }
            }
        }
    }
}

/// The figures of the runs that were read last.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Vec<(PathBuf, Arc<Mutex<Figures>>)>>);

impl Cache {
    /// Calls `use_them` with the figures of a run, as of now.
    pub(crate) fn with<R>(&self, folder: &RunFolder, use_them: impl FnOnce(&Figures) -> R) -> Result<R, FolderError> {
        let figures = self.entry(folder);
        let mut figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.extend(folder)?;
        Ok(use_them(&figures))
    }

    fn entry(&self, folder: &RunFolder) -> Arc<Mutex<Figures>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(path, _)| path == folder.path());
        let entry = match known {
            Some(at) => kept.remove(at),
            None => (folder.path().to_owned(), Arc::default()),
        };
        let figures = entry.1.clone();
        kept.push(entry);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
        figures
    }
}

/// A figure in at most so many points. `min` and `max` are present if points were merged: a mean
/// alone would hide spikes.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Thinned {
    #[serde(flatten)]
    pub(crate) key: Key,
    /// The number of points before merging; of a long run's coordinator, only some are counted.
    pub(crate) count: usize,
    pub(crate) x: Vec<u64>,
    /// Seconds since the process started.
    pub(crate) t: Vec<Option<f64>>,
    pub(crate) mean: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min: Option<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<Vec<f64>>,
}

/// Merges neighbours until at most `most` points are left.
pub(crate) fn thin(key: &Key, points: &[Point], most: usize) -> Thinned {
    let share = points.len().div_ceil(most.max(1)).max(1);
    let parts = || points.chunks(share);
    let last = |part: &[Point]| part.last().copied();
    let fold = |join: fn(f64, f64) -> f64| -> Vec<f64> {
        let values = |part: &[Point]| part.iter().map(|point| point.value).reduce(join);
        parts().filter_map(values).collect()
    };
    let sums = fold(|a, b| a + b);
    let mean = sums.iter().zip(parts()).map(|(sum, part)| sum / part.len() as f64);
    Thinned {
        key: key.clone(),
        count: points.len(),
        x: parts().filter_map(last).map(|point| point.step).collect(),
        t: parts().filter_map(last).map(|point| point.seconds).collect(),
        mean: mean.collect(),
        min: (share > 1).then(|| fold(f64::min)),
        max: (share > 1).then(|| fold(f64::max)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    fn key(kind: &str, of: &str, name: &str) -> Key {
        Key {
            kind: kind.into(),
            of: of.into(),
            name: name.into(),
        }
    }

    #[test]
    fn files_are_read_as_they_grow_and_a_repeated_step_counts_once() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let cache = Cache::default();
        let values = || {
            let of = key("train", "a", "loss");
            let read = |figures: &Figures| figures.series.get(&of).cloned().unwrap_or_default();
            let points = cache.with(&folder, read).unwrap();
            points.iter().map(|point| (point.step, point.value)).collect::<Vec<_>>()
        };
        assert!(values().is_empty());
        let line =
            |step: u64, loss: f64| format!("{{\"kind\":\"train\",\"agent\":\"a\",\"step\":{step},\"loss\":{loss}}}\n");
        let mut text = line(1, 0.5) + &line(2, 0.25);
        std::fs::write(folder.metrics("a"), &text).unwrap();
        assert_eq!(values(), [(1, 0.5), (2, 0.25)]);
        text += &(line(2, 0.75) + &line(3, 0.125));
        std::fs::write(folder.metrics("a"), &text).unwrap();
        assert_eq!(values(), [(1, 0.5), (2, 0.75), (3, 0.125)]);
    }

    #[test]
    fn figures_of_a_long_run_stay_small_and_end_with_the_newest() {
        let mut figures = Figures::default();
        let of = key("coordinator", "coordinator", "groups");
        for second in 0..100_001_u64 {
            let line = serde_json::json!({"kind": "coordinator", "step": second / 100, "groups": second});
            figures.add("coordinator", line.as_object().unwrap());
        }
        let points = &figures.series[&of];
        assert!((MOST / 2..MOST).contains(&points.len()), "{}", points.len());
        assert_eq!(points.last().unwrap().value, 100_000.0);
        assert!(points.is_sorted_by_key(|point| point.step));
    }

    #[test]
    fn merged_points_keep_their_spikes() {
        let point = |step: u64| Point {
            step,
            seconds: None,
            value: if step == 3 { 9.0 } else { 1.0 },
        };
        let points: Vec<Point> = (0..5).map(point).collect();
        let whole = thin(&key("train", "a", "x"), &points, 5);
        assert_eq!((whole.min, whole.mean.len()), (None, 5));
        let thinned = thin(&key("train", "a", "x"), &points, 3);
        assert_eq!(thinned.x, [1, 3, 4]);
        assert_eq!(thinned.mean, [1.0, 5.0, 1.0]);
        assert_eq!(thinned.max, Some(vec![1.0, 9.0, 1.0]));
        assert_eq!(thinned.count, 5);
    }
}
