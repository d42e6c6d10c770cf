//! Commits results to the store before anything is made of them.

use std::sync::Arc;
use std::time::Instant;

use broker::bus::Delivery;
use broker::ids::GroupId;
use broker::store::{Committed, Lease, Record};
use futures_util::future::join_all;

use super::GroupResults;
use crate::base::log_scope;
use crate::base::retry;
use crate::coordinator::env::Env;
use crate::coordinator::input::{CommitDone, Input, Mailbox};

/// One group's part of a commit.
pub(crate) struct CommitStep {
    pub group: GroupId,
    pub lease: Option<Lease>,
    pub records: Vec<Record>,
    pub results: GroupResults,
}

impl CommitStep {
    /// Returns true if the store has to keep something. Evaluations and failures leave no trace.
    #[must_use]
    pub(crate) fn needs_store(&self) -> bool {
        self.lease.is_some() && !self.records.is_empty()
    }

    /// The end of a step that needs no store.
    #[must_use]
    pub(crate) fn done(self) -> CommitDone {
        CommitDone {
            group: self.group,
            lease: self.lease,
            outcome: Ok(vec![Committed::New; self.records.len()]),
            results: self.results,
        }
    }

    async fn commit(self, env: &Env) -> CommitDone {
        let outcome = match self.lease {
            Some(lease) if !self.records.is_empty() => {
                let begun = Instant::now();
                let committed = retry::settle("commit", || env.store.commit(lease, &self.records)).await;
                if let Some(series) = env.observer.series() {
                    series.play.commit.of([]).observe(begun.elapsed().as_secs_f64());
                }
                committed
            }
            _ => Ok(vec![Committed::New; self.records.len()]),
        };
        broker::fail::point("turn.part-committed");
        CommitDone {
            group: self.group,
            lease: self.lease,
            results: self.results,
            outcome,
        }
    }
}

/// Commits, reports [`Input::Committed`], and then acks the deliveries.
pub(crate) fn commit_all(env: &Arc<Env>, mailbox: Mailbox, steps: Vec<CommitStep>, deliveries: Vec<Delivery>) {
    let env = env.clone();
    log_scope::spawn(async move {
        let done = join_all(steps.into_iter().map(|step| step.commit(&env))).await;
        broker::fail::point("turn.committed");
        if mailbox.send(Input::Committed(done)).await.is_ok() {
            for delivery in deliveries {
                delivery.ack().await;
            }
        }
    });
}
