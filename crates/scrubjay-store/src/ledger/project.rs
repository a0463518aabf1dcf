//! Projects: bodies of work, shared by all toolsets. A project's tick is its logical clock.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::statement::{Key, change, select};
use super::{LedgerConnection, LedgerError, Write};

/// The project of callers that name none.
pub const DEFAULT_PROJECT: &str = "default";

/// A project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What it is about.
    pub description: Option<String>,
    /// When it was created.
    pub created_ns: i64,
    /// Its logical clock, which each write to its records increments.
    pub tick: i64,
}

impl Project {
    fn of(row: &AnyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            name: row.try_get(1)?,
            description: row.try_get(2)?,
            created_ns: row.try_get(3)?,
            tick: row.try_get(4)?,
        })
    }
}

const SELECT: &str = "SELECT id, name, description, created_ns, tick FROM projects WHERE id = $1";

/// Returns a project.
///
/// # Errors
/// The ledger failed.
pub async fn get(on: &mut impl LedgerConnection, id: &str) -> Result<Option<Project>, LedgerError> {
    let row = select(SELECT).bind(id).fetch_optional(on.conn()).await?;
    Ok(row.as_ref().map(Project::of).transpose()?)
}

/// Creates a project, unless it exists.
///
/// # Errors
/// The ledger failed.
pub async fn ensure(write: &mut Write, id: &str) -> Result<(), LedgerError> {
    insert(write, id, id, None).await.map(drop)
}

/// Creates a project; returns whether it is new.
///
/// # Errors
/// The ledger failed.
pub async fn insert(
    write: &mut Write,
    id: &str,
    name: &str,
    description: Option<&str>,
) -> Result<bool, LedgerError> {
    let key = write.new_key("project", id)?;
    let rows = change(
        "INSERT INTO projects (id, name, description, created_ns, tick) VALUES ($1, $2, $3, $4, 0)
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(key)
    .bind(write.clean(name))
    .bind(description.map(|text| write.clean(text)))
    .bind(write.at_ns)
    .execute(write)
    .await?;
    Ok(rows > 0)
}

/// Increments a project's logical clock; returns the new tick.
pub(super) async fn tick(write: &mut Write, id: &str) -> Result<i64, LedgerError> {
    // Counted by the database and not from a value read earlier, so no write can use a tick twice.
    let row = change("UPDATE projects SET tick = tick + 1 WHERE id = $1 RETURNING tick")
        .bind(Key::known(id))
        .fetch_one(write)
        .await?;
    Ok(row.try_get(0)?)
}

/// Returns a page of projects, ordered by id.
///
/// # Errors
/// The ledger failed.
pub async fn list(
    on: &mut impl LedgerConnection,
    after: &str,
    limit: i64,
) -> Result<Vec<Project>, LedgerError> {
    let rows = select(
        "SELECT id, name, description, created_ns, tick FROM projects WHERE id > $1 ORDER BY id LIMIT $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(on.conn())
    .await?;
    Ok(rows.iter().map(Project::of).collect::<Result<_, _>>()?)
}
