//! The streams of a connection and what is under way on them. It exists before the handshake.

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
use crate::delivery::{HandedOver, Outgoing};
use crate::record_first::record_first;
use crate::relay::Options;
use crate::ruled_line::RuledLine;
use crate::rules_in_force::ConnectionJudge;
use crate::session::{Call, HELD_MAX, Session, lock};

/// How many lines may wait to be read by the backend.
const LINES_MAX: usize = 64;
/// How many questions of a backend may have no answer yet; it is not heard beyond that.
const SIDE_TASKS_MAX: usize = 1024;

pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;
/// The lines whose delivery a bridge reports later, where there is a bridge.
pub(super) type InBridge = Option<Arc<Mutex<HandedOver>>>;

/// The part of a connection that exists before the handshake.
pub(crate) struct RpcChannel {
    pub(super) backend: String,
    /// What its entries name it: its id, without a secret that somebody put there.
    pub(super) recorded_as: String,
    /// Which connection to the backend it is, counted from 1.
    pub(super) number: u32,
    pub(super) transport: Transport,
    /// Whether each request to it says who calls: it is a toolset of this process.
    pub(super) is_own: bool,
    /// The one client that everything is passed to as it is, where there is one.
    pub(super) passes_to: Option<Arc<Session>>,
    /// The era it speaks and the client whose it is, once it has been greeted.
    pub(super) settled: OnceLock<(Era, Owner)>,
    pub(super) questions: Arc<Questions>,
    pub(super) record_options: Options,
    /// The rules at work on it.
    pub(super) judge: ConnectionJudge,
    /// The clients that have spoken on it.
    pub(super) clients_seen: Mutex<ClientsSeen>,
    /// Places for what rules hold back and is no one client's of several.
    pub(super) held: Arc<Semaphore>,
    /// Lines on their way to the backend; dropped, its input ends.
    pub(super) lines: Mutex<Option<mpsc::Sender<Outgoing>>>,
    pub(super) budget: Budget,
    /// What waits for the backend to read it.
    pub(super) queue: Arc<Account>,
    /// Room for questions of the backend that have no answer yet, and for calls that are called off.
    pub(super) side_tasks: Arc<Semaphore>,
    pub(super) pending: Mutex<HashMap<u64, PendingCall>>,
    /// Makes progress tokens that nobody but this connection's backend knows.
    pub(super) token_key: [u8; 32],
    pub(super) next_id: AtomicU64,
    /// How many bytes it has said before it was greeted.
    pub(super) bytes_before_greeting: AtomicUsize,
    pub(super) open: AtomicBool,
    pub(super) closed: tokio::sync::watch::Sender<bool>,
    pub(super) why_closed: Mutex<String>,
    pub(super) stderr_tail: StderrTail,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) tape: Arc<LegTape>,
    /// Kept alive with the connection: dropped, the process ends.
    pub(super) program: Mutex<Option<Program>>,
}

pub(super) struct PendingCall {
    pub(super) call: Option<Arc<Call>>,
    /// Whether its answer may demand input of a modern client.
    pub(super) may_demand: bool,
    pub(super) reply: oneshot::Sender<Answer>,
    /// The client's own token, where it wants progress.
    pub(super) progress_token: Option<String>,
    /// Notified of progress: a call that makes progress does not time out.
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
        tokio::spawn(write(Arc::downgrade(&channel), writer, in_bridge, queue));
        channel
    }

    pub(in crate::backend) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Notes what the greeting showed: which era it speaks, and so whether it serves all clients.
    pub(in crate::backend) fn settle(&self, era: Era, owner: Owner) {
        if owner.is_none() {
            self.tape.leave_session();
        }
        // A connection is greeted once.
        let _ = self.settled.set((era, owner));
    }

    /// Returns whether it has been greeted, or greets for itself.
    pub(super) fn is_greeted(&self) -> bool {
        self.settled.get().is_some()
    }

    pub(super) fn era(&self) -> Era {
        self.settled.get().map_or(Era::Legacy, |(era, _)| *era)
    }

    pub(super) fn owner(&self) -> Owner {
        self.settled.get().and_then(|(_, owner)| owner.clone())
    }

    /// Returns whether it is one client's own.
    pub(super) fn has_one_client(&self) -> bool {
        self.passes_to.is_some() || self.owner().is_some()
    }

    /// Returns how much processor time its program has used, where it has one that has said nothing yet.
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
        // It is sent to clients, and may quote secrets from the server's output or address.
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
        if self.open.swap(false, Ordering::AcqRel) {
            why.clone_into(&mut lock(&self.why_closed));
            if is_noted {
                self.note_end(why, None);
            }
        }
        self.release();
    }

    /// Closes because its program has ended or left its stream.
    pub(super) fn close_ended(&self, exit: Option<Exit>) {
        if self.open.swap(false, Ordering::AcqRel) {
            let why = exit.map_or_else(|| "it closed its stream".to_owned(), |exit| exit.to_string());
            lock(&self.why_closed).clone_from(&why);
            self.note_end(&why, exit);
        }
        self.release();
    }

    fn release(&self) {
        // Dropping the reply senders fails the calls that wait.
        lock(&self.pending).clear();
        self.closed.send_replace(true);
        lock(&self.lines).take();
        lock(&self.program).take();
    }
}
