//! The printed report: the machine, the servers with their settings read back, and a row for each
//! case.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Context;
use broker::local::rabbitmq::PrivateRabbit;
use broker::local::redis::PrivateRedis;
use configs::History;
use rollout::text::TextCodec;

use super::ours::{self, Case, Prompts};

/// The measurements of a sample.
pub(crate) struct Times {
    pub(crate) exchanges: Vec<Duration>,
    pub(crate) elapsed: Duration,
}

/// CPU seconds of the clients (driver, agent, responder), and of the servers with all their
/// children.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    clients: f64,
    servers: f64,
}

/// The kernel's USER_HZ, 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

impl Cpu {
    pub(crate) fn now(clients: &[u32], servers: &[u32]) -> Self {
        let all = processes();
        let parents: HashMap<u32, u32> = all.iter().map(|(pid, parent, _)| (*pid, *parent)).collect();
        let below = |mut pid: u32| {
            for _ in 0..32 {
                if servers.contains(&pid) {
                    return true;
                }
                match parents.get(&pid) {
                    Some(parent) => pid = *parent,
                    None => return false,
                }
            }
            false
        };
        let sum = |wanted: &dyn Fn(u32) -> bool| {
            let ticks: u64 = all.iter().filter(|(pid, ..)| wanted(*pid)).map(|(.., t)| t).sum();
            ticks as f64 / TICKS_PER_SECOND
        };
        Self {
            clients: sum(&|pid| clients.contains(&pid)),
            servers: sum(&below),
        }
    }

    pub(crate) fn elapsed(self, clients: &[u32], servers: &[u32]) -> Self {
        let now = Self::now(clients, servers);
        Self {
            clients: now.clients - self.clients,
            servers: now.servers - self.servers,
        }
    }
}

/// Returns the processor time of this process so far.
pub(crate) fn own_cpu_seconds() -> f64 {
    let own = std::process::id();
    let ticks = processes().into_iter().find(|(pid, ..)| *pid == own);
    ticks.map_or(f64::NAN, |(.., ticks)| ticks as f64 / TICKS_PER_SECOND)
}

/// Returns (pid, parent, ticks of user and system time) of every process.
fn processes() -> Vec<(u32, u32, u64)> {
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    folders
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name before the last parenthesis may hold any character; after it come state,
            // parent, ...
            let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
            let ticks = |i: usize| fields.get(i)?.parse::<u64>().ok();
            Some((pid, fields.get(1)?.parse().ok()?, ticks(11)? + ticks(12)?))
        })
        .collect()
}

/// One sample.
pub(crate) struct Rate {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    client_s: f64,
    server_s: f64,
}

