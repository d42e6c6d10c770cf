//! The part `length_penalty`, which compares the lengths of one role's answers over the group.

use std::collections::BTreeSet;

use broker::RoleName;
use broker::ids::TurnKey;
use broker::protocol::turn::Generation;

use super::assemble::{MemberEnd, Rules};
use crate::shaping::{self, AnswerLength};
use crate::workflow::shaped::{CORRECT, LENGTH_PENALTY};
use crate::workflow::{Outcome, Part, SeatReward};

/// An answer is right if it earned more than this.
const RIGHT: f64 = 0.5;

/// Adds the part `length_penalty` to the rewards of the roles that the rules name. Call it once,
/// before the group is assembled and reported.
///
/// Answers to one problem are compared; where a conversation has several problems (subkeys), each
/// has its own comparison. Seats without a reward are not compared. An answer is right by its
/// seat's part `correct`, else by the conversation's `success`.
pub fn compare_lengths(rules: &Rules, members: &mut [MemberEnd]) {
    for role in &rules.compared {
        for subkey in subkeys(members, role) {
            compare(members, &Compared { role, subkey: &subkey });
        }
    }
}

/// The answers that are compared with each other.
struct Compared<'a> {
    role: &'a RoleName,
    subkey: &'a str,
}

impl Compared<'_> {
    fn has(&self, seat: &SeatReward) -> bool {
        is_of(seat, self.role) && seat.subkey == self.subkey
    }
}

fn is_of(seat: &SeatReward, role: &RoleName) -> bool {
    seat.role == *role && !seat.parts.is_empty() && seat.parts.iter().all(|part| part.value.is_finite())
}

fn subkeys(members: &[MemberEnd], role: &RoleName) -> BTreeSet<String> {
    let seats = members.iter().flat_map(|member| match member {
        MemberEnd::Ended { outcome, .. } => outcome.rewards.as_slice(),
        MemberEnd::Failed { .. } => &[],
    });
    let of_role = seats.filter(|seat| is_of(seat, role));
    of_role.map(|seat| seat.subkey.clone()).collect()
}

fn compare(members: &mut [MemberEnd], compared: &Compared<'_>) {
    let answers: Vec<AnswerLength> = members.iter().flat_map(|member| answers(member, compared)).collect();
    let mut penalties = shaping::length_penalty(&answers).into_iter();
    for member in members {
        let MemberEnd::Ended { outcome, .. } = member else {
            continue;
        };
        for seat in outcome.rewards.iter_mut().filter(|seat| compared.has(seat)) {
            // One value for each answer, in the same order.
            seat.parts.extend(penalties.next().map(|value| Part {
                name: LENGTH_PENALTY,
                value: value as f32,
            }));
        }
    }
}

/// The answers of a conversation that are compared, in the order of its rewards.
fn answers(member: &MemberEnd, compared: &Compared<'_>) -> Vec<AnswerLength> {
    let MemberEnd::Ended { outcome, turns } = member else {
        return Vec::new();
    };
    let seats = outcome.rewards.iter().filter(|seat| compared.has(seat));
    let answer = |seat: &SeatReward| AnswerLength {
        tokens: sampled(turns, &seat.role, seat.seat),
        right: is_right(outcome, seat),
    };
    seats.map(answer).collect()
}

fn is_right(outcome: &Outcome, seat: &SeatReward) -> bool {
    let own = seat.parts.iter().find(|part| part.name == CORRECT);
    let success = outcome.metrics.iter().find(|(name, _)| *name == "success");
    own.map(|part| f64::from(part.value))
        .or(success.map(|(_, value)| *value))
        .is_some_and(|value| value > RIGHT)
}

fn sampled(turns: &[(TurnKey, Generation)], role: &RoleName, seat: u16) -> u64 {
    turns
        .iter()
        .filter(|(key, _)| key.role == *role && key.seat == seat)
        .map(|(_, made)| made.output_ids.len() as u64)
        .sum()
}
