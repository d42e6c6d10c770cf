//! Runs a command with a RabbitMQ that its tests share, and ends with the command's exit code:
//! `shared-rabbitmq cargo nextest run`.

use std::process::{Command, ExitCode};

use anyhow::Context;
use broker::local::shared::{SharedRabbit, VARIABLE};
use tokio::signal::unix::{SignalKind, signal};

/// More than twice as many as all tests take.
const HOSTS: usize = 200;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().context("name the command to run")?;
    // Ctrl-C reaches the command too, and the server must outlive the tests that use it.
    let _interrupts = signal(SignalKind::interrupt())?;
    let folder = tempfile::tempdir()?;
    let shared = SharedRabbit::start(folder.path(), HOSTS).await?;
    let status = Command::new(&program)
        .args(words)
        .env(VARIABLE, shared.hosts())
        .status()
        .with_context(|| format!("running {}", program.display()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
