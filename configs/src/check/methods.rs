//! Training methods by their names in papers and other programs, with the settings that make them
//! here.

/// A published method.
#[derive(Debug)]
pub(crate) struct Method {
    /// Name of the method in its paper.
    pub(crate) title: &'static str,
    /// Names that users write, in the form of [`fold`].
    pub(crate) names: &'static [&'static str],
    /// Settings below an agent's `train` that make the method. Empty for a method that is not
    /// available.
    pub(crate) keys: &'static [&'static str],
    /// Further facts. For a method that is not available: the alternative.
    pub(crate) note: &'static str,
}

/// The known methods. The generated reference has the same table.
pub(crate) const METHODS: &[Method] = &[
    Method {
        title: "PPO",
        names: &["ppo", "ppoclip", "vanilla"],
        keys: &["loss.kind = \"grpo\"", "loss.clip_low = 0.2", "loss.clip_high = 0.2"],
        note: "the clipped ratio; there is no critic, and advantage sets the baseline of a group",
    },
    Method {
        title: "GRPO",
        names: &["grpo"],
        keys: &[
            "advantage = \"grpo\"",
            "loss.kind = \"grpo\"",
            "loss.agg = \"sequence\"",
        ],
        note: "its KL is kl.coef, 0.04 as published",
    },
    Method {
        title: "Dr. GRPO",
        names: &["drgrpo"],
        keys: &["advantage = \"loo\"", "loss.kind = \"grpo\"", "loss.agg = \"constant\""],
        note: "\"loo\" is the reward minus the group's mean, times n / (n - 1) for n conversations",
    },
    Method {
        title: "DAPO",
        names: &["dapo"],
        keys: &[
            "advantage = \"grpo\"",
            "loss.kind = \"grpo\"",
            "loss.clip_low = 0.2",
            "loss.clip_high = 0.28",
            "loss.agg = \"token\"",
            "zero_advantage = \"refill\"",
        ],
        note: "\"refill\" needs run.mode = \"async\"; its penalty on long answers is workflow.shaping.ROLE.overlong",
    },
    Method {
        title: "BNPO",
        names: &["bnpo"],
        keys: &["advantage = \"grpo\"", "loss.kind = \"grpo\"", "loss.agg = \"token\""],
        note: "TRL's name for a mean over all tokens",
    },
    Method {
        title: "RLOO",
        names: &["rloo", "loo"],
        keys: &["advantage = \"loo\"", "loss.kind = \"importance_sampling\""],
        note: "its KL is in the loss: kl.coef, with kl.kind = \"k2\"",
    },
    Method {
        title: "GSPO",
        names: &["gspo"],
        keys: &[
            "advantage = \"grpo\"",
            "loss.kind = \"gspo\"",
            "loss.clip_low = 3e-4",
            "loss.clip_high = 4e-4",
            "loss.agg = \"sequence\"",
        ],
        note: "one ratio for each answer",
    },
    Method {
        title: "CISPO",
        names: &["cispo"],
        keys: &[
            "advantage = \"grpo\"",
            "loss.kind = \"cispo\"",
            "loss.clip_low = 1.0",
            "loss.clip_high = 4.0",
            "loss.agg = \"token\"",
        ],
        note: "a token weighs at most 1 + clip_high",
    },
    Method {
        title: "DRO",
        names: &["dro"],
        keys: &["loss.kind = \"dro\"", "loss.beta = 0.05"],
        note: "advantage replaces its value function",
    },
    Method {
        title: "M2PO",
        names: &["m2po"],
        keys: &["advantage = \"grpo\"", "loss.kind = \"m2po\"", "loss.tau = 0.04"],
        note: "loss.mode selects the variant",
    },
    Method {
        title: "REINFORCE",
        names: &["reinforce", "pg", "policygradient", "vpg"],
        keys: &["advantage = \"loo\"", "loss.kind = \"importance_sampling\""],
        note: "on-policy it has the same gradient; the baseline is the mean of the task's other conversations",
    },
    Method {
        title: "REINFORCE++",
        names: &["reinforce++", "reinforcepp", "reinforceplusplus", "rpp"],
        keys: &[
            "advantage = \"reinforce_plus_plus\"",
            "loss.kind = \"grpo\"",
            "kl = { coef = 0.01, kind = \"k1\", place = \"reward\" }",
        ],
        note: "remove kl for no KL; workflow.group_size = 1 is enough",
    },
    Method {
        title: "REINFORCE++-baseline",
        names: &[
            "reinforce++baseline",
            "reinforceppbaseline",
            "reinforceplusplusbaseline",
        ],
        keys: &["advantage = \"reinforce_plus_plus_baseline\"", "loss.kind = \"grpo\""],
        note: "its KL is kl.coef, with kl.kind = \"k2\"",
    },
    Method {
        title: "Decoupled PPO",
        names: &["decoupled", "decoupledppo", "areal"],
        keys: &["loss.kind = \"grpo\"", "loss.ratio = \"decoupled\""],
        note: "for batches of stale samples that are trained in several steps",
    },
    Method {
        title: "DPO, IPO, KTO, ORPO, SimPO, CPO",
        names: &["dpo", "ipo", "kto", "orpo", "simpo", "cpo"],
        keys: &[],
        note: "agents learn from rewards of their answers and not from pairs of answers; a judge can compare them (graders.NAME.kind = \"judge\")",
    },
    Method {
        title: "GAE, A2C, A3C, V-trace",
        names: &["gae", "a2c", "a3c", "vtrace"],
        keys: &[],
        note: "there is no critic; advantage compares the conversations of a task (\"loo\", \"grpo\") or of a batch (\"reinforce_plus_plus\")",
    },
];

/// Returns the settings of the method that users call `name`, or `None` for an unknown name.
pub(super) fn written(name: &str) -> Option<String> {
    let folded = fold(name);
    let method = METHODS.iter().find(|method| method.names.contains(&folded.as_str()))?;
    let Method { title, keys, note, .. } = method;
    Some(if keys.is_empty() {
        format!("there is no {name} here: {note}")
    } else {
        format!("write {title} below an agent's train as {} ({note})", keys.join(", "))
    })
}

/// Returns the name in `known` that equals `word` except for case and hyphens.
pub(super) fn same<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known.iter().copied().find(|name| fold(name) == fold(word))
}

/// Removes case, hyphens and dots, which do not change a name.
fn fold(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_alphanumeric() || *c == '+');
    kept.flat_map(char::to_lowercase).collect()
}
