//! Writes log lines: hides secrets, makes the lines inert, and drops lines rather than wait for a slow reader.

use std::io::{self, Write};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use scrubjay_core::inert::{inert, inert_json};
use scrubjay_core::redact::Redactor;
use scrubjay_core::units::counted;

use super::hidden_secrets::HiddenSecrets;

/// 4 KiB, PIPE_BUF: a pipe that is ready takes this much without blocking.
const CHUNK_BYTES: usize = 4096;
/// 100 ms: how long to wait before each further piece of a line whose beginning is written. Half a line is worse than a
/// short delay.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The format of a line.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Human,
    Json,
}

/// The stream that lines are written to.
pub(super) trait ByteSink: Send {
    /// Waits up to this long until a piece can be written without blocking.
    fn ready(&mut self, patience: &Timespec) -> bool;
    /// Writes a piece.
    fn put(&mut self, piece: &[u8]) -> io::Result<()>;
}

pub(super) struct Stderr;

impl ByteSink for Stderr {
    fn ready(&mut self, patience: &Timespec) -> bool {
        let stderr = io::stderr();
        let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
        matches!(poll(&mut fds, Some(patience)), Ok(1)) && fds[0].revents().contains(PollFlags::OUT)
    }

    fn put(&mut self, piece: &[u8]) -> io::Result<()> {
        io::stderr().write_all(piece)
    }
}

/// Writes lines, one at a time.
pub(super) struct LogWriter {
    format: Format,
    hidden: HiddenSecrets,
    redactor: Arc<Redactor>,
    sink: Box<dyn ByteSink>,
    /// How many lines were dropped since the last one that was written.
    lost: u64,
    /// Whether the last line was written only in part, without its end.
    torn: bool,
}

impl LogWriter {
    pub(super) fn new(
        format: Format,
        hidden: HiddenSecrets,
        redactor: Arc<Redactor>,
        sink: Box<dyn ByteSink>,
    ) -> Self {
        Self { format, hidden, redactor, sink, lost: 0, torn: false }
    }

    pub(super) fn write(&mut self, line: &str) {
        let mut text = String::new();
        // Ends the part of a line, so that it does not spoil this one.
        if self.torn {
            text.push('\n');
        }
        if self.lost > 0 {
            text.push_str(&self.lost_line());
            text.push('\n');
        }
        text.push_str(&clean(&self.redactor.redact_text(line), self.format, &self.hidden));
        text.push('\n');
        let mut patience = AT_ONCE;
        for (i, piece) in text.as_bytes().chunks(CHUNK_BYTES).enumerate() {
            if !self.sink.ready(&patience) || self.sink.put(piece).is_err() {
                self.lost += 1;
                self.torn |= i > 0;
                return;
            }
            patience = PATIENCE;
        }
        self.lost = 0;
        self.torn = false;
    }

    fn lost_line(&self) -> String {
        let message = format!("{} dropped here: nobody read standard error", counted(self.lost, "log line"));
        match self.format {
            Format::Human => message,
            Format::Json => serde_json::json!({ "level": "WARN", "message": message }).to_string(),
        }
    }
}

/// Hides secrets, and makes a line inert.
pub(super) fn clean(line: &str, format: Format, hidden: &HiddenSecrets) -> String {
    let line = hidden.hide(line);
    match format {
        Format::Human => inert(&line).into_owned(),
        Format::Json => inert_json(&line).into_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A sink that keeps the pieces written to it, and blocks after a number of them.
    #[derive(Clone)]
    pub(crate) struct TestSink {
        text: Arc<Mutex<String>>,
        pieces: Arc<Mutex<usize>>,
    }

    impl Default for TestSink {
        fn default() -> Self {
            Self { text: Arc::default(), pieces: Arc::new(Mutex::new(usize::MAX)) }
        }
    }

    impl TestSink {
        pub(crate) fn text(&self) -> String {
            self.text.lock().unwrap().clone()
        }
    }

    impl ByteSink for TestSink {
        fn ready(&mut self, _: &Timespec) -> bool {
            *self.pieces.lock().unwrap() > 0
        }

        fn put(&mut self, piece: &[u8]) -> io::Result<()> {
            *self.pieces.lock().unwrap() -= 1;
            self.text.lock().unwrap().push_str(std::str::from_utf8(piece).unwrap());
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_reads_are_counted() {
        let sink = TestSink::default();
        let mut writer = LogWriter::new(
            Format::Human,
            HiddenSecrets::default(),
            Arc::new(Redactor::standard()),
            Box::new(sink.clone()),
        );
        *sink.pieces.lock().unwrap() = 1;
        for line in ["first", "lost", "lost too"] {
            writer.write(line);
        }
        *sink.pieces.lock().unwrap() = 2;
        writer.write("again");
        writer.write("and on");
        let expected = "first\n2 log lines dropped here: nobody read standard error\nagain\nand on\n";
        assert_eq!(sink.text(), expected);
    }

    #[test]
    fn a_torn_line_does_not_spoil_the_next() {
        let sink = TestSink::default();
        let mut writer = LogWriter::new(
            Format::Json,
            HiddenSecrets::default(),
            Arc::new(Redactor::standard()),
            Box::new(sink.clone()),
        );
        *sink.pieces.lock().unwrap() = 2;
        writer.write(&"x".repeat(3 * CHUNK_BYTES));
        writer.write("lost");
        *sink.pieces.lock().unwrap() = 9;
        writer.write("{}");
        let text = sink.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].len(), 2 * CHUNK_BYTES);
        assert!(lines[1].contains("2 log lines") && lines[1].starts_with('{'), "{}", lines[1]);
        assert_eq!(lines[2], "{}");
    }
}
