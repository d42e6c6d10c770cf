//! Batches on an external trainer: rows go out, values of the trained tokens come back.

use broker::protocol::train::{ForwardWeights, Loss, LossStats, Policy, Surrogate, TrainBatch, TrainReply};

use super::messages::{Message, Number, Reply, WireRow};
use super::{External, Fault};
use crate::loss::share;
use crate::train::checks::check_loss;
use crate::train::error::Refusal;
use crate::train::measure::measure;
use crate::train::micro::member;
use crate::train::rows::{Row, rows_of};

/// A value for each trained token, row by row.
type Values = [Vec<Number>];

impl External {
    pub(super) fn forward_backward(&mut self, seq: u64, batch: &TrainBatch, loss: &Loss) -> Result<TrainReply, Fault> {
        check_loss(loss)?;
        let has_kl = known(loss)?;
        if has_kl && !self.state.reference {
            return Err(Refusal::NoReference.into());
        }
        let rows = rows_of(batch, &self.shape)?;
        let wire = wire_rows(batch, &rows);
        let reply = self.ask(&Message::ForwardBackward { seq, rows: &wire, loss })?;
        let (total, logprobs, entropies, reference) = match reply {
            Reply::Loss {
                loss,
                logprobs,
                entropies,
                reference,
            } => (loss, logprobs, entropies, reference),
            other => return Err(other.into()),
        };
        check_values(&rows, &logprobs)?;
        check_values(&rows, &entropies)?;
        if has_kl {
            check_values(&rows, &reference)?;
        }
        self.state.pending += 1;
        let mut stats = LossStats::default();
        let sampled = matches!(loss, Loss::Policy(_));
        for (row, index) in rows.iter().zip(0..) {
            for (trained, place) in row.trained.iter().zip(0..) {
                let value = |values: &Values| values[index][place].0 as f32;
                let known = has_kl.then(|| value(&reference));
                let member = member(batch, *trained, value(&logprobs), value(&entropies), known);
                let share = share(loss, &member);
                measure(&mut stats, &batch.spans[trained.span], &member.token, &share, sampled);
            }
        }
        stats.loss = total;
        Ok(TrainReply::Loss(stats))
    }

    pub(super) fn forward(
        &mut self,
        seq: u64,
        batch: &TrainBatch,
        weights: ForwardWeights,
    ) -> Result<TrainReply, Fault> {
        if weights == ForwardWeights::Reference && !self.state.reference {
            return Err(Refusal::NoReference.into());
        }
        let rows = rows_of(batch, &self.shape)?;
        let wire = wire_rows(batch, &rows);
        let message = Message::Forward {
            seq,
            rows: &wire,
            weights,
        };
        let logprobs = match self.ask(&message)? {
            Reply::LogProbs(logprobs) => logprobs,
            other => return Err(other.into()),
        };
        check_values(&rows, &logprobs)?;
        let mut spans: Vec<Vec<f32>> = batch.spans.iter().map(|span| vec![0.0; span.ids.len()]).collect();
        for (row, values) in rows.iter().zip(&logprobs) {
            for (trained, value) in row.trained.iter().zip(values) {
                spans[trained.span][trained.offset] = value.0 as f32;
            }
        }
        Ok(TrainReply::LogProbs(spans))
    }
}

/// Rejects losses that external trainers do not have. Returns true if the loss needs the reference.
fn known(loss: &Loss) -> Result<bool, Refusal> {
    let Loss::Policy(Policy { surrogate, kl_coef, .. }) = loss else {
        return Ok(false);
    };
    match surrogate {
        Surrogate::M2po { .. } => Err(Refusal::NotExternal { what: "M2PO" }),
        Surrogate::Gspo { .. } => Err(Refusal::NotExternal { what: "GSPO" }),
        _ => Ok(*kl_coef != 0.0),
    }
}

fn wire_rows(batch: &TrainBatch, rows: &[Row]) -> Vec<WireRow> {
    let wire = |row: &Row| {
        let mut wire = WireRow {
            ids: row.input.clone(),
            ..WireRow::default()
        };
        for trained in &row.trained {
            let span = &batch.spans[trained.span];
            let token = member(batch, *trained, 0.0, 0.0, None).token;
            wire.at.push(trained.predictor);
            wire.targets.push(span.ids[trained.offset]);
            wire.advantage.push(token.advantage as f32);
            wire.old.push(token.old as f32);
            wire.behaviour.push(token.behaviour as f32);
            wire.weight.push(span.weight);
            wire.temperature.push(span.temperature);
        }
        wire
    };
    rows.iter().map(wire).collect()
}

/// Checks that there is a value for each trained token.
fn check_values(rows: &[Row], values: &Values) -> Result<(), Fault> {
    let wanted = rows.iter().map(|row| row.trained.len());
    if wanted.eq(values.iter().map(Vec::len)) {
        return Ok(());
    }
    Err(Fault::Lost(
        "it sent values that do not fit the rows: one for each trained token is needed".into(),
    ))
}
