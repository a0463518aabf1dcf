//! The relay of `wrap`: reads lines, records them, and forwards the same bytes.
//!
//! One pump for each direction and one for the server's standard error share a recording, on one thread. Lines that
//! arrived together are recorded with one write and forwarded with one write. A message is forwarded only when it is
//! on tape; if it cannot be recorded, or is too long, the side that waits for it gets an error.

mod intercept;
mod pending_write;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use scrubjay_core::entry::{Direction, EntryKind, Terminator, WhyUndelivered};
use scrubjay_core::framing::{Framer, FramerOutput, LineBatch};
use scrubjay_core::message_limit::MessageLimit;
use scrubjay_core::oversize::Oversize;
use scrubjay_core::rules::Judge;
use scrubjay_tape::clock::{self, Moment};
use scrubjay_tape::recording::{Item, RecordError, Recording};
use tokio::sync::Mutex;

use self::pending_write::{Messages, NumberedLines, PendingWrite};
use crate::budget::MemoryLimits;
use crate::notice::{self, Notice};
use crate::pipe::{Sink, Source};

/// A longer line of standard error is recorded by its length and hash alone: text for people is shorter, and a server
/// that writes without line ends must not fill the memory.
const STDERR_LINE_BYTES_MAX: usize = 1 << 20;

/// 64 KiB, a pipe's default capacity: a read of this much means that the pipe was full.
const LARGE_READ_BYTES: usize = 64 * 1024;

/// What to do with messages that cannot be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRecordFailure {
    /// Do not forward them, and answer requests with an error.
    #[default]
    Stop,
    /// Forward them, and record the gap later.
    Forward,
}

/// What an append must survive before a message is forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of any process.
    #[default]
    Process,
    /// The loss of power.
    Power,
}

/// The options of a relay or gateway.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What to do when recording fails.
    pub on_record_failure: OnRecordFailure,
    /// What an append must survive.
    pub durability: Durability,
    /// The length of the longest message; the client or server gets an error for longer ones.
    pub message_bytes_max: usize,
    /// How much a gateway may keep in memory. The relay itself keeps at most one message each way.
    pub memory: MemoryLimits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            on_record_failure: OnRecordFailure::default(),
            durability: Durability::default(),
            message_bytes_max: MessageLimit::DEFAULT.bytes_max(),
            memory: MemoryLimits::default(),
        }
    }
}

/// Shows a message to a person, outside the message stream.
pub type Report = Box<dyn Fn(&str)>;

/// The relay between one host and one server.
pub struct Relay {
    options: Options,
    recording: RefCell<Recording>,
    /// Locked during a sync: a sync covers everything that was recorded before it began, so those who wait need not
    /// repeat it.
    syncing: Mutex<()>,
    /// Whether recording fails at present, which is reported once.
    failing: Cell<bool>,
    to_server: Outlet,
    to_client: Outlet,
    report: Report,
    /// The rules, if any are in force; without rules no message is parsed.
    judge: Option<RefCell<Judge>>,
    /// How many messages to the client a rule delays.
    delayed_to_client: Cell<usize>,
    /// The entries of the lines to the server, if a bridge reports later which of them it could not send.
    numbered: Option<RefCell<NumberedLines>>,
}

/// The writing end of one direction.
#[derive(Debug)]
struct Outlet {
    sink: RefCell<Option<Rc<Sink>>>,
    /// Locked while writing: pumps and notices write to the same sink, and lines must not mix.
    write_lock: Mutex<()>,
    /// Whether it was closed because the reader is gone.
    reader_gone: Cell<bool>,
}

/// The receiving side has closed its end.
#[derive(Debug)]
struct ReceiverGone;

impl Outlet {
    fn new(sink: Sink) -> Self {
        Self {
            sink: RefCell::new(Some(Rc::new(sink))),
            write_lock: Mutex::new(()),
            reader_gone: Cell::new(false),
        }
    }

    fn sink(&self) -> Option<Rc<Sink>> {
        self.sink.borrow().clone()
    }

