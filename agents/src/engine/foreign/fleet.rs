//! The servers of one agent behind one client: who computes what, and what becomes of it when a server goes away.
//!
//! The policy is [`rollout::router`]'s, among the servers that are ready. Work waits while none is: it ends with an answer, or with a
//! failure that a server told of, never because time has passed. What a server had made when it went away is lost with it; what
//! earlier pieces made is not.

use std::sync::{Arc, Mutex, PoisonError};

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::failure::Failure;
use rollout::router::{Limits, Router};
use rollout::text::TextCodec;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use trainer::weights::disk::Written;

use super::driver::{Driver, Piece, Settings, Source, What};
use super::progress::{Progress, Reading};
use super::server::Server;
use super::trouble::{Trouble, Verdict};
use super::visits::Visits;
use crate::engine::{EngineClient, EngineFailure, Finished, Job, Made, Refusal, Visit, without_scores};

/// Times in succession that a call may fail before its job does.
const TRIES: u32 = 5;

/// The servers of one agent.
pub struct Fleet {
    desk: Arc<Desk>,
    visits: Visits,
    wanted: watch::Sender<Option<Source>>,
    version: watch::Sender<WeightVersion>,
    refused: watch::Sender<Option<Refusal>>,
    tasks: Vec<AbortHandle>,
}

pub(super) struct Desk {
    drivers: Vec<Arc<Driver>>,
    router: Mutex<Router>,
    news: watch::Sender<u64>,
    text: Arc<TextCodec>,
    settings: Arc<Settings>,
}

