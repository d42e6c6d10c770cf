//! Begins training at the newest sound checkpoint, or at the run's first weights.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use broker::ids::WeightVersion;
use broker::protocol::train::{ForwardWeights, Loss, TrainCommand};
use configs::{EngineKind, OptimizerConfig};
use trainer::checkpoint::TrainerState;
use trainer::pulse::Pulse;
use trainer::train::TrainerClient;
use trainer::weights::WeightSink;

use super::Training;
use super::build::trainer;
use super::external;
use super::former::BatchFormer;
use super::ranks;
use super::refused::Refused;
use super::resume;
use super::save::version_of;
use super::step_times::StepTimes;
use crate::agent::alarms::Alarms;
use crate::agent::due::EvaluationWait;
use crate::agent::past_opponent;
use crate::agent::past_opponent::Renewing;
use crate::agent::trainer_thread::TrainerThread;
use crate::agent::{Agent, broken};
use crate::base::fault::Usage;
use crate::base::{log_scope, startup};
use crate::engine::EngineClient;
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::process::client;
use crate::engine::replicas::Replicas;
use crate::engine::scripted::ScriptedEngine;
use crate::engine::stuck;
use crate::ledger;
use crate::policy::warm_start;
use crate::policy::{Prepared, words};
use crate::run_folder::metrics::MetricsWriter;
use crate::turn::past::Past;

pub(super) type Sink = Box<dyn WeightSink>;
type Engines = Vec<Arc<dyn EngineClient>>;

impl Training {
    /// Restores or begins the policy's training state and starts its engine.
    pub async fn start(agent: Arc<Agent>, mut prepared: Prepared) -> anyhow::Result<(Self, Arc<dyn EngineClient>)> {
        let settings = prepared.settings.clone();
        let file = agent.folder.metrics(agent.name.as_str());
        let metrics = MetricsWriter::open(&file, Some(&agent.folder.tensorboard(agent.name.as_str())))?;
        let mut training = Self {
            worker: None,
            engine: None,
            version: WeightVersion::default(),
            former: BatchFormer::new(&agent.config, &agent.name, &prepared),
            refused: Refused::default(),
            renewing: Renewing::default(),
            seq: 0,
            saved: None,
            metrics,
            alarms: Alarms::default(),
            has_learned: agent.ledger.note(ledger::LEARNED).await?.is_some(),
            times: StepTimes::start(std::time::Instant::now()),
            waiting: EvaluationWait::of(&agent.config, &agent.name),
            settings,
            agent,
        };
        if !training.settings.train.enabled {
            let agent = training.agent.clone();
            let past = Past::of(&agent.config, &agent.name);
            if past.is_none() {
                training.warm_frozen(&mut prepared).await?;
            }
            let (prepared, engine, sinks) = training.engines(prepared).await?;
            training.refused = training.refusals(&*engine);
            if let Some(past) = past {
                training.renewing = past_opponent::start(agent, past, &prepared, engine.clone(), sinks).await?;
            }
            return Ok((training, engine));
        }
        let engine = training.begin(prepared).await?;
        Ok((training, engine))
    }

