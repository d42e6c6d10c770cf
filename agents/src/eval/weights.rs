//! Finds the weights that an agent plays with: checkpoints, folders, runs at a step, or the initial
//! policy.

use std::path::{Path, PathBuf};

use anyhow::Context;
use broker::AgentName;
use configs::{AgentConfig, EngineKind, LoraConfig, ModelConfig, RunConfig};
use trainer::checkpoint::{self, CheckpointError, CheckpointStore, Manifest};
use trainer::model::Weights;

use crate::base::fault::Usage;
use crate::policy;
use crate::policy::Prepared;
use crate::run_folder::RunFolder;
use crate::run_folder::input_digests;

/// The chosen weights of an agent.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// `None`: the configuration's initial weights.
    folder: Option<PathBuf>,
    /// The run that they come from: it keeps the random model below an adapter.
    run: Option<RunFolder>,
    /// A description for people.
    pub label: String,
}

impl Chosen {
    /// Chooses the configuration's initial weights.
    ///
    /// # Errors
    /// Fails if the agent has a warm start, because its result exists only in a run.
    pub fn begins(config: &RunConfig, agent: &AgentName) -> anyhow::Result<Self> {
        let hint = "name a run of this configuration: --checkpoint AGENT=RUN@initial";
        refuse_warm(
            config,
            source(config, agent),
            "a configuration alone does not have it",
            hint,
        )?;
        Ok(Self {
            folder: None,
            run: None,
            label: "as the configuration begins".into(),
        })
    }

    /// Finds the weights for `--checkpoint AGENT=WHERE`. `text` is `initial`, a folder of weights,
    /// or a run below `runs`, with an optional `@N` or `@initial` for its step.
    ///
    /// # Errors
    /// Fails if nothing matches `text`, or if the weights are damaged.
    pub fn find(text: &str, runs: &Path, config: &RunConfig, agent: &AgentName) -> anyhow::Result<Self> {
        if text == "initial" {
            return Self::begins(config, agent);
        }
        let path = Path::new(text);
        let is_run = path.join("run.json").is_file();
        if path.is_dir() && !is_run {
            return Self::at(path);
        }
        let (run, at) = match text.rsplit_once('@') {
            Some((run, at)) if !is_run => (run, Some(at)),
            _ => (text, None),
        };
        let run = RunFolder::find(runs, run)
            .with_context(|| format!("finding the weights {text:?} of agent {agent}: neither a folder nor a run"))?;
        match at {
            None => Self::newest(&run, agent),
            Some("initial") => Self::initial(&run, agent),
            Some(step) => {
                let number = step.parse().map_err(|_| {
                    Usage::new(format!("{text:?}: {step:?} is not a step"))
                        .hint("write RUN@N with the step of a checkpoint, or RUN@initial")
                })?;
                Self::step(&run, agent, number)
            }
        }
    }

    /// Opens a folder with a checkpoint, a Hugging Face model, or a PEFT adapter.
    fn at(folder: &Path) -> anyhow::Result<Self> {
        if folder.join("manifest.json").is_file() {
            checkpoint::sound(folder).with_context(|| format!("reading the checkpoint {}", folder.display()))?;
        }
        Ok(Self {
            folder: Some(folder.to_owned()),
            run: owner(folder),
            label: folder.display().to_string(),
        })
    }

    /// Finds the agent's newest checkpoint. For an agent that does not train it is the initial
    /// policy, and for an agent that plays with another agent's past it is the other agent's
    /// checkpoint.
    ///
    /// # Errors
    /// Fails if there is no checkpoint, or if it is damaged.
    pub fn newest(run: &RunFolder, agent: &AgentName) -> anyhow::Result<Self> {
        Self::found(run, agent, false)
    }

    /// Finds the newest checkpoint that is not damaged, like [`Self::newest`].
    ///
    /// # Errors
    /// Fails if there is no undamaged checkpoint.
    pub fn last_good(run: &RunFolder, agent: &AgentName) -> anyhow::Result<Self> {
        Self::found(run, agent, true)
    }

    fn found(run: &RunFolder, agent: &AgentName, fall_back: bool) -> anyhow::Result<Self> {
        let config = run.config()?;
        let agent = source(&config, agent);
        if !trains(&config, agent)? {
            return Self::initial(run, agent);
        }
        match checkpoint::find(&run.checkpoints(agent), fall_back) {
            Ok(found) => Ok(Self::of_run(
                run,
                found.folder,
                &format!("step {}", found.manifest.step),
            )),
            Err(CheckpointError::None(root)) => Err(Usage::new(format!(
                "run {} has no checkpoint of agent {agent} in {}",
                run.run(),
                root.display()
            ))
            .into()),
            Err(error) => Err(error).with_context(|| format!("the newest checkpoint of {agent} in run {}", run.run())),
        }
    }

