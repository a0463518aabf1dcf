//! Tracks messages on their way out, and marks on the tape those that are not delivered.
//!
//! A message is on tape before it is sent. From then on it is an [`Outgoing`], until the last of its bytes is written
//! to the pipe or connection. If it is dropped before that, anywhere and for any reason, its [`Receipt`] marks it on
//! the tape. So no queue can lose a message silently. A queue that drops one names its reason with
//! [`Outgoing::drop_because`].

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use scrubjay_core::entry::WhyUndelivered;
use scrubjay_tape::recording::{EntryRef, Recording};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::budget::{Charge, Queued, SharedCharge};
use crate::pipe::Sink;
use crate::session::lock;

/// A recorded message that is to be delivered. Dropped before that, it marks the message on the tape as undelivered.
#[derive(Debug)]
pub struct Receipt {
    recording: Arc<Mutex<Recording>>,
    entry: EntryRef,
    why: WhyUndelivered,
    is_delivered: bool,
    /// The list of its session's messages on their way, and its number there.
    listed: Option<(Arc<InTransit>, u64)>,
}

/// The messages of a session that are on their way. When its tape ends, all of them are marked as undelivered: their
/// own receipts would come too late for that tape.
#[derive(Debug, Default)]
pub(crate) struct InTransit {
    open: Mutex<InTransitEntries>,
}

#[derive(Debug, Default)]
struct InTransitEntries {
    next: u64,
    entries: HashMap<u64, (EntryRef, WhyUndelivered)>,
    is_stopping: bool,
}

impl InTransitEntries {
    /// Returns why a message was not delivered: if the gateway stops, it was not the client that left.
    fn reason(&self, why: WhyUndelivered) -> WhyUndelivered {
        match why {
            WhyUndelivered::ClientLeft if self.is_stopping => WhyUndelivered::Stopped,
            _ => why,
        }
    }
}

impl InTransit {
    fn add(&self, entry: EntryRef, why: WhyUndelivered) -> u64 {
        let mut open = lock(&self.open);
        open.next += 1;
        let number = open.next;
        open.entries.insert(number, (entry, why));
        number
    }

    /// Removes a message from the list; returns the reason to note if it was not delivered. `None` if that is noted
    /// already.
    fn remove(&self, number: u64, why: WhyUndelivered) -> Option<WhyUndelivered> {
        let mut open = lock(&self.open);
        open.entries.remove(&number)?;
        Some(open.reason(why))
    }

    /// Notes that the gateway is about to stop.
    pub(crate) fn stopping(&self) {
        lock(&self.open).is_stopping = true;
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.open).entries.is_empty()
    }

    /// Marks all of them as undelivered, because the recording is about to end.
    pub(crate) fn give_up(&self, recording: &Mutex<Recording>) {
        let mut left: Vec<_> = {
            let mut open = lock(&self.open);
            let entries = std::mem::take(&mut open.entries).into_iter();
            entries.map(|(number, (entry, why))| (number, entry, open.reason(why))).collect()
        };
        left.sort_unstable_by_key(|(number, ..)| *number);
        let mut recording = lock(recording);
        for (_, entry, why) in left {
            recording.mark_entry_undelivered(&entry, why);
        }
    }
}

impl Receipt {
    /// Makes the receipt of an entry; `why` is noted unless `undelivered` gives another reason.
    #[must_use]
    pub fn new(recording: Arc<Mutex<Recording>>, entry: EntryRef, why: WhyUndelivered) -> Self {
        Self { recording, entry, why, is_delivered: false, listed: None }
    }

    /// Adds it to the list of its session's messages on their way.
    #[must_use]
    pub(crate) fn listed_in(mut self, list: &Arc<InTransit>) -> Self {
        self.listed = Some((list.clone(), list.add(self.entry, self.why)));
        self
    }

    /// Notes that the message was delivered.
    pub fn delivered(mut self) {
        self.is_delivered = true;
    }

    /// Notes that it was not delivered, and why.
    pub fn undelivered(mut self, why: WhyUndelivered) {
        self.why = why;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        // If it is not on the list any more, it was marked when the tape ended.
        let why = match self.listed.take() {
            Some((list, number)) => list.remove(number, self.why),
            None => Some(self.why),
        };
        if let Some(why) = why.filter(|_| !self.is_delivered) {
            lock(&self.recording).mark_entry_undelivered(&self.entry, why);
        }
    }
}

/// A message on its way out.
#[derive(Debug)]
pub struct Outgoing {
    text: String,
    receipt: Option<Receipt>,
    /// The charge for its memory.
    charge: SharedCharge,
}

impl Outgoing {
    /// Wraps a line that is on tape.
    #[must_use]
    pub(crate) fn recorded(text: String, receipt: Option<Receipt>) -> Self {
        Self { text, receipt, charge: None }
    }

    /// Wraps a line that is on tape, with the charge for it.
    pub(crate) fn queued(line: Queued, receipt: Option<Receipt>) -> Self {
        let (text, charge) = line.into_parts();
        Self { text, receipt, charge }
    }

