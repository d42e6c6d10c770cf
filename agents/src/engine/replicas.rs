//! Several engines behind one client: the agent's inference router at work. The policy is [`rollout::router`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use broker::ids::{GroupId, RequestId, WeightVersion};
use rollout::router::{EngineId, Limits, Router};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::process::crash_loop;
use super::{EngineClient, Finished, Job, Refusal, Visit};

type Done = UnboundedSender<Vec<Finished>>;

/// Engines of one agent that serve the same weights.
pub struct Replicas {
    engines: Vec<Arc<dyn EngineClient>>,
    desk: Arc<Mutex<Desk>>,
    /// Where engines answer.
    answers: Done,
    version: watch::Sender<WeightVersion>,
    refused: watch::Sender<Option<Refusal>>,
}

struct Desk {
    router: Router,
    /// Who asked for what is with an engine, and for what.
    askers: HashMap<RequestId, Asker>,
}

struct Asker {
    done: Done,
    job: Job,
    /// Engines that went away while they had it.
    losses: u32,
}

/// Of which engines the oldest weights are what all of them serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Of those too that are away: each has its part of every wave, which waits for it.
    All,
    /// Of those that are there; of all if none is.
    Present,
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replicas {
    /// Begins to share work out. Must be called in a runtime.
    #[must_use]
    pub fn start(engines: Vec<Arc<dyn EngineClient>>) -> Arc<Self> {
        Self::start_with(engines, Whose::All)
    }

    /// As [`Self::start`], of engines that are asked for no waves: one that is away, perhaps for ever, holds nobody up.
    #[must_use]
    pub fn start_apart(engines: Vec<Arc<dyn EngineClient>>) -> Arc<Self> {
        Self::start_with(engines, Whose::Present)
    }

    fn start_with(engines: Vec<Arc<dyn EngineClient>>, whose: Whose) -> Arc<Self> {
        let (answers, answered) = unbounded_channel();
        let desk = Arc::new(Mutex::new(Desk {
            router: Router::new(Limits::default(), engines.len()),
            askers: HashMap::new(),
        }));
        let version = watch::Sender::new(least(&engines, whose));
        let refused = watch::Sender::new(None);
        tokio::spawn(pass_on(desk.clone(), answered));
        for (id, engine) in engines.iter().enumerate() {
            tokio::spawn(follow_refusals(engine.refusals(), refused.clone()));
            let told = (version.clone(), whose);
            tokio::spawn(follow_versions(id, engines.clone(), desk.clone(), told.clone()));
            let home = (desk.clone(), answers.clone());
            tokio::spawn(follow_presence(id, engines.clone(), home, told));
        }
        Arc::new(Self {
            engines,
            desk,
            answers,
            version,
            refused,
        })
    }

    /// Each engine computes a part of the wave as a closed batch of its own. Which part follows from the wave alone.
    fn share_wave(&self, jobs: Vec<Job>, done: &Done) {
        let mut homes: HashMap<GroupId, EngineId> = HashMap::new();
        let mut parts: BTreeMap<EngineId, Vec<Job>> = BTreeMap::new();
        for job in jobs {
            let next = homes.len() % self.engines.len();
            let home = *homes.entry(job.group).or_insert(next);
            parts.entry(home).or_default().push(job);
        }
        for (id, part) in parts {
            self.engines[id].submit(part, true, done.clone());
        }
    }

    fn share(&self, jobs: Vec<Job>, done: &Done) {
        let mut parts: BTreeMap<EngineId, Vec<Job>> = BTreeMap::new();
        let mut desk = lock(&self.desk);
        for job in jobs {
            let id = desk.router.assign(job.request, job.group, job.member);
            let asker = Asker {
                done: done.clone(),
                job: job.clone(),
                losses: 0,
            };
            desk.askers.insert(job.request, asker);
            parts.entry(id).or_default().push(job);
        }
        drop(desk);
        for (id, part) in parts {
            self.engines[id].submit(part, false, self.answers.clone());
        }
    }
}

type Version = (watch::Sender<WeightVersion>, Whose);

/// The oldest weights that any of them serves.
fn least(engines: &[Arc<dyn EngineClient>], whose: Whose) -> WeightVersion {
    let oldest = |all: bool| {
        let asked = engines.iter().filter(|engine| all || *engine.presence().borrow());
        asked.map(|engine| *engine.versions().borrow()).min()
    };
    let present = if whose == Whose::Present { oldest(false) } else { None };
    present.or_else(|| oldest(true)).unwrap_or_default()
}

