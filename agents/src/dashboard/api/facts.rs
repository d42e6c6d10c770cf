//! The facts of a run that every page needs.

use std::collections::BTreeMap;

use configs::{Mode, RunConfig};
use schemars::JsonSchema;
use serde::Serialize;

use crate::dashboard::answer::ApiError;
use crate::dashboard::runs::{State, state};
use crate::run_folder::{RunFolder, RunInfo};

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Facts {
    info: RunInfo,
    state: State,
    reason: Option<String>,
    /// The text that says how and why the run ended; `None` if it may be live. A run that is over
    /// takes no tasks and no orders.
    over: Option<String>,
    config: Game,
    /// Pages may change the run.
    writes: bool,
}

/// The parts of the configuration that pages show.
#[derive(Debug, Serialize, JsonSchema)]
struct Game {
    workflow: String,
    mode: Mode,
    steps: u64,
    group_size: u16,
    lead: Option<String>,
    /// Agent of each role.
    roles: BTreeMap<String, String>,
    agents: BTreeMap<String, Player>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Player {
    roles: Vec<String>,
    trains: bool,
    batch_groups: u64,
    max_staleness: u64,
}

/// Reads the facts of a run.
pub(crate) fn read(folder: &RunFolder, over: Option<String>, writes: bool) -> Result<Facts, ApiError> {
    let (state, reason) = state(folder)?;
    let mut info = folder.info()?;
    // A path of the machine that started the run says nothing here.
    info.source = None;
    Ok(Facts {
        info,
        state,
        reason,
        over,
        config: game(&folder.config()?),
        writes,
    })
}

fn game(config: &RunConfig) -> Game {
    let roles = &config.workflow.roles;
    let player = |name: &configs::AgentName| {
        let own = roles.iter().filter(|(_, agent)| *agent == name);
        let train = config.agents.get(name).map(|agent| &agent.train);
        Player {
            roles: own.map(|(role, _)| role.to_string()).collect(),
            trains: train.is_some_and(|train| train.enabled),
            batch_groups: train.map_or(0, |train| train.batch_groups as u64),
            max_staleness: train.map_or(0, |train| train.max_staleness),
        }
    };
    let agents = config.participants();
    Game {
        workflow: config.workflow.kind.clone(),
        mode: config.run.mode,
        steps: config.run.train_steps,
        group_size: config.workflow.group_size,
        lead: config.lead().map(ToString::to_string),
        roles: roles
            .iter()
            .map(|(role, agent)| (role.to_string(), agent.to_string()))
            .collect(),
        agents: agents.iter().map(|name| (name.to_string(), player(name))).collect(),
    }
}
