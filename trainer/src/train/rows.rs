//! Turns the forest of a batch into rows for the model. Every trained token is predicted once.
//!
//! A row is a root-to-leaf path, cut after its last prediction. A row joins another row if its
//! input is the beginning of the other input: n one-word answers to one prompt are one row with n
//! trained tokens. Longer completions repeat their prompt here; the model computes it once
//! (`crate::model::RowBatch::sharing`).

use broker::protocol::train::{Span, TrainBatch};

use crate::model::ModelShape;

/// The limits of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub vocab: usize,
    /// The largest number of tokens in a row.
    pub context: usize,
}

/// One input of the model, and the trained tokens that its states predict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// Ends where the last prediction is made; the last trained token is not part of it.
    pub input: Vec<u32>,
    pub trained: Vec<Trained>,
}

/// One trained token of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trained {
    /// The place in the input with the state that predicts the token.
    pub predictor: usize,
    /// The token's span, and its offset in the span.
    pub span: usize,
    pub offset: usize,
}

/// Why a batch cannot be trained on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BatchError {
    #[error("span {span} has {found} {what} for {ids} ids: give one for each")]
    Length {
        span: usize,
        what: &'static str,
        found: usize,
        ids: usize,
    },
    #[error("span {span} names span {parent} as its parent: a parent stands earlier in the batch")]
    Parent { span: usize, parent: u32 },
    #[error("span {span} holds token {id}, the model knows 0 to {}: is it another agent's tokenizer?", vocab - 1)]
    Vocabulary { span: usize, id: u32, vocab: usize },
    #[error("span {span} trains its first token without any context: put the prompt before it")]
    NoContext { span: usize },
    #[error(
        "the row that ends in span {span} has {length} tokens, the model's context is {context}: shorten or drop it"
    )]
    TooLong { span: usize, length: usize, context: usize },
    #[error(
        "span {span} has another advantage than the rest of answer {answer}, or one for each token: a loss of whole \
         answers needs one for all of it"
    )]
    Answer { span: usize, answer: u32 },
    #[error("span {span} has {what} {value}: it must be {rule}")]
    Value {
        span: usize,
        what: &'static str,
        value: f32,
        rule: &'static str,
    },
}

/// Checks the batch and lays out its rows, in the order of their inputs. A trained token of an
/// inner span belongs to the first row that passes through it. Rows without a trained token are
/// left out.
pub fn flatten(batch: &TrainBatch, limits: Limits) -> Result<Vec<Row>, BatchError> {
    let spans = &batch.spans;
    let mut leaf = vec![true; spans.len()];
    for (index, span) in spans.iter().enumerate() {
        check_span(index, span, limits)?;
        if let Some(parent) = span.parent {
            leaf[parent as usize] = false;
        }
    }
    let mut placed = vec![false; spans.len()];
    let mut rows = Vec::new();
    for (index, _) in leaf.iter().enumerate().filter(|(_, leaf)| **leaf) {
        let row = row(spans, index, &mut placed)?;
        if row.trained.is_empty() {
            continue;
        }
        let length = row.input.len() + 1;
        if length > limits.context {
            return Err(BatchError::TooLong {
                span: index,
                length,
                context: limits.context,
            });
        }
        rows.push(row);
    }
    Ok(share_inputs(rows))
}

/// Moves the trained tokens of each row into the row that begins with the same input, if any.
fn share_inputs(mut rows: Vec<Row>) -> Vec<Row> {
    // In this order, all inputs that begin with a given input follow it directly. The sort is
    // stable: ties keep the order of the leaves.
    rows.sort_by(|a, b| a.input.cmp(&b.input));
    let mut shared: Vec<Row> = Vec::with_capacity(rows.len());
    for mut row in rows {
        match shared.last_mut() {
            Some(last) if row.input.starts_with(&last.input) => {
                last.input = row.input;
                last.trained.append(&mut row.trained);
            }
            _ => shared.push(row),
        }
    }
    shared
}

