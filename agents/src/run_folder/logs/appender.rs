//! Appends lines to a file on a separate thread: callers never wait for the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Bytes that may wait for the disk; lines beyond them are dropped and counted.
const WAITING: usize = 64 << 20;

enum Job {
    Line(Vec<u8>),
    Flush(Sender<()>),
}

/// Appends to one file. Clones share it; dropping the last one flushes it.
#[derive(Debug, Clone)]
pub struct Appender(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    jobs: Mutex<Option<Sender<Job>>>,
    waiting: Arc<AtomicUsize>,
    dropped: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Appender {
    /// Opens (or makes) the file and its folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::rotated(path, u64::MAX)
    }

    /// Opens the file as [`Appender::open`] does. Before it exceeds `largest` bytes it is renamed
    /// to `NAME.old.jsonl`, which replaces an older one, and a new file begins.
    pub fn rotated(path: &Path, largest: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = Sink::open(path, largest)?;
        let (jobs, queue) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&waiting);
        let thread = std::thread::Builder::new()
            .name("appender".into())
            .spawn(move || write_all(file, &queue, &counter))?;
        Ok(Self(Arc::new(Inner {
            jobs: Mutex::new(Some(jobs)),
            waiting,
            dropped: AtomicU64::new(0),
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// Queues a line; the newline is added. Never waits.
    pub fn line(&self, mut line: Vec<u8>) {
        line.push(b'\n');
        let size = line.len();
        if self.0.waiting.fetch_add(size, Ordering::Relaxed) + size > WAITING {
            self.0.waiting.fetch_sub(size, Ordering::Relaxed);
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.send(Job::Line(line));
    }

    /// Returns the number of lines dropped because the disk was too slow.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Returns when every line queued before is in the file. Blocks the thread.
    pub fn flush(&self) {
        let (done, wait) = mpsc::channel();
        self.send(Job::Flush(done));
        // An error means that the writer has ended, so no line is pending.
        let _ = wait.recv();
    }

    fn send(&self, job: Job) {
        if let Ok(jobs) = self.0.jobs.lock()
            && let Some(jobs) = jobs.as_ref()
        {
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(mut jobs) = self.jobs.lock() {
            jobs.take();
        }
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// The file, which is rotated before it exceeds `largest` bytes.
struct Sink {
    file: BufWriter<File>,
    path: PathBuf,
    size: u64,
    largest: u64,
}

impl Sink {
    fn open(path: &Path, largest: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            size: file.metadata()?.len(),
            file: BufWriter::with_capacity(1 << 16, file),
            path: path.to_owned(),
            largest,
        })
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size > 0
            && self.size + line.len() as u64 > self.largest
            && let Err(error) = self.rotate()
        {
            tracing::warn!(path = %self.path.display(), %error, "this file grows without a limit from now on");
            self.largest = u64::MAX;
        }
        self.size += line.len() as u64;
        self.file.write_all(line)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        std::fs::rename(&self.path, self.path.with_extension("old.jsonl"))?;
        *self = Self::open(&self.path, self.largest)?;
        Ok(())
    }
}

/// Writes each line, and flushes when the queue is empty. A full disk loses lines, not the process.
fn write_all(mut sink: Sink, queue: &Receiver<Job>, waiting: &AtomicUsize) {
    while let Ok(first) = queue.recv() {
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                Job::Line(line) => {
                    let _ = sink.line(&line);
                    waiting.fetch_sub(line.len(), Ordering::Relaxed);
                }
                Job::Flush(done) => {
                    let _ = sink.file.flush();
                    let _ = done.send(());
                }
            }
            next = queue.try_recv().ok();
        }
        let _ = sink.file.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_replaced_and_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        for number in 0..5 {
            Appender::rotated(&path, 10)
                .unwrap()
                .line(format!("line{number}").into_bytes());
        }
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(&path), "line4\n");
        assert_eq!(read(&folder.path().join("x.old.jsonl")), "line3\n");
    }

    #[test]
    fn a_flush_and_the_last_drop_write_the_lines_of_all_clones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/x.jsonl");
        let appender = Appender::open(&path).unwrap();
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let appender = appender.clone();
                std::thread::spawn(move || (0..100).for_each(|j| appender.line(format!("{i}/{j}").into_bytes())))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        appender.flush();
        let lines = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
        assert_eq!(lines(&path), 400);
        appender.line(b"last".to_vec());
        drop(appender);
        assert_eq!(lines(&path), 401);
        Appender::open(&path).unwrap().line(b"again".to_vec());
        assert_eq!(lines(&path), 402, "an appender appends to an existing file");
    }
}
