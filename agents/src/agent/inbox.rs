//! What an agent listens to: turn requests, reservations, samples, control.

use std::sync::Arc;

use actix::Addr;
use broker::bus::{Delivery, Outgoing, dead_letter};
use broker::codec;
use broker::ids::Digest;
use broker::protocol::Kind;
use broker::protocol::bundle::Bundle;
use broker::protocol::control::{Beat, RunPhase};
use broker::protocol::reserve::{ReserveAnswer, ReserveAnswerFrame, ReserveFrame};
use broker::protocol::turn::TurnFrame;
use configs::History;

use super::turns::{Input, Router};
use super::{Agent, reclaim};
use crate::coordinator::io;
use crate::ledger::Staged;

const TURN_PREFETCH: u16 = 256;
const RESERVE_PREFETCH: u16 = 64;
const SAMPLE_PREFETCH: u16 = 128;

/// Takes turn requests: renders their prompts and hands them to the router.
pub async fn turns(agent: Arc<Agent>, router: Addr<Router>, history: History) -> anyhow::Result<()> {
    let mut consumer = agent
        .bus
        .consume(&agent.topology.turns(&agent.name), TURN_PREFETCH)
        .await?;
    tokio::spawn(async move {
        while let Some(delivery) = consumer.next().await {
            let frame = match codec::decode::<TurnFrame>(&delivery.body) {
                Ok(frame) => frame,
                Err(error) => {
                    refuse(&agent, &delivery, &error.to_string()).await;
                    continue;
                }
            };
            let render = |prompt| {
                agent
                    .text
                    .render(prompt, history)
                    .map(Arc::from)
                    .map_err(|error| error.to_string())
            };
            let prompts = frame.prompts.iter().map(render).collect();
            if router
                .send(Input::Frame {
                    frame: Box::new(frame),
                    prompts,
                    delivery,
                })
                .await
                .is_err()
            {
                return;
            }
        }
    });
    Ok(())
}

/// Takes reservations: the ledger's row is on disk before the answer goes out, and the answer before the ack.
pub async fn reservations(agent: Arc<Agent>) -> anyhow::Result<()> {
    let mut consumer = agent
        .bus
        .consume(&agent.topology.reserve(&agent.name), RESERVE_PREFETCH)
        .await?;
    tokio::spawn(async move {
        while let Some(delivery) = consumer.next().await {
            match codec::decode::<ReserveFrame>(&delivery.body) {
                Ok(frame) => reserve(&agent, frame, &delivery).await,
                Err(error) => refuse(&agent, &delivery, &error.to_string()).await,
            }
        }
    });
    Ok(())
}

async fn reserve(agent: &Arc<Agent>, frame: ReserveFrame, delivery: &Delivery) {
    let groups: Vec<_> = frame.requests.iter().map(|reserve| reserve.group).collect();
    let verdicts = match agent.ledger.reserve(frame.requests, agent.window).await {
        Ok(verdicts) => verdicts,
        Err(error) => {
            tracing::error!(%error, "the ledger takes no reservations");
            delivery.acker.reject(true).await;
            return;
        }
    };
    agent.ledger_changed();
    let answers = groups
        .into_iter()
        .zip(verdicts)
        .map(|(group, verdict)| ReserveAnswer { group, verdict })
        .collect();
    let body = codec::encode(&ReserveAnswerFrame {
        agent: agent.name.to_string(),
        answers,
    });
    let message = Outgoing {
        to: agent.topology.to(&agent.topology.results(&frame.reply_to)),
        kind: Kind::ReserveAnswer,
        message_id: Digest::of(&body).to_string(),
        correlation_id: delivery.message_id.clone(),
        headers: vec![("agent".into(), agent.name.to_string())],
        body: body.into(),
        durable: true,
    };
    let (bus, delivery) = (agent.bus.clone(), delivery.clone());
    tokio::spawn(async move {
        // If the coordinator is gone its successor asks again.
        let _ = io::publish(&bus, message).await;
        delivery.ack().await;
    });
}

/// Takes bundles: staged or closed on disk before the ack. Several are staged at once, so that they share a commit.
pub async fn samples(agent: Arc<Agent>) -> anyhow::Result<()> {
    let mut consumer = agent
        .bus
        .consume(&agent.topology.samples(&agent.name), SAMPLE_PREFETCH)
        .await?;
    tokio::spawn(async move {
        while let Some(delivery) = consumer.next().await {
            match codec::decode::<Bundle>(&delivery.body).and_then(|bundle| bundle.validate().map(|()| bundle)) {
                Ok(bundle) => {
                    let agent = agent.clone();
                    tokio::spawn(async move { stage(&agent, bundle, &delivery).await });
                }
                Err(error) => refuse(&agent, &delivery, &error.to_string()).await,
            }
        }
    });
    Ok(())
}

async fn stage(agent: &Agent, bundle: Bundle, delivery: &Delivery) {
    let group = bundle.group;
    match agent.ledger.stage(vec![bundle]).await {
        Ok(staged) => {
            tracing::debug!(%group, ?staged, "staged");
            match staged.into_iter().next() {
                Some(Staged::Malformed(reason)) => refuse(agent, delivery, &reason).await,
                Some(Staged::NoRow) => refuse(agent, delivery, "this agent never reserved the bundle's group").await,
                _ => {
                    agent.ledger_changed();
                    delivery.ack().await;
                }
            }
        }
        Err(error) => {
            tracing::error!(%group, %error, "the ledger takes no samples");
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            delivery.acker.reject(true).await;
        }
    }
}

/// Listens for the end of the run and for the other agents.
pub async fn control(agent: Arc<Agent>) -> anyhow::Result<()> {
    let queue = agent.topology.control(&format!("{}-{}", agent.name, agent.incarnation));
    agent.bus.declare_queue(&queue).await?;
    let mut consumer = agent.bus.consume(&queue, 256).await?;
    let mut known = std::collections::HashSet::new();
    tokio::spawn(async move {
        while let Some(delivery) = consumer.next().await {
            delivery.ack().await;
            match codec::decode_json::<Beat>(&delivery.body) {
                Ok(Beat::Agent(beat)) => agent.saw(beat),
                Ok(Beat::Coordinator(beat)) => {
                    if beat.phase == RunPhase::Closed {
                        agent.closing.notify_one();
                    }
                    if known.insert(beat.incarnation) {
                        reclaim::soon(agent.clone());
                    }
                }
                Err(error) => tracing::debug!(%error, "ignored a control message"),
            }
        }
    });
    Ok(())
}

async fn refuse(agent: &Agent, delivery: &Delivery, reason: &str) {
    tracing::warn!(queue = %delivery.queue, message_id = delivery.message_id, reason, "refused a message");
    if let Err(error) = dead_letter(agent.bus.as_ref(), &agent.topology, delivery, reason).await {
        tracing::warn!(%error, "the dead-letter queue did not take it; it stays where it was");
        delivery.acker.reject(true).await;
    }
}
