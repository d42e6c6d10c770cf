//! Ids and their derivation, so that a repeated effect carries the id of the first.
//!
//! | id | derived from |
//! |---|---|
//! | [`RunId`] | name + 8 random characters |
//! | [`GroupId`] | hash(run, task) |
//! | [`Attempt`] | random, one try at a group; equality only |
//! | [`RequestId`] | hash(group, attempt, member, role, seat, turn); the same on re-issue |
//! | [`seed`] | hash(run seed, task, member, role, seat, turn); without the run id |
//!
//! Equal run seeds therefore give equal runs.

use std::fmt;
use std::sync::Arc;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use configs::RoleName;

/// The id of one run; part of every queue, exchange and key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Arc<str>);

impl RunId {
    /// Accepts `[a-z0-9-_]{1,48}`, beginning with a letter or digit.
    pub fn new(value: &str) -> Option<Self> {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        let first = value
            .chars()
            .next()
            .is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        (first && value.len() <= 48 && value.chars().all(legal)).then(|| Self(Arc::from(value)))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! id128 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// Reads 32 hexadecimal digits.
            #[must_use]
            pub fn from_hex(text: &str) -> Option<Self> {
                if text.len() != 32 || !text.is_ascii() {
                    return None;
                }
                let mut bytes = [0u8; 16];
                for (i, byte) in bytes.iter_mut().enumerate() {
                    *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
                }
                Some(Self(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::from_hex(&text).ok_or_else(|| serde::de::Error::custom("an id is 32 hexadecimal digits"))
            }
        }
    };
}

id128!(
    /// One task's group of conversations within a run.
    GroupId
);
id128!(
    /// One try at a group. Only equality has a meaning.
    Attempt
);
id128!(
    /// One generation requested from an agent.
    RequestId
);
id128!(
    /// The first half of a BLAKE3 digest of some content.
    Digest
);

/// Hashes parts with their lengths in front, so that different lists never give the same bytes.
fn hash(domain: &str, parts: &[&[u8]]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key(domain);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

fn first_half(hash: &blake3::Hash) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    bytes
}

impl GroupId {
    #[must_use]
    pub fn new(run: &RunId, task: &str) -> Self {
        Self(first_half(&hash(
            "dyad group v1",
            &[run.as_str().as_bytes(), task.as_bytes()],
        )))
    }
}

impl Digest {
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(first_half(&blake3::hash(content)))
    }

    /// Returns its first eight bytes as a number, for a seed.
    #[must_use]
    pub fn number(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|at| self.0[at]))
    }
}

/// One seat's turn within a conversation of a group. It names a generation without the attempt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnKey {
    pub member: u16,
    pub role: RoleName,
    /// The index among several players of the same role.
    pub seat: u16,
    /// Counts this seat's generations in this conversation from 0.
    pub turn: u16,
}

impl RequestId {
    #[must_use]
    pub fn new(group: GroupId, attempt: Attempt, key: &TurnKey) -> Self {
        let numbers = [key.member.to_le_bytes(), key.seat.to_le_bytes(), key.turn.to_le_bytes()].concat();
        Self(first_half(&hash(
            "dyad request v1",
            &[&group.0, &attempt.0, key.role.as_str().as_bytes(), &numbers],
        )))
    }
}

/// Returns the seed of one generation. It depends on the run seed, task and turn only, not on the
/// run, attempt or batch.
#[must_use]
pub fn seed(run_seed: u64, task: &str, key: &TurnKey) -> u64 {
    let numbers = [key.member.to_le_bytes(), key.seat.to_le_bytes(), key.turn.to_le_bytes()].concat();
    let parts = [
        &run_seed.to_le_bytes()[..],
        task.as_bytes(),
        key.role.as_str().as_bytes(),
        &numbers,
    ];
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&hash("dyad seed v1", &parts).as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// Returns the seed of one conversation's own choices (shuffles, seats). It depends on the run
/// seed, task and member only.
#[must_use]
pub fn conversation_seed(run_seed: u64, task: &str, member: u16) -> u64 {
    let parts = [&run_seed.to_le_bytes()[..], task.as_bytes(), &member.to_le_bytes()];
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&hash("dyad conversation seed v1", &parts).as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// A version of weights: the lineage, which every trainer start begins, and the batches published
/// since step 0 of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize, Default)]
pub struct WeightVersion {
    pub lineage: u32,
    pub step: u64,
}

impl fmt::Display for WeightVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.lineage, self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(member: u16, seat: u16, turn: u16) -> TurnKey {
        TurnKey {
            member,
            role: RoleName::new("speaker").unwrap(),
            seat,
            turn,
        }
    }

    #[test]
    fn ids_differ_where_their_sources_differ() {
        let run = RunId::new("r-1").unwrap();
        assert_ne!(GroupId::new(&run, "a"), GroupId::new(&run, "b"));
        assert_ne!(GroupId::new(&run, "a"), GroupId::new(&RunId::new("r-2").unwrap(), "a"));
        let (group, attempt) = (GroupId::new(&run, "a"), Attempt([1; 16]));
        let ids = [key(0, 0, 0), key(1, 0, 0), key(0, 1, 0), key(0, 0, 1)].map(|k| RequestId::new(group, attempt, &k));
        for (i, a) in ids.iter().enumerate() {
            assert!(ids.iter().skip(i + 1).all(|b| a != b));
        }
        assert_ne!(seed(0, "a", &key(0, 0, 0)), seed(1, "a", &key(0, 0, 0)));
    }

    #[test]
    fn ids_are_stable_across_releases() {
        // These ids are on disk and on the wire: a change here breaks every run in progress.
        let run = RunId::new("golden").unwrap();
        let group = GroupId::new(&run, "task/0/1");
        assert_eq!(GroupId::from_hex(&group.to_string()), Some(group));
        assert_eq!(GroupId::from_hex("zz"), None);
        assert_eq!(GroupId::from_hex(&"é".repeat(16)), None);
    }
}
