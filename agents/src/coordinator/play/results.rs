//! Results of turns: sorted to their groups, and applied to them once they are committed.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::codec;
use broker::ids::{GroupId, RequestId, TurnKey};
use broker::protocol::failure::{Failure, FailureCode};
use broker::protocol::turn::{Generation, TimedResult, TurnOutcome, TurnResult, turn_key};
use broker::store::{Lease, Record};
use rollout::group::Refusal;
use rollout::workflow::unanswered::{unanswered_by, without_room};
use tokio::time::Instant;

use super::{CommitEnd, Need, Open, Play};
use crate::coordinator::specs::GroupSpecs;

/// Results of one group, in the order of their keys.
pub(crate) type GroupResults = Vec<(TurnKey, TurnResult)>;

/// Results by the open group that they belong to.
#[derive(Default)]
pub(crate) struct Sorted {
    pub by_group: BTreeMap<GroupId, GroupResults>,
    /// Results that belong to no open group, or to an earlier attempt.
    pub stale: usize,
}

impl Play {
    /// Sorts results to the open groups and their present attempts.
    #[must_use]
    pub(crate) fn sort(&self, specs: &GroupSpecs, results: Vec<TurnResult>) -> Sorted {
        let mut sorted = Sorted::default();
        for result in results {
            // A result that answers no request leaves no conversation without a grade.
            let result = match self.admissible(&result) {
                Some(key) => self.by_policy(specs, &key, result),
                None => result,
            };
            match self.admissible(&result) {
                Some(key) => sorted.by_group.entry(result.group).or_default().push((key, result)),
                None => sorted.stale += 1,
            }
        }
        for list in sorted.by_group.values_mut() {
            list.sort_by(|(a, _), (b, _)| a.cmp(b));
            list.dedup_by(|(a, _), (b, _)| a == b);
        }
        sorted
    }

    /// Replaces a failure that the workflow has an answer for. A judge's turn that failed for good
    /// is a missing grade, whatever played the judge. A turn without room may be left out. A turn
    /// that ended processes makes its task dead instead.
    fn by_policy(&self, specs: &GroupSpecs, key: &TurnKey, mut result: TurnResult) -> TurnResult {
        let TurnOutcome::Failed { failure, retry } = &result.outcome else {
            return result;
        };
        if let Some(open) = self.get(&result.group)
            && let Some(last) = open.run.last_try(key)
            && failure.code != FailureCode::Crashed
        {
            let workflow = specs.workflow(open.purpose);
            let config = &specs.config().workflow;
            let left_out = (failure.code == FailureCode::Context).then(|| without_room(workflow, &key.role));
            result.outcome = left_out
                .flatten()
                .unwrap_or_else(|| unanswered_by(config, workflow, &key.role, failure.clone(), *retry, last));
        }
        result
    }

    fn admissible(&self, result: &TurnResult) -> Option<TurnKey> {
        let open = self.get(&result.group)?;
        let key = turn_key(result.member, &result.role, result.seat, result.turn)?;
        let same = result.attempt == open.attempt && result.request == RequestId::new(result.group, open.attempt, &key);
        let wanted = match &result.outcome {
            TurnOutcome::Done(generation) => open.run.admits(&key, generation).is_ok(),
            TurnOutcome::Failed { .. } => true,
        };
        (same && wanted).then_some(key)
    }

    /// Records when these results arrived, and their engine's times. Returns the results without
    /// their times.
    pub(crate) fn note_times(&mut self, results: Vec<TimedResult>) -> Vec<TurnResult> {
        for TimedResult { result, times } in &results {
            if let Some(open) = self.open.get_mut(&result.group)
                && open.attempt == result.attempt
                && let Some(key) = turn_key(result.member, &result.role, result.seat, result.turn)
            {
                open.times.answer(&key, *times);
            }
        }
        results.into_iter().map(|timed| timed.result).collect()
    }

    /// Records that a turn is committed now. Returns the time since its first request.
    pub(crate) fn note_committed(&mut self, group: &GroupId, key: &TurnKey) -> Option<Duration> {
        self.open.get_mut(group)?.times.commit(key)
    }

    /// Begins a commit of the group's turns. The group is not closed before the commit ends.
    pub(crate) fn begin_commit(&mut self, group: &GroupId) -> Option<&Open> {
        let open = self.open.get_mut(group)?;
        open.committing += 1;
        if self.next.get(group) == Some(&Need::Close) {
            self.next.remove(group);
        }
        Some(open)
    }

    /// Ends a commit that was made under `lease`.
    pub(crate) fn end_commit(&mut self, group: GroupId, lease: Option<Lease>) -> CommitEnd {
        let Some(open) = self.open.get_mut(&group).filter(|open| open.lease == lease) else {
            return CommitEnd::Stale;
        };
        open.committing = open.committing.saturating_sub(1);
        self.plan(group);
        CommitEnd::Ours
    }

    /// Applies a committed answer to its group.
    pub(crate) fn answer(&mut self, group: GroupId, key: TurnKey, generation: Generation) -> Result<(), Refusal> {
        self.apply(group, |open| open.run.on_result(key, generation))
            .unwrap_or(Ok(()))
    }

    /// Applies a failure to its group. Returns true if it ended its conversation, false if the turn
    /// is asked for again, and None if the turn is not wanted any more.
    pub(crate) fn fail(&mut self, group: GroupId, key: &TurnKey, failure: &Failure, retry: bool) -> Option<bool> {
        self.apply(group, |open| open.run.on_failure(key, failure, retry))
            .flatten()
    }

    /// Ends a group because its task goes to the dead letters.
    pub(crate) fn mark_dead(&mut self, group: GroupId, failure: Failure) {
        self.apply(group, |open| open.mark_dead(failure));
    }

    fn apply<T>(&mut self, group: GroupId, change: impl FnOnce(&mut Open) -> T) -> Option<T> {
        let open = self.open.get_mut(&group)?;
        let changed = change(open);
        open.moved = Instant::now();
        self.plan(group);
        Some(changed)
    }
}

/// The record of an answer. None for a failure, which leaves no trace in the store.
#[must_use]
pub(crate) fn record(key: &TurnKey, result: &TurnResult) -> Option<Record> {
    matches!(result.outcome, TurnOutcome::Done(_)).then(|| Record {
        key: format!("{}/{}/{}/{}", key.member, key.role, key.seat, key.turn),
        payload: codec::encode(result).into(),
    })
}

/// The turn that a record holds.
#[must_use]
pub(crate) fn read_record(record: &Record) -> Option<(TurnKey, Generation)> {
    let result: TurnResult = codec::decode_stored(&record.payload).ok()?;
    let key = turn_key(result.member, &result.role, result.seat, result.turn)?;
    match result.outcome {
        TurnOutcome::Done(generation) => Some((key, generation)),
        TurnOutcome::Failed { .. } => None,
    }
}
