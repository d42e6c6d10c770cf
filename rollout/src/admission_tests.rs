use super::*;
use std::collections::{BTreeSet, VecDeque};

#[test]
fn capacity_is_the_window_less_what_is_held() {
    let config = TrainConfig {
        batch_groups: 4,
        max_staleness: 2,
        ..TrainConfig::default()
    };
    assert_eq!(capacity(&config, 0, 0), 12);
    assert_eq!(capacity(&config, 5, 7), 0);
    assert_eq!(capacity(&config, 9, 7), -4);
    let endless = TrainConfig {
        max_staleness: u64::MAX,
        ..config
    };
    assert_eq!(capacity(&endless, 9, 7), i64::MAX);
    assert_eq!(capacity(&endless, u64::MAX, u64::MAX), i64::MAX);
    assert_eq!(admissible([3, 7]), 3);
    assert_eq!(admissible([-1, 7]), 0);
    assert_eq!(admissible([]), 0);
}

#[test]
fn rounds_need_batches_that_are_multiples_of_the_least() {
    let (a, b) = (AgentName::new("a").unwrap(), AgentName::new("b").unwrap());
    assert_eq!(Rounds::new([(&a, 4), (&b, 8)]), Ok(Rounds { groups: 4 }));
    assert_eq!(
        Rounds::new([(&a, 4), (&b, 6)]),
        Err(NotMultiple {
            agent: b,
            batch: 6,
            least: 4
        })
    );
}

/// A group that some agent still holds: `held[agent]` is the trainer steps since its admission.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    open: bool,
    held: [Option<u64>; 2],
}

/// Two agents and their groups, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct World(Vec<Group>);

struct Model {
    configs: [TrainConfig; 2],
    /// Groups close in the order of their admission.
    in_order: bool,
}

impl World {
    fn count(&self, agent: usize, open: bool) -> u64 {
        self.0
            .iter()
            .filter(|g| g.open == open && g.held[agent].is_some())
            .count() as u64
    }

    fn capacities(&self, model: &Model) -> [i64; 2] {
        [0, 1].map(|agent| capacity(&model.configs[agent], self.count(agent, false), self.count(agent, true)))
    }

    fn admit(&self) -> World {
        let mut next = self.clone();
        next.0.push(Group {
            open: true,
            held: [Some(0), Some(0)],
        });
        next
    }

    /// Closes the group at `at`; it brings samples to the agents in `brings`.
    fn close(&self, at: usize, brings: [bool; 2]) -> World {
        let mut next = self.clone();
        let group = &mut next.0[at];
        group.open = false;
        for (held, brings) in group.held.iter_mut().zip(brings) {
            *held = held.filter(|_| brings);
        }
        next.tidy()
    }

    /// Trains the oldest full batch; answers the greatest staleness in it.
    fn train(&self, agent: usize, batch: usize) -> Option<(World, u64)> {
        let mut next = self.clone();
        let ready = next.0.iter_mut().filter(|g| !g.open && g.held[agent].is_some());
        let mut taken: Vec<&mut Group> = ready.take(batch).collect();
        if taken.len() < batch {
            return None;
        }
        let oldest = taken.iter_mut().filter_map(|group| group.held[agent].take()).max()?;
        for age in next.0.iter_mut().filter_map(|group| group.held[agent].as_mut()) {
            *age += 1;
        }
        Some((next.tidy(), oldest))
    }

    fn tidy(mut self) -> World {
        self.0.retain(|g| g.open || g.held != [None, None]);
        self
    }
}

const BRINGS: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];

