//! Log lines by offset: the newest, older ones, and those that were written since.

use std::path::Path;
use std::time::UNIX_EPOCH;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dashboard::answer::ApiError;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::lines::{Backward, Line, forward};
use crate::run_folder::logs::{LogFilter, LogLine};

/// The most lines of an answer.
const MOST: usize = 200;
/// Bytes that are searched for older lines in one answer.
const READ: u64 = 16 << 20;
/// The longest text of a field.
const LONGEST: usize = 16 << 10;
/// The longest line that is parsed.
const LINE: usize = 1 << 20;

/// The filters and the place of a request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Query {
    #[schemars(range(max = 1_000_000))]
    limit: Option<usize>,
    #[schemars(regex(pattern = "^(error|warn|info|debug|trace)?$"))]
    level: Option<String>,
    /// Text in the line.
    q: Option<String>,
    conversation: Option<String>,
    /// Only lines that begin before this offset.
    #[schemars(range(max = 1_000_000_000_000_u64))]
    before: Option<u64>,
    /// Only lines that begin at this offset or later.
    #[schemars(range(max = 1_000_000_000_000_u64))]
    after: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Lines {
    lines: Vec<Shown>,
    /// The offset before which older lines are; 0 at the beginning of the file.
    start: u64,
    /// The offset at which new lines begin.
    end: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    at: u64,
    line: Map<String, Value>,
    /// True if a text was too long and is not whole.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Processes {
    logs: Vec<Process>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Process {
    process: String,
    bytes: u64,
    updated_ms: u64,
}

/// Returns the logs of a run.
pub(crate) fn processes(folder: &RunFolder) -> Result<Processes, ApiError> {
    let mut logs = Vec::new();
    for path in folder.files("logs")? {
        let data = std::fs::metadata(&path)?;
        let changed = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        logs.push(Process {
            process: name(&path),
            bytes: data.len(),
            updated_ms: u64::try_from(changed.as_millis()).unwrap_or(u64::MAX),
        });
    }
    Ok(Processes { logs })
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns lines of one process, in their order.
pub(crate) fn read(folder: &RunFolder, process: &str, query: &Query) -> Result<Lines, ApiError> {
    // The file comes from the folder's listing, never from the request.
    let files = folder.files("logs")?;
    let path = files.iter().find(|path| name(path) == process);
    let path = path.ok_or_else(|| ApiError::missing("the run has no log of this name"))?;
    let wanted = Wanted::of(query)?;
    match query.after {
        Some(after) => Ok(newer(path, after, &wanted)?),
        None => Ok(older(path, query.before, &wanted)?),
    }
}

struct Wanted {
    filter: LogFilter,
    text: String,
    limit: usize,
}

impl Wanted {
    fn of(query: &Query) -> Result<Self, ApiError> {
        let level = query.level.as_deref().filter(|level| !level.is_empty());
        let level = level.map(str::parse::<tracing::Level>).transpose();
        Ok(Self {
            filter: LogFilter {
                level: level.map_err(|_| ApiError::wrong("level is error, warn, info, debug or trace"))?,
                conversation: query.conversation.clone().filter(|id| !id.is_empty()),
            },
            text: query.q.clone().unwrap_or_default().to_lowercase(),
            limit: query.limit.unwrap_or(MOST).clamp(1, MOST),
        })
    }

    /// Returns the line if it is wanted.
    fn shown(&self, (at, line): &Line) -> Option<Shown> {
        let text = String::from_utf8_lossy(line);
        if !self.text.is_empty() && !text.to_lowercase().contains(&self.text) {
            return None;
        }
        let parsed = (text.len() <= LINE).then(|| LogLine::parse(&text)).flatten();
        let parsed = parsed.unwrap_or_else(|| {
            let start: String = text.chars().take(LONGEST).collect();
            LogLine(Map::from_iter([("message".to_owned(), start.into())]))
        });
        if !self.filter.wants(&parsed) {
            return None;
        }
        let LogLine(mut line) = parsed;
        let mut is_cut = text.len() > LINE;
        for value in line.values_mut() {
            is_cut |= cut(value);
        }
        Some(Shown {
            at: *at,
            line,
            cut: is_cut,
        })
    }
}

/// Shortens a long text. Returns true if it did.
fn cut(value: &mut Value) -> bool {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => value.to_string(),
        _ => return false,
    };
    if text.len() <= LONGEST {
        return false;
    }
    *value = text.chars().take(LONGEST / 4).collect::<String>().into();
    true
}

fn older(path: &Path, before: Option<u64>, wanted: &Wanted) -> std::io::Result<Lines> {
    let mut reader = Backward::open(path, before)?;
    let mut lines = Vec::new();
    let (mut start, mut end) = (reader.offset(), before);
    let begun = start;
    while lines.len() < wanted.limit && begun - start < READ {
        let Some(line) = reader.next_line()? else {
            start = 0;
            break;
        };
        // A line that is still being written belongs to the next answer.
        end.get_or_insert(line.0 + line.1.len() as u64 + 1);
        start = line.0;
        lines.extend(wanted.shown(&line));
    }
    lines.reverse();
    Ok(Lines {
        lines,
        start,
        end: end.unwrap_or(0),
    })
}

fn newer(path: &Path, after: u64, wanted: &Wanted) -> std::io::Result<Lines> {
    let (found, end) = forward(path, after)?;
    let start = found.first().map_or(end, |(at, _)| *at);
    let mut lines = Vec::new();
    let mut reached = end;
    for line in &found {
        if lines.len() == wanted.limit {
            reached = line.0;
            break;
        }
        lines.extend(wanted.shown(line));
    }
    Ok(Lines {
        lines,
        start,
        end: reached,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Seek, SeekFrom, Write};

    use super::*;
    use crate::dashboard::runs::tests::odd_paths;
    use crate::run_folder::tests::{bytes_read, config_in};

    fn line(number: usize, level: &str) -> String {
        format!(
            "{{\"time\":\"t{number:03}\",\"level\":\"{level}\",\"message\":\"m{number:03}\",\"conversation_id\":\"ab/{number}\"}}\n"
        )
    }

    fn messages(lines: &Lines) -> Vec<&str> {
        lines
            .lines
            .iter()
            .filter_map(|one| one.line["message"].as_str())
            .collect()
    }

    #[test]
    fn newest_older_and_new_lines_follow_each_other() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let mut text: String = (0..10).map(|i| line(i, "INFO")).collect();
        text += "{\"half";
        std::fs::write(folder.log("a"), &text).unwrap();
        let read = |query: Query| read(&folder, "a", &query).unwrap();
        let query = |before, after| Query {
            limit: Some(3),
            before,
            after,
            ..Query::default()
        };
        let newest = read(query(None, None));
        assert_eq!(messages(&newest), ["m007", "m008", "m009"]);
        assert_eq!(
            messages(&read(query(Some(newest.start), None))),
            ["m004", "m005", "m006"]
        );
        assert!(messages(&read(query(None, Some(newest.end)))).is_empty());
        std::fs::write(folder.log("a"), text.replace("{\"half", &line(10, "INFO"))).unwrap();
        assert_eq!(messages(&read(query(None, Some(newest.end)))), ["m010"]);
        let all = read(Query::default());
        assert_eq!((all.lines.len(), all.start), (11, 0));
    }

    #[test]
    fn lines_are_filtered_and_long_ones_are_cut() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let long = format!(
            "{{\"level\":\"WARN\",\"message\":\"{}\"}}\nno json\n",
            "x".repeat(LONGEST + 1)
        );
        std::fs::write(folder.log("a"), line(1, "INFO") + &line(2, "ERROR") + &long).unwrap();
        let found = |change: fn(&mut Query)| {
            let mut query = Query::default();
            change(&mut query);
            read(&folder, "a", &query).unwrap()
        };
        assert_eq!(
            messages(&found(|query| query.level = Some("error".into()))),
            ["m002", "no json"]
        );
        assert_eq!(messages(&found(|query| query.q = Some("M001".into()))), ["m001"]);
        assert_eq!(
            messages(&found(|query| query.conversation = Some("ab/2".into()))),
            ["m002"]
        );
        let cut = found(|query| query.q = Some("xxx".into()));
        assert!(cut.lines[0].cut && messages(&cut)[0].len() == LONGEST / 4);
        for wrong in ["", "b", "../run", "a.jsonl"] {
            assert_eq!(
                read(&folder, wrong, &Query::default()).unwrap_err().status,
                404,
                "{wrong}"
            );
        }
    }

    /// The log has a hole of 100 MB before its last lines.
    #[test]
    fn end_of_a_long_log_is_shown_without_reading_the_rest() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let mut file = File::create(folder.log("a")).unwrap();
        file.seek(SeekFrom::Start(100 << 20)).unwrap();
        file.write_all(b"\n").unwrap();
        let mut add = |numbers: std::ops::Range<usize>| {
            let text: String = numbers.map(|number| line(number, "INFO")).collect();
            file.write_all(text.as_bytes()).unwrap();
        };
        add(0..1000);
        let look = |query: Query| {
            let before = bytes_read();
            let lines = read(&folder, "a", &query).unwrap();
            (lines, bytes_read() - before)
        };
        let (newest, first) = look(Query::default());
        assert_eq!((newest.lines.len(), messages(&newest)[MOST - 1]), (MOST, "m999"));
        assert!(first < 128 << 10, "{first} bytes");
        let (before, second) = look(Query {
            before: Some(newest.start),
            ..Query::default()
        });
        assert_eq!(messages(&before)[MOST - 1], "m799");
        assert!(second < 128 << 10, "{second} bytes");
        add(1000..1001);
        let (new, third) = look(Query {
            after: Some(newest.end),
            ..Query::default()
        });
        assert_eq!(messages(&new), ["m1000"]);
        assert!(third < 16 << 10, "{third} bytes");
    }

    #[test]
    fn ten_thousand_names_lead_to_no_other_log() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        std::fs::write(folder.log("a"), line(1, "INFO")).unwrap();
        for outside in [folder.path().join("notes.jsonl"), base.path().join("notes.jsonl")] {
            std::fs::write(outside, line(2, "INFO")).unwrap();
        }
        let names = odd_paths(&["a", "notes", ".jsonl", "logs"]).filter(|name| name != "a");
        for name in names.take(10_000) {
            let found = read(&folder, &name, &Query::default());
            assert_eq!(found.err().map(|error| error.status), Some(404), "{name:?}");
        }
    }
}
