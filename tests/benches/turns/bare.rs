//! The client that dyad is compared with: plain lapin with one task on each side. It is as fast as
//! it can be with dyad's durability.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use broker::topology::{Queue, Topology};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer, PublisherConfirm};

use super::figures::Times;

const PREFETCH: u16 = 256;

/// The queues of the two directions, with the settings of dyad's results queues.
pub(crate) struct Queues {
    pub(crate) requests: Queue,
    pub(crate) replies: Queue,
}

impl Queues {
    pub(crate) fn new(topology: &Topology) -> Self {
        Self {
            requests: topology.results("bare-requests"),
            replies: topology.results("bare-replies"),
        }
    }
}

/// A publishing channel with confirms, and a consumer on a second connection.
struct Client {
    _connections: [Connection; 2],
    _consume: Channel,
    publish: Channel,
    consumer: Consumer,
}

async fn connect(url: &str, queue: &Queue) -> anyhow::Result<Client> {
    let connection = || Connection::connect(url, ConnectionProperties::default());
    let connections = [connection().await?, connection().await?];
    let publish = connections[0].create_channel().await?;
    publish.confirm_select(ConfirmSelectOptions::default()).await?;
    let consume = connections[1].create_channel().await?;
    consume.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let name = queue.name.as_str().into();
    let consumer = consume
        .basic_consume(name, "".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    Ok(Client {
        _connections: connections,
        _consume: consume,
        publish,
        consumer,
    })
}

/// Publishes a request or a reply. A request's message type is `reply_bytes`, the size of the reply
/// that it asks for.
async fn send(
    channel: &Channel,
    to: &Queue,
    id: &str,
    body: &[u8],
    reply_bytes: usize,
) -> lapin::Result<PublisherConfirm> {
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_message_id(id.into())
        .with_correlation_id(id.into())
        .with_type(reply_bytes.to_string().into());
    let options = BasicPublishOptions {
        mandatory: true,
        ..Default::default()
    };
    let (exchange, key) = (to.exchange.name.as_str().into(), to.routing_key.as_str().into());
    channel.basic_publish(exchange, key, options, body, properties).await
}

/// Replies to every request, and acknowledges it once the reply is confirmed.
pub(crate) async fn respond(url: String, queues: Queues) -> anyhow::Result<()> {
    let mut client = connect(&url, &queues.requests).await?;
    let body = vec![b'y'; 1 << 20];
    let mut confirms = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(acker) = confirms.next() => {
                let acker: Option<lapin::Acker> = acker;
                if let Some(acker) = acker {
                    acker.ack(BasicAckOptions::default()).await?;
                }
            }
            Some(request) = client.consumer.next() => {
                let request = request?;
                let id = request.properties.message_id().clone().unwrap_or_default();
                let wanted = request.properties.kind().as_ref().and_then(|kind| kind.as_str().parse().ok());
                let length = wanted.unwrap_or(request.data.len()).min(body.len());
                let confirm = send(&client.publish, &queues.replies, id.as_str(), &body[..length], 0).await?;
                let acker = request.acker;
                confirms.push(async move { confirm.await.is_ok_and(|c| c.is_ack()).then_some(acker) });
            }
        }
    }
}

/// The side that sends requests and measures the time until their replies.
pub(crate) struct Requester {
    client: Client,
    queues: Queues,
    next: u64,
}

impl Requester {
    pub(crate) async fn connect(url: &str, queues: Queues) -> anyhow::Result<Self> {
        let client = connect(url, &queues.replies).await?;
        Ok(Self {
            client,
            queues,
            next: 0,
        })
    }

    /// Keeps `in_flight` requests unanswered for `length`, then waits for the last replies. Returns
    /// the time of each exchange.
    pub(crate) async fn sample(
        &mut self,
        in_flight: usize,
        request_bytes: usize,
        reply_bytes: usize,
        length: Duration,
    ) -> anyhow::Result<Times> {
        let body = vec![b'x'; request_bytes];
        let started = Instant::now();
        let (mut times, mut confirms) = (Vec::new(), FuturesUnordered::new());
        let mut open: HashMap<String, Instant> = HashMap::new();
        loop {
            while open.len() < in_flight && started.elapsed() < length {
                let id = self.next.to_string();
                self.next += 1;
                open.insert(id.clone(), Instant::now());
                confirms.push(send(&self.client.publish, &self.queues.requests, &id, &body, reply_bytes).await?);
            }
            if open.is_empty() {
                break;
            }
            tokio::select! {
                Some(confirm) = confirms.next() => {
                    confirm?;
                }
                Some(reply) = self.client.consumer.next() => {
                    let reply = reply?;
                    reply.ack(BasicAckOptions::default()).await?;
                    let id = reply.properties.correlation_id().as_ref().map(|id| id.as_str().to_owned());
                    if let Some(sent) = open.remove(&id.unwrap_or_default()) {
                        times.push(sent.elapsed());
                    }
                }
            }
        }
        Ok(Times {
            exchanges: times,
            elapsed: started.elapsed(),
        })
    }
}
