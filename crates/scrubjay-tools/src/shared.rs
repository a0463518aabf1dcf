//! What all toolsets share: the ledger, the files, the index and the model, opened by the first call that needs them;
//! and the identity of callers.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::service::RequestContext;
use scrubjay_core::id::TapeId;
use scrubjay_core::protocol::meta;
use scrubjay_core::redact::Redactor;
use scrubjay_llm::LlmConfig;
use scrubjay_store::files::{FileError, Files};
use scrubjay_store::ledger::session::{self, Caller};
use scrubjay_store::ledger::{CommitDurability, Ledger, LedgerError, Storage};
use scrubjay_store::workspace::Workspace;
use scrubjay_tape::claim::Claim;
use scrubjay_tape::home::Home;
use serde::Deserialize;
use tokio::sync::{Notify, OnceCell};

use crate::progress::InFlightSummaries;
use crate::reply::Failure;
use crate::tapes::IndexThread;

/// How often the ledger is asked for writes of other processes, which cannot notify this one. Each check is a query for
/// each subscription, so it is not more often.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The configuration of the toolsets.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the ledger is.
    pub storage: Storage,
    /// Redacts everything that is stored.
    pub redactor: Arc<Redactor>,
    /// The default project.
    pub project: String,
    /// The directory in which agents may change files.
    pub workspace: PathBuf,
    /// Whether agents may change files of version control systems there.
    pub allow_vcs: bool,
    /// The largest file that agents may write.
    pub file_bytes_max: u64,
    /// The data directory, whose tapes can be searched.
    pub home: Home,
    /// The directory of the locks for changing files.
    pub locks: PathBuf,
    /// The model that summarises.
    pub llm: Option<LlmConfig>,
    /// After how many writes to its project since its last sync a session is stale.
    pub stale_after_ticks: i64,
}

/// The state that all toolsets share.
pub struct Shared {
    setup: Setup,
    ledger: OnceCell<Ledger>,
    files: OnceCell<Arc<Files>>,
    index: OnceCell<IndexThread>,
    /// Notified when this process wrote to the ledger.
    ledger_written: Notify,
    llm: OnceLock<Option<scrubjay_llm::Client>>,
    summaries_in_flight: InFlightSummaries,
    /// The id of this process; also the connection of callers without a gateway.
    process_key: String,
    /// The lock by which other processes see that this one is alive.
    process_claim: OnceLock<Claim>,
    /// The open connections that have called a tool.
    callers: Mutex<HashSet<String>>,
    on_move: Arc<OnceLock<OnMove>>,
}

/// Called with the ids of a connection and of its new session, when that is not the one its tape names.
type OnMove = Box<dyn Fn(&str, &str) + Send + Sync>;

/// The gateway's description of a caller.
#[derive(Default, Deserialize)]
struct CallerMeta {
    connection: Option<String>,
    session: Option<String>,
    #[serde(rename = "hostSession")]
    host_session: Option<String>,
    #[serde(rename = "toldBy")]
    told_by: Option<String>,
    tape: Option<String>,
    entry: Option<i64>,
    client: Option<Client>,
}

#[derive(Deserialize)]
struct Client {
    name: Option<String>,
    version: Option<String>,
}

