//! SGLang's or vLLM's servers as engines: the demands on them, and how weights reach them.

use std::sync::Arc;

use anyhow::Context;
use trainer::weights::disk::DiskSink;

use super::Training;
use super::begin::Sink;
use crate::engine::EngineClient;
use crate::engine::foreign::driver::Settings;
use crate::engine::foreign::fleet::Fleet;
use crate::engine::foreign::{self, Pace};
use crate::policy::{Prepared, words};

/// The number of prompts that probe a server's log-probs, and the tokens of each.
const PROBES: usize = 4;
const PROBE: usize = 4;

impl Training {
    /// The agent's servers behind one client, and the sink that carries published weights to them.
    /// A partner that never trains is served with the weights that its servers were started with,
    /// apart from an adapter. Its model's weights are not even read here ([`Reads`]).
    ///
    /// [`Reads`]: crate::run_folder::models::Reads
    pub(super) async fn foreign(&self, prepared: &Prepared) -> anyhow::Result<(Arc<dyn EngineClient>, Sink)> {
        let engine = &self.settings.engine;
        let servers = engine.urls.iter().map(|url| foreign::server(engine.kind, url));
        let servers = servers.collect::<anyhow::Result<Vec<_>>>()?;
        let frozen = !self.settings.train.enabled;
        let as_started = frozen && self.settings.lora.is_none();
        tracing::info!(urls = engine.urls.join(" "), "waiting for the agent's engines");
        let fleet = Fleet::start(
            servers,
            self.demands(prepared),
            prepared.text.clone(),
            as_started.then_some(self.version),
        );
        let fleet = fleet.await?;
        let mut sink = self.disk_sink(prepared, &fleet)?;
        if frozen && !as_started {
            sink.publish(prepared.weights()?, self.version)?;
        }
        Ok((fleet, sink))
    }

    fn disk_sink(&self, prepared: &Prepared, fleet: &Arc<Fleet>) -> anyhow::Result<Sink> {
        let (run, name) = (self.agent.folder.run(), &self.agent.name);
        let root = match &self.settings.engine.weights_folder {
            Some(folder) => folder.join(run.as_str()).join(name.as_str()),
            None => self.agent.folder.weights(name),
        };
        let (run, agent) = (run.clone(), name.clone());
        let (announce, oldest) = (fleet.clone(), fleet.clone());
        let sink = DiskSink::new(
            &root,
            prepared.shape.clone(),
            prepared.settings.dtype,
            prepared.folder.display().to_string(),
            Box::new(move |written| {
                let label = foreign::label(&run, &agent, &written);
                announce.announce(written, label);
            }),
            Box::new(move || oldest.oldest()),
        );
        let sink = sink.with_context(|| format!("making {}, where weights are written for engines", root.display()))?;
        Ok(Box::new(sink))
    }

    fn demands(&self, prepared: &Prepared) -> Settings {
        let (engine, sampling) = (&self.settings.engine, &self.settings.sampling);
        let words = words(&prepared.text);
        Settings {
            vocab: prepared.shape.vocab,
            max_context: prepared.shape.max_context,
            max_new_tokens: sampling.max_new_tokens,
            trained_temperature: self.settings.train.enabled.then_some(sampling.temperature),
            ends: [prepared.text.stop_ids(), prepared.shape.eos.clone()].concat().into(),
            stop_ids: prepared.text.stop_ids().into(),
            probes: words.chunks(PROBE).take(PROBES).map(<[u32]>::to_vec).collect(),
            drains: engine.swap == configs::Swap::Drain,
            slots: engine.slots,
            stuck_after: engine.stuck_after.0,
            pace: Pace::default(),
        }
    }
}
