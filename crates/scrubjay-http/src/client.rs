//! One connection pool for one server.

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

/// How long a connection may take, before the kernel's own limit of minutes.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A stream may be silent for good reasons: only probes notice that its peer vanished.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Less than the five seconds after which common servers close an idle connection, perhaps as we write.
const IDLE_MAX: Duration = Duration::from_secs(3);

/// A client of one server.
pub struct Client {
    inner: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Client {
    /// Makes a client for a server. It keeps at most `idle_connections_max` connections that are not in use.
    ///
    /// # Errors
    /// The server is on HTTPS, and the system's root certificates cannot be read.
    pub fn new(url: &Uri, idle_connections_max: usize) -> io::Result<Self> {
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(idle_connections_max)
            .build(connector(url)?);
        Ok(Self { inner })
    }

    /// Sends a request and returns the response as soon as its head is there.
    ///
    /// # Errors
    /// There is no connection, or it broke before the response began.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        self.inner.request(request).await.map_err(|e| SendError {
            authority,
            is_unreachable: e.is_connect(),
            cause: root_cause(&e),
        })
    }
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
#[error("{authority} {}: {cause}", if *is_unreachable { "cannot be reached" } else { "did not answer" })]
pub struct SendError {
    authority: String,
    /// Whether nothing was sent, because no connection could be made.
    pub is_unreachable: bool,
    cause: String,
}

/// Returns the text of the innermost cause: the outer ones of hyper only say that something failed.
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

fn connector(url: &Uri) -> io::Result<HttpsConnector<HttpConnector>> {
    let mut tcp = HttpConnector::new();
    // The TLS layer above it passes on URLs that begin with https, which it would refuse.
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_MAX));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_nodelay(true);
    if url.scheme_str() == Some("https") {
        let roots = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider())?;
        return Ok(roots.https_only().enable_http1().wrap_connector(tcp));
    }
    // Plain HTTP needs no roots: on a machine that has none, local servers and models can still be reached.
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Sends a request to this address.
    async fn get(url: &str) -> Result<Response<Incoming>, SendError> {
        let url: Uri = url.parse().unwrap();
        let client = Client::new(&url, 1).unwrap();
        client.send(Request::get(url).body(Full::default()).unwrap()).await
    }

    /// Answers one connection with these bytes, after a request has begun to arrive.
    async fn answering(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            assert!(read > 0, "a request arrives");
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        format!("http://{address}/")
    }

    #[tokio::test]
    async fn a_response_is_returned_with_any_status() {
        let url = answering("HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 2\r\n\r\nhi").await;
        let response = get(&url).await.unwrap();
        assert_eq!(response.status(), 302, "redirects are not followed");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hi");
    }

    #[tokio::test]
    async fn an_error_names_the_server_and_the_innermost_cause() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = get(&format!("http://{address}/")).await.unwrap_err();
        let text = error.to_string();
        assert!(
            error.is_unreachable && text.starts_with(&format!("{address} cannot be reached: ")),
            "{text}"
        );
        assert!(text.contains("refused"), "{text}");
        let url = answering("").await;
        let error = get(&url).await.unwrap_err();
        assert!(!error.is_unreachable && error.to_string().contains(" did not answer: "), "{error}");
    }
}
