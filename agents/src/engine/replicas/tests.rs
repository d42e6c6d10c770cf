use super::*;
use crate::testing::{self, version};

/// Keeps its jobs until the test makes it answer.
struct Held {
    given: Mutex<Vec<(Vec<GenerationJob>, bool, Done)>>,
    visited: Mutex<Vec<Visit>>,
    version: watch::Sender<WeightVersion>,
    refused: watch::Sender<Option<WeightRefusal>>,
    there: watch::Sender<bool>,
    pinned: watch::Sender<bool>,
    scores: watch::Sender<bool>,
}

impl Held {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            given: Mutex::default(),
            visited: Mutex::default(),
            version: watch::Sender::new(version(0)),
            refused: watch::Sender::new(None),
            there: watch::Sender::new(true),
            pinned: watch::Sender::new(false),
            scores: watch::Sender::new(false),
        })
    }

    /// Returns groups and members of its jobs, and true for waves.
    fn seen(&self) -> Vec<(Vec<(u8, u16)>, bool)> {
        let name = |job: &GenerationJob| (job.group.0[0], job.member);
        let given = self.given.lock().unwrap();
        given
            .iter()
            .map(|(jobs, wave, _)| (jobs.iter().map(name).collect(), *wave))
            .collect()
    }

    fn answer(&self) {
        for (jobs, _, done) in std::mem::take(&mut *self.given.lock().unwrap()) {
            let failure = crate::engine::EngineFailure {
                cause: broker::protocol::failure::Failure::other("held"),
                retry: true,
            };
            let result = Err(failure);
            let finished = jobs.into_iter().map(|job| Finished {
                job,
                result: result.clone(),
            });
            done.send(finished.collect()).unwrap();
        }
    }
}

impl EngineClient for Held {
    fn submit(&self, jobs: Vec<GenerationJob>, wave: bool, done: Done) {
        self.given.lock().unwrap().push((jobs, wave, done));
    }

    fn visit(&self, visits: Vec<Visit>) {
        self.visited.lock().unwrap().extend(visits);
    }

    fn leave(&self, request: RequestId) {
        self.visited
            .lock()
            .unwrap()
            .retain(|visit| visit.job.request != request);
        let mut given = self.given.lock().unwrap();
        given
            .iter_mut()
            .for_each(|(jobs, ..)| jobs.retain(|job| job.request != request));
        given.retain(|(jobs, ..)| !jobs.is_empty());
    }

    fn scores_prompts(&self) -> bool {
        *self.scores.borrow()
    }

    fn pin(&self, pinned: bool) {
        self.pinned.send_replace(pinned);
    }

    fn presence(&self) -> watch::Receiver<bool> {
        self.there.subscribe()
    }

    fn presences(&self) -> Vec<EnginePresence> {
        let there = self.there.subscribe();
        vec![EnginePresence::new("held", move || *there.borrow())]
    }

    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.version.subscribe()
    }

    fn refusals(&self) -> watch::Receiver<Option<WeightRefusal>> {
        self.refused.subscribe()
    }
}

fn job(group: u8, member: u16) -> GenerationJob {
    let mut request = [group; 16];
    request[1] = member as u8;
    GenerationJob {
        request: RequestId(request),
        member,
        ..testing::job(group, &[u32::from(group)], 1)
    }
}

fn two() -> (Vec<Arc<Held>>, Arc<Replicas>) {
    let held = vec![Held::new(), Held::new()];
    let engines = held.iter().map(|one| one.clone() as Arc<dyn EngineClient>).collect();
    (held, Replicas::start(engines))
}

#[tokio::test]
async fn all_engines_are_pinned_and_unpinned_together() {
    let (held, replicas) = two();
    for pinned in [true, false] {
        replicas.pin(pinned);
        assert!(held.iter().all(|engine| *engine.pinned.borrow() == pinned));
    }
}

#[tokio::test]
async fn presences_are_those_of_each_engine() {
    let (held, replicas) = two();
    held[1].there.send_replace(false);
    let answers: Vec<bool> = replicas.presences().iter().map(|one| (one.answers)()).collect();
    assert_eq!(answers, [true, false]);
}

#[tokio::test]
async fn a_groups_prompt_goes_to_one_engine_and_back_to_its_asker() {
    let (held, replicas) = two();
    let (first, mut to_first) = unbounded_channel();
    let (second, mut to_second) = unbounded_channel();
    replicas.submit(vec![job(1, 0), job(1, 1), job(2, 0)], false, first);
    replicas.submit(vec![job(1, 2)], false, second);
    assert_eq!(held[0].seen(), [(vec![(1, 0), (1, 1)], false), (vec![(1, 2)], false)]);
    assert_eq!(held[1].seen(), [(vec![(2, 0)], false)]);
    held[0].answer();
    assert_eq!(to_first.recv().await.unwrap().len(), 2);
    assert_eq!(to_second.recv().await.unwrap()[0].job.member, 2);
    held[1].answer();
    assert_eq!(to_first.recv().await.unwrap()[0].job.group, GroupId([2; 16]));
    assert_eq!(lock(&replicas.routing).router.loads(), [0, 0]);
    assert!(lock(&replicas.routing).askers.is_empty());
}

