//! The connection to an external trainer: a line of JSON for each message, one reply to each.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;

use super::messages::{Hello, Incoming, Message, Reply};
use crate::pulse::Pulse;

/// The size of each buffer in bytes: a batch is megabytes.
const BUFFER: usize = 1 << 20;

/// The connection. Its errors are texts: after any of them the program counts as lost.
pub(super) struct Line {
    incoming: BufReader<UnixStream>,
    outgoing: BufWriter<UnixStream>,
    pulse: Pulse,
}

impl Line {
    pub(super) fn new(stream: UnixStream) -> Result<Self, String> {
        let other = stream.try_clone().map_err(|error| error.to_string())?;
        Ok(Self {
            incoming: BufReader::with_capacity(BUFFER, stream),
            outgoing: BufWriter::with_capacity(BUFFER, other),
            pulse: Pulse::default(),
        })
    }

    /// Returns the counter that moves with each line of the program.
    pub(super) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    pub(super) fn hello(&mut self) -> Result<Hello, String> {
        self.read()
    }

    /// Sends a command and waits for its reply, however long that takes.
    pub(super) fn ask(&mut self, message: &Message<'_>) -> Result<Reply, String> {
        self.send(message)
            .map_err(|error| format!("sending a command: {error}"))?;
        loop {
            let incoming: Incoming = self.read()?;
            if incoming.progress.is_some() {
                continue;
            }
            if incoming.seq == message.seq() {
                return incoming.reply();
            }
            let (found, wanted) = (incoming.seq, message.seq());
            return Err(format!(
                "it answered command {found:?}, and command {wanted:?} was asked"
            ));
        }
    }

    /// Sends the command `end`.
    pub(super) fn end(&mut self) {
        if let Err(error) = self.send(&Message::End) {
            tracing::warn!(%error, "could not send `end` to the external trainer: it ends when the connection closes");
        }
    }

    fn send(&mut self, message: &Message<'_>) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.outgoing, message)?;
        self.outgoing.write_all(b"\n")?;
        self.outgoing.flush()
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        let read = self.incoming.read_line(&mut line);
        read.map_err(|error| format!("reading a reply: {error}"))?;
        self.pulse.mark();
        if !line.ends_with('\n') {
            return Err("it closed the connection: read its output".into());
        }
        serde_json::from_str(&line).map_err(|error| {
            let begin: String = line.chars().take(200).collect();
            format!(
                "it sent a line that is not a valid message ({error}): {}",
                begin.trim_end()
            )
        })
    }
}
