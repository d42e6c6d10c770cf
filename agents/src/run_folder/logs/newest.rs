//! Reads the transcripts of a run from their ends: the newest conversations first.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::Transcript;
use super::lines::Backward;

/// The conversations of several files, the newest first.
#[derive(Debug)]
pub(crate) struct Newest(Vec<Source>);

/// A file that is read from its end.
#[derive(Debug)]
struct Source {
    /// The file's name without `.jsonl`.
    name: String,
    lines: Backward,
    /// The newest conversation that was read and not taken, and the offset of its line.
    waiting: Option<(u64, Transcript)>,
    /// The offset before which no conversation was taken.
    rest: u64,
}

impl Newest {
    /// Opens the files at their ends. With `before`, the offsets of an earlier [`Newest::rest`],
    /// reading goes on there; other files have only newer conversations and are left out.
    pub(crate) fn open(files: Vec<PathBuf>, before: Option<&BTreeMap<String, u64>>) -> io::Result<Self> {
        let mut sources = Vec::new();
        for path in files {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let offset = before.map(|offsets| offsets.get(&name).copied());
            if offset == Some(None) {
                continue;
            }
            let lines = Backward::open(&path, offset.flatten())?;
            sources.push(Source {
                name,
                rest: lines.offset(),
                lines,
                waiting: None,
            });
        }
        Ok(Self(sources))
    }

    /// Returns the next older conversation. Lines that are none are skipped.
    pub(crate) fn next_transcript(&mut self) -> io::Result<Option<Transcript>> {
        for source in &mut self.0 {
            source.fill()?;
        }
        // Several coordinators write at the same time: steps order their conversations.
        let step = |source: &&mut Source| source.waiting.as_ref().map(|(_, transcript)| transcript.step);
        Ok(self.0.iter_mut().max_by_key(step).and_then(Source::take))
    }

    /// Returns the number of bytes of which no conversation was taken.
    pub(crate) fn unread(&self) -> u64 {
        self.0.iter().map(|source| source.rest).sum()
    }

    /// Returns the offset in each file up to which conversations are still to come.
    pub(crate) fn rest(&self) -> BTreeMap<String, u64> {
        let offsets = self.0.iter().map(|source| (source.name.clone(), source.rest));
        offsets.collect()
    }
}

impl Source {
    /// Reads until a conversation waits.
    fn fill(&mut self) -> io::Result<()> {
        while self.waiting.is_none() {
            let Some((at, line)) = self.lines.next_line()? else {
                self.rest = 0;
                return Ok(());
            };
            match serde_json::from_slice(&line) {
                Ok(transcript) => self.waiting = Some((at, transcript)),
                Err(_) => self.rest = at,
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Option<Transcript> {
        let (at, transcript) = self.waiting.take()?;
        self.rest = at;
        Some(transcript)
    }
}
