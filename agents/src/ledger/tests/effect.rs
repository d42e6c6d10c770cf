//! Tests of lineages, verdicts, replay, consumed sets and pruning.

use broker::ids::WeightVersion;

use super::*;
use crate::ledger::LedgerError;

fn v(lineage: u32, step: u64) -> WeightVersion {
    WeightVersion { lineage, step }
}

/// Returns a ledger with groups 0..n closed, one sample each.
fn closed(folder: &tempfile::TempDir, n: u64) -> Ledger {
    let mut ledger = open(folder);
    ledger.reserve(&(0..n).map(reserve).collect::<Vec<_>>(), n).unwrap();
    ledger
        .stage(&(0..n).map(|i| part(i, 1, 1, 0, 1)).collect::<Vec<_>>())
        .unwrap();
    ledger
}

fn ready(ledger: &Ledger) -> Vec<u64> {
    ledger.ready(99).unwrap().iter().map(|b| b.order).collect()
}

#[test]
fn each_sample_takes_effect_once_along_a_lineage() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = closed(&folder, 4);
    let one = ledger.begin_lineage(None).unwrap();
    ledger.record_batch(one, 1, &trained(0, 1)).unwrap();
    ledger.record_batch(one, 1, &trained(0, 1)).unwrap();
    assert_eq!(ledger.counts().trained, 1, "the same call again changes nothing");
    let refused = |result: Result<(), LedgerError>, wanted: &str| {
        assert_eq!(result.unwrap_err().label(), wanted);
    };
    refused(ledger.record_batch(one, 1, &trained(1, 1)), "step");
    refused(ledger.record_batch(one, 2, &trained(0, 1)), "decided");
    let twice = [trained(1, 1), trained(1, 1)].concat();
    refused(ledger.record_batch(one, 2, &twice), "decided");
    refused(ledger.record_batch(one, 2, &trained(77, 1)), "unknown_group");
    refused(ledger.record_batch(one + 1, 2, &trained(1, 1)), "fenced");
    assert_eq!(ready(&ledger), [1, 2, 3]);
    let mut stale = trained(1, 1);
    stale[0].verdict = TrainingVerdict::Discarded("stale".into());
    ledger.record_batch(one, 2, &stale).unwrap();
    let counts = ledger.counts();
    assert_eq!((counts.trained, counts.discarded["stale"], counts.ready), (1, 1, 2));
    drop(ledger);
    assert_eq!(open(&folder).counts(), counts);
}

#[test]
fn a_restore_readies_the_dead_branch_and_replays_its_batches() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = closed(&folder, 6);
    let one = ledger.begin_lineage(None).unwrap();
    for step in 1..=4 {
        ledger.record_batch(one, step, &trained(step - 1, 1)).unwrap();
    }
    let before = ledger.consumed(v(one, 4)).unwrap();
    drop(ledger);

    let mut ledger = open(&folder);
    let two = ledger.begin_lineage(Some(v(one, 2))).unwrap();
    assert_eq!(ready(&ledger), [2, 3, 4, 5]);
    assert_eq!(
        ledger.record_batch(one, 5, &trained(4, 1)).unwrap_err().label(),
        "fenced"
    );
    assert_eq!(ledger.record_batch(two, 2, &trained(4, 1)).unwrap_err().label(), "step");
    assert_eq!(
        ledger.record_batch(two, 3, &trained(0, 1)).unwrap_err().label(),
        "decided"
    );
    let replay = ledger.recorded_batches(2).unwrap();
    assert_eq!(
        replay.iter().map(|b| (b.lineage, b.step)).collect::<Vec<_>>(),
        [(1, 3), (1, 4)]
    );
    // It crashes again after the first replayed batch; the second still comes from the first
    // lineage.
    ledger.record_batch(two, 3, &replay[0].verdicts).unwrap();
    let three = ledger.begin_lineage(Some(v(one, 2))).unwrap();
    let replay = ledger.recorded_batches(2).unwrap();
    assert_eq!(
        replay.iter().map(|b| (b.lineage, b.step)).collect::<Vec<_>>(),
        [(2, 3), (1, 4)]
    );
    let retraced = [(one, 4), (two, 3)].into();
    assert_eq!(ledger.retraced().unwrap(), retraced, "batches to train again count");
    for batch in &replay {
        assert_eq!(ledger.payloads(&batch.groups()).unwrap().len(), 1);
        ledger.record_batch(three, batch.step, &batch.verdicts).unwrap();
    }
    let four = ledger.begin_lineage(Some(v(three, 4))).unwrap();
    let retraced = [(one, 4), (two, 3), (three, 4)].into();
    assert_eq!(
        ledger.retraced().unwrap(),
        retraced,
        "no batch remains to train again for {four}"
    );
    let after = ledger.consumed(v(three, 4)).unwrap();
    assert_eq!(
        after.digest, before.digest,
        "the same set has the same digest in another lineage"
    );
    assert!(after.sequence > before.sequence);
    let audit = ledger.audit().unwrap();
    assert_eq!((audit.decided, audit.twice, audit.missing), (4, 0, 0));
    assert_eq!(audit.violations(), [""; 0]);
}

