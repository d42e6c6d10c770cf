//! Rules for one agent: engine, training, warm start, alarms, optimizer.

use std::time::Duration;

use super::below::Below;
use super::report::Report;
use super::{loss_rules, model_rules, sampling_rules, template_rules};
use crate::{
    AgentConfig, AgentName, AlarmsConfig, DeviceName, LossKind, Offload, OptimizerConfig, RunConfig, Schedule, Shard,
    TrainConfig,
};

/// Least value of `stuck_after`. One step of a healthy engine may take this long on a busy machine.
const LEAST_STUCK: Duration = Duration::from_secs(1);

/// Checks `[agents.NAME]`.
pub(super) fn agent(config: &RunConfig, name: &AgentName, agent: &AgentConfig, report: &mut Report) {
    let mut below = Below {
        report,
        path: format!("agents.{name}"),
    };
    sampling_rules::of_agent(agent, &mut below);
    model_rules::all(agent, &mut below);
    template_rules::args(&agent.template_args, &mut below);
    engine(agent, &mut below);
    warm_start(agent, &mut below);
    devices(agent, &mut below);
    external(agent, &mut below);
    if agent.train.enabled {
        below.path.push_str(".train");
        train(&agent.train, &mut below);
        role_weights(config, name, &agent.train, &mut below);
        below.path.push_str(".optimizer");
        optimizer(&agent.train.optimizer, &mut below);
    }
}

/// Checks `engine`, for keys of every kind.
fn engine(agent: &AgentConfig, below: &mut Below) {
    below.at_least_one(agent.engine.replicas, "engine.replicas");
    below.at_least_one(agent.engine.slots, "engine.slots");
    below.at_least_one(agent.engine.prefill_tokens, "engine.prefill_tokens");
    below.compared(
        agent.engine.deterministic && agent.engine.kind.is_foreign(),
        "engine.deterministic",
        &["engine.kind"],
        "is for dyad's engines: SGLang and vLLM have such a mode as an option at their start; remove it, or write engine.kind = \"embedded\"",
    );
    below.compared(
        agent.engine.deterministic && agent.device != DeviceName::Cpu,
        "engine.deterministic",
        &["device"],
        "is for CPUs: the kernels of a GPU add in another order; write device = \"cpu\", or remove it",
    );
    let stuck_after = agent.engine.stuck_after;
    below.when(
        !stuck_after.0.is_zero() && stuck_after.0 < LEAST_STUCK,
        "engine.stuck_after",
        format!("is {stuck_after}: a single step may take longer; write 1s or more, for example 10m, or 0s to turn the check off"),
    );
}

/// Checks the ranks of the trainer.
fn devices(agent: &AgentConfig, below: &mut Below) {
    let train = &agent.train;
    below.compared(
        train.devices.first().is_some_and(|first| *first != agent.device),
        "train.devices",
        &["device"],
        format!(
            "does not begin with {}: the agent's own process is the first rank; write its device first",
            agent.device
        ),
    );
    let gpus = train
        .devices
        .iter()
        .filter(|device| **device != DeviceName::Cpu)
        .count();
    below.when(
        gpus > 0 && gpus < train.devices.len(),
        "train.devices",
        "mixes CPU and GPUs: every step would wait for the CPU; write devices of one kind",
    );
    below.compared(
        train.devices.len() > 1 && !train.enabled,
        "train.devices",
        &["train.enabled"],
        "is for agents that train: remove it, or write train.enabled = true",
    );
    below.compared(
        train.enabled && train.shard != Shard::None && train.devices.is_empty(),
        "train.shard",
        &["train.devices"],
        "needs several ranks to split the state among: write train.devices, for example [\"cuda:0\", \"cuda:1\"], or remove it",
    );
    below.compared(
        matches!(train.shard, Shard::Gradient | Shard::Full) && !train.checkpoint_activations,
        "train.shard",
        &["train.checkpoint_activations"],
        "splits the gradient of one layer after another: write train.checkpoint_activations = true, or train.shard = \"optimizer\"",
    );
    below.compared(
        train.shard == Shard::Full && agent.lora.is_some(),
        "train.shard",
        &["lora"],
        "does not split the base of an adapter: write train.shard = \"gradient\", or remove lora",
    );
}

/// Rejects what an external trainer does not have.
fn external(agent: &AgentConfig, below: &mut Below) {
    let train = &agent.train;
    if !train.is_external() {
        return;
    }
    below.compared(
        !train.enabled,
        "train.command",
        &["train.enabled"],
        "is for agents that train: remove it, or write train.enabled = true",
    );
    let split = !train.devices.is_empty() || train.shard != Shard::None || train.offload != Offload::None;
    let joint = matches!(train.loss.kind, LossKind::M2po | LossKind::Gspo);
    for (wrong, other, what) in [
        (agent.lora.is_some(), "lora", "adapters"),
        (train.ema.is_some(), "train.ema", "averages of the weights"),
        (joint, "train.loss.kind", "losses of many tokens (m2po, gspo)"),
        (
            split,
            "train.devices",
            "train.devices, shard and offload (its command chooses its devices)",
        ),
    ] {
        let message = format!("starts an external trainer, which does not support {what}: remove one of the two");
        below.compared(wrong, "train.command", &[other], message);
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
            "is {}, more than batch_groups = {}: a batch is split into whole groups",
            train.minibatches, train.batch_groups
        ),
    );
    loss_rules::check(train, below);
    alarms(&train.alarms, below);
    alarms_of_imitation(train, below);
}

/// Returns true for `jsonl:PATH` and `generator:KIND`.
fn is_source(source: &str) -> bool {
    let kinds = ["jsonl:", "generator:"];
    kinds
        .iter()
        .any(|kind| source.strip_prefix(kind).is_some_and(|rest| !rest.trim().is_empty()))
}

/// Checks the warm start, of agents that train and of frozen partners.
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
        "changes weights, but servers of a frozen agent never receive weights: remove it, or write engine.kind = \"embedded\"",
    );
}

fn alarms(alarms: &AlarmsConfig, below: &mut Below) {
    for (part, key) in [(alarms.repetition, "repetition"), (alarms.sameness, "sameness")] {
        below.when(
            part.is_some_and(|part| !(0.0..=1.0).contains(&part)),
            &format!("alarms.{key}"),
            "is not a fraction: write a number from 0.0 to 1.0",
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
            format!("is {least}, more than alarms.most_tokens = {most}: one of the two would always warn; write less"),
        );
    }
}

/// Checks alarms under cross-entropy: a batch then holds known answers in place of samples.
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
            "checks the trained texts, which with loss.kind = \"cross_entropy\" are known answers and not samples: remove it; alarms.entropy and eval.floors check the policy itself",
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
        least > lr && lr > 0.0,
        "min_lr",
        &["lr"],
        format!("is {least}, more than lr = {lr}, from which the schedule falls: write less"),
    );
    below.compared(
        least > 0.0 && optimizer.schedule == Schedule::Constant,
        "min_lr",
        &["schedule"],
        "is where a schedule ends, but schedule is \"constant\": write schedule = \"cosine\" or \"linear\", or remove it",
    );
}
