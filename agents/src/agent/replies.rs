//! Sends results to one coordinator.

use std::sync::Arc;

use broker::AgentName;
use broker::bus::{Bus, Outgoing, PublishError};
use broker::codec;
use broker::ids::Digest;
use broker::protocol::Kind;
use broker::protocol::turn::{ResultFrame, TurnOutcome, TurnResult, Wave};
use broker::topology::Topology;

use crate::base::{log_scope, retry};
use crate::turn::failure;

/// The destination of an agent's results.
pub struct Replies {
    pub bus: Arc<dyn Bus>,
    pub topology: Topology,
    pub agent: AgentName,
    /// The coordinator's incarnation.
    pub reply_to: String,
    pub wave: Option<Wave>,
}

impl Replies {
    /// Returns once the results are in their queue, or no coordinator takes them any more. A result
    /// that is too large for a message is answered as failed: generated again from the same seed,
    /// it would be too large again, for ever.
    ///
    /// # Errors
    /// [`PublishError::Closed`]: no result was sent, and the requests come again.
    pub async fn send(&self, results: Vec<Arc<TurnResult>>) -> Result<(), PublishError> {
        match self.publish(results.clone()).await {
            Err(PublishError::TooLarge { .. }) => {}
            sent => return sent,
        }
        for result in results {
            match self.publish(vec![result.clone()]).await {
                Err(PublishError::TooLarge { size, limit }) => {
                    log_scope::turn(result.group, result.member, &result.role, result.turn).in_scope(|| {
                        tracing::warn!(
                            size,
                            limit,
                            "a result is too large for a message; it is answered as failed"
                        );
                    });
                    self.publish(vec![Arc::new(too_large(&result, size, limit))]).await?;
                }
                sent => sent?,
            }
        }
        Ok(())
    }

    async fn publish(&self, results: Vec<Arc<TurnResult>>) -> Result<(), PublishError> {
        let correlation_id = results.first().map(|result| result.request.to_string());
        let body = codec::encode(&ResultFrame {
            agent: self.agent.to_string(),
            wave: self.wave,
            results,
        });
        let message = Outgoing {
            to: self.topology.to_results(&self.reply_to, self.agent.as_str()),
            kind: Kind::TurnResult,
            message_id: Digest::of(&body).to_string(),
            correlation_id,
            headers: vec![("agent".into(), self.agent.to_string())],
            body: body.into(),
            durable: true,
        };
        match retry::publish(&self.bus, message).await {
            Err(PublishError::Unroutable(_)) => {
                tracing::info!(
                    reply_to = self.reply_to,
                    "the coordinator that asked is gone; a new one will ask again"
                );
                Ok(())
            }
            sent => sent,
        }
    }
}

fn too_large(result: &TurnResult, size: usize, limit: usize) -> TurnResult {
    TurnResult {
        outcome: TurnOutcome::Failed {
            reason: failure::too_large(size, limit, "lower the agent's sampling.max_new_tokens or its context"),
            retry: false,
        },
        ..result.clone()
    }
}
