//! Roles of the two games, and the rewards of their seats.

use broker::RoleName;

use crate::workflow::transcript::reward;
use crate::workflow::{RoleSpec, SeatReward};

pub(super) fn spec(name: &RoleName, parts: &[(&'static str, f64)]) -> RoleSpec {
    RoleSpec {
        name: name.clone(),
        parts: parts.to_vec(),
    }
}

pub(super) fn seat(role: &RoleName, seat: u16, subkey: &str, parts: &[(&'static str, f32)]) -> SeatReward {
    SeatReward {
        subkey: subkey.to_owned(),
        ..reward(role, seat, parts)
    }
}
