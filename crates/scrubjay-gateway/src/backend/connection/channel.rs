//! The streams of a connection and the calls under way on them. A channel exists before the handshake.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use scrubjay_core::entry::{Direction, Transport};
use scrubjay_core::envelope::Era;
use scrubjay_tape::recording::{Item, Leg, RecordError};
use tokio::io::AsyncWrite;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::clients_seen::ClientsSeen;
use super::outbound::write;
use super::progress_token::random_key;
use crate::backend::leg_tape::LegTape;
use crate::backend::process::{Exit, Program, StderrTail};
use crate::backend::questions::Questions;
use crate::backend::slots::Owner;
use crate::backend::{Answer, Backend, Event};
use crate::budget::{Account, Budget};
use crate::delivery::{BridgeReceipts, Outgoing};
use crate::record_first::record_first;
use crate::relay::Options;
use crate::ruled_line::RuledLine;
use crate::rules_in_force::ConnectionJudge;
use crate::session::{Call, HELD_MAX, Session, lock};

/// The most lines in the queue to the backend; senders wait beyond that.
const LINES_MAX: usize = 64;
/// The most questions without an answer, together with the cancellations that are being sent. Beyond that, the backend
/// is not read, and calls end without telling it.
const SIDE_TASKS_MAX: usize = 1024;

pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;
/// The receipts of lines in a bridge, which reports later whether each was sent; `None` without a bridge.
pub(super) type InBridge = Option<Arc<Mutex<BridgeReceipts>>>;

/// The part of a connection that exists before the handshake.
pub(crate) struct RpcChannel {
    pub(super) backend: String,
    /// Its id as entries name it: redacted.
    pub(super) recorded_as: String,
    /// The number of the connection, counted from 1 for each backend.
    pub(super) number: u32,
    pub(super) transport: Transport,
    /// Whether it leads to a toolset of this process: each request names its caller.
    pub(super) is_own: bool,
    /// The only client, if everything is passed to it unchanged.
    pub(super) passes_to: Option<Arc<Session>>,
    /// Its era and its owner, once the handshake is done.
    pub(super) settled: OnceLock<(Era, Owner)>,
    pub(super) questions: Arc<Questions>,
    pub(super) record_options: Options,
    /// The rules for its messages.
    pub(super) judge: ConnectionJudge,
    /// The clients that have spoken on it.
    pub(super) clients_seen: Mutex<ClientsSeen>,
    /// Permits for messages that rules delay, unless they belong to one of several clients: those use the client's own.
    pub(super) held: Arc<Semaphore>,
    /// The queue to the backend; dropped, the backend's input ends.
    pub(super) lines: Mutex<Option<mpsc::Sender<Outgoing>>>,
    pub(super) budget: Budget,
    /// Where the memory of the queue is charged.
    pub(super) queue: Arc<Account>,
    /// Permits for the tasks that answer its questions and cancel its calls.
    pub(super) side_tasks: Arc<Semaphore>,
    pub(super) pending: Mutex<HashMap<u64, PendingCall>>,
    /// The key of its progress tokens, which only its backend gets to know.
    pub(super) token_key: [u8; 32],
    pub(super) next_id: AtomicU64,
    /// How many bytes came before the handshake was done.
    pub(super) bytes_before_greeting: AtomicUsize,
    pub(super) open: AtomicBool,
    pub(super) closed: tokio::sync::watch::Sender<bool>,
    pub(super) why_closed: Mutex<String>,
    pub(super) stderr_tail: StderrTail,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) tape: Arc<LegTape>,
    /// Dropped with the connection, which ends the process.
    pub(super) program: Mutex<Option<Program>>,
}

pub(super) struct PendingCall {
    pub(super) call: Option<Arc<Call>>,
    /// Whether its answer may demand input of a modern client.
    pub(super) may_demand: bool,
    pub(super) reply: oneshot::Sender<Answer>,
    /// The client's own progress token, if it has one.
    pub(super) progress_token: Option<String>,
    /// Notified of progress, which starts the timeout of the call again.
    pub(super) progressed: Arc<tokio::sync::Notify>,
}

