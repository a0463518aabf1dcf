//! What the layers mean together: values that the rooms take.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use scrubjay_core::redact::Redactor;
use scrubjay_core::rules::Rules;
use scrubjay_gateway::budget::MemoryLimits;
use scrubjay_gateway::config::{BackendConfig, ConnectionLimits, HttpConfig, QuarantineModes, ServeConfig};
use scrubjay_gateway::definitions::Definitions;
use scrubjay_gateway::gateway::Consent;
use scrubjay_gateway::relay;
use scrubjay_llm::LlmConfig;
use scrubjay_router::Router;
use scrubjay_store::ledger::Storage;
use scrubjay_store::ledger::project::DEFAULT_PROJECT;
use scrubjay_tape::home::Home;
use scrubjay_tape::private::CheckDepth;
use scrubjay_tape::recording::{self, Policy};
use scrubjay_tools::Setup;

use super::auth_tokens;
use super::node::Origin;
use super::options::GatewayOptions;
use super::privacy;
use super::problem::{ConfigError, Problem};
use super::raw::{Given, RawConfig};
use super::recorder;
use super::setting::{self, Location, Shown};
use super::toolset::Toolset;
use super::{LogLevel, SourceFile};

/// A secret shorter than this would be found everywhere; the logs do not look for it.
const SECRET_CHARS_MIN: usize = 8;

/// The configuration as it stands. It may hold secrets: it has no `Debug`.
#[derive(Clone)]
pub struct Loaded {
    /// How much is logged.
    pub log_level: LogLevel,
    /// The backends, in the order in which they were written.
    pub backends: Vec<BackendConfig>,
    /// How a relay behaves: its message limit, and what it does when it cannot record.
    pub relay: relay::Options,
    /// When a tape is full.
    pub limits: recording::RotationLimits,
    /// What a person should be told.
    pub notices: Vec<String>,
    /// The files that were looked for.
    pub files: Vec<SourceFile>,
    raw: RawConfig,
    below: RawConfig,
    above: RawConfig,
    directory: PathBuf,
    default_data: Option<PathBuf>,
    tell: fn(&str),
}

impl Loaded {
    /// Puts layers together. Each is free of problems, and the lowest gives every value that is taken here.
    pub(crate) fn new(
        below: RawConfig,
        above: RawConfig,
        directory: &Path,
        default_data: Option<PathBuf>,
        tell: fn(&str),
        files: Vec<SourceFile>,
        mut notices: Vec<String>,
    ) -> Self {
        let raw = below.clone().under_layer(above.clone());
        notices.extend(body_size_notice(&raw));
        notices.extend(memory_notices(&raw));
        let storage = &raw.recorder.storage;
        Self {
            log_level: taken(raw.log_level.as_ref()),
            backends: raw.backends.as_ref().map(|given| given.value.list.clone()).unwrap_or_default(),
            relay: relay::Options {
                on_record_failure: taken(raw.on_record_failure.as_ref()),
                durability: taken(raw.durability.as_ref()),
                message_bytes_max: small(taken(raw.limits.max_message_size.as_ref()).0),
                memory: memory_limits(&raw),
            },
            limits: recording::RotationLimits {
                tape_bytes_max: taken(storage.max_tape_size.as_ref().or(raw.limits.max_tape_size.as_ref())).0,
                tape_duration_max: taken(
                    storage.max_tape_duration.as_ref().or(raw.limits.max_tape_duration.as_ref()),
                )
                .0,
            },
            notices,
            files,
            raw,
            below,
            above,
            directory: directory.to_owned(),
            default_data,
            tell,
        }
    }

    /// Puts a client's `initializationOptions` between the files and the environment.
    ///
    /// # Errors
    /// Some are wrong. The problems serialize as `{path, message}`: they are the data of the error -32602.
    pub fn with_options(&self, options: &serde_json::Value) -> Result<Self, Vec<Problem>> {
        let mut options = GatewayOptions::parse(options)?;
        let told = options.keep_warnings(self.log_level);
        let (below, above) = (self.below.clone().under_layer(options.layer), self.above.clone());
        let (files, data) = (self.files.clone(), self.default_data.clone());
        Ok(Self::new(below, above, &self.directory, data, self.tell, files, told.into_iter().collect()))
    }

