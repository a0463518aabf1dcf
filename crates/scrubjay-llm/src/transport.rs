//! One endpoint on HTTP: the headers of a request, and bounded answers.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use scrubjay_http::{Client, SendError};

use crate::config::{LlmConfig, LlmConfigError};

/// The longest answer that is read: far beyond what a model writes within our token limits.
const BODY_BYTES_MAX: usize = 1 << 20;

pub(crate) struct Transport {
    client: Client,
    url: Uri,
    authorization: Option<HeaderValue>,
}

/// An answer of any status.
pub(crate) struct HttpReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer.
pub(crate) enum TransportError {
    /// No connection, or it broke before the answer began.
    Unreachable(SendError),
    /// The answer broke off.
    Broken,
    /// The answer is longer than [`BODY_BYTES_MAX`].
    TooLong,
}

impl Transport {
    /// Makes a client for an endpoint.
    pub(crate) fn new(config: &LlmConfig) -> Result<Self, LlmConfigError> {
        let url = config.endpoint()?;
        let authorization = config.key().map(|key| {
            // A header may hold spaces and bytes beyond ASCII; in a key they are an error of copying.
            let is_clean = key.reveal().bytes().all(|b| b.is_ascii_graphic());
            let header = HeaderValue::from_str(&format!("Bearer {}", key.reveal()));
            let mut header = header.ok().filter(|_| is_clean).ok_or(LlmConfigError::BadKey)?;
            header.set_sensitive(true);
            Ok(header)
        });
        let authorization = authorization.transpose()?;
        let client = Client::new(&url, config.concurrency).map_err(LlmConfigError::Roots)?;
        Ok(Self { client, url, authorization })
    }

    /// Sends one request and reads the whole answer.
    pub(crate) async fn post(&self, body: Vec<u8>) -> Result<HttpReply, TransportError> {
        let mut request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("scrubjay/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(body)))
            .expect("the parts of a request are well-formed");
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let answer = self.client.send(request).await.map_err(TransportError::Unreachable)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|e| {
            if e.is::<http_body_util::LengthLimitError>() {
                TransportError::TooLong
            } else {
                TransportError::Broken
            }
        })?;
        Ok(HttpReply { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}
