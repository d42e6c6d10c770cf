//! The servers of one agent behind one client: the distribution of work and the loss of servers.
//!
//! The policy is [`rollout::router`], applied to ready servers. Work waits while none is ready. It
//! ends with an answer, or with a failure that a server reported, never because of elapsed time.
//! The tokens of the call in progress are lost with its server; tokens of earlier pieces are kept.

use std::sync::{Arc, Mutex, PoisonError};

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::failure::Failure;
use rollout::router::{Limits, ReplicaPicker};
use rollout::text::TextCodec;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use trainer::weights::disk::Written;

use super::driver::{CallResult, ServerDriver, Settings, Source, SourceKind};
use super::progress::{Progress, Reading};
use super::server::Server;
use super::trouble::{Trouble, TroubleVerdict};
use super::visits::ServerVisits;
use crate::base::log_scope;
use crate::engine::{
    EngineClient, EngineFailure, EnginePresence, Finished, GenerationJob, GenerationOutput, Visit, WeightRefusal,
    without_scores,
};

/// Successive failures of a call after which its job fails.
const TRIES: u32 = 5;

/// The servers of one agent.
pub struct Fleet {
    dispatcher: Arc<Dispatcher>,
    visits: ServerVisits,
    wanted: watch::Sender<Option<Source>>,
    version: watch::Sender<WeightVersion>,
    refused: watch::Sender<Option<WeightRefusal>>,
    tasks: Vec<AbortHandle>,
}

pub(super) struct Dispatcher {
    drivers: Vec<Arc<ServerDriver>>,
    router: Mutex<ReplicaPicker>,
    news: watch::Sender<u64>,
    text: Arc<TextCodec>,
    settings: Arc<Settings>,
}

impl Fleet {
    /// Starts to manage servers, and waits until one of them fits the agent. No weights are loaded
    /// before they are announced. `serving` is the version that they already have, if they are
    /// never given others. Must be called in a runtime.
    ///
    /// # Errors
    /// A server does not fit, and the operator must change that.
    pub async fn start(
        servers: Vec<Arc<dyn Server>>,
        settings: Settings,
        text: Arc<TextCodec>,
        serving: Option<WeightVersion>,
    ) -> anyhow::Result<Arc<Self>> {
        let settings = Arc::new(settings);
        let (news, refused) = (watch::Sender::new(0), watch::Sender::new(None));
        let wanted = watch::Sender::new(serving.map(as_started));
        let driver = |server| ServerDriver::new(server, settings.clone(), news.clone(), refused.clone());
        let drivers: Vec<Arc<ServerDriver>> = servers.into_iter().map(driver).collect();
        let dispatcher = Arc::new(Dispatcher {
            router: Mutex::new(ReplicaPicker::new(Limits::default(), drivers.len())),
            drivers,
            news,
            text,
            settings,
        });
        let version = watch::Sender::new(serving.unwrap_or_default());
        let (looked, mut looks) = unbounded_channel();
        let mut tasks = vec![log_scope::spawn(follow(dispatcher.clone(), version.clone())).abort_handle()];
        for driver in &dispatcher.drivers {
            tasks.push(log_scope::spawn(driver.clone().watch_health()).abort_handle());
            let keep = driver.clone().keep(wanted.subscribe(), looked.clone());
            tasks.push(log_scope::spawn(keep).abort_handle());
        }
        let fleet = Arc::new(Self {
            dispatcher,
            visits: ServerVisits::default(),
            wanted,
            version,
            refused,
            tasks,
        });
        drop(looked);
        if let Some((name, Err(trouble))) = looks.recv().await {
            anyhow::bail!("{name}: {trouble}");
        }
        Ok(fleet)
    }

    /// Announces weights on disk to every server. `label` names them ([`super::label`]).
    pub fn announce(&self, written: Written, label: String) {
        let Written {
            version,
            folder,
            adapter,
            ..
        } = written;
        let what = if adapter {
            SourceKind::Adapter(folder)
        } else {
            SourceKind::Whole(folder)
        };
        self.wanted.send_modify(|wanted| {
            // Later weights may have been announced before.
            if wanted.as_ref().is_none_or(|known| known.version <= version) {
                *wanted = Some(Source { version, label, what });
            }
        });
    }

