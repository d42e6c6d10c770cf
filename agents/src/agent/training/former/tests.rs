use broker::protocol::bundle::{BundleContent, Sample};
use configs::{TokenizerConfig, ZeroAdvantage};
use rollout::text::make::write_tokenizer;

use super::*;
use crate::ledger::tests::{agent, group, part, reserve, run, sample};

fn former(batch_groups: usize, zero_advantage: ZeroAdvantage) -> BatchFormer {
    BatchFormer {
        config: TrainConfig {
            batch_groups,
            zero_advantage,
            ..TrainConfig::default()
        },
        max_new_tokens: 4,
        run_seed: 0,
        records: TokenRecordPolicy::default(),
        agent: agent(),
        imitates: None,
        lineages: Lineages::default(),
        replay: VecDeque::new(),
        replayed: false,
        retraced: BTreeMap::new(),
        discarded: HashSet::new(),
        zero: Vec::new(),
    }
}

/// A closed group of two conversations with these rewards.
fn closed(index: u64, rewards: [f32; 2]) -> Bundle {
    let members = (0..).zip(rewards);
    let samples = members.map(|(member, reward)| Sample {
        reward,
        ..sample(member)
    });
    Bundle {
        content: BundleContent::Samples(samples.collect()),
        conversations: 2,
        ..part(index, 1, index as u8, 0, 1)
    }
}

async fn ledger(folder: &tempfile::TempDir, rewards: &[[f32; 2]]) -> (LedgerHandle, WeightVersion) {
    let ledger = LedgerHandle::open(&folder.path().join("a.sqlite"), &run(), &agent()).unwrap();
    let lineage = ledger.begin_lineage(None).await.unwrap();
    for (index, rewards) in (0..).zip(rewards) {
        ledger.reserve(vec![reserve(index)], 99).await.unwrap();
        ledger.stage(vec![closed(index, *rewards)]).await.unwrap();
    }
    (ledger, WeightVersion { lineage, step: 0 })
}

const SAME: [f32; 2] = [1.0, 1.0];
const DIFFERENT: [f32; 2] = [0.0, 1.0];

/// The ledger no longer changes, so no event would wake a trainer that waited for more after the
/// first draw.
#[tokio::test]
async fn refilling_draws_all_ready_groups_before_it_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, version) = ledger(&folder, &[SAME, SAME, DIFFERENT, SAME, DIFFERENT]).await;
    let mut former = former(2, ZeroAdvantage::Refill);
    former.resume(&ledger, version).await.unwrap();
    let (bundles, batch) = former.next(&ledger, version).await.unwrap().expect("a batch");
    assert_eq!(batch.groups, [group(2), group(4)]);
    assert_eq!(bundles.len(), 2);
    let verdicts = former.verdicts(&batch);
    let discarded = verdicts
        .iter()
        .filter(|v| v.verdict != TrainingVerdict::Trained)
        .count();
    assert_eq!(
        (verdicts.len(), discarded),
        (10, 6),
        "each of ten samples has one verdict"
    );
    ledger.record_batch(version.lineage, 1, verdicts).await.unwrap();
    assert_eq!(ledger.counts().await.unwrap().ready, 0);
    let next = WeightVersion { step: 1, ..version };
    assert!(former.next(&ledger, next).await.unwrap().is_none(), "nothing is left");
}

#[tokio::test]
async fn a_wait_for_more_groups_keeps_discarded_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, version) = ledger(&folder, &[SAME, DIFFERENT]).await;
    let mut former = former(2, ZeroAdvantage::Refill);
    former.resume(&ledger, version).await.unwrap();
    assert!(former.next(&ledger, version).await.unwrap().is_none());
    ledger.reserve(vec![reserve(2)], 99).await.unwrap();
    ledger.stage(vec![closed(2, DIFFERENT)]).await.unwrap();
    let (_, batch) = former.next(&ledger, version).await.unwrap().expect("a batch");
    assert_eq!(batch.groups, [group(1), group(2)]);
    assert_eq!(former.verdicts(&batch).len(), 6, "the discarded group's too");
}