    /// Writes all bytes. Counts them as they are written, so that the count is right even if this is dropped half-way.
    async fn write(&self, bytes: &[u8], written: &Cell<usize>) -> Result<(), ReceiverGone> {
        let _write_lock = self.write_lock.lock().await;
        // Taken after the lock: the sink may have been closed while this waited.
        let sink = self.sink().ok_or(ReceiverGone)?;
        while written.get() < bytes.len() {
            let Ok(more) = sink.write_some(&bytes[written.get()..]).await else {
                self.reader_gone.set(true);
                self.close();
                return Err(ReceiverGone);
            };
            written.set(written.get() + more);
        }
        Ok(())
    }

    fn close(&self) {
        self.sink.borrow_mut().take();
    }
}

impl Relay {
    /// Makes a relay that writes to these ends.
    #[must_use]
    pub fn new(
        options: Options,
        mut recording: Recording,
        to_server: Sink,
        to_client: Sink,
        report: Report,
    ) -> Self {
        if options.durability == Durability::Power {
            recording.survive_power();
        }
        Self {
            options,
            recording: RefCell::new(recording),
            syncing: Mutex::new(()),
            failing: Cell::new(false),
            to_server: Outlet::new(to_server),
            to_client: Outlet::new(to_client),
            report,
            judge: None,
            delayed_to_client: Cell::new(0),
            numbered: None,
        }
    }

    /// Makes it remember the entries of the lines to the server.
    #[must_use]
    pub(crate) fn numbering_lines(self) -> Self {
        Self { numbered: Some(RefCell::default()), ..self }
    }

    /// Notes that a line to the server, counted from the first, was not delivered.
    pub(crate) fn mark_line_undelivered(&self, line: u64, why: WhyUndelivered) {
        let entry = self.numbered.as_ref().and_then(|lines| lines.borrow().entry(line));
        if let Some(entry) = entry {
            self.recording.borrow_mut().mark_undelivered(entry..entry + 1, why);
        }
    }

    /// Puts rules in force.
    #[must_use]
    pub(crate) fn judged_by(self, judge: Option<Judge>) -> Self {
        Self { judge: judge.map(RefCell::new), ..self }
    }

    /// Relays one direction until its source ends or its destination is gone, and closes the destination.
    ///
    /// # Errors
    /// The source cannot be read.
    pub(crate) async fn pump(&self, direction: Direction, mut source: Source) -> io::Result<()> {
        let mut framer = Framer::new(self.options.message_bytes_max);
        let pumped = self.pump_lines(direction, &mut source, &mut framer).await;
        // The source closes first: a peer that still writes must get an error, not block on a full pipe that nobody
        // reads.
        drop(source);
        self.outlet(direction).close();
        pumped
    }

