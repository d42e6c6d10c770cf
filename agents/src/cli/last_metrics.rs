//! The newest lines of a run's metrics files.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::run_folder::RunFolder;
use crate::run_folder::logs::Growing;

/// The newest lines of the metrics files.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LastMetrics {
    pub train: BTreeMap<String, Map<String, Value>>,
    /// By agent, the number of newest batches in succession from which nothing could be learned, at
    /// most 32: all groups had equal rewards, or no token trained.
    pub idle: BTreeMap<String, u64>,
    pub eval: Option<Map<String, Value>>,
    /// The reason why the run stopped, if it has trained nothing since.
    pub stalled: Option<Map<String, Value>>,
    /// Samples that were left at the run's end, of all agents.
    #[serde(skip)]
    pub left: u64,
    /// By coordinator.
    #[serde(skip)]
    pub rates: BTreeMap<String, CoordinatorRates>,
}

/// Turns and conversations per second over the newest lines of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoordinatorRates {
    pub turns: f64,
    pub conversations: f64,
}

/// Lines of totals that a rate is over; a coordinator writes one each second.
const RATE_LINES: usize = 10;

/// The most batches that are counted as idle: a reader that begins late has read so many.
const MOST_IDLE: u64 = 32;

/// The number of bytes at the end of a file with which reading begins. A file grows over the whole
/// run, and the lines that count are its newest: about a hundred batches, or minutes of totals.
const NEWEST: u64 = 256 << 10;

/// Reads the metrics files of one run as they grow, and keeps a few lines of each.
#[derive(Debug, Default)]
pub struct MetricsReader {
    files: BTreeMap<PathBuf, FileReader>,
}

/// One file, and how far it was read.
#[derive(Debug)]
struct FileReader {
    read: Growing,
    newest: NewestLines,
}

impl Default for FileReader {
    fn default() -> Self {
        Self {
            read: Growing::from_newest(NEWEST),
            newest: NewestLines::default(),
        }
    }
}

/// The newest lines of one file.
#[derive(Debug, Default)]
struct NewestLines {
    train: BTreeMap<String, Map<String, Value>>,
    idle: BTreeMap<String, u64>,
    eval: Option<Map<String, Value>>,
    stalled: Option<Map<String, Value>>,
    left: u64,
    /// The newest lines of a coordinator.
    totals: VecDeque<Map<String, Value>>,
}

/// Reads the newest lines once.
pub fn last_metrics(folder: &RunFolder) -> anyhow::Result<LastMetrics> {
    MetricsReader::default().last(folder)
}

impl MetricsReader {
    /// Returns the newest `train` line of each agent, the newest `eval` line, and why the run
    /// stopped. Reads only the newest part of each file, and later what was written since the last
    /// call.
    pub fn last(&mut self, folder: &RunFolder) -> anyhow::Result<LastMetrics> {
        let paths = folder.files("metrics")?;
        self.files.retain(|path, _| paths.contains(path));
        let mut last = LastMetrics::default();
        for path in paths {
            let process = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let file = self.files.entry(path.clone()).or_default();
            file.extend(&path)?;
            let newest = &file.newest;
            last.train.extend(newest.train.clone());
            last.idle.extend(newest.idle.clone());
            keep_later(&mut last.eval, newest.eval.clone());
            keep_later(&mut last.stalled, newest.stalled.clone());
            last.left += newest.left;
            if let Some((name, rates)) = process.strip_prefix("coordinator-").zip(rates(&newest.totals)) {
                last.rates.insert(name.to_owned(), rates);
            }
        }
        // The line of a batch has the step that the batch made.
        let trained = last.train.values().filter_map(step).max();
        last.stalled = last.stalled.filter(|stalled| step(stalled) >= trained);
        Ok(last)
    }
}

impl FileReader {
    fn extend(&mut self, path: &Path) -> io::Result<()> {
        let Some(mut lines) = self.read.open(path)? else {
            *self = Self::default();
            return self.extend(path);
        };
        while let Some(line) = lines.next_line()? {
            if let Ok(line) = serde_json::from_slice(line) {
                self.newest.add(line);
            }
        }
        Ok(())
    }
}

impl NewestLines {
    fn add(&mut self, line: Map<String, Value>) {
        match line.get("kind").and_then(Value::as_str) {
            Some("train") => {
                let agent = line.get("agent").and_then(Value::as_str).unwrap_or_default().to_owned();
                let is_idle = line.get("collapse/idle").and_then(Value::as_u64) == Some(1);
                let idle = self.idle.entry(agent.clone()).or_default();
                *idle = if is_idle { (*idle + 1).min(MOST_IDLE) } else { 0 };
                self.train.insert(agent, line);
            }
            Some("eval") => keep_later(&mut self.eval, Some(line)),
            Some("stalled") => keep_later(&mut self.stalled, Some(line)),
            Some("discarded") => self.left += line.get("discarded/run_ended").and_then(Value::as_u64).unwrap_or(0),
            Some("coordinator") => {
                if self.totals.len() == RATE_LINES {
                    self.totals.pop_front();
                }
                self.totals.push_back(line);
            }
            _ => {}
        }
    }
}

fn step(line: &Map<String, Value>) -> Option<u64> {
    line.get("step").and_then(Value::as_u64)
}