    async fn begin(&mut self, prepared: Prepared) -> anyhow::Result<Arc<dyn EngineClient>> {
        let folder = self.agent.folder.checkpoints(&self.agent.name);
        std::fs::create_dir_all(&folder)?;
        // The engines copy the first weights before the trainer moves them.
        let (mut prepared, engine, sinks) = self.engines(prepared).await?;
        self.refused = self.refusals(&*engine);
        self.engine = Some(engine.clone());
        self.enter("starting the trainer");
        let (trainer, pulse) = if self.settings.train.is_external() {
            external::start(&self.agent, &prepared, sinks).await?
        } else {
            let group = ranks::start(&self.agent, &self.settings).await?;
            let built = move || (trainer(&mut prepared, group), prepared);
            let (built, returned) = log_scope::spawn_blocking(built).await?;
            prepared = returned;
            let mut trainer = built?;
            sinks.into_iter().for_each(|sink| trainer.add_sink(sink));
            let pulse = trainer.pulse();
            (Box::new(trainer) as Box<dyn TrainerClient>, pulse)
        };
        self.worker = Some(self.worker(trainer, pulse)?);
        let parent = self.load(&folder).await?;
        if parent.is_none() {
            self.warm_start(&prepared).await?;
        }
        let lineage = self.agent.ledger.begin_lineage(parent).await?;
        broker::fail::point("lineage.begun");
        self.version = WeightVersion {
            lineage,
            step: parent.map_or(0, |parent| parent.step),
        };
        self.former.resume(&self.agent.ledger, self.version).await?;
        self.enter("publishing the first weights");
        self.publish().await?;
        self.agent.status.send_modify(|status| status.step = self.version.step);
        if parent.is_none() {
            self.enter("writing the first checkpoint");
            self.checkpoint().await?;
        }
        self.keep_initial()?;
        if let Some(series) = self.agent.observer.series() {
            series.training.begin(self.agent.name.as_str());
        }
        Ok(engine)
    }

    fn enter(&self, stage: impl Into<String>) {
        startup::enter(&self.agent.name, stage);
    }

    /// Moves a trainer to its own thread, and watches its `pulse`.
    pub(super) fn worker(&self, trainer: Box<dyn TrainerClient>, pulse: Pulse) -> anyhow::Result<TrainerThread> {
        self.watch("trainer".into(), pulse.clone());
        Ok(TrainerThread::start(self.agent.name.as_str(), trainer, pulse)?)
    }

    fn refusals(&self, engine: &dyn EngineClient) -> Refused {
        let engines = self.settings.engine.replicas.max(self.settings.engine.urls.len());
        Refused::new(engine.refusals(), engines)
    }

    /// Starts the agent's engines. Returns the policy, the engines behind one client, and the sinks
    /// that carry published weights to them.
    async fn engines(&self, prepared: Prepared) -> anyhow::Result<(Prepared, Arc<dyn EngineClient>, Vec<Sink>)> {
        let packs = self.settings.engine.kind == EngineKind::Embedded && self.settings.engine.prepack;
        startup::enter_engine(&self.agent.name, packs);
        if self.settings.engine.kind == EngineKind::Dyad {
            let series = self.agent.observer.series();
            let work = client::Work {
                frozen: !self.settings.train.enabled,
                waves: self.agent.config.run.mode == configs::Mode::Sync,
                sent: series.map(|series| series.training.sent_weights(self.agent.name.as_str())),
            };
            let (engine, sink) = client::start(&self.agent.name, &self.agent.run, &prepared, work)?;
            return Ok((prepared, engine, vec![sink]));
        }
        if self.settings.engine.kind.is_foreign() {
            let (engine, sink) = self.foreign(&prepared).await?;
            return Ok((prepared, engine, vec![sink]));
        }
        let (prepared, engines, sinks) = if self.settings.engine.kind == EngineKind::Scripted {
            let scripted = (0..self.settings.engine.replicas).map(|_| {
                let engine = ScriptedEngine::new(words(&prepared.text), self.version);
                let sink = engine.sink();
                (engine as Arc<dyn EngineClient>, sink)
            });
            let (engines, sinks) = scripted.unzip();
            (prepared, engines, sinks)
        } else {
            self.embedded(prepared).await?
        };
        let engine = match engines.as_slice() {
            [alone] => alone.clone(),
            _ => Replicas::start(engines),
        };
        Ok((prepared, engine, sinks))
    }

