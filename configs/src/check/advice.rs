//! Advice for an unknown key: a misspelt neighbour, a key of another table, or the name in another
//! program.

use std::sync::OnceLock;

use toml::{Table, Value};

/// Names in other programs (slime, miles, TRL, verl, OpenRLHF) and ours.
const FOREIGN: &[(&[&str], &str)] = &[
    (
        &[
            "n_samples_per_prompt",
            "num_generations",
            "rollout_n",
            "n_rollouts",
            "n_responses",
            "n",
        ],
        "workflow.group_size",
    ),
    (
        &[
            "rollout_batch_size",
            "train_batch_size",
            "generation_batch_size",
            "per_device_train_batch_size",
            "batch_size",
        ],
        "agents.NAME.train.batch_groups (whole groups: tasks, not samples)",
    ),
    (
        &[
            "global_batch_size",
            "ppo_mini_batch_size",
            "mini_batch_size",
            "steps_per_generation",
        ],
        "agents.NAME.train.minibatches (optimizer steps per batch)",
    ),
    (
        &[
            "max_tokens_per_gpu",
            "ppo_max_token_len_per_gpu",
            "micro_train_batch_size",
            "ppo_micro_batch_size_per_gpu",
            "micro_batch_size",
            "gradient_accumulation_steps",
        ],
        "agents.NAME.train.micro_batch_tokens (tokens, not sequences; it never changes the result)",
    ),
    (
        &["num_iterations", "ppo_epochs", "max_epochs"],
        "agents.NAME.train.epochs",
    ),
    (
        &["num_rollout", "max_steps", "total_training_steps", "num_steps"],
        "run.train_steps",
    ),
    (
        &[
            "num_epoch",
            "num_epochs",
            "num_train_epochs",
            "total_epochs",
            "num_episodes",
        ],
        "tasks.epochs",
    ),
    (
        &[
            "rollout_max_response_len",
            "max_completion_length",
            "max_response_length",
            "generate_max_len",
            "max_tokens",
        ],
        "agents.NAME.sampling.max_new_tokens",
    ),
    (&["rollout_max_context_len"], "agents.NAME.sampling.max_context"),
    (&["rollout_temperature"], "agents.NAME.sampling.temperature"),
    (&["rollout_top_p"], "agents.NAME.sampling.top_p"),
    (&["rollout_top_k"], "agents.NAME.sampling.top_k"),
    (
        &["advantage_estimator", "adv_estimator", "scale_rewards"],
        "agents.NAME.train.advantage (\"loo\", \"grpo\", \"reinforce_plus_plus\" or \"reinforce_plus_plus_baseline\")",
    ),
    (
        &["eps_clip", "epsilon", "clip_ratio", "clip_ratio_low", "cliprange"],
        "agents.NAME.train.loss.clip_low (and loss.clip_high)",
    ),
    (
        &["eps_clip_high", "epsilon_high", "clip_ratio_high"],
        "agents.NAME.train.loss.clip_high",
    ),
    (
        &["algorithm", "algo", "rl_algorithm", "rl_algo", "objective"],
        "agents.NAME.train.loss.kind (and agents.NAME.train.advantage)",
    ),
    (&["loss_type", "loss_agg_mode"], "agents.NAME.train.loss.agg"),
    (
        &[
            "policy_loss",
            "loss_mode",
            "importance_sampling_level",
            "use_gspo",
            "enable_gspo",
        ],
        "agents.NAME.train.loss.kind (\"gspo\" for one ratio per answer, TRL's level \"sequence\"; \"m2po\"; \"cispo\"; ...)",
    ),
    (
        &[
            "m2_threshold",
            "m2po_threshold",
            "m2po_budget",
            "second_momentum_threshold",
            "tau_m2",
        ],
        "agents.NAME.train.loss.tau (with loss.kind = \"m2po\")",
    ),
    (
        &[
            "use_kl_in_reward",
            "kl_in_reward",
            "kl_penalty_location",
            "apply_kl_in_reward",
        ],
        "agents.NAME.train.kl.place (\"reward\")",
    ),
    (
        &["kl_estimator", "kl_loss_type", "kl_penalty", "kl_penalty_type"],
        "agents.NAME.train.kl.kind",
    ),
    (
        &[
            "advantage_normalization",
            "adv_norm",
            "whiten_advantages",
            "normalize_advantages",
        ],
        "agents.NAME.train.advantage (\"reinforce_plus_plus\": a z-score over the batch)",
    ),
    (
        &["use_decoupled_loss", "recompute_logprob", "recompute_logprobs"],
        "agents.NAME.train.loss.ratio (\"decoupled\")",
    ),
    (
        &["behav_imp_weight_cap", "tis_imp_ratio_cap"],
        "agents.NAME.train.loss.weight_cap, which acts with agents.NAME.train.loss.ratio = \"decoupled\" alone: write both",
    ),
    (&["ema_decay", "use_ema", "ema_beta"], "agents.NAME.train.ema.decay"),
    (
        &[
            "gradient_checkpointing",
            "activation_checkpointing",
            "enable_gradient_checkpointing",
            "recompute_granularity",
        ],
        "agents.NAME.train.checkpoint_activations",
    ),
    (
        &["kl_loss_coef", "kl_coef", "init_kl_coef", "beta", "use_kl_loss"],
        "agents.NAME.train.kl.coef",
    ),
    (
        &["entropy_coef", "entropy_coeff", "ent_coef"],
        "agents.NAME.train.entropy",
    ),
    (
        &["lr", "learning_rate", "actor_learning_rate"],
        "agents.NAME.train.optimizer.lr",
    ),
    (
        &["clip_grad", "max_grad_norm", "grad_clip", "max_norm"],
        "agents.NAME.train.optimizer.clip_norm",
    ),
    (
        &["lr_scheduler_type", "lr_decay_style", "lr_scheduler"],
        "agents.NAME.train.optimizer.schedule",
    ),
    (
        &["lr_warmup_steps", "lr_warmup_iters"],
        "agents.NAME.train.optimizer.warmup_steps",
    ),
    (
        &["lr_end", "eta_min", "min_learning_rate"],
        "agents.NAME.train.optimizer.min_lr",
    ),
    (&["adam_beta1"], "agents.NAME.train.optimizer.beta1"),
    (&["adam_beta2"], "agents.NAME.train.optimizer.beta2"),
    (&["adam_eps", "adam_epsilon"], "agents.NAME.train.optimizer.eps"),
    (
        &["dynamic_sampling_filter_path", "filter_groups"],
        "agents.NAME.train.zero_advantage = \"refill\"",
    ),
    (
        &["mask_truncated_completions", "overlong_filtering"],
        "agents.NAME.train.truncated = \"mask\"",
    ),
    (
        &["max_off_policy_steps", "max_head_offpolicyness", "staleness_threshold"],
        "agents.NAME.train.max_staleness",
    ),
    (
        &["save_interval", "save_steps", "save_freq"],
        "agents.NAME.train.checkpoint_every",
    ),
    (
        &["save_total_limit", "max_ckpt_num"],
        "agents.NAME.train.keep_checkpoints",
    ),
    (&["eval_interval", "eval_steps", "test_freq"], "eval.every"),
    (&["eval_prompt_data", "val_files", "eval_dataset"], "eval.source"),
    (
        &["prompt_data", "train_files", "dataset", "dataset_name", "train_dataset"],
        "tasks.source (\"jsonl:PATH\", \"parquet:PATH\", \"arrow:PATH\" or \"hf:FOLDER:SPLIT\")",
    ),
    (&["input_key", "prompt_key"], "tasks.prompt"),
    (&["label_key", "answer_key"], "tasks.label"),
    (&["rollout_shuffle", "shuffle_dataset"], "tasks.shuffle"),
    (&["max_samples"], "tasks.limit"),
    (
        &["max_turns", "max_tool_turns", "max_assistant_turns"],
        "workflow.tool_limits.turns",
    ),
    (&["rm_type", "reward_model", "reward_type"], "graders.NAME.kind"),
    (
        &["reward_funcs", "reward_weights"],
        "workflow.reward.ROLE (a weight for each named part)",
    ),
    (
        &[
            "hf_checkpoint",
            "model_name_or_path",
            "model_name",
            "pretrain",
            "model_path",
        ],
        "agents.NAME.model.path (a Hugging Face folder, or a name of the Hub)",
    ),
    (
        &["apply_chat_template_kwargs", "chat_template_kwargs", "enable_thinking"],
        "agents.NAME.template_args (a table, for example { enable_thinking = false })",
    ),
    (
        &["date_string", "strftime_now", "current_date", "today"],
        "agents.NAME.template_date (for example \"2026-11-23\", for templates that need the day)",
    ),
    (&["r", "lora_r", "lora_rank"], "agents.NAME.lora.rank"),
    (&["lora_alpha"], "agents.NAME.lora.alpha"),
    (
        &["target_modules", "lora_target_modules"],
        "agents.NAME.lora.targets (some of \"attn\", \"mlp\", \"unembed\")",
    ),
    (
        &["bf16", "fp16", "torch_dtype"],
        "agents.NAME.dtype (\"f32\" or \"bf16\")",
    ),
    (&["use_vllm"], "agents.NAME.engine.kind (\"vllm\")"),
    (
        &["ref_model", "ref_load", "reference_model"],
        "agents.NAME.train.kl.ref (the reference policy)",
    ),
    (
        &["over_sampling_batch_size"],
        "agents.NAME.train.zero_advantage = \"refill\"",
    ),
    (&["output_dir", "default_local_dir"], "run.folder"),
    (&["vocab", "vocab_size"], "agents.NAME.model.random.tokenizer"),
    (
        &["num_hidden_layers", "n_layers", "num_layers"],
        "agents.NAME.model.random.layers",
    ),
    (&["hidden_size", "d_model"], "agents.NAME.model.random.hidden"),
    (&["num_attention_heads", "n_heads"], "agents.NAME.model.random.heads"),
    (
        &["num_key_value_heads", "n_kv_heads"],
        "agents.NAME.model.random.kv_heads",
    ),
    (&["intermediate_size"], "agents.NAME.model.random.intermediate"),
    (&["tie_word_embeddings"], "agents.NAME.model.random.tied"),
    (
        &["max_position_embeddings", "context_length"],
        "agents.NAME.model.random.max_context",
    ),
    (
        &["gpus", "num_gpus", "actor_num_gpus_per_node", "tensor_parallel_size"],
        "agents.NAME.train.devices, a list for the trainer; an engine has one device",
    ),
];