    /// Attaches the charge for its memory.
    #[must_use]
    pub(crate) fn with_charge(self, charge: Charge) -> Self {
        Self { charge: Some(Arc::new(Mutex::new(charge))), ..self }
    }

    /// Wraps a line that is on no tape, because it could not be recorded or is no message.
    #[must_use]
    pub fn unrecorded(text: String) -> Self {
        Self { text, receipt: None, charge: None }
    }

    /// Returns the line, without its end.
    #[must_use]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line, which counts as delivered from here on.
    #[must_use]
    pub fn deliver(self) -> String {
        self.receipt.into_iter().for_each(Receipt::delivered);
        self.text
    }

    /// Splits it into the bytes to write, with a text before and after the line, its receipt for the code that learns
    /// later whether it was delivered, and its charge. The bytes hold the charge too: it ends when the last copy is
    /// dropped.
    pub(crate) fn into_bytes(self, before: &str, after: &str) -> (Bytes, Option<Receipt>, SharedCharge) {
        let text = if before.is_empty() && after.is_empty() {
            self.text
        } else {
            [before, &self.text, after].concat()
        };
        let bytes = Bytes::from_owner(Queued::sharing(text, self.charge.clone()));
        (bytes, self.receipt, self.charge)
    }

    /// Drops the line and notes why.
    pub(crate) fn drop_because(self, why: WhyUndelivered) {
        if let Some(receipt) = self.receipt {
            receipt.undelivered(why);
        }
    }
}

/// Receipts of lines that were handed to a bridge, by their order, until the bridge reports on each. If the bridge ends
/// before that, they are dropped with it, and the lines are marked as undelivered.
#[derive(Debug, Default)]
pub(crate) struct BridgeReceipts {
    next: u64,
    receipts: BTreeMap<u64, Receipt>,
}

/// How many lines may be in a bridge; its own queues are shorter.
const HANDED_OVER_MAX: usize = 4096;

impl BridgeReceipts {
    fn push(&mut self, receipt: Option<Receipt>) {
        if let Some(receipt) = receipt {
            self.receipts.insert(self.next, receipt);
        }
        self.next += 1;
        // The bridge's own queues are shorter, so the oldest line has left it: it counts as delivered.
        if self.receipts.len() > HANDED_OVER_MAX {
            self.receipts.pop_first().into_iter().for_each(|(_, receipt)| receipt.delivered());
        }
    }

    /// Removes and returns the receipt of a line that the bridge reports on.
    pub(crate) fn take(&mut self, number: u64) -> Option<Receipt> {
        self.receipts.remove(&number)
    }
}

/// Lines that are written together. When it is dropped, those that were written completely count as delivered, and the
/// others are marked as undelivered.
#[derive(Debug, Default)]
pub(crate) struct LineBatch {
    text: String,
    /// Where each line ends.
    ends: Vec<(usize, Option<Receipt>)>,
    /// The charges for them, until they are written.
    charges: Vec<SharedCharge>,
    /// How many bytes were written.
    written: usize,
}

impl LineBatch {
    /// Adds a line, with its end.
    pub(crate) fn push(&mut self, line: Outgoing) {
        let Outgoing { text, receipt, charge } = line;
        self.charges.push(charge);
        // Most batches are one line, which is not copied.
        if self.text.is_empty() {
            self.text = text;
        } else {
            self.text.push_str(&text);
        }
        self.text.push('\n');
        self.ends.push((self.text.len(), receipt));
    }

    /// Hands the receipts to a bridge, which reports later which lines were delivered: that they are in its pipe says
    /// nothing.
    pub(crate) fn hand_over(&mut self, to: &Mutex<BridgeReceipts>) {
        let mut to = lock(to);
        self.ends.drain(..).for_each(|(_, receipt)| to.push(receipt));
    }

    /// Returns how many bytes its lines have.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Writes all of it to a pipe or socket.
    ///
    /// # Errors
    /// The reading end is gone, or the system refuses the write.
    pub(crate) async fn write_to_sink(&mut self, sink: &Sink) -> io::Result<()> {
        while self.written < self.text.len() {
            self.written += sink.write_some(&self.text.as_bytes()[self.written..]).await?;
        }
        Ok(())
    }

    /// Writes all of it to a stream.
    ///
    /// # Errors
    /// The stream is closed.
    pub(crate) async fn write_to(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while self.written < self.text.len() {
            match writer.write(&self.text.as_bytes()[self.written..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.written += written,
            }
        }
        writer.flush().await
    }
}

impl Drop for LineBatch {
    fn drop(&mut self) {
        for (end, receipt) in self.ends.drain(..) {
            // Receipts that are not marked as delivered mark their entries when they are dropped here.
            if let Some(receipt) = receipt.filter(|_| end <= self.written) {
                receipt.delivered();
            }
        }
    }
}
