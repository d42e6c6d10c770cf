//! Sends frames of turns to their agents.

use std::sync::Arc;

use broker::AgentName;
use broker::bus::PublishError;
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{ResultFrame, TurnFrame};

use super::AgentFrame;
use crate::base::log_scope;
use crate::base::outgoing::{self, Addressed as _};
use crate::base::retry;
use crate::coordinator::env::Env;
use crate::coordinator::input::{Input, Mailbox};
use crate::turn::frames;

/// Sends a frame. Requests that fit into no message come back as failed [`Input::Results`].
pub(crate) fn send_frame(env: &Arc<Env>, mailbox: Mailbox, (agent, frame): AgentFrame) {
    let env = env.clone();
    log_scope::spawn(async move {
        let mut results = Vec::new();
        if let Err(PublishError::TooLarge { .. }) = publish(&env, &agent, &frame).await {
            for single in frames::singles(&frame) {
                let Err(PublishError::TooLarge { size, limit }) = publish(&env, &agent, &single).await else {
                    continue;
                };
                // The same request would be as large again.
                let failure = Failure::too_large(size, limit, "shorten the prompts or the agent's context");
                let requests = single.requests.into_iter();
                results.extend(requests.map(|request| request.failed(failure.clone()).into()));
            }
        }
        if !results.is_empty() {
            let (agent, wave) = (agent.to_string(), frame.wave);
            let failed = ResultFrame { agent, wave, results };
            let _ = mailbox.send(Input::Results(failed, None)).await;
        }
    });
}

async fn publish(env: &Env, agent: &AgentName, frame: &TurnFrame) -> Result<(), PublishError> {
    let to = env.topology.to(&env.topology.turns(agent));
    let headers = [
        ("run", env.run.to_string()),
        ("agent", agent.to_string()),
        ("requests", frame.requests.len().to_string()),
    ];
    let mut message = outgoing::durable(to, Kind::TurnRequest, codec::encode(frame)).with_headers(headers);
    if let Some(first) = frame.requests.first() {
        message = message.about(first.request);
    }
    let sent = retry::publish(&env.bus, message).await;
    if let Err(error @ (PublishError::Unroutable(_) | PublishError::Closed)) = &sent {
        tracing::warn!(%error, "turn requests were not sent; they are sent again when they stay silent");
    }
    sent
}
