//! A run that the dashboard watches: its messages, its metrics, and its last status.

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::bus::Bus;
use serde_json::Value;

use super::Answers;
use crate::base::log_scope;
use crate::cli::last_metrics::MetricsReader;
use crate::cli::status;
use crate::cli::status::listener::Listener;
use crate::run_folder::RunFolder;

/// The time for which a status is repeated: several pages ask at once.
const KEPT: Duration = Duration::from_secs(1);

/// A run that pages look at.
#[derive(Default)]
pub(super) struct Listening {
    live: Option<(Arc<dyn Bus>, Listener)>,
    /// The operator's connection, if the dashboard has that user.
    operator: Option<Arc<dyn Bus>>,
    metrics: MetricsReader,
    last: Option<(Instant, Value)>,
}

impl Listening {
    /// Returns the run's status, as of the last second.
    pub(super) async fn status(&mut self, answers: &Answers, folder: &RunFolder) -> anyhow::Result<Value> {
        if let Some((at, status)) = &self.last
            && at.elapsed() < KEPT
        {
            return Ok(status.clone());
        }
        let over = answers.ended_or_stopped(folder).await?;
        let beats = match &over {
            Some(over) => {
                self.leave(answers, folder).await;
                Err(anyhow::anyhow!("{}", over.text()))
            }
            None => match self.open(answers, folder).await {
                Ok((_, listener)) => Ok(listener.listen().await),
                Err(error) => Err(error),
            },
        };
        let (live, offline) = match beats {
            Ok(live) => (Some(live), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let (folder, configs) = (folder.clone(), answers.configs.clone());
        let mut reader = std::mem::take(&mut self.metrics);
        let read = log_scope::spawn_blocking(move || (reader.last(&folder), configs.of(&folder), folder, reader));
        let (metrics, config, folder, reader) = read.await?;
        self.metrics = reader;
        let status = status::assemble(&folder, &*config?, over.as_ref(), live, offline, metrics?);
        let status = serde_json::to_value(status)?;
        self.last = Some((Instant::now(), status.clone()));
        Ok(status)
    }

    /// Returns the connection to the run's broker.
    pub(super) async fn bus(&mut self, answers: &Answers, folder: &RunFolder) -> anyhow::Result<Arc<dyn Bus>> {
        let (bus, _) = self.open(answers, folder).await?;
        Ok(bus.clone())
    }

    /// Returns a connection that may read dead letters. It is kept: a new one takes some MiB.
    pub(super) async fn letters_bus(&mut self, answers: &Answers, folder: &RunFolder) -> anyhow::Result<Arc<dyn Bus>> {
        let Some(user) = &answers.operator else {
            return self.bus(answers, folder).await;
        };
        let bus = match self.operator.take() {
            Some(bus) => bus,
            None => answers.connect_as(Some(user), folder).await?,
        };
        Ok(self.operator.insert(bus).clone())
    }

    /// Listens to the run, from now on or already.
    async fn open(&mut self, answers: &Answers, folder: &RunFolder) -> anyhow::Result<&mut (Arc<dyn Bus>, Listener)> {
        let live = match self.live.take() {
            Some(live) => live,
            None => {
                let bus = answers.connect(folder).await?;
                let config = answers.configs.of(folder)?;
                let listener = Listener::open(bus.clone(), folder, &config).await?;
                (bus, listener)
            }
        };
        Ok(self.live.insert(live))
    }

    /// Ends the connections to a run that is over.
    async fn leave(&mut self, answers: &Answers, folder: &RunFolder) {
        if let Some((bus, _)) = self.live.take()
            && answers.own(folder).is_none()
        {
            bus.close().await;
        }
        if let Some(bus) = self.operator.take() {
            bus.close().await;
        }
    }
}
