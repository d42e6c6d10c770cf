//! What a configuration of the right shape may still say wrongly about one agent.

use std::time::Duration;

use super::below::Below;
use super::report::Report;
use super::{loss_rules, sampling_rules, template_rules};
use crate::{
    AgentConfig, AgentName, AlarmsConfig, DeviceName, EngineKind, History, LoraConfig, LossKind, ModelConfig,
    OptimizerConfig, RandomModel, RunConfig, Schedule, TokenizerConfig, TrainConfig,
};

/// A step of a sound engine may take so long on a machine that is busy.
const LEAST_STUCK: Duration = Duration::from_secs(1);
pub(super) fn agent(config: &RunConfig, name: &AgentName, agent: &AgentConfig, report: &mut Report) {
    let mut below = Below {
        report,
        path: format!("agents.{name}"),
    };
    sampling_rules::of_agent(agent, &mut below);
    match &agent.model {
        ModelConfig::Path(path) => {
            below.when(
                path.as_os_str().is_empty(),
                "model.path",
                "is empty: write the folder of a Hugging Face model, or its name such as \"Qwen/Qwen3-8B\"",
            );
        }
        ModelConfig::Random(model) => {
            below.compared(
                agent.sampling.max_new_tokens as usize >= model.max_context,
                "sampling.max_new_tokens",
                &["model"],
                format!(
                    "is {}, which leaves no room for a prompt in model.random.max_context = {}: write less, or give more context",
                    agent.sampling.max_new_tokens, model.max_context
                ),
            );
            below.compared(
                agent
                    .sampling
                    .max_context
                    .is_some_and(|cap| cap as usize > model.max_context),
                "sampling.max_context",
                &["model"],
                format!(
                    "is {}, more than model.random.max_context = {}: write that or less, or leave it out",
                    agent.sampling.max_context.unwrap_or(0),
                    model.max_context
                ),
            );
            below.path.push_str(".model.random");
            random_model(model, &mut below);
            below.path = format!("agents.{name}");
        }
        ModelConfig::Served(model) => {
            below.when(
                model.trim().is_empty(),
                "model.served",
                "is empty: write the name by which the server knows the model",
            );
        }
    }
    served(agent, &mut below);
    template_rules::args(&agent.template_args, &mut below);
    if let Some(lora) = &agent.lora {
        below.path.push_str(".lora");
        adapter(lora, &mut below);
        below.path = format!("agents.{name}");
    }
    below.at_least_one(agent.engine.replicas, "engine.replicas");
    below.at_least_one(agent.engine.slots, "engine.slots");
    below.at_least_one(agent.engine.prefill_tokens, "engine.prefill_tokens");
    below.compared(
        agent.engine.deterministic && agent.engine.kind.is_foreign(),
        "engine.deterministic",
        &["engine.kind"],
        "is for engines of our own: SGLang and vLLM have such a mode when they are started with it; remove it, or write engine.kind = \"embedded\"",
    );
    below.compared(
        agent.engine.deterministic && agent.device != DeviceName::Cpu,
        "engine.deterministic",
        &["device"],
        "is for CPUs: a GPU's kernels add in an order of their own; write device = \"cpu\", or remove it",
    );
    let stuck_after = agent.engine.stuck_after;
    below.when(
        !stuck_after.0.is_zero() && stuck_after.0 < LEAST_STUCK,
        "engine.stuck_after",
        format!("is {stuck_after}: a single step may take longer; write 1s or more, such as 10m, or 0s to never take an engine for stuck"),
    );
    warm_start(agent, &mut below);
    if agent.train.enabled {
        below.path.push_str(".train");
        train(&agent.train, &mut below);
        role_weights(config, name, &agent.train, &mut below);
        below.path.push_str(".optimizer");
        optimizer(&agent.train.optimizer, &mut below);
    }
}

/// What a server of messages keeps to itself cannot be trained here.
fn served(agent: &AgentConfig, below: &mut Below) {
    let kind = agent.engine.kind == EngineKind::Openai;
    let model = matches!(agent.model, ModelConfig::Served(_));
    below.compared(
        model && !kind,
        "model.served",
        &["engine.kind"],
        "names a model of a server that takes messages: write engine.kind = \"openai\" and engine.urls",
    );
    below.compared(
        kind && !model,
        "engine.kind",
        &["model"],
        "is \"openai\", whose servers have a model of their own: write model.served = \"its name there\" in the place of model",
    );
    below.compared(
        kind && agent.train.enabled,
        "train.enabled",
        &["engine.kind"],
        "must be false: a server that answers with texts alone shows no tokens and no weights to train; engine.kind = \"sglang\" or \"vllm\" do",
    );
    below.compared(
        kind && (agent.sampling.top_k != 0 || agent.sampling.min_p != 0.0),
        "sampling",
        &["engine.kind"],
        "has top_k or min_p, which the API of such servers does not know: leave them out",
    );
    below.compared(
        kind && agent.sampling.max_context.is_some_and(|cap| cap > 0),
        "sampling.max_context",
        &["engine.kind"],
        "counts tokens, which only the server knows of its model: leave it out, and start the server with the context it is to have",
    );
    below.compared(
        kind && agent.history != History::Keep,
        "history",
        &["engine.kind"],
        "must be \"keep\": what such a server said goes back to it as it was",
    );
    below.compared(
        kind && !agent.template_args.is_empty(),
        "template_args",
        &["engine.kind"],
        "is for a chat template of ours, and such a server renders with its own: remove it",
    );
    below.compared(
        kind && agent.template_date.is_some(),
        "template_date",
        &["engine.kind"],
        "is for a chat template of ours, and such a server renders with its own: remove it",
    );
    below.compared(
        kind && agent.lora.is_some(),
        "lora",
        &["engine.kind"],
        "is an adapter, and the server's weights are its own: remove it",
    );
}

