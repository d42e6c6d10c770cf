//! The pages of a run, served by a process of their own: this one has libtorch loaded, which takes
//! more memory than the pages.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::child::{self, Held, Line};
use crate::cli::full_program;
use crate::run_folder::RunFolder;

/// The longest wait for the URL.
const PATIENCE: Duration = Duration::from_secs(10);
/// The process, in its lines.
const LABEL: &str = "dashboard";

/// A process that serves pages.
pub(crate) struct Pages {
    stop: oneshot::Sender<()>,
    watching: JoinHandle<()>,
}

impl Pages {
    /// Starts `dyad dashboard` for a run and prints the URL, which is the first line of that
    /// process. If it fails, its lines say why, and the run goes on without pages.
    pub(crate) async fn show(address: SocketAddr, folder: &RunFolder) -> Option<Self> {
        let line = Line {
            label: LABEL.to_owned(),
            index: 0,
            width: LABEL.len(),
        };
        let mut held = match start(address, folder, &line) {
            Ok(held) => held,
            Err(error) => {
                line.say(&format!("not started: {error:#}"));
                return None;
            }
        };
        if let Some(lines) = held.lines.take() {
            let mut lines = BufReader::new(lines).lines();
            if let Ok(Ok(Some(url))) = tokio::time::timeout(PATIENCE, lines.next_line()).await {
                println!("{url}");
            }
            line.forward(lines.into_inner());
        }
        let (stop, stopping) = oneshot::channel();
        let watching = tokio::spawn(async move {
            tokio::select! {
                ended = held.child.wait() => {
                    let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                    line.say(&format!("ended with {status}; the run goes on, and `dyad dashboard` shows it"));
                }
                _ = stopping => {
                    let _ = child::end(held).await;
                }
            }
        });
        Some(Self { stop, watching })
    }

    /// Ends the process.
    pub(crate) async fn close(self) {
        drop(self.stop);
        let _ = self.watching.await;
    }
}

fn start(address: SocketAddr, folder: &RunFolder, line: &Line) -> anyhow::Result<Held> {
    let run = folder.path().display().to_string();
    let args = ["dashboard", &run, "--listen", &address.to_string()].map(str::to_owned);
    child::spawn(&full_program::light()?, &args, line)
}
