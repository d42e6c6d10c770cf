//! A store that answers late or not at all, or returns empty or to an earlier state, over the store
//! in memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use broker::ids::{Attempt, GroupId};
use broker::store::memory::MemoryStore;
use broker::store::{Claim, Committed, Lease, Record, Store, StoreError};
use bytes::Bytes;
use futures_util::FutureExt;

use super::chance::Chance;

/// The one store of a run.
pub(super) struct SimStore {
    state: Mutex<State>,
    chance: Chance,
}

struct State {
    store: Arc<MemoryStore>,
    /// Every step so far, so that any earlier state can be restored.
    steps: Vec<Step>,
}

#[derive(Clone)]
enum Step {
    Claim(GroupId, String, Attempt, Option<(u64, u64)>),
    Beat(Vec<Lease>),
    Commit(Lease, Vec<Record>),
    Decide(Lease, Bytes),
    Finish(Lease),
    Release(Lease),
    Void(Lease),
}

enum Answer {
    Claim(Claim),
    Beat(Vec<bool>),
    Commit(Vec<Committed>),
    Decide(Bytes),
    Done,
}

async fn act(store: &MemoryStore, step: Step) -> Result<Answer, StoreError> {
    Ok(match step {
        Step::Claim(group, owner, fresh, silent) => Answer::Claim(store.claim(group, &owner, fresh, silent).await?),
        Step::Beat(leases) => Answer::Beat(store.beat(&leases).await?),
        Step::Commit(lease, records) => Answer::Commit(store.commit(lease, &records).await?),
        Step::Decide(lease, outcome) => Answer::Decide(store.decide(lease, outcome).await?),
        Step::Finish(lease) => store.finish(lease).await.map(|()| Answer::Done)?,
        Step::Release(lease) => store.release(lease).await.map(|()| Answer::Done)?,
        Step::Void(lease) => store.void(lease).await.map(|()| Answer::Done)?,
    })
}

fn act_now(store: &MemoryStore, step: Step) -> Result<Answer, StoreError> {
    act(store, step)
        .now_or_never()
        .expect("the store in memory never waits")
}

impl SimStore {
    pub(super) fn new(chance: Chance) -> Arc<Self> {
        let state = State {
            store: MemoryStore::new(),
            steps: Vec::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            chance,
        })
    }

    /// Returns to the state after a share of all steps, in hundredths.
    pub(super) fn go_back_to(&self, share: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = state.steps.len() * share / 100;
        state.steps.truncate(kept);
        state.store = MemoryStore::new();
        for step in state.steps.clone() {
            let _ = act_now(&state.store, step);
        }
    }

    async fn step(&self, step: Step) -> Result<Answer, StoreError> {
        let silence = |chance: &Chance| chance.strikes(30);
        if self.chance.strikes(8) {
            tokio::time::sleep(Duration::from_millis(1 + self.chance.below(200) as u64)).await;
        }
        if silence(&self.chance) {
            return Err(StoreError::Unknown("the store did not receive the call".into()));
        }
        let answer = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.steps.push(step.clone());
            act_now(&state.store, step)
        };
        // The answer is late, or never comes.
        if self.chance.strikes(8) {
            tokio::time::sleep(Duration::from_millis(1 + self.chance.below(200) as u64)).await;
        }
        if silence(&self.chance) {
            return Err(StoreError::Unknown("the store's answer was lost".into()));
        }
        answer
    }
}

#[async_trait]
impl Store for SimStore {
    async fn claim(
        &self,
        group: GroupId,
        owner: &str,
        fresh: Attempt,
        silent: Option<(u64, u64)>,
    ) -> Result<Claim, StoreError> {
        match self.step(Step::Claim(group, owner.to_owned(), fresh, silent)).await? {
            Answer::Claim(claim) => Ok(claim),
            _ => unreachable!("a claim is answered with a claim"),
        }
    }

    async fn beat(&self, leases: &[Lease]) -> Result<Vec<bool>, StoreError> {
        match self.step(Step::Beat(leases.to_vec())).await? {
            Answer::Beat(standing) => Ok(standing),
            _ => unreachable!("beats are answered with what stands"),
        }
    }

    async fn commit(&self, lease: Lease, records: &[Record]) -> Result<Vec<Committed>, StoreError> {
        match self.step(Step::Commit(lease, records.to_vec())).await? {
            Answer::Commit(committed) => Ok(committed),
            _ => unreachable!("a commit is answered record by record"),
        }
    }

    async fn decide(&self, lease: Lease, outcome: Bytes) -> Result<Bytes, StoreError> {
        match self.step(Step::Decide(lease, outcome)).await? {
            Answer::Decide(outcome) => Ok(outcome),
            _ => unreachable!("a decision is answered with the outcome"),
        }
    }

    async fn finish(&self, lease: Lease) -> Result<(), StoreError> {
        self.step(Step::Finish(lease)).await.map(drop)
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.step(Step::Release(lease)).await.map(drop)
    }

    async fn void(&self, lease: Lease) -> Result<(), StoreError> {
        self.step(Step::Void(lease)).await.map(drop)
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}
