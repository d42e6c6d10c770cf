//! Ids of traces and spans, and the choice of the traces that are sent.
//!
//! An id is the beginning of the BLAKE3 digest of a text: 16 bytes of `trace/RUN/GROUP/MEMBER` for
//! a trace, 8 bytes of `span/RUN/GROUP/MEMBER` for its root, and 8 bytes of
//! `span/RUN/GROUP/MEMBER/ROLE/SEAT/TURN` for a turn. Every coordinator derives the same ids, so a
//! trace that is sent again replaces itself, and nothing is propagated in messages.
//!
//! A trained batch has the id of `batch/RUN/AGENT/LINEAGE/STEP`. Its root has that of the same text
//! after `span/`, and a part that of `span/batch/RUN/AGENT/LINEAGE/STEP/PART`. A batch that is
//! trained again after a crash is in a new lineage and so in a trace of its own.

use broker::AgentName;
use broker::ids::{Digest, GroupId, RunId, WeightVersion};

/// The id of the trace of one conversation, or of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TraceId(pub(super) [u8; 16]);

impl TraceId {
    pub(super) fn new(run: &RunId, group: GroupId, member: u16) -> Self {
        Self(Digest::of(format!("trace/{run}/{group}/{member}").as_bytes()).0)
    }
}

/// The ids of the trace of one batch, by the agent that trained it and the weights that it led to.
pub(super) struct BatchIds(String);

impl BatchIds {
    pub(super) fn new(run: &RunId, agent: &AgentName, version: WeightVersion) -> Self {
        Self(format!("batch/{run}/{agent}/{}/{}", version.lineage, version.step))
    }

    pub(super) fn trace(&self) -> TraceId {
        TraceId(Digest::of(self.0.as_bytes()).0)
    }

    pub(super) fn root(&self) -> Vec<u8> {
        span(&format!("span/{}", self.0))
    }

    pub(super) fn part(&self, part: &str) -> Vec<u8> {
        span(&format!("span/{}/{part}", self.0))
    }
}

/// Returns the id of a conversation's root span. `conversation` is `GROUP/MEMBER`.
pub(super) fn root(run: &RunId, conversation: &str) -> Vec<u8> {
    span(&format!("span/{run}/{conversation}"))
}

/// Returns the id of the span of one turn.
pub(super) fn turn(run: &RunId, conversation: &str, role: &str, seat: u16, turn: u16) -> Vec<u8> {
    span(&format!("span/{run}/{conversation}/{role}/{seat}/{turn}"))
}

fn span(text: &str) -> Vec<u8> {
    Digest::of(text.as_bytes()).0[..8].to_vec()
}

/// Decides by the trace id alone which traces are sent, so that a trace is sent whole or not at
/// all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// From 0 (none) to 1 (all).
    pub(super) ratio: f64,
}

impl Sampler {
    /// Returns true if the trace is sent. Like OpenTelemetry's samplers by ratio, it compares the
    /// last 8 bytes of the id without their lowest bit.
    pub(super) fn takes(self, trace: TraceId) -> bool {
        let last = u64::from_be_bytes(std::array::from_fn(|at| trace.0[8 + at])) >> 1;
        self.ratio >= 1.0 || (last as f64) < self.ratio * (1_u64 << 63) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_equal_for_one_conversation_and_differ_for_others() {
        let (run, other) = (RunId::new("r").unwrap(), RunId::new("q").unwrap());
        let (group, next) = (GroupId([1; 16]), GroupId([2; 16]));
        assert_eq!(TraceId::new(&run, group, 3), TraceId::new(&run, group, 3));
        let all = [(&run, group, 3), (&run, group, 4), (&run, next, 3), (&other, group, 3)];
        let ids: BTreeSet<[u8; 16]> = all
            .map(|(run, group, member)| TraceId::new(run, group, member).0)
            .into();
        assert_eq!(ids.len(), all.len());
        let turns = [("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", 0, 0)];
        let mut spans: BTreeSet<Vec<u8>> = turns.map(|(role, seat, at)| turn(&run, "g/3", role, seat, at)).into();
        spans.insert(root(&run, "g/3"));
        assert_eq!(spans.len(), turns.len() + 1);
        assert!(spans.iter().all(|id| id.len() == 8));
    }

    #[test]
    fn a_batch_of_another_lineage_has_another_trace() {
        let run = RunId::new("r").unwrap();
        let ids = |agent: &str, lineage, step| {
            let agent = AgentName::new(agent).unwrap();
            BatchIds::new(&run, &agent, WeightVersion { lineage, step })
        };
        let all = [ids("a", 1, 5), ids("a", 2, 5), ids("a", 1, 6), ids("b", 1, 5)];
        let traces: BTreeSet<[u8; 16]> = all.iter().map(|ids| ids.trace().0).collect();
        assert_eq!(traces.len(), all.len());
        let first = &all[0];
        assert_eq!(first.trace().0, Digest::of(b"batch/r/a/1/5").0);
        let spans: BTreeSet<Vec<u8>> = [first.root(), first.part("wait"), first.part("publish")].into();
        assert_eq!(spans.len(), 3);
    }

    #[test]
    fn anyone_can_compute_an_id_with_a_blake3_tool() {
        let id = TraceId::new(&RunId::new("r").unwrap(), GroupId([0xab; 16]), 7).0;
        let text = format!("trace/r/{}/7", "ab".repeat(16));
        assert_eq!(id, Digest::of(text.as_bytes()).0);
    }

    #[test]
    fn a_ratio_takes_about_its_share_and_more_at_a_higher_one() {
        let run = RunId::new("r").unwrap();
        let traces: Vec<TraceId> = (0..10_000)
            .map(|member| TraceId::new(&run, GroupId([7; 16]), member))
            .collect();
        let taken = |ratio| {
            let sampler = Sampler { ratio };
            let taken: Vec<bool> = traces.iter().map(|trace| sampler.takes(*trace)).collect();
            taken
        };
        let share = |taken: &[bool]| taken.iter().filter(|one| **one).count();
        assert_eq!((share(&taken(0.0)), share(&taken(1.0))), (0, traces.len()));
        let (few, half) = (taken(0.01), taken(0.5));
        assert!((60..140).contains(&share(&few)), "{} of 10,000", share(&few));
        assert!((4_800..5_200).contains(&share(&half)), "{} of 10,000", share(&half));
        assert!(
            few.iter().zip(&half).all(|(few, half)| !few || *half),
            "one id, one decision"
        );
    }
}
