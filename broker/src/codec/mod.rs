//! Bytes of the wire: JSON for people, bincode after a schema version for tokens.
//!
//! A binary body is `[schema version: u16 LE][bincode, legacy configuration]`. Decoding bounds
//! every allocation by the message's own limit. It rejects an unknown version and bytes that are
//! left over.

pub(crate) mod bulk;
mod decimal;
mod excerpt;
mod python_json;

use bincode::error::DecodeError;
use bincode::{Decode, Encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use decimal::Decimal;
pub use excerpt::excerpt;
pub use python_json::{Parsed, explain_json, parse_exact_json, parse_python_json, strict_json};

/// The schema version of this build.
pub const SCHEMA: u16 = 13;
/// The oldest schema in which samples and finished turns have the same bytes as in [`SCHEMA`].
/// Schema 12 changed failures and added dead bundles. Schema 13 added times and records of turns.
/// None of these is stored.
const STORED_SINCE: u16 = 11;
/// The number in front of bytes that are digested. It stays when [`SCHEMA`] rises, so that equal
/// content keeps its digest.
const DIGESTED: u16 = 11;

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
    encode_behind(SCHEMA, message)
}

/// Encodes content for a digest of it. The bytes do not change with the schema of the wire.
pub fn encode_for_digest<T: Encode>(content: &T) -> Vec<u8> {
    encode_behind(DIGESTED, content)
}

fn encode_behind<T: Encode>(version: u16, message: &T) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    match bincode::encode_into_std_write(message, &mut bytes, bincode::config::legacy()) {
        Ok(_) => bytes,
        // Writing to memory cannot fail, and our types hold nothing that bincode rejects.
        Err(error) => unreachable!("encoding to memory failed: {error}"),
    }
}

/// Decodes a binary message.
pub fn decode<T: Decode<()>>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_if(bytes, |version| version == SCHEMA)
}

/// Decodes a stored sample bundle or finished turn. An earlier release may have written it.
///
/// # Errors
/// [`CodecError::Version`] if these have other bytes in its schema: see [`is_readable`].
pub fn decode_stored<T: Decode<()>>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_if(bytes, is_readable)
}

/// Returns true if this build reads samples and finished turns that were stored in this schema.
#[must_use]
pub fn is_readable(version: u16) -> bool {
    (STORED_SINCE..=SCHEMA).contains(&version)
}

fn decode_if<T: Decode<()>>(bytes: &[u8], reads: impl Fn(u16) -> bool) -> Result<T, CodecError> {
    let (version, body) = bytes.split_first_chunk::<2>().ok_or(CodecError::Short)?;
    let found = u16::from_le_bytes(*version);
    if !reads(found) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Digest;

    /// Returns the bytes that a process of this schema would send.
    fn of_schema(version: u16) -> Vec<u8> {
        let mut bytes = encode(&7u32);
        bytes[..2].copy_from_slice(&version.to_le_bytes());
        bytes
    }

    #[test]
    fn a_message_of_another_schema_is_refused_with_both_numbers() {
        assert_eq!(decode(&of_schema(SCHEMA)), Ok(7u32));
        for found in [SCHEMA - 1, SCHEMA + 1] {
            let error = decode::<u32>(&of_schema(found)).unwrap_err();
            assert_eq!(error, CodecError::Version { found });
            assert_eq!(
                error.to_string(),
                format!("the body has schema version {found}, this build reads 13: run the same release everywhere")
            );
        }
    }

    #[test]
    fn stored_bytes_of_schema_11_are_read() {
        for (version, read) in [(10, false), (11, true), (12, true), (13, true), (14, false)] {
            assert_eq!(decode_stored::<u32>(&of_schema(version)).is_ok(), read, "{version}");
        }
    }

    /// The digest was computed by other code: BLAKE3 over the bytes of schema 11.
    #[test]
    fn digests_are_those_of_schema_11() {
        assert_eq!(encode_for_digest(&7u32), of_schema(11));
        let digest = Digest::of(&encode_for_digest(&("t", 7u64)));
        assert_eq!(digest.to_string(), "2fe49ba8ed1d1f2baa0fec38a296337c");
    }
}
