//! The other process of a comparison: this binary once more, as an agent or as a bare responder.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use agents::run_folder::RunFolder;
use anyhow::{Context, bail, ensure};
use broker::ids::RunId;
use broker::topology::Topology;
use configs::{EngineKind, ModelConfig, RunConfig};
use rollout::text::TextCodec;
use tests::program::Program;

use super::{bare, ours};

const READY: &str = "ready";

/// A child that ends when its standard input does.
pub(crate) struct Peer {
    child: Child,
}

impl Peer {
    /// Starts it and waits until it listens.
    pub(crate) fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line.trim() == READY, "the peer {} did not start", arguments[0]);
        Ok(Self { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

async fn serve() -> anyhow::Result<()> {
    println!("{READY}");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

/// Returns the signal game's configuration with the scripted engine.
pub(crate) fn scripted() -> anyhow::Result<RunConfig> {
    let mut config = RunConfig::load(&Program::root().join("configs/signal.toml"))?;
    for agent in config.agents.values_mut() {
        agent.engine.kind = EngineKind::Scripted;
    }
    Ok(config)
}

/// Returns the agent's tokenizer, to measure its rate.
pub(crate) fn text() -> anyhow::Result<TextCodec> {
    let config = scripted()?;
    let agent = config.agents.get(&ours::agent()?).context("no agent a")?;
    let ModelConfig::Random(model) = &agent.model else {
        bail!("the configuration's model is a folder");
    };
    let folder = tempfile::tempdir()?;
    rollout::text::make::write_tokenizer(folder.path(), &model.tokenizer)?;
    Ok(TextCodec::open(folder.path())?)
}

/// Runs a whole agent, as `dyad agent` starts it.
pub(crate) async fn agent(url: &str, folder: &Path) -> anyhow::Result<()> {
    let config = scripted()?;
    let run = RunId::new("bench").context("a bad run name")?;
    let folder = RunFolder::open_or_create(&folder.join("runs"), &config, run.clone())?;
    let started = agents::agent::start(agents::agent::AgentEnv {
        name: ours::agent()?,
        run: run.clone(),
        config: Arc::new(config),
        bus: agents::run_folder::connect::bus(url).await?,
        topology: Topology::new(run),
        folder,
        incarnation: agents::base::ids::incarnation(),
        observer: agents::observe::Observer::default(),
        traces: agents::traces::Traces::default(),
        launched: None,
    })
    .await?;
    serve().await?;
    drop(started);
    Ok(())
}

/// Runs the bare client's other side.
pub(crate) async fn responder(url: &str) -> anyhow::Result<()> {
    let run = RunId::new("bench").context("a bad run name")?;
    let queues = bare::Queues::new(&Topology::new(run));
    let responder = tokio::spawn(bare::respond(url.to_owned(), queues));
    tokio::select! {
        ended = responder => ended?,
        done = serve() => done,
    }
}
