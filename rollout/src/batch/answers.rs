//! Describes the samples of an optimizer step, for records of what training makes of each token.

use broker::ids::GroupId;
use configs::TokenRecordPolicy;

use super::mask::{Prepared, PreparedRow, PreparedSample};

/// A sample of an optimizer step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its number in the spans of the step (`Span::answer`).
    pub number: u32,
    pub group: GroupId,
    pub member: u16,
    pub role: String,
    pub seat: u16,
    /// The sampled tokens in their order, turn by turn.
    pub stretches: Vec<Stretch>,
}

/// The tokens that were sampled in one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    pub ids: Vec<u32>,
    /// True where the step trains the token; the others are too old. The same length as `ids`.
    pub trained: Vec<bool>,
}

/// Returns the recorded samples of a step, which [`super::forest::plant`] numbers in this order.
pub(super) fn recorded(groups: &[&Prepared<'_>], policy: TokenRecordPolicy) -> Vec<Answer> {
    let samples = groups.iter().flat_map(|group| {
        let kept = group.samples.iter().filter(|sample| sample.discard.is_none());
        kept.map(|sample| (group.bundle.group, sample))
    });
    let recorded = (0..)
        .zip(samples)
        .filter(|(_, (_, prepared))| policy.records(false, prepared.sample.member));
    recorded
        .map(|(number, (group, prepared))| answer(number, group, prepared))
        .collect()
}

fn answer(number: u32, group: GroupId, prepared: &PreparedSample<'_>) -> Answer {
    let sample = prepared.sample;
    Answer {
        number,
        group,
        member: sample.member,
        role: sample.role.clone(),
        seat: sample.seat,
        stretches: prepared.rows.iter().flat_map(stretches).collect(),
    }
}

fn stretches(row: &PreparedRow<'_>) -> impl Iterator<Item = Stretch> {
    row.row.segments.iter().filter_map(|segment| {
        let range = segment.start as usize..(segment.start + segment.len) as usize;
        let trained = row.trained.get(range.clone())?;
        Some(Stretch {
            ids: row.row.ids.get(range)?.to_vec(),
            trained: trained.iter().map(Option::is_some).collect(),
        })
    })
}