fn row(spans: &[Span], leaf: usize, placed: &mut [bool]) -> Result<Row, BatchError> {
    let mut path = vec![leaf];
    while let Some(parent) = spans[path[path.len() - 1]].parent {
        path.push(parent as usize);
    }
    let mut row = Row::default();
    for index in path.into_iter().rev() {
        let start = row.input.len();
        row.input.extend_from_slice(&spans[index].ids);
        if std::mem::replace(&mut placed[index], true) {
            continue;
        }
        for (offset, _) in spans[index].mask.iter().enumerate().filter(|(_, trained)| **trained) {
            if start + offset == 0 {
                return Err(BatchError::NoContext { span: index });
            }
            row.trained.push(Trained {
                predictor: start + offset - 1,
                span: index,
                offset,
            });
        }
    }
    row.input
        .truncate(row.trained.last().map_or(0, |last| last.predictor + 1));
    Ok(row)
}

fn check_span(index: usize, span: &Span, limits: Limits) -> Result<(), BatchError> {
    let ids = span.ids.len();
    let lengths = [
        ("mask entries", span.mask.len(), false),
        ("behaviour log-probs", span.behaviour_lp.len(), false),
        ("old log-probs", span.old_lp.len(), true),
        ("advantages", span.advantages.len(), true),
    ];
    for (what, found, may_be_empty) in lengths {
        if found != ids && !(may_be_empty && found == 0) {
            return Err(BatchError::Length {
                span: index,
                what,
                found,
                ids,
            });
        }
    }
    if let Some(parent) = span.parent.filter(|parent| *parent as usize >= index) {
        return Err(BatchError::Parent { span: index, parent });
    }
    if let Some(id) = span.ids.iter().find(|id| **id as usize >= limits.vocab) {
        return Err(BatchError::Vocabulary {
            span: index,
            id: *id,
            vocab: limits.vocab,
        });
    }
    if span.mask.contains(&true) {
        check_values(index, span)
    } else {
        Ok(())
    }
}

fn check_values(index: usize, span: &Span) -> Result<(), BatchError> {
    let value = |what, value: f32, rule| BatchError::Value {
        span: index,
        what,
        value,
        rule,
    };
    if !(span.temperature.is_finite() && span.temperature > 0.0) {
        return Err(value("temperature", span.temperature, "finite and above 0"));
    }
    for (what, number) in [("advantage", span.advantage), ("weight", span.weight)] {
        if !number.is_finite() {
            return Err(value(what, number, "finite"));
        }
    }
    let trained = span.mask.iter().enumerate().filter(|(_, trained)| **trained);
    for (offset, _) in trained {
        if let Some(advantage) = span.advantages.get(offset).filter(|a| !a.is_finite()) {
            return Err(value("an advantage of", *advantage, "finite"));
        }
        let lps = [Some(&span.behaviour_lp[offset]), span.old_lp.get(offset)];
        for lp in lps.into_iter().flatten() {
            if !lp.is_finite() || *lp > 1e-3 {
                return Err(value("a log-prob of", *lp, "finite and at most 0"));
            }
        }
    }
    Ok(())
}