/// Every state that asynchronous running can come to; answers the greatest staleness at which either agent trains.
fn explore(model: &Model) -> [u64; 2] {
    let (mut seen, mut queue) = (BTreeSet::new(), VecDeque::from([World::default()]));
    let mut oldest = [0, 0];
    while let Some(world) = queue.pop_front() {
        if !seen.insert(world.clone()) {
            continue;
        }
        assert!(seen.len() < 200_000, "the window does not bound the states");
        let mut next = Vec::new();
        let capacities = world.capacities(model);
        assert!(
            capacities.iter().all(|c| *c >= 0),
            "more is held than the window: {world:?}"
        );
        if admissible(capacities) > 0 {
            next.push(world.admit());
        }
        let open = (0..world.0.len()).filter(|at| world.0[*at].open);
        for at in open.take(if model.in_order { 1 } else { usize::MAX }) {
            next.extend(BRINGS.map(|brings| world.close(at, brings)));
        }
        for (agent, oldest) in oldest.iter_mut().enumerate() {
            if let Some((trained, age)) = world.train(agent, model.configs[agent].batch_groups) {
                *oldest = age.max(*oldest);
                // Out of order a group may be overtaken for ever: its age is past the bound, which is all we ask.
                if trained.0.iter().all(|g| g.held.iter().flatten().all(|age| *age < 6)) {
                    next.push(trained);
                }
            }
        }
        assert!(!next.is_empty(), "nothing can happen any more: {world:?}");
        queue.extend(next);
    }
    oldest
}

fn models() -> impl Iterator<Item = ([usize; 2], [u64; 2])> {
    let batches = [[1, 1], [1, 2], [2, 2]];
    batches
        .into_iter()
        .flat_map(|batches| [[0, 0], [1, 0], [0, 1], [1, 1]].map(|staleness| (batches, staleness)))
}

fn configs(batches: [usize; 2], staleness: [u64; 2]) -> [TrainConfig; 2] {
    [0, 1].map(|agent| TrainConfig {
        batch_groups: batches[agent],
        max_staleness: staleness[agent],
        ..TrainConfig::default()
    })
}

#[test]
fn in_order_nothing_deadlocks_and_staleness_stays_within_its_bound() {
    for (batches, staleness) in models() {
        let model = Model {
            configs: configs(batches, staleness),
            in_order: true,
        };
        let oldest = explore(&model);
        for agent in 0..2 {
            assert!(
                oldest[agent] <= staleness[agent],
                "{batches:?} {staleness:?}: {oldest:?}"
            );
        }
    }
}

#[test]
fn out_of_order_nothing_deadlocks_and_an_overtaken_group_gets_too_old() {
    let model = Model {
        configs: configs([1, 1], [1, 1]),
        in_order: false,
    };
    assert!(explore(&model)[0] > 1, "staleness would need no check at training");
}

#[test]
fn rounds_always_go_on_even_when_groups_close_empty() {
    for (batches, staleness) in models() {
        let model = Model {
            configs: configs(batches, staleness),
            in_order: true,
        };
        let names = ["a", "b"].map(|name| AgentName::new(name).unwrap());
        let rounds = Rounds::new(names.iter().zip(batches)).unwrap();
        let (mut seen, mut queue) = (BTreeSet::new(), VecDeque::from([World::default()]));
        while let Some(world) = queue.pop_front() {
            if !seen.insert(world.clone()) {
                continue;
            }
            let groups = rounds.next(world.capacities(&model));
            assert!(
                (1..=rounds.groups).contains(&groups),
                "{batches:?} {staleness:?}: round of {groups} in {world:?}"
            );
            let before = world.0.len();
            let admitted = (0..groups).fold(world, |world, _| world.admit());
            // Every way in which the round's groups may close.
            for ways in 0..4usize.pow(groups as u32) {
                let mut closed = admitted.clone();
                for k in (0..groups).rev() {
                    closed = closed.close(before + k, BRINGS[ways / 4usize.pow(k as u32) % 4]);
                }
                for agent in 0..2 {
                    while rounds.trains(batches[agent], closed.count(agent, false) as usize) {
                        let (trained, age) = closed.train(agent, batches[agent]).unwrap();
                        assert!(
                            age <= staleness[agent],
                            "{batches:?} {staleness:?}: {age} steps old in {closed:?}"
                        );
                        closed = trained;
                    }
                }
                queue.push_back(closed);
            }
        }
    }
}
