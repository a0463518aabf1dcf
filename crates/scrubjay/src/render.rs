//! Prints results: tables, times, JSON.
//!
//! Recorded text passes through `inert` here, and JSON escapes the same characters, so that no recording can control the
//! terminal. Colour is left out for `NO_COLOR` and in pipes, so it never carries meaning alone.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use scrubjay_core::inert::inert;
use scrubjay_core::shorten::shortened;
use serde::Serialize;

const HEAD: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const FAINT: Style = AnsiColor::Cyan.on_default();
const BAD: Style = AnsiColor::Red.on_default();
/// The widest cell, in characters: one long name must not push the other columns off the screen. The last cell of a table
/// that fills the line has more room.
const CELL_MAX: usize = 48;
/// The width of a line if there is no terminal: enough for a method and its arguments, short enough for a log.
const COLUMNS_DEFAULT: usize = 160;
/// The least room of the last cell, in characters. On a narrow terminal the line is wrapped rather than its end lost.
const LAST_CELL_MIN: usize = 20;

/// The alignment of a column's cells.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// The cells of a row in one string: a long tape has a million rows, and a string for each cell would cost more memory than
/// the text.
struct Row {
    is_bad: bool,
    text: String,
    /// Where each cell ends.
    ends: Vec<u32>,
}

impl Row {
    fn cells(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(&0).chain(&self.ends);
        begins.zip(&self.ends).map(|(begin, end)| &self.text[*begin as usize..*end as usize])
    }

    fn push(&mut self, cell: &str, room: usize) {
        clip_into(&mut self.text, cell, room);
        self.ends.push(u32::try_from(self.text.len()).expect("cells are clipped"));
    }
}

/// A table. It is printed when all rows are known, because they decide how wide the columns are.
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Row>,
    /// Whether the last column gets the rest of the line.
    fills: bool,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(n, a)| ((*n).to_owned(), *a)).collect();
        Self { columns, rows: Vec::new(), fills: false }
    }

    /// Makes a table whose last column gets the rest of the line.
    pub(crate) fn filling(columns: &[(&str, Align)]) -> Self {
        Self { fills: true, ..Self::new(columns) }
    }

    /// Makes a table without columns, which only prints single lines.
    pub(crate) fn note() -> Self {
        Self::new(&[])
    }

    pub(crate) fn line(&mut self, text: &str) -> anyhow::Result<()> {
        let mut out = anstream::stdout().lock();
        writeln!(out, "{}", inert(text))?;
        Ok(out.flush()?)
    }

    /// Adds a row; a bad one is printed in red.
    pub(crate) fn row(&mut self, bad: bool, cells: &[&str]) {
        let last = if self.fills { cells.len().saturating_sub(1) } else { cells.len() };
        let room = |at: usize| if at == last { columns() } else { CELL_MAX };
        let bytes = cells.iter().map(|cell| cell.len()).sum::<usize>().min(2 * columns());
        let mut row =
            Row { is_bad: bad, text: String::with_capacity(bytes), ends: Vec::with_capacity(cells.len()) };
        for (at, cell) in cells.iter().enumerate() {
            row.push(&inert(cell), room(at));
        }
        self.rows.push(row);
    }

    /// Returns how many rows it has.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Puts a text before the text of a row's last cell, and marks the row as bad.
    pub(crate) fn mark(&mut self, row: usize, text: &str) {
        let Some(row) = self.rows.get_mut(row) else { return };
        row.is_bad = true;
        if row.ends.pop().is_some() {
            let last = row.text.split_off(row.ends.last().map_or(0, |end| *end as usize));
            let between = if last.is_empty() { "" } else { " " };
            row.push(&format!("{}{between}{last}", inert(text)), columns());
        }
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let widths = self.widths();
        let names = self.columns.iter().map(|(name, _)| name.as_str());
        // Without colours there are no escape sequences to strip, so long output need not pass the filter for them.
        let is_plain = anstream::AutoStream::choice(&io::stdout()) == anstream::ColorChoice::Never;
        let mut out: io::BufWriter<Box<dyn Write>> = if is_plain {
            io::BufWriter::new(Box::new(io::stdout().lock()))
        } else {
            io::BufWriter::new(Box::new(anstream::stdout().lock()))
        };
        let style = |style: Style| if is_plain { Style::new() } else { style };
        self.print_row(&mut out, style(HEAD), names, &widths)?;
        for row in &self.rows {
            let looks = if row.is_bad { style(BAD) } else { Style::new() };
            self.print_row(&mut out, looks, row.cells(), &widths)?;
        }
        Ok(out.flush()?)
    }

    /// Prints the rows added since the last call, with fixed widths, because later rows are not known yet.
    pub(crate) fn print_fresh(&mut self, widths: &[usize], with_head: bool) -> anyhow::Result<()> {
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        if with_head {
            self.print_row(&mut out, HEAD, self.columns.iter().map(|(name, _)| name.as_str()), widths)?;
        }
        for row in std::mem::take(&mut self.rows) {
            self.print_row(&mut out, if row.is_bad { BAD } else { Style::new() }, row.cells(), widths)?;
        }
        Ok(out.flush()?)
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row.cells()) {
                *width = (*width).max(width_of(cell));
            }
        }
        if self.fills {
            fit_last(&mut widths);
        }
        widths
    }

    fn print_row<'a>(
        &self,
        out: &mut impl Write,
        style: Style,
        cells: impl Iterator<Item = &'a str>,
        widths: &[usize],
    ) -> io::Result<()> {
        let mut line = String::new();
        let last = self.columns.len().saturating_sub(1);
        for (at, ((cell, (_, align)), width)) in cells.zip(&self.columns).zip(widths).enumerate() {
            if at > 0 {
                line.push_str("  ");
            }
            let padding = std::iter::repeat_n(' ', width.saturating_sub(width_of(cell)));
            if matches!(align, Align::Right) {
                line.extend(padding.clone());
            }
            clip_into(&mut line, cell, if self.fills && at == last { *width } else { usize::MAX });
            // The last column needs no padding.
            if matches!(align, Align::Left) && at < last {
                line.extend(padding);
            }
        }
        writeln!(out, "{style}{}{style:#}", line.trim_end())
    }
}

