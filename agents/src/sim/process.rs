//! One process of a simulated run: its own runtime with its own clock, which runs only on request.
//!
//! Dropping the runtime is `kill -9`: every task ends where it waits, and runs no further line.

use std::sync::Arc;
use std::time::Duration;

use broker::bus::memory::MemoryBus;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use super::bus::SimBus;
use super::run::Run;
use crate::agent::{self, Agent};
use crate::coordinator;
use crate::engine::scripted::ScriptedEngine;
use crate::ledger::{Durability, Ledger, LedgerError, LedgerHandle, LedgerOptions};
use crate::observe::Observer;
use crate::traces::Traces;
use broker::AgentName;
use broker::ids::WeightVersion;

/// The identity of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessId {
    Agent(&'static str),
    Coordinator(usize),
}

/// A running process. The connection is dropped last, because a broker notices a process's death
/// after it.
pub(super) struct Process {
    local: LocalSet,
    runtime: Runtime,
    bus: Arc<MemoryBus>,
}

impl Process {
    /// Starts a process. `start` counts the starts of all processes, so that each has its own
    /// incarnation.
    pub(super) fn start(who: ProcessId, run: &Run, start: usize) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let process = Self {
            local: LocalSet::new(),
            runtime,
            bus: run.server.peer(),
        };
        let bus = SimBus::new(process.bus.clone(), run.chance.clone());
        let incarnation = format!("i{start}");
        tracing::trace!(?who, incarnation, "starts");
        process.local.spawn_local(begin(who, run.clone(), bus, incarnation));
        process
    }

    /// Lets the process run for a while: its clock moves by `time`, and its tasks yield `turns`
    /// times.
    pub(super) fn go_on(&self, turns: usize, time: Duration) {
        self.local.block_on(&self.runtime, async {
            tokio::time::advance(time).await;
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        });
        super::check_panics();
    }
}

/// Runs the process like `dyad agent` or `dyad coordinator`.
async fn begin(who: ProcessId, run: Run, bus: Arc<SimBus>, incarnation: String) {
    match who {
        ProcessId::Agent(name) => {
            agent(name, run, bus, incarnation).await;
        }
        ProcessId::Coordinator(_) => {
            let env = coordinator::Env {
                run: run.folder.run().clone(),
                workflow: run.workflow.clone(),
                config: run.config.clone(),
                bus,
                store: run.store.clone(),
                topology: run.topology.clone(),
                folder: run.folder.clone(),
                incarnation,
                seal: None,
                alone: false,
                observer: Observer::default(),
                traces: Traces::default(),
            };
            let started = coordinator::start(env).await.unwrap();
            // The end of the actor is not used here; it lives as long as the runtime.
            std::future::pending::<()>().await;
            drop(started);
        }
    }
}

async fn agent(name: &'static str, run: Run, bus: Arc<SimBus>, incarnation: String) -> Arc<Agent> {
    let name = AgentName::new(name).unwrap();
    let env = agent::AgentEnv {
        name: name.clone(),
        run: run.folder.run().clone(),
        config: run.config.clone(),
        bus,
        topology: run.topology.clone(),
        folder: run.folder.clone(),
        incarnation,
        observer: Observer::default(),
        traces: Traces::default(),
        launched: None,
    };
    let ledger = open(&run, &name);
    let settings = run.config.agents[&name].clone();
    let agent = Agent::new(env, &settings, run.text.clone(), LedgerHandle::in_task(ledger))
        .await
        .unwrap();
    agent
        .bus
        .declare(&run.topology, &run.config.participants())
        .await
        .unwrap();
    let engine = ScriptedEngine::new(vec![65, 66, 67], WeightVersion { lineage: 1, step: 0 });
    agent::heartbeat::start(agent.clone(), engine.clone());
    let router = agent::listen(&agent, &settings, engine).await.unwrap();
    std::future::pending::<()>().await;
    drop(router);
    agent
}

/// Opens the ledger of an agent that does not run now.
pub(super) fn open(run: &Run, agent: &AgentName) -> Ledger {
    // There is no power cut here, and waiting for the disk would take most of a schedule.
    let options = LedgerOptions {
        durability: Durability::Off,
    };
    let path = run.folder.ledger(agent);
    // A forked child of another test's thread holds our files, and so our lock, until it executes
    // another program.
    for _ in 0..500 {
        match Ledger::open_with(&path, run.folder.run(), agent, options) {
            Err(LedgerError::InUse { .. }) => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap(),
        }
    }
    panic!("{} stays in use", path.display())
}
