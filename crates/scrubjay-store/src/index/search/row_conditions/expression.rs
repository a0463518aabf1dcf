//! Conditions on rows of exchanges, as a tree that is written as SQL.

use crate::index::dialect::has_text;
use crate::index::sql::Sql;
use crate::ledger::dialect::Dialect;

/// A condition on a row of exchanges.
#[derive(Debug)]
pub(super) enum Expression {
    Sql(String),
    /// The row's text matches this full-text query.
    Text(String),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

impl Expression {
    pub(super) fn push(&self, dialect: Dialect, sql: &mut Sql) {
        match self {
            Self::Sql(text) => drop(sql.push(text)),
            Self::Text(text) => {
                let bind = sql.bind(text);
                sql.push(&has_text(dialect, &bind));
            }
            Self::All(all) => Self::join(all, dialect, sql, " AND ", "1 = 1"),
            Self::Any(any) => Self::join(any, dialect, sql, " OR ", "1 = 0"),
            Self::Not(one) => {
                // NULL counts as false: a row without a name does not have the name.
                sql.push("CASE WHEN ");
                one.push(dialect, sql);
                sql.push(" THEN 0 ELSE 1 END = 1");
            }
        }
    }

    fn join(all: &[Self], dialect: Dialect, sql: &mut Sql, between: &str, nothing: &str) {
        if all.is_empty() {
            // An empty list is not valid SQL. All of nothing is true, any of nothing is false.
            sql.push(nothing);
            return;
        }
        sql.push("(");
        for (at, one) in all.iter().enumerate() {
            sql.push(if at == 0 { "" } else { between });
            one.push(dialect, sql);
        }
        sql.push(")");
    }
}