    /// Tells whether it is reloaded when a file changes.
    pub fn reloads(&self) -> bool {
        taken(self.raw.serve.reload.as_ref())
    }

    /// Names the keys to which another configuration gives another value.
    pub fn differing_keys(&self, other: &Self) -> Vec<String> {
        let (mine, theirs) = (self.shown(), other.shown());
        let same = |a: &Shown, b: &Shown| a.key == b.key && a.value == b.value && a.hidden == b.hidden;
        let mut keys = Vec::new();
        for (some, others) in [(&mine, &theirs), (&theirs, &mine)] {
            let differing = some.iter().filter(|a| !others.iter().any(|b| same(a, b)));
            keys.extend(differing.map(|shown| shown.key.clone()));
        }
        let tokens = |loaded: &Self| auth_tokens::read(&loaded.raw.serve, &loaded.directory).ok();
        if tokens(self) != tokens(other) && self.raw.serve.auth_token_file.is_some() {
            keys.push("serve.auth_token_file".to_owned());
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns what a client that may change nothing must be refused of its options: what differs from this.
    pub fn refused_options(&self, options: &serde_json::Value) -> Vec<Problem> {
        match GatewayOptions::parse(options) {
            Ok(options) => options.changes_of(&self.raw),
            Err(problems) => problems,
        }
    }

    /// Returns the data directory.
    ///
    /// # Errors
    /// None is known.
    pub fn home(&self) -> anyhow::Result<Home> {
        home(self.raw.data(), &self.directory, self.default_data.as_deref(), self.tell)
    }

    /// Returns where the ledger is: a PostgreSQL database, or a file.
    ///
    /// # Errors
    /// No data directory is known.
    pub fn storage(&self) -> anyhow::Result<Storage> {
        let storage = self.named_storage()?;
        recorder::check_backend(&self.raw, &storage)?;
        Ok(storage)
    }

    fn named_storage(&self) -> anyhow::Result<Storage> {
        let Some(given) = &self.raw.storage else { return Ok(Storage::File(self.home()?.ledger())) };
        let text = given.value.0.as_str();
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Storage::Postgres(text.to_owned()));
        }
        let path = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")).unwrap_or(text);
        if let Some(wrong) = wrong_path(path, &given.origin) {
            let problem = Problem::new(&given.origin, "storage", wrong);
            return Err(ConfigError { problems: vec![problem] }.into());
        }
        Ok(Storage::File(std::path::absolute(self.directory.join(path))?))
    }

    /// Returns how the toolsets are set up for a workspace.
    ///
    /// # Errors
    /// No data directory is known.
    pub fn toolset_setup(&self, workspace: &Path, project: Option<&str>) -> anyhow::Result<Setup> {
        let given = self.raw.serve.project.as_ref().map(|given| given.value.0.as_str());
        let project = project.or(given).map_or_else(|| repository_name(workspace), str::to_owned);
        Ok(Setup {
            storage: self.storage()?,
            redactor: self.redactor(Some(&self.home()?))?,
            project,
            workspace: workspace.to_owned(),
            allow_vcs: taken(self.raw.files.allow_vcs.as_ref()),
            file_bytes_max: taken(self.raw.files.max_size.as_ref()).0,
            home: self.home()?,
            locks: self.home()?.locks(),
            llm: Some(self.llm_config()?),
            stale_after_ticks: i64::try_from(taken(self.raw.records.stale_after.as_ref()).0)
                .unwrap_or(i64::MAX),
        })
    }

    /// Returns the port of the debug endpoints, where they are wanted; 0 is any that is free.
    pub fn debug_port(&self) -> Option<u16> {
        let port = self.raw.serve.debug_port.as_ref()?.value.0;
        Some(u16::try_from(port).expect("the key's range ends at 65535"))
    }