/// Groups close in any order, so an odd number of them is discarded at a time. The next wanted
/// number must never exceed the buffer, or training waits for ever.
#[tokio::test]
async fn refilling_never_wants_more_than_the_buffer_holds() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, version) = ledger(&folder, &[]).await;
    let mut former = former(2, ZeroAdvantage::Refill);
    former.resume(&ledger, version).await.unwrap();
    let window = (REFILL_CAP * 2) as u64;
    ledger
        .reserve((0..window).map(reserve).collect(), window)
        .await
        .unwrap();
    for closing in [[1, 5].as_slice(), &[0, 2, 3], &[4, 6]] {
        for index in closing {
            ledger.stage(vec![closed(*index, SAME)]).await.unwrap();
        }
        assert!(former.next(&ledger, version).await.unwrap().is_none());
    }
    ledger.stage(vec![closed(7, DIFFERENT)]).await.unwrap();
    let (_, batch) = former.next(&ledger, version).await.unwrap().expect("a batch");
    assert_eq!(batch.groups, [group(7)], "short: no more may be drawn");
    assert_eq!(former.verdicts(&batch).len(), 16);
}

/// Batches that a dead branch recorded are trained first, whatever else is ready.
#[tokio::test]
async fn a_restart_trains_the_recorded_batches_first() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, version) = ledger(&folder, &[DIFFERENT; 4]).await;
    let mut before = former(1, ZeroAdvantage::Keep);
    before.resume(&ledger, version).await.unwrap();
    for step in 0..2 {
        let at = WeightVersion { step, ..version };
        let (_, batch) = before.next(&ledger, at).await.unwrap().expect("a batch");
        let verdicts = before.verdicts(&batch);
        ledger.record_batch(version.lineage, step + 1, verdicts).await.unwrap();
    }
    let again = WeightVersion {
        lineage: ledger.begin_lineage(Some(version)).await.unwrap(),
        step: 0,
    };
    let mut after = former(1, ZeroAdvantage::Keep);
    after.resume(&ledger, again).await.unwrap();
    let mut trained = Vec::new();
    for step in 0..4 {
        assert_eq!(after.replays(), step < 2);
        let at = WeightVersion { step, ..again };
        let (_, batch) = after.next(&ledger, at).await.unwrap().expect("a batch");
        trained.extend(batch.groups.clone());
        let verdicts = after.verdicts(&batch);
        ledger.record_batch(again.lineage, step + 1, verdicts).await.unwrap();
    }
    assert_eq!(trained, [group(0), group(1), group(2), group(3)]);
}

/// A second lineage trains the batches of the first again and writes its checkpoint. A third
/// lineage begins there, with no batch to train again. The first lineage's samples are as young as
/// without a crash.
#[tokio::test]
async fn weights_retraced_by_an_earlier_lineage_count_as_own() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, first) = ledger(&folder, &[DIFFERENT; 4]).await;
    let mut begin = first;
    for _ in 0..2 {
        let mut former = former(1, ZeroAdvantage::Keep);
        former.resume(&ledger, begin).await.unwrap();
        for step in 0..2 {
            let at = WeightVersion { step, ..begin };
            let (_, batch) = former.next(&ledger, at).await.unwrap().expect("a batch");
            let verdicts = former.verdicts(&batch);
            ledger.record_batch(begin.lineage, step + 1, verdicts).await.unwrap();
        }
        begin.lineage = ledger.begin_lineage(Some(begin)).await.unwrap();
    }
    let second = WeightVersion { step: 2, lineage: 2 };
    let third = WeightVersion {
        lineage: ledger.begin_lineage(Some(second)).await.unwrap(),
        step: 2,
    };
    let mut former = former(1, ZeroAdvantage::Keep);
    former.resume(&ledger, third).await.unwrap();
    assert!(!former.replays());
    for lineage in 1..=2 {
        let of = |step| WeightVersion { lineage, step };
        assert_eq!(former.staleness(2, of(2)), 0, "{lineage}");
        assert_eq!(former.staleness(3, of(1)), 2, "{lineage}");
    }
    let beyond = WeightVersion { step: 3, ..first };
    assert_eq!(former.staleness(3, beyond), 1, "weights without a recorded batch");
}

