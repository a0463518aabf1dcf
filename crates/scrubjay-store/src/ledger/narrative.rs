//! Sentences a model wrote, kept under a hash of what it was given: the same facts are told once.

use sqlx::Row;

use super::blob::Hash;
use super::statement::{change, select};
use super::{Conn, LedgerError, Write};

/// Returns what was told of these facts.
///
/// # Errors
/// The ledger failed.
pub async fn get(on: &mut impl Conn, inputs: &Hash) -> Result<Option<String>, LedgerError> {
    let row = select("SELECT text FROM narratives WHERE inputs = $1")
        .bind(inputs.to_vec())
        .fetch_optional(on.conn())
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Keeps what was told of these facts; the first telling stays.
///
/// # Errors
/// The ledger failed.
pub async fn put(write: &mut Write, inputs: &Hash, text: &str) -> Result<(), LedgerError> {
    change(
        "INSERT INTO narratives (inputs, text, created_ns) VALUES ($1, $2, $3) ON CONFLICT (inputs) DO NOTHING",
    )
    .bind(*inputs)
    .bind(write.clean(text))
    .bind(write.at_ns())
    .execute(write)
    .await?;
    Ok(())
}
