//! The agent's queues: turn requests, reservations, samples, control.

use std::collections::HashMap;
use std::sync::Arc;

use actix::Addr;
use broker::bus::letter::{Class, Refusal, Stage, dead_letter};
use broker::bus::{Delivery, Outgoing, verified};
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::bundle::Bundle;
use broker::protocol::control::Beat;
use broker::protocol::reserve::{ReserveAnswer, ReserveAnswerFrame, ReserveFrame, ReserveVerdict};
use broker::protocol::turn::TurnFrame;
use configs::History;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::time::Instant;

use super::router::{Router, RouterMessage};
use super::{Agent, orders, reclaim};
use crate::base::log_scope;
use crate::base::outgoing::{self, Addressed};
use crate::base::retry;
use crate::ledger::{LedgerError, Staged};
use crate::turn::render::Renderer;

const TURN_PREFETCH: u16 = 256;
const RESERVE_PREFETCH: u16 = 64;
const SAMPLE_PREFETCH: u16 = 128;

/// Receives turn requests, renders many frames' prompts at once, and hands the frames to the router
/// in arrival order.
pub async fn turns(agent: Arc<Agent>, router: Addr<Router>, history: History) -> anyhow::Result<()> {
    let mut consumer = agent
        .bus
        .consume(&agent.topology.turns(&agent.name), TURN_PREFETCH)
        .await?;
    let renderer = Renderer::new(agent.text.clone(), history);
    log_scope::spawn(async move {
        let mut rendering = FuturesOrdered::new();
        loop {
            let rendered = tokio::select! {
                biased;
                Some(rendered) = rendering.next() => rendered,
                delivery = consumer.next() => match delivery {
                    Some(delivery) => {
                        rendering.push_back(log_scope::spawn(render(agent.clone(), renderer.clone(), delivery)));
                        continue;
                    }
                    None => return,
                },
            };
            if let Ok(Some(input)) = rendered
                && router.send(input).await.is_err()
            {
                return;
            }
        }
    });
    Ok(())
}

/// Returns `None` if the delivery was no frame and was rejected.
async fn render(agent: Arc<Agent>, renderer: Arc<Renderer>, delivery: Delivery) -> Option<RouterMessage> {
    let read = codec::decode::<TurnFrame>(&delivery.body).and_then(|frame| frame.validate().map(|()| frame));
    let mut frame = match read {
        Ok(frame) => frame,
        Err(error) => {
            refuse(&agent, &delivery, Stage::Turn, &error.into()).await;
            return None;
        }
    };
    let prompts = renderer.render(std::mem::take(&mut frame.prompts).into()).await;
    Some(RouterMessage::Frame {
        frame: Box::new(frame),
        prompts,
        delivery,
    })
}

/// Receives reservations: the ledger's row is on disk before the answer is sent, and the answer is
/// sent before the ack.
pub async fn reservations(agent: Arc<Agent>) -> anyhow::Result<()> {
    let mut consumer = agent
        .bus
        .consume(&agent.topology.reserve(&agent.name), RESERVE_PREFETCH)
        .await?;
    log_scope::spawn(async move {
        while let Some(delivery) = consumer.next().await {
            match codec::decode::<ReserveFrame>(&delivery.body) {
                Ok(frame) => reserve(&agent, frame, &delivery).await,
                Err(error) => refuse(&agent, &delivery, Stage::Reserve, &error.into()).await,
            }
        }
    });
    Ok(())
}

async fn reserve(agent: &Arc<Agent>, frame: ReserveFrame, delivery: &Delivery) {
    let groups: Vec<_> = frame.requests.iter().map(|reserve| reserve.group).collect();
    let verdicts = match agent.ledger.reserve(frame.requests, agent.window).await {
        Ok(verdicts) => {
            broker::fail::point("reserve.stored");
            agent.ledger_changed();
            verdicts
        }
        // No delivery is held while the disk refuses: later ones would wait in line behind it, each
        // as long again.
        Err(error) if error.may_pass() => {
            tracing::error!(%error, "the ledger cannot store reservations; the coordinator asks again");
            vec![ReserveVerdict::Later; groups.len()]
        }
        Err(error) => {
            tracing::error!(%error, "the ledger cannot store reservations");
            return retry::give_back(delivery).await;
        }
    };
    let answers = groups
        .into_iter()
        .zip(verdicts)
        .map(|(group, verdict)| ReserveAnswer { group, verdict })
        .collect();
    let body = codec::encode(&ReserveAnswerFrame {
        agent: agent.name.to_string(),
        answers,
    });
    let to = agent.topology.to_results(&frame.reply_to, agent.name.as_str());
    let message = Outgoing {
        correlation_id: delivery.message_id.clone(),
        ..outgoing::durable(to, Kind::ReserveAnswer, body).with_headers([("agent", agent.name.to_string())])
    };
    let (bus, delivery) = (agent.bus.clone(), delivery.clone());
    log_scope::spawn(async move {
        // If the coordinator is gone its successor asks again.
        let _ = retry::publish(&bus, message).await;
        broker::fail::point("reserve.answered");
        delivery.ack().await;
    });
}