    /// Finds the agent's checkpoint of that step; for step 0, the initial policy.
    ///
    /// # Errors
    /// Fails if there is no such checkpoint, or if it is damaged.
    pub fn step(run: &RunFolder, agent: &AgentName, step: u64) -> anyhow::Result<Self> {
        let config = run.config()?;
        let agent = source(&config, agent);
        let mut kept = CheckpointStore::new(&run.checkpoints(agent), 1).list()?;
        let Some(found) = kept.iter().find(|kept| kept.manifest.step == step) else {
            if step == 0 {
                return Self::initial(run, agent);
            }
            kept.sort_by_key(|kept| kept.manifest.step);
            let steps: Vec<String> = kept.iter().map(|kept| kept.manifest.step.to_string()).collect();
            let steps = if steps.is_empty() {
                "none".into()
            } else {
                steps.join(", ")
            };
            let problem = format!("run {} keeps no checkpoint of agent {agent} at step {step}", run.run());
            return Err(Usage::new(problem)
                .hint(format!(
                    "kept steps: {steps}; train.checkpoint_every and train.keep_checkpoints decide which"
                ))
                .into());
        };
        checkpoint::sound(&found.folder)?;
        Ok(Self::of_run(run, found.folder.clone(), &format!("step {step}")))
    }

    /// Finds the run's initial policy, after its warm start. It was kept, or is computed again from
    /// the run's seed if there was no warm start.
    ///
    /// # Errors
    /// Fails for a run of an earlier release with a warm start, if its first checkpoint is gone.
    pub fn initial(run: &RunFolder, agent: &AgentName) -> anyhow::Result<Self> {
        let config = run.config()?;
        let agent = source(&config, agent);
        let kept = run.initial(agent);
        if kept.is_dir() {
            checkpoint::sound(&kept)?;
            return Ok(Self::of_run(run, kept, "as it began"));
        }
        if trains(&config, agent)? {
            let first = CheckpointStore::new(&run.checkpoints(agent), 1).list()?;
            if let Some(first) = first.iter().find(|kept| kept.manifest.step == 0) {
                checkpoint::sound(&first.folder)?;
                return Ok(Self::of_run(run, first.folder.clone(), "as it began"));
            }
            let hint = "use a checkpoint that the run keeps: the newest, or that of a step";
            refuse_warm(&config, agent, &format!("run {} has not kept it", run.run()), hint)?;
        } else {
            let hint = "begin the run: it keeps what the warm start makes";
            refuse_warm(&config, agent, &format!("run {} has not made it yet", run.run()), hint)?;
        }
        Ok(Self {
            folder: None,
            run: Some(run.clone()),
            label: format!("{} as it began", run.run()),
        })
    }

    fn of_run(run: &RunFolder, folder: PathBuf, what: &str) -> Self {
        Self {
            folder: Some(folder),
            run: Some(run.clone()),
            label: format!("{} {what}", run.run()),
        }
    }

    /// Prepares the policy with these weights, over the agent's settings in `config`. A random
    /// model that no run has kept is made in `scratch`.
    ///
    /// # Errors
    /// Fails if files cannot be read or do not fit each other.
    pub(super) fn prepare(&self, config: &RunConfig, agent: &AgentName, scratch: &Path) -> anyhow::Result<Prepared> {
        let Resolved {
            mut settings,
            seed,
            models,
        } = self.resolve(config, agent)?;
        // The policy is not trained here, so it is loaded in its serving dtype only, not in f32
        // too.
        settings.train.enabled = false;
        settings.train.warm_start = None;
        // The policy is served in this process, wherever the run's engines are.
        if settings.engine.kind != EngineKind::Scripted {
            settings.engine.kind = EngineKind::Embedded;
        }
        policy::prepare_in(place(models, scratch, seed), &settings, source(config, agent), seed)
    }

    /// Prepares the same weights as files, without a device.
    ///
    /// # Errors
    /// The same as [`Self::prepare`].
    pub fn files(&self, config: &RunConfig, agent: &AgentName, scratch: &Path) -> anyhow::Result<Files> {
        let Resolved { settings, seed, models } = self.resolve(config, agent)?;
        let (model, adapter) = policy::files_in(place(models, scratch, seed), &settings, source(config, agent), seed)?;
        // A checkpoint includes its tokenizer; an adapter from elsewhere may not.
        let own = self
            .folder
            .as_ref()
            .filter(|folder| folder.join("tokenizer.json").is_file());
        let tokenizer = own.unwrap_or(&model).clone();
        Ok(Files {
            model,
            adapter,
            adapter_folder: settings.lora.and_then(|lora| lora.path),
            tokenizer,
        })
    }

