//! A batch as independent rows: the plain form that its forest must equal.

use broker::protocol::train::TrainBatch;

/// One path from root to leaf, with one value per token.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlatRow {
    pub ids: Vec<u32>,
    pub mask: Vec<bool>,
    pub behaviour_lp: Vec<f32>,
    /// The behaviour's log-probs where the span has none.
    pub old_lp: Vec<f32>,
    pub advantage: Vec<f32>,
    pub weight: Vec<f32>,
    pub temperature: Vec<f32>,
    pub on_policy: Vec<bool>,
}

/// Returns one row for each leaf, in the order of leaves. A trained token above several leaves is
/// trained in the first of them and is context in the others. A parent that does not come earlier
/// counts as no parent.
#[must_use]
pub fn flatten(batch: &TrainBatch) -> Vec<FlatRow> {
    let spans = &batch.spans;
    let parent = |at: usize| spans[at].parent.map(|p| p as usize).filter(|p| *p < at);
    let mut leaf = vec![true; spans.len()];
    for at in 0..spans.len() {
        if let Some(parent) = parent(at) {
            leaf[parent] = false;
        }
    }
    let mut taken = vec![false; spans.len()];
    let mut rows = Vec::new();
    for at in (0..spans.len()).filter(|at| leaf[*at]) {
        let mut path: Vec<usize> = std::iter::successors(Some(at), |at| parent(*at)).collect();
        path.reverse();
        let mut row = FlatRow::default();
        for at in path {
            row.push(&spans[at], !std::mem::replace(&mut taken[at], true));
        }
        rows.push(row);
    }
    rows
}

impl FlatRow {
    fn push(&mut self, span: &broker::protocol::train::Span, first: bool) {
        let n = span.ids.len();
        self.ids.extend_from_slice(&span.ids);
        self.mask.extend(span.mask.iter().map(|trained| *trained && first));
        self.behaviour_lp.extend_from_slice(&span.behaviour_lp);
        self.old_lp.extend_from_slice(if span.old_lp.is_empty() {
            &span.behaviour_lp
        } else {
            &span.old_lp
        });
        self.advantage.extend(std::iter::repeat_n(span.advantage, n));
        self.weight.extend(std::iter::repeat_n(span.weight, n));
        self.temperature.extend(std::iter::repeat_n(span.temperature, n));
        self.on_policy.extend(std::iter::repeat_n(span.on_policy, n));
    }
}
