//! Runs one rmcp server over a pair of byte streams until the client hangs up.
//!
//! Every toolset is served by [`serve_until_eof`]. It decides what counts as a failed conversation, and keeps messages
//! from rmcp that it does not expect before the conversation is open. It knows no tool.

mod lines;

use std::io;

use rmcp::model::{ClientRequest, GetMeta, JsonRpcMessage, ProtocolVersion};
use rmcp::service::{QuitReason, RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinError;

use self::lines::LineTransport;

/// Why a toolset stopped serving before its client hung up.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The conversation could not be opened, for instance because the answer could not be written.
    #[error("the client and the toolset could not open a conversation")]
    Open(#[source] Box<ServerInitializeError>),
    /// The task that runs the conversation panicked or was aborted.
    #[error("the toolset stopped unexpectedly")]
    Task(#[source] JoinError),
}

/// Serves `server` until `reader` ends.
///
/// A client that leaves without opening a conversation, as one that only probes does, is not an error.
pub(crate) async fn serve_until_eof<S, R, W>(server: S, reader: R, writer: W) -> Result<(), ServeError>
where
    S: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let transport = TolerantTransport { inner: LineTransport::new(reader, writer), opened: false };
    let running = match server.serve(transport).await {
        Ok(running) => running,
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(ServeError::Open(Box::new(error))),
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(ServeError::Task(error)),
        Ok(_) => Ok(()),
    }
}

/// A transport that drops notifications and responses until a conversation is open.
///
/// rmcp ends the whole server on such a message, yet a real client may send one: it cancels its
/// unanswered `server/discover` and goes on with `initialize`.
struct TolerantTransport<R, W> {
    inner: LineTransport<R, W>,
    opened: bool,
}

impl<R, W> Transport<RoleServer> for TolerantTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let message = self.inner.receive().await?;
            if let JsonRpcMessage::Request(request) = &message {
                self.opened |= opens_conversation(&request.request);
                return Some(message);
            }
            if self.opened {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// Tells whether a request opens the conversation for rmcp, so that it accepts any message after it.
///
/// This repeats rmcp's own condition for a handler that supports every version rmcp knows, as ours do.
fn opens_conversation(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        _ => {
            let meta = request.get_meta();
            meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
                && meta
                    .protocol_version()
                    .is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version))
        }
    }
}
