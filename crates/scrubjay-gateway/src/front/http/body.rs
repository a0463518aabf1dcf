//! A body that is handed over whole: when it is polled out, what it carries counts as delivered.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::delivery::{Outgoing, Receipt};

struct WholeBody {
    data: Option<Bytes>,
    receipt: Option<Receipt>,
}

impl HttpBody for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take();
        self.receipt.take().into_iter().for_each(Receipt::delivered);
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}

/// Makes a body of something recorded; not polled out, it is noted as undelivered.
pub(super) fn recorded(data: impl Into<Bytes>, receipt: Option<Receipt>) -> Body {
    Body::new(WholeBody { data: Some(data.into()), receipt })
}

/// Answers with a line that is on tape.
pub(super) fn json_line(status: StatusCode, line: Outgoing) -> Response {
    let (bytes, receipt, _) = line.into_bytes("", "");
    let mut response = Response::new(recorded(bytes, receipt));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
