//! Claims on requests to the model: of the processes that need the same answer at the same time, one sends the request.

use std::time::Duration;

use crate::ledger::statement::{Key, change};
use crate::ledger::{LedgerError, Write};
use scrubjay_tape::clock;

/// Claims a request for a time; returns false if another owner has claimed it. An owner may renew its claim.
///
/// The claim of a process that was killed ends with its time.
///
/// # Errors
/// The ledger failed.
pub async fn take(
    write: &mut Write,
    subject: &str,
    owner: &str,
    lasts: Duration,
) -> Result<bool, LedgerError> {
    let now_ns = write.at_ns();
    let lasts_ns = i64::try_from(clock::saturate(lasts)).unwrap_or(i64::MAX);
    // A claim whose time is over is replaced: its process was killed, or is too slow.
    let rows = change(
        "INSERT INTO progress_claims (subject, owner, until_ns) VALUES ($1, $2, $3)
         ON CONFLICT (subject) DO UPDATE SET owner = excluded.owner, until_ns = excluded.until_ns
         WHERE progress_claims.until_ns < $4 OR progress_claims.owner = excluded.owner",
    )
    .bind(Key::known(subject))
    .bind(Key::known(owner))
    .bind(now_ns.saturating_add(lasts_ns))
    .bind(now_ns)
    .execute(write)
    .await?;
    Ok(rows > 0)
}

/// Releases a claim. Does nothing if another owner has taken it over meanwhile.
///
/// # Errors
/// The ledger failed.
pub async fn release(write: &mut Write, subject: &str, owner: &str) -> Result<(), LedgerError> {
    change("DELETE FROM progress_claims WHERE subject = $1 AND owner = $2")
        .bind(Key::known(subject))
        .bind(Key::known(owner))
        .execute(write)
        .await?;
    Ok(())
}
