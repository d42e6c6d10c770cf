//! Names of settings in other programs, and the keys here that do the same.

/// Names in other programs (slime, miles, TRL, verl, OpenRLHF) and ours.
pub(super) const FOREIGN: &[(&[&str], &str)] = &[
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
