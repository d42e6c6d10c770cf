//! Random interleavings of two owners: the store in memory against a small model, and against the
//! one in Redis.

use std::collections::BTreeMap;

use broker::ids::Attempt;
use broker::store::memory::MemoryStore;
use broker::store::{Claim, Claimed, Committed, Lease, Record, Store, StoreError};
use bytes::Bytes;
use proptest::prelude::*;

use crate::harness::*;

const OWNERS: [&str; 2] = ["x", "y"];

/// One step of one owner, with its last lease of the group.
#[derive(Debug, Clone)]
enum Op {
    /// `watched`: claims after having watched the other owner, which may have moved since.
    Claim {
        watched: bool,
    },
    Watch,
    Beat,
    Commit(Vec<(u8, u8)>),
    Decide(u8),
    Finish,
    Release,
    Void,
}

#[derive(Debug, Clone)]
struct Step {
    owner: usize,
    group: u8,
    op: Op,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let op = prop_oneof![
        3 => any::<bool>().prop_map(|watched| Op::Claim { watched }),
        2 => Just(Op::Watch),
        2 => Just(Op::Beat),
        5 => prop::collection::vec((0..4u8, 0..2u8), 0..4).prop_map(Op::Commit),
        2 => (0..2u8).prop_map(Op::Decide),
        1 => Just(Op::Finish),
        1 => Just(Op::Release),
        1 => Just(Op::Void),
    ];
    let step = (0..2usize, 0..2u8, op).prop_map(|(owner, group, op)| Step { owner, group, op });
    prop::collection::vec(step, 1..80)
}

#[derive(Debug, PartialEq)]
enum Answer {
    Claim(Result<Claim, StoreError>),
    Beat(Result<Vec<bool>, StoreError>),
    Commit(Result<Vec<Committed>, StoreError>),
    Decide(Result<Bytes, StoreError>),
    Done(Result<(), StoreError>),
}

/// An owner's knowledge of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    lease: Option<Lease>,
    watched: Option<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Owners {
    memory: BTreeMap<(usize, u8), Memory>,
    attempts: u8,
}

/// A call with all its arguments, the same for every store.
#[derive(Debug, Clone)]
enum Call {
    Claim(u8, &'static str, Attempt, Option<(u64, u64)>),
    Beat(Lease),
    Commit(Lease, Vec<Record>),
    Decide(Lease, Bytes),
    Finish(Lease),
    Release(Lease),
    Void(Lease),
}

impl Owners {
    fn call(&mut self, step: &Step) -> Call {
        let Step { owner, group: g, op } = step;
        let memory = self.memory.get(&(*owner, *g)).copied().unwrap_or_default();
        let never = Lease {
            group: group(*g),
            attempt: attempt(255),
            fence: 1,
        };
        let lease = memory.lease.unwrap_or(never);
        match op {
            Op::Claim { watched } => {
                self.attempts += 1;
                let silent = memory.watched.filter(|_| *watched);
                Call::Claim(*g, OWNERS[*owner], attempt(self.attempts), silent)
            }
            Op::Watch => Call::Claim(*g, OWNERS[*owner], attempt(254), None),
            Op::Beat => Call::Beat(lease),
            Op::Commit(records) => {
                let records = records.iter().map(|(k, v)| record(&k.to_string(), vec![*v; 3]));
                Call::Commit(lease, records.collect())
            }
            Op::Decide(outcome) => Call::Decide(lease, vec![*outcome].into()),
            Op::Finish => Call::Finish(lease),
            Op::Release => Call::Release(lease),
            Op::Void => Call::Void(lease),
        }
    }

