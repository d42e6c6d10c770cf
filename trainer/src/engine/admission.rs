//! Chooses the waiting requests that begin together: in order of arrival, equal prompts computed
//! once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::request::GenRequest;
use crate::model::{Budget, Slots};

/// Requests that begin together.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Distinct prompts, in the order of their first request.
    pub(super) prompts: Vec<Arc<[u32]>>,
    /// In order of arrival, each with the index of its prompt.
    pub(super) members: Vec<(GenRequest, usize)>,
    /// The slots that they and all active requests may come to need.
    pub(super) promised: Slots,
}

/// A prompt and its requests.
pub(super) type OfPrompt = (Arc<[u32]>, Vec<GenRequest>);

impl Admission {
    /// Takes out the prompts for which `apart` returns true, and the prompts with a request for
    /// their log-probs. Returns the rest, and each removed prompt with its requests.
    pub(super) fn split(self, apart: impl Fn(&[u32]) -> bool) -> (Self, Vec<OfPrompt>) {
        let (mut rest, mut others): (_, Vec<OfPrompt>) = (Self::default(), Vec::new());
        let mut places = Vec::with_capacity(self.prompts.len());
        let mut scored = vec![false; self.prompts.len()];
        for (request, prompt) in &self.members {
            scored[*prompt] |= request.prompt_top.is_some();
        }
        for (prompt, scored) in self.prompts.into_iter().zip(scored) {
            if scored || apart(&prompt) {
                places.push(Err(others.len()));
                others.push((prompt, Vec::new()));
            } else {
                places.push(Ok(rest.prompts.len()));
                rest.prompts.push(prompt);
            }
        }
        for (request, prompt) in self.members {
            match places[prompt] {
                Ok(place) => rest.members.push((request, place)),
                Err(place) => others[place].1.push(request),
            }
        }
        (rest, others)
    }
}

/// The capacity for requests that begin now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) slots: usize,
    /// The number of tokens of distinct prompts.
    pub(super) tokens: usize,
    /// Set if no other prompt is being computed: the first prompt then fits, whatever its length.
    pub(super) free: bool,
    pub(super) budget: Budget,
    /// The slots that active requests may come to need.
    pub(super) promised: Slots,
    /// The longest row, in tokens.
    pub(super) max_context: usize,
}

impl Room {
    /// Returns the slots that active requests and this one may come to need, if they fit.
    fn with(&self, promised: Slots, request: &GenRequest) -> Option<Slots> {
        if !self.budget.is_bounded() || !request.takes_slot() {
            return Some(promised);
        }
        self.budget.promise(promised, request.reach(self.max_context))
    }
}

/// Takes requests from the front of the line while they fit. `cost` returns the number of prompt
/// tokens that must be computed. A request for at most one token takes no slot: it ends with its
/// prompt.
pub(super) fn admit(waiting: &mut VecDeque<GenRequest>, room: Room, cost: impl Fn(&GenRequest) -> usize) -> Admission {
    let mut admission = Admission {
        promised: room.promised,
        ..Admission::default()
    };
    let mut index: HashMap<Arc<[u32]>, usize> = HashMap::new();
    let (mut slots, mut left) = (room.slots, room.tokens);
    while let Some(request) = waiting.front() {
        let slot = usize::from(request.takes_slot());
        let known = index.get(&request.prompt_ids).copied();
        let cost = known.map_or_else(|| cost(request), |_| 0);
        let first = room.free && admission.prompts.is_empty();
        let Some(promised) = room.with(admission.promised, request) else {
            break;
        };
        if slot > slots || (cost > left && !first) {
            break;
        }
        admission.promised = promised;
        slots -= slot;
        left = left.saturating_sub(cost);
        let prompt = known.unwrap_or_else(|| {
            index.insert(Arc::clone(&request.prompt_ids), admission.prompts.len());
            admission.prompts.push(Arc::clone(&request.prompt_ids));
            admission.prompts.len() - 1
        });
        if let Some(request) = waiting.pop_front() {
            admission.members.push((request, prompt));
        }
    }
    admission
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;

    fn admit(waiting: &mut VecDeque<GenRequest>, slots: usize, tokens: usize) -> Admission {
        let room = Room {
            slots,
            tokens,
            free: true,
            budget: Budget::NONE,
            promised: Slots::default(),
            max_context: 128,
        };
        super::admit(waiting, room, |request| request.prompt_ids.len())
    }

    fn line(specs: &[(&[u32], u32)]) -> VecDeque<GenRequest> {
        specs
            .iter()
            .enumerate()
            .map(|(i, (prompt, max))| request(i as u64, prompt, *max))
            .collect()
    }

    #[test]
    fn equal_prompts_are_computed_once_and_cost_once() {
        let mut waiting = line(&[(&[1, 2], 1), (&[1, 2], 5), (&[3], 5), (&[1, 2], 5)]);
        let admission = admit(&mut waiting, 3, 3);
        assert_eq!(
            admission.prompts.iter().map(|p| p.to_vec()).collect::<Vec<_>>(),
            [vec![1, 2], vec![3]]
        );
        assert_eq!(
            admission.members.iter().map(|(_, p)| *p).collect::<Vec<_>>(),
            [0, 0, 1, 0]
        );
        assert!(waiting.is_empty());
    }

    #[test]
    fn order_is_kept_under_both_limits() {
        let mut waiting = line(&[(&[1], 5), (&[2], 5), (&[3], 5), (&[4], 1)]);
        assert_eq!(admit(&mut waiting, 2, 100).members.len(), 2);
        assert_eq!(
            admit(&mut waiting, 0, 100).members.len(),
            0,
            "no request overtakes one that waits for a slot"
        );
        assert_eq!(
            admit(&mut waiting, 1, 1).members.len(),
            1,
            "the second prompt is above the budget"
        );
        let mut waiting = line(&[(&[1; 50], 1), (&[2], 1)]);
        assert_eq!(admit(&mut waiting, 0, 10).members.len(), 1, "a long prompt goes alone");
    }
}
