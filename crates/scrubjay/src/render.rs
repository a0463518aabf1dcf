//! How results look on a terminal: tables, times, JSON.
//!
//! Recorded text passes through `inert` here, and JSON escapes the same, so that no recording can steer the
//! terminal. Colour goes only where it is wanted (`NO_COLOR`, pipes), and never carries meaning alone.

use std::borrow::Cow;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use scrubjay_core::inert::inert;
use serde::Serialize;

const HEAD: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const FAINT: Style = AnsiColor::Cyan.on_default();
const BAD: Style = AnsiColor::Red.on_default();
/// No cell is wider than this.
const CELL_MAX: usize = 48;

/// Which way a column's cells lean.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table that is printed when its columns' widths are known.
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<(bool, Vec<String>)>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Self { columns: columns.iter().map(|(n, a)| ((*n).to_owned(), *a)).collect(), rows: Vec::new() }
    }

    /// Makes something to print single lines with.
    pub(crate) fn note() -> Self {
        Self::new(&[])
    }

    pub(crate) fn line(&mut self, text: &str) -> anyhow::Result<()> {
        let mut out = anstream::stdout().lock();
        writeln!(out, "{}", inert(text))?;
        Ok(out.flush()?)
    }

    /// Adds a row; a bad one stands out.
    pub(crate) fn row(&mut self, bad: bool, cells: &[&str]) {
        self.rows.push((bad, cells.iter().map(|c| clip(&inert(c))).collect()));
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let widths = self.widths();
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        let names: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        self.print_row(&mut out, HEAD, &names, &widths)?;
        for (bad, cells) in &self.rows {
            self.print_row(&mut out, if *bad { BAD } else { Style::new() }, cells, &widths)?;
        }
        Ok(out.flush()?)
    }

    /// Prints the rows added since the last call, with fixed widths: for what is still growing.
    pub(crate) fn print_fresh(&mut self, widths: &[usize], with_head: bool) -> anyhow::Result<()> {
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        if with_head {
            let names: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
            self.print_row(&mut out, HEAD, &names, widths)?;
        }
        for (bad, cells) in self.rows.drain(..).collect::<Vec<_>>() {
            self.print_row(&mut out, if bad { BAD } else { Style::new() }, &cells, widths)?;
        }
        Ok(out.flush()?)
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| name.chars().count()).collect();
        for (_, cells) in &self.rows {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    fn print_row(
        &self,
        out: &mut impl Write,
        style: Style,
        cells: &[String],
        widths: &[usize],
    ) -> io::Result<()> {
        let mut line = String::new();
        for ((cell, (_, align)), width) in cells.iter().zip(&self.columns).zip(widths) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            match align {
                Align::Left => line.extend([cell.as_str(), &padding]),
                Align::Right => line.extend([&padding, cell.as_str()]),
            }
        }
        writeln!(out, "{style}{}{style:#}", line.trim_end())
    }
}

fn clip(text: &str) -> String {
    if text.chars().count() <= CELL_MAX {
        return text.to_owned();
    }
    text.chars().take(CELL_MAX - 1).chain(['…']).collect()
}

/// Writes an instant in the local time zone.
pub(crate) fn local_time(wall_ns: u64) -> String {
    let Ok(time) = Timestamp::from_nanosecond(i128::from(wall_ns)) else { return String::new() };
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Prints text of several lines, each of them inert.
pub(crate) fn print_lines(text: &str) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    for line in text.trim_end_matches('\n').split('\n') {
        writeln!(out, "{}", inert(line))?;
    }
    Ok(out.flush()?)
}

/// Prints a unified diff, coloured where colour is wanted.
pub(crate) fn print_diff(diff: &str) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    for line in diff.trim_end_matches('\n').split('\n') {
        let style = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => HEAD,
            [b'+', ..] => GOOD,
            [b'-', ..] => BAD,
            [b'@', b'@', ..] => FAINT,
            _ => Style::new(),
        };
        writeln!(out, "{style}{}{style:#}", inert(line))?;
    }
    Ok(out.flush()?)
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(HarmlessJson(&mut out), value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Writes a value as JSON, on one line without its end.
pub(crate) fn write_json(out: impl Write, value: &impl Serialize) -> io::Result<()> {
    // As an I/O error, for that is what it is: a reader that went away must be told from anything else.
    Ok(serde_json::to_writer(HarmlessJson(out), value)?)
}

/// Escapes in JSON what could steer a terminal and JSON itself lets stand; it reads back the same.
struct HarmlessJson<W>(W);

impl<W: Write> Write for HarmlessJson<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        // The serializer hands over strings piece by piece, never cut within a character.
        match std::str::from_utf8(piece) {
            Ok(text) if text.chars().any(acts) => {
                for c in text.chars() {
                    self.write_char(c)?;
                }
            }
            _ => self.0.write_all(piece)?,
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write> HarmlessJson<W> {
    fn write_char(&mut self, c: char) -> io::Result<()> {
        if !acts(c) {
            return self.0.write_all(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(self.0, "\\u{unit:04x}"))
    }
}

/// Tells whether a character acts on a terminal; the line feeds of the layout are wanted.
fn acts(c: char) -> bool {
    let plain = matches!(c, ' '..='~' | '\n');
    !plain && matches!(inert(c.encode_utf8(&mut [0; 4])), Cow::Owned(_))
}