/// Gives the last column the rest of the line.
pub(crate) fn fit_last(widths: &mut [usize]) {
    if let Some((last, others)) = widths.split_last_mut() {
        let taken: usize = others.iter().map(|width| width + 2).sum();
        *last = columns().saturating_sub(taken).max(LAST_CELL_MIN);
    }
}

fn width_of(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// Appends a text, cut to a number of characters.
fn clip_into(out: &mut String, text: &str, room: usize) {
    // A text has at least as many bytes as characters, so most cells fit without counting.
    if text.len() <= room {
        out.push_str(text);
    } else {
        out.push_str(&shortened(text, room));
    }
}

/// Returns the width of a line in characters: `COLUMNS`, else that of the terminal, else [`COLUMNS_DEFAULT`].
///
/// It is measured once, because it cannot be measured any more when standard output goes to a pager.
pub(crate) fn columns() -> usize {
    static COLUMNS: OnceLock<usize> = OnceLock::new();
    *COLUMNS.get_or_init(|| {
        let said = std::env::var("COLUMNS").ok().and_then(|said| said.parse().ok());
        let measured = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col.into());
        said.or_else(measured).filter(|columns| *columns > 0).unwrap_or(COLUMNS_DEFAULT)
    })
}

static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Shows times in UTC instead of the local zone. Call it before any time is shown.
pub(crate) fn show_utc() {
    // It fails only on a second call, and there is one call.
    let _ = ZONE.set(TimeZone::UTC);
}

/// Returns the zone in which times are shown and parsed: UTC with `--utc`, else that of `TZ`, else the system's.
pub(crate) fn zone() -> &'static TimeZone {
    ZONE.get_or_init(TimeZone::system)
}

/// Formats a time in the zone of [`zone`], with its offset from UTC.
pub(crate) fn local_time(wall_ns: u64) -> String {
    zoned(wall_ns, "%Y-%m-%d %H:%M:%S%:z")
}

/// Formats a time to the microsecond.
pub(crate) fn exact_time(wall_ns: u64) -> String {
    zoned(wall_ns, "%Y-%m-%d %H:%M:%S%.6f%:z")
}

fn zoned(wall_ns: u64, format: &str) -> String {
    let Ok(time) = Timestamp::from_nanosecond(i128::from(wall_ns)) else { return String::new() };
    time.to_zoned(zone().clone()).strftime(format).to_string()
}

/// Prints text of several lines, each of them inert.
pub(crate) fn print_lines(text: &str) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    for line in text.trim_end_matches('\n').split('\n') {
        writeln!(out, "{}", inert(line))?;
    }
    Ok(out.flush()?)
}

/// Prints a unified diff, in colour if standard output takes it.
pub(crate) fn print_diff(diff: &str) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    for line in diff.trim_end_matches('\n').split('\n') {
        let style = match line.as_bytes() {
            // Before added and removed lines, because the names of the two files begin like them.
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
    serde_json::to_writer_pretty(InertJson(&mut out), value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Writes a value as JSON on one line, without a line feed.
pub(crate) fn write_json(out: impl Write, value: &impl Serialize) -> io::Result<()> {
    // As an I/O error, so that the caller can recognise a closed pipe.
    Ok(serde_json::to_writer(InertJson(out), value)?)
}

/// Escapes characters in JSON that could control a terminal and that JSON itself allows. It parses to the same value.
struct InertJson<W>(W);

impl<W: Write> Write for InertJson<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        // The serializer writes strings in pieces that are never cut within a character, so a piece that is not UTF-8
        // cannot occur; it would pass unchanged.
        match std::str::from_utf8(piece) {
            Ok(text) if text.chars().any(can_steer) => {
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

impl<W: Write> InertJson<W> {
    fn write_char(&mut self, c: char) -> io::Result<()> {
        if !can_steer(c) {
            return self.0.write_all(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        // A character above U+FFFF takes two of JSON's escapes.
        c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(self.0, "\\u{unit:04x}"))
    }
}

/// Tells whether a character can control a terminal. Line feeds are part of the layout.
fn can_steer(c: char) -> bool {
    // Decides most characters without the call of `inert`.
    let plain = matches!(c, ' '..='~' | '\n');
    !plain && matches!(inert(c.encode_utf8(&mut [0; 4])), Cow::Owned(_))
}
