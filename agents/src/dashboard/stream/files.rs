//! New lines of a run's files as events. An event's id has the offset in every file from which
//! reading goes on after it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use actix_web::web::Bytes;
use serde_json::{Value, json};

use super::outbox::Outbox;
use crate::base::log_scope;
use crate::dashboard::answer::ApiError;
use crate::dashboard::api::conversations;
use crate::dashboard::offsets::Offsets;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::lines;

/// The time from a read without a new line until the next one.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest line that is sent, in bytes. Of a longer line only the size is sent.
const LONGEST: usize = 64 << 10;

/// The files of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileTopic {
    /// The log of one process.
    Log(String),
    Metrics,
    /// Transcripts: conversations that have ended.
    Ended,
}

impl FileTopic {
    fn name(&self) -> &'static str {
        match self {
            Self::Log(_) => "log",
            Self::Metrics => "metrics",
            Self::Ended => "ended",
        }
    }

    fn part(&self) -> &'static str {
        match self {
            Self::Log(_) => "logs",
            Self::Metrics => "metrics",
            Self::Ended => "transcripts",
        }
    }

    /// Returns each file's name in ids, its process and its path. The paths come from the folder's
    /// listing, never from the request.
    fn files(&self, folder: &RunFolder) -> Result<Vec<(String, String, PathBuf)>, ApiError> {
        let named = |path: PathBuf| {
            let process = path.file_stem()?.to_str()?.to_owned();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            let is_wanted = !matches!(self, Self::Log(wanted) if *wanted != process);
            (process.chars().all(is_plain) && is_wanted).then(|| (format!("{}/{process}", self.part()), process, path))
        };
        Ok(folder.files(self.part())?.into_iter().filter_map(named).collect())
    }

    /// Returns the data of a line's event; `None` if the line cannot be parsed.
    fn data(&self, process: &str, line: &[u8]) -> Option<Value> {
        if *self == Self::Ended {
            return serde_json::to_value(conversations::summary(serde_json::from_slice(line).ok()?)).ok();
        }
        if line.len() > LONGEST {
            return Some(json!({"process": process, "cut": line.len()}));
        }
        let line: Value = serde_json::from_slice(line).ok()?;
        Some(json!({"process": process, "line": line}))
    }
}

/// The files of a stream and how far each was read.
#[derive(Debug)]
pub(super) struct FileTail {
    folder: RunFolder,
    topics: Vec<FileTopic>,
    read: Offsets,
}

