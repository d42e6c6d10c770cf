//! Rows as a forest of spans. The prompt that all rows of a group and role begin with is stored
//! once, above them.
//!
//! An answer is a sample: everything that one seat sampled in a conversation, over all its turns
//! and rows. It has one reward and one advantage, so losses of whole answers use it as a unit.

use std::collections::BTreeMap;

use broker::protocol::train::{Span, TrainBatch};

use super::mask::{Prepared, PreparedRow, PreparedSample};
use super::weigh::Weights;

/// One row to be planted.
struct Leaf<'a> {
    row: &'a PreparedRow<'a>,
    sample: &'a PreparedSample<'a>,
    weight: f32,
    /// The number of the sample within the step.
    answer: u32,
    /// The number of ids up to the last trained one.
    end: usize,
    /// The index of the first trained id.
    first: usize,
}

/// Lays out one optimizer step. `roles` gives the number of each role. `fresh` is true if its
/// weights are those that the batch began with.
pub(super) fn plant(groups: &[&Prepared<'_>], weights: &Weights, roles: &[String], fresh: bool) -> TrainBatch {
    let mut batch = TrainBatch {
        spans: Vec::new(),
        tokens: weights.tokens,
    };
    let mut answers = 0..;
    for (at, group) in groups.iter().enumerate() {
        let mut leaves_of: BTreeMap<&str, Vec<Leaf<'_>>> = BTreeMap::new();
        let samples = group.samples.iter().filter(|s| s.discard.is_none());
        for (sample, answer) in samples.zip(&mut answers) {
            let weight = weights.of(at, sample);
            let leaves = sample
                .rows
                .iter()
                .filter_map(|row| Leaf::new(row, sample, weight, answer));
            leaves_of.entry(&sample.sample.role).or_default().extend(leaves);
        }
        for (role, leaves) in &leaves_of {
            let number = roles.iter().position(|known| known == role).unwrap_or_default();
            plant_role(&mut batch.spans, leaves, number as u16, fresh);
        }
    }
    batch
}

fn plant_role(spans: &mut Vec<Span>, leaves: &[Leaf<'_>], role: u16, fresh: bool) {
    let shared = shared_prefix(leaves);
    let mut parent = None;
    if let (Some(first), true) = (leaves.first(), shared > 0) {
        parent = Some(spans.len() as u32);
        spans.push(context(&first.row.row.ids[..shared]));
    }
    for leaf in leaves {
        leaf.plant(spans, parent, shared, (role, fresh));
    }
}

/// Returns the number of ids that all rows begin with and that no row trains. A row alone shares
/// nothing: 0.
fn shared_prefix(leaves: &[Leaf<'_>]) -> usize {
    let Some((first, rest)) = leaves.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return 0;
    };
    let ids = &first.row.row.ids;
    let common = |leaf: &Leaf<'_>| {
        let pairs = ids.iter().zip(&leaf.row.row.ids);
        pairs.take_while(|(a, b)| a == b).count().min(leaf.first)
    };
    rest.iter().map(common).fold(first.first, usize::min)
}

fn context(ids: &[u32]) -> Span {
    Span {
        ids: ids.to_vec(),
        mask: vec![false; ids.len()],
        behaviour_lp: vec![0.0; ids.len()],
        temperature: 1.0,
        ..Span::default()
    }
}

impl<'a> Leaf<'a> {
    /// Returns `None` if no id of the row is trained.
    fn new(row: &'a PreparedRow<'a>, sample: &'a PreparedSample<'a>, weight: f32, answer: u32) -> Option<Self> {
        let first = row.trained.iter().position(Option::is_some)?;
        let last = row.trained.iter().rposition(Option::is_some)?;
        Some(Self {
            row,
            sample,
            weight,
            answer,
            first,
            end: last + 1,
        })
    }

    /// Adds the ids after the shared prefix: one span, or a chain of spans if the temperature
    /// changes.
    fn plant(&self, spans: &mut Vec<Span>, mut parent: Option<u32>, mut start: usize, (role, fresh): (u16, bool)) {
        for (end, temperature) in self.cuts() {
            let trained = &self.row.trained[start..end];
            let next = spans.len() as u32;
            spans.push(Span {
                parent,
                ids: self.row.row.ids[start..end].to_vec(),
                mask: trained.iter().map(Option::is_some).collect(),
                behaviour_lp: trained.iter().map(|lp| lp.unwrap_or(0.0)).collect(),
                old_lp: Vec::new(),
                advantage: self.sample.advantage,
                advantages: Vec::new(),
                answer: self.answer,
                role,
                weight: self.weight,
                temperature,
                on_policy: fresh && self.row.on_policy,
            });
            (parent, start) = (Some(next), end);
        }
    }

    /// Returns the end and the temperature of each span.
    fn cuts(&self) -> Vec<(usize, f32)> {
        let mut cuts: Vec<(usize, f32)> = Vec::new();
        for segment in &self.row.row.segments {
            let (start, end) = (segment.start as usize, (segment.start + segment.len) as usize);
            let trained = self
                .row
                .trained
                .get(start..end)
                .is_some_and(|t| t.iter().any(Option::is_some));
            if !trained {
                continue;
            }
            let end = end.min(self.end);
            match cuts.last_mut() {
                Some((last, temperature)) if *temperature == segment.temperature => *last = end,
                _ => cuts.push((end, segment.temperature)),
            }
        }
        cuts
    }
}
