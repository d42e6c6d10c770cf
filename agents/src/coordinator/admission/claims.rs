//! Claims of groups with reserved rows.

use broker::ids::GroupId;
use broker::store::{Claim, Claimed, StoreError};

use super::{Admission, Admitting};

/// The effect of the answer to a claim.
pub(crate) enum Claiming {
    /// The group is ours.
    Ours(Admitting, Claimed),
    /// Claim again after a lease.
    Watch(Admitting),
    /// Another coordinator that lives plays the group, or it is not being claimed.
    Leave,
}

impl Admission {
    /// Begins a claim. Returns the (beat, fence) of the owner that was watched before it.
    pub(crate) fn begin_claim(&mut self, group: GroupId, admitting: Admitting) -> Option<(u64, u64)> {
        let watched = admitting.watched();
        self.claiming.insert(group, admitting);
        watched
    }

    /// Ends a claim without an answer.
    pub(crate) fn take_claim(&mut self, group: &GroupId) -> Option<Admitting> {
        self.claiming.remove(group)
    }

    #[cfg(test)]
    pub(crate) fn claims(&self, group: &GroupId) -> bool {
        self.claiming.contains_key(group)
    }

    #[must_use]
    pub(crate) fn none_is_claimed(&self) -> bool {
        self.claiming.is_empty()
    }

    /// Takes the store's answer to a claim.
    pub(crate) fn claimed(&mut self, group: GroupId, claim: Result<Claim, StoreError>) -> Claiming {
        let Some(mut admitting) = self.claiming.remove(&group) else {
            return Claiming::Leave;
        };
        match claim {
            Ok(Claim::Ours(claimed)) => Claiming::Ours(admitting, claimed),
            Ok(Claim::Theirs { owner, beat, fence }) => {
                if !admitting.watch(beat, fence) {
                    return Claiming::Leave;
                }
                tracing::debug!(%group, owner, "another coordinator plays this group; watching it");
                Claiming::Watch(admitting)
            }
            Err(error) => {
                tracing::warn!(%group, %error, "a claim failed; trying again");
                Claiming::Watch(admitting)
            }
        }
    }
}
