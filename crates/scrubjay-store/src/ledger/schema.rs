//! The tables, as a list of migrations. A released migration is never edited: a change is a new one.

use sqlx::{AssertSqlSafe, Executor, Row};

use super::dialect::Dialect;
use super::statement::{change, select};
use super::{LedgerConnection, LedgerError, Write};
use crate::database::LEDGER;

/// The migrations; each leads to the next version of the schema.
const STEPS: &[Migration] = &[
    Migration { all: include_str!("schema/1.sql"), sqlite: "", postgres: "" },
    Migration {
        all: include_str!("schema/2.sql"),
        sqlite: include_str!("schema/2.sqlite.sql"),
        postgres: include_str!("schema/2.postgres.sql"),
    },
    Migration {
        all: include_str!("schema/3.sql"),
        sqlite: include_str!("schema/3.sqlite.sql"),
        postgres: include_str!("schema/3.postgres.sql"),
    },
    Migration { all: include_str!("schema/4.sql"), sqlite: "", postgres: "" },
    Migration { all: include_str!("schema/5.sql"), sqlite: "", postgres: "" },
];

/// Statements for both databases, with `{number}` and `{bytes}` in place of the words that differ, and statements for
/// one of them, which only full-text search needs.
struct Migration {
    all: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

impl Migration {
    fn statements(&self, dialect: Dialect) -> Vec<String> {
        let own = match dialect {
            Dialect::Sqlite => self.sqlite,
            Dialect::Postgres => self.postgres,
        };
        let text = dialect.schema(&format!("{};\n{own}", self.all));
        // No statement of ours has a `;` at the end of a line within it.
        text.split(";\n").map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect()
    }
}

/// Runs the missing migrations, in the caller's transaction: a crash leaves the old schema.
pub(super) async fn migrate(write: &mut Write) -> Result<(), LedgerError> {
    let known = STEPS.len() as i64;
    // `LEDGER.first_statement` in `database.rs` is this statement as SQLite stores it: change both or neither.
    write.conn().execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)").await?;
    let row = select("SELECT max(version) FROM schema_version").fetch_one(write.conn()).await?;
    let found: i64 = row.try_get::<Option<i64>, _>(0)?.unwrap_or(0);
    if found > known {
        return Err(LedgerError::Newer { found, known });
    }
    // Versions count from 1, so the first missing migration is at index `found`.
    for step in &STEPS[found as usize..] {
        for statement in step.statements(write.dialect()) {
            // The text is one of the constants above, so it holds nothing from outside.
            write.conn().execute(AssertSqlSafe(statement)).await?;
        }
    }
    if write.dialect() == Dialect::Sqlite {
        set_application_id(write).await?;
    }
    if found < known {
        change("INSERT INTO schema_version (version) VALUES ($1)").bind(known).execute(write).await?;
    }
    Ok(())
}

/// Writes our application id into the header of a file that an older version created.
async fn set_application_id(write: &mut Write) -> Result<(), LedgerError> {
    let id: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(write.conn()).await?;
    if id != i64::from(LEDGER.application_id) {
        let statement = format!("PRAGMA application_id = {}", LEDGER.application_id);
        write.conn().execute(AssertSqlSafe(statement)).await?;
    }
    Ok(())
}
