//! Fills a shelf: the trainer's thread copies, a second thread encodes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use broker::ids::WeightVersion;
use broker::protocol::engine::StateId;

use super::{Form, Shelf, State};
use crate::model::{ParamSource, kind_of};
use crate::weights::{SinkError, WeightSink};

/// Announces the newest state of the shelf after each publish.
pub type AnnounceState = Box<dyn FnMut(StateId) + Send>;

/// Publishes to a [`Shelf`]. The weights are copied before `publish` returns, so later steps do not
/// affect them.
#[derive(Debug)]
pub struct ShelfSink {
    form: Form,
    coder: Sender<(WeightVersion, Vec<u8>)>,
    /// Receives a message when the thread has coded a copy.
    coded: Receiver<()>,
    /// True until the last copy is coded.
    coding: bool,
    newest: Option<WeightVersion>,
}

impl ShelfSink {
    /// Starts the encoding thread. No copy waits for it: a faster trainer waits in `publish`,
    /// before it copies. So there are two copies at most, the one on the shelf and the next.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(name: &str, form: Form, shelf: Arc<Shelf>, announce: AnnounceState) -> std::io::Result<Self> {
        let (coder, copies) = channel();
        let (done, coded) = channel();
        std::thread::Builder::new()
            .name(format!("weights-{name}"))
            .spawn(move || code(form, (&copies, &done), &shelf, announce))?;
        Ok(Self {
            form,
            coder,
            coded,
            coding: false,
            newest: None,
        })
    }
}

impl WeightSink for ShelfSink {
    fn publish(&mut self, weights: &dyn ParamSource, version: WeightVersion) -> Result<(), SinkError> {
        if let Some(newest) = self.newest.filter(|newest| *newest > version) {
            return Err(SinkError::Stale { version, newest });
        }
        let closed = || SinkError::Closed { version };
        if self.coding {
            self.coded.recv().map_err(|_| closed())?;
            self.coding = false;
        }
        let bytes = weights
            .bytes(&(0..weights.layout().numel() as i64), kind_of(self.form.dtype))
            .map_err(|source| SinkError::Copy { version, source })?;
        self.newest = Some(version);
        self.coder.send((version, bytes)).map_err(|_| closed())?;
        self.coding = true;
        Ok(())
    }
}

fn code(
    form: Form,
    (copies, done): (&Receiver<(WeightVersion, Vec<u8>)>, &Sender<()>),
    shelf: &Shelf,
    mut announce: AnnounceState,
) {
    while let Ok((version, bytes)) = copies.recv() {
        match State::new(form, version, bytes) {
            Ok(state) => {
                // A repeated publish is announced again.
                shelf.put(state);
                shelf.newest().into_iter().for_each(&mut announce);
            }
            Err(error) => tracing::error!(%error, %version, "weights cannot be offered to other processes"),
        }
        // Without a sink nothing waits.
        let _ = done.send(());
    }
}
