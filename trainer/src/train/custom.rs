//! A custom loss: a closure over the log-probs of a whole minibatch.

use broker::protocol::train::{LossStats, TrainBatch};

use super::error::{Refusal, TrainError};
use super::gradient::rows_of;
use super::micro::pack;
use super::trainer::{Stop, Trainer, reference_of};
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
        self.custom(batch, reference, loss)
            .map_err(|stop| self.stopped(seq, stop))
    }

    fn custom(
        &mut self,
        batch: &TrainBatch,
        reference: bool,
        loss: impl FnOnce(&[Member]) -> Vec<Share>,
    ) -> Result<LossStats, Stop> {
        let rows = rows_of(batch, &self.shape)?;
        let reference = if reference {
            Some(reference_of(&self.reference)?)
        } else {
            None
        };
        let packed = pack(&rows, self.options.micro_batch_tokens);
        let members = self.model.members(&rows, batch, reference, &packed);
        let members = members.map_err(|error| Stop::Failed(error.to_string()))?;
        let shares = loss(&members);
        let (given, wanted) = (shares.len(), members.len());
        if given != wanted {
            return Err(Refusal::Shares { given, wanted }.into());
        }
        let mut stats = LossStats::default();
        let done = self
            .model
            .accumulate_shares(&rows, batch, &packed, &members, &shares, &mut stats);
        done.map_err(|error| self.half_done(error))?;
        self.pending += 1;
        Ok(stats)
    }
}
