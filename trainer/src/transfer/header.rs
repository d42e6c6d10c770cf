//! The 128 bytes before a body. All numbers are little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `DYWT` |
//! | 4 | format (2); kind (0 full, 1 delta); type (0 f32, 1 bf16); packed (1: zstd frame) |
//! | 12 | lineage (u32) and step (u64) of a delta's base; otherwise 0 |
//! | 12 | lineage and step of the result |
//! | 32 | elements; changed elements; bytes of the body unpacked; bytes of the body as sent |
//! | 32 | [`Form::model`] |
//! | 32 | [`seal`] over the delta's base, the version and digest of the result |

use broker::ids::WeightVersion;
use configs::Dtype;

use super::{Form, State, TransferError};

const MAGIC: &[u8; 4] = b"DYWT";
const FORMAT: u8 = 2;
pub(super) const LENGTH: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The version that a delta begins from.
    pub(super) base: Option<WeightVersion>,
    pub(super) version: WeightVersion,
    pub(super) form: Form,
    /// The number of elements that a delta changes.
    pub(super) changed: u64,
    pub(super) packed: bool,
    /// Bytes of the body unpacked.
    pub(super) plain: u64,
    /// Bytes of the body as sent.
    pub(super) body: u64,
    pub(super) seal: [u8; 32],
}

impl Header {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(LENGTH);
        let dtype = match self.form.dtype {
            Dtype::F32 => 0,
            Dtype::Bf16 => 1,
        };
        to.extend(MAGIC);
        to.extend([FORMAT, u8::from(self.base.is_some()), dtype, u8::from(self.packed)]);
        for version in [self.base.unwrap_or_default(), self.version] {
            to.extend(version.lineage.to_le_bytes());
            to.extend(version.step.to_le_bytes());
        }
        for number in [self.form.elements as u64, self.changed, self.plain, self.body] {
            to.extend(number.to_le_bytes());
        }
        to.extend(self.form.model);
        to.extend(self.seal);
        to
    }

    /// Splits a message from the front: header, body, and the rest.
    pub(super) fn split(bytes: &[u8]) -> Result<(Self, &[u8], &[u8]), TransferError> {
        let short = TransferError::Short { found: bytes.len() };
        let (head, rest) = bytes.split_at_checked(LENGTH).ok_or(short.clone())?;
        let header = Self::read(head)?;
        let length = usize::try_from(header.body).map_err(|_| short.clone())?;
        let (body, rest) = rest.split_at_checked(length).ok_or(short)?;
        Ok((header, body, rest))
    }

    fn read(head: &[u8]) -> Result<Self, TransferError> {
        let mut at = Reader(head);
        if &at.take::<4>() != MAGIC {
            return Err(TransferError::Foreign("they do not begin with the mark of weights"));
        }
        let [format, kind, dtype, packed] = at.take();
        if format != FORMAT || kind > 1 || packed > 1 {
            return Err(TransferError::Foreign("their format is unknown"));
        }
        let dtype = match dtype {
            0 => Dtype::F32,
            1 => Dtype::Bf16,
            _ => return Err(TransferError::Foreign("their type of numbers is unknown")),
        };
        let (base, version) = (at.version(), at.version());
        let [elements, changed, plain, body] = [at.number(), at.number(), at.number(), at.number()];
        let elements = usize::try_from(elements).map_err(|_| TransferError::Form { version })?;
        Ok(Self {
            base: (kind == 1).then_some(base),
            version,
            changed,
            packed: packed == 1,
            plain,
            body,
            form: Form {
                dtype,
                elements,
                model: at.take(),
            },
            seal: at.take(),
        })
    }
}

/// Covers the versions, which no body contains. Without it, a message with a damaged version would
/// lead to the right values under a wrong name.
pub(super) fn seal(base: Option<WeightVersion>, state: &State) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("dyad weights message v2");
    hasher.update(&[u8::from(base.is_some())]);
    for version in [base.unwrap_or_default(), state.version()] {
        hasher.update(&version.lineage.to_le_bytes());
        hasher.update(&version.step.to_le_bytes());
    }
    hasher.update(state.digest().as_bytes());
    *hasher.finalize().as_bytes()
}

/// Reads a header of the full length.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        if let Some((head, rest)) = self.0.split_at_checked(N) {
            bytes.copy_from_slice(head);
            self.0 = rest;
        }
        bytes
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn version(&mut self) -> WeightVersion {
        WeightVersion {
            lineage: u32::from_le_bytes(self.take()),
            step: self.number(),
        }
    }
}
