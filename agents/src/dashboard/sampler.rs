//! Selects the conversations that a stream shows, so that a fast run does not flood the page.

use broker::ids::GroupId;

/// The most turns per second that are sent.
const MOST: u64 = 40;

/// Keeps whole conversations: one of a power of two, by their ids.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sampler {
    one_of: u64,
    /// Turns that came since the last tick.
    seen: u64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { one_of: 1, seen: 0 }
    }
}

impl Sampler {
    /// Counts a turn. Returns true if its conversation is shown.
    pub(crate) fn keeps(&mut self, group: GroupId, member: u16) -> bool {
        self.seen += 1;
        self.shows(group, member)
    }

    /// Returns true if this conversation is shown.
    pub(crate) fn shows(&self, group: GroupId, member: u16) -> bool {
        // The id is a hash, so its bytes are even. A larger share contains every smaller one.
        let mut place = u64::from(member).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in group.0.iter().take(8) {
            place = (place.rotate_left(8) ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        (place >> 32).is_multiple_of(self.one_of)
    }

    /// Adjusts the share to the turns of the last second. Returns turns per second, and the share.
    pub(crate) fn tick(&mut self) -> (u64, u64) {
        let seen = std::mem::take(&mut self.seen);
        let wanted = seen.div_ceil(MOST).max(1).next_power_of_two();
        // It falls slowly: a pause between two rounds is no reason to show everything.
        self.one_of = wanted.max(self.one_of / 2).max(1);
        (seen, self.one_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(sampler: &mut Sampler, turns: u64) -> u64 {
        let group =
            |i: u64| GroupId(*uuid::Uuid::from_u128(u128::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c)).as_bytes());
        (0..turns)
            .filter(|i| sampler.keeps(group(i / 16), (i % 16) as u16))
            .count() as u64
    }

    #[test]
    fn slow_runs_are_shown_whole_and_fast_ones_in_part() {
        let mut sampler = Sampler::default();
        assert_eq!(second(&mut sampler, 30), 30);
        assert_eq!(sampler.tick(), (30, 1));
        second(&mut sampler, 4000);
        assert_eq!(sampler.tick(), (4000, 128));
        let shown = second(&mut sampler, 4000);
        assert!((1..=120).contains(&shown), "{shown}");
        sampler.tick();
        let shares: Vec<u64> = (0..9).map(|_| sampler.tick().1).collect();
        assert_eq!(shares, [64, 32, 16, 8, 4, 2, 1, 1, 1]);
    }

    #[test]
    fn all_turns_of_a_conversation_have_one_fate() {
        let mut sampler = Sampler { one_of: 8, seen: 0 };
        for member in 0..64 {
            let first = sampler.keeps(GroupId([7; 16]), member);
            assert_eq!(sampler.keeps(GroupId([7; 16]), member), first);
        }
    }
}
