//! Training: closed groups become batches, batches become weights, weights go to the engine.
//!
//! The order that makes a crash harmless: the step is raised, the batch's verdicts are recorded, the weights move, they are
//! published, and now and then a checkpoint makes it all permanent. After a restart the trainer goes on from the newest
//! checkpoint in a new lineage, and the batches that were recorded after it are trained again first, in their order.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use broker::ids::{GroupId, WeightVersion};
use broker::protocol::bundle::Bundle;
use broker::protocol::control::RunPhase;
use broker::protocol::train::{Loss, LossStats, OptimStep, TrainBatch, TrainCommand, TrainReply};
use configs::{AgentConfig, EngineKind, LossKind, OptimizerConfig};
use rollout::batch::{Batch, Context as BatchContext, Formed, Verdict as BatchVerdict, form};
use trainer::checkpoint::{self, CheckpointError, CheckpointStore, TrainerState};
use trainer::engine::{Engine, EngineOptions};
use trainer::train::{Trainer, TrainerOptions};
use trainer::weights::Published;

use super::policy::Prepared;
use super::worker::Worker;
use super::{Agent, warm};
use crate::engine::EngineClient;
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::scripted::ScriptedEngine;
use crate::ledger::{Lineages, RecordedBatch, SampleVerdict, Verdict};
use crate::metrics::{Metrics, MetricsWriter};

/// Largest |ratio - 1| of tokens whose weights and cache are the trainer's own: f32 sampler and trainer agree to rounding.
const RATIO_GAP: f64 = 1e-4;

/// The training side of an agent.
pub struct Training {
    agent: Arc<Agent>,
    settings: AgentConfig,
    /// None for a frozen policy.
    worker: Option<Worker>,
    version: WeightVersion,
    lineages: Lineages,
    seq: u64,
    /// Recorded by a branch that a restart cut off.
    replay: VecDeque<RecordedBatch>,
    /// The last step that was, or is to be, trained again.
    replayed_to: u64,
    /// Groups that refilling has discarded for the batch being formed, and the verdicts on their samples.
    discarded: HashSet<GroupId>,
    zero: Vec<BatchVerdict>,
    /// Step of the newest checkpoint.
    saved: Option<u64>,
    metrics: MetricsWriter,
}

impl Training {
    /// Restores or begins the policy's training state and starts its engine.
    pub async fn start(agent: Arc<Agent>, prepared: Prepared) -> anyhow::Result<(Self, Arc<dyn EngineClient>)> {
        let settings = prepared.settings.clone();
        let file = agent.folder.metrics(agent.name.as_str());
        let metrics = MetricsWriter::open(&file, Some(&agent.folder.tensorboard(agent.name.as_str())))?;
        let mut training = Self {
            settings,
            worker: None,
            version: WeightVersion::default(),
            lineages: Lineages::default(),
            seq: 0,
            replay: VecDeque::new(),
            replayed_to: 0,
            discarded: HashSet::new(),
            zero: Vec::new(),
            saved: None,
            metrics,
            agent,
        };
        if !training.settings.train.enabled {
            let engine = training
                .engine(&prepared, prepared.weights.copied_to(prepared.device)?)?
                .0;
            return Ok((training, engine));
        }
        let engine = training.begin(prepared).await?;
        Ok((training, engine))
    }

