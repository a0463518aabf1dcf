//! One run of one target: started, initialized as by an MCP client, called, and closed.
//!
//! Every answer is checked. A wrong id, a wrong size, a wrong byte, an exit code other than zero
//! or an answer that does not come in time fails the run: a figure for wrong work is worth nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::answers::Answers;
use crate::clock;
use crate::payload;
use crate::plan::Plan;
use crate::procfs::{self, Cpu, Memory};
use crate::target::{Scratch, Target};
use crate::watchdog::{self, Watchdog};
use crate::wire;

/// How many calls are under way at once in the pipelined workload.
pub const WINDOW: u64 = 64;

const SETTLE_MAX: Duration = Duration::from_millis(200);
const SETTLE_STEP: Duration = Duration::from_millis(2);
// An idle process that only checks its timers uses less CPU time than this in a step.
const SETTLED_CPU: Duration = Duration::from_micros(100);

/// A number of calls and the time they took.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// How many calls were answered.
    pub calls: u64,
    /// From the first byte sent to the last answer.
    pub took: Duration,
}

/// A running target with its connection.
pub struct Session {
    name: String,
    verbatim: bool,
    scratch: Scratch,
    child: Child,
    // None once the client has closed its end.
    requests: Option<ChildStdin>,
    // None once the output was read to its end.
    answers: Option<Answers>,
    outbox: Vec<u8>,
    next_id: u64,
    relay_pids: Vec<u32>,
    watchdog: Watchdog,
    /// From the spawn to the answer of `initialize`.
    pub started_in: Duration,
}

