//! Packs rows into micro-batches under a token budget.

use std::collections::HashMap;

use broker::protocol::train::{Span, TrainBatch};
use tch::{TchError, Tensor};

use super::rows::{Row, Trained};
use crate::loss::Token;
use crate::loss::head::{self, HeadInput, HeadValues};
use crate::loss::joint::Member;
use crate::model::{Decoder, LEAST_SHARED, ModelError, RowBatch, common};

/// Indices of rows that are computed together.
pub(crate) type MicroBatch = Vec<usize>;

/// A token shared with the previous row costs one eighth of a computed token. Attention copies its
/// keys and values for each row: about a seventeenth of the memory that a layer keeps for a token's
/// backward pass, and less with grouped heads.
const SHARED_COST: usize = 8;

/// Packs rows so that the tokens computed together stay within about `budget`. A row above the
/// budget is alone. Tokens shared with the previous row are not computed again and count an eighth.
/// Rows with a common beginning go together, and families of similar length are neighbours. The
/// result is a function of the rows and the budget alone.
pub(crate) fn pack(rows: &[Row], budget: usize) -> Vec<MicroBatch> {
    let mut batches: Vec<MicroBatch> = Vec::new();
    let mut room = 0;
    for family in families(rows) {
        let mut before: Option<usize> = None;
        for index in family {
            let length = rows[index].input.len();
            let known = before.map_or(0, |before| shared(&rows[before], &rows[index]));
            let cost = length - known + known.div_ceil(SHARED_COST);
            match batches.last_mut() {
                Some(batch) if cost <= room => {
                    batch.push(index);
                    room -= cost;
                }
                _ => {
                    batches.push(vec![index]);
                    room = budget.saturating_sub(length);
                }
            }
            before = Some(index);
        }
    }
    batches
}

/// The tokens that a micro-batch counts for in [`pack`].
pub(crate) fn cost(rows: &[Row], indices: &[usize]) -> usize {
    let first = indices.first().map_or(0, |index| rows[*index].input.len());
    let later = indices.windows(2).map(|pair| {
        let (before, row) = (&rows[pair[0]], &rows[pair[1]]);
        let known = shared(before, row);
        row.input.len() - known + known.div_ceil(SHARED_COST)
    });
    first + later.sum::<usize>()
}

/// Groups rows with a common beginning, in the order of their inputs. Sorts the groups by their
/// longest row.
fn families(rows: &[Row]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| rows[*a].input.cmp(&rows[*b].input));
    let mut families: Vec<Vec<usize>> = Vec::new();
    for index in order {
        match families.last_mut() {
            Some(family)
                if family
                    .last()
                    .is_some_and(|before| shared(&rows[*before], &rows[index]) > 0) =>
            {
                family.push(index);
            }
            _ => families.push(vec![index]),
        }
    }
    families.sort_by_key(|family| family.iter().map(|index| rows[*index].input.len()).max());
    families
}

/// The number of tokens that a row need not compute again after its neighbour.
fn shared(a: &Row, b: &Row) -> usize {
    Some(common(&a.input, &b.input))
        .filter(|common| *common >= LEAST_SHARED)
        .unwrap_or(0)
}

/// Returns true if the tokens of one answer are in different micro-batches.
pub(crate) fn torn(rows: &[Row], packed: &[MicroBatch], batch: &TrainBatch) -> bool {
    let mut home: HashMap<u32, usize> = HashMap::new();
    packed.iter().enumerate().any(|(place, indices)| {
        let tokens = indices.iter().flat_map(|row| &rows[*row].trained);
        let mut answers = tokens.map(|token| batch.spans[token.span].answer);
        answers.any(|answer| *home.entry(answer).or_insert(place) != place)
    })
}

/// The rows of one micro-batch on the device, with their trained tokens.
pub(crate) struct Micro<'a> {
    batch: &'a TrainBatch,
    rows: RowBatch,
    tokens: Vec<Trained>,
    /// The packed position of the state that predicts each token, `[N]`.
    predictors: Tensor,
    targets: Vec<i64>,
    temperatures: Vec<f32>,
}

impl<'a> Micro<'a> {
    pub(crate) fn new(
        decoder: &Decoder,
        rows: &[Row],
        indices: &[usize],
        batch: &'a TrainBatch,
    ) -> Result<Self, ModelError> {
        let inputs: Vec<&[u32]> = indices.iter().map(|i| rows[*i].input.as_slice()).collect();
        let packed = RowBatch::sharing(decoder.shape(), &inputs, decoder.device(), decoder.kind())?;
        let tokens: Vec<Trained> = indices.iter().flat_map(|i| &rows[*i].trained).copied().collect();
        let predictors: Vec<i64> = indices
            .iter()
            .enumerate()
            .flat_map(|(r, i)| rows[*i].trained.iter().map(move |t| (r, t.predictor)))
            .map(|(r, predictor)| packed.place(r, predictor) as i64)
            .collect();
        let of = |token: &Trained| &batch.spans[token.span];
        Ok(Self {
            batch,
            rows: packed,
            predictors: Tensor::f_from_slice(&predictors)?.f_to_device(decoder.device())?,
            targets: tokens.iter().map(|t| i64::from(of(t).ids[t.offset])).collect(),
            temperatures: tokens.iter().map(|t| of(t).temperature).collect(),
            tokens,
        })
    }