/// Yields to other tasks until the condition holds.
async fn until(so: impl Fn() -> bool) {
    while !so() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_absent_engines_jobs_are_reassigned_and_a_wave_waits() {
    let (held, replicas) = two();
    let (done, mut answered) = unbounded_channel();
    replicas.submit(vec![job(1, 0), job(1, 1), job(2, 0)], false, done.clone());
    replicas.submit(vec![job(3, 0), job(4, 0)], true, done.clone());
    // Its presence is seen first.
    tokio::task::yield_now().await;
    held[0].there.send_replace(false);
    until(|| held[1].seen().len() == 3).await;
    assert_eq!(held[0].seen(), [(vec![(3, 0)], true)]);
    assert_eq!(held[1].seen()[2], (vec![(1, 0), (1, 1)], false));
    let losses = |job: GenerationJob| lock(&replicas.routing).askers[&job.request].losses;
    assert_eq!([job(1, 0), job(1, 1), job(2, 0)].map(losses), [1, 1, 0]);
    replicas.submit(vec![job(1, 2)], false, done.clone());
    assert_eq!(held[1].seen().len(), 4, "nothing new either");
    held[1].there.send_replace(false);
    held[0].there.send_replace(true);
    until(|| held[0].seen().len() == 2).await;
    held.iter().for_each(|engine| engine.answer());
    let mut answers = 0;
    while answers < 6 {
        answers += answered.recv().await.unwrap().len();
    }
    assert!(lock(&replicas.routing).askers.is_empty());
}

/// Its bits are a function of its content, so each engine's part is too, whatever was computed
/// before.
#[tokio::test]
async fn a_wave_is_distributed_by_its_groups_alone() {
    let (held, replicas) = two();
    let (done, _answered) = unbounded_channel();
    replicas.submit(vec![job(9, 0)], false, done.clone());
    held[0].given.lock().unwrap().clear();
    for _ in 0..2 {
        let wave = vec![job(3, 0), job(3, 1), job(1, 0), job(2, 0), job(1, 1)];
        replicas.submit(wave, true, done.clone());
        assert_eq!(held[0].seen(), [(vec![(3, 0), (3, 1), (2, 0)], true)]);
        assert_eq!(held[1].seen(), [(vec![(1, 0), (1, 1)], true)]);
        held.iter().for_each(|engine| engine.given.lock().unwrap().clear());
    }
}

/// Both engines load new weights at the same moment, repeatedly, as happens after every step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_reported_version_is_the_newest() {
    let (held, replicas) = two();
    let mut versions = replicas.versions();
    for step in 1..2000 {
        let swap = |engine: Arc<Held>| tokio::task::spawn_blocking(move || engine.version.send_replace(version(step)));
        let _ = tokio::join!(swap(held[0].clone()), swap(held[1].clone()));
        let reported = versions.wait_for(|known| known.step == step);
        let reported = tokio::time::timeout(std::time::Duration::from_secs(20), reported).await;
        assert!(reported.is_ok(), "step {step} is never reported");
    }
}

#[tokio::test]
async fn together_they_serve_the_oldest_weights_of_any() {
    let (held, replicas) = two();
    let mut versions = replicas.versions();
    held[0].version.send_replace(version(1));
    held[1].version.send_replace(version(2));
    let oldest = versions.wait_for(|known| known.step > 0).await.unwrap();
    assert_eq!(*oldest, version(1));
    drop(oldest);
    let mut refusals = replicas.refusals();
    let refusal = WeightRefusal {
        version: version(3),
        reason: "no memory".into(),
    };
    held[1].refused.send_replace(Some(refusal.clone()));
    let reported = refusals.wait_for(Option::is_some).await.unwrap().clone();
    assert_eq!(reported, Some(refusal));
}

#[tokio::test]
async fn visits_are_distributed_and_leave_their_own_engine() {
    let (held, replicas) = two();
    let (updates, _updated) = unbounded_channel();
    let visits = |group, members: u16| -> Vec<Visit> {
        let visit = |member| Visit {
            job: job(group, member),
            watched: true,
            top: 0,
            prompt_top: None,
            updates: updates.clone(),
        };
        (0..members).map(visit).collect()
    };
    replicas.visit(visits(1, 2));
    replicas.visit(visits(2, 1));
    let counts = || [0, 1].map(|engine: usize| held[engine].visited.lock().unwrap().len());
    assert_eq!(counts(), [2, 1], "the choices of one prompt stay together");
    replicas.leave(job(1, 1).request);
    assert_eq!(counts(), [1, 1]);
    replicas.leave(job(1, 0).request);
    replicas.leave(job(2, 0).request);
    replicas.leave(job(2, 0).request);
    assert_eq!(counts(), [0, 0]);
    assert_eq!(lock(&replicas.routing).router.loads(), [0, 0]);
}

#[tokio::test]
async fn replicas_score_prompts_if_every_engine_does() {
    let (held, replicas) = two();
    assert!(!replicas.scores_prompts());
    held[0].scores.send_replace(true);
    assert!(!replicas.scores_prompts());
    held[1].scores.send_replace(true);
    assert!(replicas.scores_prompts());
}

#[tokio::test]
async fn without_waves_an_absent_engine_delays_no_other() {
    let held = [Held::new(), Held::new()];
    let engines = || held.iter().map(|one| one.clone() as Arc<dyn EngineClient>).collect();
    let (apart, together) = (Replicas::start_apart(engines()), Replicas::start(engines()));
    let mut versions = apart.versions();
    held[1].there.send_replace(false);
    held[0].version.send_replace(version(3));
    versions.wait_for(|known| *known == version(3)).await.unwrap();
    // It returns with its old weights, and they count again.
    held[1].there.send_replace(true);
    versions.wait_for(|known| *known == version(0)).await.unwrap();
    held[1].there.send_replace(false);
    versions.wait_for(|known| *known == version(3)).await.unwrap();
    held[0].there.send_replace(false);
    versions.wait_for(|known| *known == version(0)).await.unwrap();
    assert_eq!(*together.versions().borrow(), version(0), "a wave would wait for it");
}