    /// Returns which toolsets are served where nothing was typed.
    pub fn toolsets(&self) -> Vec<Toolset> {
        taken(self.raw.serve.toolsets.as_ref()).0
    }

    /// Returns what takes secrets out of recordings; a key for hashes is kept in the data directory.
    ///
    /// # Errors
    /// A key is missing or unusable.
    pub fn redactor(&self, home: Option<&Home>) -> anyhow::Result<Arc<Redactor>> {
        privacy::redactor(&self.raw.recorder.privacy, home)
    }

    /// Returns the key that encrypts under a name: of the configuration, else a variable's.
    ///
    /// # Errors
    /// There is none, or it cannot be used; why, in words that follow its name.
    pub fn redaction_key(&self, id: &str) -> Result<scrubjay_core::redact::Key, String> {
        privacy::key(&self.raw.recorder.privacy, id)
    }

    /// Returns which definitions of which backend are held back until a person approves them.
    pub fn quarantine(&self) -> QuarantineModes {
        let backends =
            self.raw.backends.as_ref().map(|given| given.value.quarantine.clone()).unwrap_or_default();
        QuarantineModes { all: taken(self.raw.quarantine.as_ref()), backends }
    }

    /// Returns where it is kept what backends said of their tools.
    ///
    /// # Errors
    /// No data directory is known, or a key is unusable.
    pub fn definitions(&self) -> anyhow::Result<Definitions> {
        let home = self.home()?;
        let key = home.hash_key().context("cannot read the key for hashes")?;
        Ok(Definitions::new(home.definitions(), self.redactor(Some(&home))?, key))
    }

    /// Returns the rules for messages on their way; none where nothing is to be done to any.
    pub fn rules(&self) -> Option<Arc<Rules>> {
        taken(self.raw.recorder.rules.as_ref()).in_force()
    }

    /// Returns what is recorded, and when it is written.
    ///
    /// # Errors
    /// What was asked for cannot be had together.
    pub fn policy(&self) -> anyhow::Result<Policy> {
        self.storage()?;
        Ok(recorder::policy(&self.raw)?)
    }

    /// Tells whether recorders start a process that keeps the index current.
    pub fn indexes_in_background(&self) -> bool {
        self.raw.index.background.as_ref().is_none_or(|given| given.value)
    }

    /// Returns how long tapes are kept after their end; `None` is for ever.
    pub fn retention(&self) -> Option<Duration> {
        recorder::retention(&self.raw)
    }

    /// Returns what the gateway serves; the workspace is the command's to say.
    ///
    /// Reads the file of the token.
    ///
    /// # Errors
    /// The token is missing where one is needed, or given twice, or its file is not usable.
    pub fn serve_config(&self) -> anyhow::Result<ServeConfig> {
        let serve = &self.raw.serve;
        let http = match &serve.http {
            Some(address) => {
                let auth_tokens = auth_tokens::read(serve, &self.directory)?;
                if !address.value.0.ip().is_loopback() && auth_tokens.is_empty() {
                    let message = "is open to other machines, and needs --auth-token-file, serve.auth_token or serve.auth_token_file";
                    let problem = Problem::new(&address.origin, "serve.http", message);
                    return Err(ConfigError { problems: vec![problem] }.into());
                }
                Some(HttpConfig {
                    address: address.value.0,
                    auth_tokens,
                    allowed_hosts: taken(serve.allowed_hosts.as_ref()).0,
                    allowed_origins: taken(serve.allowed_origins.as_ref()).0,
                    body_bytes_max: self.body_bytes_max(),
                    sessions_max: small(taken(serve.max_sessions.as_ref()).0),
                    session_idle_max: taken(serve.session_idle.as_ref()).0,
                    disconnect_grace: taken(serve.disconnect_grace.as_ref()).0,
                    body_timeout: taken(serve.body_timeout.as_ref()).0,
                    connections: ConnectionLimits {
                        connections_max: small(taken(serve.max_connections.as_ref()).0),
                        header_timeout: taken(serve.header_timeout.as_ref()).0,
                        idle_timeout: taken(serve.idle_timeout.as_ref()).0,
                        write_timeout: taken(serve.write_timeout.as_ref()).0,
                    },
                })
            }
            None => None,
        };
        let naming = taken(serve.naming.as_ref());
        Ok(ServeConfig { backends: self.backends.clone(), naming, http, workspace: None })
    }

