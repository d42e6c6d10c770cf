//! Verdicts on samples, from the ledgers on this machine.

use std::collections::{BTreeMap, BTreeSet};

use broker::ids::GroupId;
use configs::RunConfig;

use crate::ledger::{GroupFate, Inspector, LedgerError, PlacedVerdict};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::{Transcript, TranscriptTurn};

/// The ledgers of the agents that train.
pub(super) struct Ledgers {
    open: BTreeMap<String, Inspector>,
    /// Agents with a ledger on another machine, or not yet made.
    pub(super) missing: Vec<String>,
}

impl Ledgers {
    pub(super) fn open(folder: &RunFolder, config: &RunConfig) -> Result<Self, LedgerError> {
        let (mut open, mut missing) = (BTreeMap::new(), Vec::new());
        for (name, _) in config.agents.iter().filter(|(_, agent)| agent.train.enabled) {
            if let Some(ledger) = Inspector::find(&folder.ledger(name))? {
                open.insert(name.to_string(), ledger);
            } else if config.plays(name) {
                missing.push(name.to_string());
            }
        }
        Ok(Self { open, missing })
    }

    /// Reads the groups of these conversations. Those of evaluations are in no ledger.
    pub(super) fn fates(&self, transcripts: &[Transcript]) -> Result<Fates, LedgerError> {
        let trained = transcripts.iter().filter(|transcript| !transcript.eval);
        let groups: BTreeSet<GroupId> = trained
            .filter_map(|transcript| place(&transcript.conversation))
            .map(|(group, _)| group)
            .collect();
        let mut fates = BTreeMap::new();
        for (name, ledger) in &self.open {
            fates.insert(name.clone(), ledger.fates(&groups)?);
        }
        Ok(Fates(fates))
    }
}

/// The fates of groups, by agent.
pub(super) struct Fates(BTreeMap<String, BTreeMap<GroupId, GroupFate>>);

impl Fates {
    /// Returns the verdict on the sample that a turn belongs to, if there is one: `trained at step
    /// N`, or the reason why it was discarded.
    pub(super) fn verdict(&self, transcript: &Transcript, turn: &TranscriptTurn) -> Option<String> {
        let (group, member) = place(&transcript.conversation)?;
        let fate = self.0.get(&turn.agent)?.get(&group)?;
        let is_of_seat = |one: &&PlacedVerdict| one.member == member && one.seat == turn.seat && one.role == turn.role;
        match fate.verdicts.iter().find(is_of_seat) {
            Some(found) => found
                .reason
                .clone()
                .or_else(|| Some(format!("trained at step {}", found.step))),
            None => fate.reason.clone(),
        }
    }
}

/// Returns the group and the member that the id of a conversation names.
pub(super) fn place(conversation: &str) -> Option<(GroupId, u16)> {
    let (group, member) = conversation.split_once('/')?;
    Some((GroupId::from_hex(group)?, member.parse().ok()?))
}
