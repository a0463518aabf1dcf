//! Where a bridge puts what the server says: a stream of lines, or a queue that also tells on which stream
//! each came.

use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// How many lines may wait in a queue.
const LINES_MAX: usize = 256;
/// How many bytes may wait in a queue; one line may have more, and then waits there alone.
const BYTES_MAX: u32 = 1 << 20;

/// A line of the server's.
#[derive(Debug)]
pub struct ReceivedLine {
    /// The line, without its end.
    pub line: Vec<u8>,
    /// The request on whose own stream it came: the id, where that is a number as our own ids are. What
    /// comes on the standing stream, or of a server that has only one stream, says no request.
    pub stream_of: Option<u64>,
    /// Its part of the queue's room, given back when it has been dealt with.
    _room: OwnedSemaphorePermit,
}

pub(super) enum BridgeOutput {
    Stream(tokio::sync::Mutex<Box<dyn AsyncWrite + Send + Unpin>>),
    Queue { lines: mpsc::Sender<ReceivedLine>, room: Arc<Semaphore> },
}

impl BridgeOutput {
    pub(super) fn stream(writer: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self::Stream(tokio::sync::Mutex::new(writer))
    }

    pub(super) fn queue() -> (Self, mpsc::Receiver<ReceivedLine>) {
        let (lines, received) = mpsc::channel(LINES_MAX);
        let room = Arc::new(Semaphore::new(BYTES_MAX as usize));
        (Self::Queue { lines, room }, received)
    }

    /// Puts a line there, when there is room; returns whether somebody may still read it.
    pub(super) async fn put(&self, line: &[u8], stream_of: Option<u64>) -> bool {
        match self {
            Self::Stream(writer) => {
                let whole = [line, b"\n"].concat();
                let mut writer = writer.lock().await;
                let written = async {
                    writer.write_all(&whole).await?;
                    writer.flush().await
                };
                written.await.is_ok()
            }
            Self::Queue { lines, room } => {
                let bytes = u32::try_from(line.len()).unwrap_or(BYTES_MAX).min(BYTES_MAX);
                let Ok(room) = room.clone().acquire_many_owned(bytes).await else { return false };
                lines.send(ReceivedLine { line: line.to_vec(), stream_of, _room: room }).await.is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_queue_is_bounded_in_bytes() {
        let (output, mut received) = BridgeOutput::queue();
        let large = vec![b'x'; BYTES_MAX as usize * 3];
        assert!(output.put(&large, Some(7)).await);
        let mut more = std::pin::pin!(output.put(b"small", None));
        tokio::select! {
            biased;
            _ = &mut more => panic!("there is no room left"),
            () = std::future::ready(()) => {}
        }
        let first = received.recv().await.expect("the large line");
        assert_eq!((first.line.len(), first.stream_of), (large.len(), Some(7)));
        drop(first);
        assert!(more.await);
        assert_eq!(received.recv().await.map(|r| (r.line, r.stream_of)), Some((b"small".to_vec(), None)));
        drop(received);
        assert!(!output.put(b"nobody", None).await);
    }
}