    /// Returns how long a request over HTTP may be: no longer than any message.
    fn body_bytes_max(&self) -> usize {
        let message_max = self.relay.message_bytes_max;
        self.raw
            .serve
            .max_body_size
            .as_ref()
            .map_or(message_max, |given| small(given.value.0).min(message_max))
    }

    /// Returns what routes tasks and what needs a yes; none where no task is routed.
    pub fn router(&self) -> Option<(Arc<Router>, Consent)> {
        self.raw.router.resolve()
    }

    /// Tells whether the router learns from what was asked before.
    pub fn router_learns(&self) -> bool {
        taken(self.raw.router.learn.as_ref())
    }

    /// Returns how the model is reached.
    ///
    /// # Errors
    /// Its address or the key is of no use, or there is no key where one is required.
    pub fn llm_config(&self) -> Result<LlmConfig, ConfigError> {
        let llm = &self.raw.llm;
        let config = LlmConfig {
            api_key: llm.api_key.as_ref().map(|key| scrubjay_llm::Secret::new(key.value.0.reveal())),
            base_url: taken(llm.base_url.as_ref()).0,
            model: taken(llm.model.as_ref()).0,
            timeout: taken(llm.timeout.as_ref()).0,
            retries: u32::try_from(taken(llm.retries.as_ref()).0).expect("the key's range ends at 10"),
            concurrency: small(taken(llm.concurrency.as_ref()).0),
            required: taken(llm.required.as_ref()),
            allow_insecure: taken(llm.allow_insecure.as_ref()),
        };
        let problem = |origin: Option<&Origin>, key: &str, message: &str| {
            let origin = origin.unwrap_or(&Origin::Default);
            ConfigError { problems: vec![Problem::new(origin, key, message)] }
        };
        if let Err(wrong) = config.check() {
            let origin = llm.base_url.as_ref().map(|given| &given.origin);
            return Err(problem(origin, "llm.base_url", &wrong.to_string()));
        }
        if config.required && !config.is_usable() {
            let origin = llm.required.as_ref().map(|given| &given.origin);
            let message = "asks for a key, and there is none: set OPENAI_API_KEY or llm.api_key";
            return Err(problem(origin, "llm.required", message));
        }
        Ok(config)
    }

    /// Shows every key, its value and where that came from, secrets masked.
    pub fn shown(&self) -> Vec<Shown> {
        let mut shown = self.raw.shown();
        if let Some(data) = shown.iter_mut().find(|s| s.key == "data")
            && let Ok(home) = self.home()
        {
            data.value = home.root().to_string_lossy().into();
            // Where its other name gives it, it came from there.
            if let Some(given) = &self.raw.recorder.storage.path {
                data.origin = given.origin.to_string();
            }
        }
        shown
    }

    /// Returns every secret that the configuration holds, for the logs to hide.
    pub fn secrets(&self) -> Vec<String> {
        let hidden = self.raw.shown().into_iter().flat_map(|shown| shown.hidden);
        // A file that cannot be read holds nothing that could be logged.
        let tokens = auth_tokens::read(&self.raw.serve, &self.directory).unwrap_or_default();
        let all = hidden.chain(tokens.iter().map(|token| token.secret.reveal().to_owned()));
        let mut secrets: Vec<String> =
            all.filter(|secret| secret.chars().count() >= SECRET_CHARS_MIN).collect();
        secrets.sort_unstable();
        secrets.dedup();
        secrets
    }
}

/// Returns a value that the defaults give at least.
pub(crate) fn taken<T: Clone>(given: Option<&Given<T>>) -> T {
    given.expect("the defaults give every such value").value.clone()
}

