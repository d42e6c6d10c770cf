//! `dyad run`: every actor of a run in one process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use anyhow::Context;
use broker::topology::Topology;
use configs::RunConfig;

use super::dashboard::DashboardOption;
use super::shell_word::shell_word;
use super::tasks::saved;
use crate::agent::router;
use crate::base::fault::Interrupted;
use crate::base::ids;
use crate::base::signals::Signals;
use crate::observe::{Metering, MetricsPlan};
use crate::run_folder::connect;
use crate::run_folder::servers::Servers;
use crate::run_folder::{Connection, RunFolder};
use crate::traces::{TraceExport, TracesPlan};
use crate::{agent, coordinator};

/// The reason of a run that a signal has stopped.
const STOPPED: &str = "Ctrl-C or SIGTERM";
/// Time that a stopping process may spend on messages to the others.
const TIDY: Duration = Duration::from_secs(5);

/// Creates a runtime in which IO never blocks an actor: actors run on the system thread, IO on the
/// workers.
pub fn system() -> actix::SystemRunner {
    actix::System::with_tokio_rt(|| {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let built = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores)
            .enable_all()
            .build();
        match built {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "the operating system cannot start a thread");
                crate::base::fault::leave(crate::run_folder::telemetry::EXIT_PANIC);
            }
        }
    })
}

/// Runs `config` to its end in this process. The results are in the folder.
pub async fn embedded(config: Arc<RunConfig>, folder: RunFolder) -> anyhow::Result<()> {
    with_pages(config, folder, &DashboardOption::default()).await
}

/// Does the same, and shows the run in the browser if that is asked for.
pub(super) async fn with_pages(
    config: Arc<RunConfig>,
    folder: RunFolder,
    pages: &DashboardOption,
) -> anyhow::Result<()> {
    let urls = Connection {
        broker: config.run.broker.clone(),
        state: config.run.state.clone(),
    };
    let problems = crate::participant::unreachable(&config);
    if !problems.is_empty() {
        return Err(crate::base::fault::problems_error(&problems));
    }
    let plan = MetricsPlan::of(&config)?;
    let traces_plan = TracesPlan::of_environment()?;
    folder.set_continued()?;
    let mut signals = Signals::listen()?;
    let data = folder.path().join("servers");
    let (servers, urls) = tokio::select! {
        started = Servers::start(urls, &data) => started?,
        () = signals.next() => return Err(interrupted(&folder, "run")),
    };
    folder.set_connection(&urls)?;
    let servers = servers.keep();
    let run = folder.run().clone();
    let export = TraceExport::begin(traces_plan, &run)?;
    let metering = Metering::begin(plan, &folder, "run")?;
    let observer = metering.observer.clone();
    let bus = observer.watch_bus(connect::bus(&urls.broker).await?);
    // In-process: other processes cannot reach messages in memory.
    let pages = pages.serve(&folder, bus.clone())?;
    let store = connect::store(&urls.state, &run).await?;
    let topology = Topology::new(run.clone());
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools)
        .map_err(|problems| crate::base::fault::problems_error(&problems))?;

    crate::cli::progress::watch(bus.clone(), &topology, config.clone(), "view").await?;
    let starts = config.participants().into_iter().map(|name| {
        let env = agent::AgentEnv {
            name: name.clone(),
            run: run.clone(),
            config: config.clone(),
            bus: bus.clone(),
            topology: topology.clone(),
            folder: folder.clone(),
            incarnation: ids::incarnation(),
            observer: observer.clone(),
            traces: export.traces.clone(),
            launched: None,
        };
        async move {
            agent::start(env)
                .await
                .with_context(|| format!("starting agent {name}"))
        }
    });
    let env = coordinator::Env {
        run: run.clone(),
        config: config.clone(),
        workflow,
        bus: bus.clone(),
        store,
        topology: topology.clone(),
        folder: folder.clone(),
        incarnation: ids::incarnation(),
        seal: None,
        alone: true,
        observer: observer.clone(),
        traces: export.traces.clone(),
    };
    let starting = async {
        let agents = futures_util::future::try_join_all(starts).await?;
        Ok::<_, anyhow::Error>((agents, coordinator::start(env).await?))
    };
    let started = tokio::select! {
        started = starting => started,
        () = signals.next() => Err(interrupted(&folder, "run")),
    };
    let (agents, (coordinator, mut end)) = match started {
        Ok(started) => started,
        Err(error) => {
            export.close().await;
            metering.close().await;
            bus.close().await;
            servers.stop().await;
            return Err(error);
        }
    };
    observer.set_ready();
    let mut coordinated = false;
    let fronts: Vec<_> = agents.iter().filter_map(|started| started.front.clone()).collect();
    let routers: Vec<_> = agents.iter().map(|started| started.router.clone()).collect();
    let ends = agents.into_iter().map(|started| async move {
        let name = started.agent.name.clone();
        started
            .end
            .await
            .context("the agent's task ended")
            .and_then(|end| end)
            .with_context(|| format!("agent {name}"))
    });
    let mut ends = std::pin::pin!(futures_util::future::try_join_all(ends));
    let outcome = loop {
        tokio::select! {
            outcome = &mut ends => break outcome.map(|_| ()),
            closed = &mut end, if !coordinated => {
                coordinated = true;
                if let Err(error) = closed.context("the coordinator ended early").and_then(|end| end) {
                    break Err(error);
                }
            }
            () = signals.next() => break Err(interrupted(&folder, "run")),
        }
    };
    if outcome.is_err() {
        // The open groups did not cause the stop, so they get no crash mark when they start again.
        let stop = |router: &Addr<router::Router>| router.send(router::RouterMessage::Stop);
        let tidy = futures_util::future::join3(
            futures_util::future::join_all(routers.iter().map(stop)),
            coordinator::stop(&coordinator, TIDY),
            futures_util::future::join_all(fronts.iter().map(|front| front.close())),
        );
        tokio::select! {
            _ = tidy => {}
            () = signals.next() => {}
        }
    }
    if let Some(pages) = pages {
        pages.close().await;
    }
    export.close().await;
    metering.close().await;
    tokio::select! {
        () = saved::save(&bus, &folder, &config.run.broker) => {}
        () = signals.next() => {}
    }
    bus.close().await;
    servers.stop().await;
    outcome
}

/// Records in the run folder that a signal has stopped the run of `dyad COMMAND`, and returns the
/// error that says so.
pub(super) fn interrupted(folder: &RunFolder, command: &str) -> anyhow::Error {
    if let Err(error) = folder.set_stopped(STOPPED) {
        tracing::warn!(%error, "the stop was not recorded in the run folder");
    }
    let folder = shell_word(&folder.path().to_string_lossy());
    Interrupted(format!(
        "stopped by {STOPPED}; continue with `dyad {command} --resume {folder}`"
    ))
    .into()
}

/// Creates the run folder of a new run.
pub fn new_folder(config: &RunConfig, source: &Path) -> anyhow::Result<RunFolder> {
    RunFolder::create(&config.run.folder, config, Some(source))
        .with_context(|| format!("making a run folder for {}", source.display()))
}