    /// The number of trained tokens.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The span of the token at `place`.
    pub(crate) fn span(&self, place: usize) -> &'a Span {
        &self.batch.spans[self.tokens[place].span]
    }

    pub(crate) fn head_input<'b>(&'b self, states: &'b Tensor, decoder: &'b Decoder) -> HeadInput<'b> {
        HeadInput {
            hidden: states,
            matrix: decoder.head_weight(),
            adapter: decoder.head_adapter(),
            targets: &self.targets,
            temperatures: &self.temperatures,
            chunk_elements: head::chunk_elements(decoder.device()),
        }
    }

    /// Computes the states that predict the tokens.
    pub(crate) fn states(&self, decoder: &Decoder) -> Result<Tensor, ModelError> {
        self.predicting(&decoder.hidden(&self.rows)?)
    }

    /// Selects the states that predict the tokens.
    pub(crate) fn predicting(&self, hidden: &Tensor) -> Result<Tensor, ModelError> {
        let states: Result<Tensor, TchError> = hidden.f_index_select(0, &self.predictors);
        Ok(states?)
    }

    pub(crate) fn rows(&self) -> &RowBatch {
        &self.rows
    }

    pub(crate) fn values(&self, decoder: &Decoder) -> Result<HeadValues, ModelError> {
        let _no_grad = tch::no_grad_guard();
        let states = self.states(decoder)?;
        Ok(head::values(&self.head_input(&states, decoder))?)
    }

    pub(crate) fn logprobs(&self, decoder: &Decoder) -> Result<Vec<f32>, ModelError> {
        Ok(self.values(decoder)?.logprobs)
    }

    /// The token at `place` with the head's log-prob and entropy.
    pub(crate) fn member(&self, place: usize, logprob: f32, entropy: f32, reference: Option<f32>) -> Member {
        member(self.batch, self.tokens[place], logprob, entropy, reference)
    }

    pub(crate) fn members(&self, values: &HeadValues, reference: Option<&[f32]>) -> Vec<Member> {
        let pairs = values.logprobs.iter().zip(&values.entropies).enumerate();
        pairs
            .map(|(i, (logprob, entropy))| self.member(i, *logprob, *entropy, reference.map(|lps| lps[i])))
            .collect()
    }
}

/// A token of the batch with the head's log-prob and entropy.
pub(crate) fn member(batch: &TrainBatch, token: Trained, logprob: f32, entropy: f32, reference: Option<f32>) -> Member {
    let (span, offset) = (&batch.spans[token.span], token.offset);
    let behaviour = span.behaviour_lp[offset];
    let own = |values: &[f32], else_: f32| f64::from(values.get(offset).copied().unwrap_or(else_));
    Member {
        token: Token {
            logprob: f64::from(logprob),
            old: own(&span.old_lp, behaviour),
            behaviour: f64::from(behaviour),
            reference: f64::from(reference.unwrap_or(logprob)),
            advantage: own(&span.advantages, span.advantage),
            entropy: f64::from(entropy),
        },
        weight: f64::from(span.weight),
        answer: span.answer,
        span: token.span,
        offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_group_stays_together_and_its_prompt_counts_little() {
        let row = |prompt: u32, own: u32, count: usize| Row {
            input: [vec![prompt; 40], vec![own; count]].concat(),
            trained: vec![],
        };
        let rows = [
            row(1, 10, 10),
            row(2, 11, 10),
            row(1, 12, 9),
            row(2, 13, 3),
            row(1, 14, 8),
        ];
        // 50 + (5 + 9) + (5 + 8) for the first prompt, 50 + (5 + 3) for the other.
        assert_eq!(pack(&rows, 135), [vec![0, 2, 4, 1, 3]]);
        assert_eq!(pack(&rows, 77), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(pack(&rows, 76), [vec![0, 2], vec![4], vec![1, 3]]);
    }

    proptest! {
        #[test]
        fn every_row_once_and_within_the_budget(shapes in prop::collection::vec((0u32..4, 0usize..30, 1usize..30), 0..40), budget in 1usize..200) {
            let row = |(id, shared, own): &(u32, usize, usize)| Row { input: [vec![*id; *shared], vec![id + 10; *own]].concat(), trained: vec![] };
            let rows: Vec<Row> = shapes.iter().map(row).collect();
            let batches = pack(&rows, budget);
            let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..rows.len()).collect::<Vec<_>>());
            for batch in batches {
                let inputs: Vec<&[u32]> = batch.iter().map(|i| rows[*i].input.as_slice()).collect();
                let forest = crate::model::Forest::sharing(&inputs);
                let computed: usize = forest.stretches.iter().map(|stretch| stretch.tokens.len()).sum();
                // A row that leaves its neighbour within LEAST_SHARED tokens of another fork
                // computes those tokens again.
                prop_assert!(batch.len() == 1 || computed <= budget + LEAST_SHARED * batch.len());
            }
        }
    }
}