fn adapter(lora: &LoraConfig, below: &mut Below) {
    below.at_least_one(lora.rank(), "rank");
    below.positive(lora.alpha(), "alpha");
    below.when(
        lora.targets().is_empty(),
        "targets",
        "is empty: write some of \"attn\", \"mlp\", \"unembed\"",
    );
    let shaped = lora.rank.is_some() || lora.alpha.is_some() || lora.targets.is_some();
    below.compared(
        lora.path.is_some() && shaped,
        "path",
        &["rank", "alpha", "targets"],
        "names an adapter that has a rank, alpha and targets of its own: write it alone, or leave it out",
    );
}

fn random_model(model: &RandomModel, below: &mut Below) {
    for (value, key) in [
        (model.layers, "layers"),
        (model.hidden, "hidden"),
        (model.heads, "heads"),
        (model.kv_heads.unwrap_or(1), "kv_heads"),
        (model.head_dim.unwrap_or(1), "head_dim"),
        (model.intermediate.unwrap_or(1), "intermediate"),
        (model.max_context, "max_context"),
    ] {
        below.at_least_one(value, key);
    }
    let (heads, kv_heads) = (model.heads.max(1), model.kv_heads.unwrap_or(model.heads).max(1));
    below.compared(
        !heads.is_multiple_of(kv_heads),
        "kv_heads",
        &["heads"],
        format!(
            "is {kv_heads}, which does not divide heads = {heads}: each key/value head serves a whole number of heads"
        ),
    );
    let split = model.head_dim.is_none();
    below.compared(
        split && !model.hidden.is_multiple_of(heads),
        "hidden",
        &["heads", "head_dim"],
        format!(
            "is {}, which heads = {heads} does not divide: write a multiple, or give head_dim",
            model.hidden
        ),
    );
    let head_dim = model.head_dim.unwrap_or(model.hidden / heads);
    below.compared(
        !head_dim.is_multiple_of(2) && (!split || model.hidden.is_multiple_of(heads)),
        "head_dim",
        &["heads", "hidden"],
        format!("is {head_dim}, which is odd: rotary positions turn pairs of numbers, so it must be even"),
    );
    below.not_negative(model.embedding_std, "embedding_std");
    below.not_negative(model.matrix_std, "matrix_std");
    below.positive(model.rope_theta.unwrap_or(1.0), "rope_theta");
    if let TokenizerConfig::Words(words) = &model.tokenizer {
        let mut seen = std::collections::BTreeSet::new();
        let twice = words.iter().find(|word| !seen.insert(word.as_str()));
        let split = words
            .iter()
            .find(|word| word.is_empty() || word.contains(char::is_whitespace));
        below.when(
            words.is_empty(),
            "tokenizer.words",
            "is empty: list the words the model may read and say",
        );
        if let Some(word) = twice {
            below.when(
                true,
                "tokenizer.words",
                format!("has {word:?} twice: each word is one token"),
            );
        }
        if let Some(word) = split {
            below.when(
                true,
                "tokenizer.words",
                format!("has {word:?}: texts are split at white space, so a word has none and is not empty"),
            );
        }
    }
}

fn train(train: &TrainConfig, below: &mut Below) {
    for (value, key) in [
        (train.batch_groups, "batch_groups"),
        (train.minibatches, "minibatches"),
        (train.epochs, "epochs"),
        (train.micro_batch_tokens, "micro_batch_tokens"),
        (train.keep_checkpoints, "keep_checkpoints"),
    ] {
        below.at_least_one(value, key);
    }
    below.compared(
        train.minibatches > train.batch_groups.max(1),
        "minibatches",
        &["batch_groups"],
        format!(
            "is {}, more than batch_groups = {}: a batch is split by whole groups",
            train.minibatches, train.batch_groups
        ),
    );
    loss_rules::check(train, below);
    alarms(&train.alarms, below);
    alarms_of_imitation(train, below);
}

