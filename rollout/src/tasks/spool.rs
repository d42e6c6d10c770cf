//! Tasks that were read once, in a file without a name: it vanishes with the process, and tasks are
//! found by place.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use broker::protocol::task::Task;

/// A spool that is being filled.
pub(super) struct Writer {
    file: BufWriter<File>,
    /// The offset of each task, and at last the end.
    starts: Vec<u64>,
}

/// A filled spool.
pub(super) struct Spool {
    file: BufReader<File>,
    starts: Vec<u64>,
}

impl Writer {
    /// Makes the file in the system's folder for temporary files (`TMPDIR`).
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            file: BufWriter::new(tempfile::tempfile()?),
            starts: vec![0],
        })
    }

    pub(super) fn push(&mut self, task: &Task) -> io::Result<()> {
        let bytes = serde_json::to_vec(task)?;
        self.file.write_all(&bytes)?;
        let end = self.starts.last().copied().unwrap_or(0);
        self.starts.push(end + bytes.len() as u64);
        Ok(())
    }

    pub(super) fn done(self) -> io::Result<Spool> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Spool {
            file: BufReader::new(file),
            starts: self.starts,
        })
    }
}

impl Spool {
    pub(super) fn get(&mut self, item: u64) -> io::Result<Task> {
        let at = usize::try_from(item).unwrap_or(usize::MAX);
        let (Some(from), Some(to)) = (
            self.starts.get(at),
            at.checked_add(1).and_then(|next| self.starts.get(next)),
        ) else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("there is no task {item}"),
            ));
        };
        let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
        self.file.seek(SeekFrom::Start(*from))?;
        self.file.read_exact(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::protocol::task::Prompt;

    #[test]
    fn tasks_are_found_by_their_place_in_any_order() {
        let task = |n: u64| Task {
            id: n.is_multiple_of(2).then(|| format!("id-{n}")),
            workflow: None,
            prompt: Prompt::Text("é".repeat(n as usize)),
            label: serde_json::json!({ "n": n, "none": null }),
            metadata: serde_json::Map::new(),
            tools: None,
        };
        let mut writer = Writer::new().unwrap();
        (0..50).for_each(|n| writer.push(&task(n)).unwrap());
        let mut spool = writer.done().unwrap();
        for n in [49, 0, 7, 7, 30] {
            assert_eq!(spool.get(n).unwrap(), task(n));
        }
        assert!(spool.get(50).is_err() && spool.get(u64::MAX).is_err());
    }
}