/// Tells the oldest weights, if they are others than before. Looked at under the channel's lock: of two engines' tasks the later one has
/// seen both.
fn tell_version(engines: &[Arc<dyn EngineClient>], (version, whose): &Version) {
    version.send_if_modified(|told| {
        let least = least(engines, *whose);
        std::mem::replace(told, least) != least
    });
}

/// Gives each answer to whoever asked.
async fn pass_on(desk: Arc<Mutex<Desk>>, mut answered: UnboundedReceiver<Vec<Finished>>) {
    while let Some(list) = answered.recv().await {
        let mut by_asker: Vec<(Done, Vec<Finished>)> = Vec::new();
        for one in list {
            let mut desk = lock(&desk);
            desk.router.finish(one.job.request);
            let Some(Asker { done: asker, .. }) = desk.askers.remove(&one.job.request) else {
                continue;
            };
            match by_asker.iter_mut().find(|(known, _)| known.same_channel(&asker)) {
                Some((_, list)) => list.push(one),
                None => by_asker.push((asker, vec![one])),
            }
        }
        for (asker, list) in by_asker {
            // Whoever asked may have gone.
            let _ = asker.send(list);
        }
    }
}

async fn follow_versions(id: EngineId, engines: Vec<Arc<dyn EngineClient>>, desk: Arc<Mutex<Desk>>, told: Version) {
    let mut versions = engines[id].versions();
    loop {
        let step = versions.borrow_and_update().step;
        lock(&desk).router.serves(id, step);
        tell_version(&engines, &told);
        if versions.changed().await.is_err() {
            return;
        }
    }
}

/// Has others do what an engine has that is away. Waves wait for it: shared out otherwise they would have other bits.
async fn follow_presence(
    id: EngineId,
    engines: Vec<Arc<dyn EngineClient>>,
    (desk, answers): (Arc<Mutex<Desk>>, Done),
    told: Version,
) {
    let mut presence = engines[id].presence();
    let mut was_there = false;
    loop {
        let there = *presence.borrow_and_update();
        tell_version(&engines, &told);
        let is_lost = std::mem::replace(&mut was_there, there) && !there;
        let (mut parts, mut left): (BTreeMap<EngineId, Vec<Job>>, Vec<_>) = Default::default();
        {
            let mut desk = lock(&desk);
            desk.router.is_away(id, !there);
            for (request, from) in desk.router.release() {
                left.push((request, from));
                // A visit has ended with its engine.
                let Some(asker) = desk.askers.get_mut(&request) else {
                    continue;
                };
                asker.losses += u32::from(is_lost && from == id);
                let (job, losses) = (asker.job.clone(), asker.losses);
                if losses >= crash_loop::LOSSES {
                    crash_loop::end(&format!("group {} at several engines", job.group), 1);
                }
                let to = desk.router.assign(request, job.group, job.member);
                parts.entry(to).or_default().push(job);
            }
        }
        left.into_iter()
            .for_each(|(request, from)| engines[from].leave(request));
        for (to, jobs) in parts {
            tracing::info!(
                engine = to,
                requests = jobs.len(),
                "an engine takes over from one that is away"
            );
            engines[to].submit(jobs, false, answers.clone());
        }
        if presence.changed().await.is_err() {
            return;
        }
    }
}

async fn follow_refusals(mut told: watch::Receiver<Option<Refusal>>, refused: watch::Sender<Option<Refusal>>) {
    while told.changed().await.is_ok() {
        let refusal = told.borrow_and_update().clone();
        refused.send_replace(refusal);
    }
}

impl EngineClient for Replicas {
    fn submit(&self, jobs: Vec<Job>, wave: bool, done: Done) {
        if wave {
            self.share_wave(jobs, &done);
        } else {
            self.share(jobs, &done);
        }
    }

    fn visit(&self, visits: Vec<Visit>) {
        let mut parts: BTreeMap<EngineId, Vec<Visit>> = BTreeMap::new();
        let mut desk = lock(&self.desk);
        for visit in visits {
            let job = &visit.job;
            let id = desk.router.assign(job.request, job.group, job.member);
            parts.entry(id).or_default().push(visit);
        }
        drop(desk);
        for (id, part) in parts {
            self.engines[id].visit(part);
        }
    }

    fn leave(&self, request: RequestId) {
        let engine = lock(&self.desk).router.finish(request);
        if let Some(engine) = engine.and_then(|id| self.engines.get(id)) {
            engine.leave(request);
        }
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

    fn refusals(&self) -> watch::Receiver<Option<Refusal>> {
        self.refused.subscribe()
    }
}

#[cfg(test)]
mod tests;