/// `jsonl:PATH` or `generator:KIND`.
fn is_source(source: &str) -> bool {
    let kinds = ["jsonl:", "generator:"];
    kinds
        .iter()
        .any(|kind| source.strip_prefix(kind).is_some_and(|rest| !rest.trim().is_empty()))
}

/// Of agents that train, and of partners that are frozen after it.
fn warm_start(agent: &AgentConfig, below: &mut Below) {
    let Some(warm) = &agent.train.warm_start else { return };
    below.at_least_one(warm.steps as usize, "train.warm_start.steps");
    below.at_least_one(warm.batch, "train.warm_start.batch");
    below.positive(warm.lr, "train.warm_start.lr");
    below.when(
        !is_source(&warm.source),
        "train.warm_start.source",
        format!(
            "{:?} is not understood: write \"jsonl:PATH\" or \"generator:KIND\"",
            warm.source
        ),
    );
    below.compared(
        !agent.train.enabled && agent.engine.kind.is_foreign() && agent.lora.is_none(),
        "train.warm_start",
        &["train.enabled", "engine.kind"],
        "changes weights that the servers of a frozen agent are never sent: leave it out, or write engine.kind = \"embedded\"",
    );
}

fn alarms(alarms: &AlarmsConfig, below: &mut Below) {
    for (part, key) in [(alarms.repetition, "repetition"), (alarms.sameness, "sameness")] {
        below.when(
            part.is_some_and(|part| !(0.0..=1.0).contains(&part)),
            &format!("alarms.{key}"),
            "is no part: write a number from 0.0 to 1.0",
        );
    }
    for (limit, key) in [
        (alarms.least_tokens, "least_tokens"),
        (alarms.most_tokens, "most_tokens"),
        (alarms.entropy, "entropy"),
    ] {
        below.not_negative(limit.unwrap_or(0.0), &format!("alarms.{key}"));
    }
    if let (Some(least), Some(most)) = (alarms.least_tokens, alarms.most_tokens) {
        below.compared(
            least > most,
            "alarms.least_tokens",
            &["alarms.most_tokens"],
            format!("is {least}, more than alarms.most_tokens = {most}: one of the two would always ring; write less"),
        );
    }
}

/// Under cross-entropy a batch holds known answers in the place of what the policy said.
fn alarms_of_imitation(train: &TrainConfig, below: &mut Below) {
    let alarms = &train.alarms;
    for (limit, key) in [
        (alarms.repetition, "repetition"),
        (alarms.sameness, "sameness"),
        (alarms.least_tokens, "least_tokens"),
        (alarms.most_tokens, "most_tokens"),
    ] {
        below.compared(
            limit.is_some() && train.loss.kind == LossKind::CrossEntropy,
            &format!("alarms.{key}"),
            &["loss", "loss.kind"],
            "watches what is trained on, which under loss.kind = \"cross_entropy\" are the known answers and not what the policy said: remove it; alarms.entropy and eval.floors watch the policy itself",
        );
    }
}

fn role_weights(config: &RunConfig, name: &AgentName, train: &TrainConfig, below: &mut Below) {
    for (role, weight) in &train.role_weights {
        let key = format!("role_weights.{role}");
        below.not_negative(*weight, &key);
        let plays = config.workflow.roles.get(role) == Some(name);
        if below.report.trusts("workflow.roles") && below.report.trusts(&format!("workflow.roles.{role}")) {
            below.when(
                !plays,
                &key,
                format!("{name} does not play {role:?}: see [workflow.roles]"),
            );
        }
    }
}

fn optimizer(optimizer: &OptimizerConfig, below: &mut Below) {
    below.positive(optimizer.lr, "lr");
    below.positive(optimizer.eps, "eps");
    below.not_negative(optimizer.weight_decay, "weight_decay");
    below.not_negative(optimizer.clip_norm, "clip_norm");
    min_lr(optimizer, below);
    for (beta, key) in [(optimizer.beta1, "beta1"), (optimizer.beta2, "beta2")] {
        below.when(
            !(0.0..1.0).contains(&beta),
            key,
            format!("is {beta}: write a number from 0 to below 1"),
        );
    }
}

fn min_lr(optimizer: &OptimizerConfig, below: &mut Below) {
    let (least, lr) = (optimizer.min_lr, optimizer.lr);
    below.not_negative(least, "min_lr");
    below.compared(
        least > lr,
        "min_lr",
        &["lr"],
        format!("is {least}, more than lr = {lr}, from which the schedule falls: write less"),
    );
    below.compared(
        least > 0.0 && optimizer.schedule == Schedule::Constant,
        "min_lr",
        &["schedule"],
        "is where a schedule ends, while schedule is \"constant\": write schedule = \"cosine\" or \"linear\", or leave it out",
    );
}