/// Samples from the earlier lineage's later weights are no younger than the weights that the two
/// share.
#[tokio::test]
async fn a_recorded_batch_with_other_verdicts_ends_the_retracing() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, first) = ledger(&folder, &[DIFFERENT; 2]).await;
    let mut before = former(1, ZeroAdvantage::Keep);
    before.resume(&ledger, first).await.unwrap();
    for step in 0..2 {
        let at = WeightVersion { step, ..first };
        let (_, batch) = before.next(&ledger, at).await.unwrap().expect("a batch");
        let mut verdicts = before.verdicts(&batch);
        if step == 0 {
            verdicts[0].verdict = TrainingVerdict::Discarded("stale".into());
        }
        ledger.record_batch(first.lineage, step + 1, verdicts).await.unwrap();
    }
    let second = WeightVersion {
        lineage: ledger.begin_lineage(Some(first)).await.unwrap(),
        step: 0,
    };
    let mut after = former(1, ZeroAdvantage::Keep);
    after.resume(&ledger, second).await.unwrap();
    let theirs = WeightVersion { step: 1, ..first };
    assert_eq!(after.staleness(1, theirs), 0, "it is about to be trained again");
    let (_, batch) = after.next(&ledger, second).await.unwrap().expect("a batch");
    let verdicts = after.verdicts(&batch);
    ledger.record_batch(second.lineage, 1, verdicts).await.unwrap();
    let at = WeightVersion { step: 1, ..second };
    assert!(after.next(&ledger, at).await.unwrap().is_some());
    assert_eq!(after.staleness(1, theirs), 1, "it was trained with other verdicts");
    assert_eq!(after.staleness(1, at), 0);
}

/// The trainer would reject the row after its batch is recorded, and the agent would stop for good.
#[test]
fn known_answers_that_the_model_cannot_take_keep_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["1", "2"].map(str::to_owned).to_vec();
    write_tokenizer(folder.path(), &TokenizerConfig::Words(words)).unwrap();
    let text = Arc::new(TextCodec::open(folder.path()).unwrap());
    let labelled = |member, target: Option<&str>| Sample {
        target: target.map(str::to_owned),
        ..sample(member)
    };
    let bundle = Bundle {
        content: BundleContent::Samples(vec![
            labelled(0, Some("1")),
            labelled(1, Some("1 2")),
            labelled(2, None),
        ]),
        conversations: 3,
        ..part(0, 1, 0, 0, 1)
    };
    // The prompt has 12 tokens.
    let shorter = 12 + text.completion(&[], "1").unwrap().len();
    let vocab = text.vocab_size();
    for (vocab, max_context, kept) in [
        (vocab, 1000, [1_usize, 1, 0]),
        (vocab, shorter, [1, 0, 0]),
        (vocab, shorter - 1, [0, 0, 0]),
        (0, 1000, [0, 0, 0]),
    ] {
        let imitating = BatchFormer {
            imitates: Some(Imitates {
                text: text.clone(),
                vocab,
                max_context,
            }),
            ..former(1, ZeroAdvantage::Keep)
        };
        let examples = imitating.examples(std::slice::from_ref(&bundle));
        let BundleContent::Samples(samples) = &examples[0].content else {
            panic!()
        };
        let rows: Vec<usize> = samples.iter().map(|sample| sample.rows.len()).collect();
        assert_eq!(rows, kept, "{vocab} {max_context}");
    }
}
