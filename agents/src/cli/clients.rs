//! Whether two agents can be trained side by side as adapters over one base, and who stands in if not.
//!
//! MinT's recipe tries two clients and takes any failure at all for a sign that the service allows only one. Here the question is
//! asked before the run begins and has a typed answer: a mistake in the configuration stays a mistake, and only what the
//! machine cannot hold is made up for by one agent that takes turns with itself.

use configs::{
    AgentConfig, AgentName, ByteSize, DeviceName, Dtype, EngineKind, ModelConfig, RoleName, RunConfig, TokenizerConfig,
};
use trainer::model::{Layout, ModelShape};

use crate::policy::lora_shape;
use crate::run_folder::models;
use crate::run_folder::models::Reads;

/// Numbers kept for each trained one: the weights, their served copy, the gradient, and two moments of AdamW.
const KEPT: u64 = 5;
/// Control tokens at most of a tokenizer that is made on the spot.
const CONTROL: usize = 4;

/// Why two clients cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    #[error("two agents are asked for, and {0} plays both roles: name another one, or write clients = \"any\"")]
    OneAgent(AgentName),
    #[error(
        "two adapters over one base are asked for, and agent {0} has none: add agents.{0}.lora, or write clients = \"any\""
    )]
    NoAdapter(AgentName),
    #[error(
        "two adapters over one base are asked for, and agents {0} and {1} have different ones: give both the same model, device \
         and dtype, or write clients = \"any\""
    )]
    OtherBase(AgentName, AgentName),
    #[error("two clients need at least {needed} of memory and {free} are free")]
    Memory { needed: ByteSize, free: ByteSize },
}

/// How the base is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// Both agents in one process share one copy.
    One,
    /// Each has its own.
    Each,
}

/// The configuration as it is to be run: as it is, or under `clients = "auto"` with one agent where two are too large for this
/// machine. The second value says why, if so.
///
/// # Errors
/// What speaks against two clients where two are asked for; under `auto` all but the memory.
pub fn settle(config: RunConfig, processes: Processes) -> Result<(RunConfig, Option<Lack>), Lack> {
    settle_within(config, processes, free_memory())
}

/// `free`: bytes that the machine can still give; unknown, they are not checked.
fn settle_within(
    config: RunConfig,
    processes: Processes,
    free: Option<u64>,
) -> Result<(RunConfig, Option<Lack>), Lack> {
    let wanted = config.workflow.params.get("clients").and_then(toml::Value::as_str);
    let auto = wanted == Some("auto");
    if config.workflow.kind != "sequential" || !(auto || wanted == Some("two")) {
        return Ok((config, None));
    }
    match two_clients(&config, processes, free) {
        Ok(()) => Ok((config, None)),
        Err(lack @ Lack::Memory { .. }) if auto => Ok((one_client(config), Some(lack))),
        Err(lack) => Err(lack),
    }
}

fn two_clients(config: &RunConfig, processes: Processes, free: Option<u64>) -> Result<(), Lack> {
    let Some(((first, a), (second, b))) = pair(config) else {
        return Ok(());
    };
    if first == second {
        return Err(Lack::OneAgent(first.clone()));
    }
    for (name, agent) in [(first, a), (second, b)] {
        if agent.lora.is_none() {
            return Err(Lack::NoAdapter(name.clone()));
        }
    }
    if !same_base(a, b) {
        return Err(Lack::OtherBase(first.clone(), second.clone()));
    }
    // Of a graphics card's memory nothing is known here.
    let needed = needed(a, b, processes).filter(|_| a.device == DeviceName::default());
    match needed.zip(free) {
        Some((needed, free)) if needed > free => Err(Lack::Memory {
            needed: ByteSize(needed),
            free: ByteSize(free),
        }),
        _ => Ok(()),
    }
}

type Named<'a> = (&'a AgentName, &'a AgentConfig);

