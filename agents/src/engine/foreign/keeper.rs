//! Keeps one server serving the newest weights: looks at its health, at what it is, and gives it weights, again if it lost them.

use std::path::Path;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use broker::ids::WeightVersion;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{RwLockWriteGuard, watch};

use super::driver::{Driver, Served, Source, What};
use super::probe::{Meaning, probe};
use super::trouble::Trouble;
use crate::engine::Refusal;

/// Looks in succession that may fail while somebody takes connections.
const STRIKES: u32 = 3;
/// Looks in succession after which it is said again that a server does not answer.
const REMIND: u32 = 12;

/// Loads in succession that may fail in a server that is well.
const LOADS: u32 = 5;

/// Where weights are announced.
pub(super) type Wanted = watch::Receiver<Option<Source>>;
/// Where the outcome of every look at what a server is goes.
pub(super) type Looked = UnboundedSender<(String, Result<(), Trouble>)>;

/// Set while it lives.
struct During<'a>(&'a AtomicBool);

impl<'a> During<'a> {
    fn begin(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::Relaxed);
        Self(flag)
    }
}

impl Drop for During<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Driver {
    /// Looks at its health for ever.
    pub(super) async fn watch_health(self: Arc<Self>) {
        let (mut strikes, mut looks) = (STRIKES, 0u32);
        loop {
            if !self.loading.load(Ordering::Relaxed) {
                match self.look().await {
                    Ok(()) => strikes = 0,
                    // Nobody is there: no reason to look twice.
                    Err(Trouble::Gone(said)) => {
                        strikes = STRIKES;
                        self.remind(&mut looks, &said);
                    }
                    Err(trouble) => {
                        strikes += 1;
                        self.remind(&mut looks, &trouble.to_string());
                    }
                }
                if strikes == 0 {
                    looks = 0;
                }
                self.change(|state| state.well = strikes < STRIKES);
            }
            tokio::select! {
                () = tokio::time::sleep(self.settings.pace.look) => {}
                () = self.doubt.notified() => {}
            }
        }
    }

    async fn look(&self) -> Result<(), Trouble> {
        let patience = self.settings.pace.patience;
        match tokio::time::timeout(patience, self.server.is_well()).await {
            // What it wants to be told is told when it is asked for something.
            Ok(Err(Trouble::Forbidden(_))) | Ok(Ok(())) => Ok(()),
            Ok(Err(trouble)) => Err(trouble),
            Err(_) => Err(Trouble::Failing(format!("/health does not answer within {patience:?}"))),
        }
    }

    fn remind(&self, looks: &mut u32, said: &str) {
        if looks.is_multiple_of(REMIND) {
            tracing::warn!(said, "{} does not answer; its work waits", self.name());
        }
        *looks += 1;
    }

    /// Has it serve the newest weights, for ever.
    pub(super) async fn keep(self: Arc<Self>, mut wanted: Wanted, looked: Looked) {
        let mut tries = 0;
        loop {
            self.until(true).await;
            match self.check().await {
                Ok(context) => {
                    tries = 0;
                    let _ = looked.send((self.name(), Ok(())));
                    self.serve(context, &mut wanted).await;
                }
                Err(trouble) => {
                    tracing::warn!(%trouble, "{} is not used", self.name());
                    if trouble.may_pass() {
                        self.doubt.notify_one();
                    } else {
                        let version = wanted.borrow().as_ref().map(|source| source.version);
                        self.refuse(version.unwrap_or_default(), &trouble);
                        let _ = looked.send((self.name(), Err(trouble)));
                    }
                }
            }
            self.stop_serving().await;
            tokio::time::sleep(self.settings.pace.pause_after(tries)).await;
            tries += 1;
        }
    }

    /// Whether it is what this agent needs; answers with the context that calls may use.
    async fn check(&self) -> Result<usize, Trouble> {
        let (server, settings) = (self.server.as_ref(), &self.settings);
        let about = server.about().await?;
        let told = about.context.unwrap_or(usize::MAX);
        let context = told.min(settings.max_context).saturating_sub(server.spare());
        if context <= settings.max_new_tokens as usize {
            return Err(Trouble::Unfit(format!(
                "its context of {context} tokens leaves no room for a prompt beside sampling.max_new_tokens = {}: start it with more, \
                 or ask for less",
                settings.max_new_tokens
            )));
        }
        let meaning = probe(server, &settings.probes, &settings.stop_ids).await?;
        tracing::info!(model = about.model, context, ?meaning, "{}", self.name());
        may_train(meaning, settings.trained_temperature, server.fix_for_raw())?;
        Ok(context)
    }

    /// Takes weights as they are announced, until it is not well.
    async fn serve(&self, context: usize, wanted: &mut Wanted) {
        let mut tries = 0;
        loop {
            let source = wanted.borrow_and_update().clone();
            let Some(source) = source.filter(|source| self.state().serving != Some(source.version)) else {
                tokio::select! {
                    changed = wanted.changed() => if changed.is_err() { return },
                    () = self.until(false) => return,
                    () = self.lost.notified() => self.change(|state| state.serving = None),
                }
                continue;
            };
            let taken = tokio::select! {
                taken = self.take(&source, context) => taken,
                () = self.until(false) => return,
            };
            self.change(|state| state.reading = None);
            match taken {
                Ok(()) => {
                    tries = 0;
                    tracing::info!(version = %source.version, "{} serves new weights", self.name());
                }
                Err(trouble) if trouble.may_pass() && tries < LOADS => {
                    tracing::warn!(%trouble, version = %source.version, "{} did not take weights; they are sent again", self.name());
                    self.doubt.notify_one();
                    tokio::time::sleep(self.settings.pace.pause_after(tries)).await;
                    tries += 1;
                }
                Err(trouble) => {
                    tries = 0;
                    tracing::error!(%trouble, version = %source.version, "{} did not take weights", self.name());
                    self.refuse(source.version, &trouble);
                    tokio::select! {
                        changed = wanted.changed() => if changed.is_err() { return },
                        () = self.until(false) => return,
                    }
                }
            }
        }
    }

