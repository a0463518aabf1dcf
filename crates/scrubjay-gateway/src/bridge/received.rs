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
pub struct Received {
    /// The line, without its end.
    pub line: Vec<u8>,
    /// The request on whose own stream it came: the id, where that is a number as our own ids are. What
    /// comes on the standing stream, or of a server that has only one stream, says no request.
    pub on: Option<u64>,
    /// Its part of the queue's room, given back when it has been dealt with.
    _room: OwnedSemaphorePermit,
}

pub(super) enum Sink {
    Stream(tokio::sync::Mutex<Box<dyn AsyncWrite + Send + Unpin>>),
    Queue { lines: mpsc::Sender<Received>, room: Arc<Semaphore> },
}

impl Sink {
    pub(super) fn stream(writer: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self::Stream(tokio::sync::Mutex::new(writer))
    }

    pub(super) fn queue() -> (Self, mpsc::Receiver<Received>) {
        let (lines, received) = mpsc::channel(LINES_MAX);
        let room = Arc::new(Semaphore::new(BYTES_MAX as usize));
        (Self::Queue { lines, room }, received)
    }

    /// Puts a line there, when there is room; returns whether somebody may still read it.
    pub(super) async fn put(&self, line: &[u8], on: Option<u64>) -> bool {
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
                lines.send(Received { line: line.to_vec(), on, _room: room }).await.is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_queue_is_bounded_in_bytes() {
        let (sink, mut received) = Sink::queue();
        let large = vec![b'x'; BYTES_MAX as usize * 3];
        assert!(sink.put(&large, Some(7)).await);
        let mut more = std::pin::pin!(sink.put(b"small", None));
        tokio::select! {
            biased;
            _ = &mut more => panic!("there is no room left"),
            () = std::future::ready(()) => {}
        }
        let first = received.recv().await.expect("the large line");
        assert_eq!((first.line.len(), first.on), (large.len(), Some(7)));
        drop(first);
        assert!(more.await);
        assert_eq!(received.recv().await.map(|r| (r.line, r.on)), Some((b"small".to_vec(), None)));
        drop(received);
        assert!(!sink.put(b"nobody", None).await);
    }
}
