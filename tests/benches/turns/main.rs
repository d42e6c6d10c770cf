//! Turn exchanges over RabbitMQ and Redis next to a bare lapin client on the same broker, and
//! embedded conversations.
//!
//! A turn of ours: a driver in the coordinator's place publishes a `TurnFrame`. A whole agent in
//! another process (the real inbox, router and tokenizer, with the scripted engine) answers with a
//! `ResultFrame`. The driver commits the result in Redis under a claimed lease and only then acks.
//!
//! The bare client sends the same number of bytes both ways between two processes. It uses the same
//! quorum queues, persistence, `mandatory`, confirms, and acks after the reply's confirm; it keeps
//! nothing in Redis. The report also prints the tokenizer's own rate, because no exchange of
//! prompts as text can be faster. Samples are interleaved (ours, bare, ours, bare ...), so that the
//! ratio stays valid on a machine with drifting speed.
//!
//! The last part is the cost of metrics: the embedded run with and without them, side by side.
//!
//! `cargo bench -p tests --bench turns -- [seconds per sample] [rounds] [part]`; part is `turns`,
//! `embedded` or `metrics`.

mod bare;
mod embedded;
mod figures;
mod observed;
mod ours;
mod peer;

use std::time::Duration;

use anyhow::Context;
use broker::bus::Bus;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::ids::RunId;
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::local::redis::{PrivateRedis, RedisServerOptions};
use broker::topology::Topology;

use figures::{Cpu, Rate, Row};
use ours::{Case, Prompts};
use peer::Peer;

/// The compared cases. A wave is one frame of 64 requests in four groups, as a synchronous round
/// sends them.
const CASES: [Case; 8] = [
    Case::singles(1, 1 << 10, Prompts::Held),
    Case::singles(64, 1 << 10, Prompts::Held),
    Case::singles(64, 1 << 10, Prompts::Text),
    Case::singles(1, 64 << 10, Prompts::Held),
    Case::singles(64, 64 << 10, Prompts::Held),
    Case::singles(64, 64 << 10, Prompts::Text),
    Case::singles(64, 64 << 10, Prompts::Shared),
    Case::wave(64, 1 << 10, Prompts::Text),
];

async fn turns(length: Duration, rounds: usize) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let rabbit = PrivateRabbit::start(&folder.path().join("rabbitmq"), RabbitOptions::default()).await?;
    let redis = PrivateRedis::start(&folder.path().join("redis"), RedisServerOptions::default()).await?;
    figures::print_machine();
    figures::print_servers(&rabbit, &redis)?;
    println!(
        "samples: {rounds} of {} s for each side, interleaved; median [least-most]\n",
        length.as_secs_f64()
    );
    let run = RunId::new("bench").context("a bad run name")?;
    let topology = Topology::new(run.clone());
    let bus = AmqpBus::connect(&rabbit.url(), AmqpOptions::default()).await?;
    let queues = bare::Queues::new(&topology);
    bus.declare(&topology, &[ours::agent()?]).await?;
    for queue in [&queues.requests, &queues.replies] {
        bus.declare_queue(queue).await?;
    }
    let agent = Peer::start(&["agent", &rabbit.url(), &folder.path().to_string_lossy()])?;
    let responder = Peer::start(&["responder", &rabbit.url()])?;
    let driver = ours::Driver::connect(bus.clone(), &redis.url(), topology).await?;
    let mut requester = bare::Requester::connect(&rabbit.url(), queues).await?;
    let servers: Vec<u32> = rabbit.pid().into_iter().chain(redis.pid()).collect();
    let clients = [std::process::id(), agent.pid(), responder.pid()];

    figures::print_tokenizer(&peer::text()?, &CASES)?;

    Row::print_head();
    for case in CASES {
        let (request, reply) = driver.bytes(case).await?;
        // A warm-up that is not measured: connections, tokenizer and broker.
        driver.sample(case, Duration::from_millis(500)).await?;
        requester
            .sample(case.in_flight(), request, reply, Duration::from_millis(500))
            .await?;
        let mut row = Row::new(case, request, reply);
        for _ in 0..rounds {
            let cpu = Cpu::now(&clients, &servers);
            let times = driver.sample(case, length).await?;
            row.ours.push(Rate::new(times, &cpu.elapsed(&clients, &servers)));
            let cpu = Cpu::now(&clients, &servers);
            let times = requester.sample(case.in_flight(), request, reply, length).await?;
            row.bare.push(Rate::new(times, &cpu.elapsed(&clients, &servers)));
        }
        row.print();
    }
    bus.close().await;
    drop((agent, responder));
    rabbit.stop();
    redis.stop();
    Ok(())
}

fn main() -> anyhow::Result<()> {
    // cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["agent", url, folder] => agents::cli::embedded::system().block_on(peer::agent(url, folder.as_ref())),
        ["responder", url] => runtime()?.block_on(peer::responder(url)),
        ["embedded", variant, folder] => {
            agents::cli::embedded::system().block_on(embedded::run(variant, folder.as_ref()))
        }
        _ => bench(&words),
    };
    if let Err(error) = outcome {
        eprintln!("{error:?}");
        std::process::exit(1);
    }
    // Exit at once: the clean-up of libtorch has no use here.
    std::process::exit(0);
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

fn bench(words: &[&str]) -> anyhow::Result<()> {
    let mut numbers = words.iter().filter_map(|word| word.parse::<f64>().ok());
    let length = Duration::from_secs_f64(numbers.next().unwrap_or(2.0));
    let rounds = numbers.next().map_or(3, |rounds| rounds as usize);
    let parts = ["turns", "embedded", "metrics"];
    let all = !parts.iter().any(|part| words.contains(part));
    let wants = |part: &str| all || words.contains(&part);
    if wants("turns") {
        runtime()?.block_on(turns(length, rounds))?;
    }
    if wants("embedded") {
        embedded::compare(rounds)?;
    }
    if wants("metrics") {
        observed::compare(rounds)?;
    }
    Ok(())
}
