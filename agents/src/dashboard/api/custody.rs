//! The state and verdicts of a group in the ledgers on this machine.

use std::collections::BTreeMap;

use broker::ids::GroupId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::dashboard::answer::ApiError;
use crate::ledger::{GroupRow, Inspector, LedgerError, PlacedVerdict, RowState};
use crate::run_folder::RunFolder;

/// The ledger's view of each agent that trains; `None` if its ledger is not on this machine.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Custody {
    agents: BTreeMap<String, Option<LedgerView>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LedgerView {
    row: Option<Row>,
    verdicts: Vec<PlacedVerdict>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Row {
    state: RowState,
    samples: u64,
    conversations: Option<u64>,
    reason: Option<String>,
}

/// Reads the group's row and verdicts in every ledger.
pub(crate) fn read(folder: &RunFolder, group: GroupId) -> Result<Custody, ApiError> {
    let config = folder.config()?;
    let trains = |name: &configs::AgentName| config.agents.get(name).is_some_and(|agent| agent.train.enabled);
    let mut agents = BTreeMap::new();
    for name in config.participants().into_iter().filter(trains) {
        let view = view(&folder.ledger(&name), group).map_err(|error| ApiError::from(anyhow::Error::from(error)))?;
        agents.insert(name.to_string(), view);
    }
    Ok(Custody { agents })
}

fn view(path: &std::path::Path, group: GroupId) -> Result<Option<LedgerView>, LedgerError> {
    let Some(ledger) = Inspector::find(path)? else {
        return Ok(None);
    };
    Ok(Some(LedgerView {
        row: ledger.group(group)?.map(row),
        verdicts: ledger.verdicts(group)?,
    }))
}

fn row(row: GroupRow) -> Row {
    Row {
        state: row.state,
        samples: row.samples,
        conversations: row.conversations,
        reason: row.reason,
    }
}