/// Lays out the rows of a batch, checked against the model's limits.
pub(crate) fn rows_of(batch: &TrainBatch, shape: &ModelShape) -> Result<Vec<Row>, BatchError> {
    let limits = Limits {
        vocab: shape.vocab,
        context: shape.max_context,
    };
    flatten(batch, limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        vocab: 100,
        context: 64,
    };

    fn span(parent: Option<u32>, ids: &[u32], mask: &[bool]) -> Span {
        Span {
            parent,
            ids: ids.to_vec(),
            mask: mask.to_vec(),
            behaviour_lp: vec![-1.0; ids.len()],
            temperature: 1.0,
            weight: 1.0,
            ..Span::default()
        }
    }

    fn batch(spans: Vec<Span>) -> TrainBatch {
        TrainBatch { spans, tokens: 0 }
    }

    fn places(row: &Row) -> Vec<(usize, usize, usize)> {
        row.trained.iter().map(|t| (t.predictor, t.span, t.offset)).collect()
    }

    #[test]
    fn a_prompt_is_repeated_and_its_own_trained_tokens_are_not() {
        let spans = vec![
            span(None, &[1, 2], &[false, true]),
            span(Some(0), &[3, 4, 8], &[true, true, false]),
            span(Some(0), &[5, 6], &[true, true]),
            span(Some(0), &[6], &[false]),
        ];
        let rows = flatten(&batch(spans), LIMITS).unwrap();
        assert_eq!(rows.len(), 2, "a row that trains nothing is left out");
        assert_eq!(
            (rows[0].input.as_slice(), places(&rows[0])),
            (&[1, 2, 3][..], vec![(0, 0, 1), (1, 1, 0), (2, 1, 1)])
        );
        assert_eq!(
            (rows[1].input.as_slice(), places(&rows[1])),
            (&[1, 2, 5][..], vec![(1, 2, 0), (2, 2, 1)])
        );
    }

    #[test]
    fn inputs_that_begin_alike_are_one_row() {
        let mut spans = vec![span(None, &[1, 2], &[false; 2])];
        spans.extend([3, 4, 3].map(|answer| span(Some(0), &[answer], &[true])));
        spans.push(span(Some(0), &[7, 8, 9], &[true; 3]));
        spans.push(span(None, &[1, 2, 5], &[false, false, true]));
        spans.push(span(None, &[1, 3, 5], &[false, false, true]));
        let rows = flatten(&batch(spans), LIMITS).unwrap();
        assert_eq!(
            rows.iter().map(|r| r.input.clone()).collect::<Vec<_>>(),
            [vec![1, 2, 7, 8], vec![1, 3]]
        );
        let expected = [
            (1, 1, 0),
            (1, 2, 0),
            (1, 3, 0),
            (1, 5, 2),
            (1, 4, 0),
            (2, 4, 1),
            (3, 4, 2),
        ];
        assert_eq!(places(&rows[0]), expected);
    }

    #[test]
    fn bad_batches_are_named() {
        let mut short = span(None, &[1, 2], &[false, true]);
        short.behaviour_lp.pop();
        let mut cold = span(None, &[1, 2], &[false, true]);
        cold.temperature = 0.0;
        let mut nan = span(None, &[1, 2], &[false, true]);
        nan.behaviour_lp[1] = f32::NAN;
        let long = span(None, &[1; 65], &[&[false; 64][..], &[true]].concat());
        let cases = [
            (short, "1 behaviour log-probs for 2 ids"),
            (cold, "temperature 0"),
            (nan, "log-prob of NaN"),
            (long, "65 tokens"),
            (span(Some(0), &[1], &[false]), "parent"),
            (span(None, &[100], &[false]), "token 100"),
            (span(None, &[1], &[true]), "without any context"),
        ];
        for (span, reason) in cases {
            let error = flatten(&batch(vec![span]), LIMITS).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    proptest! {
        /// Every trained token is predicted exactly once, from its own context alone.
        #[test]
        fn each_trained_token_once(shape in prop::collection::vec((any::<u32>(), 1usize..4, any::<u8>()), 1..12)) {
            let mut spans = Vec::new();
            for (index, (parent, length, mask)) in shape.iter().enumerate() {
                let parent = (index > 0 && parent % 5 != 0).then(|| parent % index as u32);
                let ids: Vec<u32> = (0..*length).map(|k| (index * 4 + k) as u32 % 5).collect();
                let mask: Vec<bool> = (0..*length).map(|k| mask >> k & 1 == 1 && (parent.is_some() || k > 0)).collect();
                spans.push(span(parent, &ids, &mask));
            }
            let rows = flatten(&batch(spans.clone()), LIMITS).unwrap();
            let mut seen: Vec<(usize, usize)> = Vec::new();
            for row in &rows {
                for token in &row.trained {
                    let mut context = spans[token.span].ids[..token.offset].to_vec();
                    let mut up = spans[token.span].parent;
                    while let Some(parent) = up {
                        context.splice(0..0, spans[parent as usize].ids.iter().copied());
                        up = spans[parent as usize].parent;
                    }
                    prop_assert_eq!(&row.input[..=token.predictor], context);
                    seen.push((token.span, token.offset));
                }
            }
            seen.sort_unstable();
            let expected: Vec<(usize, usize)> = spans
                .iter()
                .enumerate()
                .flat_map(|(i, s)| s.mask.iter().enumerate().filter(|(_, m)| **m).map(move |(k, _)| (i, k)))
                .collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