impl Session {
    /// Starts `target` below `root`, initializes and checks one small call.
    pub fn open(target: &Target, root: &Path, plan: &Plan) -> io::Result<Self> {
        let scratch = Scratch::new(root, &target.name)?;
        let mut command = target.command(&scratch)?;
        let log = File::create(scratch.path().join("stderr.log"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);

        let begin = clock::now();
        let mut child = command.spawn().map_err(|error| context(&target.name, "cannot start", &error))?;
        let requests = child.stdin.take();
        let answers = child.stdout.take().map(Answers::new);
        let watchdog = Watchdog::over(child.id(), plan.session_limit);
        let mut session = Self {
            name: target.name.clone(),
            verbatim: target.is_verbatim(),
            scratch,
            child,
            requests,
            answers,
            outbox: Vec::new(),
            next_id: 1,
            relay_pids: Vec::new(),
            watchdog,
            started_in: Duration::ZERO,
        };
        session.initialize(begin).map_err(|error| session.explain(&error))?;
        session.relay_pids = procfs::relay_processes(session.child.id(), &target.server)?;
        Ok(session)
    }

    /// Makes small calls one at a time and adds what each took, in µs, to `samples_us`.
    pub fn call_in_turn(
        &mut self,
        calls: u64,
        limit: Duration,
        samples_us: &mut Vec<f64>,
    ) -> io::Result<Stretch> {
        let begin = clock::now();
        let mut sent = begin;
        let mut done = 0;
        while done < calls && sent - begin < limit {
            self.call_echo().map_err(|error| self.explain(&error))?;
            let answered = clock::now();
            samples_us.push((answered - sent).as_nanos() as f64 / 1000.0);
            sent = answered;
            done += 1;
        }
        Ok(Stretch { calls: done, took: sent - begin })
    }

    /// Keeps [`WINDOW`] small calls under way, sending as many new ones as answers arrived.
    pub fn call_pipelined(&mut self, calls: u64, limit: Duration) -> io::Result<Stretch> {
        self.try_pipelined(calls, limit).map_err(|error| self.explain(&error))
    }

    /// Makes calls for `text_bytes` of text one at a time.
    pub fn call_large(&mut self, text_bytes: usize, calls: u64, limit: Duration) -> io::Result<Stretch> {
        let begin = clock::now();
        let mut done = 0;
        while done < calls && begin.elapsed() < limit {
            self.try_large(text_bytes).map_err(|error| self.explain(&error))?;
            done += 1;
        }
        Ok(Stretch { calls: done, took: begin.elapsed() })
    }

    /// Checks one large answer byte for byte; the server makes the text ready on the way.
    pub fn check_large(&mut self, text_bytes: usize) -> io::Result<()> {
        let id = self.send_large(text_bytes)?;
        let line = self.answers().read_long_line().map_err(|error| self.explain(&error))?;
        let rest = wire::starts_answer(&line, id).and_then(|rest| rest.strip_prefix(wire::TEXT_BEFORE));
        let text = rest.and_then(|rest| rest.strip_suffix(wire::TEXT_AFTER));
        if text != Some(payload::log_text(text_bytes).as_slice()) {
            return Err(self.explain(&wrong(id, &line)));
        }
        Ok(())
    }

    /// Waits, up to a limit, until the relay has nothing left to do, so that work it put off
    /// falls neither into another target's time nor out of its own CPU time.
    pub fn settle(&self) -> io::Result<Duration> {
        let begin = clock::now();
        let mut before = self.cpu()?;
        while !self.relay_pids.is_empty() && begin.elapsed() < SETTLE_MAX {
            thread::sleep(SETTLE_STEP);
            let after = self.cpu()?;
            if after.since(before).scheduled < SETTLED_CPU {
                break;
            }
            before = after;
        }
        Ok(begin.elapsed())
    }

    /// Returns the CPU time of the relay so far; none for the direct target.
    pub fn cpu(&self) -> io::Result<Cpu> {
        procfs::cpu(&self.relay_pids).map_err(|error| self.explain(&error))
    }

    /// Returns the memory of each process of the relay.
    pub fn memory(&self) -> io::Result<Vec<Memory>> {
        self.relay_pids.iter().map(|pid| procfs::memory(*pid)).collect()
    }

    /// Closes the client's end and waits; returns how long that took and the bytes recorded.
    pub fn close(mut self) -> io::Result<(Duration, u64)> {
        let begin = clock::now();
        self.requests.take();
        let answers = self.answers.take().expect("the output is read until the session is closed");
        let left = answers.drain()?;
        let status = self.child.wait()?;
        let took = begin.elapsed();
        // Peers differ in what they say and how they exit at the end; that is not measured.
        if self.verbatim && (!status.success() || left > 0) {
            let error = io::Error::other(format!("ended with {status} and {left} bytes no one asked for"));
            return Err(self.explain(&error));
        }
        Ok((took, self.scratch.recorded_bytes()?))
    }

    fn initialize(&mut self, begin: Instant) -> io::Result<()> {
        let id = self.new_id();
        self.outbox.clear();
        wire::push_initialize(&mut self.outbox, id);
        self.send()?;
        let verbatim = self.verbatim;
        let line = self.answers().next_answer(verbatim)?;
        if wire::answer_id(line) != Some(id) {
            return Err(wrong(id, line));
        }
        self.started_in = begin.elapsed();
        self.outbox.clear();
        self.outbox.extend_from_slice(wire::INITIALIZED);
        self.send()?;
        self.call_echo()
    }

    fn call_echo(&mut self) -> io::Result<()> {
        let id = self.new_id();
        self.outbox.clear();
        wire::push_echo_call(&mut self.outbox, id);
        self.send()?;
        let verbatim = self.verbatim;
        let line = self.answers().next_answer(verbatim)?;
        if is_right(line, id, verbatim) { Ok(()) } else { Err(wrong(id, line)) }
    }

    fn try_pipelined(&mut self, calls: u64, limit: Duration) -> io::Result<Stretch> {
        let begin = clock::now();
        let mut under_way = UnderWay::new();
        self.send_batch(WINDOW.min(calls), &mut under_way)?;
        let (mut sent, mut done) = (WINDOW.min(calls), 0);
        while done < sent {
            let arrived = self.take_batch(&mut under_way)?;
            done += arrived;
            if sent < calls && begin.elapsed() < limit {
                let refill = arrived.min(calls - sent);
                self.send_batch(refill, &mut under_way)?;
                sent += refill;
            }
        }
        Ok(Stretch { calls: done, took: begin.elapsed() })
    }

    fn send_batch(&mut self, calls: u64, under_way: &mut UnderWay) -> io::Result<()> {
        if calls == 0 {
            return Ok(());
        }
        self.outbox.clear();
        for _ in 0..calls {
            let id = self.new_id();
            under_way.add(id)?;
            wire::push_echo_call(&mut self.outbox, id);
        }
        self.send()
    }

    fn take_batch(&mut self, under_way: &mut UnderWay) -> io::Result<u64> {
        let verbatim = self.verbatim;
        let answers = self.answers();
        answers.fill()?;
        let mut arrived = 0;
        while let Some(line) = answers.take_line() {
            let Some(id) = wire::answer_id(line) else {
                if verbatim { return Err(wrong(0, line)) } else { continue }
            };
            if !under_way.remove(id) || !is_right(line, id, verbatim) {
                return Err(wrong(id, line));
            }
            arrived += 1;
        }
        Ok(arrived)
    }

    fn try_large(&mut self, text_bytes: usize) -> io::Result<()> {
        let id = self.send_large(text_bytes)?;
        let line = self.answers().skip_long_line()?;
        let begins_right = wire::starts_answer(&line.head, id).is_some();
        if begins_right && line.bytes == wire::large_answer_bytes(id, text_bytes) {
            return Ok(());
        }
        let head = String::from_utf8_lossy(&line.head).into_owned();
        Err(io::Error::other(format!("call {id}: a wrong answer of {} bytes: {head}", line.bytes)))
    }

    fn send_large(&mut self, text_bytes: usize) -> io::Result<u64> {
        let id = self.new_id();
        self.outbox.clear();
        wire::push_large_call(&mut self.outbox, id, text_bytes);
        self.send()?;
        Ok(id)
    }

    fn send(&mut self) -> io::Result<()> {
        self.requests
            .as_mut()
            .expect("requests stay open until the session is closed")
            .write_all(&self.outbox)
    }

    fn answers(&mut self) -> &mut Answers {
        self.answers.as_mut().expect("the output is read until the session is closed")
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn explain(&self, error: &io::Error) -> io::Error {
        let late = if self.watchdog.fired() { " (killed: its time was up)" } else { "" };
        let log = fs::read(self.scratch.path().join("stderr.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log[log.len().saturating_sub(2000)..]).into_owned();
        let said = if log.is_empty() { String::new() } else { format!("\nits stderr ends with:\n{log}") };
        io::Error::other(format!("{}: {error}{late}{said}", self.name))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After `close` there is nothing left to kill. After a failure there may be.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = watchdog::kill_tree(self.child.id());
            let _ = self.child.wait();
        }
    }
}

/// The ids of the calls that are not answered yet; answers may come in any order.
struct UnderWay(Vec<u64>);

impl UnderWay {
    // Far more than the window: an answer may lag this many calls behind before it is an error.
    const SLOTS: u64 = 64 * WINDOW;
    // No call has this id: they count from 1.
    const FREE: u64 = 0;

    fn new() -> Self {
        Self(vec![Self::FREE; Self::SLOTS as usize])
    }

    fn add(&mut self, id: u64) -> io::Result<()> {
        let slot = &mut self.0[(id % Self::SLOTS) as usize];
        match std::mem::replace(slot, id) {
            Self::FREE => Ok(()),
            lost => Err(io::Error::other(format!("call {lost} was never answered"))),
        }
    }

    // Tells whether the call was under way.
    fn remove(&mut self, id: u64) -> bool {
        let slot = &mut self.0[(id % Self::SLOTS) as usize];
        *slot == id && std::mem::replace(slot, Self::FREE) != Self::FREE
    }
}

fn is_right(line: &[u8], id: u64, verbatim: bool) -> bool {
    if verbatim { wire::is_echo_answer(line, id) } else { wire::is_echo_result(line, id) }
}

fn wrong(id: u64, line: &[u8]) -> io::Error {
    let head = String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned();
    io::Error::other(format!("call {id}: a wrong answer of {} bytes: {head}", line.len()))
}

fn context(name: &str, what: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("{name}: {what}: {error}"))
}
