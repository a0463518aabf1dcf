//! Response bodies whose messages count as delivered once their last byte is written to the connection.
//!
//! hyper keeps each chunk until the system has taken its bytes, and reports to the chunk how many were written
//! ([`Buf::advance`]). So a chunk knows when it is delivered; a chunk that is dropped before was not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use futures_util::{Stream, StreamExt};
use hyper::body::{Body as HttpBody, Buf, Frame, SizeHint};

use super::stream::EventReader;
use crate::delivery::{Outgoing, Receipt};

/// The response to a request.
pub(crate) type Response = axum::http::Response<Body>;

/// Some bytes of a response, on their way to the connection.
pub(crate) struct BodyChunk {
    bytes: Bytes,
    on_written: OnWritten,
}

/// What is notified when a chunk is written.
enum OnWritten {
    Nobody,
    Receipt(Receipt),
    /// The event log and the event's number in it. The log keeps the receipt, because another reader may resume there
    /// if this one is lost.
    EventLog(Arc<EventReader>, u64),
}

impl BodyChunk {
    pub(super) fn new(bytes: impl Into<Bytes>, receipt: Option<Receipt>) -> Self {
        Self { bytes: bytes.into(), on_written: receipt.map_or(OnWritten::Nobody, OnWritten::Receipt) }
    }

    pub(super) fn of_log(event: Bytes, reader: Arc<EventReader>, number: u64) -> Self {
        Self { bytes: event, on_written: OnWritten::EventLog(reader, number) }
    }

    /// Makes a chunk of a line between two texts. The line's memory is charged until the bytes are dropped.
    pub(super) fn of_line(line: Outgoing, before: &str, after: &str) -> Self {
        let (bytes, receipt, _) = line.into_bytes(before, after);
        Self::new(bytes, receipt)
    }
}

impl Buf for BodyChunk {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        // A client cannot use a part of a message, so only the last byte counts.
        if !self.bytes.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.on_written, OnWritten::Nobody) {
            OnWritten::Nobody => {}
            OnWritten::Receipt(receipt) => receipt.delivered(),
            OnWritten::EventLog(reader, number) => reader.was_written(number),
        }
    }
}

type Chunks = Pin<Box<dyn Stream<Item = io::Result<BodyChunk>> + Send>>;

/// The body of a response.
pub(crate) enum Body {
    /// All of it, until hyper takes it.
    Whole(Option<BodyChunk>),
    /// A stream of chunks.
    Parts(Chunks),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::Whole(None)
    }

    pub(super) fn parts(parts: impl Stream<Item = io::Result<BodyChunk>> + Send + 'static) -> Self {
        Self::Parts(Box::pin(parts))
    }
}

impl From<BodyChunk> for Body {
    fn from(chunk: BodyChunk) -> Self {
        Self::Whole(chunk.has_remaining().then_some(chunk))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        BodyChunk::new(text, None).into()
    }
}

impl From<axum::body::Body> for Body {
    fn from(body: axum::body::Body) -> Self {
        let parts = body.into_data_stream();
        Self::parts(parts.map(|part| part.map(|bytes| BodyChunk::new(bytes, None)).map_err(io::Error::other)))
    }
}

impl HttpBody for Body {
    type Data = BodyChunk;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<BodyChunk>>>> {
        match &mut *self {
            Self::Whole(chunk) => Poll::Ready(chunk.take().map(|chunk| Ok(Frame::data(chunk)))),
            Self::Parts(parts) => {
                parts.poll_next_unpin(cx).map(|part| part.map(|part| part.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            // Hyper makes a Content-Length of it, so that a single message is not sent in chunks.
            Self::Whole(chunk) => SizeHint::with_exact(chunk.as_ref().map_or(0, Buf::remaining) as u64),
            Self::Parts(_) => SizeHint::default(),
        }
    }
}

/// Makes a response of a line that is on tape.
pub(super) fn json_line(status: StatusCode, line: Outgoing) -> Response {
    let mut response = Response::new(BodyChunk::of_line(line, "", "").into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