/// Receives bundles: each is staged or closed on disk before the ack. Several are staged at once to
/// share a commit.
pub async fn samples(agent: Arc<Agent>) -> anyhow::Result<()> {
    let mut consumer = agent
        .bus
        .consume(&agent.topology.samples(&agent.name), SAMPLE_PREFETCH)
        .await?;
    log_scope::spawn(async move {
        while let Some(delivery) = consumer.next().await {
            match codec::decode::<Bundle>(&delivery.body).and_then(|bundle| bundle.validate().map(|()| bundle)) {
                Ok(bundle) => {
                    let agent = agent.clone();
                    log_scope::spawn(async move { stage(&agent, bundle, &delivery).await });
                }
                Err(error) => refuse(&agent, &delivery, Stage::Samples, &error.into()).await,
            }
        }
    });
    Ok(())
}

async fn stage(agent: &Agent, bundle: Bundle, delivery: &Delivery) {
    let group = bundle.group;
    let stage = || agent.ledger.stage(vec![bundle.clone()]);
    let Some(staged) = persist("the ledger cannot store samples", stage).await else {
        return retry::give_back(delivery).await;
    };
    tracing::debug!(%group, ?staged, "staged");
    broker::fail::point(if staged == [Staged::Staged] {
        "part.staged"
    } else {
        "group.closed"
    });
    match staged.into_iter().next() {
        Some(Staged::Malformed(reason)) => {
            refuse(agent, delivery, Stage::Samples, &Refusal::new(Class::Content, reason)).await;
        }
        Some(Staged::NoRow) => {
            let refusal = Refusal::new(Class::Unknown, "this agent never reserved the bundle's group");
            refuse(agent, delivery, Stage::Samples, &refusal).await;
        }
        _ => {
            agent.ledger_changed();
            delivery.ack().await;
        }
    }
}

/// Repeats a write that the disk refuses, with growing pauses, for as long as a delivery may be
/// held. Returns `None` if the write never succeeded. A delivery returned at once would reach its
/// queue's delivery limit while the disk is full.
async fn persist<T, F>(problem: &str, mut write: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Result<T, LedgerError>>,
{
    let mut pauses = retry::Pauses::for_a_delivery();
    loop {
        let error = match write().await {
            Ok(done) => return Some(done),
            Err(error) => error,
        };
        tracing::error!(%error, problem);
        match pauses.next() {
            Some(pause) if error.may_pass() => tokio::time::sleep(pause).await,
            _ => return None,
        }
    }
}

/// Receives heartbeats: the end of the run and the other agents' state.
pub async fn control(agent: Arc<Agent>) -> anyhow::Result<()> {
    let queue = agent.topology.control(&format!("{}-{}", agent.name, agent.incarnation));
    agent.bus.declare_queue(&queue).await?;
    let mut consumer = agent.bus.consume(&queue, 256).await?;
    let silent = agent.config.run.lease.0 * 2;
    let mut known: HashMap<String, Instant> = HashMap::new();
    log_scope::spawn(async move {
        while let Some(delivery) = consumer.next().await {
            delivery.ack().await;
            match verified::beat(&agent.topology, &delivery) {
                Ok(Beat::Agent(beat)) => agent.saw(beat),
                Ok(Beat::Coordinator(beat)) => {
                    orders::apply(&agent, &beat).await;
                    if known.insert(beat.incarnation, Instant::now()).is_none() {
                        reclaim::soon(agent.clone());
                    }
                }
                Err(error) => tracing::debug!(%error, "ignored a control message"),
            }
            // A coordinator that was halted or cut off has no successor: the remaining coordinators
            // receive a report of the groups that it may have held.
            let before = known.len();
            known.retain(|_, received| received.elapsed() < silent);
            if known.len() < before {
                reclaim::soon(agent.clone());
            }
        }
    });
    Ok(())
}

async fn refuse(agent: &Agent, delivery: &Delivery, stage: Stage, refusal: &Refusal) {
    let reason = &refusal.reason;
    tracing::warn!(queue = %delivery.queue, message_id = delivery.message_id, reason, "rejected a message");
    if let Err(error) = dead_letter(agent.bus.as_ref(), &agent.topology, delivery, stage, refusal).await {
        tracing::warn!(%error, "the dead-letter queue did not accept the message; it returns to its queue");
        retry::give_back(delivery).await;
    }
}
