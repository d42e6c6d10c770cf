//! What the bus costs beside bare lapin: publishing with confirms, and request/reply exchanges, on one private RabbitMQ.
//!
//! Both sides use the same quorum queues, bodies, persistence, `mandatory`, confirms, and acks after the reply's confirm;
//! bare lapin runs in one task per side. Samples are interleaved (ours, bare, ours, bare ...), so that the ratio survives a
//! machine whose speed drifts. `cargo run -p broker --example bus_bench -- [seconds per sample] [rounds]`

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::{Bus, Outgoing};
use broker::ids::RunId;
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::protocol::Kind;
use broker::topology::{Queue, Topology};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// One sample: things done per second and the median time of one, in milliseconds.
#[derive(Clone, Copy)]
struct Rate {
    per_second: f64,
    p50_ms: f64,
}

fn rate(mut times: Vec<f64>, elapsed: Duration) -> Rate {
    times.sort_by(f64::total_cmp);
    Rate {
        per_second: times.len() as f64 / elapsed.as_secs_f64(),
        p50_ms: times.get(times.len() / 2).map_or(f64::NAN, |seconds| seconds * 1e3),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

struct Stage {
    url: String,
    topology: Topology,
    requests: Queue,
    replies: Queue,
    /// Requester's and responder's handles.
    buses: [Arc<AmqpBus>; 2],
}

fn outgoing(topology: &Topology, to: &Queue, id: u64, body: &Bytes) -> Outgoing {
    Outgoing {
        to: topology.to(to),
        kind: Kind::TurnResult,
        message_id: id.to_string(),
        correlation_id: Some(id.to_string()),
        headers: Vec::new(),
        body: body.clone(),
        durable: true,
    }
}

/// `lanes` tasks publish one message after the other through our bus.
async fn publish_ours(stage: &Arc<Stage>, lanes: usize, body: Bytes, length: Duration) -> Result<Rate> {
    let mut consumer = stage.buses[1].consume(&stage.requests, 500).await?;
    let drain = tokio::spawn(async move {
        while let Some(delivery) = consumer.next().await {
            delivery.ack().await;
        }
    });
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for lane in 0..lanes as u64 {
        let (stage, body) = (stage.clone(), body.clone());
        tasks.spawn(async move {
            let mut times = Vec::new();
            while begun.elapsed() < length {
                let sent = Instant::now();
                let id = lane << 32 | times.len() as u64;
                stage.buses[0]
                    .publish(outgoing(&stage.topology, &stage.requests, id, &body))
                    .await?;
                times.push(sent.elapsed().as_secs_f64());
            }
            Result::Ok(times)
        });
    }
    let times = collect(tasks).await?;
    drain.abort();
    Ok(rate(times, begun.elapsed()))
}

async fn collect(mut tasks: JoinSet<Result<Vec<f64>>>) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.extend(done??);
    }
    Ok(all)
}

/// `lanes` exchanges at a time: request published and confirmed, reply published and confirmed, request acked, reply acked.
async fn exchange_ours(stage: &Arc<Stage>, lanes: usize, body: Bytes, length: Duration) -> Result<Rate> {
    let mut requests = stage.buses[1].consume(&stage.requests, 256).await?;
    let responder_stage = stage.clone();
    let responder = tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let stage = responder_stage.clone();
            tokio::spawn(async move {
                let mut reply = outgoing(&stage.topology, &stage.replies, 0, &request.body);
                reply.message_id = request.message_id.clone().unwrap_or_default();
                reply.correlation_id = request.correlation_id.clone();
                if stage.buses[1].publish(reply).await.is_ok() {
                    request.ack().await;
                }
            });
        }
    });
    type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;
    let waiting: Waiting = Arc::default();
    let mut replies = stage.buses[0].consume(&stage.replies, 256).await?;
    let answered = waiting.clone();
    let receiver = tokio::spawn(async move {
        while let Some(reply) = replies.next().await {
            let id = reply.correlation_id.clone().unwrap_or_default();
            let waiter = answered.lock().ok().and_then(|mut map| map.remove(&id));
            reply.ack().await;
            if let Some(waiter) = waiter {
                let _ = waiter.send(());
            }
        }
    });
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for lane in 0..lanes as u64 {
        let (stage, body, waiting) = (stage.clone(), body.clone(), waiting.clone());
        tasks.spawn(async move {
            let mut times = Vec::new();
            while begun.elapsed() < length {
                let sent = Instant::now();
                let message = outgoing(&stage.topology, &stage.requests, lane << 32 | times.len() as u64, &body);
                let (done, reply) = oneshot::channel();
                if let Ok(mut map) = waiting.lock() {
                    map.insert(message.message_id.clone(), done);
                }
                stage.buses[0].publish(message).await?;
                reply.await?;
                times.push(sent.elapsed().as_secs_f64());
            }
            Result::Ok(times)
        });
    }
    let times = collect(tasks).await?;
    let elapsed = begun.elapsed();
    receiver.abort();
    responder.abort();
    Ok(rate(times, elapsed))
}

