//! Being told to stop: SIGTERM or an interruption from the keyboard. The first asks, the second insists.

use std::io::Read;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Set by a supervisor that holds the process by its standard input: its end is the supervisor's.
pub const SUPERVISED: &str = "DYAD_SUPERVISED";

/// All ways of being told, as one stream.
pub struct Signals {
    term: Signal,
    interrupt: Signal,
    /// Resolves when the supervisor is gone.
    alone: Option<oneshot::Receiver<()>>,
}

impl Signals {
    /// From now on these signals no longer end the process by themselves.
    ///
    /// # Errors
    /// The system's.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            alone: std::env::var_os(SUPERVISED).map(|_| leash()).transpose()?,
        })
    }

    /// The next one. Cancelling it loses none.
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
        Some(told) => {
            // Told, or its thread has ended: the same.
            let _ = told.await;
            *alone = None;
        }
        None => std::future::pending().await,
    }
}

/// Reads the standard input to its end on a thread of its own: it blocks.
fn leash() -> std::io::Result<oneshot::Receiver<()>> {
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new().name("leash".into()).spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        let _ = tell.send(());
    })?;
    Ok(told)
}
