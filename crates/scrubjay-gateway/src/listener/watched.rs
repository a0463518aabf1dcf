//! A connection's stream and answers, which tell its place what happens on them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{Stage, TrackedConnection};

/// A stream that tells when its client is heard, and when it takes nothing.
pub(super) struct Watched {
    stream: TcpStream,
    place: Arc<TrackedConnection>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, place: Arc<TrackedConnection>) -> Self {
        Self { stream, place }
    }

    fn wrote<T>(&self, outcome: Poll<T>) -> Poll<T> {
        self.place.wrote(outcome.is_pending());
        outcome
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.place.connections.leave(self.place.number);
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
            self.place.heard();
        }
        outcome
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.place.is_held() {
            return Poll::Pending;
        }
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.place.is_held() {
            return Poll::Pending;
        }
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.wrote(outcome)
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

/// A request that is being answered, until the answer has been taken.
pub(super) struct Answering {
    place: Arc<TrackedConnection>,
    has_no_end: bool,
}

impl Answering {
    pub(super) fn begin(place: Arc<TrackedConnection>) -> Self {
        place.begin(Stage::Answering);
        Self { place, has_no_end: false }
    }

    pub(super) fn until_read<B>(mut self, body: B, has_no_end: bool) -> Answer<B> {
        self.has_no_end = has_no_end;
        Answer { body, _answering: self }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if !self.has_no_end {
            self.place.begin(Stage::Idle);
        }
    }
}

/// The body of an answer.
pub(super) struct Answer<B> {
    body: B,
    _answering: Answering,
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
