//! Reads the transcripts of a run from their beginnings: the oldest conversations first.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::path::{Path, PathBuf};

use super::Transcript;

/// The conversations of several files, in the order in which they ended.
#[derive(Debug)]
pub(crate) struct Oldest(Vec<Source>);

/// A file that is read from its beginning.
#[derive(Debug)]
struct Source {
    /// The file's name without `.jsonl`.
    name: String,
    length: u64,
    lines: BufReader<Take<File>>,
    /// The oldest conversation that was read and not taken, and the bytes of its line.
    waiting: Option<(usize, Transcript)>,
    /// The end of the last line that was read, and of the last one that was taken.
    read: u64,
    taken: u64,
}

impl Oldest {
    /// Opens the files at their beginnings. Each comes with the number of its bytes to read.
    pub(crate) fn open(files: &[(PathBuf, u64)]) -> io::Result<Self> {
        let open = |(path, length): &(PathBuf, u64)| Source::open(path, 0, *length);
        files.iter().map(open).collect::<io::Result<_>>().map(Self)
    }

    /// Opens whole files. With `offsets` of an earlier [`Oldest::rest`], reading goes on there.
    pub(crate) fn after(files: Vec<PathBuf>, offsets: Option<&BTreeMap<String, u64>>) -> io::Result<Self> {
        let open = |path: PathBuf| {
            let begin = offsets.and_then(|offsets| offsets.get(&name(&path)).copied());
            let length = std::fs::metadata(&path)?.len();
            Source::open(&path, begin.unwrap_or(0).min(length), length)
        };
        files.into_iter().map(open).collect::<io::Result<_>>().map(Self)
    }

    /// Returns the number of bytes of which no conversation was taken.
    pub(crate) fn unread(&self) -> u64 {
        self.0.iter().map(|source| source.length - source.taken).sum()
    }

    /// Returns the offset in each file from which conversations are still to come.
    pub(crate) fn rest(&self) -> BTreeMap<String, u64> {
        let offsets = self.0.iter().map(|source| (source.name.clone(), source.taken));
        offsets.collect()
    }

    /// Returns the next conversation and the bytes of its line. Lines that are none are skipped.
    pub(crate) fn next_transcript(&mut self) -> io::Result<Option<(usize, Transcript)>> {
        for source in &mut self.0 {
            source.fill()?;
        }
        // Several coordinators write at the same time: steps order their conversations.
        let waiting = self.0.iter_mut().filter(|source| source.waiting.is_some());
        let step = |source: &&mut Source| source.waiting.as_ref().map(|(_, transcript)| transcript.step);
        Ok(waiting.min_by_key(step).and_then(Source::take))
    }
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

impl Source {
    fn open(path: &Path, begin: u64, length: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(begin))?;
        Ok(Self {
            name: name(path),
            length,
            lines: BufReader::with_capacity(1 << 20, file.take(length.saturating_sub(begin))),
            waiting: None,
            read: begin,
            taken: begin,
        })
    }

    fn take(&mut self) -> Option<(usize, Transcript)> {
        self.taken = self.read;
        self.waiting.take()
    }

    /// Reads until a conversation waits. The last line counts if it ends with a newline.
    fn fill(&mut self) -> io::Result<()> {
        let mut line = Vec::new();
        while self.waiting.is_none() {
            line.clear();
            let read = self.lines.read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                return Ok(());
            }
            self.read += read as u64;
            self.waiting = serde_json::from_slice(&line).ok().map(|transcript| (read, transcript));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_of_two_files_come_in_order_of_steps() {
        let base = tempfile::tempdir().unwrap();
        let line = |step: u64| {
            let transcript = Transcript {
                conversation: step.to_string(),
                step,
                ..Transcript::default()
            };
            serde_json::to_string(&transcript).unwrap() + "\n"
        };
        let texts = [
            line(1) + "no conversation\n" + &line(4) + &line(6),
            line(2) + &line(3) + &line(5).replace('\n', ""),
        ];
        let mut files = Vec::new();
        for (name, text) in ["x", "y"].iter().zip(&texts) {
            let path = base.path().join(name);
            std::fs::write(&path, text).unwrap();
            files.push((path, text.len() as u64));
        }
        let steps = |files: &[(PathBuf, u64)]| -> Vec<u64> {
            let mut oldest = Oldest::open(files).unwrap();
            let next = || oldest.next_transcript().unwrap().map(|(_, one)| one.step);
            std::iter::from_fn(next).collect()
        };
        assert_eq!(steps(&files), [1, 2, 3, 4, 6], "5 is still being written");
        files[0].1 -= 1;
        assert_eq!(steps(&files), [1, 2, 3, 4], "a file is read up to its length");
        assert!(steps(&[]).is_empty());

        let paths: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
        let (mut found, mut offsets) = (Vec::new(), None);
        loop {
            let mut oldest = Oldest::after(paths.clone(), offsets.as_ref()).unwrap();
            let Some((_, one)) = oldest.next_transcript().unwrap() else {
                break;
            };
            found.push(one.step);
            offsets = Some(oldest.rest());
        }
        assert_eq!(found, [1, 2, 3, 4, 6], "one at a time");
    }
}
