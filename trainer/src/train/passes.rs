//! The passes over a batch: its gradient, and its log-probs.

use broker::codec;
use broker::protocol::train::{ForwardWeights, Loss, LossStats, TrainBatch, TrainReply};

use super::checks::{check_answers, check_loss};
use super::measure::add_moment;
use super::ranks::Fault;
use super::reference::reference_of;
use super::rows::{Row, rows_of};
use super::stop::Stop;
use super::trainer::Trainer;
use super::work::{HeadLists, Work};
use crate::loss::joint::{self, Reach};
use crate::model::ModelError;

impl Trainer {
    /// Adds the gradient of a batch: each rank that of its micro-batches.
    pub(super) fn forward_backward(&mut self, batch: &TrainBatch, loss: &Loss) -> Result<TrainReply, Stop> {
        check_loss(loss)?;
        check_answers(loss, batch)?;
        let rows = rows_of(batch, &self.shape)?;
        let reference = match loss {
            Loss::Policy(policy) if policy.kl_coef != 0.0 => Some(reference_of(&self.reference)?),
            _ => None,
        };
        let work = self.work(batch, rows);
        let stats = if reaches_further(loss, &work) {
            let lists = self.model.head_lists(&work, reference);
            match self.met(lists).and_then(|lists| self.all_lists(&work, lists)) {
                Ok(lists) => {
                    let members = work.members(&lists);
                    let (shares, moment) = joint::shares(loss, &members);
                    let stats = self.model.accumulate_shares(&work, &members, &shares);
                    self.sum_stats(stats).map(|mut stats| {
                        add_moment(&mut stats, &moment);
                        stats
                    })
                }
                Err(fault) => Err(fault),
            }
        } else {
            let stats = self.model.accumulate(&work, loss, reference);
            self.sum_stats(stats)
        };
        match stats {
            Ok(stats) => {
                self.pending += 1;
                Ok(TrainReply::Loss(stats))
            }
            Err(fault) => Err(self.half_done(fault)),
        }
    }

    /// Handles a failure after which part of a batch may be in the gradient. If that batch is the
    /// only one there, the gradient is cleared.
    pub(super) fn half_done(&mut self, fault: Fault) -> Stop {
        match fault {
            Fault::Ended(error) => Stop::Ended(error),
            Fault::Failed(reason) if self.pending == 0 && self.model.clear().is_ok() => Stop::Failed(reason),
            Fault::Failed(reason) => Stop::Broken(reason),
        }
    }

    /// Returns the log-probs of the trained tokens, which each rank computes for its micro-batches.
    pub(super) fn forward(&self, batch: &TrainBatch, weights: ForwardWeights) -> Result<TrainReply, Stop> {
        let rows = rows_of(batch, &self.shape)?;
        let work = self.work(batch, rows);
        let lists = match weights {
            ForwardWeights::Trained => self.model.logprobs(None, &work),
            ForwardWeights::Reference => self.model.logprobs(Some(reference_of(&self.reference)?), &work),
        };
        let lists = self.met(lists)?;
        let decode = |bytes: &[u8]| codec::decode::<Vec<Vec<f32>>>(bytes);
        let lists = self.ranks.gather(lists, codec::encode::<Vec<Vec<f32>>>, decode)?;
        let lists = work
            .in_order(lists)
            .ok_or_else(|| Stop::Failed("a rank sent too few log-probs".into()))?;
        let mut spans: Vec<Vec<f32>> = batch.spans.iter().map(|span| vec![0.0; span.ids.len()]).collect();
        for (micro, logprobs) in lists.into_iter().enumerate() {
            for (trained, logprob) in work.tokens(micro).zip(logprobs) {
                spans[trained.span][trained.offset] = logprob;
            }
        }
        Ok(TrainReply::LogProbs(spans))
    }

    pub(super) fn work<'a>(&self, batch: &'a TrainBatch, rows: Vec<Row>) -> Work<'a> {
        let budget = self.options.micro_batch_tokens;
        Work::new(batch, rows, budget, self.ranks.rank(), self.ranks.count())
    }

    /// The head's values for the whole batch, from those that each rank computed.
    pub(super) fn all_lists(
        &self,
        work: &Work<'_>,
        mine: Result<Vec<HeadLists>, String>,
    ) -> Result<Vec<HeadLists>, Fault> {
        let decode = |bytes: &[u8]| codec::decode::<Vec<HeadLists>>(bytes);
        let lists = self.ranks.gather(mine, codec::encode::<Vec<HeadLists>>, decode)?;
        let all = work.in_order(lists);
        all.ok_or_else(|| Fault::Failed("a rank sent too few log-probs".into()))
    }

    /// The outcome of this rank's passes, unless another rank was lost in them.
    pub(super) fn met<T>(&self, outcome: Result<T, ModelError>) -> Result<Result<T, String>, Fault> {
        match self.model.lost() {
            Some(error) => Err(Fault::Ended(error)),
            None => Ok(outcome.map_err(|error| error.to_string())),
        }
    }

    /// The measurements of all ranks, added in their order.
    pub(super) fn sum_stats(&self, mine: Result<LossStats, ModelError>) -> Result<LossStats, Fault> {
        let mine = self.met(mine)?;
        let decode = |bytes: &[u8]| codec::decode::<LossStats>(bytes);
        let parts = self.ranks.gather(mine, codec::encode::<LossStats>, decode)?;
        let mut parts = parts.into_iter();
        let mut sum = parts.next().unwrap_or_default();
        parts.for_each(|part| sum.add(&part));
        Ok(sum)
    }
}

/// Returns true if the loss of one token depends on tokens of other micro-batches.
fn reaches_further(loss: &Loss, work: &Work<'_>) -> bool {
    match Reach::of(loss) {
        Reach::Minibatch => true,
        Reach::Answer => work.tears_answers(),
        Reach::Token | Reach::Microbatch => false,
    }
}