/// A file with every key set. The known key paths are read from it.
const EVERYTHING: &str = include_str!("everything.toml");

/// Returns the advice for the unknown key at the end of `path`. `known` are the keys of its own
/// table.
pub(super) fn advice(path: &[String], known: &[&str]) -> String {
    let Some((key, table)) = path.split_last() else {
        return "is not known".into();
    };
    // `[defaults]` is merged before the table is read.
    let known = &[known, if table.is_empty() { &["defaults"] } else { &[] }].concat()[..];
    let key_folded = fold(key);
    let same = known.iter().copied().find(|name| fold(name) == key_folded);
    // The nearest name of a key with one or two letters is another key.
    let near = || nearest(key, known.iter().copied()).filter(|_| foreign(&key_folded).is_none());
    if let Some(meant) = same.or_else(near) {
        return format!("is not known here: did you mean {meant:?}?");
    }
    if let Some(ours) = foreign(&key_folded) {
        return format!("is not known: here it is {ours}");
    }
    if let Some(elsewhere) = elsewhere(&key_folded, table) {
        return format!("is not known here: it belongs at {elsewhere}");
    }
    if known.is_empty() {
        return "is not known here: remove it".into();
    }
    format!("is not known here: remove it, or write one of {}", known.join(", "))
}

/// Removes differences of case and hyphens, which do not change a name.
fn fold(key: &str) -> String {
    key.to_lowercase().replace(['-', '.', ' '], "_")
}

