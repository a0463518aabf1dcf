//! Texts that a model wrote (a story's narrative, a digest of progress entries), cached under a hash of its inputs.

use sqlx::Row;

use super::blob::Hash;
use super::statement::{change, select};
use super::{LedgerConnection, LedgerError, Write};

/// Returns the cached text of some inputs.
///
/// # Errors
/// The ledger failed.
pub async fn get(on: &mut impl LedgerConnection, inputs: &Hash) -> Result<Option<String>, LedgerError> {
    let row = select("SELECT text FROM narratives WHERE inputs = $1")
        .bind(inputs.to_vec())
        .fetch_optional(on.conn())
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Caches the text made of some inputs, unless one is cached already.
///
/// # Errors
/// The ledger failed.
pub async fn put(write: &mut Write, inputs: &Hash, text: &str) -> Result<(), LedgerError> {
    change(
        // The first text stays: two processes may have asked a model at once, and readers must see one answer.
        "INSERT INTO narratives (inputs, text, created_ns) VALUES ($1, $2, $3) ON CONFLICT (inputs) DO NOTHING",
    )
    .bind(*inputs)
    .bind(write.clean(text))
    .bind(write.at_ns())
    .execute(write)
    .await?;
    Ok(())
}