    async fn begin(&mut self, prepared: Prepared) -> anyhow::Result<Arc<dyn EngineClient>> {
        let folder = self.agent.folder.checkpoints(&self.agent.name);
        std::fs::create_dir_all(&folder)?;
        let found = match checkpoint::find(&folder, true) {
            Ok(checkpoint) => Some(checkpoint.folder),
            Err(CheckpointError::None(_)) => None,
            Err(error) => return Err(error).context("looking for a checkpoint"),
        };
        let options = TrainerOptions {
            micro_batch_tokens: self.settings.train.micro_batch_tokens,
            keep_reference: self.settings.train.kl.coef > 0.0,
            keep_checkpoints: self.settings.train.keep_checkpoints,
            tokenizer_folder: Some(prepared.folder.clone()),
            fall_back: true,
        };
        let weights = prepared.weights.copied_to(prepared.device)?;
        let mut trainer = Trainer::new(prepared.shape.clone(), weights, options)?;
        let (engine, sink) = self.engine(&prepared, prepared.weights.copied_to(prepared.device)?)?;
        if let Some(sink) = sink {
            trainer.add_sink(sink);
        }
        let worker = Worker::start(self.agent.name.as_str(), Box::new(trainer))?;
        self.worker = Some(worker);
        let parent = match found {
            Some(path) => Some(self.load(&path).await?),
            None => {
                self.warm_start(&prepared).await?;
                None
            }
        };
        let lineage = self.agent.ledger.begin_lineage(parent).await?;
        self.lineages = self.agent.ledger.lineages().await?;
        self.version = WeightVersion {
            lineage,
            step: parent.map_or(0, |parent| parent.step),
        };
        self.replay = self.agent.ledger.recorded_batches(self.version.step).await?.into();
        self.replayed_to = self.replay.back().map_or(0, |batch| batch.step);
        if !self.replay.is_empty() {
            tracing::info!(batches = self.replay.len(), "training recorded batches again first");
        }
        self.publish().await?;
        self.agent.status.send_modify(|status| status.step = self.version.step);
        if parent.is_none() {
            self.checkpoint().await?;
        }
        Ok(engine)
    }

