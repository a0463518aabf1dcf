//! Runs work on the index on a thread of its own, because filling it must not delay the messages of this process.

use std::io;

use scrubjay_store::index::{Index, IndexError};
use scrubjay_store::ledger::Storage;
use scrubjay_tape::home::Home;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::reply::Failure;

/// The index and its thread; dropping this ends the thread.
#[derive(Debug)]
pub(crate) struct IndexThread {
    index: Index,
    thread: Thread,
}

#[derive(Debug)]
struct Thread {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Thread {
    fn start() -> io::Result<Self> {
        // A runtime of its own: on the shared one, long stretches of this work would hold up messages.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        // The thread runs spawned work until the sender is dropped.
        let run = move || drop(runtime.block_on(stopped));
        std::thread::Builder::new().name("scrubjay-index".to_owned()).spawn(run)?;
        Ok(Self { handle, _stop: stop })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, IndexError>> + Send + 'static,
    ) -> Result<T, Failure> {
        Ok(self.handle.spawn(work).await.map_err(internal)??)
    }
}

impl IndexThread {
    /// Opens the index; it may be behind the tapes.
    pub(crate) async fn open(home: Home, storage: Storage) -> Result<Self, Failure> {
        let thread = Thread::start().map_err(internal)?;
        let index = thread.run(async move { Index::open(&home, &storage).await }).await?;
        Ok(Self { index, thread })
    }

    /// Runs `work` with the index. It is completed even if the caller stops waiting.
    pub(crate) async fn run<T, F>(&self, work: impl FnOnce(Index) -> F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, IndexError>> + Send + 'static,
    {
        self.thread.run(work(self.index.clone())).await
    }
}

fn internal(error: impl std::error::Error) -> Failure {
    tracing::error!(error = %error, "the work on the index was not completed");
    Failure::new("INTERNAL", error.to_string(), "Try again.")
}
