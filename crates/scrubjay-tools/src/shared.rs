//! What all toolsets share: the ledger, the index and the model, opened with the first call that needs them, and
//! who is calling.

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
use scrubjay_store::ledger::{Ledger, LedgerError, Storage, Survives};
use scrubjay_store::workspace::Workspace;
use scrubjay_tape::claim::Claim;
use scrubjay_tape::home::Home;
use serde::Deserialize;
use tokio::sync::{Notify, OnceCell};

use crate::progress::InFlightSummaries;
use crate::reply::Failure;
use crate::tapes::IndexThread;

/// How long a change by another process may go unnoticed.
const UNNOTICED_MAX: Duration = Duration::from_secs(1);

/// How the toolsets are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the ledger is.
    pub storage: Storage,
    /// Takes secrets out of whatever is stored.
    pub redactor: Arc<Redactor>,
    /// The project of whoever names none.
    pub project: String,
    /// The directory in which agents may change files.
    pub workspace: PathBuf,
    /// Whether they may change files of version control systems there.
    pub allow_vcs: bool,
    /// The largest file they may write.
    pub file_bytes_max: u64,
    /// The data directory, whose tapes can be searched.
    pub home: Home,
    /// A directory for the locks of files that are being changed.
    pub locks: PathBuf,
    /// The model that summarises.
    pub llm: Option<LlmConfig>,
    /// A session is stale when a project was written to more often since the session last looked.
    pub stale_after_ticks: i64,
}

/// What all toolsets share.
pub struct Shared {
    setup: Setup,
    ledger: OnceCell<Ledger>,
    files: OnceCell<Arc<Files>>,
    index: OnceCell<IndexThread>,
    /// Rung when something was written here.
    news: Notify,
    llm: OnceLock<Option<scrubjay_llm::Client>>,
    flights: InFlightSummaries,
    /// Names this process, and the calls of a client that comes without a gateway.
    own_key: String,
    /// Shows other processes that this one lives, once it is in the ledger.
    presence: OnceLock<Claim>,
    /// The connections that called, until they close.
    callers: Mutex<HashSet<String>>,
    on_move: Arc<OnceLock<OnMove>>,
}

/// Hears that a connection is in another session than its tape names: by their ids.
type OnMove = Box<dyn Fn(&str, &str) + Send + Sync>;

