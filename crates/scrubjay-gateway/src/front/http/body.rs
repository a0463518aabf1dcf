//! Answers whose messages count as delivered once the last of their bytes is written to the connection.
//!
//! The HTTP server keeps what it is given, in order, until the system has taken it, and tells each piece how much of it
//! was written ([`Buf::advance`]). So a piece knows by itself when it is delivered; dropped before, it was not.

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

/// An answer to a request.
pub(crate) type Response = axum::http::Response<Body>;

/// Some bytes of an answer, on their way to the connection.
pub(crate) struct BodyChunk {
    bytes: Bytes,
    told: OnWritten,
}

/// What is notified when a chunk is written.
enum OnWritten {
    Nobody,
    Receipt(Receipt),
    /// The log that it is an event of, by its number: the log keeps the receipt, for another reader may come for it.
    EventLog(Arc<EventReader>, u64),
}

impl BodyChunk {
    pub(super) fn new(bytes: impl Into<Bytes>, receipt: Option<Receipt>) -> Self {
        Self { bytes: bytes.into(), told: receipt.map_or(OnWritten::Nobody, OnWritten::Receipt) }
    }

    pub(super) fn of_log(event: Bytes, reader: Arc<EventReader>, number: u64) -> Self {
        Self { bytes: event, told: OnWritten::EventLog(reader, number) }
    }

    /// Makes a chunk of a line between these; its room is given back with its bytes.
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
        if !self.bytes.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.told, OnWritten::Nobody) {
            OnWritten::Nobody => {}
            OnWritten::Receipt(receipt) => receipt.delivered(),
            OnWritten::EventLog(reader, number) => reader.was_written(number),
        }
    }
}

type Parcels = Pin<Box<dyn Stream<Item = io::Result<BodyChunk>> + Send>>;

/// The body of an answer.
pub(crate) enum Body {
    /// What it has, until it is handed over.
    Whole(Option<BodyChunk>),
    /// What comes bit by bit.
    Parts(Parcels),
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
    fn from(parcel: BodyChunk) -> Self {
        Self::Whole(parcel.has_remaining().then_some(parcel))
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
            Self::Whole(parcel) => Poll::Ready(parcel.take().map(|parcel| Ok(Frame::data(parcel)))),
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
            Self::Whole(parcel) => SizeHint::with_exact(parcel.as_ref().map_or(0, Buf::remaining) as u64),
            Self::Parts(_) => SizeHint::default(),
        }
    }
}

/// Answers with a line that is on tape.
pub(super) fn json_line(status: StatusCode, line: Outgoing) -> Response {
    let mut response = Response::new(BodyChunk::of_line(line, "", "").into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
