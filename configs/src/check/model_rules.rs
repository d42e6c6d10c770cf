//! Rules for an agent's model and adapter, and for models behind servers of messages.

use super::below::Below;
use crate::{AgentConfig, Dtype, EngineKind, History, LoraConfig, ModelConfig, RandomModel, TokenizerConfig};

/// Checks `model` and `lora`.
pub(super) fn all(agent: &AgentConfig, below: &mut Below) {
    match &agent.model {
        ModelConfig::Path(path) => below.when(
            path.as_os_str().is_empty(),
            "model.path",
            "is empty: write the folder of a Hugging Face model, or its name, for example \"Qwen/Qwen3-8B\"",
        ),
        ModelConfig::Random(model) => {
            context(agent, model, below);
            cache(agent, model, below);
            let mut below = Below {
                report: &mut *below.report,
                path: format!("{}.model.random", below.path),
            };
            random_model(model, &mut below);
        }
        ModelConfig::Served(model) => below.when(
            model.trim().is_empty(),
            "model.served",
            "is empty: write the name by which the server knows the model",
        ),
    }
    served(agent, below);
    if let Some(lora) = &agent.lora {
        let mut below = Below {
            report: &mut *below.report,
            path: format!("{}.lora", below.path),
        };
        adapter(lora, &mut below);
    }
}

/// Checks that sampling leaves room in the context of a random model.
fn context(agent: &AgentConfig, model: &RandomModel, below: &mut Below) {
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
            "is {}, more than model.random.max_context = {}: write that or less, or remove it",
            agent.sampling.max_context.unwrap_or(0),
            model.max_context
        ),
    );
}

/// The engine takes room for rows in steps of this many tokens.
const SLOT: usize = 64;

/// Checks that a bounded cache holds one row of a random model.
fn cache(agent: &AgentConfig, model: &RandomModel, below: &mut Below) {
    let engine = &agent.engine;
    let limit = agent.sampling.max_context.filter(|limit| *limit > 0);
    let tokens = limit.map_or(model.max_context, |limit| model.max_context.min(limit as usize));
    let width = match agent.dtype {
        Dtype::F32 => 4,
        Dtype::Bf16 => 2,
    };
    let head = model.head_dim.unwrap_or(model.hidden / model.heads.max(1));
    let sizes = [
        2,
        model.layers,
        model.kv_heads.unwrap_or(model.heads),
        head,
        width,
        tokens.next_multiple_of(SLOT),
    ];
    let needed = sizes.into_iter().fold(1, usize::saturating_mul).div_ceil(1 << 20);
    below.compared(
        (1..needed).contains(&engine.cache_mib) && !engine.kind.is_foreign(),
        "engine.cache_mib",
        &["model", "sampling.max_context", "dtype"],
        format!(
            "is {}, and a row of {tokens} tokens needs {needed}: write that or more, or a lower sampling.max_context",
            engine.cache_mib
        ),
    );
}

