//! Visits every state that a model can reach, breadth first, so that the path to a problem is a
//! shortest one.
//!
//! The checker keeps only 128 bits of hash per state, with the step that led to it. It prints a
//! path by replaying it. Among ten million states two share a hash with a chance below 1 in 10^24.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// No correct path is this long: a counter without a bound makes a model endless.
const DEEPEST: u16 = 1000;

/// A model with states and actions.
pub(super) trait Model {
    type State: Clone + Hash;
    type Action: Debug;

    fn first(&self) -> Self::State;
    /// All actions that are possible now. The same state always gives the same list.
    fn actions(&self, state: &Self::State) -> Vec<Self::Action>;
    fn next(&self, state: &Self::State, action: &Self::Action) -> Self::State;
    /// The promise that is broken in this state, if any.
    fn broken(&self, state: &Self::State) -> Option<String>;
    /// Returns true if the action is a fault. Quiet paths have no faults.
    fn is_fault(&self, action: &Self::Action) -> bool;
    /// Returns true in a state that every quiet path must be able to reach.
    fn is_goal(&self, state: &Self::State) -> bool;
}

/// The result of a walk.
#[derive(Debug)]
pub(super) struct Walk {
    pub states: usize,
    pub steps: usize,
    /// The number of steps from the first state to the farthest.
    pub depth: usize,
    pub problem: Option<Problem>,
}

/// A broken promise, or a state from which no quiet path leads to the goal, with a shortest path to
/// it.
#[derive(Debug)]
pub(super) struct Problem {
    pub what: String,
    pub way: Vec<String>,
}

/// The first path to a state: the previous state, the action's index, and the number of steps.
struct Seen {
    from: u32,
    action: u16,
    depth: u16,
}

struct Walker<'a, M: Model> {
    model: &'a M,
    known: HashMap<u128, u32, BuildHasherDefault<Low>>,
    seen: Vec<Seen>,
    goals: Vec<u32>,
    /// Steps without faults, as (to, from).
    quiet: Vec<(u32, u32)>,
    steps: usize,
}

pub(super) fn walk<M: Model>(model: &M) -> Walk {
    let mut walker = Walker {
        model,
        known: HashMap::default(),
        seen: Vec::new(),
        goals: Vec::new(),
        quiet: Vec::new(),
        steps: 0,
    };
    let problem = walker.explore().or_else(|| walker.stuck());
    Walk {
        states: walker.seen.len(),
        steps: walker.steps,
        depth: walker.seen.last().map_or(0, |last| usize::from(last.depth)),
        problem,
    }
}

impl<M: Model> Walker<'_, M> {
    fn explore(&mut self) -> Option<Problem> {
        let first = self.model.first();
        self.enter(&first, 0, 0);
        let mut open = VecDeque::from([(0, first)]);
        while let Some((id, state)) = open.pop_front() {
            for (nth, action) in self.model.actions(&state).iter().enumerate() {
                let next = self.model.next(&state, action);
                self.steps += 1;
                let (to, new) = self.enter(&next, id, nth);
                if !self.model.is_fault(action) {
                    self.quiet.push((to, id));
                }
                if !new {
                    continue;
                }
                let deep = (self.seen[to as usize].depth > DEEPEST).then(|| "it goes on and on".to_owned());
                if let Some(what) = deep.or_else(|| self.model.broken(&next)) {
                    let way = self.way(to);
                    return Some(Problem { what, way });
                }
                open.push_back((to, next));
            }
        }
        None
    }

    /// Returns the state's number, and true if it is new.
    fn enter(&mut self, state: &M::State, from: u32, action: usize) -> (u32, bool) {
        let id = u32::try_from(self.seen.len()).expect("more states than there are numbers for them");
        match self.known.entry(fingerprint(state)) {
            Entry::Occupied(known) => return (*known.get(), false),
            Entry::Vacant(free) => free.insert(id),
        };
        let depth = self.seen.get(from as usize).map_or(0, |seen| seen.depth + 1);
        let action = action as u16;
        self.seen.push(Seen { from, action, depth });
        if self.model.is_goal(state) {
            self.goals.push(id);
        }
        (id, true)
    }

    /// The nearest state from which the goal cannot be reached without a fault.
    fn stuck(&mut self) -> Option<Problem> {
        self.quiet.sort_unstable();
        let mut saved = vec![false; self.seen.len()];
        let mut open = std::mem::take(&mut self.goals);
        open.iter().for_each(|goal| saved[*goal as usize] = true);
        while let Some(to) = open.pop() {
            let begin = self.quiet.partition_point(|(other, _)| *other < to);
            for (_, from) in self.quiet[begin..].iter().take_while(|(other, _)| *other == to) {
                if !std::mem::replace(&mut saved[*from as usize], true) {
                    open.push(*from);
                }
            }
        }
        let lost = saved.iter().position(|saved| !saved)?;
        let count = saved.iter().filter(|saved| !**saved).count();
        let what = format!("stuck: from here ({count} such states) nothing but a fault leads to the end");
        let way = self.way(lost as u32);
        Some(Problem { what, way })
    }

    fn way(&self, to: u32) -> Vec<String> {
        let mut numbers = Vec::new();
        let mut at = to;
        while at != 0 {
            let seen = &self.seen[at as usize];
            numbers.push(usize::from(seen.action));
            at = seen.from;
        }
        let mut state = self.model.first();
        let mut way = Vec::new();
        for number in numbers.into_iter().rev() {
            let action = self.model.actions(&state).swap_remove(number);
            way.push(format!("{action:?}"));
            state = self.model.next(&state, &action);
        }
        way
    }
}

fn fingerprint(state: &impl Hash) -> u128 {
    let mut fnv = Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    state.hash(&mut fnv);
    fnv.0 ^ (fnv.0 >> 64)
}

/// A 128-bit FNV-1a hash, which takes eight bytes at a time where possible.
struct Fnv(u128);

impl Fnv {
    fn mix(&mut self, value: u64) {
        self.0 = (self.0 ^ u128::from(value)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        self.0 ^= self.0 >> 71;
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.mix(u64::from(*byte) | 0x100));
    }

    fn finish(&self) -> u64 {
        self.0 as u64
    }
}

/// A hasher for fingerprints, which are hashes already.
#[derive(Default)]
struct Low(u64);

impl Hasher for Low {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().rev().fold(0, |all, byte| (all << 8) | u64::from(*byte));
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
