//! Seals: how coordinators recognise a task that an agent hands back.
//!
//! An agent keeps the tasks of its open groups and offers them again when no coordinator seems to
//! play them. Only the run's coordinators have the key. Each task goes into custody with a seal,
//! and a returned task is accepted by its seal. A compromised agent can therefore return its own
//! tasks, but cannot invent one.

use std::fmt;

use bincode::{Decode, Encode};

use crate::ids::RunId;

/// Headers of a returned task: the seal, the place in the order of admission, and the agent.
pub const HEADER_SEAL: &str = "dyad-seal";
pub const HEADER_ORDER: &str = "dyad-order";
pub const HEADER_AGENT: &str = "agent";
/// Environment variable with the coordinators' secret; `NEW,OLD` while the new secret replaces the
/// old one.
pub const VARIABLE: &str = "DYAD_TASK_KEY";
/// A shorter secret can be guessed.
const SHORTEST: usize = 16;
/// The context of BLAKE3's `derive_key`: no other key is derived with this text.
const CONTEXT: &str = "dyad 2026-11-22 tasks in custody";

/// A mark over a task and its place in the run, which only coordinators can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Seal(pub [u8; 32]);

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The coordinators' keys. The first one makes seals and every one is accepted, so that a new key
/// can replace an old one.
#[derive(Clone)]
pub struct SealKey {
    first: [u8; 32],
    others: Vec<[u8; 32]>,
}

/// Shows no key.
impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

/// The secret is too short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE} has {0} characters, and fewer than {SHORTEST} can be guessed: `openssl rand -hex 32` makes a good one"
)]
pub struct ShortKey(usize);

impl SealKey {
    /// Derives the keys from one secret, or from several with commas between them.
    ///
    /// # Errors
    /// A secret has fewer than 16 bytes.
    pub fn new(secrets: &str) -> Result<Self, ShortKey> {
        let mut secrets = secrets.split(',').map(key);
        let first = secrets.next().unwrap_or(Err(ShortKey(0)))?;
        let others = secrets.collect::<Result<_, _>>()?;
        Ok(Self { first, others })
    }

    /// Returns the seal of a task in its run: BLAKE3's keyed hash over (run, id, order, body), each
    /// with its length in front.
    #[must_use]
    pub fn seal(&self, run: &RunId, task: &str, order: u64, body: &[u8]) -> Seal {
        Seal(*hash(&self.first, run, task, order, body).as_bytes())
    }

    /// Returns true if the hexadecimal `seal` is this task's under any of the keys. The time does
    /// not depend on which characters are wrong.
    #[must_use]
    pub fn is_of(&self, seal: &str, run: &RunId, task: &str, order: u64, body: &[u8]) -> bool {
        let Ok(seal) = blake3::Hash::from_hex(seal) else {
            return false;
        };
        // blake3 compares hashes of this type in constant time.
        let is_of = |key: &[u8; 32]| seal == hash(key, run, task, order, body);
        std::iter::once(&self.first).chain(&self.others).any(is_of)
    }
}

fn key(secret: &str) -> Result<[u8; 32], ShortKey> {
    if secret.len() < SHORTEST {
        return Err(ShortKey(secret.len()));
    }
    Ok(blake3::derive_key(CONTEXT, secret.as_bytes()))
}

fn hash(key: &[u8; 32], run: &RunId, task: &str, order: u64, body: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in [run.as_str().as_bytes(), task.as_bytes(), &order.to_le_bytes(), body] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> RunId {
        RunId::new(name).unwrap()
    }

    #[test]
    fn a_seal_is_of_one_task_in_one_run_under_one_key() {
        let key = SealKey::new("0123456789abcdef").unwrap();
        let seal = key.seal(&run("r"), "t", 3, b"body").to_string();
        assert!(key.is_of(&seal, &run("r"), "t", 3, b"body"));
        for (name, task, order, body) in [
            ("s", "t", 3, b"body".as_slice()),
            ("r", "u", 3, b"body"),
            ("r", "t", 4, b"body"),
            ("r", "t", 3, b"bodies"),
        ] {
            assert!(!key.is_of(&seal, &run(name), task, order, body));
        }
        let other = SealKey::new("0123456789abcdeg").unwrap();
        assert!(!other.is_of(&seal, &run("r"), "t", 3, b"body"));
        for none in ["", "00", "no seal", &seal[1..]] {
            assert!(!key.is_of(none, &run("r"), "t", 3, b"body"));
        }
    }

    /// The end of one field cannot pass for the beginning of the next.
    #[test]
    fn fields_do_not_run_into_each_other() {
        let key = SealKey::new("0123456789abcdef").unwrap();
        assert_ne!(key.seal(&run("r"), "ab", 0, b"c"), key.seal(&run("ra"), "b", 0, b"c"));
    }

    #[test]
    fn a_new_key_takes_the_place_of_an_old_one() {
        let (old, new) = ("0123456789abcdef", "fedcba9876543210");
        let [before, between, after] = [old, &format!("{new},{old}"), new].map(|keys| SealKey::new(keys).unwrap());
        let sealed = |key: &SealKey| key.seal(&run("r"), "t", 3, b"body").to_string();
        assert!(between.is_of(&sealed(&before), &run("r"), "t", 3, b"body"));
        assert_eq!(sealed(&between), sealed(&after));
        assert!(!after.is_of(&sealed(&before), &run("r"), "t", 3, b"body"));
    }

    #[test]
    fn a_short_key_is_rejected_and_no_key_is_shown() {
        for (secrets, characters) in [("short", 5), ("", 0), ("0123456789abcdef,", 0)] {
            assert_eq!(SealKey::new(secrets).unwrap_err(), ShortKey(characters));
        }
        assert_eq!(format!("{:?}", SealKey::new("0123456789abcdef").unwrap()), "SealKey");
    }
}
