//! Records one server: starts it or connects to it, relays between it and this process's standard streams, and ends
//! when it ends.
//!
//! Either side may end first: the host by closing its streams or by a signal, the server by exiting. In both cases all
//! messages that were sent are forwarded and recorded, all processes behind the server are ended, and the exit code is
//! the server's.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use scrubjay_core::entry::{Direction, End};
use scrubjay_core::rules::Judge;
use scrubjay_tape::format::seal::SealError;
use scrubjay_tape::recording::Recording;
use thiserror::Error;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::bridge::endpoint::Endpoint;
use crate::bridge::http::{self, BridgeEnd, OnSent};
use crate::child::{self, Server, StartError};
use crate::pipe::{self, Sink, Source};
use crate::relay::{Options, Relay, Report};
use crate::{tree, warden};

/// How long the last output of a server that has exited may take to arrive: something that it started may hold its
/// streams open without end.
const DRAIN: Duration = Duration::from_secs(2);

/// How many reports of unsent lines may wait to be noted: more than a bridge has lines under way.
const UNSENT_MAX: usize = 1024;

/// Why a server could not be recorded.
#[derive(Debug, Error)]
pub enum WrapError {
    /// The server does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// This process's own streams or signals cannot be used.
    #[error("cannot use this process's standard streams")]
    Streams(#[from] io::Error),
}

/// The result of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// The server's exit code, as a shell would report it.
    pub exit_code: u8,
    /// Why the tape was not sealed. It is complete even so.
    pub unsealed: Option<SealError>,
}

/// Runs and records a server behind this process's standard streams.
///
/// # Errors
/// The server cannot be started; nothing was relayed then.
pub async fn run(
    command: &[OsString],
    recording: Recording,
    options: Options,
    judge: Option<Judge>,
    report: Report,
) -> Result<Outcome, WrapError> {
    // Caught before the server starts, so that none is lost.
    let mut signals = forwarded_signals()?;
    let (program, arguments) = command.split_first().ok_or_else(|| io::Error::other("no command given"))?;
    let Server { mut process, stdin, stdout, stderr } = child::start(program, arguments)?;
    let (from_host, to_host) = (Source::stdin()?, Sink::stdout()?);
    let own_stderr = Sink::stderr().ok();
    let relay = Relay::new(options, recording, stdin, to_host, report).judged_by(judge);

    let server = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let reaper = tokio::spawn(tree::reap_orphans(server));
    let mut state = WrapState::default();
    {
        let mut up = pin!(relay.pump(Direction::ClientToServer, from_host));
        let mut down = pin!(relay.pump(Direction::ServerToClient, stdout));
        let mut stderr_pump = pin!(relay.pump_stderr(stderr, own_stderr));
        let mut flushing = pin!(relay.keep_flushing());
        while !state.is_over() {
            tokio::select! {
                // A read that fails means the same as the end of the stream.
                _ = &mut up, if !state.up_ended => state.up_ended = true,
                _ = &mut down, if !state.down_ended => state.down_ended = true,
                _ = &mut stderr_pump, if !state.stderr_ended => state.stderr_ended = true,
                status = process.wait(), if state.status.is_none() => {
                    state.status = Some(status?);
                    // At once: a process that the server left behind would hold its streams open.
                    state.end_tree(Duration::ZERO, Duration::ZERO);
                    state.drain_deadline = Some(Instant::now() + DRAIN);
                }
                () = &mut flushing => {}
                received = warden::next_signal(&mut signals) => state.forward_signal(received, server),
                () = relay.client_gone(), if state.up_ended && state.ending.is_none() => {
                    // The server's input has ended as well, upon which most servers exit by themselves.
                    state.end_by("the host went away", tree::GRACE);
                }
                () = until(state.drain_deadline) => {
                    if state.skips_drain || !relay.client_is_slow() {
                        break;
                    }
                    // The output has arrived and waits for a slow host, as it would in a pipe.
                    state.drain_deadline = Some(Instant::now() + DRAIN);
                }
            }
        }
    }
    // Zombies that are left go to the warden when this process ends.
    reaper.abort();
    if let Some(ending) = state.ending.take() {
        // A panic there has been reported; the warden ends what is left.
        let _ = ending.await;
    }
    let end = state.end();
    let unsealed = relay.into_recording().finish(&end).err();
    Ok(Outcome { exit_code: state.status.map_or(1, warden::exit_code), unsealed })
}