fn small(number: u64) -> usize {
    usize::try_from(number).expect("the key's range ends below 2^31")
}

/// Says why a text is not the path of a database, and what to write instead.
fn wrong_path(path: &str, origin: &Origin) -> Option<String> {
    if let Some(rest) = path.strip_prefix("file:") {
        let path = rest.strip_prefix("//localhost").or_else(|| rest.strip_prefix("//")).unwrap_or(rest);
        return Some(format!(
            "must be a path, not a file: URL: write {}",
            if path.is_empty() { "/…" } else { path }
        ));
    }
    if let Some(wrong) = setting::with_tilde(path, origin) {
        return Some(wrong);
    }
    if path.is_empty() {
        return Some("names no file: write a path behind sqlite:".to_owned());
    }
    path.contains("://").then(|| "must be a path, or a URL that begins with postgres://".to_owned())
}

/// Names the project of a workspace: its repository, where it is in one.
fn repository_name(workspace: &Path) -> String {
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let repository = workspace.ancestors().find(|directory| directory.join(".git").exists());
    let name = repository.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| DEFAULT_PROJECT.to_owned())
}

/// Returns the data directory.
pub(crate) fn home(
    given: Option<&Given<Location>>,
    directory: &Path,
    default: Option<&Path>,
    tell: fn(&str),
) -> anyhow::Result<Home> {
    let root = given.map(|given| given.value.0.as_path()).or(default);
    let root = root.context("no home directory is known: name one with --data DIR")?;
    let home = Home::new(std::path::absolute(directory.join(root))?);
    // Whatever is read from it next, a list of trusted files among it, nobody else can have written.
    for mended in home.make_private(CheckDepth::Top)? {
        tell(&mended.to_string());
    }
    Ok(home)
}

/// Returns how much may be kept in memory: what was given or the usual, but room for messages in any case.
fn memory_limits(raw: &RawConfig) -> MemoryLimits {
    let message_max = small(taken(raw.limits.max_message_size.as_ref()).0);
    let usual = MemoryLimits::default();
    let given = |size: Option<u64>, usual| size.map_or(usual, small);
    let process = given(raw.limits.max_memory.as_ref().map(|g| g.value.0), usual.process_bytes_max);
    let session = given(raw.limits.max_session_memory.as_ref().map(|g| g.value.0), usual.session_bytes_max);
    MemoryLimits {
        process_bytes_max: process.max(message_max.saturating_mul(MemoryLimits::MESSAGES_MIN)),
        session_bytes_max: session.max(message_max.saturating_mul(MemoryLimits::SESSION_MESSAGES_MIN)),
    }
}

/// Says that a limit for memory is too low for the messages that are let in.
fn memory_notices(raw: &RawConfig) -> Vec<String> {
    let message_max = taken(raw.limits.max_message_size.as_ref()).0;
    let notice = |key: &str, given: Option<u64>, times: usize| {
        given.filter(|bytes| *bytes < message_max.saturating_mul(times as u64)).map(|_| {
            format!("{key} is less than {times} times limits.max_message_size, which is used instead: lower that one")
        })
    };
    let limits = &raw.limits;
    let process = limits.max_memory.as_ref().map(|g| g.value.0);
    let session = limits.max_session_memory.as_ref().map(|g| g.value.0);
    [
        notice("limits.max_memory", process, MemoryLimits::MESSAGES_MIN),
        notice("limits.max_session_memory", session, MemoryLimits::SESSION_MESSAGES_MIN),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Says that a limit for requests has no effect, where the one for messages is lower.
fn body_size_notice(raw: &RawConfig) -> Option<String> {
    let given = raw.serve.max_body_size.as_ref()?;
    let message_max = taken(raw.limits.max_message_size.as_ref()).0;
    (given.value.0 > message_max).then(|| {
        let what =
            "serve.max_body_size is larger than limits.max_message_size, which holds for every message";
        format!("{what}: raise that one instead")
    })
}
