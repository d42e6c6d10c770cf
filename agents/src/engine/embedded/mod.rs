//! The embedded engine: libtorch on its own thread, with new weights loaded between decode steps.

mod failure;
mod thread;
mod unsampled;
mod visits;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::failure::Failure;
use configs::Dtype;
use rollout::text::TextCodec;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use trainer::device::Device;
use trainer::engine::{Engine, EngineOptions, EngineUsage};
use trainer::pulse::Pulse;
use trainer::weights::{Deliver, MemorySink, Published, WeightSink};

use self::failure::failed;
use self::thread::Thread;
use self::visits::EngineVisits;
use super::{EngineClient, EngineFailure, EngineProgress, Finished, GenerationJob, Visit, WeightRefusal};
use crate::base::log_scope;
use crate::policy::Prepared;

enum Command {
    Generate {
        jobs: Vec<GenerationJob>,
        wave: bool,
        done: UnboundedSender<Vec<Finished>>,
    },
    Swap(Published),
    Visit(Vec<Visit>),
    Leave(RequestId),
    Pin(bool),
    End,
}

/// A handle to the engine's thread.
pub struct EmbeddedEngine {
    commands: Sender<Command>,
    version: watch::Sender<WeightVersion>,
    refused: watch::Sender<Option<WeightRefusal>>,
    pulse: Pulse,
    usage: EngineUsage,
}

impl EmbeddedEngine {
    /// Starts an engine that serves the weights of `policy`, on a thread of this process.
    pub(crate) fn of(policy: &Prepared, name: &str, version: WeightVersion) -> anyhow::Result<Arc<Self>> {
        let options = EngineOptions::from(&policy.settings);
        let weights = Published::new(policy.served()?, version);
        let engine = match &policy.base {
            Some(base) => Engine::with_base(&policy.shape, base.share(), weights, options)?,
            None => Engine::new(&policy.shape, weights, options)?,
        };
        Ok(Self::start(name, engine, version, policy.text.clone())?)
    }

    /// Moves an engine to its own thread.
    pub fn start(
        name: &str,
        engine: Engine,
        version: WeightVersion,
        text: Arc<TextCodec>,
    ) -> std::io::Result<Arc<Self>> {
        let stop_ids = text.stop_ids().into();
        Self::start_with(name, engine, version, text, stop_ids)
    }

    fn start_with(
        name: &str,
        engine: Engine,
        version: WeightVersion,
        text: Arc<TextCodec>,
        stop_ids: Arc<[u32]>,
    ) -> std::io::Result<Arc<Self>> {
        let (commands, inbox) = channel();
        let version = watch::Sender::new(version);
        let refused = watch::Sender::new(None);
        let (pulse, usage) = (engine.pulse(), engine.usage());
        let thread = Thread {
            pulse: pulse.clone(),
            engine,
            inbox,
            version: version.clone(),
            refused: refused.clone(),
            text,
            stop_ids,
            open: HashMap::new(),
            visits: EngineVisits::new(pulse.clone()),
        };
        std::thread::Builder::new()
            .name(format!("engine-{name}"))
            .spawn(log_scope::inherit(move || thread.run()))?;
        Ok(Arc::new(Self {
            commands,
            version,
            refused,
            pulse,
            usage,
        }))
    }

    /// Returns the progress of its thread: requests and weights received, steps made.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Ends its thread after the current step. Nothing more is answered.
    pub(crate) fn end(&self) {
        // A thread that has ended needs no order to end.
        let _ = self.commands.send(Command::End);
    }

    /// Returns the sink to which the trainer publishes.
    #[must_use]
    pub fn sink(&self, device: Device, dtype: Dtype) -> Box<dyn WeightSink> {
        self.sink_with(&[], device, dtype)
    }

    /// Returns one sink for this engine and its `replicas`. They compute on the same device.
    pub(crate) fn sink_with(&self, replicas: &[Arc<Self>], device: Device, dtype: Dtype) -> Box<dyn WeightSink> {
        let own = MemorySink::of(device, dtype, self.deliver());
        let all = replicas.iter().fold(own, |sink, replica| sink.and(replica.deliver()));
        Box::new(all)
    }

    /// Passes new weights to the engine's thread.
    fn deliver(&self) -> Deliver {
        let (commands, pulse) = (self.commands.clone(), self.pulse.clone());
        Box::new(move |weights| {
            pulse.take(1);
            let sent = commands.send(Command::Swap(weights)).is_ok();
            if !sent {
                pulse.done(1);
            }
            sent
        })
    }
}

impl EngineClient for EmbeddedEngine {
    fn submit(&self, jobs: Vec<GenerationJob>, wave: bool, done: UnboundedSender<Vec<Finished>>) {
        self.pulse.take(jobs.len());
        if let Err(lost) = self.commands.send(Command::Generate { jobs, wave, done })
            && let Command::Generate { jobs, done, .. } = lost.0
        {
            let failure = EngineFailure {
                cause: Failure::engine("the engine's thread has ended"),
                retry: true,
            };
            self.pulse.done(jobs.len());
            let _ = done.send(jobs.into_iter().map(|job| failed(job, &failure)).collect());
        }
    }

    fn visit(&self, visits: Vec<Visit>) {
        self.pulse.take(visits.len());
        if let Err(lost) = self.commands.send(Command::Visit(visits))
            && let Command::Visit(visits) = lost.0
        {
            // Their channels close with them, so the visitors learn that nothing will come.
            self.pulse.done(visits.len());
        }
    }

    fn leave(&self, request: RequestId) {
        // A thread that has ended has no request to forget.
        let _ = self.commands.send(Command::Leave(request));
    }

    fn progress(&self) -> Option<EngineProgress> {
        Some(EngineProgress {
            marks: self.pulse.look().marks,
            cache_usage: self.usage.cache(),
            steps: self.usage.steps(),
        })
    }

    fn scores_prompts(&self) -> bool {
        true
    }

    fn pin(&self, pinned: bool) {
        // A thread that has ended starts no request.
        let _ = self.commands.send(Command::Pin(pinned));
    }

    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.version.subscribe()
    }

    fn refusals(&self) -> watch::Receiver<Option<WeightRefusal>> {
        self.refused.subscribe()
    }
}

#[cfg(test)]
mod tests;
