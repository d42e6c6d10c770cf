//! Appends lines to a file on a separate thread: callers never wait for the disk.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::Path;
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
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let (jobs, queue) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&waiting);
        let thread = std::thread::Builder::new()
            .name("appender".into())
            .spawn(move || write_all(BufWriter::with_capacity(1 << 16, file), &queue, &counter))?;
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

/// Writes each line, and flushes when the queue is empty. A full disk loses lines, not the process.
fn write_all(mut file: BufWriter<std::fs::File>, queue: &Receiver<Job>, waiting: &AtomicUsize) {
    while let Ok(first) = queue.recv() {
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                Job::Line(line) => {
                    let _ = file.write_all(&line);
                    waiting.fetch_sub(line.len(), Ordering::Relaxed);
                }
                Job::Flush(done) => {
                    let _ = file.flush();
                    let _ = done.send(());
                }
            }
            next = queue.try_recv().ok();
        }
        let _ = file.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