/// The agents that play the two roles.
fn pair(config: &RunConfig) -> Option<(Named<'_>, Named<'_>)> {
    let of = |role: &str| {
        let role = RoleName::new(role).ok()?;
        config.agents.get_key_value(config.workflow.roles.get(&role)?)
    };
    Some((of("first")?, of("second")?))
}

fn same_base(a: &AgentConfig, b: &AgentConfig) -> bool {
    let model = match (&a.model, &b.model) {
        (ModelConfig::Path(a), ModelConfig::Path(b)) => a == b,
        (ModelConfig::Random(a), ModelConfig::Random(b)) => a == b,
        _ => false,
    };
    model && a.device == b.device && a.dtype == b.dtype
}

/// Bytes of the base and of all that is trained; caches and batches come on top. `None` where the model is not here to be
/// measured.
fn needed(a: &AgentConfig, b: &AgentConfig, processes: Processes) -> Option<u64> {
    let shape = shape(&a.model)?;
    let width = match a.dtype {
        Dtype::F32 => 4,
        Dtype::Bf16 => 2,
    };
    let copies = match processes {
        Processes::One => copies(a).max(copies(b)),
        Processes::Each => copies(a) + copies(b),
    };
    let base = Layout::of(&shape).numel() as u64 * width * copies;
    let adapters = [a, b].into_iter().filter_map(|agent| agent.lora.as_ref());
    let trained: u64 = adapters
        .map(|lora| Layout::of_adapter(&shape, &lora_shape(lora)).numel() as u64)
        .sum();
    Some(base + trained * 4 * KEPT)
}

/// How often an agent's process has the base on a CPU: an embedded engine in f32 has its matrices in order beside it (trainer's README).
fn copies(agent: &AgentConfig) -> u64 {
    match Reads::of(agent) {
        Reads::NoWeights => 0,
        Reads::Whole if agent.dtype == Dtype::F32 && agent.engine.kind == EngineKind::Embedded => 2,
        Reads::Whole => 1,
    }
}

fn shape(model: &ModelConfig) -> Option<ModelShape> {
    match model {
        ModelConfig::Path(path) => ModelShape::load(&models::locate(path, Reads::NoWeights).ok()?).ok(),
        ModelConfig::Random(random) => {
            let words = match &random.tokenizer {
                TokenizerConfig::Bytes => 256,
                TokenizerConfig::Words(words) => words.len(),
            };
            ModelShape::from_random(random, words + CONTROL, &[]).ok()
        }
        ModelConfig::Served(_) => None,
    }
}

/// The first's agent plays both roles, told apart by their prompts.
fn one_client(mut config: RunConfig) -> RunConfig {
    let Some(((first, _), (second, _))) = pair(&config) else {
        return config;
    };
    let (first, second) = (first.clone(), second.clone());
    for agent in config.workflow.roles.values_mut() {
        agent.clone_from(&first);
    }
    let judges = config.graders.values_mut().filter_map(|grader| grader.judge.as_mut());
    for judge in judges.filter(|judge| judge.agent.as_ref() == Some(&second)) {
        judge.agent = Some(first.clone());
    }
    config.agents.remove(&second);
    config.run.lead = Some(first);
    config.workflow.params.insert("clients".into(), "any".into());
    config
}

