//! The HTTP client: one connection pool for one server, HTTP/1.1, TLS by rustls with the system's roots.

use std::error::Error;
use std::io;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::crypto::ring;

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A peer that vanished is noticed on a stream that is silent for good reasons, too.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Less than the five seconds after which common servers close an idle connection, perhaps as we write.
const IDLE_MAX: Duration = Duration::from_secs(3);
const IDLE_CONNECTIONS_MAX: usize = 16;

pub(crate) struct Client {
    inner: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Client {
    /// Makes a client for a server; only one for HTTPS reads the system's roots.
    pub(crate) fn new(url: &Uri) -> io::Result<Self> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_MAX));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_nodelay(true);
        let connector = if url.scheme_str() == Some("https") {
            HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(ring::default_provider())?
                .https_only()
                .enable_http1()
                .wrap_connector(tcp)
        } else {
            let no_roots = ClientConfig::builder_with_provider(ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            HttpsConnectorBuilder::new()
                .with_tls_config(no_roots)
                .https_or_http()
                .enable_http1()
                .wrap_connector(tcp)
        };
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Ok(Self { inner })
    }

    /// Sends a request.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendFailure> {
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        self.inner.request(request).await.map_err(|e| {
            let is_unreachable = e.is_connect();
            let what = if is_unreachable { "cannot be reached" } else { "did not answer" };
            SendFailure { why: format!("{authority} {what}: {}", root(&e)), is_unreachable }
        })
    }
}

/// Why a request was not answered.
#[derive(Debug)]
pub(crate) struct SendFailure {
    /// In words.
    why: String,
    /// Whether nothing of it was sent, because no connection could be made.
    pub(crate) is_unreachable: bool,
}

impl std::fmt::Display for SendFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// Returns the innermost cause: the outer ones only say that something failed.
pub(crate) fn root(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