/// Keeps the line of the later step, or the newer line of the same step.
fn keep_later(newest: &mut Option<Map<String, Value>>, line: Option<Map<String, Value>>) {
    if let Some(line) = line
        && newest.as_ref().is_none_or(|newest| step(newest) <= step(&line))
    {
        *newest = Some(line);
    }
}

/// Returns the rates between the first and the last line.
fn rates(totals: &VecDeque<Map<String, Value>>) -> Option<CoordinatorRates> {
    let (first, last) = (totals.front()?, totals.back()?);
    let grown = |name: &str| Some(last.get(name)?.as_f64()? - first.get(name)?.as_f64()?);
    let seconds = grown("time/elapsed_s").filter(|seconds| *seconds > 0.0)?;
    Some(CoordinatorRates {
        turns: grown("turns")? / seconds,
        conversations: grown("conversations")? / seconds,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write;

    use super::*;
    use crate::run_folder::tests::{bytes_read, config_in};

    fn append(path: &Path, text: &str) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn train(step: u64) -> String {
        let zero = u64::from(step > 1);
        format!("{{\"kind\":\"train\",\"agent\":\"a\",\"step\":{step},\"collapse/idle\":{zero}}}\n")
    }

    fn totals(second: u64) -> String {
        let turns = second * second;
        format!(
            "{{\"kind\":\"coordinator\",\"time/elapsed_s\":{second},\"turns\":{turns},\"conversations\":{second}}}\n"
        )
    }

    #[test]
    fn values_follow_every_change_of_the_files() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let (agent, coordinator) = (folder.metrics("a"), folder.metrics("coordinator-c1"));
        let mut reader = MetricsReader::default();
        // Files that were read as they grew give what they give at once.
        let mut look = || {
            let last = reader.last(&folder).unwrap();
            assert_eq!(last, last_metrics(&folder).unwrap());
            last
        };
        assert_eq!(look(), LastMetrics::default());
        append(&agent, &(train(1) + &train(2)));
        append(&coordinator, &(1..=30).map(totals).collect::<String>());
        append(
            &folder.metrics("coordinator"),
            "{\"kind\":\"eval\",\"step\":2,\"success\":0.5}\n",
        );
        let last = look();
        assert_eq!((&last.train["a"]["step"], last.idle["a"]), (&2.into(), 1));
        // Between seconds 21 and 30.
        assert_eq!((last.rates["c1"].turns, last.rates["c1"].conversations), (51.0, 1.0));
        assert_eq!(last.eval.unwrap()["success"], 0.5);
        let (begin, end) = (train(3), train(4));
        append(&agent, &(begin + &end[..9]));
        assert_eq!(look().train["a"]["step"], 3, "the last line is still being written");
        append(&agent, &end[9..]);
        append(
            &agent,
            "{\"kind\":\"discarded\",\"discarded/run_ended\":7}\n{\"kind\":\"stalled\",\"step\":4}\n",
        );
        append(&coordinator, &(31..=33).map(totals).collect::<String>());
        let last = look();
        assert_eq!(
            (
                &last.train["a"]["step"],
                last.idle["a"],
                last.left,
                last.stalled.is_some()
            ),
            (&4.into(), 3, 7, true)
        );
        assert_eq!(last.rates["c1"].turns, 57.0);
        std::fs::write(&agent, train(1)).unwrap();
        let last = look();
        let values = (&last.train["a"]["step"], last.idle["a"], last.left);
        assert_eq!(values, (&1.into(), 0, 0), "shorter");
        let new = base.path().join("new");
        append(&new, &(train(8) + &train(9) + &train(6)));
        std::fs::rename(&new, &agent).unwrap();
        assert_eq!(look().train["a"]["step"], 6, "replaced");
        std::fs::remove_file(&coordinator).unwrap();
        assert!(look().rates.is_empty(), "removed");
    }

    #[test]
    fn looks_read_the_end_and_then_what_was_added() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let path = folder.metrics("coordinator-c1");
        append(&path, &(0..20_000).map(totals).collect::<String>());
        let length = File::open(&path).unwrap().metadata().unwrap().len();
        let mut reader = MetricsReader::default();
        let mut look = || {
            let before = bytes_read();
            let turns = reader.last(&folder).unwrap().rates["c1"].turns;
            (turns, bytes_read() - before)
        };
        let (turns, first) = look();
        assert_eq!(turns, 39_989.0);
        assert!(length > 4 * NEWEST, "{length} bytes are no long file");
        assert!(first < NEWEST + (16 << 10), "{first} of {length} bytes");
        append(&path, &totals(20_000));
        let (turns, second) = look();
        assert_eq!(turns, 39_991.0);
        assert!(second < 16 << 10, "{second} bytes");
    }

    #[test]
    fn few_lines_of_a_long_file_are_kept() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let path = folder.metrics("coordinator-c1");
        append(
            &path,
            &(0..1000)
                .map(|second| totals(second) + &train(second))
                .collect::<String>(),
        );
        let mut reader = MetricsReader::default();
        reader.last(&folder).unwrap();
        let newest = &reader.files[&path].newest;
        assert_eq!((newest.totals.len(), newest.train.len()), (RATE_LINES, 1));
    }
}
