//! From a TOML table to a [`RunConfig`], with every problem found in one pass.

use crate::RunConfig;
use crate::run::Problem;

/// Merges the defaults, reads the table and checks what it says.
pub fn resolve(mut table: toml::Table) -> Result<RunConfig, Vec<Problem>> {
    merge_agent_defaults(&mut table);
    let config: RunConfig =
        serde_path_to_error::deserialize(toml::Value::Table(table)).map_err(|e| {
            vec![Problem {
                path: e.path().to_string(),
                message: e.inner().to_string(),
            }]
        })?;
    Ok(config)
}

/// Lays `[defaults.agent]` under every `[agents.NAME]`.
fn merge_agent_defaults(table: &mut toml::Table) {
    let Some(toml::Value::Table(mut defaults)) = table.remove("defaults") else {
        return;
    };
    let Some(toml::Value::Table(base)) = defaults.remove("agent") else {
        return;
    };
    let Some(toml::Value::Table(agents)) = table.get_mut("agents") else {
        return;
    };
    for (_, agent) in agents.iter_mut() {
        if let toml::Value::Table(agent) = agent {
            lay_under(agent, &base);
        }
    }
}

fn lay_under(top: &mut toml::Table, base: &toml::Table) {
    for (key, value) in base {
        match (top.get_mut(key), value) {
            (Some(toml::Value::Table(top)), toml::Value::Table(base)) => lay_under(top, base),
            (Some(_), _) => {}
            (None, value) => {
                top.insert(key.clone(), value.clone());
            }
        }
    }
}
