//! Publishes heartbeats, shared turns and ends: without a confirm, and dropped if no queue can
//! take them.

use std::sync::Arc;
use std::time::Duration;

use lapin::Channel;
use lapin::options::BasicPublishOptions;
use tokio::sync::mpsc;

use super::declare::answer;
use super::link::{Link, Shared};
use super::wire;
use crate::bus::{BusHealth, Outgoing};

const ROOM: usize = 1024;
/// After this time a heartbeat is out of date.
const PATIENCE: Duration = Duration::from_secs(2);

/// A channel and its link.
type Open = (Arc<Link>, Channel);

/// Starts the one task that publishes them.
pub(super) fn spawn(shared: Arc<Shared>) -> mpsc::Sender<Outgoing> {
    let (sender, mut messages) = mpsc::channel::<Outgoing>(ROOM);
    tokio::spawn(async move {
        let mut open: Option<Open> = None;
        loop {
            let message = tokio::select! {
                biased;
                () = shared.until_closed() => return,
                message = messages.recv() => match message {
                    Some(message) => message,
                    None => return,
                },
            };
            if *shared.health.borrow() != BusHealth::Up {
                continue;
            }
            open = match ready(&shared, open.take()).await {
                Some(open) => send(open, message, shared.url.user()).await,
                None => None,
            };
        }
    });
    sender
}

/// Returns the channel if it belongs to the current link, else a new one.
async fn ready(shared: &Shared, open: Option<Open>) -> Option<Open> {
    let link = shared.link.borrow().clone()?;
    if let Some((of, channel)) = open
        && Arc::ptr_eq(&of, &link)
        && channel.status().connected()
    {
        return Some((of, channel));
    }
    let channel = answer(PATIENCE, link.publish.create_channel()).await.ok()?;
    Some((link, channel))
}

async fn send((link, channel): Open, message: Outgoing, user: &str) -> Option<Open> {
    let written = channel.basic_publish(
        wire::short(&message.to.exchange),
        wire::short(&message.to.routing_key),
        BasicPublishOptions::default(),
        &message.body,
        wire::properties(&message, user),
    );
    match answer(PATIENCE, written).await {
        Ok(_) => Some((link, channel)),
        Err(reason) => {
            tracing::debug!(exchange = %message.to.exchange, %reason, "a transient message was dropped");
            None
        }
    }
}