/// Checks an agent with a server of messages. Such a server hides its tokens and weights.
fn served(agent: &AgentConfig, below: &mut Below) {
    let kind = agent.engine.kind == EngineKind::Openai;
    let model = matches!(agent.model, ModelConfig::Served(_));
    below.compared(
        model && !kind,
        "model.served",
        &["engine.kind"],
        "names a model of a server that accepts messages: write engine.kind = \"openai\" and engine.urls",
    );
    below.compared(
        kind && !model,
        "engine.kind",
        &["model"],
        "is \"openai\", a server with its own model: replace model by model.served = \"its name there\"",
    );
    below.compared(
        kind && agent.train.enabled,
        "train.enabled",
        &["engine.kind"],
        "must be false: a server that returns only text has no tokens or weights to train; engine.kind = \"sglang\" and \"vllm\" have them",
    );
    below.compared(
        kind && (agent.sampling.top_k != 0 || agent.sampling.min_p != 0.0),
        "sampling",
        &["engine.kind"],
        "has top_k or min_p, which the API of such servers does not have: remove them",
    );
    below.compared(
        kind && agent.sampling.max_context.is_some_and(|cap| cap > 0),
        "sampling.max_context",
        &["engine.kind"],
        "counts tokens, which only the server knows: remove it, and start the server with the context you need",
    );
    below.compared(
        kind && agent.history != History::Keep,
        "history",
        &["engine.kind"],
        "must be \"keep\": such a server receives its earlier answers unchanged",
    );
    below.compared(
        kind && !agent.template_args.is_empty(),
        "template_args",
        &["engine.kind"],
        "is for our chat templates, but such a server uses its own: remove it",
    );
    below.compared(
        kind && agent.chat_template.is_some(),
        "chat_template",
        &["engine.kind"],
        "is a chat template, but such a server uses its own: remove it",
    );
    below.compared(
        kind && agent.template_date.is_some(),
        "template_date",
        &["engine.kind"],
        "is for our chat templates, but such a server uses its own: remove it",
    );
    below.compared(
        kind && agent.lora.is_some(),
        "lora",
        &["engine.kind"],
        "is an adapter, but the server keeps its own weights: remove it",
    );
}

fn adapter(lora: &LoraConfig, below: &mut Below) {
    below.at_least_one(lora.rank(), "rank");
    below.at_most(lora.rank(), LoraConfig::LARGEST_RANK, "rank");
    below.positive(lora.alpha(), "alpha");
    let is_whole = below.report.is_whole(&format!("{}.targets", below.path));
    below.when(
        lora.targets().is_empty() && is_whole,
        "targets",
        "is empty: write some of \"attn\", \"mlp\", \"unembed\"",
    );
    let shaped = lora.rank.is_some() || lora.alpha.is_some() || lora.targets.is_some();
    below.compared(
        lora.path.is_some() && shaped,
        "path",
        &["rank", "alpha", "targets"],
        "names an adapter with its own rank, alpha and targets: write only path, or remove it",
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
        let most = match key {
            "layers" => RandomModel::MOST_LAYERS,
            _ => RandomModel::LARGEST,
        };
        below.at_most(value, most, key);
    }
    let parameters = model.parameters_of_layers();
    below.compared(
        parameters > RandomModel::MOST_PARAMETERS,
        "hidden",
        &["layers", "heads", "kv_heads", "head_dim", "intermediate"],
        format!("and the other sizes make {parameters} parameters, more than any model has: write smaller ones"),
    );
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
            "is {}, which heads = {heads} does not divide: write a multiple, or set head_dim",
            model.hidden
        ),
    );
    let head_dim = model.head_dim.unwrap_or(model.hidden / heads);
    below.compared(
        !head_dim.is_multiple_of(2) && (!split || model.hidden.is_multiple_of(heads)),
        "head_dim",
        &["heads", "hidden"],
        format!("is {head_dim}, which is odd: rotary positions rotate pairs of numbers, so it must be even"),
    );
    below.not_negative(model.embedding_std, "embedding_std");
    below.not_negative(model.matrix_std, "matrix_std");
    below.positive(model.rope_theta.unwrap_or(1.0), "rope_theta");
    if let TokenizerConfig::Words(words) = &model.tokenizer {
        tokenizer_words(words, below);
    }
}

/// Checks the words of a generated tokenizer.
fn tokenizer_words(words: &[String], below: &mut Below) {
    let mut seen = std::collections::BTreeSet::new();
    let twice = words.iter().find(|word| !seen.insert(word.as_str()));
    let split = words
        .iter()
        .find(|word| word.is_empty() || word.contains(char::is_whitespace));
    below.when(
        words.is_empty(),
        "tokenizer.words",
        "is empty: list the words that the model may read and write",
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
            format!("has {word:?}: texts are split at white space, so write words of one or more other characters"),
        );
    }
}