/// What Linux says is available without swapping.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(change: impl Fn(&str) -> String) -> RunConfig {
        let text = include_str!("../../../configs/two-lora.toml");
        RunConfig::parse(&change(text), Path::new("two-lora.toml")).unwrap()
    }

    fn lack(change: impl Fn(&str) -> String, free: u64) -> Option<Lack> {
        two_clients(&config(change), Processes::One, Some(free)).err()
    }

    #[test]
    fn each_lack_has_its_type() {
        let name = |name: &str| AgentName::new(name).unwrap();
        let plenty = 1 << 40;
        assert_eq!(lack(str::to_owned, plenty), None);
        let alone = |text: &str| {
            text.replace("second = \"b\"", "second = \"a\"")
                .replace("[agents.b]", "")
        };
        assert_eq!(lack(alone, plenty), Some(Lack::OneAgent(name("a"))));
        let bare = |text: &str| {
            let text = text.replace("[defaults.agent]\nlora =", "[defaults.agent]\n# lora =");
            text.replace("[agents.a]", "[agents.a.lora]\nrank = 4\n[agents.a]")
        };
        assert_eq!(lack(bare, plenty), Some(Lack::NoAdapter(name("b"))));
        let other = |text: &str| text.replace("[agents.b]", "[agents.b]\nmodel.random.layers = 3");
        assert_eq!(lack(other, plenty), Some(Lack::OtherBase(name("a"), name("b"))));
        assert!(matches!(lack(str::to_owned, 1 << 20), Some(Lack::Memory { .. })));
    }

    #[test]
    fn two_processes_hold_the_base_twice() {
        let config = config(str::to_owned);
        let ((_, a), (_, b)) = pair(&config).unwrap();
        let shape = shape(&a.model).unwrap();
        let base = Layout::of(&shape).numel() as u64 * 4;
        let [one, each] = [Processes::One, Processes::Each].map(|processes| needed(a, b, processes).unwrap());
        assert_eq!(each - one, 2 * base, "with its order for the engine");
        let adapter = Layout::of_adapter(&shape, &lora_shape(a.lora.as_ref().unwrap())).numel() as u64;
        assert_eq!(one, 2 * base + 2 * adapter * 20);
        let mut elsewhere = b.clone();
        (elsewhere.train.enabled, elsewhere.engine.kind) = (false, EngineKind::Vllm);
        let both = needed(a, &elsewhere, Processes::Each).unwrap();
        assert_eq!(both, one, "its servers have the base that its process does not read");
    }

    #[test]
    fn only_memory_that_lacks_is_made_up_for_and_only_where_that_is_allowed() {
        let little = Some(1 << 20);
        let settled = |change: &dyn Fn(&str) -> String| settle_within(config(change), Processes::One, little);
        assert!(matches!(settled(&str::to_owned), Err(Lack::Memory { .. })));
        let auto = |text: &str| text.replace("clients = \"two\"", "clients = \"auto\"");
        let (one, lack) = settled(&auto).unwrap();
        assert!(matches!(lack, Some(Lack::Memory { .. })));
        assert_eq!(one.participants().len(), 1);
        // A mistake is not made up for.
        let mistaken = |text: &str| auto(text).replace("[agents.b]", "[agents.b]\nmodel.random.layers = 3");
        assert!(matches!(settled(&mistaken), Err(Lack::OtherBase(..))));
        // Of a machine of which nothing is known, nothing is said.
        let (two, lack) = settle_within(config(auto), Processes::One, None).unwrap();
        assert_eq!((two.participants().len(), lack), (2, None));
    }

    #[test]
    fn one_agent_judges_where_the_other_did() {
        let mut two = config(str::to_owned);
        let judge = serde_json::json!({"kind": "judge", "judge": {"agent": "b"}});
        let judge = serde_json::from_value(judge).unwrap();
        two.graders.insert("correct".into(), judge);
        let one = one_client(two);
        let judge = one.graders["correct"].judge.as_ref().unwrap();
        assert_eq!(judge.agent, AgentName::new("a").ok());
    }

    #[test]
    fn one_agent_takes_turns_with_itself() {
        let config = one_client(config(str::to_owned));
        assert_eq!(config.agents.len(), 1);
        assert_eq!(config.participants().len(), 1);
        // It is a configuration that can be run, and settled again without effect.
        let text = toml::to_string(&config).unwrap();
        let again = RunConfig::parse(&text, Path::new("one.toml")).unwrap();
        assert_eq!(settle(again, Processes::One).unwrap().1, None);
    }
}