/// A bare client: a channel with confirms on one connection, a consumer on another.
struct Bare {
    _connections: [Connection; 2],
    publish: Channel,
    consumer: lapin::Consumer,
    _consume: Channel,
}

async fn bare(url: &str, queue: &Queue, prefetch: u16) -> Result<Bare> {
    let connect = || Connection::connect(url, ConnectionProperties::default());
    let connections = [connect().await?, connect().await?];
    let publish = connections[0].create_channel().await?;
    publish.confirm_select(ConfirmSelectOptions::default()).await?;
    let consume = connections[1].create_channel().await?;
    consume.basic_qos(prefetch, BasicQosOptions::default()).await?;
    let name = queue.name.as_str().into();
    let consumer = consume
        .basic_consume(name, "".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    Ok(Bare {
        _connections: connections,
        publish,
        consumer,
        _consume: consume,
    })
}

async fn send(channel: &Channel, to: &Queue, id: &str, body: &[u8]) -> lapin::Result<lapin::PublisherConfirm> {
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_message_id(id.into())
        .with_correlation_id(id.into());
    let options = BasicPublishOptions {
        mandatory: true,
        ..Default::default()
    };
    let (exchange, key) = (to.exchange.name.as_str().into(), to.routing_key.as_str().into());
    channel.basic_publish(exchange, key, options, body, properties).await
}

async fn publish_bare(stage: &Arc<Stage>, window: usize, body: Bytes, length: Duration) -> Result<Rate> {
    let client = bare(&stage.url, &stage.requests, 500).await?;
    let mut consumer = client.consumer.clone();
    let drain = tokio::spawn(async move {
        while let Some(Ok(delivery)) = consumer.next().await {
            let _ = delivery.ack(BasicAckOptions::default()).await;
        }
    });
    let begun = Instant::now();
    let (mut times, mut confirms, mut id) = (Vec::new(), FuturesUnordered::new(), 0u64);
    while begun.elapsed() < length || !confirms.is_empty() {
        while confirms.len() < window && begun.elapsed() < length {
            let sent = Instant::now();
            let confirm = send(&client.publish, &stage.requests, &id.to_string(), &body).await?;
            id += 1;
            confirms.push(async move { confirm.await.map(|_| sent.elapsed().as_secs_f64()) });
        }
        if let Some(time) = confirms.next().await {
            times.push(time?);
        }
    }
    let elapsed = begun.elapsed();
    drain.abort();
    Ok(rate(times, elapsed))
}

async fn respond_bare(client: Bare, to: Queue, stop: Arc<AtomicBool>) -> Result<()> {
    let Bare {
        publish,
        mut consumer,
        _connections,
        _consume,
    } = client;
    let mut confirms = FuturesUnordered::new();
    while !stop.load(Ordering::Relaxed) {
        tokio::select! {
            Some(acker) = confirms.next() => {
                let acker: Option<lapin::Acker> = acker;
                if let Some(acker) = acker {
                    acker.ack(BasicAckOptions::default()).await?;
                }
            }
            Some(request) = consumer.next() => {
                let request = request?;
                let id = request.properties.message_id().clone().unwrap_or_default();
                let confirm = send(&publish, &to, id.as_str(), &request.data).await?;
                let acker = request.acker;
                confirms.push(async move { confirm.await.is_ok_and(|c| c.is_ack()).then_some(acker) });
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
    Ok(())
}

async fn exchange_bare(stage: &Arc<Stage>, lanes: usize, body: Bytes, length: Duration) -> Result<Rate> {
    let stop = Arc::new(AtomicBool::new(false));
    let responder = bare(&stage.url, &stage.requests, 256).await?;
    let responder = tokio::spawn(respond_bare(responder, stage.replies.clone(), stop.clone()));
    let mut client = bare(&stage.url, &stage.replies, 256).await?;
    let begun = Instant::now();
    let (mut times, mut confirms) = (Vec::new(), FuturesUnordered::new());
    let (mut open, mut next): (HashMap<String, Instant>, u64) = (HashMap::new(), 0);
    loop {
        while open.len() < lanes && begun.elapsed() < length {
            let id = next.to_string();
            next += 1;
            open.insert(id.clone(), Instant::now());
            confirms.push(send(&client.publish, &stage.requests, &id, &body).await?);
        }
        if open.is_empty() {
            break;
        }
        tokio::select! {
            Some(confirm) = confirms.next() => {
                confirm?;
            }
            Some(reply) = client.consumer.next() => {
                let reply = reply?;
                reply.ack(BasicAckOptions::default()).await?;
                let id = reply.properties.correlation_id().as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default();
                if let Some(sent) = open.remove(&id) {
                    times.push(sent.elapsed().as_secs_f64());
                }
            }
        }
    }
    let elapsed = begun.elapsed();
    stop.store(true, Ordering::Relaxed);
    responder.await??;
    Ok(rate(times, elapsed))
}

#[derive(Clone, Copy)]
enum What {
    Publish,
    Exchange,
}

async fn purge(stage: &Stage) -> Result<()> {
    let connection = Connection::connect(&stage.url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    for queue in [&stage.requests, &stage.replies] {
        channel
            .queue_purge(queue.name.as_str().into(), QueuePurgeOptions::default())
            .await?;
    }
    Ok(())
}

async fn compare(
    stage: &Arc<Stage>,
    what: What,
    lanes: usize,
    size: usize,
    length: Duration,
    rounds: usize,
) -> Result<()> {
    let body: Bytes = vec![b'x'; size].into();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        purge(stage).await?;
        ours.push(match what {
            What::Publish => publish_ours(stage, lanes, body.clone(), length).await?,
            What::Exchange => exchange_ours(stage, lanes, body.clone(), length).await?,
        });
        purge(stage).await?;
        theirs.push(match what {
            What::Publish => publish_bare(stage, lanes, body.clone(), length).await?,
            What::Exchange => exchange_bare(stage, lanes, body.clone(), length).await?,
        });
    }
    let of = |rates: &[Rate], f: fn(&Rate) -> f64| median(rates.iter().map(f).collect());
    let (a, b) = (of(&ours, |r| r.per_second), of(&theirs, |r| r.per_second));
    let ratio = median(
        ours.iter()
            .zip(&theirs)
            .map(|(a, b)| a.per_second / b.per_second)
            .collect(),
    );
    println!(
        "{:<9} {lanes:>4} in flight {:>3} KiB   bus {a:>7.0}/s p50 {:>7.2} ms   bare {b:>7.0}/s p50 {:>7.2} ms   ratio {ratio:.2}",
        match what {
            What::Publish => "publish",
            What::Exchange => "exchange",
        },
        size / 1024,
        of(&ours, |r| r.p50_ms),
        of(&theirs, |r| r.p50_ms),
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    static RUN: AtomicU64 = AtomicU64::new(0);
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let begun = Instant::now();
    let rabbit = PrivateRabbit::start(folder.path(), RabbitOptions::default()).await?;
    println!(
        "RabbitMQ ready after {:.1} s; {rounds} rounds of {seconds} s, interleaved, medians",
        begun.elapsed().as_secs_f64()
    );
    let name = format!("bench-{}", RUN.fetch_add(1, Ordering::Relaxed));
    let topology = Topology::new(RunId::new(&name).ok_or("a bad run name")?);
    let connect = || {
        let url = rabbit.url();
        async move { AmqpBus::connect(&url, AmqpOptions::default()).await }
    };
    let stage = Arc::new(Stage {
        url: rabbit.url(),
        requests: topology.results("requests"),
        replies: topology.results("replies"),
        buses: [connect().await?, connect().await?],
        topology,
    });
    stage.buses[0].declare(&stage.topology, &[]).await?;
    stage.buses[0].declare_queue(&stage.requests).await?;
    stage.buses[0].declare_queue(&stage.replies).await?;
    let length = Duration::from_secs_f64(seconds);
    for (what, lanes) in [
        (What::Publish, 64),
        (What::Publish, 512),
        (What::Exchange, 1),
        (What::Exchange, 64),
    ] {
        for size in [1 << 10, 64 << 10] {
            compare(&stage, what, lanes, size, length, rounds).await?;
        }
    }
    rabbit.stop();
    Ok(())
}