    async fn take(&self, source: &Source, context: usize) -> Result<(), Trouble> {
        self.change(|state| state.reading = Some(source.version));
        let served = |label, adapter| {
            Arc::new(Served {
                version: source.version,
                label,
                adapter,
                context,
            })
        };
        let label = source.label.clone();
        match &source.what {
            What::AsStarted => *self.served.write().await = Some(served(None, None)),
            What::Whole(folder) => {
                let mut place = self.close().await;
                if self.server.label().await? != label {
                    *place = None;
                    self.change(|state| state.serving = None);
                    self.load(folder, &label).await?;
                }
                *place = Some(served(Some(label), None));
            }
            What::Adapter(folder) => {
                self.server.load_adapter(&label, folder).await?;
                let now = served(None, Some(label));
                let before = self.served.write().await.replace(now.clone());
                // One that was lost and is there again is in use.
                self.unload(before.filter(|before| before.adapter != now.adapter)).await;
            }
        }
        self.change(|state| state.serving = Some(source.version));
        Ok(())
    }

    /// Waits until no call is under way, and holds the next ones up. Those under way finish, or are ended and go on afterwards.
    async fn close(&self) -> RwLockWriteGuard<'_, Option<Arc<Served>>> {
        if self.settings.drains {
            return self.served.write().await;
        }
        let closed = self.served.write();
        tokio::pin!(closed);
        let mut pause = Duration::ZERO;
        for tries in 0.. {
            tokio::select! {
                biased;
                place = &mut closed => return place,
                () = tokio::time::sleep(pause) => {}
            }
            // A call that was on its way when others were ended is ended by the next one.
            if let Err(trouble) = self.server.abort_all().await {
                tracing::debug!(%trouble, "{} did not end what is under way", self.name());
            }
            pause = self.settings.pace.pause_after(tries);
        }
        closed.await
    }

    async fn load(&self, folder: &Path, label: &str) -> Result<(), Trouble> {
        let _loading = During::begin(&self.loading);
        let load = self.server.load(folder, label);
        let stuck_after = self.settings.stuck_after;
        if stuck_after.is_zero() {
            return load.await;
        }
        let late = |_| {
            Trouble::Unfit(format!(
                "it did not take weights within engine.stuck_after = {stuck_after:?}"
            ))
        };
        tokio::time::timeout(stuck_after, load).await.map_err(late)?
    }

    /// Unloads adapters that no call uses any more.
    async fn unload(&self, before: Option<Arc<Served>>) {
        let unused: Vec<Arc<Served>> = {
            let mut list = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            list.extend(before);
            list.extract_if(.., |served| Arc::strong_count(served) == 1).collect()
        };
        for name in unused.iter().filter_map(|served| served.adapter.as_ref()) {
            if let Err(trouble) = self.server.unload_adapter(name).await {
                tracing::debug!(%trouble, name, "{} did not unload an adapter", self.name());
            }
        }
    }

    /// What comes next must see that it has weights first.
    async fn stop_serving(&self) {
        self.change(|state| (state.serving, state.reading) = (None, None));
        *self.served.write().await = None;
    }

    fn refuse(&self, version: WeightVersion, trouble: &Trouble) {
        let reason = format!("{}: {trouble}", self.name());
        self.refused.send_replace(Some(Refusal { version, reason }));
    }
}

/// Whether an agent that trains, if it does, may use log-probs of this meaning. At temperature 1 all are the same.
fn may_train(meaning: Meaning, temperature: Option<f32>, fix: &str) -> Result<(), Trouble> {
    let Some(temperature) = temperature.filter(|temperature| *temperature != 1.0) else {
        return Ok(());
    };
    let found = match meaning {
        Meaning::Tempered => return Ok(()),
        Meaning::Raw => "its log-probs are of the raw logits",
        Meaning::Unknown => "what its log-probs are of could not be told",
    };
    Err(Trouble::Unfit(format!(
        "{found}, and training at sampling.temperature = {temperature} needs those of the tempered distribution: {fix}, or write \
         sampling.temperature = 1.0"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_logprobs_are_good_at_temperature_one_and_where_nobody_trains() {
        for meaning in [Meaning::Tempered, Meaning::Raw, Meaning::Unknown] {
            assert!(may_train(meaning, Some(1.0), "x").is_ok());
            assert!(may_train(meaning, None, "x").is_ok());
        }
        assert!(may_train(Meaning::Tempered, Some(0.7), "x").is_ok());
        let error = may_train(Meaning::Raw, Some(0.7), "use the flag")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("raw") && error.contains("0.7") && error.contains("use the flag"),
            "{error}"
        );
        assert!(may_train(Meaning::Unknown, Some(0.7), "x").is_err());
    }
}
