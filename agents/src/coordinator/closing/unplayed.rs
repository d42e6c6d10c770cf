//! Tasks that would be used up without a result. They go to the dead letters with the reason: by
//! then each of their generations was tried as often as `workflow.retries` says.

use broker::protocol::failure::{Failure, FailureCode};
use rollout::group::{GroupSummary, MemberEnd};

/// The reason for which the task of a group goes to the dead letters instead of being closed
/// without samples, if it does:
///
/// - the machinery failed its conversations, and without that enough of them (`least`) might have
///   been valid;
/// - it was `published`, and none of its conversations came to its end, for whatever reason.
///
/// The run's own source has more tasks. The publisher of a task waits for its result.
pub(super) fn unplayed(
    members: &[MemberEnd],
    summary: &GroupSummary,
    least: usize,
    published: bool,
) -> Option<Failure> {
    summary.empty.as_ref()?;
    let failures: Vec<&Failure> = members.iter().filter_map(failure_of).collect();
    let count = |wanted: fn(FailureCode) -> bool| failures.iter().filter(|failure| wanted(failure.code)).count();
    let (broken, abandoned) = (count(FailureCode::is_of_machinery), count(is_abandoned));
    let lost = broken > 0 && summary.valid < least && summary.valid + broken + abandoned >= least;
    let first = |wanted: fn(FailureCode) -> bool| failures.iter().find(|failure| wanted(failure.code));
    let reason = if lost {
        first(FailureCode::is_of_machinery)
    } else if published && failures.len() == members.len() {
        first(|code| !is_abandoned(code))
    } else {
        None
    };
    let (failed, all) = (failures.len(), members.len());
    let count = format!("; {failed} of its {all} conversations failed");
    reason.map(|failure| (*failure).clone().followed_by(count))
}

fn failure_of(end: &MemberEnd) -> Option<&Failure> {
    match end {
        MemberEnd::Failed { failure, .. } => Some(failure),
        MemberEnd::Ended { .. } => None,
    }
}

/// Returns true if a conversation was given up because others had failed.
fn is_abandoned(code: FailureCode) -> bool {
    code == FailureCode::Abandoned
}

#[cfg(test)]
mod tests {
    use rollout::group::abandoned;
    use rollout::workflow::Outcome;

    use super::*;

    fn failed(failure: Failure) -> MemberEnd {
        MemberEnd::Failed {
            failure,
            turns: Vec::new(),
        }
    }

    fn ended() -> MemberEnd {
        MemberEnd::Ended {
            outcome: Outcome {
                rewards: Vec::new(),
                metrics: Vec::new(),
            },
            turns: Vec::new(),
        }
    }

    fn memory() -> MemberEnd {
        failed(Failure::engine("out of memory"))
    }

    fn context() -> MemberEnd {
        failed(Failure::context("70 tokens"))
    }

    /// The reason for a group in which 2 conversations must be valid, and `valid` are.
    fn judged(members: &[MemberEnd], valid: usize, published: bool) -> Option<String> {
        let summary = GroupSummary {
            valid,
            empty: (valid < 2).then(|| "too few".to_owned()),
            ..GroupSummary::default()
        };
        unplayed(members, &summary, 2, published).map(|failure| failure.to_string())
    }

    #[test]
    fn a_group_that_the_machinery_failed_is_reported() {
        let abandoned = || failed(abandoned());
        let lost: [(&[MemberEnd], usize); 4] = [
            (&[memory(), memory(), memory(), memory()], 0),
            (&[memory(), memory(), memory(), abandoned()], 0),
            (&[abandoned(), context(), memory(), abandoned()], 0),
            (&[ended(), memory(), memory(), memory()], 1),
        ];
        for (members, valid) in lost {
            for published in [false, true] {
                let reason = judged(members, valid, published).unwrap();
                assert!(reason.starts_with("engine: out of memory; "), "{reason}");
            }
        }
        let weights = failed(Failure::not_finite(
            broker::ids::WeightVersion { lineage: 1, step: 2 },
            "the logits are not finite",
        ));
        let reason = judged(&[weights, memory()], 0, false).unwrap();
        assert!(
            reason.contains("1.2") && reason.ends_with("2 of its 2 conversations failed"),
            "{reason}"
        );
    }

    #[test]
    fn what_failed_for_reasons_of_its_own_closes_without_samples() {
        assert_eq!(judged(&[context(), context(), context(), memory()], 0, false), None);
        assert_eq!(
            judged(
                &[failed(Failure::other("no grade")), failed(Failure::other("no grade"))],
                0,
                false
            ),
            None
        );
        assert_eq!(
            judged(&[ended(), ended(), ended(), memory()], 3, true),
            None,
            "it trains"
        );
        assert_eq!(judged(&[ended(), context(), context(), context()], 1, true), None);
        assert_eq!(judged(&[], 0, false), None);
    }

    #[test]
    fn a_published_task_without_results_has_the_first_reason() {
        let members = [
            failed(abandoned()),
            context(),
            context(),
            failed(Failure::other("no grade")),
        ];
        let reason = judged(&members, 0, true).unwrap();
        assert!(reason.starts_with("context: 70 tokens; 4 of its 4"), "{reason}");
        assert_eq!(judged(&members, 0, false), None, "the run's own source has more");
    }
}