impl Rate {
    pub(crate) fn new(times: Times, cpu: &Cpu) -> Self {
        let mut ms: Vec<f64> = times.exchanges.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let at = |share: f64| ms.get((ms.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
        let thousands = ms.len() as f64 / 1e3;
        Self {
            per_second: ms.len() as f64 / times.elapsed.as_secs_f64(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            client_s: cpu.clients / thousands,
            server_s: cpu.servers / thousands,
        }
    }
}

/// Returns the median, the least and the most.
pub(crate) fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
    (at(values.len() / 2), at(0), at(values.len().saturating_sub(1)))
}

/// All samples of one case.
pub(crate) struct Row {
    case: Case,
    request: usize,
    reply: usize,
    pub(crate) ours: Vec<Rate>,
    pub(crate) bare: Vec<Rate>,
}

impl Row {
    pub(crate) fn new(case: Case, request: usize, reply: usize) -> Self {
        Self {
            case,
            request,
            reply,
            ours: Vec::new(),
            bare: Vec::new(),
        }
    }

    pub(crate) fn print_head() {
        println!(
            "| in flight | prompt | bytes out/back | ours/s | bare/s | ratio | ours p50/p99 ms | bare p50/p99 ms | added p50 ms \
             | CPU s per 1,000: ours clients+servers | bare | load |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    }

    pub(crate) fn print(&self) {
        let both = |f: fn(&Rate) -> f64| {
            let [a, b] = [&self.ours, &self.bare].map(|rates| spread(rates.iter().map(f)).0);
            (a, b)
        };
        let rate = |rates: &[Rate]| {
            let (middle, least, most) = spread(rates.iter().map(|r| r.per_second));
            format!("{middle:.0} [{least:.0}-{most:.0}]")
        };
        let ratios = self
            .ours
            .iter()
            .zip(&self.bare)
            .map(|(a, b)| a.per_second / b.per_second);
        let (ratio, low, high) = spread(ratios);
        let (p50, p99) = (both(|r| r.p50_ms), both(|r| r.p99_ms));
        let (client, server) = (both(|r| r.client_s), both(|r| r.server_s));
        let shape = if self.case.requests > 1 { " (one frame)" } else { "" };
        let prompt = match self.case.prompts {
            Prompts::Text => "text",
            Prompts::Shared => "text, shared by 16",
            Prompts::Held => "held ids",
        };
        println!(
            "| {}{shape} | {} KiB {prompt} | {}/{} | {} | {} | {ratio:.2} [{low:.2}-{high:.2}] | {:.2}/{:.1} | {:.2}/{:.1} | {:+.2} \
             | {:.2}+{:.2} | {:.2}+{:.2} | {} |",
            self.case.in_flight(),
            self.case.size >> 10,
            self.request,
            self.reply,
            rate(&self.ours),
            rate(&self.bare),
            p50.0,
            p99.0,
            p50.1,
            p99.1,
            p50.0 - p50.1,
            client.0,
            server.0,
            client.1,
            server.1,
            load(),
        );
    }
}

/// Returns the load average of the last minute, which includes the measured work.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

pub(crate) fn print_machine() {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let name = model.map_or("unknown", |name| name.trim_start_matches(['\t', ' ', ':']));
    println!(
        "machine: {cores} cores, {name}; load {} before the servers' start",
        load()
    );
}

/// Prints the time of template and tokenizer alone for the prompts of text, on one core.
pub(crate) fn print_tokenizer(text: &TextCodec, cases: &[Case]) -> anyhow::Result<()> {
    let mut sizes: Vec<usize> = cases
        .iter()
        .filter(|c| c.prompts == Prompts::Text)
        .map(|c| c.size)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        let case = Case::singles(1, size, Prompts::Text);
        let mut times = Vec::new();
        for nth in 0..50 {
            let prompt = ours::prompt(case, nth);
            let begun = Instant::now();
            text.render(&prompt, History::Keep)?;
            times.push(begun.elapsed().as_secs_f64());
        }
        let (middle, least, _) = spread(times.into_iter());
        println!(
            "rendering {} KiB of text: {:.2} ms, at best {:.2} ms or {:.1} MB/s, on one core",
            size >> 10,
            middle * 1e3,
            least * 1e3,
            size as f64 / least / 1e6
        );
    }
    println!();
    Ok(())
}

/// Prints versions and settings as the servers report them.
pub(crate) fn print_servers(rabbit: &PrivateRabbit, redis: &PrivateRedis) -> anyhow::Result<()> {
    println!(
        "RabbitMQ {}; quorum queues, persistent, mandatory, confirms, manual acks",
        rabbit_version(&rabbit.url())?
    );
    let answer = redis_says(
        &redis.url(),
        "INFO server\r\nCONFIG GET appendonly\r\nCONFIG GET appendfsync\r\nCONFIG GET maxmemory-policy\r\n",
    )?;
    let lines: Vec<&str> = answer.lines().collect();
    let version = lines.iter().find_map(|line| line.strip_prefix("redis_version:"));
    let setting = |name: &str| {
        let place = lines.iter().position(|line| *line == name);
        place.and_then(|i| lines.get(i + 2)).copied().unwrap_or("?")
    };
    println!(
        "Redis {}; appendonly {}, appendfsync {}, {}",
        version.unwrap_or("?"),
        setting("appendonly"),
        setting("appendfsync"),
        setting("maxmemory-policy")
    );
    Ok(())
}

/// Returns the version in the properties of `Connection.Start`, which answers the protocol header
/// before any login.
fn rabbit_version(url: &str) -> anyhow::Result<String> {
    let place = url.rsplit_once('@').map_or(url, |(_, place)| place);
    let place = place.split('/').next().unwrap_or(place);
    let mut stream = TcpStream::connect(place)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"AMQP\0\0\x09\x01")?;
    // Type, channel and length, then the frame of that length.
    let mut head = [0; 7];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame)?;
    // A field is its name, `S` for a long text, the text's length, the text.
    let name = b"\x07versionS";
    let at = frame.windows(name.len()).position(|window| window == name);
    let value = at.and_then(|at| frame.get(at + name.len()..)).context("no version")?;
    let (length, text) = value.split_first_chunk::<4>().context("no version")?;
    let text = text.get(..u32::from_be_bytes(*length) as usize).context("no version")?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Returns the answers to inline commands.
fn redis_says(url: &str, commands: &str) -> anyhow::Result<String> {
    let rest = url.strip_prefix("redis://:").context("not a URL with a password")?;
    let (password, place) = rest.split_once('@').context("not a URL with a password")?;
    let mut stream = TcpStream::connect(place.trim_end_matches("/0"))?;
    write!(stream, "AUTH {password}\r\n{commands}QUIT\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
