//! The supervisor: one code path for boot, restart and partition.
//!
//! It connects, declares the remembered exchanges and queues, announces the link, waits until the
//! link breaks, and begins again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::{Connection, ConnectionProperties, Event};
use rustls::ClientConfig;
use tokio::sync::{Notify, watch};

use super::declare::{answer, declare, refusal};
use super::dial::{NoLink, dial};
use super::options::AmqpOptions;
use super::url::BrokerUrl;
use super::wire::short;
use crate::bus::{BusError, BusHealth};
use crate::topology::{Exchange, Queue, QueueKind};

/// Pauses between attempts to connect or consume: doubled from the first to the longest one.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// The longest time from a failed write to the end of its connection.
const MOMENT: Duration = Duration::from_secs(2);

/// Two live connections, so that a broker that blocks publishers still accepts acks.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) publish: Connection,
    pub(super) consume: Connection,
    suspect: Notify,
}

impl Link {
    /// Reports that something on this link did not answer, so that the supervisor replaces the
    /// link.
    pub(super) fn suspect(&self) {
        self.suspect.notify_one();
    }
}

/// Exchanges and queues to declare at each connection.
#[derive(Debug, Default, Clone)]
pub(super) struct Remembered {
    exchanges: Vec<Exchange>,
    queues: Vec<Queue>,
}

/// State that all parts of one bus share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) url: BrokerUrl,
    pub(super) options: AmqpOptions,
    /// The TLS configuration, if the URL asks for TLS.
    tls: Option<Arc<ClientConfig>>,
    /// The reason why the first connection was rejected for good.
    pub(super) refused: OnceLock<BusError>,
    pub(super) link: watch::Sender<Option<Arc<Link>>>,
    pub(super) health: watch::Sender<BusHealth>,
    pub(super) closed: watch::Sender<bool>,
    /// The number of links so far.
    pub(super) links: AtomicU64,
    remembered: Mutex<Remembered>,
}

impl Shared {
    pub(super) fn new(url: BrokerUrl, options: AmqpOptions, tls: Option<Arc<ClientConfig>>) -> Self {
        Self {
            url,
            options,
            tls,
            refused: OnceLock::new(),
            link: watch::Sender::new(None),
            health: watch::Sender::new(BusHealth::Down("not yet connected".into())),
            closed: watch::Sender::new(false),
            links: AtomicU64::new(0),
            remembered: Mutex::default(),
        }
    }

    /// Closes the bus for good.
    fn refuse(&self, reason: BusError) {
        // Set the reason first: callers that wait for the link wake up at the close.
        let _ = self.refused.set(reason);
        self.closed.send_replace(true);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Returns when the bus is closed.
    pub(super) async fn until_closed(&self) {
        // The sender is a field of `self`, so only the value ends this.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Returns the link as soon as there is one, or `None` once the bus is closed.
    pub(super) async fn link(&self) -> Option<Arc<Link>> {
        let mut links = self.link.subscribe();
        tokio::select! {
            biased;
            () = self.until_closed() => None,
            link = links.wait_for(Option::is_some) => link.ok()?.clone(),
        }
    }

    /// Returns true if this is the current link.
    pub(super) fn has(&self, link: &Arc<Link>) -> bool {
        self.link.borrow().as_ref().is_some_and(|now| Arc::ptr_eq(now, link))
    }

    /// Returns true if `error` came from the loss of its link, so that the next link may succeed.
    ///
    /// A failed write is known before the end of its connection. The link therefore gets a moment
    /// to break; if it still stands after that, the error is not a loss.
    pub(super) async fn is_lost(&self, link: &Arc<Link>, error: &BusError) -> bool {
        let mut links = self.link.subscribe();
        let another = links.wait_for(|now| now.as_ref().is_none_or(|now| !Arc::ptr_eq(now, link)));
        let lost = tokio::time::timeout(MOMENT, another).await.is_ok() || !link.consume.status().connected();
        if lost {
            tracing::warn!(%error, "lost RabbitMQ during a call; trying again");
        }
        lost
    }

    pub(super) fn remember(&self, exchanges: Vec<Exchange>, queues: &[Queue]) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        for exchange in exchanges {
            if !remembered.exchanges.contains(&exchange) {
                remembered.exchanges.push(exchange);
            }
        }
        for queue in queues {
            if !remembered.queues.iter().any(|known| known.name == queue.name) {
                remembered.queues.push(queue.clone());
            }
        }
    }

    pub(super) fn forget(&self, queue: &str) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.queues.retain(|known| known.name != queue);
    }

    /// Returns the declarations, dead letters first: a queue without its dead-letter exchange may
    /// drop messages silently.
    fn remembered(&self) -> Remembered {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner).clone();
        remembered
            .queues
            .sort_by_key(|queue| queue.kind != QueueKind::DeadLetters);
        remembered
    }
}