impl Fleet {
    /// Begins to look after servers. They are given nothing before weights are announced; `serving` are those that they have, if they
    /// are never given others. Waits until one of them is what the agent needs. Must be called in a runtime.
    ///
    /// # Errors
    /// One of them is not, and a person must change that.
    pub async fn start(
        servers: Vec<Arc<dyn Server>>,
        settings: Settings,
        text: Arc<TextCodec>,
        serving: Option<WeightVersion>,
    ) -> anyhow::Result<Arc<Self>> {
        let settings = Arc::new(settings);
        let (news, refused) = (watch::Sender::new(0), watch::Sender::new(None));
        let wanted = watch::Sender::new(serving.map(as_started));
        let driver = |server| Driver::new(server, settings.clone(), news.clone(), refused.clone());
        let drivers: Vec<Arc<Driver>> = servers.into_iter().map(driver).collect();
        let desk = Arc::new(Desk {
            router: Mutex::new(Router::new(Limits::default(), drivers.len())),
            drivers,
            news,
            text,
            settings,
        });
        let version = watch::Sender::new(serving.unwrap_or_default());
        let (looked, mut looks) = unbounded_channel();
        let mut tasks = vec![tokio::spawn(follow(desk.clone(), version.clone())).abort_handle()];
        for driver in &desk.drivers {
            tasks.push(tokio::spawn(driver.clone().watch_health()).abort_handle());
            let keep = driver.clone().keep(wanted.subscribe(), looked.clone());
            tasks.push(tokio::spawn(keep).abort_handle());
        }
        let fleet = Arc::new(Self {
            desk,
            visits: Visits::default(),
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

    /// Has every server take weights that lie on disk. `label` names them ([`super::label`]).
    pub fn announce(&self, written: Written, label: String) {
        let Written {
            version,
            folder,
            adapter,
            ..
        } = written;
        let what = if adapter {
            What::Adapter(folder)
        } else {
            What::Whole(folder)
        };
        self.wanted.send_modify(|wanted| {
            // Later ones may have come before.
            if wanted.as_ref().is_none_or(|known| known.version <= version) {
                *wanted = Some(Source { version, label, what });
            }
        });
    }

    /// Counts what happens to the servers.
    #[cfg(test)]
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.desk.news.subscribe()
    }

    /// The oldest weights that a server reads or that a call may still use.
    #[must_use]
    pub fn oldest(&self) -> Option<WeightVersion> {
        self.desk.drivers.iter().filter_map(|driver| driver.oldest()).min()
    }

    /// The oldest weights that a server reads now.
    #[cfg(test)]
    pub(super) fn reading(&self) -> Option<WeightVersion> {
        let states = self.desk.drivers.iter().map(|driver| driver.state());
        states.filter_map(|state| state.reading).min()
    }

    /// The oldest weights that a server serves or reads.
    #[cfg(test)]
    pub(super) fn serving(&self) -> Option<WeightVersion> {
        let states = self.desk.drivers.iter().map(|driver| driver.state());
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
        what: What::AsStarted,
    }
}

/// Tells the oldest weights that a server serves; while none does, those that were told last.
async fn follow(desk: Arc<Desk>, version: watch::Sender<WeightVersion>) {
    let mut news = desk.news.subscribe();
    loop {
        for (id, driver) in desk.drivers.iter().enumerate() {
            desk.router().is_away(id, !driver.is_ready());
        }
        let states: Vec<_> = desk.drivers.iter().map(|driver| driver.state()).collect();
        for (id, serving) in states
            .iter()
            .enumerate()
            .filter_map(|(id, state)| Some((id, state.serving?)))
        {
            desk.router().serves(id, serving.step);
        }
        if let Some(least) = states.iter().filter_map(|state| state.serving).min() {
            version.send_if_modified(|told| std::mem::replace(told, least) != least);
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

impl Desk {
    pub(super) fn router(&self) -> std::sync::MutexGuard<'_, Router> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing has been to be had from any server for as long as lies between two looks at one.
    pub(super) async fn until_deserted(&self) {
        let grace = self.settings.pace.look;
        loop {
            self.until(true).await;
            if tokio::time::timeout(grace, self.until(false)).await.is_err() {
                return;
            }
        }
    }

    /// Waits until it is so, or not, that nothing is to be had from any server.
    async fn until(&self, deserted: bool) {
        let mut news = self.news.subscribe();
        while self.drivers.iter().all(|driver| driver.state().is_lost()) != deserted {
            // The sender is ours.
            let _ = news.changed().await;
        }
    }

    /// A server that is ready: the one that the job sticks to, or else the one with most room.
    async fn place(&self, home: usize) -> &Arc<Driver> {
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

    async fn make(&self, job: &Job, home: usize) -> Result<Made, EngineFailure> {
        self.work(job, home, Progress::default(), |_| {}).await
    }

    /// Makes a job's answer, from where it stands; `told` sees it after each piece but the last.
    pub(super) async fn work(
        &self,
        job: &Job,
        home: usize,
        mut progress: Progress,
        mut told: impl FnMut(&Progress) + Send,
    ) -> Result<Made, EngineFailure> {
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
        // Weights by which the server ended a call that had made nothing.
        let mut idle = None;
        let mut seat: Option<(&Arc<Driver>, _)> = None;
        loop {
            let driver = self.place(home).await;
            if seat.as_ref().is_none_or(|(with, _)| !Arc::ptr_eq(with, driver)) {
                drop(seat.take());
                seat = Some((driver, driver.slot().await));
            }
            let trouble = match driver.piece(job, &progress).await {
                Ok(Piece::Over(finish, version)) => return Ok(progress.made(version, finish)),
                Ok(Piece::Made(reply, version, of)) => {
                    let moved = !reply.ids.is_empty();
                    if moved {
                        progress.log_probs_are(of);
                    }
                    if let Some(finish) = progress.take(job, reply, version, &reading) {
                        return Ok(progress.made(version, finish));
                    }
                    told(&progress);
                    // Ended for new weights, which are there now or soon.
                    if moved || idle.replace(version) != Some(version) {
                        tries = 0;
                        continue;
                    }
                    Trouble::Failing("it ends calls before they have made anything".into())
                }
                Err(trouble) => trouble,
            };
            if let Verdict::Never(failure) = trouble.verdict() {
                return Err(failure);
            }
            tokio::time::sleep(self.settings.pace.pause_after(tries)).await;
            // A server that is away is no fault of its work.
            tries = if driver.is_ready() { tries + 1 } else { 0 };
            if tries >= TRIES {
                return Err(EngineFailure {
                    cause: Failure::engine(format!("{}: {trouble}; {TRIES} times in succession", driver.name())),
                    retry: true,
                });
            }
            tracing::debug!(%trouble, request = %job.request, "{}: a call is made again", driver.name());
        }
    }
}

impl EngineClient for Fleet {
    fn submit(&self, jobs: Vec<Job>, wave: bool, done: UnboundedSender<Vec<Finished>>) {
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
            let (desk, done) = (self.desk.clone(), done.clone());
            tokio::spawn(async move {
                let home = desk.router().assign(job.request, job.group, job.member);
                let result = tokio::select! {
                    result = desk.make(&job, home) => Some(result),
                    // Whoever asked is gone.
                    () = done.closed() => None,
                };
                desk.router().finish(job.request);
                if let Some(result) = result {
                    let _ = done.send(vec![Finished { job, result }]);
                }
            });
        }
    }

    fn visit(&self, visits: Vec<Visit>) {
        for visit in without_scores(visits) {
            self.visits.begin(self.desk.clone(), visit);
        }
    }

    /// Only visits are left: whoever asked for a job and is gone is noticed.
    fn leave(&self, request: RequestId) {
        self.visits.leave(request);
    }

    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.version.subscribe()
    }

    fn refusals(&self) -> watch::Receiver<Option<Refusal>> {
        self.refused.subscribe()
    }
}
