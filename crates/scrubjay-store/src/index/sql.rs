//! Builds SQL statements: numbers of our own are written into the text, texts from outside are bound.

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe};

/// A statement, and the texts bound to it.
#[derive(Debug)]
pub(super) struct Sql {
    text: String,
    bound: Vec<String>,
}

impl Sql {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), bound: Vec::new() }
    }

    pub(super) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Binds a text; returns its placeholder.
    pub(super) fn bind(&mut self, text: &str) -> String {
        self.bound.push(text.to_owned());
        format!("${}", self.bound.len())
    }

    pub(super) async fn fetch(self, connection: &mut AnyConnection) -> Result<Vec<AnyRow>, sqlx::Error> {
        // Texts from outside are bound, so the statement consists of words and numbers of our own. Not cached: almost
        // every search has another text.
        let mut query = sqlx::query(AssertSqlSafe(self.text)).persistent(false);
        for text in self.bound {
            query = query.bind(text);
        }
        query.fetch_all(connection).await
    }
}

/// Writes the condition that a column is one of some numbers of our own.
pub(super) fn is_one_of(column: &str, numbers: &[i64]) -> String {
    if numbers.is_empty() { "1 = 0".to_owned() } else { format!("{column} IN ({})", list(numbers)) }
}

/// Writes numbers of our own into a statement.
pub(super) fn list(numbers: &[i64]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Writes the placeholders of rows of values: `($1, $2), ($3, $4)`. `placeholder` writes one, given its column and
/// number.
pub(super) fn values(rows: usize, columns: usize, placeholder: impl Fn(usize, usize) -> String) -> String {
    let row = |row: usize| {
        let values: Vec<String> =
            (0..columns).map(|column| placeholder(column, row * columns + column + 1)).collect();
        format!("({})", values.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}
