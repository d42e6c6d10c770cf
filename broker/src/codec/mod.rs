//! Bytes of the wire: JSON for people, bincode after a schema version for tokens.
//!
//! A binary body is `[schema version: u16 LE][bincode, legacy configuration]`. Decoding bounds
//! every allocation by the message's own limit. It rejects an unknown version and bytes that are
//! left over.

pub(crate) mod bulk;
mod python_json;

use bincode::error::DecodeError;
use bincode::{Decode, Encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use python_json::{explain_json, parse_python_json};

/// The schema version of this build.
pub const SCHEMA: u16 = 11;

/// The reason why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("the body is empty or too short for a schema version")]
    Short,
    #[error("the body has schema version {found}, this build reads {SCHEMA}: run the same release everywhere")]
    Version { found: u16 },
    #[error("the body does not decode: {0}")]
    Malformed(String),
    #[error("{0} bytes are left over after the message")]
    Trailing(usize),
    #[error("the message holds {0}, which no healthy peer sends")]
    Content(&'static str),
}

/// Encodes a binary message.
pub fn encode<T: Encode>(message: &T) -> Vec<u8> {
    let mut bytes = SCHEMA.to_le_bytes().to_vec();
    match bincode::encode_into_std_write(message, &mut bytes, bincode::config::legacy()) {
        Ok(_) => bytes,
        // Writing to memory cannot fail, and our types hold nothing that bincode rejects.
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
    // A length is accepted up to what a body of this size can hold. In memory nothing takes more
    // than ten times its bytes on the wire, so a short body cannot claim a large allocation. A body
    // over 24 MiB is no message of ours.
    let decoded = match body.len().saturating_mul(10) {
        0..=0xffff => decode_within::<{ 128 << 10 }, T>(body),
        0x1_0000..=0xf_ffff => decode_within::<{ 2 << 20 }, T>(body),
        0x10_0000..=0xff_ffff => decode_within::<{ 32 << 20 }, T>(body),
        _ => decode_within::<{ 256 << 20 }, T>(body),
    };
    let (message, used) = decoded.map_err(|e| CodecError::Malformed(e.to_string()))?;
    if used == body.len() {
        Ok(message)
    } else {
        Err(CodecError::Trailing(body.len() - used))
    }
}

fn decode_within<const LIMIT: usize, T: Decode<()>>(body: &[u8]) -> Result<(T, usize), DecodeError> {
    bincode::decode_from_slice(body, bincode::config::legacy().with_limit::<LIMIT>())
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
