//! Keeps one server serving the newest weights: checks its health and identity, and loads weights
//! again if it lost them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use broker::ids::WeightVersion;
use futures_util::FutureExt;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{RwLockWriteGuard, watch};

use super::driver::{Served, ServerDriver, Source, SourceKind};
use super::probe::{Meaning, probe};
use super::trouble::Trouble;
use crate::engine::WeightRefusal;

/// Successive failed health checks that count as down while the server accepts connections.
const STRIKES: u32 = 3;
/// Successive failed health checks after which the warning is repeated.
const REMIND: u32 = 12;

/// Successive loads that may fail in a server that is well.
const LOADS: u32 = 5;
/// The number of losses of the same weights without one good answer in between.
const STRANGERS: u32 = 5;

/// Reasons for a new check of a server.
const NOT_WELL: &str = "it was not well";
const LOST: &str = "it lost its weights";
const ENDED: &str = "weights are no longer announced";

/// The channel of announced weights.
pub(super) type Announced = watch::Receiver<Option<Source>>;
/// The channel for the outcome of every check.
pub(super) type Looked = UnboundedSender<(String, Result<(), Trouble>)>;

/// A flag that is set while this lives.
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

impl ServerDriver {
    /// Checks the server's health for ever.
    pub(super) async fn watch_health(self: Arc<Self>) {
        let (mut strikes, mut looks) = (STRIKES, 0u32);
        loop {
            if !self.loading.load(Ordering::Relaxed) {
                match self.look().await {
                    Ok(()) => strikes = 0,
                    // The server is down: a second check is not needed.
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
                let well = strikes < STRIKES;
                self.change(|state| {
                    state.falls += u64::from(state.well && !well);
                    state.well = well;
                    // A server that returns may be another one.
                    state.refused &= well;
                });
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
            // "Forbidden" still proves that the server is alive; the next real call reports the
            // missing key.
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

    /// Makes it serve the newest weights, for ever.
    pub(super) async fn keep(self: Arc<Self>, mut wanted: Announced, looked: Looked) {
        let mut tries = 0;
        loop {
            let falls = self.until_well().await;
            let checked = tokio::select! {
                checked = self.check() => checked,
                () = self.until_fallen(falls) => Err(Trouble::Gone(NOT_WELL.into())),
            };
            match checked {
                Ok((context, meaning)) => {
                    tries = 0;
                    let _ = looked.send((self.name(), Ok(())));
                    let why = self.serve(context, meaning, falls, &mut wanted).await;
                    tracing::info!(why, "{} is checked again", self.name());
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

    /// Checks that it fits this agent; returns the usable context and the meaning of its log-probs.
    async fn check(&self) -> Result<(usize, Meaning), Trouble> {
        let (server, settings) = (self.server.as_ref(), &self.settings);
        let about = server.about().await?;
        let reported = about.context.unwrap_or(usize::MAX);
        let context = reported.min(settings.max_context).saturating_sub(server.spare());
        if context <= settings.max_new_tokens as usize {
            return Err(Trouble::Unfit(format!(
                "its context of {context} tokens leaves no room for a prompt next to sampling.max_new_tokens = {}: start it with a longer context, \
                 or lower max_new_tokens",
                settings.max_new_tokens
            )));
        }
        let meaning = probe(server, &settings.probes, &settings.stop_ids, settings.vocab).await?;
        tracing::info!(model = about.model, context, ?meaning, "{}", self.name());
        may_train(meaning, settings.trained_temperature, server.fix_for_raw())?;
        Ok((context, meaning))
    }

    /// Loads weights as they are announced, until the server must be checked again; returns the
    /// reason. `falls` is the number of times it was not well before.
    async fn serve(&self, context: usize, meaning: Meaning, falls: u64, wanted: &mut Announced) -> &'static str {
        let (mut tries, mut refusals) = (0, 0);
        loop {
            if self.lost.notified().now_or_never().is_some() {
                return self.lost(falls, wanted).await;
            }
            let source = wanted.borrow_and_update().clone();
            let Some(source) = source.filter(|source| self.state().serving != Some(source.version)) else {
                tokio::select! {
                    changed = wanted.changed() => if changed.is_err() { return ENDED },
                    () = self.until_fallen(falls) => return NOT_WELL,
                    // The server at this address may be another than the one checked.
                    () = self.lost.notified() => return self.lost(falls, wanted).await,
                }
                continue;
            };
            let taken = tokio::select! {
                taken = self.take(&source, context, meaning) => taken,
                () = self.until_fallen(falls) => return NOT_WELL,
            };
            self.change(|state| state.reading = None);
            match taken {
                Ok(()) => {
                    (tries, refusals) = (0, 0);
                    tracing::info!(version = %source.version, "{} serves new weights", self.name());
                }
                Err(trouble) if trouble.may_pass() && tries < LOADS => {
                    tracing::warn!(%trouble, version = %source.version, "{} could not load weights; they are sent again", self.name());
                    self.doubt.notify_one();
                    tokio::time::sleep(self.settings.pace.pause_after(tries)).await;
                    tries += 1;
                }
                Err(trouble) => {
                    tries = 0;
                    tracing::error!(%trouble, version = %source.version, "{} could not load weights", self.name());
                    self.refuse(source.version, &trouble);
                    self.rest(refusals, falls, wanted).await;
                    refusals += 1;
                }
            }
        }
    }

    /// Rejects a server that repeatedly loses its weights: another program changes them.
    async fn lost(&self, falls: u64, wanted: &mut Announced) -> &'static str {
        let (version, times) = *self.strangers();
        if times >= STRANGERS {
            self.strangers().1 = 0;
            let trouble = Trouble::Unfit(
                "another program changes this server's weights: an agent that trains a whole model needs separate servers"
                    .into(),
            );
            tracing::error!(%trouble, %version, "{} is not used", self.name());
            self.refuse(version, &trouble);
            self.rest(STRANGERS, falls, wanted).await;
        }
        LOST
    }

    /// Waits after a rejection until weights are announced, or for a pause. Weights of a partner
    /// that does not train are announced only once, so it retries after the pause.
    async fn rest(&self, refusals: u32, falls: u64, wanted: &mut Announced) {
        tokio::select! {
            // Without an announcer there is nothing to serve.
            _ = wanted.changed() => {}
            () = self.until_fallen(falls) => {}
            () = tokio::time::sleep(self.settings.pace.pause_after(refusals)), if self.settings.trained_temperature.is_none() => {}
        }
    }

    async fn take(&self, source: &Source, context: usize, meaning: Meaning) -> Result<(), Trouble> {
        self.change(|state| state.reading = Some(source.version));
        let served = |label, adapter| {
            Arc::new(Served {
                version: source.version,
                label,
                adapter,
                context,
                meaning,
            })
        };
        let label = source.label.clone();
        match &source.what {
            SourceKind::AsStarted => *self.served.write().await = Some(served(None, None)),
            SourceKind::Whole(folder) => {
                let mut place = self.close().await;
                if self.server.label().await? != label {
                    *place = None;
                    self.change(|state| state.serving = None);
                    self.load(folder, &label).await?;
                }
                *place = Some(served(Some(label), None));
            }
            SourceKind::Adapter(folder) => {
                self.server.load_adapter(&label, folder).await?;
                let now = served(None, Some(label.clone()));
                let before = self.served.write().await.replace(now);
                self.remember(before);
                self.unload(&label).await;
            }
        }
        self.change(|state| (state.serving, state.refused) = (Some(source.version), false));
        Ok(())
    }

    /// Waits until no call is in progress, and delays new ones. Calls in progress finish, or are
    /// aborted and continue afterwards.
    async fn close(&self) -> RwLockWriteGuard<'_, Option<Arc<Served>>> {
        if self.settings.drains {
            return self.served.write().await;
        }
        let closed = self.served.write();
        tokio::pin!(closed);
        let mut tries = 0;
        loop {
            tokio::select! {
                biased;
                place = &mut closed => return place,
                () = self.end_calls(tries) => tries += 1,
            }
        }
    }

    /// Aborts calls once, then pauses: a call missed by this order is aborted by the next.
    async fn end_calls(&self, tries: u32) {
        if let Err(trouble) = self.server.abort_all().await {
            tracing::debug!(%trouble, "{} did not abort its calls", self.name());
        }
        tokio::time::sleep(self.settings.pace.pause_after(tries)).await;
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
                "it could not load weights within engine.stuck_after = {stuck_after:?}"
            ))
        };
        tokio::time::timeout(stuck_after, load).await.map_err(late)?
    }

    fn before(&self) -> MutexGuard<'_, Vec<Arc<Served>>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an adapter that is no longer served: it is still loaded, and calls may use it.
    fn remember(&self, before: Option<Arc<Served>>) {
        self.before().extend(before.filter(|before| before.adapter.is_some()));
    }

    /// Returns adapters that no call uses and that are not `serving`.
    fn unused(&self, serving: &str) -> BTreeSet<String> {
        let list = self.before();
        let used = |served: &&Arc<Served>| Arc::strong_count(served) > 1;
        let used: BTreeSet<&String> = list
            .iter()
            .filter(used)
            .filter_map(|served| served.adapter.as_ref())
            .collect();
        let names = list.iter().filter_map(|served| served.adapter.as_ref());
        names
            .filter(|name| *name != serving && !used.contains(name))
            .cloned()
            .collect()
    }

    /// Unloads adapters that no call uses any more. A failure is retried after the next load.
    async fn unload(&self, serving: &str) {
        for name in self.unused(serving) {
            match self.server.unload_adapter(&name).await {
                Err(trouble) if trouble.may_pass() => {
                    tracing::warn!(%trouble, name, "{} did not unload an adapter", self.name());
                }
                // Success, or the server does not have it.
                _ => self.before().retain(|served| served.adapter.as_ref() != Some(&name)),
            }
        }
        // An adapter loaded again has another entry.
        self.before()
            .retain(|served| served.adapter.as_deref() != Some(serving) || Arc::strong_count(served) > 1);
    }

    /// Withdraws its weights: the next check must confirm them first.
    async fn stop_serving(&self) {
        self.change(|state| (state.serving, state.reading) = (None, None));
        let before = self.close().await.take();
        self.remember(before);
    }

    fn refuse(&self, version: WeightVersion, trouble: &Trouble) {
        let reason = format!("{}: {trouble}", self.name());
        self.refused.send_replace(Some(WeightRefusal { version, reason }));
        self.change(|state| state.refused = true);
    }
}

/// Checks that a training agent may use log-probs of this meaning. At temperature 1 all are equal.
fn may_train(meaning: Meaning, temperature: Option<f32>, fix: &str) -> Result<(), Trouble> {
    let Some(temperature) = temperature.filter(|temperature| *temperature != 1.0) else {
        return Ok(());
    };
    let found = match meaning {
        Meaning::Tempered => return Ok(()),
        Meaning::Raw => "its log-probs are of the raw logits",
        Meaning::Unknown => "the meaning of its log-probs could not be determined",
    };
    Err(Trouble::Unfit(format!(
        "{found}, and training at sampling.temperature = {temperature} needs those of the tempered distribution: {fix}, or set \
         sampling.temperature = 1.0"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_logprobs_are_accepted_at_temperature_one_or_untrained() {
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