impl RpcChannel {
    pub(in crate::backend) fn new(
        backend: &Backend,
        (writer, in_bridge): (Writer, InBridge),
        program: Option<Program>,
        stderr_tail: StderrTail,
        tape: Arc<LegTape>,
    ) -> Arc<Self> {
        let (lines, queue) = mpsc::channel(LINES_MAX);
        let redactor = lock(&tape.recording()).redactor();
        let channel = Arc::new(Self {
            backend: backend.id.clone(),
            recorded_as: redactor.text(&backend.id).to_string(),
            number: backend.next_connection(),
            transport: backend.transport(),
            is_own: backend.is_own,
            passes_to: backend.owner.clone(),
            settled: OnceLock::new(),
            questions: Arc::default(),
            record_options: backend.record_options,
            judge: backend.judge(),
            clients_seen: Mutex::default(),
            held: Arc::new(Semaphore::new(HELD_MAX)),
            lines: Mutex::new(Some(lines)),
            queue: backend.budget.backend(),
            budget: backend.budget.clone(),
            side_tasks: Arc::new(Semaphore::new(SIDE_TASKS_MAX)),
            pending: Mutex::default(),
            token_key: random_key(),
            next_id: AtomicU64::new(1),
            bytes_before_greeting: AtomicUsize::new(0),
            open: AtomicBool::new(true),
            closed: tokio::sync::watch::Sender::new(false),
            why_closed: Mutex::default(),
            stderr_tail,
            events: backend.events.clone(),
            tape,
            program: Mutex::new(program),
        });
        // Weak: the writer ends when the channel is dropped, so it must not keep it alive.
        tokio::spawn(write(Arc::downgrade(&channel), writer, in_bridge, queue));
        channel
    }

    pub(in crate::backend) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Completes the handshake: sets the era, and the owner if it does not serve all clients.
    pub(in crate::backend) fn settle(&self, era: Era, owner: Owner) {
        if owner.is_none() {
            self.tape.leave_session();
        }
        // Fails only if it was set before, and a connection has one handshake.
        let _ = self.settled.set((era, owner));
    }

    /// Returns whether the handshake is done, or left to the client.
    pub(super) fn is_greeted(&self) -> bool {
        self.settled.get().is_some()
    }

    pub(super) fn era(&self) -> Era {
        self.settled.get().map_or(Era::Legacy, |(era, _)| *era)
    }

    pub(super) fn owner(&self) -> Owner {
        self.settled.get().and_then(|(_, owner)| owner.clone())
    }

    /// Returns whether it serves a single client.
    pub(super) fn has_one_client(&self) -> bool {
        self.passes_to.is_some() || self.owner().is_some()
    }

    /// Returns how much processor time its program has used; `None` if there is no program, or it has already written.
    pub(in crate::backend) fn silent_ticks(&self) -> Option<u64> {
        let is_silent = self.bytes_before_greeting.load(Ordering::Relaxed) == 0;
        is_silent.then(|| lock(&self.program).as_ref().and_then(Program::busy_ticks)).flatten()
    }

    pub(in crate::backend) fn why_closed(&self) -> String {
        let why = lock(&self.why_closed).clone();
        let stderr_tail: Vec<String> = lock(&self.stderr_tail).iter().cloned().collect();
        let why = if stderr_tail.is_empty() {
            why
        } else {
            format!("{why} (it said: {})", stderr_tail.join(" | "))
        };
        // Clients get it, and it may quote secrets from the server's output or address.
        let redactor = lock(&self.tape.recording()).redactor();
        redactor.redact_text(&why).into_owned()
    }

    pub(super) fn record(
        &self,
        direction: Direction,
        call: Option<&Arc<Call>>,
        line: &RuledLine,
    ) -> Result<(), RecordError> {
        self.record_then(direction, call, line, None)
    }

    /// Returns the leg that entries of this connection belong to.
    pub(super) fn leg(&self) -> Leg<'_> {
        Leg { backend: &self.recorded_as, connection: self.number, transport: self.transport }
    }

    /// Records on the backend's own tape.
    pub(super) fn record_item<'a>(&'a self, mut item: Item<'a>) -> Result<(), RecordError> {
        item.via = Some(self.leg());
        record_first(&self.tape.recording(), self.record_options, &[item], |_| ()).map(|_| ())
    }

    pub(in crate::backend) fn close(&self, why: &str, is_noted: bool) {
        // The first reason counts: later ones are consequences of it.
        if self.open.swap(false, Ordering::AcqRel) {
            why.clone_into(&mut lock(&self.why_closed));
            if is_noted {
                self.note_end(why, None);
            }
        }
        self.release();
    }

    /// Closes it because its program has ended or closed its stream.
    pub(super) fn close_ended(&self, exit: Option<Exit>) {
        if self.open.swap(false, Ordering::AcqRel) {
            let why = exit.map_or_else(|| "it closed its stream".to_owned(), |exit| exit.to_string());
            lock(&self.why_closed).clone_from(&why);
            self.note_end(&why, exit);
        }
        self.release();
    }

    fn release(&self) {
        // Dropping the reply senders fails the calls that wait. They read `why_closed`, which is set by now.
        lock(&self.pending).clear();
        self.closed.send_replace(true);
        // The input ends first: most programs exit upon that, before `Program` sends signals.
        lock(&self.lines).take();
        lock(&self.program).take();
    }
}
