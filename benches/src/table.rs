//! A table on a terminal: a title, columns aligned to the right, no lines.

use std::fmt::Write;

/// Rows of text, aligned when written.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Starts a table whose first column is headed by its title.
    pub fn new(title: &str, columns: &[&str]) -> Self {
        let head = std::iter::once(&title).chain(columns).map(|&cell| cell.to_owned()).collect();
        Self { rows: vec![head] }
    }

    /// Adds a row.
    pub fn push<const N: usize>(&mut self, name: &str, cells: [String; N]) {
        let name = format!("  {name}");
        self.rows.push(std::iter::once(name).chain(cells).collect());
    }

    /// Appends the table and an empty line; nothing if it has no rows.
    pub fn push_to(&self, text: &mut String) {
        if self.rows.len() == 1 {
            return;
        }
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = width(column);
                let _ = match column {
                    0 => write!(line, "{cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text.push('\n');
    }
}