/// Carries and records messages between this process's standard streams and a Streamable HTTP server.
///
/// # Errors
/// This process's streams cannot be used; nothing was relayed then.
pub async fn run_remote(
    endpoint: Endpoint,
    recording: Recording,
    options: Options,
    judge: Option<Judge>,
    report: Report,
) -> Result<Outcome, WrapError> {
    let mut signals = forwarded_signals()?;
    // Pipes within this process, because the relay works on descriptors.
    let (to_bridge, bridge_reads) = pipe::to_child()?;
    let (from_bridge, bridge_writes) = pipe::from_child()?;
    let (bridge_reads, bridge_writes) =
        (Receiver::from_owned_fd(bridge_reads)?, Sender::from_owned_fd(bridge_writes)?);
    let (from_host, to_host) = (Source::stdin()?, Sink::stdout()?);
    let stop = Arc::new(Notify::new());
    let stopped = stop.clone();
    let endpoint = endpoint.with_message_bytes_max(options.message_bytes_max);
    let (tell, mut unsent) = mpsc::channel(UNSENT_MAX);
    let on_sent: OnSent = Box::new(move |line, why_not| {
        if let Some(why) = why_not {
            // Never full: a bridge has fewer lines under way than fit.
            let _ = tell.try_send((line, why));
        }
    });
    let mut bridge = tokio::spawn(async move {
        http::run(endpoint, bridge_reads, bridge_writes, stopped.notified(), on_sent).await
    });
    let relay = Relay::new(options, recording, to_bridge, to_host, report).judged_by(judge).numbering_lines();
    let (mut up_ended, mut down_ended, mut host_gone) = (false, false, false);
    let (mut ended, mut by_signal) = (None, None);
    {
        let mut up = pin!(relay.pump(Direction::ClientToServer, from_host));
        let mut down = pin!(relay.pump(Direction::ServerToClient, from_bridge));
        let mut flushing = pin!(relay.keep_flushing());
        while ended.is_none() || !down_ended {
            tokio::select! {
                // A read that fails means the same as the end of the stream.
                _ = &mut up, if !up_ended => up_ended = true,
                _ = &mut down, if !down_ended => {
                    // Nothing carries the server's messages to the host any more, so the bridge ends, too.
                    down_ended = true;
                    stop.notify_one();
                }
                over = &mut bridge, if ended.is_none() => ended = Some(over.map_err(io::Error::other)??),
                () = &mut flushing => {}
                Some((line, why)) = unsent.recv() => relay.mark_line_undelivered(line, why),
                received = warden::next_signal(&mut signals) => {
                    by_signal = Some(received);
                    stop.notify_one();
                }
                () = relay.client_gone(), if up_ended && !down_ended && !host_gone => {
                    host_gone = true;
                    stop.notify_one();
                }
            }
        }
    }
    // Reports that came while the streams ended.
    while let Ok((line, why)) = unsent.try_recv() {
        relay.mark_line_undelivered(line, why);
    }
    let (reason, exit_code) = match (by_signal, ended) {
        (Some(signal), _) => (format!("the host sent signal {}", signal.as_raw()), signal_code(signal)),
        (None, Some(BridgeEnd::SessionLost)) => ("the server ended the session".to_owned(), 1),
        (None, ended) if host_gone || ended == Some(BridgeEnd::Unread) => {
            ("the host went away".to_owned(), 0)
        }
        (None, _) => ("the host closed its stream".to_owned(), 0),
    };
    let end = End { reason, exit_code: None, signal: None, continues_on: None };
    Ok(Outcome { exit_code, unsealed: relay.into_recording().finish(&end).err() })
}

/// Returns the exit code that a shell reports for a program that a signal ended.
fn signal_code(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(1)
}

/// Catches the signals that are forwarded to the server.
fn forwarded_signals() -> io::Result<Vec<(Signal, tokio::signal::unix::Signal)>> {
    let caught = warden::FORWARDED_SIGNALS.into_iter();
    caught.map(|number| Ok((number, signal(SignalKind::from_raw(number.as_raw()))?))).collect()
}

/// Which parts of the connection have ended.
#[derive(Default)]
struct WrapState {
    up_ended: bool,
    down_ended: bool,
    stderr_ended: bool,
    status: Option<ExitStatus>,
    /// The task that ends the server's processes.
    ending: Option<JoinHandle<()>>,
    reason: Option<String>,
    drain_deadline: Option<Instant>,
    /// Whether the host asked for the end by a signal: then a slow host is not waited for.
    skips_drain: bool,
}

impl WrapState {
    fn is_over(&self) -> bool {
        self.status.is_some() && self.down_ended && self.stderr_ended
    }

    /// Forwards a signal to the server. If the warden is gone, ends the server instead.
    fn forward_signal(&mut self, received: Signal, server: Option<Pid>) {
        self.skips_drain |= !matches!(received, Signal::USR1 | Signal::USR2);
        if self.status.is_some() {
            // The server has exited, so there is nobody to forward to: the signal shortens the wait for its output.
            self.drain_deadline = Some(Instant::now());
        } else if warden::is_orphaned() {
            self.end_by("the host killed the recorder", Duration::ZERO);
        } else if let Some(server) = server {
            self.reason.get_or_insert_with(|| format!("the host sent signal {}", received.as_raw()));
            // Fails if the server has exited, which is noticed next.
            let _ = rustix::process::kill_process(server, received);
        }
    }

    fn end_by(&mut self, reason: &str, patience: Duration) {
        self.reason = Some(reason.to_owned());
        self.end_tree(patience, tree::GRACE);
    }

    /// Ends the server's processes in a task, while the relay carries their last output. Replaces a task that is more
    /// patient.
    fn end_tree(&mut self, patience: Duration, grace: Duration) {
        if let Some(milder) = self.ending.replace(tokio::spawn(tree::end_descendants(patience, grace))) {
            milder.abort();
        }
    }

    fn end(&self) -> End {
        let by_itself = if self.up_ended { "the host closed its stream" } else { "the server exited" };
        End {
            reason: self.reason.clone().unwrap_or_else(|| by_itself.to_owned()),
            exit_code: self.status.and_then(|s| s.code()),
            signal: self.status.and_then(|s| s.signal()),
            continues_on: None,
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
