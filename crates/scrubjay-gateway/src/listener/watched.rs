//! Wraps a connection's stream and response bodies, to track what happens on them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{Stage, TrackedConnection};

/// A stream that notes when bytes are read, and when a write waits for the client.
pub(super) struct Watched {
    stream: TcpStream,
    connection: Arc<TrackedConnection>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, connection: Arc<TrackedConnection>) -> Self {
        Self { stream, connection }
    }

    fn note_write<T>(&self, outcome: Poll<T>) -> Poll<T> {
        self.connection.note_write(outcome.is_pending());
        outcome
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.connection.connections.leave(self.connection.number);
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, into);
        if into.filled().len() > before {
            self.connection.note_read();
        }
        outcome
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Pending without a waker, on purpose: tapes may already mark these bytes as undelivered, so they must not
        // leave.
        if self.connection.writes_stopped() {
            return Poll::Pending;
        }
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_write(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.connection.writes_stopped() {
            return Poll::Pending;
        }
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.note_write(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A request that is being answered, until hyper drops the body of the response.
pub(super) struct RequestInProgress {
    connection: Arc<TrackedConnection>,
    has_no_end: bool,
}

impl RequestInProgress {
    pub(super) fn begin(connection: Arc<TrackedConnection>) -> Self {
        connection.begin(Stage::Answering);
        Self { connection, has_no_end: false }
    }

    pub(super) fn until_taken<B>(mut self, body: B, has_no_end: bool) -> Answer<B> {
        self.has_no_end = has_no_end;
        Answer { body, _answering: self }
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        // An upgraded connection outlives its response, and must not count as idle then.
        if !self.has_no_end {
            self.connection.begin(Stage::Idle);
        }
    }
}

/// The body of a response.
pub(super) struct Answer<B> {
    body: B,
    _answering: RequestInProgress,
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
