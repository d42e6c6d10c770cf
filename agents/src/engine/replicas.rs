//! Several engines behind one client: the agent's inference router. The policy is
//! [`rollout::router`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use broker::ids::{GroupId, RequestId, WeightVersion};
use rollout::router::{EngineId, Limits, ReplicaPicker};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::process::crash_loop;
use super::{EngineClient, EnginePresence, EngineProgress, Finished, GenerationJob, Visit, WeightRefusal};
use crate::base::log_scope;

type Done = UnboundedSender<Vec<Finished>>;

/// Engines of one agent that serve the same weights.
pub struct Replicas {
    engines: Vec<Arc<dyn EngineClient>>,
    routing: Arc<Mutex<Routing>>,
    /// The channel on which engines answer.
    answers: Done,
    version: watch::Sender<WeightVersion>,
    refused: watch::Sender<Option<WeightRefusal>>,
}

struct Routing {
    router: ReplicaPicker,
    /// The origin of each request that is at an engine.
    askers: HashMap<RequestId, Asker>,
}

struct Asker {
    done: Done,
    job: GenerationJob,
    /// Engines that went away while they had it.
    losses: u32,
}

/// The engines that count for the oldest weights served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VersionScope {
    /// All engines, absent ones too: each has its part of every wave, which waits for it.
    All,
    /// Engines that are present; all engines if none is present.
    Present,
}

fn lock(routing: &Mutex<Routing>) -> MutexGuard<'_, Routing> {
    routing.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replicas {
    /// Starts to distribute work. Must be called in a runtime.
    #[must_use]
    pub fn start(engines: Vec<Arc<dyn EngineClient>>) -> Arc<Self> {
        Self::start_with(engines, VersionScope::All)
    }

    /// Starts like [`Self::start`], for engines without waves: an absent engine delays no other.
    #[must_use]
    pub fn start_apart(engines: Vec<Arc<dyn EngineClient>>) -> Arc<Self> {
        Self::start_with(engines, VersionScope::Present)
    }

    fn start_with(engines: Vec<Arc<dyn EngineClient>>, scope: VersionScope) -> Arc<Self> {
        let (answers, answered) = unbounded_channel();
        let routing = Arc::new(Mutex::new(Routing {
            router: ReplicaPicker::new(Limits::default(), engines.len()),
            askers: HashMap::new(),
        }));
        let version = watch::Sender::new(least(&engines, scope));
        let refused = watch::Sender::new(None);
        log_scope::spawn(pass_on(routing.clone(), answered));
        for (id, engine) in engines.iter().enumerate() {
            log_scope::spawn(follow_refusals(engine.refusals(), refused.clone()));
            let scoped = (version.clone(), scope);
            log_scope::spawn(follow_versions(id, engines.clone(), routing.clone(), scoped.clone()));
            let home = (routing.clone(), answers.clone());
            log_scope::spawn(follow_presence(id, engines.clone(), home, scoped));
        }
        Arc::new(Self {
            engines,
            routing,
            answers,
            version,
            refused,
        })
    }

    /// Gives each engine a part of the wave as a closed batch. The wave alone decides the parts.
    fn share_wave(&self, jobs: Vec<GenerationJob>, done: &Done) {
        let mut homes: HashMap<GroupId, EngineId> = HashMap::new();
        let mut parts: BTreeMap<EngineId, Vec<GenerationJob>> = BTreeMap::new();
        for job in jobs {
            let next = homes.len() % self.engines.len();
            let home = *homes.entry(job.group).or_insert(next);
            parts.entry(home).or_default().push(job);
        }
        for (id, part) in parts {
            self.engines[id].submit(part, true, done.clone());
        }
    }

    fn share(&self, jobs: Vec<GenerationJob>, done: &Done) {
        let mut parts: BTreeMap<EngineId, Vec<GenerationJob>> = BTreeMap::new();
        let mut routing = lock(&self.routing);
        for job in jobs {
            let id = routing.router.assign(job.request, job.group, job.member);
            let asker = Asker {
                done: done.clone(),
                job: job.clone(),
                losses: 0,
            };
            routing.askers.insert(job.request, asker);
            parts.entry(id).or_default().push(job);
        }
        drop(routing);
        for (id, part) in parts {
            self.engines[id].submit(part, false, self.answers.clone());
        }
    }
}

type Version = (watch::Sender<WeightVersion>, VersionScope);

/// Returns the oldest weights that any of the engines serves.
fn least(engines: &[Arc<dyn EngineClient>], scope: VersionScope) -> WeightVersion {
    let oldest = |all: bool| {
        let asked = engines.iter().filter(|engine| all || *engine.presence().borrow());
        asked.map(|engine| *engine.versions().borrow()).min()
    };
    let present = if scope == VersionScope::Present {
        oldest(false)
    } else {
        None
    };
    present.or_else(|| oldest(true)).unwrap_or_default()
}

/// Reports the oldest weights if they changed. They are read under the channel's lock, so that the
/// later of two engine tasks has seen both.
fn report_version(engines: &[Arc<dyn EngineClient>], (version, scope): &Version) {
    version.send_if_modified(|reported| {
        let least = least(engines, *scope);
        std::mem::replace(reported, least) != least
    });
}

