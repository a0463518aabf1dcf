//! A ledger of its own for each test: in a file, or in the PostgreSQL that `scripts/with-postgres` starts.

use std::sync::Arc;

use scrubjay_core::redact::Redactor;
use scrubjay_store::ledger::session::Caller;
use scrubjay_store::ledger::{Ledger, Storage};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;

/// Where a test's ledger is.
pub(crate) struct Database {
    pub(crate) storage: Storage,
    /// A directory of the test's own.
    pub(crate) home: TempDir,
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { storage: Storage::File(home.path().join("data/ledger.db")), home }
    }

    pub(crate) async fn postgres() -> Self {
        let server = crate::needs::postgres();
        sqlx::any::install_default_drivers();
        let home = tempfile::tempdir().unwrap();
        let name =
            format!("t_{}", home.path().file_name().unwrap().to_string_lossy().replace(['.', '-'], "_"));
        let mut connection = sqlx::AnyConnection::connect(&server).await.unwrap();
        connection.execute(AssertSqlSafe(format!("CREATE DATABASE \"{name}\""))).await.unwrap();
        let (start, _) = server.rsplit_once('/').unwrap();
        Self { storage: Storage::Postgres(format!("{start}/{name}")), home }
    }

    pub(crate) async fn open(&self) -> Ledger {
        Ledger::open(&self.storage, redactor()).await.unwrap()
    }
}

pub(crate) fn redactor() -> Arc<Redactor> {
    Arc::new(Redactor::standard())
}

pub(crate) fn caller(key: &str) -> Caller {
    Caller { agent: Some("test".to_owned()), ..Caller::alone(key, "birds") }
}

/// Runs each story on both databases.
macro_rules! on_both {
    ($($story:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test] async fn $story() {
                super::$story(crate::database::Database::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test] #[ignore = "needs postgres"] async fn $story() {
                super::$story(crate::database::Database::postgres().await).await;
            })*
        }
    };
}
pub(crate) use on_both;
