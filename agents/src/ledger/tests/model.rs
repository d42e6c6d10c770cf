//! Random histories of reservations, parts, duplicates, rival attempts, batches and crashes against a small model:
//! exactly one attempt of a group ever counts, nothing that was answered is lost, no sample takes effect twice.

use std::collections::{BTreeMap, BTreeSet};

use broker::ids::WeightVersion;
use broker::protocol::reserve::ReserveVerdict;
use proptest::prelude::*;

use super::*;
use crate::ledger::Staged;

const GROUPS: u64 = 5;
const LIMIT: u64 = 3;

#[derive(Debug, Clone)]
enum Op {
    Reserve(u64),
    Part {
        group: u64,
        attempt: u8,
        part: u16,
    },
    Empty {
        group: u64,
        attempt: u8,
    },
    Train,
    /// Reopens the file, and begins a lineage at a step of the newest.
    Crash {
        back: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..GROUPS).prop_map(Op::Reserve),
        8 => (0..GROUPS, 1..3u8, 0..2u16).prop_map(|(group, attempt, part)| Op::Part { group, attempt, part }),
        1 => (0..GROUPS, 1..4u8).prop_map(|(group, attempt)| Op::Empty { group, attempt }),
        2 => Just(Op::Train),
        1 => (0..3u64).prop_map(|back| Op::Crash { back }),
    ]
}

/// Attempts have two parts each.
#[derive(Default)]
struct Model {
    reserved: BTreeMap<u64, BTreeSet<(u8, u16)>>,
    /// Winner's attempt; attempts above 9 stand for empty.
    closed: BTreeMap<u64, (u8, bool)>,
    lineage: u32,
    /// Groups consumed by step along the surviving lineage.
    steps: Vec<u64>,
}

impl Model {
    fn ready(&self) -> Vec<u64> {
        let with_samples = self.closed.iter().filter(|(_, (_, samples))| *samples);
        with_samples
            .map(|(group, _)| *group)
            .filter(|group| !self.steps.contains(group))
            .collect()
    }

    fn reserve(&mut self, group: u64) -> ReserveVerdict {
        if let Some((attempt, samples)) = self.closed.get(&group) {
            let digest = Digest([if *samples { *attempt } else { 0 }; 16]);
            return ReserveVerdict::Closed {
                attempt: Attempt([*attempt; 16]),
                digest,
            };
        }
        let full = (self.reserved.len() + self.ready().len()) as u64 >= LIMIT;
        if full && !self.reserved.contains_key(&group) {
            return ReserveVerdict::Later;
        }
        self.reserved.entry(group).or_default();
        ReserveVerdict::Granted
    }

    fn part(&mut self, group: u64, attempt: u8, part: u16) -> Staged {
        if let Some(closed) = self.closed.get(&group) {
            let same = *closed == (attempt, true);
            return if same { Staged::Duplicate } else { Staged::OtherAttempt };
        }
        let Some(parts) = self.reserved.get_mut(&group) else {
            return Staged::NoRow;
        };
        if !parts.insert((attempt, part)) {
            return Staged::Duplicate;
        }
        if !parts.contains(&(attempt, 1 - part)) {
            return Staged::Staged;
        }
        self.reserved.remove(&group);
        self.closed.insert(group, (attempt, true));
        Staged::Closed
    }

    fn empty(&mut self, group: u64, attempt: u8) -> Staged {
        if let Some(closed) = self.closed.get(&group) {
            let same = *closed == (attempt, false);
            return if same { Staged::Duplicate } else { Staged::OtherAttempt };
        }
        if self.reserved.remove(&group).is_none() {
            return Staged::NoRow;
        }
        self.closed.insert(group, (attempt, false));
        Staged::Closed
    }
}

fn check(ledger: &Ledger, model: &Model) {
    let counts = ledger.counts();
    assert_eq!(counts.reserved, model.reserved.len() as u64);
    assert_eq!(counts.closed, model.closed.len() as u64);
    assert_eq!(counts.trained, 2 * model.steps.len() as u64);
    let ready: Vec<u64> = ledger.ready(99).unwrap().iter().map(|b| b.order).collect();
    assert_eq!(ready, model.ready());
    for bundle in ledger.ready(99).unwrap() {
        let BundleContent::Samples(samples) = &bundle.content else {
            panic!("an empty bundle is ready")
        };
        assert_eq!(samples.len(), 2, "both parts");
        assert_eq!(bundle.attempt, Attempt([model.closed[&bundle.order].0; 16]));
    }
}

fn run_history(ops: &[Op]) {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    let mut model = Model {
        lineage: ledger.begin_lineage(None).unwrap(),
        ..Model::default()
    };
    for op in ops {
        match op {
            Op::Reserve(group) => {
                let answer = ledger.reserve(&[reserve(*group)], LIMIT).unwrap();
                assert_eq!(answer, [model.reserve(*group)]);
            }
            Op::Part {
                group,
                attempt,
                part: p,
            } => {
                let answer = ledger.stage(&[part(*group, *attempt, *attempt, *p, 2)]).unwrap();
                assert_eq!(answer, [model.part(*group, *attempt, *p)]);
            }
            Op::Empty { group, attempt } => {
                let answer = ledger.stage(&[empty(*group, *attempt, "void")]).unwrap();
                assert_eq!(answer, [model.empty(*group, *attempt)]);
            }
            Op::Train => {
                if let Some(group) = model.ready().first() {
                    model.steps.push(*group);
                    ledger
                        .record_batch(model.lineage, model.steps.len() as u64, &trained(*group, 2))
                        .unwrap();
                }
            }
            Op::Crash { back } => {
                drop(ledger);
                ledger = open(&folder);
                let recorded = model.steps.clone();
                let step = (recorded.len() as u64).saturating_sub(*back);
                let fork = WeightVersion {
                    lineage: model.lineage,
                    step,
                };
                model.lineage = ledger.begin_lineage(Some(fork)).unwrap();
                model.steps.truncate(step as usize);
                check(&ledger, &model);
                for batch in ledger.recorded_batches(step).unwrap() {
                    assert_eq!(batch.groups(), [group(recorded[model.steps.len()])]);
                    ledger.record_batch(model.lineage, batch.step, &batch.verdicts).unwrap();
                    model.steps.push(recorded[model.steps.len()]);
                }
                assert_eq!(model.steps, recorded, "every recorded batch is replayed");
            }
        }
        check(&ledger, &model);
    }
    assert_eq!(ledger.audit().unwrap().violations(), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn histories_agree_with_the_model(ops in proptest::collection::vec(op(), 1..60)) {
        run_history(&ops);
    }
}