/// A batch formed again may get other verdicts: from there on the old lineage's training differs.
#[test]
fn batches_recorded_upon_another_batch_are_not_retraced() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = closed(&folder, 4);
    let one = ledger.begin_lineage(None).unwrap();
    for step in 1..=4 {
        ledger.record_batch(one, step, &trained(step - 1, 1)).unwrap();
    }
    let two = ledger.begin_lineage(Some(v(one, 1))).unwrap();
    assert_eq!(
        ledger.retraced().unwrap(),
        [(one, 4)].into(),
        "it is about to train them all"
    );
    let mut stale = trained(1, 1);
    stale[0].verdict = TrainingVerdict::Discarded("stale".into());
    ledger.record_batch(two, 2, &stale).unwrap();
    assert_eq!(
        ledger.retraced().unwrap(),
        [(one, 1), (two, 2)].into(),
        "it has diverged from its ancestor"
    );

    let three = ledger.begin_lineage(Some(v(one, 1))).unwrap();
    let replay = ledger.recorded_batches(1).unwrap();
    let from: Vec<_> = replay.iter().map(|b| (b.lineage, b.step)).collect();
    assert_eq!(from, [(two, 2), (one, 3), (one, 4)], "of two branches");
    assert_eq!(
        ledger.retraced().unwrap(),
        [(one, 1), (two, 2)].into(),
        "the first's third batch was trained upon another second one"
    );
    for batch in &replay {
        ledger.record_batch(three, batch.step, &batch.verdicts).unwrap();
    }
    let retraced = [(one, 1), (two, 2), (three, 4)].into();
    assert_eq!(ledger.retraced().unwrap(), retraced);
    ledger.begin_lineage(Some(v(three, 3))).unwrap();
    assert_eq!(
        ledger.retraced().unwrap(),
        retraced,
        "the fourth is about to be trained again"
    );
    assert_eq!(ledger.audit().unwrap().violations(), [""; 0]);
}

/// Both continue from the same weights with other samples: their versions and consumed sets share
/// nothing beyond the checkpoint.
#[test]
fn two_restores_of_one_checkpoint_share_no_version() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = closed(&folder, 4);
    let one = ledger.begin_lineage(None).unwrap();
    ledger.record_batch(one, 1, &trained(0, 1)).unwrap();
    let checkpoint = v(one, 1);
    let branches = [1, 2].map(|group| {
        let lineage = ledger.begin_lineage(Some(checkpoint)).unwrap();
        assert_eq!(ready(&ledger), [1, 2, 3], "the other branch's samples are free again");
        ledger.record_batch(lineage, 2, &trained(group, 1)).unwrap();
        v(lineage, 2)
    });
    assert_ne!(branches[0].lineage, branches[1].lineage);
    let consumed = branches.map(|version| ledger.consumed(version).unwrap().digest);
    assert_ne!(consumed[0], consumed[1]);
    assert_eq!(ready(&ledger), [1, 3]);
    assert_eq!(ledger.audit().unwrap().violations(), [""; 0]);
}

#[test]
fn a_branch_restored_after_a_fork_keeps_its_consumed_set() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = closed(&folder, 6);
    let one = ledger.begin_lineage(None).unwrap();
    for step in 1..=3 {
        ledger.record_batch(one, step, &trained(step - 1, 1)).unwrap();
    }
    let old = ledger.consumed(v(one, 3)).unwrap().digest;
    let fork = ledger.begin_lineage(Some(v(one, 1))).unwrap();
    for step in 2..=3 {
        ledger.record_batch(fork, step, &trained(step + 1, 1)).unwrap();
    }
    let again = ledger.begin_lineage(Some(v(one, 3))).unwrap();
    assert_eq!(
        ready(&ledger),
        [3, 4, 5],
        "the fork's samples are free, the branch's own are not"
    );
    assert_eq!(ledger.consumed(v(again, 3)).unwrap().digest, old);
    assert_eq!(
        ledger.record_batch(fork, 4, &trained(5, 1)).unwrap_err().label(),
        "fenced"
    );
    ledger.record_batch(again, 4, &trained(3, 1)).unwrap();
    let audit = ledger.audit().unwrap();
    assert_eq!((audit.decided, audit.twice, audit.missing), (4, 0, 0));
}

#[test]
fn consumed_digests_depend_on_order_verdict_and_step() {
    let digest = |batches: &[(u64, Vec<SampleVerdict>)]| {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = closed(&folder, 3);
        let lineage = ledger.begin_lineage(None).unwrap();
        for (step, verdicts) in batches {
            ledger.record_batch(lineage, *step, verdicts).unwrap();
        }
        ledger.consumed(v(lineage, 9)).unwrap().digest.to_string()
    };
    let mut discarded = trained(1, 1);
    discarded[0].verdict = TrainingVerdict::Discarded("stale".into());
    let digests = [
        digest(&[(1, trained(0, 1)), (2, trained(1, 1))]),
        digest(&[(1, trained(1, 1)), (2, trained(0, 1))]),
        digest(&[(1, trained(0, 1)), (3, trained(1, 1))]),
        digest(&[(1, trained(0, 1)), (2, discarded)]),
        digest(&[(1, [trained(0, 1), trained(1, 1)].concat())]),
    ];
    let unique: std::collections::BTreeSet<_> = digests.iter().collect();
    assert_eq!(unique.len(), digests.len(), "{digests:?}");
    assert_eq!(digests[0], digest(&[(1, trained(0, 1)), (2, trained(1, 1))]));
}

