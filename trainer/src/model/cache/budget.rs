//! The number of tokens that slots may hold, and the rows and room that fit into it.

use super::row_kv::BUCKET;

/// Slots: their number, and the number of tokens that each has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slots {
    pub(crate) rows: usize,
    pub(crate) room: usize,
}

impl Slots {
    fn tokens(self) -> usize {
        self.rows.saturating_mul(self.room)
    }

    /// Returns true if these slots serve where `other` would.
    pub(super) fn cover(self, other: Self) -> bool {
        self.rows >= other.rows && self.room >= other.room
    }

    /// The smallest slots that cover both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows.max(other.rows),
            room: self.room.max(other.room),
        }
    }
}

/// The largest number of tokens that all slots together may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    tokens: Option<usize>,
}

impl Budget {
    /// No bound.
    pub(crate) const NONE: Self = Self { tokens: None };

    pub(crate) fn of(tokens: usize) -> Self {
        Self { tokens: Some(tokens) }
    }

    pub(crate) fn is_bounded(self) -> bool {
        self.tokens.is_some()
    }

    /// The number of tokens, if there is a bound.
    pub(crate) fn tokens(self) -> Option<usize> {
        self.tokens
    }

    fn holds(self, slots: Slots) -> bool {
        self.tokens.is_none_or(|most| slots.tokens() <= most)
    }

    /// Returns true if a row that reaches `length` tokens fits while no other row is live.
    pub(crate) fn holds_row(self, length: usize) -> bool {
        self.promise(Slots::default(), length).is_some()
    }

    /// Adds a row that reaches `length` tokens to the `promised` slots. Returns `None` if all of
    /// them, each as long as the longest, do not fit.
    pub(crate) fn promise(self, promised: Slots, length: usize) -> Option<Slots> {
        let all = Slots {
            rows: promised.rows + 1,
            room: promised.room.max(room_of(length)),
        };
        self.holds(all).then_some(all)
    }

    /// The number of rows that fit if each reaches `length` tokens.
    pub(crate) fn rows_of(self, length: usize) -> usize {
        self.tokens.map_or(usize::MAX, |most| most / room_of(length))
    }

    /// Chooses slots that cover `needed`: the first of the `wishes` that fits, else slots as long
    /// as the promised ones, as many as fit. Returns `None` if more is needed than was promised.
    pub(super) fn choose(self, needed: Slots, wishes: [Slots; 2], promised: Slots) -> Option<Slots> {
        let wish = wishes.into_iter().find(|wish| self.holds(*wish));
        let fullest = || Slots {
            rows: self.rows_of(promised.room),
            room: promised.room,
        };
        Some(wish.unwrap_or_else(fullest)).filter(|slots| slots.cover(needed))
    }
}

/// The room of a slot for `length` tokens: whole buckets, as deterministic attention reads them.
pub(crate) fn room_of(length: usize) -> usize {
    length.max(1).next_multiple_of(BUCKET)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slots(rows: usize, room: usize) -> Slots {
        Slots { rows, room }
    }

    #[test]
    fn rows_are_promised_as_long_as_the_longest() {
        let budget = Budget::of(640);
        let two = budget.promise(slots(1, 64), 65).unwrap();
        assert_eq!(two, slots(2, 128));
        assert_eq!(budget.promise(slots(4, 128), 3), Some(slots(5, 128)));
        assert_eq!(budget.promise(slots(5, 128), 3), None, "six rows of 128");
        assert_eq!(budget.promise(slots(4, 64), 129), None, "five rows of 192");
        assert!(budget.holds_row(640) && !budget.holds_row(641));
        assert_eq!(
            (budget.rows_of(128), budget.rows_of(129), Budget::NONE.rows_of(9)),
            (5, 3, usize::MAX)
        );
    }

    #[test]
    fn growth_is_kept_while_it_fits() {
        let (needed, promised) = (slots(3, 100), slots(3, 192));
        let wishes = [slots(16, 128), slots(8, 128)];
        let of = |tokens| Budget::of(tokens).choose(needed, wishes, promised);
        assert_eq!(Budget::NONE.choose(needed, wishes, promised), Some(wishes[0]));
        assert_eq!(of(16 * 128), Some(wishes[0]));
        assert_eq!(of(16 * 128 - 1), Some(wishes[1]));
        assert_eq!(of(8 * 128 - 1), Some(slots(5, 192)), "as long as promised");
        assert_eq!(of(3 * 192), Some(slots(3, 192)));
        assert_eq!(of(3 * 192 - 1), None, "more than was promised");
    }

    proptest! {
        /// Rows come and go and grow. The slots never exceed the budget, they cover what was
        /// promised, and without live rows the first row fits.
        #[test]
        fn promises_are_kept_within_the_budget(
            tokens in 64usize..5000,
            ops in prop::collection::vec((any::<bool>(), 1usize..700, 0usize..40), 1..80),
        ) {
            let budget = Budget::of(tokens);
            let mut live: Vec<(usize, usize)> = Vec::new();
            let mut have = Slots::default();
            for (comes, length, at) in ops {
                if comes {
                    let promised = live.iter().fold(Slots::default(), |all, (reach, _)| Slots {
                        rows: all.rows + 1,
                        room: all.room.max(room_of(*reach)),
                    });
                    let joined = budget.promise(promised, length);
                    prop_assert!(joined.is_some() || !live.is_empty() || !budget.holds_row(length));
                    if joined.is_some() {
                        live.push((length, 1 + at % length));
                    }
                } else if at < live.len() {
                    live.swap_remove(at);
                }
                live.iter_mut().for_each(|(reach, now)| *now = (*now + 1).min(*reach));
                let longest = |of: fn(&(usize, usize)) -> usize| live.iter().map(of).max().unwrap_or(0);
                let needed = slots(live.len(), longest(|row| row.1));
                let promised = slots(live.len(), room_of(longest(|row| row.0)));
                if !have.cover(needed) {
                    let grown = slots(needed.rows.next_power_of_two(), needed.room.next_power_of_two());
                    let chosen = budget.choose(needed, [grown.and(have), grown], promised);
                    prop_assert!(chosen.is_some(), "{needed:?} of {promised:?} in {tokens}");
                    have = chosen.unwrap_or_default();
                }
                prop_assert!(have.tokens() <= tokens && have.cover(needed));
            }
        }

        /// With room for everything, slots are those of an engine without a bound.
        #[test]
        fn a_huge_budget_changes_nothing(rows in 1usize..300, room in 1usize..5000, more in 0usize..4000) {
            let (needed, wish) = (slots(rows, room), slots(rows + more, room + more));
            let huge = Budget::of(usize::MAX);
            let same = |budget: Budget| (budget.choose(needed, [wish, needed], needed), budget.promise(needed, more));
            prop_assert_eq!(same(huge), same(Budget::NONE));
        }
    }
}
