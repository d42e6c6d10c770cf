//! Generations of one request: begun together, told as they come, and left when nobody listens any more.

use std::collections::HashMap;
use std::sync::Arc;

use broker::ids::{Digest, GroupId, RequestId};
use broker::protocol::turn::Finish;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uuid::Uuid;

use super::ask::Ask;
use super::gate::Place;
use super::rates::Charge;
use crate::engine::{EngineClient, Job, Visit, VisitUpdate};

/// What a request has until its generations have ended: its places, and what it was charged.
pub type Taken = ([Place; 2], Charge);

/// What one request has under way. Whatever is left of it when this is dropped is cancelled.
pub struct Open {
    engine: Arc<dyn EngineClient>,
    told: UnboundedReceiver<VisitUpdate>,
    /// Choice of each generation that was not left yet.
    choices: HashMap<RequestId, usize>,
}

impl Open {
    /// Begins `n` choices of each prompt. They have their places for as long as they generate, however slowly they are read.
    pub fn begin(engine: Arc<dyn EngineClient>, prompts: &[Arc<[u32]>], ask: &Ask, taken: Taken) -> Self {
        let (tell, told) = unbounded_channel();
        let told = held(taken, told, prompts.len() * ask.n);
        let seed = ask.seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0);
        let sampling = Arc::new(ask.sampling.clone());
        let prompt_top = ask.prompt_top();
        // The prompt alone comes back: no engine is needed for that.
        let silent = sampling.max_new_tokens == 0 && prompt_top.is_none();
        let (mut visits, mut choices) = (Vec::new(), HashMap::new());
        for (index, prompt) in prompts.iter().enumerate() {
            let group = GroupId(*Uuid::new_v4().as_bytes());
            for member in 0..ask.n {
                let request = RequestId(*Uuid::new_v4().as_bytes());
                let choice = index * ask.n + member;
                choices.insert(request, choice);
                if silent {
                    // The other end is here.
                    let _ = tell.send(VisitUpdate::end(request, Ok(Finish::Length)));
                    continue;
                }
                visits.push(Visit {
                    job: Job {
                        request,
                        group,
                        member: member as u16,
                        prompt_ids: prompt.clone(),
                        sampling: sampling.clone(),
                        seed: seed_of(seed, choice),
                        // What is kept is training's.
                        keep: false,
                    },
                    // What comes with tokens is many times their size: it is told as it is made, and never in one piece.
                    watched: ask.stream || !ask.stop.is_empty() || ask.top > 0,
                    top: ask.top,
                    prompt_top,
                    updates: tell.clone(),
                });
            }
        }
        engine.visit(visits);
        Self { engine, told, choices }
    }

    /// What was told next, and of which choice. `None`: the engine is gone, or every choice was left.
    pub async fn next(&mut self) -> Option<(usize, VisitUpdate)> {
        loop {
            let told = self.told.recv().await?;
            if let Some(choice) = self.choices.get(&told.request) {
                return Some((*choice, told));
            }
        }
    }

    /// A choice has all that it needs.
    pub fn leave(&mut self, choice: usize) {
        let engine = &self.engine;
        self.choices.retain(|request, known| {
            let stays = *known != choice;
            if !stays {
                engine.leave(*request);
            }
            stays
        });
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.choices.keys().for_each(|request| self.engine.leave(*request));
    }
}

/// Hands on what is told, and has the places until all has ended or was left.
fn held(
    (places, mut charge): Taken,
    mut from: UnboundedReceiver<VisitUpdate>,
    mut open: usize,
) -> UnboundedReceiver<VisitUpdate> {
    let (tell, told) = unbounded_channel();
    tokio::spawn(async move {
        while open > 0
            && let Some(news) = from.recv().await
        {
            open -= usize::from(news.end.is_some());
            charge.made(news.ids.len());
            // Who does not listen any more has left.
            let _ = tell.send(news);
        }
        drop((places, charge));
    });
    told
}

