//! Faults that a run can meet, drawn from a seed.

use std::path::Path;
use std::time::Duration;

use super::world::{PATIENCE, World};
use crate::program::wait_for;
use crate::proxy::{Mode, Proxy};

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillAgent,
    KillCoordinator,
    /// SIGSTOP for longer than a lease, then SIGCONT.
    HaltAgent,
    HaltCoordinator,
    CutBroker,
    CutStore,
    /// Connections stay open and pass no bytes for a while.
    StallBroker,
    StallStore,
    KillBroker,
    KillStore,
    /// Redis returns empty.
    EmptyStore,
    /// Redis returns with the data of some faults ago.
    OldStore,
}

impl Fault {
    /// Weights that sum to 24: processes die more often than servers.
    const DRAWN: [(Self, u64); 12] = [
        (Self::KillAgent, 6),
        (Self::KillCoordinator, 4),
        (Self::HaltAgent, 1),
        (Self::HaltCoordinator, 2),
        (Self::CutBroker, 2),
        (Self::CutStore, 2),
        (Self::StallBroker, 1),
        (Self::StallStore, 1),
        (Self::KillBroker, 1),
        (Self::KillStore, 1),
        (Self::EmptyStore, 1),
        (Self::OldStore, 2),
    ];

    pub(super) fn draw(dice: &mut Dice) -> Self {
        let mut left = dice.below(24);
        for (fault, weight) in Self::DRAWN {
            if left < weight {
                return fault;
            }
            left -= weight;
        }
        Self::KillAgent
    }

    pub(super) fn of_a_server(self) -> bool {
        matches!(
            self,
            Self::KillBroker | Self::KillStore | Self::EmptyStore | Self::OldStore
        )
    }
}

/// SplitMix64: the same seed gives the same faults.
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_of<'a>(&mut self, list: &'a [&str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }
}

impl World {
    /// Injects one fault and undoes the parts that do not heal alone. Returns when healing begins.
    pub(super) fn strike(&mut self, fault: Fault, dice: &mut Dice, old: &Path) {
        let agent = dice.one_of(&["a", "b"]);
        let coordinator = dice.one_of(&["c1", "c2"]);
        let short = Duration::from_millis(500 + dice.below(2500));
        match fault {
            Fault::KillAgent => self.kill(agent),
            Fault::KillCoordinator => self.kill(coordinator),
            Fault::HaltAgent => self.halt(agent, short),
            // The lease is two seconds.
            Fault::HaltCoordinator => self.halt(coordinator, short * 2),
            Fault::CutBroker => {
                self.broker.cut();
                self.link.cut();
            }
            Fault::CutStore => self.store.cut(),
            Fault::StallBroker => stall(&[&self.broker, &self.link], short),
            Fault::StallStore => stall(&[&self.store], short),
            Fault::KillBroker => self.servers.crash_rabbit(),
            Fault::KillStore => self.servers.crash_redis(true),
            Fault::EmptyStore => self.servers.crash_redis(false),
            Fault::OldStore => self.servers.restore_redis(old),
        }
    }

    /// Sends SIGKILL to a process, once it runs.
    pub fn kill(&self, label: &str) {
        wait_for("a process to be killed", PATIENCE, || {
            self.fleet.signal(label, "KILL").then_some(())
        });
    }

    fn halt(&self, label: &str, time: Duration) {
        wait_for("a process to be halted", PATIENCE, || {
            self.fleet.signal(label, "STOP").then_some(())
        });
        std::thread::sleep(time);
        self.fleet.signal(label, "CONT");
    }
}

fn stall(proxies: &[&Proxy], time: Duration) {
    proxies.iter().for_each(|proxy| proxy.set(Mode::Stall));
    std::thread::sleep(time);
    proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
}
