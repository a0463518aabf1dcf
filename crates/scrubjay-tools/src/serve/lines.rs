//! The transport between a client and a toolset: newline-separated JSON, in which every recognizable request is answered.
//!
//! rmcp's own transport silently drops requests that it cannot parse (a lone surrogate, `1e999`, 128 levels of nesting),
//! or answers them without an id, and the caller waits for ever. Here such a request gets an error under its own id.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::code;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// Reads and writes messages, one in a line.
pub(super) struct LineTransport<R, W> {
    reader: BufReader<R>,
    /// The line that is being read; it stays here if the read is cancelled half-way.
    line: Vec<u8>,
    writer: Arc<Mutex<Option<W>>>,
}

impl<R: AsyncRead + Unpin, W> LineTransport<R, W> {
    pub(super) fn new(reader: R, writer: W) -> Self {
        let writer = Arc::new(Mutex::new(Some(writer)));
        Self { reader: BufReader::new(reader), line: Vec::new(), writer }
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        // Serialized before the future is made, so that the future need not hold the message.
        let line = serde_json::to_vec(&item);
        let writer = self.writer.clone();
        async move { write(&writer, line?).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // If this is cancelled half-way, the next call continues with the same line.
            // The length of a line is not limited here: the gateway, which writes it, has checked it.
            let read = self.reader.read_until(b'\n', &mut self.line).await.ok()?;
            if read == 0 {
                return None;
            }
            let line = std::mem::take(&mut self.line);
            match serde_json::from_slice(&line) {
                Ok(message) => return Some(message),
                Err(e) => self.refuse(&line, &e),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // Dropping the writer ends the stream, by which the other side notices.
        drop(self.writer.lock().await.take());
        Ok(())
    }
}

impl<R, W: AsyncWrite + Send + Unpin + 'static> LineTransport<R, W> {
    /// Answers a line that cannot be parsed, if it is a request.
    fn refuse(&self, line: &[u8], error: &serde_json::Error) {
        let Some(answer) = refusal(line, error) else { return };
        let writer = self.writer.clone();
        // On a task of its own, because reading may be cancelled at any moment, and half a line would corrupt the next.
        tokio::spawn(async move {
            // It fails only if the client has left, and then nobody waits for the answer.
            let _ = write(&writer, answer.into_bytes()).await;
        });
    }
}

async fn write<W: AsyncWrite + Unpin>(writer: &Mutex<Option<W>>, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    let mut writer = writer.lock().await;
    let writer = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    writer.write_all(&line).await?;
    writer.flush().await
}

/// Returns the error response to a line that cannot be parsed, if that is a request.
fn refusal(line: &[u8], error: &serde_json::Error) -> Option<String> {
    let text = std::str::from_utf8(line).ok()?;
    let parts = Parts::of(text).ok()?;
    let id = parts.json_id()?;
    let is_answer = parts.method.is_none() && (parts.result.is_some() || parts.error.is_some());
    if is_answer {
        return None;
    }
    // Without serde's line and column: the gateway rewrote the line, so they are not those that the client sent.
    let why = error.to_string();
    let why = why.split(" at line ").next().unwrap_or_default();
    let (code, message) = match (&parts.method, parts.params) {
        (None, _) => (code::INVALID_REQUEST, "the method is not a readable string".to_owned()),
        (Some(method), Some(params)) if serde_json::from_str::<serde_json::Value>(params.get()).is_err() => {
            (code::INVALID_PARAMS, format!("the params of {method} cannot be read: {why}"))
        }
        (Some(method), _) => {
            (code::INVALID_PARAMS, format!("the params of {method} are not what it takes: {why}"))
        }
    };
    Some(message::raw_error(id.as_raw(), &message::error(code, &message, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> Option<serde_json::Value> {
        let error = serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(line.as_bytes()).err()?;
        refusal(line.as_bytes(), &error).map(|answer| serde_json::from_str(&answer).unwrap())
    }

    #[test]
    fn an_unreadable_request_is_answered_under_its_own_id() {
        let deep = format!("{}1{}", "[".repeat(150), "]".repeat(150));
        for arguments in [r#"{"x":"\ud800"}"#, r#"{"x":1e999}"#, &format!(r#"{{"x":{deep}}}"#)] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"a","arguments":{arguments}}}}}"#
            );
            let answer = refused(&line).unwrap();
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&7.into(), &code::INVALID_PARAMS.into()),
                "{answer}"
            );
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("cannot be read") && !message.contains("line"), "{message}");
        }
    }

    #[test]
    fn a_line_that_is_not_a_request_gets_no_answer() {
        for line in ["not json", r#"{"jsonrpc":"2.0","method":"x","params":{"x":1e999}}"#, "[1]"] {
            assert_eq!(refused(line), None, "{line}");
        }
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":1,"result":{"x":1e999}}"#), None);
    }
}