fn foreign(key: &str) -> Option<&'static str> {
    let found = FOREIGN.iter().find(|(theirs, _)| theirs.contains(&key));
    found.map(|(_, ours)| *ours)
}

/// Returns the path of the key in another table: one below `table` if there is one, and else one
/// that users write often.
fn elsewhere(key: &str, table: &[String]) -> Option<&'static str> {
    let parts = |path: &'static String| path.split('.').collect::<Vec<_>>();
    let shared = |path: &'static String| {
        let pairs = parts(path).into_iter().zip(table);
        pairs
            .take_while(|(ours, theirs)| *ours == "NAME" || ours == theirs)
            .count()
    };
    let found = known_paths().iter().filter(|path| path.rsplit('.').next() == Some(key));
    let rank = |path: &&'static String| {
        // Suites and warm starts repeat keys of other tables.
        let repeats = path.starts_with("eval.suites.") || path.contains(".warm_start.");
        (std::cmp::Reverse(shared(path)), repeats, parts(path).len())
    };
    found.min_by_key(rank).map(String::as_str)
}

/// Returns every key path, with NAME for the name of an agent, grader, tool or suite.
fn known_paths() -> &'static [String] {
    static PATHS: OnceLock<Vec<String>> = OnceLock::new();
    PATHS.get_or_init(|| {
        let mut paths = Vec::new();
        // A test checks that the file parses.
        collect("", &EVERYTHING.parse().unwrap_or_default(), &mut paths);
        paths
    })
}