/// What the gateway says of a caller.
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
    /// Prepares; nothing is opened yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut random = [0; 10];
        getrandom::fill(&mut random).expect("the system has a source of randomness");
        Self {
            setup,
            ledger: OnceCell::new(),
            files: OnceCell::new(),
            index: OnceCell::new(),
            news: Notify::new(),
            llm: OnceLock::new(),
            flights: InFlightSummaries::default(),
            own_key: TapeId::from_random(random).to_string(),
            presence: OnceLock::new(),
            callers: Mutex::default(),
            on_move: Arc::default(),
        }
    }

    /// Returns how the toolsets are set up.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the ledger, opened by whoever needs it first.
    ///
    /// # Errors
    /// It cannot be opened; the next call tries again.
    pub async fn ledger(&self) -> Result<&Ledger, LedgerError> {
        self.ledger.get_or_try_init(|| self.open_ledger()).await
    }

    async fn open_ledger(&self) -> Result<Ledger, LedgerError> {
        let ledger = Ledger::open(&self.setup.storage, self.setup.redactor.clone()).await?;
        let hear = self.on_move.clone();
        ledger.on_move(move |connection, session| {
            if let Some(hear) = hear.get() {
                hear(connection, session);
            }
        });
        match Claim::take(&self.setup.home.processes(), &self.own_key, "") {
            Ok(claim) => drop(claim.map(|claim| self.presence.set(claim))),
            // Then its sessions end when nothing was heard of them for long.
            Err(e) => tracing::warn!(error = %e, "cannot show other processes that this one lives"),
        }
        session::end_departed(&ledger, |process| self.setup.home.process(process)).await?;
        self.setup.home.forget_gone_processes();
        Ok(ledger)
    }

    /// Says who is to hear of connections that move to another session; once.
    pub fn on_move(&self, hear: impl Fn(&str, &str) + Send + Sync + 'static) {
        let _ = self.on_move.set(Box::new(hear));
    }

    /// Ends the sessions of clients whose process is gone, so that they hold no records any more.
    ///
    /// # Errors
    /// The ledger failed.
    pub(crate) async fn end_departed(&self) -> Result<(), LedgerError> {
        let ledger = self.ledger().await?;
        if session::end_departed(ledger, |process| self.setup.home.process(process)).await? > 0 {
            self.tell_news();
        }
        Ok(())
    }

    /// Notes that a connection closed: its session ends, where it was the last in it.
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
        // Whoever called nothing that needs the ledger has no session there.
        let Some(ledger) = self.ledger.get().filter(|_| !connections.is_empty()) else { return Ok(()) };
        let mut write = ledger.write(Survives::Power).await?;
        for connection in connections {
            session::leave(&mut write, connection, why).await?;
        }
        write.commit().await?;
        // Only now: what a closing process did not get to write is still here for `all_left`.
        self.callers().retain(|caller| !connections.contains(caller));
        self.tell_news();
        Ok(())
    }

    fn callers(&self) -> MutexGuard<'_, HashSet<String>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the files of the workspace; what a crash left open there is settled first.
    ///
    /// # Errors
    /// The workspace or the ledger cannot be opened; the next call tries again.
    pub async fn files(&self) -> Result<&Arc<Files>, FileError> {
        self.files.get_or_try_init(|| self.open_files()).await
    }

    async fn open_files(&self) -> Result<Arc<Files>, FileError> {
        let ledger = self.ledger().await?.clone();
        let workspace = Workspace::open(&self.setup.workspace).map_err(FileError::Workspace)?;
        let workspace = workspace.allow_vcs(self.setup.allow_vcs);
        let files = Files::new(ledger, workspace, self.setup.locks.clone(), self.setup.file_bytes_max);
        let caller = self.described(CallerMeta::default());
        self.recognise(&files, &caller).await;
        files.settle(&caller).await?;
        Ok(Arc::new(files))
    }

    /// Settles what a crash left open in the workspace, and recognises a workspace that moved here. For the start of a
    /// server and for readings: nobody waits for an answer, so what fails is only logged.
    pub async fn settle(&self) {
        if let Storage::File(path) = &self.setup.storage
            && !path.exists()
        {
            // Nothing was ever recorded; the first call makes the ledger.
            return;
        }
        let caller = self.described(CallerMeta::default());
        // Opened for the first time, it is settled.
        let settled = match self.files.get() {
            Some(files) => files.settle(&caller).await.map(|_| ()),
            None => self.files().await.map(|_| ()),
        };
        if let Err(e) = settled {
            tracing::warn!(error = %e, "file changes that a crash left open are not settled");
        }
    }

    /// Recognises the workspace of this project that is gone from where it was and whose files are here.
    async fn recognise(&self, files: &Files, caller: &Caller) {
        // A database of several machines cannot tell: there a directory of another machine is never here.
        if !matches!(self.setup.storage, Storage::File(_)) {
            return;
        }
        match files.recognise(caller).await {
            Ok(Some(from)) => tracing::info!(from, to = files.root(), "the workspace moved"),
            Ok(None) => {}
            Err(e) => tracing::warn!(error = %e, "it is not known whether the workspace moved"),
        }
    }

    /// Returns the index of the tapes, opened by whoever needs it first; it may be behind them.
    pub(crate) async fn index(&self) -> Result<&IndexThread, Failure> {
        self.index
            .get_or_try_init(|| IndexThread::open(self.setup.home.clone(), self.setup.storage.clone()))
            .await
    }

    /// Says that something was written.
    pub fn tell_news(&self) {
        self.news.notify_waiters();
    }

    /// Waits until something was written here, or for as long as other processes may go unnoticed.
    pub(crate) async fn wait_for_news(&self) {
        // Whichever comes first.
        let _ = tokio::time::timeout(UNNOTICED_MAX, self.news.notified()).await;
    }

    /// Returns the model, where there is one to ask.
    pub(crate) fn llm(&self) -> Option<&scrubjay_llm::Client> {
        let client = self.llm.get_or_init(|| {
            let client = scrubjay_llm::Client::new(self.setup.llm.clone()?);
            client.inspect_err(|e| tracing::error!("llm.base_url {e}")).ok()
        });
        client.as_ref()
    }

    /// Returns the questions to the model that are under way.
    pub(crate) fn flights(&self) -> &InFlightSummaries {
        &self.flights
    }

    /// Returns what names this process.
    pub(crate) fn own_key(&self) -> &str {
        &self.own_key
    }

    /// Tells who calls.
    #[must_use]
    pub fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let told = context.meta.get(meta::CALLER).cloned();
        self.described(told.and_then(|told| serde_json::from_value(told).ok()).unwrap_or_default())
    }

    /// Tells who calls, where the gateway says it outside a request.
    #[must_use]
    pub fn caller_told(&self, told: &serde_json::Value) -> Caller {
        self.described(CallerMeta::deserialize(told).unwrap_or_default())
    }

    fn described(&self, told: CallerMeta) -> Caller {
        if let Some(connection) = &told.connection {
            self.callers().insert(connection.clone());
        }
        let agent = told.client.and_then(|c| c.name.map(|name| (name, c.version)));
        let conversation = told.session.unwrap_or_else(|| self.own_key.clone());
        Caller {
            connection: told.connection.unwrap_or_else(|| conversation.clone()),
            conversation,
            host_session: told.host_session,
            process: Some(self.own_key.clone()),
            told_by: told.told_by.unwrap_or_else(|| "connection".to_owned()),
            agent: agent
                .map(|(name, version)| format!("{name} {}", version.unwrap_or_default()).trim().to_owned()),
            tape: told.tape.and_then(|id| id.parse().ok()),
            entry: told.entry,
            project: self.setup.project.clone(),
            workspace: Some(self.setup.workspace.to_string_lossy().into_owned()),
        }
    }
}
