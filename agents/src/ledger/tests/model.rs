//! Compares the ledger with a small model under random histories.
//!
//! Histories consist of reservations, parts, duplicates, rival attempts, batches and crashes.
//! Exactly one attempt of a group ever counts, no answered call is lost, and no sample takes effect
//! twice.

use broker::ids::WeightVersion;
use proptest::prelude::*;

use super::custody::{CustodyModel, Part};
use super::*;

const GROUPS: u64 = 5;
const LIMIT: u64 = 3;

#[derive(Debug, Clone)]
enum Op {
    Reserve(u64),
    Part {
        group: u64,
        attempt: u8,
        content: u8,
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
        8 => (0..GROUPS, 1..3u8, 1..4u8, 0..2u16)
            .prop_map(|(group, attempt, content, part)| Op::Part { group, attempt, content, part }),
        1 => (0..GROUPS, 1..4u8).prop_map(|(group, attempt)| Op::Empty { group, attempt }),
        2 => Just(Op::Train),
        1 => (0..3u64).prop_map(|back| Op::Crash { back }),
    ]
}

/// Content 3 fits into one message, the others into two.
fn parts_of(content: u8) -> u16 {
    if content == 3 { 1 } else { 2 }
}

#[derive(Default)]
struct Model {
    custody: CustodyModel,
    lineage: u32,
    /// Groups consumed by step along the surviving lineage.
    steps: Vec<u64>,
}

impl Model {
    fn closed(&self) -> impl Iterator<Item = (u64, super::custody::Winner)> {
        let rows = self.custody.rows.keys();
        rows.filter_map(|group| Some((*group, self.custody.winner(*group)?)))
    }

    fn reserved(&self) -> u64 {
        (self.custody.rows.len() - self.closed().count()) as u64
    }

    fn ready(&self) -> Vec<u64> {
        let with_samples = self.closed().filter(|(_, winner)| winner.samples);
        with_samples
            .map(|(group, _)| group)
            .filter(|group| !self.steps.contains(group))
            .collect()
    }

    /// Returns the number of samples of a group's winner.
    fn samples(&self, group: u64) -> u16 {
        let winner = self.custody.winner(group).unwrap();
        parts_of(winner.digest.0[0])
    }

    fn stage(&mut self, group: u64, bundle: &Bundle) -> crate::ledger::Staged {
        let part = Part {
            attempt: bundle.attempt,
            digest: bundle.digest,
            part: bundle.part,
            parts: bundle.parts,
            samples: matches!(bundle.content, BundleContent::Samples(_)),
        };
        self.custody.stage(group, part)
    }
}

fn check(ledger: &Ledger, model: &Model) {
    let counts = ledger.counts();
    assert_eq!(counts.reserved, model.reserved());
    assert_eq!(counts.closed, model.closed().count() as u64);
    let trained: u64 = model.steps.iter().map(|group| u64::from(model.samples(*group))).sum();
    assert_eq!(counts.trained, trained);
    let ready: Vec<u64> = ledger.ready(99).unwrap().iter().map(|b| b.order).collect();
    assert_eq!(ready, model.ready());
    for bundle in ledger.ready(99).unwrap() {
        let BundleContent::Samples(samples) = &bundle.content else {
            panic!("an empty bundle is ready")
        };
        assert_eq!(samples.len(), usize::from(model.samples(bundle.order)), "all parts");
        let winner = model.custody.winner(bundle.order).unwrap();
        assert_eq!((bundle.attempt, bundle.digest), (winner.attempt, winner.digest));
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
                let full = model.reserved() + model.ready().len() as u64 >= LIMIT;
                assert_eq!(answer, [model.custody.reserve(*group, full)]);
            }
            Op::Part {
                group,
                attempt,
                content,
                part: p,
            } => {
                let parts = parts_of(*content);
                let bundle = part(*group, *attempt, *content, p % parts, parts);
                let answer = ledger.stage(std::slice::from_ref(&bundle)).unwrap();
                assert_eq!(answer, [model.stage(*group, &bundle)]);
            }
            Op::Empty { group, attempt } => {
                let bundle = empty(*group, *attempt, "void");
                let answer = ledger.stage(std::slice::from_ref(&bundle)).unwrap();
                assert_eq!(answer, [model.stage(*group, &bundle)]);
            }
            Op::Train => {
                if let Some(group) = model.ready().first() {
                    model.steps.push(*group);
                    ledger
                        .record_batch(
                            model.lineage,
                            model.steps.len() as u64,
                            &trained(*group, model.samples(*group)),
                        )
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
