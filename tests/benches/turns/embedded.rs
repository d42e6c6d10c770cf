//! Conversations per second in one process: the signal game on the memory bus and store, with the
//! scripted engine.
//!
//! Everything except the model's answers is real. Custody and bundles go through a ledger on disk
//! (SQLite, synchronous=FULL), and every batch is trained. The second variant trains a model of one
//! layer of 8, so that little except the data plane is left. A run of one step measures start and
//! end, which are subtracted.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use agents::run_folder::RunFolder;
use anyhow::{Context, ensure};
use configs::{ModelConfig, RunConfig};

use super::figures::{self, load, spread};
use super::peer;

/// Each step has 16 groups of 16 conversations: over 20,000 in all.
pub(crate) const STEPS: u64 = 80;
const VARIANTS: [(&str, &str); 3] = [
    ("signal", "configs/signal.toml, training its 2 layers of 64"),
    ("small", "the same with a model of 1 layer of 8"),
    ("silent", "that, without transcripts"),
];

/// The variant `small` that shows its metrics.
pub(crate) const OBSERVED: &str = "observed";

fn config(variant: &str, folder: &Path, steps: u64) -> anyhow::Result<RunConfig> {
    let mut config = peer::scripted()?;
    config.run.folder = folder.into();
    config.run.train_steps = steps;
    config.eval.every = 0;
    config.eval.stop_at = None;
    for agent in config.agents.values_mut() {
        agent.train.checkpoint_every = 0;
        if let (true, ModelConfig::Random(model)) = (variant != "signal", &mut agent.model) {
            (model.layers, model.hidden, model.heads, model.kv_heads) = (1, 8, 1, Some(1));
            model.intermediate = Some(8);
        }
    }
    if variant == "silent" {
        config.run.transcripts = configs::TranscriptPolicy::None;
    }
    if variant == OBSERVED {
        let listen = "127.0.0.1:0".to_owned();
        config.run.metrics = Some(configs::MetricsConfig { listen });
    }
    Ok(config)
}

/// Runs the child's part: `variant` is `NAME/STEPS`. Prints seconds and conversations.
pub(crate) async fn run(variant: &str, folder: &Path) -> anyhow::Result<()> {
    let (name, steps) = variant.split_once('/').context("NAME/STEPS")?;
    let config = config(name, folder, steps.parse()?)?;
    let conversations = config.workflow.group_size as u64 * trained_groups(&config);
    let run = RunFolder::create(&config.run.folder, &config, None)?;
    let begun = Instant::now();
    agents::cli::embedded::embedded(Arc::new(config), run).await?;
    println!(
        "{} {conversations} {}",
        begun.elapsed().as_secs_f64(),
        figures::own_cpu_seconds()
    );
    Ok(())
}

fn trained_groups(config: &RunConfig) -> u64 {
    let lead = config.lead().and_then(|name| config.agents.get(name));
    config.run.train_steps * lead.map_or(0, |agent| agent.train.batch_groups as u64)
}

/// The figures of one run.
pub(crate) struct Played {
    pub(crate) seconds: f64,
    pub(crate) conversations: f64,
    pub(crate) cpu_seconds: f64,
}

/// Plays a run in a process of its own, with its run folder in `folder`. `variant` is `NAME/STEPS`.
pub(crate) fn child(variant: &str, folder: &Path) -> anyhow::Result<Played> {
    let output = Command::new(std::env::current_exe()?)
        .args(["embedded", variant])
        .arg(folder)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(
        output.status.success(),
        "the run of {variant} ended with {}",
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let [seconds, conversations, cpu_seconds] = words[..] else {
        anyhow::bail!("no figures: {text}");
    };
    Ok(Played {
        seconds: seconds.parse()?,
        conversations: conversations.parse()?,
        cpu_seconds: cpu_seconds.parse()?,
    })
}

/// Runs every variant several times, interleaved, and prints their rates.
pub(crate) fn compare(rounds: usize) -> anyhow::Result<()> {
    println!(
        "\nembedded, sync, memory bus and store, ledger synchronous=FULL, scripted engine; load {}",
        load()
    );
    let mut rates = [const { Vec::new() }; VARIANTS.len()];
    let mut whole = 0.0;
    for _ in 0..rounds {
        for ((name, _), rates) in VARIANTS.iter().zip(&mut rates) {
            let play = |steps: u64| child(&format!("{name}/{steps}"), tempfile::tempdir()?.path());
            let (start, whole_run) = (play(1)?, play(STEPS)?);
            whole = whole_run.conversations;
            rates.push((whole - start.conversations) / (whole_run.seconds - start.seconds));
        }
    }
    for ((_, what), rates) in VARIANTS.iter().zip(&rates) {
        let (middle, least, most) = spread(rates.iter().copied());
        println!("{middle:.0} conversations/s [{least:.0}-{most:.0}] over {whole}: {what}");
    }
    println!("load {} after", load());
    Ok(())
}
