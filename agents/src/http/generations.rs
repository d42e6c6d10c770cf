//! The generations of one request: begun together, read as they come, and cancelled when the client
//! is gone.

use std::collections::HashMap;
use std::sync::Arc;

use broker::ids::{Digest, GroupId, RequestId};
use broker::protocol::turn::Finish;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uuid::Uuid;

use super::client_request::ClientRequest;
use super::gate::Place;
use super::rates::Charge;
use crate::base::log_scope;
use crate::engine::{EngineClient, GenerationJob, Visit, VisitUpdate};

/// The places and the token charge that a request holds until its generations have ended.
pub type HeldPlaces = ([Place; 2], Charge);

/// The running generations of one request. Dropping it cancels those that are left.
pub struct Generations {
    engine: Arc<dyn EngineClient>,
    updates: UnboundedReceiver<VisitUpdate>,
    /// The choice index of each generation that still runs.
    choices: HashMap<RequestId, usize>,
}

impl Generations {
    /// Begins `n` choices of each prompt. They hold their places while they generate, however
    /// slowly the client reads.
    pub fn begin(
        engine: Arc<dyn EngineClient>,
        prompts: &[Arc<[u32]>],
        ask: &ClientRequest,
        taken: HeldPlaces,
    ) -> Self {
        let (tell, updates) = unbounded_channel();
        let updates = held(taken, updates, prompts.len() * ask.n);
        let seed = ask.seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0);
        let sampling = Arc::new(ask.sampling.clone());
        let prompt_top = ask.prompt_top();
        // Only the prompt is sent back: that needs no engine.
        let silent = sampling.max_new_tokens == 0 && prompt_top.is_none();
        let (mut visits, mut choices) = (Vec::new(), HashMap::new());
        for (index, prompt) in prompts.iter().enumerate() {
            let group = GroupId(*Uuid::new_v4().as_bytes());
            for member in 0..ask.n {
                let request = RequestId(*Uuid::new_v4().as_bytes());
                let choice = index * ask.n + member;
                choices.insert(request, choice);
                if silent {
                    // The receiver exists here, so the send succeeds.
                    let _ = tell.send(VisitUpdate::end(request, Ok(Finish::Length)));
                    continue;
                }
                visits.push(Visit {
                    job: GenerationJob {
                        request,
                        group,
                        member: member as u16,
                        prompt_ids: prompt.clone(),
                        sampling: sampling.clone(),
                        seed: seed_of(seed, choice),
                        // Only training's turns are kept.
                        keep: false,
                    },
                    // Large extras come in many reports while tokens are generated, never in one
                    // piece.
                    watched: ask.stream || !ask.stop.is_empty() || ask.top > 0,
                    top: ask.top,
                    prompt_top,
                    updates: tell.clone(),
                });
            }
        }
        engine.visit(visits);
        Self {
            engine,
            updates,
            choices,
        }
    }

    /// Returns the next report and its choice. `None`: the engine is gone, or every choice has
    /// ended.
    pub async fn next(&mut self) -> Option<(usize, VisitUpdate)> {
        loop {
            let updates = self.updates.recv().await?;
            if let Some(choice) = self.choices.get(&updates.request) {
                return Some((*choice, updates));
            }
        }
    }

    /// Cancels a choice that is complete.
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

impl Drop for Generations {
    fn drop(&mut self) {
        self.choices.keys().for_each(|request| self.engine.leave(*request));
    }
}

/// Forwards reports, and holds the places until all generations have ended or were cancelled.
fn held(
    (places, mut charge): HeldPlaces,
    mut from: UnboundedReceiver<VisitUpdate>,
    mut open: usize,
) -> UnboundedReceiver<VisitUpdate> {
    let (tell, updates) = unbounded_channel();
    log_scope::spawn(async move {
        while open > 0
            && let Some(news) = from.recv().await
        {
            open -= usize::from(news.end.is_some());
            charge.made(news.ids.len());
            // A receiver that is gone has cancelled its generations.
            let _ = tell.send(news);
        }
        drop((places, charge));
    });
    updates
}

/// The seed of one choice: choices differ, and the same seed gives the same choices.
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
    use crate::http::client_request::Endpoint;
    use crate::http::gate::RequestGate;

    /// Keeps visits until they are cancelled.
    #[derive(Default)]
    struct Kept(Mutex<Vec<Visit>>);

    impl EngineClient for Kept {
        fn submit(&self, _: Vec<GenerationJob>, _: bool, _: UnboundedSender<Vec<Finished>>) {}
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

    fn begin(engine: &Arc<Kept>, gate: &RequestGate, body: &str) -> Generations {
        let ask = ClientRequest::read(Endpoint::Completion, body.as_bytes(), &SamplingConfig::default()).unwrap();
        let prompts: Vec<Arc<[u32]>> = vec![[1, 2].into(), [3].into()];
        let places = [gate.enter().unwrap(), gate.generate(2 * ask.n).unwrap()];
        Generations::begin(engine.clone(), &prompts, &ask, (places, Charge::default()))
    }

    fn seeds(engine: &Kept) -> Vec<u64> {
        engine.0.lock().unwrap().iter().map(|visit| visit.job.seed).collect()
    }

    #[tokio::test]
    async fn dropped_generations_are_cancelled_and_free_their_places() {
        let (engine, gate) = (Arc::new(Kept::default()), RequestGate::new(9, 6));
        let mut open = begin(&engine, &gate, r#"{"model": "a", "prompt": "x", "n": 3, "seed": 5}"#);
        assert_eq!(engine.0.lock().unwrap().len(), 6);
        assert!(gate.generate(1).is_err());
        let first = engine.0.lock().unwrap()[4].clone();
        let updates = VisitUpdate {
            request: first.job.request,
            ids: vec![7],
            logprobs: vec![-1.0],
            top: Vec::new(),
            spans: Vec::new(),
            prompt: None,
            end: None,
        };
        first.updates.send(updates.clone()).unwrap();
        assert_eq!(open.next().await, Some((4, updates.clone())));
        open.leave(4);
        assert_eq!(engine.0.lock().unwrap().len(), 5);
        first.updates.send(updates).unwrap();
        drop(first);
        drop(open);
        assert!(engine.0.lock().unwrap().is_empty());
        until(|| gate.generate(6).is_ok()).await;
    }

    /// Yields to other tasks until the condition holds.
    async fn until(so: impl Fn() -> bool) {
        while !so() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn ended_generations_free_their_places_before_they_are_read() {
        let (engine, gate) = (Arc::new(Kept::default()), RequestGate::new(1, 2));
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
    async fn choices_have_different_reproducible_seeds() {
        let (engine, gate) = (Arc::new(Kept::default()), RequestGate::new(9, 60));
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
