//! Checks whether two agents can be trained together as adapters over one base.
//!
//! MinT's recipe tries two clients and treats any failure as a service that allows only one. This
//! check runs before the run begins and returns a typed answer. A mistake in the configuration
//! stays an error. Only missing memory leads to one agent that plays both roles.

use configs::{AgentConfig, AgentName, DeviceName, RoleName, RunConfig};

use super::devices::free_memory;
use crate::policy::memory::{self, Processes, amount, same_base};

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
    #[error("two clients need at least {} of memory, but only {} are free", amount(*needed), amount(*free))]
    Memory {
        /// Bytes.
        needed: u64,
        /// Bytes.
        free: u64,
    },
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
    let needed = needed(config, processes).filter(|_| a.device == DeviceName::default());
    match needed.zip(free) {
        Some((needed, free)) if needed > free => Err(Obstacle::Memory { needed, free }),
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

/// Returns the bytes that both agents cannot do without, or `None` if the model is not on this
/// machine.
fn needed(config: &RunConfig, processes: Processes) -> Option<u64> {
    let devices = memory::by_device(config, processes, None);
    let known = devices.values().all(|device| device.unknown.is_empty());
    known.then(|| devices.values().map(memory::OnDevice::least).sum())
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use trainer::model::Layout;

    use super::*;
    use crate::policy::lora_shape;

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
        let ((_, a), _) = pair(&config).unwrap();
        let shape = memory::shape(&a.model).unwrap();
        let base = Layout::of(&shape).numel() as u64 * 4;
        let [one, each] = [Processes::One, Processes::Each].map(|processes| needed(&config, processes).unwrap());
        assert_eq!(each - one, 2 * base, "with its order for the engine");
        let adapter = Layout::of_adapter(&shape, &lora_shape(a.lora.as_ref().unwrap())).numel() as u64;
        // Trained: 20 bytes, with the gradient twice. Served: the copy in use and the next one.
        assert_eq!(one, 2 * base + 2 * adapter * 28);
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