/// Keeps a link up until the bus is closed.
///
/// A rejected certificate or login at the first connection closes the bus, as does any failure if
/// the options say so. At a later connection it is retried, because the server took it before and
/// may take it again.
pub(super) async fn supervise(shared: Arc<Shared>) {
    let mut pause = FIRST_PAUSE;
    let mut connected_once = false;
    loop {
        let connected = tokio::select! {
            biased;
            () = shared.until_closed() => break,
            connected = connect(&shared) => connected,
        };
        match connected {
            Ok(link) => {
                tracing::info!(broker = %shared.url.shown, "connected to RabbitMQ");
                pause = FIRST_PAUSE;
                connected_once = true;
                shared.links.fetch_add(1, Ordering::Relaxed);
                hold(&shared, link).await;
            }
            Err(NoLink::Refused(reason)) if !connected_once => shared.refuse(reason),
            Err(NoLink::Lost(reason)) if !connected_once && shared.options.tries_once => {
                let url = shared.url.shown.clone();
                shared.refuse(BusError::Connect { url, reason });
            }
            Err(lost) => {
                let reason = match lost {
                    NoLink::Lost(reason) => reason,
                    NoLink::Refused(error) => error.to_string(),
                };
                tracing::warn!(broker = %shared.url.shown, %reason, "cannot connect to RabbitMQ; trying again in {pause:?}");
                shared.health.send_replace(BusHealth::Down(reason));
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = shared.until_closed() => break,
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    shared.link.send_replace(None);
    shared.health.send_replace(BusHealth::Down("closed".into()));
}

/// Announces the link and waits for its end.
async fn hold(shared: &Shared, link: Link) {
    let link = Arc::new(link);
    let mut publishing = Box::pin(link.publish.events_listener());
    let mut consuming = Box::pin(link.consume.events_listener());
    shared.health.send_replace(BusHealth::Up);
    shared.link.send_replace(Some(link.clone()));
    let reason = loop {
        // The listeners start after the connection: this catches a connection that died in between.
        if !link.publish.status().connected() || !link.consume.status().connected() {
            break "the connection was lost".to_owned();
        }
        let (event, publisher) = tokio::select! {
            biased;
            () = shared.until_closed() => break "closed".to_owned(),
            () = link.suspect.notified() => break "the broker stopped answering".to_owned(),
            event = publishing.next() => (event, true),
            event = consuming.next() => (event, false),
            () = tokio::time::sleep(Duration::from_secs(1)) => continue,
        };
        match event {
            Some(Event::ConnectionBlocked(reason)) if publisher => {
                tracing::warn!(broker = %shared.url.shown, %reason, "RabbitMQ accepts no publishes");
                shared.health.send_replace(BusHealth::Blocked(reason));
            }
            Some(Event::ConnectionUnblocked) if publisher => {
                tracing::info!(broker = %shared.url.shown, "RabbitMQ accepts publishes again");
                shared.health.send_replace(BusHealth::Up);
            }
            // A refusal closes only its channel, and the channel's user receives the error there.
            Some(Event::Error(error)) if refusal(&error).is_some() => {}
            Some(Event::Error(error)) => break error.to_string(),
            None => break "the connection ended".to_owned(),
            Some(_) => {}
        }
    };
    if !shared.is_closed() {
        tracing::warn!(broker = %shared.url.shown, %reason, "lost RabbitMQ; connecting again");
    }
    shared.health.send_replace(BusHealth::Down(reason));
    shared.link.send_replace(None);
    end(&link, shared.options.close_timeout).await;
}

/// Closes both connections if they are still alive, within a bound.
async fn end(link: &Link, patience: Duration) {
    tokio::join!(close(&link.publish, patience), close(&link.consume, patience));
}

async fn close(connection: &Connection, patience: Duration) {
    if connection.status().connected() {
        let _ = answer(patience, connection.close(200, short("goodbye"))).await;
    }
}

async fn connect(shared: &Shared) -> Result<Link, NoLink> {
    let patience = shared.options.answer_timeout;
    let open = |purpose: &str| {
        let name = format!("dyad {purpose} ({})", shared.options.name);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        dial(&shared.url, shared.tls.as_ref(), properties, patience)
    };
    let (publish, consume) = tokio::try_join!(open("publish"), open("consume"))?;
    let link = Link {
        publish,
        consume,
        suspect: Notify::new(),
    };
    let Remembered { exchanges, queues } = shared.remembered();
    // Exclusive queues belong to the connection that consumes them.
    declare(&link.consume, &exchanges, &queues, patience)
        .await
        .map_err(|error: BusError| NoLink::Lost(error.to_string()))?;
    Ok(link)
}
