//! Where a bridge puts the server's messages: a stream of lines, or a queue that also names the stream on which each
//! line came.

use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// The most lines in a queue; the server is not read beyond that.
const LINES_MAX: usize = 256;
/// The most bytes in a queue. A longer line needs an empty queue.
const BYTES_MAX: u32 = 1 << 20;

/// A line from the server.
#[derive(Debug)]
pub struct ReceivedLine {
    /// The line, without its end.
    pub line: Vec<u8>,
    /// The id of the request on whose stream it came, if that is a number, as our own ids are; `None` on the standing
    /// stream and with a server that has a single stream.
    pub stream_of: Option<u64>,
    /// Its part of the queue's bytes, released when the line has been processed.
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

    /// Waits for room and puts a line there; returns whether the other end is open.
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
                // A line beyond the limit takes all permits, and so waits until the queue is empty.
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
