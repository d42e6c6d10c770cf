//! Stop requests: SIGTERM or an interrupt from the keyboard. The first asks, the second forces.

use std::io::Read;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Set by a supervisor that holds the process by its standard input: the process stops when the
/// supervisor ends.
pub const SUPERVISED: &str = "DYAD_SUPERVISED";

/// All stop requests as one stream.
pub struct Signals {
    term: Signal,
    interrupt: Signal,
    /// Resolves when the supervisor is gone.
    alone: Option<oneshot::Receiver<()>>,
}

impl Signals {
    /// Starts to listen: from now on these signals no longer end the process by themselves.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            alone: std::env::var_os(SUPERVISED).map(|_| leash()).transpose()?,
        })
    }

    /// Returns true if a supervisor holds this process and has not ended.
    pub fn has_supervisor(&self) -> bool {
        self.alone.is_some()
    }

    /// Waits for the next stop request. Cancelling it loses none.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
            () = gone(&mut self.alone) => {}
        }
    }
}

async fn gone(alone: &mut Option<oneshot::Receiver<()>>) {
    match alone {
        Some(closed) => {
            // A message and a dropped sender mean the same.
            let _ = closed.await;
            *alone = None;
        }
        None => std::future::pending().await,
    }
}

/// Reads the standard input to its end. It blocks, so it has a separate thread.
fn leash() -> std::io::Result<oneshot::Receiver<()>> {
    let (close, closed) = oneshot::channel();
    std::thread::Builder::new().name("leash".into()).spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        let _ = close.send(());
    })?;
    Ok(closed)
}