fn collect(prefix: &str, table: &Table, paths: &mut Vec<String>) {
    for (key, value) in table {
        let name = if matches!(prefix, "agents" | "graders" | "tools" | "eval.suites") {
            "NAME"
        } else {
            key
        };
        let path = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}.{name}")
        };
        paths.push(path.clone());
        if let Value::Table(inner) = value {
            collect(&path, inner, paths);
        }
    }
}

/// Returns the name nearest to `key`, if at most a third of its characters differ (at least one
/// may).
pub fn nearest<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (key.chars().count() / 3).max(1);
    names
        .map(|name| (strsim::osa_distance(key, name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["batch_groups", "minibatches", "epochs"];
        assert_eq!(nearest("batch_group", names.into_iter()), Some("batch_groups"));
        assert_eq!(nearest("ephocs", names.into_iter()), Some("epochs"));
        assert_eq!(nearest("temperature", names.into_iter()), None);
    }

    #[test]
    fn every_key_that_is_advised_exists() {
        assert!(EVERYTHING.parse::<Table>().is_ok());
        let known = known_paths();
        for (_, ours) in FOREIGN {
            let path = ours.split([' ', ',']).next().unwrap_or_default();
            let path = path.replace("reward.ROLE", "reward");
            assert!(path == "not" || known.contains(&path), "{path}");
        }
    }

    #[test]
    fn other_programs_names_are_answered_with_ours() {
        for (theirs, ours) in [
            ("n_samples_per_prompt", "workflow.group_size"),
            ("rollout-batch-size", "train.batch_groups"),
            ("num_generations", "workflow.group_size"),
            ("max_tokens_per_gpu", "train.micro_batch_tokens"),
            ("importance_sampling_level", "train.loss.kind (\"gspo\""),
            ("m2_threshold", "train.loss.tau"),
            ("behav_imp_weight_cap", "loss.ratio = \"decoupled\""),
            ("tis_imp_ratio_cap", "loss.weight_cap"),
            ("tis_imp_ratio_cap", "loss.ratio = \"decoupled\""),
            ("use_kl_in_reward", "train.kl.place"),
            ("temperature", "agents.NAME.sampling.temperature"),
            ("apply-chat-template-kwargs", "agents.NAME.template_args"),
            ("date_string", "agents.NAME.template_date"),
        ] {
            let advice = advice(&[theirs.to_owned()], &["name", "seed"]);
            assert!(advice.contains(ours), "{theirs}: {advice}");
        }
    }

    #[test]
    fn key_of_another_table_is_found_near_its_place() {
        for (path, ours) in [
            ("agents.a.train.lr", "agents.NAME.train.optimizer.lr"),
            ("agents.a.lr", "agents.NAME.train.optimizer.lr"),
            ("agents.a.train.kind", "agents.NAME.train.loss.kind"),
            ("agents.a.train.temperature", "agents.NAME.sampling.temperature"),
            ("agents.a.lora.r", "agents.NAME.lora.rank"),
            ("agents.a.lora.target_modules", "agents.NAME.lora.targets"),
            ("run.group_size", "workflow.group_size"),
            ("defalts", "did you mean \"defaults\"?"),
        ] {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            let advice = advice(&path, &["seed", "rank", "alpha", "targets", "path"]);
            assert!(advice.contains(ours), "{path:?}: {advice}");
        }
    }
}