/// Each choice has random numbers of its own, the same for the same seed.
fn seed_of(seed: u64, choice: usize) -> u64 {
    let digest = Digest::of(format!("http/{seed}/{choice}").as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.0[..8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use broker::ids::WeightVersion;
    use configs::SamplingConfig;
    use tokio::sync::mpsc::UnboundedSender;
    use tokio::sync::watch;

    use super::*;
    use crate::engine::{Finished, WeightRefusal};
    use crate::http::ask::Kind;
    use crate::http::gate::Gate;

    /// Keeps visits until they are left.
    #[derive(Default)]
    struct Kept(Mutex<Vec<Visit>>);

    impl EngineClient for Kept {
        fn submit(&self, _: Vec<Job>, _: bool, _: UnboundedSender<Vec<Finished>>) {}
        fn visit(&self, visits: Vec<Visit>) {
            self.0.lock().unwrap().extend(visits);
        }
        fn leave(&self, request: RequestId) {
            self.0.lock().unwrap().retain(|visit| visit.job.request != request);
        }
        fn versions(&self) -> watch::Receiver<WeightVersion> {
            watch::channel(WeightVersion::default()).1
        }
        fn refusals(&self) -> watch::Receiver<Option<WeightRefusal>> {
            watch::channel(None).1
        }
    }

    fn begin(engine: &Arc<Kept>, gate: &Gate, body: &str) -> Open {
        let ask = Ask::read(Kind::Completion, body.as_bytes(), &SamplingConfig::default()).unwrap();
        let prompts: Vec<Arc<[u32]>> = vec![[1, 2].into(), [3].into()];
        let places = [gate.enter().unwrap(), gate.generate(2 * ask.n).unwrap()];
        Open::begin(engine.clone(), &prompts, &ask, (places, Charge::default()))
    }

    fn seeds(engine: &Kept) -> Vec<u64> {
        engine.0.lock().unwrap().iter().map(|visit| visit.job.seed).collect()
    }

    #[tokio::test]
    async fn what_nobody_listens_to_is_cancelled_and_its_places_are_free() {
        let (engine, gate) = (Arc::new(Kept::default()), Gate::new(9, 6));
        let mut open = begin(&engine, &gate, r#"{"model": "a", "prompt": "x", "n": 3, "seed": 5}"#);
        assert_eq!(engine.0.lock().unwrap().len(), 6);
        assert!(gate.generate(1).is_err());
        let first = engine.0.lock().unwrap()[4].clone();
        let told = VisitUpdate {
            request: first.job.request,
            ids: vec![7],
            logprobs: vec![-1.0],
            top: Vec::new(),
            spans: Vec::new(),
            prompt: None,
            end: None,
        };
        first.updates.send(told.clone()).unwrap();
        assert_eq!(open.next().await, Some((4, told.clone())));
        open.leave(4);
        assert_eq!(engine.0.lock().unwrap().len(), 5);
        first.updates.send(told).unwrap();
        drop(first);
        drop(open);
        assert!(engine.0.lock().unwrap().is_empty());
        until(|| gate.generate(6).is_ok()).await;
    }

    /// Other tasks have their turn until it is so.
    async fn until(so: impl Fn() -> bool) {
        while !so() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_has_ended_leaves_its_places_to_others_whoever_still_reads() {
        let (engine, gate) = (Arc::new(Kept::default()), Gate::new(1, 2));
        let mut open = begin(&engine, &gate, r#"{"model": "a", "prompt": "x"}"#);
        assert!(gate.enter().is_err() && gate.generate(1).is_err());
        for visit in engine.0.lock().unwrap().iter() {
            let end = VisitUpdate {
                request: visit.job.request,
                ids: vec![7],
                logprobs: vec![-1.0],
                top: Vec::new(),
                spans: Vec::new(),
                prompt: None,
                end: Some(Ok(broker::protocol::turn::Finish::Stop)),
            };
            visit.updates.send(end).unwrap();
        }
        until(|| gate.enter().is_ok() && gate.generate(2).is_ok()).await;
        assert!(open.next().await.is_some() && open.next().await.is_some());
    }

    #[tokio::test]
    async fn choices_differ_in_their_seeds_and_a_seed_gives_the_same_ones() {
        let (engine, gate) = (Arc::new(Kept::default()), Gate::new(9, 60));
        let body = r#"{"model": "a", "prompt": "x", "n": 2, "seed": 5}"#;
        let open = begin(&engine, &gate, body);
        let first = seeds(&engine);
        let groups: Vec<_> = engine.0.lock().unwrap().iter().map(|visit| visit.job.group).collect();
        assert!(
            groups[0] == groups[1] && groups[1] != groups[2],
            "a prompt's choices share its computation"
        );
        drop(open);
        let open = begin(&engine, &gate, body);
        assert_eq!(seeds(&engine), first);
        let mut distinct = first.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 4);
        drop(open);
        let _open = begin(&engine, &gate, r#"{"model": "a", "prompt": "x", "n": 2}"#);
        assert_ne!(seeds(&engine), first);
    }
}
