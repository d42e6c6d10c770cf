//! Fills a shelf: the trainer's thread copies, a second thread encodes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use broker::ids::WeightVersion;
use broker::protocol::engine::StateId;

use super::{Form, Shelf, State};
use crate::model::Weights;
use crate::weights::{SinkError, WeightSink};

/// Announces the newest state of the shelf after each publish.
pub type AnnounceState = Box<dyn FnMut(StateId) + Send>;

/// Publishes to a [`Shelf`]. The weights are copied before `publish` returns, so later steps do not
/// affect them.
#[derive(Debug)]
pub struct ShelfSink {
    form: Form,
    coder: SyncSender<(WeightVersion, Vec<u8>)>,
    newest: Option<WeightVersion>,
}

impl ShelfSink {
    /// Starts the encoding thread. At most one copy waits for it; a faster trainer waits in
    /// `publish`.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(name: &str, form: Form, shelf: Arc<Shelf>, announce: AnnounceState) -> std::io::Result<Self> {
        let (coder, copies) = sync_channel(1);
        std::thread::Builder::new()
            .name(format!("weights-{name}"))
            .spawn(move || code(form, &copies, &shelf, announce))?;
        Ok(Self {
            form,
            coder,
            newest: None,
        })
    }
}

impl WeightSink for ShelfSink {
    fn publish(&mut self, weights: &Weights, version: WeightVersion) -> Result<(), SinkError> {
        if let Some(newest) = self.newest.filter(|newest| *newest > version) {
            return Err(SinkError::Stale { version, newest });
        }
        let bytes = weights
            .to_bytes(self.form.dtype)
            .map_err(|source| SinkError::Copy { version, source })?;
        self.newest = Some(version);
        self.coder
            .send((version, bytes))
            .map_err(|_| SinkError::Closed { version })
    }
}

fn code(form: Form, copies: &Receiver<(WeightVersion, Vec<u8>)>, shelf: &Shelf, mut announce: AnnounceState) {
    while let Ok((version, bytes)) = copies.recv() {
        match State::new(form, version, bytes) {
            Ok(state) => {
                // A repeated publish is announced again.
                shelf.put(state);
                shelf.newest().into_iter().for_each(&mut announce);
            }
            Err(error) => tracing::error!(%error, %version, "weights cannot be offered to other processes"),
        }
    }
}
