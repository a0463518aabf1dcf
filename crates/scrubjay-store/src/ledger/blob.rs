//! File contents: each is stored once, under its BLAKE3 hash, compressed with zstd.

use sqlx::Row;

use super::statement::{FileContent, change, select};
use super::{LedgerConnection, LedgerError, Write};

/// The BLAKE3 hash of a content.
pub type Hash = [u8; 32];

/// The default of zstd: higher levels would make every change of a file wait longer.
const LEVEL: i32 = 3;

/// Returns the hash of a content.
#[must_use]
pub fn hash(bytes: &[u8]) -> Hash {
    *blake3::hash(bytes).as_bytes()
}

/// Writes a hash in hex, the form that people and agents see.
#[must_use]
pub fn hex(hash: &Hash) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

/// Reads a hash in hex.
#[must_use]
pub fn from_hex(text: &str) -> Option<Hash> {
    blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())
}

/// Converts a hash from its column.
pub(super) fn from_column(bytes: Vec<u8>) -> Result<Hash, LedgerError> {
    Hash::try_from(bytes).map_err(|_| LedgerError::Damaged("a hash has the wrong length".to_owned()))
}

/// Stores a content, unless it is stored already.
///
/// # Errors
/// The ledger failed.
pub async fn put(write: &mut Write, bytes: &[u8]) -> Result<Hash, LedgerError> {
    let hash = hash(bytes);
    // A change's earlier content is usually stored already, and a query costs less than compressing it again.
    let known = select("SELECT 1 FROM blobs WHERE hash = $1")
        .bind(hash.to_vec())
        .fetch_optional(write.conn())
        .await?;
    if known.is_none() {
        let data = zstd::bulk::compress(bytes, LEVEL)
            .map_err(|e| LedgerError::Damaged(format!("a content cannot be compressed: {e}")))?;
        change("INSERT INTO blobs (hash, size, data) VALUES ($1, $2, $3)")
            .bind(hash)
            .bind(bytes.len() as i64)
            .bind(FileContent(data))
            .execute(write)
            .await?;
    }
    Ok(hash)
}

/// Returns a content.
///
/// # Errors
/// It is missing or damaged.
pub async fn get(on: &mut impl LedgerConnection, wanted: &Hash) -> Result<Vec<u8>, LedgerError> {
    let damaged = |what: &str| LedgerError::Damaged(format!("content {} {what}", hex(wanted)));
    let row = select("SELECT size, data FROM blobs WHERE hash = $1")
        .bind(wanted.to_vec())
        .fetch_optional(on.conn())
        .await?
        .ok_or_else(|| damaged("is missing"))?;
    let size = usize::try_from(row.try_get::<i64, _>(0)?).map_err(|_| damaged("has a wrong size"))?;
    // The stored size is the limit, so a damaged row cannot make this allocate more.
    let bytes = zstd::bulk::decompress(row.try_get(1)?, size).map_err(|_| damaged("cannot be read"))?;
    // A damaged row may still decompress, to other bytes.
    if hash(&bytes) == *wanted { Ok(bytes) } else { Err(damaged("is not what was stored")) }
}

/// Returns a content, if a hash is given.
pub(crate) async fn get_optional(
    on: &mut impl LedgerConnection,
    wanted: Option<&Hash>,
) -> Result<Option<Vec<u8>>, LedgerError> {
    match wanted {
        Some(hash) => get(on, hash).await.map(Some),
        None => Ok(None),
    }
}
