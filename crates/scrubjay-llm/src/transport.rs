//! The HTTP client of one endpoint: HTTP/1.1, TLS by rustls with the system's roots, no redirects, bounded bodies.

use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::crypto::ring;

use crate::config::{LlmConfig, LlmConfigError};

/// No answer is read further.
const BODY_BYTES_MAX: usize = 1 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Less than the five seconds after which common servers close an idle connection, perhaps as we write.
const IDLE_MAX: Duration = Duration::from_secs(3);

pub(crate) struct Transport {
    inner: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Uri,
    authorization: Option<HeaderValue>,
}

/// An answer, whatever it says.
pub(crate) struct HttpReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer.
pub(crate) enum TransportError {
    /// No connection, or it broke before the answer began.
    Unreachable(String),
    /// The answer broke off.
    Broken,
    /// The answer is longer than any is.
    TooLong,
}

impl Transport {
    /// Makes a client for an endpoint; only one for HTTPS reads the system's roots.
    pub(crate) fn new(config: &LlmConfig) -> Result<Self, LlmConfigError> {
        let url = config.endpoint()?;
        let authorization = config.key().map(|key| {
            let fits = key.reveal().bytes().all(|b| b.is_ascii_graphic());
            let header = HeaderValue::from_str(&format!("Bearer {}", key.reveal()));
            let mut header = header.ok().filter(|_| fits).ok_or(LlmConfigError::BadKey)?;
            header.set_sensitive(true);
            Ok(header)
        });
        let connector = connector(&url).map_err(LlmConfigError::Roots)?;
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(config.concurrency)
            .build(connector);
        Ok(Self { inner, url, authorization: authorization.transpose()? })
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
        let answer = self.inner.request(request).await.map_err(|e| self.unreachable(&e))?;
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

    fn unreachable(&self, error: &legacy::Error) -> TransportError {
        let authority = self.url.authority().map(ToString::to_string).unwrap_or_default();
        let what = if error.is_connect() { "cannot be reached" } else { "did not answer" };
        // The outer causes only say that something failed.
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        TransportError::Unreachable(format!("{authority} {what}: {cause}"))
    }
}

fn connector(url: &Uri) -> io::Result<HttpsConnector<HttpConnector>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_MAX));
    tcp.set_nodelay(true);
    if url.scheme_str() == Some("https") {
        let roots = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider())?;
        return Ok(roots.https_only().enable_http1().wrap_connector(tcp));
    }
    let no_roots = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(no_roots)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp))
}
