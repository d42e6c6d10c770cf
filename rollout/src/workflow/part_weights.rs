//! The weighted sum of a seat's reward parts.

use std::collections::BTreeMap;

use broker::RoleName;
use configs::WorkflowConfig;

use super::{RoleSpec, SeatReward};

/// The weight of each reward part, by role.
pub(crate) type PartWeights = BTreeMap<RoleName, BTreeMap<String, f64>>;

/// Returns the configuration's weights. A part that the configuration does not name keeps the
/// weight of its spec.
pub(crate) fn given(config: &WorkflowConfig, specs: &[RoleSpec]) -> PartWeights {
    let mut weights = PartWeights::new();
    for spec in specs {
        let own = spec.parts.iter().map(|(name, weight)| ((*name).to_owned(), *weight));
        weights.entry(spec.name.clone()).or_default().extend(own);
    }
    for (role, given) in &config.reward {
        let given = given.iter().map(|(name, weight)| (name.clone(), *weight));
        weights.entry(role.clone()).or_default().extend(given);
    }
    weights
}

/// Returns the weighted sum, in f64 and in the order of the parts. A part without a weight has
/// weight 1.
pub(crate) fn total(weights: &PartWeights, seat: &SeatReward) -> f64 {
    seat.parts
        .iter()
        .map(|part| of(weights, &seat.role, part.name) * f64::from(part.value))
        .sum()
}

/// Returns the weight of one part; 1 if none is given.
pub(crate) fn of(weights: &PartWeights, role: &RoleName, part: &str) -> f64 {
    let weights = weights.get(role);
    weights.and_then(|weights| weights.get(part)).copied().unwrap_or(1.0)
}