impl FileTail {
    /// Begins after the event with the id `last`, or else at the end of each file.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn open(folder: RunFolder, topics: Vec<FileTopic>, last: Option<Offsets>) -> Result<Self, ApiError> {
        let read = match last {
            // A file that `last` does not name was created later. It is read from its start.
            Some(last) => last,
            None => {
                let mut ends = Offsets::default();
                for topic in &topics {
                    for (name, _, path) in topic.files(&folder)? {
                        ends.0.insert(name, lines::end(&path)?);
                    }
                }
                ends
            }
        };
        Ok(Self { folder, topics, read })
    }

    /// Returns an event without data. With its id a client can reconnect before any line was sent.
    fn begin(&self) -> Bytes {
        // A client keeps no empty id, and would begin at the ends of the files again.
        let id = if self.read.0.is_empty() {
            "none@0".into()
        } else {
            self.read.to_string()
        };
        Bytes::from(format!("id: {id}\nevent: begin\ndata: {{}}\n\n"))
    }

    /// Reads what was written since the last call. A file that cannot be read now is read later.
    fn extend(&mut self) -> Vec<Bytes> {
        let mut events = Vec::new();
        for topic in self.topics.clone() {
            for (name, process, path) in topic.files(&self.folder).unwrap_or_default() {
                if let Err(error) = self.extend_by(&topic, (&name, &process), &path, &mut events) {
                    tracing::debug!(%error, path = %path.display(), "a streamed file cannot be read");
                }
            }
        }
        events
    }

    fn extend_by(
        &mut self,
        topic: &FileTopic,
        (name, process): (&str, &str),
        path: &Path,
        events: &mut Vec<Bytes>,
    ) -> io::Result<()> {
        let before = self.read.0.get(name).copied().unwrap_or(0);
        let (found, end) = lines::forward(path, before)?;
        for (at, line) in found {
            self.read.0.insert(name.to_owned(), at + line.len() as u64 + 1);
            if let Some(data) = topic.data(process, &line) {
                let (id, name) = (&self.read, topic.name());
                events.push(Bytes::from(format!("id: {id}\nevent: {name}\ndata: {data}\n\n")));
            }
        }
        self.read.0.insert(name.to_owned(), end);
        Ok(())
    }

    /// Sends new lines until the client disconnects. A slow client delays lines; it misses none.
    pub(super) async fn forward(mut self, send: Outbox) {
        if !send.send(self.begin()).await {
            return;
        }
        loop {
            let read = log_scope::spawn_blocking(move || (self.extend(), self)).await;
            let Ok((events, rest)) = read else { return };
            self = rest;
            let is_over = events.is_empty();
            for event in events {
                if !send.send(event).await {
                    return;
                }
            }
            if is_over {
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = send.closed() => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::dashboard::runs::tests::odd_paths;
    use crate::run_folder::tests::config_in;

    fn append(path: &Path, text: &str) {
        let old = fs::read_to_string(path).unwrap_or_default();
        fs::write(path, old + text).unwrap();
    }

    fn line(number: usize) -> String {
        format!("{{\"message\":\"m{number}\"}}\n")
    }

    /// Returns the id and the data of an event.
    fn parts(event: &Bytes) -> (Offsets, Value) {
        let text = std::str::from_utf8(event).unwrap();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        (
            Offsets::parse(field("id: ")).unwrap(),
            serde_json::from_str(field("data: ")).unwrap(),
        )
    }

    #[test]
    fn connection_broken_after_any_event_misses_nothing_and_repeats_nothing() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let topics = vec![FileTopic::Log("a".into()), FileTopic::Metrics];
        let open = |last| FileTail::open(folder.clone(), topics.clone(), last).unwrap();
        append(&folder.log("a"), &(line(0) + "{\"mess"));
        let begin = parts(&open(None).begin()).0;
        append(&folder.log("a"), "age\":\"m1\"}\nno json\n");
        append(&folder.log("b"), &line(9));
        append(&folder.metrics("a"), &(line(2) + &line(3)));
        let numbers = |events: &[Bytes]| -> Vec<Value> {
            events
                .iter()
                .map(|event| parts(event).1["line"]["message"].clone())
                .collect()
        };
        let whole = open(Some(begin)).extend();
        assert_eq!(numbers(&whole), ["m1", "m2", "m3"]);
        append(&folder.metrics("b"), &line(4));
        for broken in 1..=whole.len() {
            let (last, _) = parts(&whole[broken - 1]);
            let rest = open(Some(last)).extend();
            let both: Vec<Value> = numbers(&whole[..broken]).into_iter().chain(numbers(&rest)).collect();
            assert_eq!(both, ["m1", "m2", "m3", "m4"], "broken after {broken}");
        }
    }

    #[test]
    fn unreadable_file_keeps_no_line_of_another_back() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let topics = vec![FileTopic::Log("a".into()), FileTopic::Metrics];
        let mut tail = FileTail::open(folder.clone(), topics, None).unwrap();
        append(&folder.log("a"), &line(0));
        fs::create_dir_all(folder.metrics("a")).unwrap();
        assert_eq!(tail.extend().len(), 1);
    }

    #[test]
    fn long_lines_are_announced_by_their_size() {
        let data = FileTopic::Metrics
            .data("a", "x".repeat(LONGEST + 1).as_bytes())
            .unwrap();
        assert_eq!(data["cut"], LONGEST + 1);
    }

    #[test]
    fn ten_thousand_topics_lead_to_no_other_log() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        for path in [folder.log("a"), folder.path().join("notes.jsonl")] {
            append(&path, &line(0));
        }
        let found = |name: &str| FileTopic::Log(name.into()).files(&folder).unwrap();
        assert_eq!(found("a").len(), 1);
        let names = odd_paths(&["a", "notes", ".jsonl", "logs"]).filter(|name| name != "a");
        for name in names.take(10_000) {
            assert!(found(&name).is_empty(), "{name:?}");
        }
    }
}
