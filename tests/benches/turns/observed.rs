//! The cost of metrics: the embedded run with little but the data plane, once without metrics and
//! once with them and a scrape each second, interleaved.
//!
//! Rates follow the load of the machine. Processor time per conversation follows it less, so both
//! are printed, with the mean difference of the pairs and its standard error.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::embedded::{OBSERVED, Played, STEPS, child};
use super::figures::{load, spread};

const EVERY: Duration = Duration::from_secs(1);

/// One run of each side.
struct Pair {
    off: Played,
    on: Played,
}

/// Runs both sides several times and prints a table.
pub(crate) fn compare(rounds: usize) -> anyhow::Result<()> {
    println!(
        "\nmetrics: embedded run, model of 1 layer of 8, {rounds} pairs; load {}",
        load()
    );
    let scrapes = AtomicU64::new(0);
    let mut pairs = Vec::new();
    for round in 0..rounds {
        let off = || child(&format!("small/{STEPS}"), tempfile::tempdir()?.path());
        // The machine may slow down or speed up: each side begins in turn.
        let pair = if round % 2 == 0 {
            let off = off()?;
            Pair {
                off,
                on: scraped(&scrapes)?,
            }
        } else {
            let on = scraped(&scrapes)?;
            Pair { off: off()?, on }
        };
        pairs.push(pair);
    }
    println!("| | without | with, scraped each second | difference |\n|---|---|---|---|");
    row("conversations/s", &pairs, |played| {
        played.conversations / played.seconds
    });
    row("processor ms per conversation", &pairs, |played| {
        1e3 * played.cpu_seconds / played.conversations
    });
    println!("scrapes: {}; load {} after", scrapes.load(Ordering::Relaxed), load());
    Ok(())
}

fn row(what: &str, pairs: &[Pair], figure: impl Fn(&Played) -> f64) {
    let text = |side: fn(&Pair) -> &Played| {
        let (middle, least, most) = spread(pairs.iter().map(|pair| figure(side(pair))));
        format!("{middle:.3} [{least:.3}-{most:.3}]")
    };
    let differences: Vec<f64> = pairs
        .iter()
        .map(|pair| 100.0 * (figure(&pair.on) / figure(&pair.off) - 1.0))
        .collect();
    let count = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let squares: f64 = differences.iter().map(|one| (one - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let (off, on) = (text(|pair| &pair.off), text(|pair| &pair.on));
    println!("| {what} | {off} | {on} | {mean:+.2} % (standard error {error:.2}) |");
}

/// Plays a run that shows its metrics, and reads them each second meanwhile.
fn scraped(scrapes: &AtomicU64) -> anyhow::Result<Played> {
    let folder = tempfile::tempdir()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(EVERY);
                if scrape(folder.path()).is_some_and(|bytes| bytes > 0) {
                    scrapes.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let played = child(&format!("{OBSERVED}/{STEPS}"), folder.path());
        is_over.store(true, Ordering::Relaxed);
        played
    })
}

/// Reads the metrics of the only run in a folder. Returns the size of the answer.
fn scrape(folder: &Path) -> Option<usize> {
    let mut links = std::fs::read_dir(folder.join("prometheus")).ok()?;
    let text = std::fs::read_to_string(links.next()?.ok()?.path()).ok()?;
    let entries: serde_json::Value = serde_json::from_str(&text).ok()?;
    let address = entries[0]["targets"][0].as_str()?;
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()
}
