//! Seals: how coordinators know a task again that an agent hands back.
//!
//! An agent keeps the tasks of its open groups and offers them again when nobody seems to play them. With a key that only the
//! run's coordinators have, each task goes into custody under a seal, and one that comes back is believed by its seal: an
//! agent that was taken over can hand back what it was given and make nothing up.

use std::fmt;

use bincode::{Decode, Encode};

use crate::ids::RunId;

/// Headers of a task that is handed back: the seal, the place in the order of admission, and who hands it back.
pub const HEADER_SEAL: &str = "dyad-seal";
pub const HEADER_ORDER: &str = "dyad-order";
pub const HEADER_AGENT: &str = "agent";
/// Environment variable with the coordinators' secret; `NEW,OLD` while one takes the other's place.
pub const VARIABLE: &str = "DYAD_TASK_KEY";
/// Fewer characters can be guessed.
const SHORTEST: usize = 16;
/// What a key of BLAKE3's `derive_key` is for: nothing else is derived under this text.
const CONTEXT: &str = "dyad 2026-11-22 tasks in custody";

/// A mark that only coordinators can make, over a task and its place in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Seal(pub [u8; 32]);

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The coordinators' keys: the first seals, and any of them is believed, so that a new one can take the place of an old.
#[derive(Clone)]
pub struct SealKey {
    first: [u8; 32],
    others: Vec<[u8; 32]>,
}

/// Without the key.
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
    /// Of one secret, or of several with commas between them.
    ///
    /// # Errors
    /// A secret of fewer than 16 bytes.
    pub fn new(secrets: &str) -> Result<Self, ShortKey> {
        let mut secrets = secrets.split(',').map(key);
        let first = secrets.next().unwrap_or(Err(ShortKey(0)))?;
        let others = secrets.collect::<Result<_, _>>()?;
        Ok(Self { first, others })
    }

    /// The seal of a task in its run: BLAKE3's keyed hash over (run, id, order, body), each led by its length.
    #[must_use]
    pub fn seal(&self, run: &RunId, task: &str, order: u64, body: &[u8]) -> Seal {
        Seal(*hash(&self.first, run, task, order, body).as_bytes())
    }

    /// Whether the hexadecimal `seal` is this task's under any of the keys; takes as long whichever of its characters are wrong.
    #[must_use]
    pub fn is_of(&self, seal: &str, run: &RunId, task: &str, order: u64, body: &[u8]) -> bool {
        let Ok(seal) = blake3::Hash::from_hex(seal) else {
            return false;
        };
        // Hashes of this type are compared in constant time.
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

    /// What one field ends with cannot pass for the beginning of the next.
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
    fn a_key_is_long_and_stays_unsaid() {
        for (secrets, characters) in [("short", 5), ("", 0), ("0123456789abcdef,", 0)] {
            assert_eq!(SealKey::new(secrets).unwrap_err(), ShortKey(characters));
        }
        assert_eq!(format!("{:?}", SealKey::new("0123456789abcdef").unwrap()), "SealKey");
    }
}
