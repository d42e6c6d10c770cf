//! Checks whether two agents can be trained together as adapters over one base.
//!
//! MinT's recipe tries two clients and treats any failure as a service that allows only one. This
//! check runs before the run begins and returns a typed answer. A mistake in the configuration
//! stays an error. Only missing memory leads to one agent that plays both roles.

use configs::{
    AgentConfig, AgentName, ByteSize, DeviceName, Dtype, EngineKind, ModelConfig, RoleName, RunConfig, TokenizerConfig,
};
use trainer::model::{Layout, ModelShape};

use crate::policy::lora_shape;
use crate::run_folder::models;
use crate::run_folder::models::Reads;

/// Numbers kept for each trained number: the weight, its served copy, the gradient and two AdamW
/// moments.
const KEPT: u64 = 5;
/// Largest number of control tokens in a generated tokenizer.
const CONTROL: usize = 4;

/// Reasons why two clients are impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    #[error("two agents are required, but {0} plays both roles: name a second agent, or write clients = \"any\"")]
    OneAgent(AgentName),
    #[error(
        "two adapters over one base are required, but agent {0} has none: add agents.{0}.lora, or write clients = \"any\""
    )]
    NoAdapter(AgentName),
    #[error(
        "two adapters over one base are required, but agents {0} and {1} have different bases: give both the same model, device \
         and dtype, or write clients = \"any\""
    )]
    OtherBase(AgentName, AgentName),
    #[error("two clients need at least {needed} of memory, but only {free} are free")]
    Memory { needed: ByteSize, free: ByteSize },
}

/// How processes hold the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// Both agents in one process share one copy.
    One,
    /// Each agent's process has its own copy.
    Each,
}

/// Returns the configuration to run. With `clients = "auto"` and too little memory for two agents,
/// one agent plays both roles, and the second value is the reason.
///
/// # Errors
/// Returns the obstacle if two clients are required. Under `auto`, missing memory is no error.
pub fn settle(config: RunConfig, processes: Processes) -> Result<(RunConfig, Option<Obstacle>), Obstacle> {
    settle_within(config, processes, free_memory())
}

/// `free` is the number of bytes that the machine can still give. If it is `None`, memory is not
/// checked.
fn settle_within(
    config: RunConfig,
    processes: Processes,
    free: Option<u64>,
) -> Result<(RunConfig, Option<Obstacle>), Obstacle> {
    let wanted = config.workflow.params.get("clients").and_then(toml::Value::as_str);
    let auto = wanted == Some("auto");
    if config.workflow.kind != "sequential" || !(auto || wanted == Some("two")) {
        return Ok((config, None));
    }
    match two_clients(&config, processes, free) {
        Ok(()) => Ok((config, None)),
        Err(obstacle @ Obstacle::Memory { .. }) if auto => Ok((one_client(config), Some(obstacle))),
        Err(obstacle) => Err(obstacle),
    }
}

fn two_clients(config: &RunConfig, processes: Processes, free: Option<u64>) -> Result<(), Obstacle> {
    let Some(((first, a), (second, b))) = pair(config) else {
        return Ok(());
    };
    if first == second {
        return Err(Obstacle::OneAgent(first.clone()));
    }
    for (name, agent) in [(first, a), (second, b)] {
        if agent.lora.is_none() {
            return Err(Obstacle::NoAdapter(name.clone()));
        }
    }
    if !same_base(a, b) {
        return Err(Obstacle::OtherBase(first.clone(), second.clone()));
    }
    // The check does not know a graphics card's memory.
    let needed = needed(a, b, processes).filter(|_| a.device == DeviceName::default());
    match needed.zip(free) {
        Some((needed, free)) if needed > free => Err(Obstacle::Memory {
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

/// Returns the bytes of the base and of everything that is trained; caches and batches are not
/// included. Returns `None` if the model is not on this machine.
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

/// Returns how many copies of the base an agent's process holds on a CPU. An embedded engine in f32
/// keeps a second, reordered copy (trainer's README).
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

/// Lets the first role's agent play both roles; the prompts distinguish them.
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

/// Returns the memory that Linux reports as available without swapping, in bytes.
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

    fn obstacle(change: impl Fn(&str) -> String, free: u64) -> Option<Obstacle> {
        two_clients(&config(change), Processes::One, Some(free)).err()
    }

    #[test]
    fn each_obstacle_has_its_type() {
        let name = |name: &str| AgentName::new(name).unwrap();
        let plenty = 1 << 40;
        assert_eq!(obstacle(str::to_owned, plenty), None);
        let alone = |text: &str| {
            text.replace("second = \"b\"", "second = \"a\"")
                .replace("[agents.b]", "")
        };
        assert_eq!(obstacle(alone, plenty), Some(Obstacle::OneAgent(name("a"))));
        let bare = |text: &str| {
            let text = text.replace("[defaults.agent]\nlora =", "[defaults.agent]\n# lora =");
            text.replace("[agents.a]", "[agents.a.lora]\nrank = 4\n[agents.a]")
        };
        assert_eq!(obstacle(bare, plenty), Some(Obstacle::NoAdapter(name("b"))));
        let other = |text: &str| text.replace("[agents.b]", "[agents.b]\nmodel.random.layers = 3");
        assert_eq!(obstacle(other, plenty), Some(Obstacle::OtherBase(name("a"), name("b"))));
        assert!(matches!(
            obstacle(str::to_owned, 1 << 20),
            Some(Obstacle::Memory { .. })
        ));
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
    fn only_missing_memory_leads_to_one_client_and_only_with_auto() {
        let little = Some(1 << 20);
        let settled = |change: &dyn Fn(&str) -> String| settle_within(config(change), Processes::One, little);
        assert!(matches!(settled(&str::to_owned), Err(Obstacle::Memory { .. })));
        let auto = |text: &str| text.replace("clients = \"two\"", "clients = \"auto\"");
        let (one, obstacle) = settled(&auto).unwrap();
        assert!(matches!(obstacle, Some(Obstacle::Memory { .. })));
        assert_eq!(one.participants().len(), 1);
        // A mistake in the configuration is not worked around.
        let mistaken = |text: &str| auto(text).replace("[agents.b]", "[agents.b]\nmodel.random.layers = 3");
        assert!(matches!(settled(&mistaken), Err(Obstacle::OtherBase(..))));
        // Without figures about the machine, memory is not checked.
        let (two, obstacle) = settle_within(config(auto), Processes::One, None).unwrap();
        assert_eq!((two.participants().len(), obstacle), (2, None));
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
        // The result is a valid configuration, and settling it again changes nothing.
        let text = toml::to_string(&config).unwrap();
        let again = RunConfig::parse(&text, Path::new("one.toml")).unwrap();
        assert_eq!(settle(again, Processes::One).unwrap().1, None);
    }
}