    /// The manifest of the checkpoint, if the weights come from one.
    pub fn manifest(&self) -> Option<Manifest> {
        Manifest::read(self.folder.as_ref()?).ok()
    }

    fn resolve(&self, config: &RunConfig, agent: &AgentName) -> anyhow::Result<Resolved<'_>> {
        // Random weights follow from the seed of the run that they come from.
        let kept = self.run.as_ref().map(RunFolder::config).transpose()?;
        let (seed, mut settings) = (
            kept.as_ref().map_or(config.run.seed, |kept| kept.run.seed),
            settings_of(config, agent)?.clone(),
        );
        if settings.engine.kind != EngineKind::Scripted {
            settings.engine.kind = EngineKind::Embedded;
        }
        // A run's weights belong to its own model, and its adapters to its own base.
        if let Some(theirs) = kept.as_ref().and_then(|kept| kept.agents.get(agent)) {
            (settings.model, settings.lora) = (theirs.model.clone(), theirs.lora.clone());
        }
        if let Some(folder) = &self.folder {
            if folder.join("adapter_config.json").is_file() {
                // An adapter of a random model fits only that model, which agents with adapters
                // store under another name.
                anyhow::ensure!(
                    settings.lora.is_some() || matches!(settings.model, ModelConfig::Path(_)),
                    "{} is an adapter, and the configuration trains the whole random model of {agent}",
                    folder.display()
                );
                settings.lora = Some(LoraConfig {
                    path: Some(folder.clone()),
                    ..LoraConfig::default()
                });
            } else {
                (settings.lora, settings.model) = (None, ModelConfig::Path(folder.clone()));
            }
        }
        let models = self
            .run
            .as_ref()
            .filter(|_| same_models(kept.as_ref(), agent, &settings));
        // A name on the Hub may point to another commit now than when the run began.
        if let Some(run) = models {
            settings.model = input_digests::models::pinned(run, agent, &settings.model)?;
        }
        Ok(Resolved { settings, seed, models })
    }
}

/// The files of chosen weights.
pub struct Files {
    /// The folder of the whole model, or of the base of `adapter`.
    pub model: PathBuf,
    pub adapter: Option<Weights>,
    /// The folder of `adapter`, unless it was newly made.
    pub adapter_folder: Option<PathBuf>,
    /// The folder of the tokenizer's files.
    pub tokenizer: PathBuf,
}

/// An agent's settings with the chosen weights.
struct Resolved<'a> {
    settings: AgentConfig,
    /// The seed of random weights.
    seed: u64,
    /// The run that keeps the random model, if the model belongs to that run.
    models: Option<&'a RunFolder>,
}

fn place(models: Option<&RunFolder>, scratch: &Path, seed: u64) -> impl Fn(&AgentName) -> PathBuf {
    move |model| models.map_or_else(|| scratch.join(format!("{model}-{seed}")), |run| run.model(model))
}

/// Returns true if the run made this agent's random model, and therefore keeps it in its folder.
fn same_models(kept: Option<&RunConfig>, agent: &AgentName, settings: &AgentConfig) -> bool {
    let theirs = kept.and_then(|kept| kept.agents.get(agent));
    let model = |settings: &AgentConfig| serde_json::to_value(&settings.model).ok();
    theirs.is_some_and(|theirs| model(theirs) == model(settings))
}

fn settings_of<'a>(config: &'a RunConfig, agent: &AgentName) -> anyhow::Result<&'a AgentConfig> {
    config
        .agents
        .get(agent)
        .ok_or_else(|| crate::base::fault::no_such_agent(agent, config))
}

/// The agent with the weights that `agent` plays with: itself, or the agent in its past opponent's
/// settings.
fn source<'a>(config: &'a RunConfig, agent: &'a AgentName) -> &'a AgentName {
    let past = config.agents.get(agent).and_then(|settings| settings.past.as_ref());
    past.map_or(agent, |past| &past.of)
}

fn trains(config: &RunConfig, agent: &AgentName) -> anyhow::Result<bool> {
    Ok(settings_of(config, agent)?.train.enabled)
}

fn refuse_warm(config: &RunConfig, agent: &AgentName, why: &str, hint: &str) -> anyhow::Result<()> {
    let train = &settings_of(config, agent)?.train;
    if train.warm_start.is_some() {
        let problem = format!("agent {agent} begins with what its warm start made of it, and {why}");
        return Err(Usage::new(problem).hint(hint).into());
    }
    Ok(())
}

/// The run with the folder that holds these weights.
fn owner(folder: &Path) -> Option<RunFolder> {
    let folder = folder.canonicalize().ok()?;
    let run = folder.ancestors().find(|path| path.join("run.json").is_file())?;
    RunFolder::open(run).ok()
}
