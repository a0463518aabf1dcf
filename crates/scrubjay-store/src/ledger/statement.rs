//! The values that can be bound to statements of the ledger.
//!
//! Statements that read take any value, because it is only compared. A statement that writes takes only [`Storable`]
//! values: numbers, hashes, `&'static str`, keys of rows, and redacted texts. Storing a text that did not pass the
//! redactor does not compile.

use scrubjay_core::redact::RedactedText;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, SqlSafeStr};

use super::blob::Hash;
use super::{LedgerConnection, LedgerError, Write};

/// Begins a statement that reads.
#[expect(clippy::disallowed_methods, reason = "the one place that makes statements")]
pub(crate) fn select(sql: impl SqlSafeStr) -> Query<'static, Any, AnyArguments> {
    let sql = sql.into_sql_str();
    debug_assert!(
        ["SELECT", "WITH"].iter().any(|word| sql.as_str().trim_start().starts_with(word)),
        "a statement that writes is a `change`: {}",
        sql.as_str()
    );
    sqlx::query(sql)
}

/// Begins a statement that writes.
#[expect(clippy::disallowed_methods, reason = "the one place that makes statements")]
pub(super) fn change(sql: &'static str) -> WriteStatement {
    WriteStatement(sqlx::query(sql))
}

/// A statement that writes, with the values bound so far.
pub(super) struct WriteStatement(Query<'static, Any, AnyArguments>);

impl WriteStatement {
    /// Binds the next value.
    pub(super) fn bind(self, value: impl Storable) -> Self {
        Self(value.bind_to(self.0))
    }

    /// Runs it; returns how many rows it wrote.
    pub(super) async fn execute(self, write: &mut Write) -> Result<u64, LedgerError> {
        Ok(self.0.execute(write.conn()).await?.rows_affected())
    }

    /// Runs it; returns the row of its `RETURNING` clause.
    pub(super) async fn fetch_one(self, write: &mut Write) -> Result<AnyRow, LedgerError> {
        Ok(self.0.fetch_one(write.conn()).await?)
    }
}

/// The id of a row: it names an existing row, was made by Scrubjay, or was checked by [`Write::new_key`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a>(&'a str);

impl<'a> Key<'a> {
    /// Names an existing row, to compare with or to refer to by a foreign key, or a new row with an id that Scrubjay
    /// made.
    pub(super) fn known(id: &'a str) -> Self {
        Self(id)
    }
}

impl Write {
    /// Checks an id that a caller chose for a new row.
    ///
    /// # Errors
    /// It contains a secret. Ids are written unredacted wherever their row is named.
    pub(super) fn new_key<'a>(&self, of: &'static str, id: &'a str) -> Result<Key<'a>, LedgerError> {
        if self.is_clean(id) { Ok(Key(id)) } else { Err(LedgerError::SecretId(of)) }
    }
}

/// Search words, cut out of texts that were redacted.
#[derive(Clone, Debug)]
pub(super) struct SearchWords(String);

impl SearchWords {
    /// Takes words that were cut out of these redacted texts.
    // The texts are not read. Asking for them keeps a caller from passing words of a text that was not redacted.
    pub(super) fn cut_from(_texts: &[&RedactedText], words: String) -> Self {
        Self(words)
    }
}

/// A value that may be written to the ledger.
pub(super) trait Storable {
    /// Binds it to a statement.
    fn bind_to(self, query: Query<'static, Any, AnyArguments>) -> Query<'static, Any, AnyArguments>;
}

macro_rules! storable {
    ($($type:ty, $value:ident => $bound:expr;)*) => {$(
        impl Storable for $type {
            fn bind_to(self, query: Query<'static, Any, AnyArguments>) -> Query<'static, Any, AnyArguments> {
                let $value = self;
                query.bind($bound)
            }
        }
    )*};
}

storable! {
    i64, number => number;
    Option<i64>, number => number;
    // A constant: text from outside is not `'static`.
    &'static str, word => word;
    RedactedText, text => text.into_string();
    &RedactedText, text => text.as_str().to_owned();
    Option<RedactedText>, text => text.map(RedactedText::into_string);
    Key<'_>, key => key.0.to_owned();
    Option<Key<'_>>, key => key.map(|key| key.0.to_owned());
    SearchWords, words => words.0;
    Hash, hash => hash.to_vec();
    Option<Hash>, hash => hash.map(|hash| hash.to_vec());
    FileContent, content => content.0;
}

/// The content of a user's file: not redacted, because it must come back byte for byte.
pub(super) struct FileContent(pub(super) Vec<u8>);
