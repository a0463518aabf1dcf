//! The tables, as a list of steps. A step that was released is never edited: a change is a step of its own.

use sqlx::{AssertSqlSafe, Executor, Row};

use super::{Conn, LedgerError, Write};

/// One step for each version; `{number}` and `{bytes}` are words that differ between databases.
const STEPS: &[&str] = &[include_str!("schema/1.sql")];

/// Takes the steps that are missing.
pub(super) async fn migrate(write: &mut Write) -> Result<(), LedgerError> {
    let known = STEPS.len() as i64;
    write.conn().execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)").await?;
    let row = sqlx::query("SELECT max(version) FROM schema_version").fetch_one(write.conn()).await?;
    let found: i64 = row.try_get::<Option<i64>, _>(0)?.unwrap_or(0);
    if found > known {
        return Err(LedgerError::Newer { found, known });
    }
    for step in &STEPS[found as usize..] {
        let text = write.dialect().schema(step);
        for statement in text.split(";\n").map(str::trim).filter(|s| !s.is_empty()) {
            // The text is one of ours, above.
            write.conn().execute(AssertSqlSafe(statement.to_owned())).await?;
        }
    }
    if found < known {
        sqlx::query("INSERT INTO schema_version (version) VALUES ($1)")
            .bind(known)
            .execute(write.conn())
            .await?;
    }
    Ok(())
}
