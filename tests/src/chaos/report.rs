//! The faults of a chaos run and their results.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::fault::Fault;
use super::world::GROUP;

/// Faults and results of a chaos run.
#[derive(Debug, Default)]
pub struct Report {
    pub faults: BTreeMap<Fault, u64>,
    pub tasks: u64,
    /// The longest time from a server's return to the next group that both agents closed.
    pub worst_recovery: Duration,
    /// The same after any fault.
    pub worst_silence: Duration,
    pub seconds: f64,
    pub starts: BTreeMap<String, u64>,
    /// The output of `dyad audit --json`.
    pub audit: serde_json::Value,
    pub audit_passed: bool,
}

impl Report {
    #[must_use]
    pub fn conversations(&self) -> u64 {
        self.tasks * GROUP
    }

    fn of(&self, agent: &str, key: &str) -> u64 {
        self.audit["agents"][agent][key].as_u64().unwrap_or(u64::MAX)
    }

    /// Returns the samples of one agent that have a verdict.
    #[must_use]
    pub fn decided(&self, agent: &str) -> u64 {
        self.of(agent, "decided")
    }

    /// Returns the number of lost tasks and groups.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let count = |list: &serde_json::Value| list.as_array().map_or(0, |a| a.len() as u64);
        let unequal = self.audit["books"]["unequal"].as_object().map_or(0, |o| o.len() as u64);
        let missing: u64 = ["a", "b"].iter().map(|agent| self.of(agent, "missing")).sum();
        count(&self.audit["books"]["unseen"]) + unequal + missing
    }

    /// Returns the number of samples that took effect twice.
    #[must_use]
    pub fn double(&self) -> u64 {
        ["a", "b"].iter().map(|agent| self.of(agent, "twice")).sum()
    }

    #[must_use]
    pub fn rate(&self) -> f64 {
        self.conversations() as f64 / self.seconds
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults           {}", self.faults.values().sum::<u64>())?;
        for (fault, count) in &self.faults {
            writeln!(f, "  {count:>4} {fault:?}")?;
        }
        writeln!(f, "starts           {:?}", self.starts)?;
        writeln!(f, "tasks            {}", self.tasks)?;
        writeln!(f, "conversations    {}", self.conversations())?;
        writeln!(
            f,
            "samples trained or discarded: a {}, b {}",
            self.decided("a"),
            self.decided("b")
        )?;
        writeln!(f, "lost             {}", self.lost())?;
        writeln!(f, "double           {}", self.double())?;
        writeln!(f, "groups split between attempts: {}", self.audit["split"])?;
        writeln!(
            f,
            "audit            {}",
            if self.audit_passed { "passed" } else { "FAILED" }
        )?;
        writeln!(
            f,
            "longest wait for a closed group: {:.1?} after any fault",
            self.worst_silence
        )?;
        writeln!(
            f,
            "                                 {:.1?} after a server was back",
            self.worst_recovery
        )?;
        writeln!(
            f,
            "time             {:.1} s, {:.1} conversations/s",
            self.seconds,
            self.rate()
        )
    }
}