    fn learn(&mut self, step: &Step, answer: &Answer) {
        let memory = self.memory.entry((step.owner, step.group)).or_default();
        match answer {
            Answer::Claim(Ok(Claim::Ours(claimed))) => memory.lease = Some(claimed.lease),
            Answer::Claim(Ok(Claim::Theirs { beat, fence, .. })) => memory.watched = Some((*beat, *fence)),
            _ => {}
        }
    }
}

async fn ask(store: &dyn Store, call: Call) -> Answer {
    match call {
        Call::Claim(g, owner, fresh, silent) => Answer::Claim(store.claim(group(g), owner, fresh, silent).await),
        Call::Beat(lease) => Answer::Beat(store.beat(&[lease]).await),
        Call::Commit(lease, records) => Answer::Commit(store.commit(lease, &records).await),
        Call::Decide(lease, outcome) => Answer::Decide(store.decide(lease, outcome).await),
        Call::Finish(lease) => Answer::Done(store.finish(lease).await),
        Call::Release(lease) => Answer::Done(store.release(lease).await),
        Call::Void(lease) => Answer::Done(store.void(lease).await),
    }
}

/// The model: the owner of each group and its records.
#[derive(Debug, Default)]
struct Model(BTreeMap<u8, Written>);

#[derive(Debug, Clone, PartialEq)]
enum Holder {
    Of(&'static str),
    Released,
    Finished(&'static str),
}

#[derive(Debug, Clone)]
struct Written {
    holder: Holder,
    lease: Lease,
    beat: u64,
    records: Vec<Record>,
    decided: Option<Bytes>,
}

impl Model {
    fn ask(&mut self, call: Call) -> Answer {
        match call {
            Call::Claim(g, owner, fresh, silent) => Answer::Claim(Ok(self.claim(g, owner, fresh, silent))),
            Call::Beat(lease) => Answer::Beat(Ok(vec![self.held(lease).map(|w| w.beat += 1).is_some()])),
            Call::Commit(lease, records) => Answer::Commit(self.write(lease, |w| {
                records
                    .into_iter()
                    .map(|record| commit(&mut w.records, record))
                    .collect()
            })),
            Call::Decide(lease, outcome) => {
                Answer::Decide(self.write(lease, |w| w.decided.get_or_insert(outcome).clone()))
            }
            Call::Finish(lease) => Answer::Done(self.end(lease, |holder| match holder {
                Holder::Of(owner) | Holder::Finished(owner) => Some(Holder::Finished(owner)),
                Holder::Released => None,
            })),
            Call::Release(lease) => Answer::Done(self.end(lease, |holder| match holder {
                Holder::Of(_) | Holder::Released => Some(Holder::Released),
                Holder::Finished(_) => None,
            })),
            Call::Void(lease) => {
                let known = self.0.contains_key(&lease.group.0[0]);
                let held = self.held(lease).is_some();
                self.0.retain(|_, w| !(held && w.lease == lease));
                Answer::Done(if held || !known { Ok(()) } else { Err(StoreError::Stale) })
            }
        }
    }

    fn claim(&mut self, g: u8, owner: &'static str, fresh: Attempt, silent: Option<(u64, u64)>) -> Claim {
        let lease = Lease {
            group: group(g),
            attempt: fresh,
            fence: 1,
        };
        let new = Written {
            holder: Holder::Of(owner),
            lease,
            beat: 0,
            records: vec![],
            decided: None,
        };
        let written = self.0.entry(g).or_insert(new);
        match written.holder {
            Holder::Of(same) if same == owner => {}
            Holder::Of(other) if silent != Some((written.beat, written.lease.fence)) => {
                return Claim::Theirs {
                    owner: other.into(),
                    beat: written.beat,
                    fence: written.lease.fence,
                };
            }
            _ => {
                written.holder = Holder::Of(owner);
                written.lease.fence += 1;
            }
        }
        written.beat += 1;
        let Written {
            lease,
            records,
            decided,
            ..
        } = written.clone();
        Claim::Ours(Claimed {
            lease,
            records,
            decided,
        })
    }

    fn held(&mut self, lease: Lease) -> Option<&mut Written> {
        self.0
            .values_mut()
            .find(|w| w.lease == lease && matches!(w.holder, Holder::Of(_)))
    }

    fn write<T>(&mut self, lease: Lease, write: impl FnOnce(&mut Written) -> T) -> Result<T, StoreError> {
        self.held(lease).map(write).ok_or(StoreError::Stale)
    }

    fn end(&mut self, lease: Lease, end: impl FnOnce(&Holder) -> Option<Holder>) -> Result<(), StoreError> {
        let written = self
            .0
            .values_mut()
            .find(|w| w.lease == lease)
            .ok_or(StoreError::Stale)?;
        written.holder = end(&written.holder).ok_or(StoreError::Stale)?;
        Ok(())
    }
}

fn commit(records: &mut Vec<Record>, record: Record) -> Committed {
    match records.iter().find(|first| first.key == record.key) {
        Some(first) if *first == record => Committed::Duplicate,
        Some(_) => Committed::Conflict,
        None => {
            records.push(record);
            Committed::New
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn memory_answers_as_the_model(steps in steps()) {
        let (memory, mut model, mut owners) = (MemoryStore::new(), Model::default(), Owners::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for step in &steps {
            let call = owners.call(step);
            let answer = runtime.block_on(ask(&*memory, call.clone()));
            owners.learn(step, &answer);
            let expected = model.ask(call.clone());
            prop_assert_eq!(&answer, &expected, "{:?}", call);
        }
    }
}

#[test]
fn redis_answers_as_memory() {
    let runtime = runtime();
    let redis = runtime.block_on(RedisFixture::start());
    let config = ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in steps())| {
        runtime.block_on(async {
            let () = redis.raw_command(&["FLUSHALL"]).await;
            let (memory, mut owners) = (MemoryStore::new(), Owners::default());
            for step in &steps {
                let call = owners.call(step);
                let expected = ask(&*memory, call.clone()).await;
                let answer = ask(&*redis.store, call.clone()).await;
                owners.learn(step, &expected);
                prop_assert_eq!(&answer, &expected, "{:?}", call);
            }
            Ok(())
        })?;
    });
}
