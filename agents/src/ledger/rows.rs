//! Storage of ids and numbers.

use broker::ids::{Attempt, Digest, GroupId};
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};

/// A 16-byte id in a blob column.
#[derive(Clone, Copy)]
pub(super) struct Id(pub(super) [u8; 16]);

impl From<GroupId> for Id {
    fn from(id: GroupId) -> Self {
        Self(id.0)
    }
}

impl From<Attempt> for Id {
    fn from(id: Attempt) -> Self {
        Self(id.0)
    }
}

impl From<Digest> for Id {
    fn from(id: Digest) -> Self {
        Self(id.0)
    }
}

impl ToSql for Id {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for Id {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = value.as_blob()?;
        <[u8; 16]>::try_from(bytes)
            .map(Self)
            .map_err(|_| FromSqlError::InvalidBlobSize {
                expected_size: 16,
                blob_size: bytes.len(),
            })
    }
}

/// Converts to SQLite's signed integers: the bits are kept, and SQL never sorts by them.
pub(super) fn signed(value: u64) -> i64 {
    value.cast_signed()
}

pub(super) fn unsigned(value: i64) -> u64 {
    value.cast_unsigned()
}