impl Shared {
    /// Makes the shared state; nothing is opened yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            ledger: OnceCell::new(),
            files: OnceCell::new(),
            index: OnceCell::new(),
            ledger_written: Notify::new(),
            llm: OnceLock::new(),
            summaries_in_flight: InFlightSummaries::default(),
            process_key: random_id(),
            process_claim: OnceLock::new(),
            callers: Mutex::default(),
            on_move: Arc::default(),
        }
    }

    /// Returns the configuration.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the ledger; the first call opens it.
    ///
    /// # Errors
    /// It cannot be opened; the next call tries again.
    pub async fn ledger(&self) -> Result<&Ledger, LedgerError> {
        // Not at the start, which must take milliseconds: a conversation may never need the ledger.
        self.ledger.get_or_try_init(|| self.open_ledger()).await
    }

    async fn open_ledger(&self) -> Result<Ledger, LedgerError> {
        let ledger = Ledger::open(&self.setup.storage, self.setup.redactor.clone()).await?;
        let callback = self.on_move.clone();
        ledger.on_move(move |connection, session| {
            // Looked up at each move, because a first call may open the ledger before the callback is set.
            if let Some(callback) = callback.get() {
                callback(connection, session);
            }
        });
        match Claim::take(&self.setup.home.processes(), &self.process_key, "") {
            Ok(claim) => drop(claim.map(|claim| self.process_claim.set(claim))),
            // Recording matters more than the claim: without one, other processes end this one's sessions only after
            // a day without an event.
            Err(e) => tracing::warn!(error = %e, "cannot show other processes that this one is running"),
        }
        // Every process that opens the ledger cleans up: one that was killed, or that could not record the end of its
        // sessions, left them open. In this order: without its claim file a process is no longer known to be gone.
        session::end_departed(&ledger, |process| self.setup.home.process(process)).await?;
        self.setup.home.forget_gone_processes();
        Ok(ledger)
    }

    /// Sets the callback for connections that move to another session. Only the first call has an effect.
    pub fn on_move(&self, callback: impl Fn(&str, &str) + Send + Sync + 'static) {
        // The gateway that these toolsets belong to is created once, so a second callback would be a mistake.
        let _ = self.on_move.set(Box::new(callback));
    }

    /// Ends the sessions of processes that are gone, so that their records are no longer active.
    ///
    /// # Errors
    /// The ledger failed.
    pub(crate) async fn end_departed(&self) -> Result<(), LedgerError> {
        let ledger = self.ledger().await?;
        if session::end_departed(ledger, |process| self.setup.home.process(process)).await? > 0 {
            self.notify_written();
        }
        Ok(())
    }

    /// Notes that a connection closed. Its session ends if it has no other connection.
    ///
    /// # Errors
    /// The ledger failed; the next process that opens it ends the session.
    pub async fn client_left(&self, connection: &str, why: &str) -> Result<(), LedgerError> {
        if self.callers().contains(connection) {
            self.leave(&[connection.to_owned()], why).await?;
        }
        Ok(())
    }

    /// Notes that all connections closed.
    ///
    /// # Errors
    /// The ledger failed; the next process that opens it ends the sessions.
    pub async fn all_left(&self, why: &str) -> Result<(), LedgerError> {
        let connections: Vec<String> = self.callers().iter().cloned().collect();
        self.leave(&connections, why).await
    }

    async fn leave(&self, connections: &[String], why: &str) -> Result<(), LedgerError> {
        // A connection that never needed the ledger has no session there.
        let Some(ledger) = self.ledger.get().filter(|_| !connections.is_empty()) else { return Ok(()) };
        // One transaction for all of them, because each commit waits for the disk.
        let mut write = ledger.write(CommitDurability::Power).await?;
        for connection in connections {
            session::leave(&mut write, connection, why).await?;
        }
        write.commit().await?;
        // Only after the commit: if this is interrupted, `all_left` tries them again.
        self.callers().retain(|caller| !connections.contains(caller));
        self.notify_written();
        Ok(())
    }

    fn callers(&self) -> MutexGuard<'_, HashSet<String>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the files of the workspace. The first call settles changes that a crash left open.
    ///
    /// # Errors
    /// The workspace or the ledger cannot be opened; the next call tries again.
    pub(crate) async fn files(&self) -> Result<&Arc<Files>, FileError> {
        self.files.get_or_try_init(|| self.open_files()).await
    }

    async fn open_files(&self) -> Result<Arc<Files>, FileError> {
        let ledger = self.ledger().await?.clone();
        let workspace = Workspace::open(&self.setup.workspace).map_err(FileError::Workspace)?;
        let workspace = workspace.allow_vcs(self.setup.allow_vcs);
        let files = Files::new(ledger, workspace, self.setup.locks.clone(), self.setup.file_bytes_max);
        let caller = self.caller_from(CallerMeta::default());
        // Before settling, so that changes left open under the old root are found under this one.
        self.recognise(&files, &caller).await;
        files.settle(&caller).await?;
        Ok(Arc::new(files))
    }

    /// Settles changes that a crash left open, and recognises a workspace that moved here. Called at the start of a server
    /// and before views are read. Failures are only logged, because no caller asked for this.
    pub async fn settle(&self) {
        if let Storage::File(path) = &self.setup.storage
            && !path.exists()
        {
            // Without a ledger nothing was recorded; this must not create one.
            return;
        }
        let caller = self.caller_from(CallerMeta::default());
        // `files` settles when it opens them.
        let settled = match self.files.get() {
            Some(files) => files.settle(&caller).await.map(|_| ()),
            None => self.files().await.map(|_| ()),
        };
        if let Err(e) = settled {
            tracing::warn!(error = %e, "file changes that a crash left open are not settled");
        }
    }

    /// Recognises a workspace of this project that was moved here.
    async fn recognise(&self, files: &Files, caller: &Caller) {
        // A shared database also has workspaces of other machines, which would all look as if they had moved.
        if !matches!(self.setup.storage, Storage::File(_)) {
            return;
        }
        match files.detect_move(caller).await {
            Ok(Some(from)) => tracing::info!(from, to = files.root(), "the workspace moved"),
            Ok(None) => {}
            Err(e) => tracing::warn!(error = %e, "cannot find out whether the workspace moved"),
        }
    }

    /// Returns the index, which may be behind the tapes; the first call opens it.
    pub(crate) async fn index(&self) -> Result<&IndexThread, Failure> {
        self.index
            .get_or_try_init(|| IndexThread::open(self.setup.home.clone(), self.setup.storage.clone()))
            .await
    }

    /// Notifies subscribers that this process wrote to the ledger.
    pub fn notify_written(&self) {
        self.ledger_written.notify_waiters();
    }

    /// Waits until this process writes, or until it is time to check for writes of other processes.
    pub(crate) async fn wait_for_writes(&self) {
        // Both outcomes mean the same to the caller: check the ledger. `notify_waiters` wakes only those who wait now,
        // so a write during a check is noticed by the next one, after `POLL_INTERVAL`.
        let _ = tokio::time::timeout(POLL_INTERVAL, self.ledger_written.notified()).await;
    }

    /// Returns the client of the model, if one is configured.
    pub(crate) fn llm(&self) -> Option<&scrubjay_llm::Client> {
        let client = self.llm.get_or_init(|| {
            let client = scrubjay_llm::Client::new(self.setup.llm.clone()?);
            // An address that cannot be used is reported once; the toolsets then work as without a model.
            client.inspect_err(|e| tracing::error!("llm.base_url {e}")).ok()
        });
        client.as_ref()
    }

    /// Returns the requests to the model that are in flight.
    pub(crate) fn summaries_in_flight(&self) -> &InFlightSummaries {
        &self.summaries_in_flight
    }

    /// Returns the id of this process.
    pub(crate) fn process_key(&self) -> &str {
        &self.process_key
    }

    /// Returns the caller of a request.
    pub(crate) fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let meta = context.meta.get(meta::CALLER).cloned();
        // Without a gateway there is no such member, and the caller is this process itself.
        self.caller_from(meta.and_then(|meta| serde_json::from_value(meta).ok()).unwrap_or_default())
    }

    /// Returns a caller that the gateway describes outside of a request.
    #[must_use]
    pub fn caller_of_meta(&self, meta: &serde_json::Value) -> Caller {
        self.caller_from(CallerMeta::deserialize(meta).unwrap_or_default())
    }

    fn caller_from(&self, meta: CallerMeta) -> Caller {
        if let Some(connection) = &meta.connection {
            // Noted so that its session can be ended when the connection closes.
            self.callers().insert(connection.clone());
        }
        let agent = meta.client.and_then(|c| c.name.map(|name| (name, c.version)));
        // Without a gateway this process serves one client, so it stands for the conversation and the connection.
        let conversation = meta.session.unwrap_or_else(|| self.process_key.clone());
        Caller {
            connection: meta.connection.unwrap_or_else(|| conversation.clone()),
            conversation,
            host_session: meta.host_session,
            process: Some(self.process_key.clone()),
            told_by: meta.told_by.unwrap_or_else(|| "connection".to_owned()),
            agent: agent
                .map(|(name, version)| format!("{name} {}", version.unwrap_or_default()).trim().to_owned()),
            tape: meta.tape.and_then(|id| id.parse().ok()),
            entry: meta.entry,
            project: self.setup.project.clone(),
            workspace: Some(self.setup.workspace.to_string_lossy().into_owned()),
        }
    }
}

/// Makes an id of 80 random bits: enough that no two processes or projects get the same.
pub(crate) fn random_id() -> String {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("the system has a source of randomness");
    TapeId::from_random(random).to_string()
}
