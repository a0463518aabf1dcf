//! The gateway on standard input and output: one client, one session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::entry::Direction;
use scrubjay_core::framing::{Framer, FramerOutput};
use scrubjay_core::inert::inert_bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::delivery::{LineBatch, Outgoing};
use crate::gateway::{Accepted, Gateway};
use crate::notice;
use crate::pipe::{Sink, Source};
use crate::session::{OUTBOX_MAX, Outbox, Session};

/// How long calls under way may go on after the client closed its stream.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(5);
/// How many bytes of waiting lines are joined into one write: a pipe's default capacity.
const WRITE_BYTES_MAX: usize = 64 * 1024;
/// How long writing the last lines may take.
const LAST_LINES_MAX: Duration = Duration::from_secs(1);

/// Serves one client until it closes its stream or sends `exit`, or until `stopped`; returns the process's exit code.
///
/// # Errors
/// The streams cannot be used.
pub async fn serve(
    gateway: Arc<Gateway>,
    name: &str,
    stopped: impl Future<Output = ()> + Send,
) -> std::io::Result<u8> {
    let (mut source, sink) = (Source::stdin()?, Sink::stdout()?);
    // There is only this client, so nobody else loses the gateway.
    gateway.let_client_end_it();
    let session = gateway.open_session(name);
    let (outbox, lines) = mpsc::channel(OUTBOX_MAX);
    session.attach(outbox.clone());
    let (close, closing) = oneshot::channel();
    let mut writing = tokio::spawn(write(sink, lines, closing));
    let (code, reason) = tokio::select! {
        _ = &mut writing => {
            gateway.shut_down("the host went away");
            return Ok(0);
        }
        code = gateway.exited() => (code, "the host said exit"),
        // No waiting for answers: a host that stops us may kill us a moment later, and the tape must be sealed by then.
        () = stopped => {
            gateway.stopping();
            (0, "the process was told to stop")
        }
        () = read(&gateway, &session, &mut source, &outbox) => (0, "the host closed its stream"),
    };
    // Waiting lines are written before the tape is sealed, which notes those that the client does not read.
    drop(outbox);
    let _ = close.send(session.detach());
    if tokio::time::timeout(LAST_LINES_MAX, &mut writing).await.is_err() {
        writing.abort();
        // Wait until the task is dropped, and with it the lines that were not written, so that they are noted as such.
        let _ = writing.await;
    }
    gateway.shut_down(reason);
    Ok(code)
}

/// Writes lines until the senders or the client are gone. On `closing` it accepts no more lines, and writes those that
/// wait and then those that `closing` brings.
async fn write(
    sink: Sink,
    mut lines: mpsc::Receiver<Outgoing>,
    mut closing: oneshot::Receiver<VecDeque<Outgoing>>,
) {
    let (mut is_closing, mut last) = (false, VecDeque::new());
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            given = &mut closing, if !is_closing => {
                is_closing = true;
                last = given.unwrap_or_default();
                lines.close();
                continue;
            }
        };
        let is_over = line.is_none();
        let Some(line) = line.or_else(|| last.pop_front()) else { return };
        let mut batch = LineBatch::default();
        batch.push(line);
        // Lines that wait already go out in the same write.
        while batch.bytes() < WRITE_BYTES_MAX
            && let Some(more) = if is_over { last.pop_front() } else { lines.try_recv().ok() }
        {
            batch.push(more);
        }
        if batch.write_to_sink(&sink).await.is_err() {
            return;
        }
    }
}

async fn read(gateway: &Arc<Gateway>, session: &Arc<Session>, source: &mut Source, outbox: &Outbox) {
    let limit = gateway.message_limit();
    let mut framer = Framer::new(limit);
    let mut answering = JoinSet::new();
    loop {
        let read = source.read(framer.room()).await.unwrap_or(0);
        loop {
            match if read == 0 { framer.finish() } else { framer.step() } {
                FramerOutput::Batch(batch) => {
                    for line in batch.lines() {
                        if std::str::from_utf8(line.bytes).is_err()
                            && let Some(refused) = gateway.refuse_unreadable(session, line.bytes)
                        {
                            if let Accepted::Refused(answer) = refused {
                                session.refuse(outbox, answer).await;
                            }
                            continue;
                        }
                        let line = String::from_utf8_lossy(line.bytes).into_owned();
                        take(gateway, session, &line, outbox, &mut answering).await;
                    }
                }
                FramerOutput::Oversize(line) => {
                    session.note_too_long(&line);
                    let notice = notice::too_long(Direction::ClientToServer, &line, limit.bytes_max());
                    session.refuse(outbox, inert_bytes(notice.line.trim_ascii_end())).await;
                }
                FramerOutput::Starved => break,
            }
        }
        while answering.try_join_next().is_some() {}
        if read == 0 {
            break;
        }
    }
    // A client may close its stream and still read: calls under way are answered, for a limited time.
    let _ = tokio::time::timeout(LAST_ANSWERS_MAX, async { while answering.join_next().await.is_some() {} })
        .await;
}

async fn take(
    gateway: &Arc<Gateway>,
    session: &Arc<Session>,
    line: &str,
    outbox: &Outbox,
    answering: &mut JoinSet<()>,
) {
    if line.trim().is_empty() {
        return;
    }
    match gateway.accept(session, line, outbox) {
        Accepted::Request(request) => {
            let (gateway, outbox) = (gateway.clone(), outbox.clone());
            answering.spawn(async move {
                gateway.answer_on(request, &outbox).await;
            });
        }
        Accepted::Refused(answer) | Accepted::Full(answer) => session.refuse(outbox, answer).await,
        Accepted::NoReply => {}
    }
}