    async fn pump_lines(
        &self,
        direction: Direction,
        source: &mut Source,
        framer: &mut Framer,
    ) -> io::Result<()> {
        let mut widened = false;
        loop {
            let read = source.read(framer.room()).await?;
            // Read before the recording, which would delay the time stamp.
            let arrived = clock::now();
            if !widened && read >= LARGE_READ_BYTES {
                // Only when it is needed: the default suits most connections, and the kernel limits the size of all
                // pipes of a user together.
                widened = true;
                source.widen();
                if let Some(sink) = self.outlet(direction).sink() {
                    sink.widen();
                }
            }
            loop {
                let step = if read == 0 { framer.finish() } else { framer.step() };
                let passed = match step {
                    FramerOutput::Batch(batch) => self.pass(direction, arrived, batch).await,
                    FramerOutput::Oversize(line) => self.refuse(direction, arrived, &line).await,
                    FramerOutput::Starved => break,
                };
                if let Err(ReceiverGone) = passed {
                    return Ok(());
                }
            }
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Waits until the client has closed its end; forever if the server's output has ended before that.
    pub(crate) async fn client_gone(&self) {
        match self.to_client.sink() {
            Some(sink) => {
                // An end that cannot be polled counts as closed.
                let _ = sink.reader_gone().await;
            }
            None if self.to_client.reader_gone.get() => {}
            None => std::future::pending().await,
        }
    }

    /// Returns whether a message waits for the client to read, or is delayed by a rule on the way there.
    #[must_use]
    pub(crate) fn client_is_slow(&self) -> bool {
        // The lock is held while a line is written, which takes no time unless the client does not read.
        self.delayed_to_client.get() > 0 || self.to_client.write_lock.try_lock().is_err()
    }

    /// Passes on the server's standard error as it comes, and records it by lines.
    ///
    /// # Errors
    /// The source cannot be read.
    pub(crate) async fn pump_stderr(&self, mut source: Source, mut sink: Option<Sink>) -> io::Result<()> {
        let mut framer = Framer::new(STDERR_LINE_BYTES_MAX);
        loop {
            let room = framer.room();
            let before = room.len();
            let read = source.read(room).await?;
            // A copy: the framer drops the bytes of a line that is too long, but they are passed on like all others.
            let fresh = room[before..].to_vec();
            let arrived = clock::now();
            loop {
                match if read == 0 { framer.finish() } else { framer.step() } {
                    FramerOutput::Batch(batch) => self.record_stderr(arrived, stderr_items(batch)),
                    FramerOutput::Oversize(line) => {
                        let facts = serde_json::to_vec(&line)?;
                        self.record_stderr(
                            arrived,
                            std::iter::once(oversize_item(Direction::ServerToClient, &facts)),
                        );
                    }
                    FramerOutput::Starved => break,
                }
            }
            if let Some(open) = &sink
                && open.write_all(&fresh).await.is_err()
            {
                // It is still read and recorded: a full pipe would stop the server.
                sink = None;
            }
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Flushes the recording at its interval; runs until it is dropped.
    pub(crate) async fn keep_flushing(&self) {
        let Some(interval) = self.recording.borrow().flush_interval() else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(interval).await;
            let flushed = self.recording.borrow_mut().flush(clock::now());
            if let Err(e) = flushed
                // Reported once until recording works again.
                && !self.failing.replace(true)
            {
                (self.report)(&format!("{e}; what was passed on waits to be recorded"));
            }
        }
    }

    /// Ends the relay and returns its recording.
    #[must_use]
    pub(crate) fn into_recording(self) -> Recording {
        self.recording.into_inner()
    }

    async fn pass(
        &self,
        direction: Direction,
        arrived: Moment,
        batch: LineBatch<'_>,
    ) -> Result<(), ReceiverGone> {
        if let Some(judge) = &self.judge {
            return self.pass_judged(judge, direction, arrived, batch).await;
        }
        let items =
            batch.lines().map(|line| Item::new(EntryKind::Message, direction, line.terminator, line.bytes));
        let recorded = self.recording.borrow_mut().record(arrived, items);
        // Made before the wait for the disk: if the relay is dropped there, the batch is marked as undelivered.
        let mut pending_write =
            PendingWrite::new(self, direction, recorded.as_ref().ok().copied(), Messages::Batch(batch));
        match self.await_durability(recorded).await {
            Ok(()) => pending_write.write(batch.bytes()).await,
            Err(e) => {
                pending_write.forget_entries();
                self.handle_record_failure(direction, batch, &e).await
            }
        }
    }

    /// Waits until recorded messages are as durable as the options ask.
    async fn await_durability(&self, recorded: Result<u64, RecordError>) -> Result<(), RecordError> {
        recorded?;
        if self.options.durability == Durability::Power {
            self.sync().await?;
        }
        if self.failing.replace(false) {
            (self.report)("recording works again");
        }
        Ok(())
    }

    /// Waits until everything recorded so far is on the disk. If that fails, all entries since the last sync are taken
    /// off the tape; the other pumps get the error from their own `begin_sync`.
    async fn sync(&self) -> Result<(), RecordError> {
        let recorded = self.recording.borrow().sync_point();
        let _syncing = self.syncing.lock().await;
        // `None`: the sync that held the lock has covered these entries.
        let Some(sync) = self.recording.borrow_mut().begin_sync(recorded)? else { return Ok(()) };
        let extent = sync.extent();
        let done = tokio::task::spawn_blocking(move || sync.run()).await;
        let done = done.unwrap_or_else(|e| Err(io::Error::other(e)));
        self.recording.borrow_mut().end_sync(extent, done)
    }

    /// Forwards messages that could not be recorded, or answers them with errors, as the options say.
    async fn handle_record_failure(
        &self,
        direction: Direction,
        batch: LineBatch<'_>,
        error: &RecordError,
    ) -> Result<(), ReceiverGone> {
        if self.note_failure(batch.lines().len() as u64, batch.bytes().len() as u64, error) {
            // No entry: there is nothing on tape that could be marked as undelivered.
            return PendingWrite::new(self, direction, None, Messages::Batch(batch))
                .write(batch.bytes())
                .await;
        }
        for line in batch.lines() {
            self.answer_not_recorded(direction, line.bytes, error).await?;
        }
        Ok(())
    }

    /// Notes that messages could not be recorded; returns whether they are forwarded anyway.
    fn note_failure(&self, messages: u64, bytes: u64, error: &RecordError) -> bool {
        let forward = self.options.on_record_failure == OnRecordFailure::Forward;
        self.recording.borrow_mut().note_gap(messages, bytes, forward, error);
        if !self.failing.replace(true) {
            let then = if forward { "forwarding without a recording" } else { "messages are not forwarded" };
            (self.report)(&format!("{error}; {then} until recording works again"));
        }
        forward
    }

    /// Answers a request that was not recorded, and so not forwarded, with an error.
    async fn answer_not_recorded(
        &self,
        direction: Direction,
        line: &[u8],
        error: &RecordError,
    ) -> Result<(), ReceiverGone> {
        for notice in notice::not_recorded(direction, line, &error.to_string()) {
            self.send_notice(&notice, None).await?;
        }
        Ok(())
    }

    /// Records that a line was too long, and answers its request with an error.
    async fn refuse(
        &self,
        direction: Direction,
        arrived: Moment,
        line: &Oversize,
    ) -> Result<(), ReceiverGone> {
        let notice = notice::too_long(direction, line, self.options.message_bytes_max);
        let facts = serde_json::to_vec(line).expect("an oversize is plain data");
        let answer =
            Item::new(EntryKind::Message, notice.direction, Terminator::Lf, notice.line.trim_ascii_end());
        // In one append, so that the tape never has the refused line without the answer to it.
        let recorded = self
            .recording
            .borrow_mut()
            .record(arrived, [oversize_item(direction, &facts), answer].into_iter());
        let mut number = recorded.as_ref().ok().map(|first| first + 1);
        if let Err(e) = self.await_durability(recorded).await {
            // A failed sync took the entries off the tape: their numbers belong to later entries.
            number = None;
            // The line is not forwarded in any case; the gap counts it.
            self.recording.borrow_mut().note_gap(1, line.bytes, false, &e);
        }
        (self.report)(&format!(
            "a message of {} bytes was not forwarded: the limit is {} bytes (--max-message-size)",
            line.bytes, self.options.message_bytes_max
        ));
        self.send_notice(&notice, number).await
    }

    /// Sends a message of our own. `number` is that of its entry, if it is on tape.
    async fn send_notice(&self, notice: &Notice, number: Option<u64>) -> Result<(), ReceiverGone> {
        let message = Messages::One(notice.line.len());
        PendingWrite::new(self, notice.direction, number, message).write(&notice.line).await
    }

    fn record_stderr<'a>(&self, arrived: Moment, items: impl Iterator<Item = Item<'a>> + Clone) {
        let recorded = self.recording.borrow_mut().record(arrived, items.clone());
        if let Err(e) = recorded {
            // It is passed on anyway: standard error is not part of the conversation.
            let bytes = items.clone().map(|item| item.payload.len() as u64).sum();
            self.recording.borrow_mut().note_gap(items.count() as u64, bytes, true, &e);
        }
    }

    fn outlet(&self, direction: Direction) -> &Outlet {
        match direction {
            Direction::ClientToServer => &self.to_server,
            Direction::ServerToClient => &self.to_client,
        }
    }
}

fn stderr_items(batch: LineBatch<'_>) -> impl Iterator<Item = Item<'_>> + Clone {
    batch
        .lines()
        .map(|line| Item::new(EntryKind::Stderr, Direction::ServerToClient, line.terminator, line.bytes))
}

fn oversize_item(direction: Direction, facts: &[u8]) -> Item<'_> {
    Item::new(EntryKind::Oversize, direction, Terminator::Lf, facts)
}