    /// Returns the counter of server events.
    #[cfg(test)]
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.dispatcher.news.subscribe()
    }

    /// Returns the oldest weights that a server reads or that a call may still use.
    #[must_use]
    pub fn oldest(&self) -> Option<WeightVersion> {
        self.dispatcher
            .drivers
            .iter()
            .filter_map(|driver| driver.oldest())
            .min()
    }

    /// Returns the oldest weights that a server reads now.
    #[cfg(test)]
    pub(super) fn reading(&self) -> Option<WeightVersion> {
        let states = self.dispatcher.drivers.iter().map(|driver| driver.state());
        states.filter_map(|state| state.reading).min()
    }

    /// Returns the oldest weights that a server serves or reads.
    #[cfg(test)]
    pub(super) fn serving(&self) -> Option<WeightVersion> {
        let states = self.dispatcher.drivers.iter().map(|driver| driver.state());
        states.flat_map(|state| [state.serving, state.reading]).flatten().min()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.visits.end();
    }
}

fn as_started(version: WeightVersion) -> Source {
    Source {
        version,
        label: String::new(),
        what: SourceKind::AsStarted,
    }
}

/// Reports the oldest weights that a server serves; while none does, the last value stays.
async fn follow(dispatcher: Arc<Dispatcher>, version: watch::Sender<WeightVersion>) {
    let mut news = dispatcher.news.subscribe();
    loop {
        for (id, driver) in dispatcher.drivers.iter().enumerate() {
            dispatcher.router().is_away(id, !driver.is_ready());
        }
        let states: Vec<_> = dispatcher.drivers.iter().map(|driver| driver.state()).collect();
        for (id, serving) in states
            .iter()
            .enumerate()
            .filter_map(|(id, state)| Some((id, state.serving?)))
        {
            dispatcher.router().serves(id, serving.step);
        }
        if let Some(least) = states.iter().filter_map(|state| state.serving).min() {
            version.send_if_modified(|known| std::mem::replace(known, least) != least);
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

impl Dispatcher {
    pub(super) fn router(&self) -> std::sync::MutexGuard<'_, ReplicaPicker> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no server has been usable for the time between two health checks.
    pub(super) async fn until_deserted(&self) {
        let grace = self.settings.pace.look;
        loop {
            self.until(true).await;
            if tokio::time::timeout(grace, self.until(false)).await.is_err() {
                return;
            }
        }
    }

    /// Waits until every server is unusable, or until one is usable.
    async fn until(&self, deserted: bool) {
        let mut news = self.news.subscribe();
        while self.drivers.iter().all(|driver| driver.state().is_lost()) != deserted {
            // The sender is ours.
            let _ = news.changed().await;
        }
    }

    /// Returns a ready server: the job's own one, or else the one with most room.
    async fn place(&self, home: usize) -> &Arc<ServerDriver> {
        let mut news = self.news.subscribe();
        loop {
            news.mark_unchanged();
            let home = self.drivers.get(home).filter(|driver| driver.is_ready());
            let ready = self.drivers.iter().filter(|driver| driver.is_ready());
            if let Some(driver) = home.or_else(|| ready.max_by_key(|driver| driver.free())) {
                return driver;
            }
            // The sender is ours.
            let _ = news.changed().await;
        }
    }

    async fn make(&self, job: &GenerationJob, home: usize) -> Result<GenerationOutput, EngineFailure> {
        self.work(job, home, Progress::default(), |_| {}).await
    }

    /// Makes a job's answer, from its current progress; calls `report` after each piece but the
    /// last.
    pub(super) async fn work(
        &self,
        job: &GenerationJob,
        home: usize,
        mut progress: Progress,
        mut report: impl FnMut(&Progress) + Send,
    ) -> Result<GenerationOutput, EngineFailure> {
        let open = self.text.leaves_open(&job.prompt_ids);
        let (raw, visible) = (
            |ids: &[u32]| self.text.text(ids),
            |ids: &[u32]| self.text.visible(ids, open),
        );
        let reading = Reading {
            raw: &raw,
            visible: &visible,
            ends: &self.settings.ends,
        };
        let mut tries = 0;
        // The weights for which the server aborted a call without tokens.
        let mut idle = None;
        let mut seat: Option<(&Arc<ServerDriver>, _)> = None;
        loop {
            let driver = self.place(home).await;
            if seat.as_ref().is_none_or(|(with, _)| !Arc::ptr_eq(with, driver)) {
                drop(seat.take());
                seat = Some((driver, driver.slot().await));
            }
            let trouble = match driver.piece(job, &progress).await {
                Ok(CallResult::Over(finish, version)) => return Ok(progress.made(version, finish)),
                Ok(CallResult::Made(reply, version, of)) => {
                    let moved = !reply.ids.is_empty();
                    if moved {
                        progress.log_probs_are(of);
                    }
                    if let Some(finish) = progress.take(job, reply, version, &reading) {
                        return Ok(progress.made(version, finish));
                    }
                    report(&progress);
                    // Aborted for new weights, which are there now or soon.
                    if moved || idle.replace(version) != Some(version) {
                        tries = 0;
                        continue;
                    }
                    Trouble::Failing("it ends calls before they have made anything".into())
                }
                Err(trouble) => trouble,
            };
            if let TroubleVerdict::Never(failure) = trouble.verdict_of(&driver.name()) {
                return Err(failure);
            }
            tokio::time::sleep(self.settings.pace.pause_after(tries)).await;
            // Work is not at fault when its server is away.
            tries = if driver.is_ready() { tries + 1 } else { 0 };
            if tries >= TRIES {
                return Err(EngineFailure {
                    cause: Failure::engine(format!("{}: {trouble}; {TRIES} times in succession", driver.name())),
                    retry: true,
                });
            }
            tracing::debug!(
                %trouble,
                request = %job.request,
                conversation_id = %format_args!("{}/{}", job.group, job.member),
                "{}: retrying a call",
                driver.name()
            );
        }
    }
}

impl EngineClient for Fleet {
    fn submit(&self, jobs: Vec<GenerationJob>, wave: bool, done: UnboundedSender<Vec<Finished>>) {
        if wave {
            let failure = EngineFailure {
                cause: Failure::request(
                    "these engines compute no closed batches: run.mode = \"sync\" needs the embedded one",
                ),
                retry: false,
            };
            let refused = jobs.into_iter().map(|job| Finished {
                job,
                result: Err(failure.clone()),
            });
            let _ = done.send(refused.collect());
            return;
        }
        for job in jobs {
            let (dispatcher, done) = (self.dispatcher.clone(), done.clone());
            log_scope::spawn(async move {
                let home = dispatcher.router().assign(job.request, job.group, job.member);
                let result = tokio::select! {
                    result = dispatcher.make(&job, home) => Some(result),
                    // The asker is gone.
                    () = done.closed() => None,
                };
                dispatcher.router().finish(job.request);
                if let Some(result) = result {
                    let _ = done.send(vec![Finished { job, result }]);
                }
            });
        }
    }

    fn visit(&self, visits: Vec<Visit>) {
        for visit in without_scores(visits) {
            self.visits.begin(self.dispatcher.clone(), visit);
        }
    }

    /// Ends a visit. Jobs need no call: they notice when their asker is gone.
    fn leave(&self, request: RequestId) {
        self.visits.leave(request);
    }

    fn presences(&self) -> Vec<EnginePresence> {
        let drivers = self.dispatcher.drivers.iter().cloned();
        let presence = |driver: Arc<ServerDriver>| {
            let url = driver.server.url().to_owned();
            EnginePresence::new(&url, move || driver.state().well)
        };
        drivers.map(presence).collect()
    }

    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.version.subscribe()
    }

    fn refusals(&self) -> watch::Receiver<Option<WeightRefusal>> {
        self.refused.subscribe()
    }
}
