//! A custom loss: a closure over the log-probs of a whole minibatch.

use broker::codec;
use broker::protocol::train::{LossStats, TrainBatch};

use super::error::{Refusal, TrainError};
use super::gradient::rows_of;
use super::reference::reference_of;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::loss::head::Slope;
use crate::loss::joint::{Member, Share};

impl Trainer {
    /// Adds the gradient of a loss given as a closure. `loss` receives every trained token of the
    /// batch and returns one share for each, in the same order. It is called once with the whole
    /// minibatch, so its result does not depend on micro-batches; the trunk runs twice, as for
    /// M2PO. `reference` asks for the reference policy's log-probs too. Without it,
    /// [`crate::loss::Token::reference`] is the token's own log-prob.
    ///
    /// A closure cannot be recorded in the command log: a second call adds the gradient a second
    /// time. `OptimStep` then uses the gradient as any other.
    ///
    /// ```no_run
    /// # use broker::protocol::train::TrainBatch;
    /// # use trainer::train::{TrainError, Trainer};
    /// # fn of(trainer: &mut Trainer, batch: &TrainBatch) -> Result<(), TrainError> {
    /// use trainer::loss::{head::Slope, joint::Share};
    ///
    /// // REINFORCE: -w A lp
    /// trainer.forward_backward_by(batch, false, |members| {
    ///     let share = |m: &trainer::loss::joint::Member| Share {
    ///         value: -m.weight * m.token.advantage * m.token.logprob,
    ///         slope: Slope { d_logprob: -m.weight * m.token.advantage, d_entropy: 0.0 },
    ///         ..Share::default()
    ///     };
    ///     members.iter().map(share).collect()
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The same as for a command: [`TrainError::User`] for a batch that does not fit, a missing
    /// reference or a wrong number of shares.
    pub fn forward_backward_by(
        &mut self,
        batch: &TrainBatch,
        reference: bool,
        loss: impl FnOnce(&[Member]) -> Vec<Share>,
    ) -> Result<LossStats, TrainError> {
        let seq = self.log.next();
        self.check_poison()?;
        let outcome = match self.ranks.order_custom(batch, reference) {
            Ok(()) => self.custom(batch, reference, Some(loss)),
            Err(error) => Err(Stop::Ended(error)),
        };
        let outcome = self.ranks.settle(outcome, true);
        outcome.map_err(|stop| self.stopped(seq, stop))
    }

    /// Computes this rank's part of a loss that rank 0 was given.
    pub(super) fn follow_custom(&mut self, batch: &TrainBatch, reference: bool) -> Result<(), Stop> {
        let outcome = self.custom(batch, reference, None::<fn(&[Member]) -> Vec<Share>>);
        self.ranks.settle(outcome, true).map(|_: LossStats| ())
    }

    /// Rank 0 has the `loss`; the others get its shares.
    fn custom(
        &mut self,
        batch: &TrainBatch,
        reference: bool,
        loss: Option<impl FnOnce(&[Member]) -> Vec<Share>>,
    ) -> Result<LossStats, Stop> {
        let rows = rows_of(batch, &self.shape)?;
        let reference = if reference {
            Some(reference_of(&self.reference)?)
        } else {
            None
        };
        let work = self.work(batch, rows);
        let lists = self.met(self.model.head_lists(&work, reference))?;
        let members = work.members(&self.all_lists(&work, lists)?);
        let shares = self.on_first(|_| Ok(loss.map(|loss| loss(&members))))?;
        let shares = self.shares(shares.flatten(), members.len())?;
        let stats = self.model.accumulate_shares(&work, &members, &shares);
        let stats = self.sum_stats(stats).map_err(|fault| self.half_done(fault))?;
        self.pending += 1;
        Ok(stats)
    }

    /// Passes rank 0's shares on.
    fn shares(&self, own: Option<Vec<Share>>, wanted: usize) -> Result<Vec<Share>, Stop> {
        let given = own.as_ref().map_or(wanted, Vec::len);
        if self.ranks.is_alone() && given == wanted {
            return Ok(own.unwrap_or_default());
        }
        let refusal = Refusal::Shares { given, wanted };
        let bytes = if given == wanted {
            Ok(codec::encode(
                &own.unwrap_or_default().iter().map(numbers).collect::<Vec<_>>(),
            ))
        } else {
            Err(refusal.to_string())
        };
        let bytes = self.ranks.of_first(bytes);
        if given != wanted {
            return Err(refusal.into());
        }
        let shares: Vec<Numbers> = codec::decode(&bytes?).map_err(|error| Stop::Failed(error.to_string()))?;
        Ok(shares.into_iter().map(share).collect())
    }
}

/// A share for the way between ranks: value, both slopes, clipped, KL to the reference.
type Numbers = (f64, f64, f64, bool, f64);

fn numbers(share: &Share) -> Numbers {
    let slope = share.slope;
    (
        share.value,
        slope.d_logprob,
        slope.d_entropy,
        share.clipped,
        share.reference_kl,
    )
}

fn share((value, d_logprob, d_entropy, clipped, reference_kl): Numbers) -> Share {
    Share {
        value,
        slope: Slope { d_logprob, d_entropy },
        clipped,
        reference_kl,
    }
}
