//! Fills a shelf: the trainer's thread copies, a thread of its own codes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use broker::ids::WeightVersion;
use broker::protocol::engine::StateId;

use super::{Form, Shelf, State};
use crate::model::Weights;
use crate::weights::{SinkError, WeightSink};

/// Says what is on the shelf, each time something was published.
pub type AnnounceState = Box<dyn FnMut(StateId) + Send>;

/// Publishes to a [`Shelf`]. The weights are copied before `publish` returns, so a later step never shows in them.
#[derive(Debug)]
pub struct ShelfSink {
    form: Form,
    coder: SyncSender<(WeightVersion, Vec<u8>)>,
    newest: Option<WeightVersion>,
}

impl ShelfSink {
    /// Starts the thread that codes. At most one copy waits for it: a trainer that is faster waits in `publish`.
    ///
    /// # Errors
    /// The system gives no thread.
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
                // Published again, it is announced again.
                shelf.put(state);
                shelf.newest().into_iter().for_each(&mut announce);
            }
            Err(error) => tracing::error!(%error, %version, "weights cannot be offered to other processes"),
        }
    }
}