    /// Starts the embedded engines on a thread of their own, because they read and prepack weights.
    /// All share one sink.
    async fn embedded(&self, prepared: Prepared) -> anyhow::Result<(Prepared, Engines, Vec<Sink>)> {
        let name = |replica| format!("{}.{replica}", self.agent.name);
        let names: Vec<String> = (0..self.settings.engine.replicas).map(name).collect();
        let version = self.version;
        let start = move || -> (Prepared, anyhow::Result<Vec<_>>) {
            let engines = names.iter().map(|name| EmbeddedEngine::of(&prepared, name, version));
            let engines = engines.collect();
            (prepared, engines)
        };
        let (prepared, engines) = log_scope::spawn_blocking(start).await?;
        let engines: Vec<Arc<EmbeddedEngine>> = engines?;
        for (replica, engine) in engines.iter().enumerate() {
            self.watch(format!("engine {replica}"), engine.pulse());
        }
        let (device, dtype) = (prepared.device, prepared.settings.dtype);
        let sinks = engines
            .split_first()
            .map(|(first, others)| first.sink_with(others, device, dtype));
        let engines = engines.into_iter().map(|engine| engine as Arc<dyn EngineClient>);
        let engines = engines.collect();
        Ok((prepared, engines, sinks.into_iter().collect()))
    }

    fn watch(&self, thread: String, pulse: Pulse) {
        stuck::watch(
            self.agent.name.clone(),
            thread,
            pulse,
            self.settings.engine.stuck_after.0,
        );
    }

    /// Loads the newest undamaged checkpoint, if there is one. Returns its version.
    async fn load(&mut self, root: &Path) -> anyhow::Result<Option<WeightVersion>> {
        self.enter("reading the checkpoint");
        let load = async |folder: &Path| {
            let path = folder.display().to_string();
            tracing::info!(path, "continuing from a checkpoint");
            self.execute(|seq| TrainCommand::LoadState { seq, path }).await
        };
        let Some(folder) = resume::newest(root, load).await? else {
            return Ok(None);
        };
        let state = TrainerState::read(&folder)?;
        self.saved = Some(state.step);
        let version = version_of(&state).context("the checkpoint does not say which version it holds")?;
        Ok(Some(version))
    }

    /// Trains with cross-entropy on known answers, before version 0.
    pub(super) async fn warm_start(&mut self, prepared: &Prepared) -> anyhow::Result<()> {
        let Some(config) = self.settings.train.warm_start.clone() else {
            return Ok(());
        };
        let mut source = warm_start::Batches::open(&config, &self.agent.config, &self.agent.name, prepared)?;
        tracing::info!(steps = config.steps, source = config.source, "warm start");
        let optimizer = OptimizerConfig {
            lr: config.lr,
            ..self.settings.train.optimizer
        };
        for step in 0..config.steps {
            self.enter(format!("warm start: step {} of {}", step + 1, config.steps));
            let batch = source.next_batch()?;
            let loss = self.forward_backward(batch, Loss::CrossEntropy).await?;
            if !loss.loss.is_finite() {
                return Err(self.warm_start_failed(step, loss.loss).into());
            }
            self.optim_step(&optimizer, config.lr).await?;
            if step % 50 == 0 || step + 1 == config.steps {
                tracing::info!(step, loss = loss.loss, "warm start");
            }
        }
        // Weights that only the last step damaged are seen by no later step of this loop.
        let logprobs = self.logprobs(source.next_batch()?, ForwardWeights::Trained).await?;
        if logprobs.iter().flatten().any(|logprob| !logprob.is_finite()) {
            return Err(self.warm_start_failed(config.steps, f64::NAN).into());
        }
        Ok(())
    }

    /// Known answers under finite weights have a finite loss: no later batch could repair these
    /// weights.
    fn warm_start_failed(&self, step: u64, loss: f64) -> Usage {
        let agent = &self.agent.name;
        let problem =
            format!("agent {agent}: the loss of its warm start is {loss} at step {step}, so its weights cannot learn");
        Usage::new(problem).hint(match step {
            0 => broken::damaged(agent, &self.settings.model),
            _ => broken::lower_warm_start(agent),
        })
    }
}
