//! Engines that serve chosen weights in this process and never change them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use broker::AgentName;
use broker::ids::WeightVersion;
use configs::{AgentConfig, DeviceName, EngineKind, ModelConfig, RunConfig, SamplingConfig};
use rollout::text::{ChatLog, Speech};

use super::weights::Chosen;
use crate::agent::broken::{self, Broken};
use crate::base::fault::Usage;
use crate::base::{log_scope, startup};
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::foreign::openai::Openai;
use crate::engine::replicas::Replicas;
use crate::engine::scripted::ScriptedEngine;
use crate::engine::{EngineClient, Finished};
use crate::policy;
use crate::turn::render::Renderer;

/// An agent that plays.
pub struct Seat {
    pub engine: Arc<dyn EngineClient>,
    pub renderer: Arc<Renderer>,
    pub text: Arc<dyn Speech>,
    pub sampling: SamplingConfig,
    answered: Mutex<Answered>,
}

/// The state of an engine's answers so far.
#[derive(Default)]
struct Answered {
    broken: Broken,
    sampled: bool,
}

impl Seat {
    /// Records answers of the engine of `agent`.
    ///
    /// # Errors
    /// Fails if three different requests in succession could not be sampled, because the logits
    /// were not finite.
    pub(super) fn record(&self, agent: &AgentName, answers: &[Finished]) -> Result<(), Usage> {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.sampled |= answers.iter().any(|one| one.result.is_ok());
        let version = answered
            .broken
            .record(answers.iter().map(|one| (one.job.request, &one.result)));
        version.map_or(Ok(()), |version| {
            Err(Usage::new(broken::explain(agent, version, broken::IN_SUCCESSION)))
        })
    }

    /// Checks the state after all requests of a wave are answered.
    ///
    /// # Errors
    /// Fails if no request was ever sampled, because the logits were not finite.
    pub(super) fn check_wave(&self, agent: &AgentName) -> Result<(), Usage> {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        match answered.broken.failing() {
            Some(version) if !answered.sampled => Err(Usage::new(broken::explain(agent, version, broken::AT_ALL))),
            _ => Ok(()),
        }
    }
}

/// A temporary folder for random models that no run has kept; removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// # Errors
    /// Fails if no temporary folder can be made.
    pub fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("dyad-eval-{}", crate::base::ids::incarnation()));
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The system cleans up what this cannot remove.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts every agent that plays a role with its chosen weights. Every engine kind but `scripted`
/// is embedded here. Random models are made in `scratch`. Blocks the thread; must be called in a
/// runtime.
///
/// # Errors
/// Fails if weights cannot be read or do not fit the agent's model, or if a participant needs a
/// broker.
pub fn start(
    config: &RunConfig,
    chosen: &BTreeMap<AgentName, Chosen>,
    scratch: &Path,
) -> anyhow::Result<BTreeMap<AgentName, Seat>> {
    if let Some(name) = config.remotes().first() {
        let problem =
            format!("the remote participant {name} answers over a run's broker, and this command has no broker");
        return Err(Usage::new(problem)
            .hint("write kind = \"process:FILE\" with the same program, or evaluate during a run: [eval]")
            .into());
    }
    open_devices(config)?;
    let open = |name: AgentName| {
        if let Some(agent) = config.agents.get(&name)
            && let ModelConfig::Served(model) = &agent.model
        {
            let seat = served(agent, model).with_context(|| format!("asking the server of agent {name}"))?;
            return Ok((name, seat));
        }
        let chosen = chosen
            .get(&name)
            .with_context(|| format!("no weights for agent {name}"))?;
        let seat = seat(config, &name, chosen, scratch)
            .with_context(|| format!("serving agent {name} with {}", chosen.label))?;
        Ok((name, seat))
    };
    config.participants().into_iter().map(open).collect()
}

/// Opens the devices of all agents that play, GPUs first.
fn open_devices(config: &RunConfig) -> anyhow::Result<()> {
    let participants = config.participants();
    let agents = participants
        .iter()
        .filter_map(|name| Some((config.agents.get(name)?, name)));
    let computes = agents.filter(|(agent, _)| !matches!(agent.model, ModelConfig::Served(_)));
    let devices: BTreeMap<DeviceName, &AgentName> = computes.map(|(agent, name)| (agent.device, name)).collect();
    for (device, name) in devices.into_iter().rev() {
        policy::open_device(device).with_context(|| format!("serving agent {name}"))?;
    }
    Ok(())
}

/// A partner with a model on an external server.
fn served(agent: &AgentConfig, model: &str) -> anyhow::Result<Seat> {
    let text = Arc::new(ChatLog);
    Ok(Seat {
        engine: Openai::start(&agent.engine, model, WeightVersion::default())?,
        renderer: Renderer::new(text.clone(), agent.history),
        sampling: agent.sampling,
        text,
        answered: Mutex::default(),
    })
}

fn seat(config: &RunConfig, name: &AgentName, chosen: &Chosen, scratch: &Path) -> anyhow::Result<Seat> {
    let _starting = log_scope::agent(name).in_scope(|| startup::begin(name));
    let prepared = chosen.prepare(config, name, scratch)?;
    let settings = &prepared.settings;
    let prepacks = settings.engine.kind == EngineKind::Embedded && settings.engine.prepack;
    startup::enter_engine(name, prepacks);
    let version = WeightVersion::default();
    let mut engines: Vec<Arc<dyn EngineClient>> = Vec::new();
    for replica in 0..settings.engine.replicas {
        if settings.engine.kind == EngineKind::Scripted {
            engines.push(ScriptedEngine::new(policy::words(&prepared.text), version));
        } else {
            engines.push(EmbeddedEngine::of(&prepared, &format!("{name}.{replica}"), version)?);
        }
    }
    let engine = match engines.as_slice() {
        [alone] => alone.clone(),
        _ => Replicas::start(engines),
    };
    Ok(Seat {
        engine,
        renderer: Renderer::new(prepared.text.clone(), settings.history),
        sampling: settings.sampling,
        text: prepared.text,
        answered: Mutex::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[tokio::test]
    async fn start_names_its_stage_while_a_model_loads() {
        let base = tempfile::tempdir().unwrap();
        let mut config = config_in(base.path());
        let name: AgentName = "loads-slowly".parse().unwrap();
        let (_, mut agent) = config.agents.pop_first().unwrap();
        agent.model = ModelConfig::Path(base.path().to_owned());
        config.agents = [(name.clone(), agent)].into();
        config
            .workflow
            .roles
            .values_mut()
            .for_each(|agent| *agent = name.clone());
        let chosen = [(name.clone(), Chosen::begins(&config, &name).unwrap())].into();
        let mut stages = startup::stages();
        let scratch = base.path().to_owned();
        // The folder is empty, so each start is short: this thread sees one of many.
        let starts = move || (0..1000).all(|_| start(&config, &chosen, &scratch).is_err());
        let mut starts = log_scope::spawn_blocking(starts);
        let reading = |stages: &startup::Stages| stages.get(&name).is_some_and(|stage| stage.text == "reading weights");
        tokio::select! {
            found = stages.wait_for(reading) => drop(found.unwrap()),
            all = &mut starts => panic!("no stage was seen; all failed: {all:?}"),
        }
        assert!(starts.await.unwrap());
        assert!(!stages.borrow().contains_key(&name), "the start has ended");
    }
}