    /// The engine of this agent, and where published weights reach it.
    #[allow(clippy::type_complexity)]
    fn engine(
        &self,
        prepared: &Prepared,
        weights: trainer::model::Weights,
    ) -> anyhow::Result<(Arc<dyn EngineClient>, Option<Box<dyn trainer::weights::WeightSink>>)> {
        let name = self.agent.name.as_str();
        match self.settings.engine.kind {
            EngineKind::Embedded => {
                let options = EngineOptions::from(&self.settings.engine);
                let engine = Engine::new(&prepared.shape, Published::new(weights, self.version), options)?;
                let engine = EmbeddedEngine::start(name, engine, self.version, prepared.text.clone())?;
                let sink = engine.sink(prepared.device);
                Ok((engine, Some(sink)))
            }
            EngineKind::Scripted => {
                let engine = ScriptedEngine::new(words(&prepared.text), self.version);
                let sink = engine.sink();
                Ok((engine, Some(sink)))
            }
        }
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    pub(super) async fn execute(&mut self, command: impl FnOnce(u64) -> TrainCommand) -> anyhow::Result<TrainReply> {
        let seq = self.next_seq();
        let worker = self.worker.as_ref().context("this agent does not train")?;
        worker.execute(command(seq)).await
    }

    async fn load(&mut self, folder: &Path) -> anyhow::Result<WeightVersion> {
        let path = folder.display().to_string();
        tracing::info!(path, "going on from a checkpoint");
        let state = TrainerState::read(folder)?;
        self.execute(|seq| TrainCommand::LoadState { seq, path }).await?;
        self.saved = Some(state.step);
        version_of(&state).context("the checkpoint does not say which version it holds")
    }

    /// Cross-entropy on known answers, before version 0.
    async fn warm_start(&mut self, prepared: &Prepared) -> anyhow::Result<()> {
        let Some(config) = self.settings.train.warm_start.clone() else {
            return Ok(());
        };
        let mut source = warm::Batches::open(&config, &self.agent.config, &self.agent.name, prepared)?;
        tracing::info!(steps = config.steps, source = config.source, "warm start");
        let optimizer = OptimizerConfig {
            lr: config.lr,
            ..self.settings.train.optimizer
        };
        for step in 0..config.steps {
            let batch = source.next_batch()?;
            let loss = self.forward_backward(batch, Loss::CrossEntropy).await?;
            self.optim_step(&optimizer, config.lr).await?;
            if step % 50 == 0 || step + 1 == config.steps {
                tracing::info!(step, loss = loss.loss, "warm start");
            }
        }
        Ok(())
    }

    async fn forward_backward(&mut self, batch: TrainBatch, loss: Loss) -> anyhow::Result<LossStats> {
        match self
            .execute(|seq| TrainCommand::ForwardBackward { seq, batch, loss })
            .await?
        {
            TrainReply::Loss(stats) => Ok(stats),
            other => bail!("the trainer answered a loss with {other:?}"),
        }
    }

    async fn optim_step(&mut self, optimizer: &OptimizerConfig, lr: f64) -> anyhow::Result<(f64, bool)> {
        let params = OptimStep {
            lr,
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
            eps: optimizer.eps,
            weight_decay: optimizer.weight_decay,
            clip_norm: optimizer.clip_norm,
        };
        match self.execute(|seq| TrainCommand::OptimStep { seq, params }).await? {
            TrainReply::Step { grad_norm, skipped } => Ok((grad_norm, skipped)),
            other => bail!("the trainer answered a step with {other:?}"),
        }
    }

    async fn publish(&mut self) -> anyhow::Result<()> {
        let version = self.version;
        self.execute(|seq| TrainCommand::Publish { seq, version }).await?;
        Ok(())
    }

    /// Trains the batches again that a restart cut off.
    pub async fn catch_up(&mut self) -> anyhow::Result<()> {
        while !self.replay.is_empty() {
            self.step().await?;
        }
        Ok(())
    }

    /// Trains until the run is closed, then writes the last checkpoint and waits for the others.
    pub async fn run(mut self) -> anyhow::Result<()> {
        if self.agent.ledger.phase().await?.1 == RunPhase::Closed {
            tracing::info!("this run was closed before");
            self.agent.closing.notify_one();
        }
        if self.worker.is_some() {
            let mut changed = self.agent.changed.subscribe();
            loop {
                while self.step().await? {}
                tokio::select! {
                    changes = changed.changed() => changes?,
                    () = self.agent.closing.notified() => break,
                }
            }
            while self.step().await? {}
            self.end().await?;
        } else {
            self.agent.closing.notified().await;
        }
        self.agent.status.send_modify(|status| status.phase = RunPhase::Closed);
        self.agent.wait_for_others().await;
        Ok(())
    }

    /// Trains one batch if there is one.
    async fn step(&mut self) -> anyhow::Result<bool> {
        let lead = self.agent.config.lead() == Some(&self.agent.name);
        if lead && self.version.step >= self.agent.config.run.train_steps {
            return Ok(false);
        }
        let Some((bundles, batch)) = self.next_batch().await? else {
            return Ok(false);
        };
        let began = Instant::now();
        self.train(&bundles, batch, began).await?;
        Ok(true)
    }

    async fn next_batch(&mut self) -> anyhow::Result<Option<(Vec<Bundle>, Batch)>> {
        if let Some(recorded) = self.replay.front() {
            let groups: Vec<GroupId> = recorded.groups();
            let bundles = self.agent.ledger.payloads(groups).await?;
            self.replay.pop_front();
            return match self.form(&bundles, false) {
                Formed::Batch(batch) => Ok(Some((bundles, *batch))),
                Formed::More { .. } => bail!("a recorded batch does not form again: its payloads are missing"),
            };
        }
        // What is missing may be there already: a full buffer changes no more, and nothing would wake us.
        loop {
            let wanted = self.settings.train.batch_groups + self.discarded.len();
            let counts = self.agent.ledger.counts().await?;
            if (counts.ready as usize) < wanted {
                return Ok(None);
            }
            let mut bundles = self.agent.ledger.ready(wanted).await?;
            bundles.retain(|bundle| !self.discarded.contains(&bundle.group));
            match self.form(&bundles, true) {
                Formed::Batch(batch) => return Ok(Some((bundles, *batch))),
                Formed::More {
                    discarded, verdicts, ..
                } => {
                    self.discarded.extend(discarded);
                    self.zero.extend(verdicts);
                }
            }
        }
    }

    fn form(&self, bundles: &[Bundle], more: bool) -> Formed {
        let step = self.version.step;
        let lineages = &self.lineages;
        // Trained again in the same order, the batches of a dead branch lead to its very weights: up to the last of them
        // its steps are ours.
        let replayed = self.replayed_to;
        let position = |version: WeightVersion| lineages.project(version).max(version.step.min(replayed));
        let staleness = |version: WeightVersion| step.saturating_sub(position(version));
        form(
            bundles,
            &BatchContext {
                config: &self.settings.train,
                max_new_tokens: self.settings.sampling.max_new_tokens,
                current: self.version,
                staleness: &staleness,
                seed: batch_seed(self.agent.config.run.seed, self.agent.name.as_str(), step),
                drawn: self.discarded.len(),
                more,
            },
        )
    }

    async fn train(&mut self, bundles: &[Bundle], batch: Batch, began: Instant) -> anyhow::Result<()> {
        let next = WeightVersion {
            step: self.version.step + 1,
            ..self.version
        };
        // Everyone sees the new step before the batch's groups make room: see the heartbeat.
        self.agent.status.send_modify(|status| {
            status.step = next.step;
            status.reward = batch.stats.reward.get();
        });
        let verdicts = self
            .zero
            .drain(..)
            .chain(batch.verdicts.iter().cloned())
            .map(sample_verdict)
            .collect();
        self.discarded.clear();
        self.agent
            .ledger
            .record_batch(next.lineage, next.step, verdicts)
            .await?;
        self.agent.ledger_changed();
        let outcome = self.optimise(&batch).await?;
        self.version = next;
        self.publish().await?;
        self.report(bundles, &batch, &outcome, began);
        let every = self.settings.train.checkpoint_every;
        if every > 0 && next.step.is_multiple_of(every) {
            self.checkpoint().await?;
        }
        Ok(())
    }

    async fn optimise(&mut self, batch: &Batch) -> anyhow::Result<Outcome> {
        let config = &self.settings.train;
        let loss = match config.loss.kind {
            LossKind::CrossEntropy => Loss::CrossEntropy,
            LossKind::Grpo => Loss::Policy {
                clip_low: config.loss.clip_low as f32,
                clip_high: config.loss.clip_high as f32,
                kl_coef: config.kl.coef as f32,
                entropy_coef: entropy(config, self.version.step, self.agent.config.run.train_steps) as f32,
            },
        };
        let optimizer = config.optimizer;
        let lr = trainer::schedule::learning_rate(&optimizer, self.version.step, self.agent.config.run.train_steps);
        let mut outcome = Outcome {
            lr,
            ..Outcome::default()
        };
        for minibatch in &batch.minibatches {
            let stats = self.forward_backward(minibatch.clone(), loss).await?;
            let (grad_norm, skipped) = self.optim_step(&optimizer, lr).await?;
            outcome.add(&stats, grad_norm, skipped);
        }
        if outcome.on_policy_gap > RATIO_GAP {
            tracing::warn!(
                gap = outcome.on_policy_gap,
                step = self.version.step,
                "sampler and trainer disagree on-policy"
            );
        }
        Ok(outcome)
    }

    fn report(&mut self, bundles: &[Bundle], batch: &Batch, outcome: &Outcome, began: Instant) {
        let line = super::figures::train_line(&self.agent, self.version, bundles, batch, outcome, began);
        tracing::debug!(
            step = self.version.step,
            reward = batch.stats.reward.get(),
            loss = outcome.stats.loss,
            "trained a batch"
        );
        self.metrics.write(line);
    }

    async fn checkpoint(&mut self) -> anyhow::Result<()> {
        if self.saved == Some(self.version.step) {
            return Ok(());
        }
        let root = self.agent.folder.checkpoints(&self.agent.name);
        let path = root.display().to_string();
        let consumed = self.agent.ledger.consumed(self.version).await?;
        let meta = serde_json::json!({ "deterministic": { "consumed": consumed.digest } }).to_string();
        let saved = self.execute(|seq| TrainCommand::SaveState { seq, path, meta }).await;
        let reply = saved.context("writing a checkpoint")?;
        self.saved = Some(self.version.step);
        if let TrainReply::Saved { digest } = reply {
            tracing::info!(step = self.version.step, digest, "checkpoint");
            let line = Metrics::new("checkpoint", self.version.step).with("agent", self.agent.name.as_str());
            self.metrics.write(line.with("digest", digest));
        }
        self.prune(&root).await
    }

    /// Payloads that no retained checkpoint could ask for again are no longer needed.
    async fn prune(&self, root: &Path) -> anyhow::Result<()> {
        let retained = CheckpointStore::new(root, self.settings.train.keep_checkpoints).list()?;
        let versions: Vec<WeightVersion> = retained
            .iter()
            .filter_map(|checkpoint| version_of(&TrainerState::read(&checkpoint.folder).ok()?))
            .collect();
        if versions.len() == retained.len() {
            self.agent.ledger.prune(versions).await?;
        }
        Ok(())
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        self.checkpoint().await?;
        self.agent.ledger.set_phase(RunPhase::Closed).await?;
        self.metrics.flush();
        Ok(())
    }
}

/// What the optimizer steps of one batch came to.
#[derive(Debug, Default, Clone, Copy)]
pub struct Outcome {
    pub stats: LossStats,
    pub steps: u64,
    pub skipped: u64,
    pub grad_norm: f64,
    pub lr: f64,
    pub on_policy_gap: f64,
}

impl Outcome {
    fn add(&mut self, stats: &LossStats, grad_norm: f64, skipped: bool) {
        let sum = &mut self.stats;
        for (sum, one) in [
            (&mut sum.loss, stats.loss),
            (&mut sum.tokens, stats.tokens),
            (&mut sum.ratio, stats.ratio),
            (&mut sum.clipped, stats.clipped),
            (&mut sum.entropy, stats.entropy),
            (&mut sum.behaviour_kl, stats.behaviour_kl),
            (&mut sum.reference_kl, stats.reference_kl),
        ] {
            *sum += one;
        }
        sum.off_policy_gap = sum.off_policy_gap.max(stats.off_policy_gap);
        self.on_policy_gap = self.on_policy_gap.max(stats.on_policy_gap);
        self.steps += 1;
        self.skipped += u64::from(skipped);
        self.grad_norm = self.grad_norm.max(grad_norm);
    }
}

/// The entropy bonus at a step: linear from `entropy` to `entropy_final` over the run.
fn entropy(config: &configs::TrainConfig, step: u64, steps: u64) -> f64 {
    let done = (step as f64 / steps.max(1) as f64).min(1.0);
    config.entropy + (config.entropy_final.unwrap_or(config.entropy) - config.entropy) * done
}

fn version_of(state: &TrainerState) -> Option<WeightVersion> {
    state.version.map(|(lineage, step)| WeightVersion { lineage, step })
}

/// Every token that is no control token.
fn words(text: &rollout::text::TextCodec) -> Vec<u32> {
    (0..text.vocab_size() as u32)
        .filter(|id| !text.is_control(*id))
        .collect()
}

fn sample_verdict(verdict: BatchVerdict) -> SampleVerdict {
    SampleVerdict {
        group: verdict.group,
        member: verdict.member,
        role: verdict.role,
        seat: verdict.seat,
        verdict: match verdict.outcome {
            Ok(()) => Verdict::Trained,
            Err(discard) => Verdict::Discarded(discard.as_str().to_owned()),
        },
    }
}

fn batch_seed(run_seed: u64, agent: &str, step: u64) -> u64 {
    let digest = broker::ids::Digest::of(format!("batch/{run_seed}/{agent}/{step}").as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.0[..8]);
    u64::from_le_bytes(bytes)
}
