//! Stand-ins: past versions of a side, or other frozen agents, that play in its place.
//!
//! `[workflow.params.opponents] adversary = ["past1", "past2"]` makes `past1` and `past2` roles of
//! the game; `[workflow.roles]` must name their agents. The player is drawn for each task,
//! uniformly from the side itself and its stand-ins. So all conversations of a group meet the same
//! opponent and can be compared (in asynchronous runs its weights may change on the way).
//!
//! A side that trains only against its newest opponent may chase it in circles. A side that also
//! meets past opponents cannot forget how it was beaten.
//!
//! `renewing = ["past2"]` names those that change during the run (`agents.NAME.past`). Success
//! against them is no fixed measure, so its metric has a separate name.

use std::collections::{BTreeMap, BTreeSet};

use broker::RoleName;
use broker::protocol::task::Task;

use super::seats::spec;
use crate::workflow::RoleSpec;
use crate::workflow::params::Params;

/// The stand-ins of each side.
pub(super) struct Opponents {
    by_side: BTreeMap<RoleName, Vec<RoleName>>,
    renewing: BTreeSet<RoleName>,
}

impl Opponents {
    /// Reads `opponents` and `renewing`. `sides` are the roles that may have stand-ins, `roles` all
    /// roles of the game.
    pub(super) fn take(params: &mut Params<'_>, sides: &[&RoleName], roles: &[&RoleName]) -> Self {
        let mut found: BTreeMap<RoleName, Vec<RoleName>> = BTreeMap::new();
        let mut taken: Vec<RoleName> = roles.iter().map(|role| (*role).clone()).collect();
        for (side, names) in params.lists("opponents") {
            let key = format!("opponents.{side}");
            let Some(side) = sides.iter().find(|role| role.as_str() == side) else {
                let known = sides.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" and ");
                params.problem(&key, format!("it cannot have stand-ins; these can: {known}"));
                continue;
            };
            for name in names {
                match RoleName::new(&name) {
                    Ok(name) if taken.contains(&name) => {
                        params.problem(&key, format!("{name:?} is a role already: write another name"));
                    }
                    Ok(name) => {
                        taken.push(name.clone());
                        found.entry((*side).clone()).or_default().push(name);
                    }
                    Err(error) => params.problem(&key, error.to_string()),
                }
            }
        }
        let mut renewing = BTreeSet::new();
        for name in params.list("renewing") {
            match found.values().flatten().find(|role| role.as_str() == name) {
                Some(role) => {
                    renewing.insert(role.clone());
                }
                None => params.problem(
                    "renewing",
                    format!("{name:?} is no stand-in: write it under opponents too"),
                ),
            }
        }
        Self {
            by_side: found,
            renewing,
        }
    }

    /// Returns the metric names of success against this stand-in: one name where one side has
    /// stand-ins, and names for proposer and solver where both have.
    pub(super) fn won(&self, stand_in: &RoleName) -> [&'static str; 3] {
        if self.renewing.contains(stand_in) {
            ["win_past", "win_past_proposer", "win_past_solver"]
        } else {
            ["win_fixed", "win_fixed_proposer", "win_fixed_solver"]
        }
    }

    /// Returns the player of `side` in all conversations of this task: a function of the task's id,
    /// or of its prompt if it has none.
    pub(super) fn drawn<'a>(&'a self, side: &'a RoleName, task: &Task) -> &'a RoleName {
        let stand_ins = self.of(side);
        let task = task.id.as_deref().unwrap_or_else(|| task.prompt.text());
        let hash = blake3::derive_key("dyad opponents v1", format!("{side}/{task}").as_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hash[..8]);
        let place = u64::from_le_bytes(bytes) % (stand_ins.len() as u64 + 1);
        let stand_in = (place as usize).checked_sub(1).and_then(|at| stand_ins.get(at));
        stand_in.unwrap_or(side)
    }

    /// Returns the side's role and those of its stand-ins, which earn the same parts.
    pub(super) fn specs(&self, side: &RoleName, parts: &[(&'static str, f64)]) -> Vec<RoleSpec> {
        let all = std::iter::once(side).chain(self.of(side));
        all.map(|role| spec(role, parts)).collect()
    }

    /// Returns true if `side` has stand-ins.
    pub(super) fn stands_in(&self, side: &RoleName) -> bool {
        !self.of(side).is_empty()
    }

    fn of(&self, side: &RoleName) -> &[RoleName] {
        self.by_side.get(side).map_or(&[], Vec::as_slice)
    }
}
