//! Bytes of the wire: JSON for people, bincode behind a schema version for tokens.
//!
//! A binary body is `[schema version: u16 LE][bincode, legacy configuration]`. Decoding bounds every allocation by the
//! message's own limit, refuses an unknown version and refuses bytes that are left over.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use bincode::{Decode, Encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No decoded message may claim more than this, whatever its lengths say (256 MiB).
const DECODE_LIMIT: usize = 256 << 20;

/// The schema this build speaks.
pub const SCHEMA: u16 = 1;

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("the body is empty or too short for a schema version")]
    Short,
    #[error(
        "the body has schema version {found}, this build reads {SCHEMA}: run the same release everywhere"
    )]
    Version { found: u16 },
    #[error("the body does not decode: {0}")]
    Malformed(String),
    #[error("{0} bytes are left over after the message")]
    Trailing(usize),
    #[error("the message holds {0}, which no healthy peer sends")]
    Content(&'static str),
}

fn config() -> Configuration<LittleEndian, Fixint, Limit<DECODE_LIMIT>> {
    bincode::config::legacy().with_limit::<DECODE_LIMIT>()
}

/// Encodes a binary message.
pub fn encode<T: Encode>(message: &T) -> Vec<u8> {
    let mut bytes = SCHEMA.to_le_bytes().to_vec();
    match bincode::encode_into_std_write(message, &mut bytes, bincode::config::legacy()) {
        Ok(_) => bytes,
        // Writing to memory cannot fail, and our types hold nothing that bincode refuses.
        Err(error) => unreachable!("encoding to memory failed: {error}"),
    }
}

/// Decodes a binary message.
pub fn decode<T: Decode<()>>(bytes: &[u8]) -> Result<T, CodecError> {
    let (version, body) = bytes.split_first_chunk::<2>().ok_or(CodecError::Short)?;
    let found = u16::from_le_bytes(*version);
    if found != SCHEMA {
        return Err(CodecError::Version { found });
    }
    let (message, used) = bincode::decode_from_slice(body, config())
        .map_err(|e| CodecError::Malformed(e.to_string()))?;
    if used == body.len() {
        Ok(message)
    } else {
        Err(CodecError::Trailing(body.len() - used))
    }
}

/// Encodes a JSON message.
pub fn encode_json<T: Serialize>(message: &T) -> Vec<u8> {
    match serde_json::to_vec(message) {
        Ok(bytes) => bytes,
        // Our types have string keys and no fallible serialisers.
        Err(error) => unreachable!("encoding to memory failed: {error}"),
    }
}

/// Decodes a JSON message.
pub fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    serde_json::from_slice(bytes).map_err(|e| CodecError::Malformed(e.to_string()))
}
