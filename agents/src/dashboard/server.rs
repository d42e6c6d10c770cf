//! The state that answers need. It is a cache: a new process reads the same files again.

use std::sync::Arc;

use super::command_answers::CommandAnswers;
use super::guard::Guard;
use super::runs::Runs;
use super::{api, figures, stream, watch};

pub(crate) struct Server {
    pub(super) guard: Guard,
    pub(super) runs: Runs,
    pub(super) commands: Arc<dyn CommandAnswers>,
    pub(super) cards: api::runs::Cards,
    pub(super) figures: figures::Cache,
    pub(super) letters: api::letters::Cache,
    pub(super) streams: stream::Places,
    pub(super) watched: watch::Watched,
}

impl Server {
    pub(super) fn new(guard: Guard, runs: Runs, commands: Arc<dyn CommandAnswers>) -> Self {
        Self {
            guard,
            runs,
            commands,
            cards: api::runs::Cards::default(),
            figures: figures::Cache::default(),
            letters: api::letters::Cache::default(),
            streams: stream::Places::default(),
            watched: watch::Watched::default(),
        }
    }
}