#[test]
fn payloads_are_pruned_once_every_checkpoint_is_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = closed(&folder, 5);
    let one = ledger.begin_lineage(None).unwrap();
    for step in 1..=4 {
        ledger.record_batch(one, step, &trained(step - 1, 1)).unwrap();
    }
    assert_eq!(ledger.prune(&[]).unwrap(), 0);
    assert_eq!(ledger.prune(&[v(one, 4), v(one, 2)]).unwrap(), 2);
    assert!(matches!(ledger.payloads(&[group(0)]), Err(LedgerError::NoPayload(_))));
    let two = ledger.begin_lineage(Some(v(one, 2))).unwrap();
    assert_eq!(ready(&ledger), [2, 3, 4]);
    ledger.record_batch(two, 3, &trained(2, 1)).unwrap();
    assert_eq!(
        ledger.prune(&[v(one, 4), v(two, 3)]).unwrap(),
        1,
        "group 3 is consumed by one of them only"
    );
    assert_eq!(ready(&ledger), [3, 4]);
    assert_eq!(ledger.audit().unwrap().missing, 0);
}

#[test]
fn verdicts_cannot_be_changed_even_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = closed(&folder, 1);
    let one = ledger.begin_lineage(None).unwrap();
    ledger.record_batch(one, 1, &trained(0, 1)).unwrap();
    drop(ledger);
    let file = rusqlite::Connection::open(folder.path().join("a.sqlite")).unwrap();
    assert!(file.execute("UPDATE verdicts SET reason = 'x'", []).is_err());
    assert!(file.execute("DELETE FROM verdicts", []).is_err());
}

/// Samples left at the end of the run belong to no batch: a restore to the last checkpoint makes
/// them ready again.
#[test]
fn samples_left_at_the_end_are_discarded_until_a_restore() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    let one = ledger.begin_lineage(None).unwrap();
    for index in 0..3 {
        ledger.reserve(&[reserve(index)], 9).unwrap();
        ledger.stage(&[part(index, 1, 1, 0, 1)]).unwrap();
    }
    ledger.record_batch(one, 1, &trained(0, 1)).unwrap();
    assert_eq!(ledger.discard_ready(one, 2, "run_ended").unwrap(), 2);
    let counts = ledger.counts();
    assert_eq!((counts.ready, counts.trained, counts.batches), (0, 1, 1));
    assert_eq!(counts.discarded["run_ended"], 2);
    assert_eq!(ledger.audit().unwrap().counts, counts, "as counted from the rows");
    assert_eq!(ledger.discard_ready(one, 2, "run_ended").unwrap(), 0, "once");
    ledger.begin_lineage(Some(v(one, 1))).unwrap();
    assert!(
        ledger.recorded_batches(1).unwrap().is_empty(),
        "no batch to train again"
    );
    assert_eq!(ledger.counts().ready, 2);
}

#[test]
fn a_changed_verdict_breaks_the_chain_of_batches() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = closed(&folder, 3);
    let one = ledger.begin_lineage(None).unwrap();
    for step in 1..=3 {
        ledger.record_batch(one, step, &trained(step - 1, 1)).unwrap();
    }
    let inspector = crate::ledger::Inspector::open(ledger.path()).unwrap();
    assert_eq!(inspector.damaged_batches().unwrap(), []);
    let consumed = ledger.consumed(v(one, 3)).unwrap().digest;
    assert_eq!(inspector.consumed(v(one, 3)).unwrap().digest, consumed);
    let other = tempfile::tempdir().unwrap();
    let mut repaired = open(&other);
    let rows = inspector.custody().unwrap();
    repaired.take_over(&rows, "lost", Some((v(one, 3), consumed))).unwrap();
    let two = repaired.begin_lineage(Some(v(one, 3))).unwrap();
    let theirs = crate::ledger::Inspector::open(repaired.path()).unwrap();
    for version in [v(one, 3), v(two, 3)] {
        let digest = theirs.consumed(version).unwrap().digest;
        assert_eq!(digest, consumed, "the chain continues from the checkpoint");
    }
    repaired.reserve(&[reserve(7)], 9).unwrap();
    repaired.stage(&[part(7, 1, 1, 0, 1)]).unwrap();
    repaired.record_batch(two, 4, &trained(7, 1)).unwrap();
    assert_eq!(theirs.damaged_batches().unwrap(), []);
    ledger
        .connection
        .execute_batch("DROP TRIGGER verdicts_are_not_changed; UPDATE verdicts SET reason = 'stale' WHERE step = 2")
        .unwrap();
    assert_eq!(inspector.damaged_batches().unwrap(), [v(one, 2)]);
}