/// Sends each answer to its asker.
async fn pass_on(routing: Arc<Mutex<Routing>>, mut answered: UnboundedReceiver<Vec<Finished>>) {
    while let Some(list) = answered.recv().await {
        let mut by_asker: Vec<(Done, Vec<Finished>)> = Vec::new();
        for one in list {
            let mut routing = lock(&routing);
            routing.router.finish(one.job.request);
            let Some(Asker { done: asker, .. }) = routing.askers.remove(&one.job.request) else {
                continue;
            };
            match by_asker.iter_mut().find(|(known, _)| known.same_channel(&asker)) {
                Some((_, list)) => list.push(one),
                None => by_asker.push((asker, vec![one])),
            }
        }
        for (asker, list) in by_asker {
            // The asker may have gone.
            let _ = asker.send(list);
        }
    }
}

async fn follow_versions(
    id: EngineId,
    engines: Vec<Arc<dyn EngineClient>>,
    routing: Arc<Mutex<Routing>>,
    scoped: Version,
) {
    let mut versions = engines[id].versions();
    loop {
        let step = versions.borrow_and_update().step;
        lock(&routing).router.serves(id, step);
        report_version(&engines, &scoped);
        if versions.changed().await.is_err() {
            return;
        }
    }
}

/// Reassigns the work of an absent engine to others. Waves wait for it: distributed differently
/// they would have other bits.
async fn follow_presence(
    id: EngineId,
    engines: Vec<Arc<dyn EngineClient>>,
    (routing, answers): (Arc<Mutex<Routing>>, Done),
    scoped: Version,
) {
    let mut presence = engines[id].presence();
    let mut was_there = false;
    loop {
        let there = *presence.borrow_and_update();
        report_version(&engines, &scoped);
        let is_lost = std::mem::replace(&mut was_there, there) && !there;
        let (mut parts, mut left): (BTreeMap<EngineId, Vec<GenerationJob>>, Vec<_>) = Default::default();
        {
            let mut routing = lock(&routing);
            routing.router.is_away(id, !there);
            for (request, from) in routing.router.release() {
                left.push((request, from));
                // A visit has ended with its engine.
                let Some(asker) = routing.askers.get_mut(&request) else {
                    continue;
                };
                asker.losses += u32::from(is_lost && from == id);
                let (job, losses) = (asker.job.clone(), asker.losses);
                if losses >= crash_loop::LOSSES {
                    crash_loop::end(&format!("group {} at several engines", job.group), 1);
                }
                let to = routing.router.assign(request, job.group, job.member);
                parts.entry(to).or_default().push(job);
            }
        }
        left.into_iter()
            .for_each(|(request, from)| engines[from].leave(request));
        for (to, jobs) in parts {
            tracing::info!(
                engine = to,
                requests = jobs.len(),
                "an engine takes over the requests of an absent one"
            );
            engines[to].submit(jobs, false, answers.clone());
        }
        if presence.changed().await.is_err() {
            return;
        }
    }
}

async fn follow_refusals(
    mut source: watch::Receiver<Option<WeightRefusal>>,
    refused: watch::Sender<Option<WeightRefusal>>,
) {
    while source.changed().await.is_ok() {
        let refusal = source.borrow_and_update().clone();
        refused.send_replace(refusal);
    }
}

impl EngineClient for Replicas {
    fn submit(&self, jobs: Vec<GenerationJob>, wave: bool, done: Done) {
        if wave {
            self.share_wave(jobs, &done);
        } else {
            self.share(jobs, &done);
        }
    }

    fn visit(&self, visits: Vec<Visit>) {
        let mut parts: BTreeMap<EngineId, Vec<Visit>> = BTreeMap::new();
        let mut routing = lock(&self.routing);
        for visit in visits {
            let job = &visit.job;
            let id = routing.router.assign(job.request, job.group, job.member);
            parts.entry(id).or_default().push(visit);
        }
        drop(routing);
        for (id, part) in parts {
            self.engines[id].visit(part);
        }
    }

    fn leave(&self, request: RequestId) {
        let engine = lock(&self.routing).router.finish(request);
        if let Some(engine) = engine.and_then(|id| self.engines.get(id)) {
            engine.leave(request);
        }
    }

    fn presences(&self) -> Vec<EnginePresence> {
        self.engines.iter().flat_map(|engine| engine.presences()).collect()
    }

    /// Returns the steps of all engines, and the fullest cache.
    fn progress(&self) -> Option<EngineProgress> {
        let known = self.engines.iter().filter_map(|engine| engine.progress());
        known.reduce(|all, one| EngineProgress {
            marks: all.marks.saturating_add(one.marks),
            cache_usage: all.cache_usage.max(one.cache_usage),
            steps: all.steps.and(one.steps),
        })
    }

    fn scores_prompts(&self) -> bool {
        self.engines.iter().all(|engine| engine.scores_prompts())
    }

    fn pin(&self, pinned: bool) {
        self.engines.iter().for_each(|engine| engine.pin(pinned));
    }

    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.version.subscribe()
    }

    fn refusals(&self) -> watch::Receiver<Option<WeightRefusal>> {
        self.refused.subscribe()
    }
}

#[cfg(test)]
mod tests;
