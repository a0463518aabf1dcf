//! The active configuration, and its replacement while clients are served.
//!
//! A reload follows SIGHUP, or with `--reload` the change of a file. Files are read as at the start, under the same rules
//! of trust. A configuration with a problem is refused as a whole. Changed keys that need a restart are named in the log.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use scrubjay_config::{ConfigError, FileState, Loaded, Problem, Toolset};
use scrubjay_gateway::config::BackendConfig;
use scrubjay_gateway::gateway::{Gateway, Reload, RouteWith};
use scrubjay_gateway::warden;
use scrubjay_llm::LlmConfig;
use scrubjay_router::Router;
use scrubjay_tools::Shared;
use serde_json::{Value, json};
use tokio::signal::unix::Signal;

use super::debug::Debug;
use super::{ServeArgs, all_flags, plan_steps, resolve, toolsets, workspace};
use crate::cli::Global;
use crate::log::Log;

/// How often files are checked for changes with `--reload`. They are few and small, and a save takes effect at once for a
/// person.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// 128 + SIGHUP: the exit code by which shells report a process that a hangup ended.
const HUNG_UP: i32 = 129;
/// The keys that a reload can change; everything else needs a restart.
const RELOADABLE: [&str; 7] =
    ["quarantine", "backends", "recorder.rules", "router.", "serve.naming", "serve.reload", "log_level"];

/// The configuration in force.
pub(super) struct ActiveConfig {
    global: Global,
    pub(super) args: ServeArgs,
    pub(super) log: Arc<Log>,
    pub(super) debug: Arc<Debug>,
    pub(super) shared: Arc<Shared>,
    /// The configuration at the start, which keys that need a restart still follow.
    pub(super) started: Loaded,
    now: Mutex<CurrentConfig>,
}

struct CurrentConfig {
    /// From files, environment and flags.
    loaded: Loaded,
    /// The client's `initializationOptions`, if it sent any.
    options: Option<Value>,
    router: Option<Arc<Router>>,
}

impl ActiveConfig {
    pub(super) fn new(
        global: &Global,
        args: &ServeArgs,
        started: Loaded,
        log: Arc<Log>,
        debug: Arc<Debug>,
    ) -> anyhow::Result<Self> {
        let place =
            args.workspace.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_else(|| ".".into());
        let shared = toolsets::shared(args, &started, &place)?;
        let now = Mutex::new(CurrentConfig { loaded: started.clone(), options: None, router: None });
        Ok(Self { global: global.clone(), args: args.clone(), log, debug, shared, started, now })
    }

    /// Adopts the options that a client sends with `initialize`; returns the backends in them, or their problems.
    pub(super) fn take_options(&self, options: &str) -> Result<Vec<BackendConfig>, Value> {
        let value: Value = serde_json::from_str(options).unwrap_or_default();
        let mut now = self.now();
        let adopted = now.loaded.with_options(&value).map_err(problems_json)?;
        let model = adopted.llm_config().map_err(|e| problems_json(e.problems))?;
        if let Some(router) = &now.router {
            router.use_model(model);
        }
        now.options = Some(value);
        drop(now);
        self.log.adopt(&adopted);
        self.debug.adopt(&adopted);
        Ok(adopted.backends().to_vec())
    }

    /// Refuses options that would change anything, for clients that may not.
    pub(super) fn refuse_options(&self, options: &str) -> Result<Vec<BackendConfig>, Value> {
        let refused = self.now().loaded.refused_options(&serde_json::from_str(options).unwrap_or_default());
        if refused.is_empty() { Ok(Vec::new()) } else { Err(problems_json(refused)) }
    }

    /// Returns how tasks are routed by a configuration; none if they are not.
    pub(super) fn routing(&self, loaded: &Loaded, model: LlmConfig) -> Option<RouteWith> {
        let routing = loaded.router();
        self.now().router = routing.as_ref().map(|(router, _)| router.clone());
        let (router, consent) = routing?;
        router.use_model(model);
        let offers_tools = toolsets::chosen(&self.args, &self.started).contains(&Toolset::Router);
        let plan_recorder = plan_steps::recorder(self.shared.clone());
        Some(RouteWith { router, consent, learns: loaded.router_learns(), plan_recorder, offers_tools })
    }

    /// Reloads on SIGHUP, and on changes of files with `--reload`, until the gateway is gone.
    pub(super) async fn follow_changes(self: Arc<Self>, gateway: Weak<Gateway>, mut hangups: Signal) {
        let had_terminal = warden::has_terminal();
        let mut seen = self.watched_files();
        loop {
            let follows_files = self.now().loaded.reloads();
            tokio::select! {
                Some(()) = hangups.recv() => {
                    // The same signal asks for a reload, and says that the terminal was closed.
                    if had_terminal && !warden::has_terminal() {
                        return end_with_terminal(&gateway);
                    }
                }
                () = tokio::time::sleep(CHECK_EVERY), if follows_files => {
                    let found = self.watched_files();
                    if found.iter().zip(&seen).all(|(found, seen)| found.is_same_as(seen)) && found.len() == seen.len() {
                        continue;
                    }
                }
            }
            // Before the files are loaded, so that a change during the loading is noticed in the next round.
            seen = self.watched_files();
            let Some(gateway) = gateway.upgrade() else { return };
            let this = self.clone();
            // On a thread, because files may be slow. If it panics, the panic hook reports it, and nothing changes.
            let _ =
                tokio::task::spawn_blocking(move || this.load()).await.map(|read| self.apply(&gateway, read));
        }
    }

    /// Loads the configuration again, and checks all of it.
    fn load(&self) -> anyhow::Result<Loaded> {
        let loaded = self.global.load_with(all_flags(&self.args))?;
        let now = self.now();
        // Otherwise saving a trusted file would end all of its backends.
        if let Some((path, why)) = lost_trust(&now.loaded, &loaded) {
            anyhow::bail!("{} {why}: check it, then run `scrubjay trust`", path.display());
        }
        let options = now.options.clone();
        drop(now);
        let adopted = options.map(|options| loaded.with_options(&options)).transpose();
        let adopted = adopted.map_err(|problems| ConfigError { problems })?;
        adopted.as_ref().unwrap_or(&loaded).llm_config()?;
        // Checked even though these keys take effect only at the next start, which would fail.
        resolve(&self.args, &loaded)?;
        loaded.redactor(Some(&self.started.home()?))?;
        loaded.policy()?;
        Ok(loaded)
    }

    /// Puts a configuration into force, or logs why it cannot be.
    fn apply(&self, gateway: &Arc<Gateway>, read: anyhow::Result<Loaded>) {
        if let Err(error) = read.and_then(|loaded| self.adopt(gateway, loaded)) {
            let problems: Vec<String> = match error.downcast_ref::<ConfigError>() {
                Some(wrong) => wrong.problems.iter().map(ToString::to_string).collect(),
                None => vec![format!("{error:#}")],
            };
            tracing::error!(
                problems = problems.join("; "),
                "the configuration is not reloaded; the old one stays in force"
            );
            gateway.note_everywhere(&json!({ "event": "configuration_refused", "problems": problems }));
        }
    }

    fn adopt(&self, gateway: &Arc<Gateway>, loaded: Loaded) -> anyhow::Result<()> {
        let mut config = resolve(&self.args, &loaded)?;
        let options = self.now().options.clone();
        let adopted = match &options {
            Some(options) => loaded.with_options(options).map_err(|problems| ConfigError { problems })?,
            None => loaded.clone(),
        };
        let brought = options.iter().flat_map(|_| adopted.backends());
        for backend in brought {
            // A configured backend has precedence over a client's with the same id, as it had when the client connected.
            if config.backends.iter().all(|other| other.id != backend.id) {
                config.backends.push(backend.clone());
            }
        }
        let stays = self.stays(&loaded);
        let model = adopted.llm_config()?;
        self.log.adopt(&adopted);
        gateway.quarantine(loaded.quarantine());
        let reloaded = gateway.reload(Reload {
            workspace: workspace(&config),
            backends: config.backends,
            naming: config.naming,
            rules: loaded.rules(),
            routing: self.routing(&loaded, model),
        });
        self.now().loaded = loaded;
        self.debug.adopt(&adopted);
        let (added, changed, removed) =
            (reloaded.added.join(", "), reloaded.changed.join(", "), reloaded.removed.join(", "));
        tracing::info!(added, changed, removed, "the configuration was reloaded");
        if !stays.is_empty() {
            tracing::warn!(keys = stays.join(", "), "these changes take effect only after a restart");
        }
        gateway.note_everywhere(&json!({ "event": "configuration_reloaded", "added": reloaded.added,
            "changed": reloaded.changed, "removed": reloaded.removed, "stays": stays }));
        Ok(())
    }

    /// Names the changed keys that keep their value until a restart.
    fn stays(&self, loaded: &Loaded) -> Vec<String> {
        let is_taken = |key: &String| {
            RELOADABLE.iter().any(|taken| key.starts_with(taken))
                // Endpoints that do not run yet can be started at any time; those that run keep their port.
                || (key == "serve.debug_port" && self.started.debug_port().is_none())
        };
        // The router takes a new model at once; the toolsets keep the one that they started with.
        let named =
            |key: String| if key.starts_with("llm.") { format!("{key} (of the toolsets)") } else { key };
        let keys = self.started.differing_keys(loaded).into_iter().filter(|key| !is_taken(key));
        keys.map(named).collect()
    }

    /// Reads the state of every file that the configuration is made from.
    fn watched_files(&self) -> Vec<WatchedFile> {
        let mut paths: Vec<PathBuf> = self.now().loaded.files.iter().map(|file| file.path.clone()).collect();
        paths.extend(self.global.env_file().map(Into::into));
        paths.extend(self.global.trust_store().ok().map(|store| store.path()));
        paths.into_iter().map(WatchedFile::at).collect()
    }

    fn now(&self) -> std::sync::MutexGuard<'_, CurrentConfig> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file of the configuration at one moment.
struct WatchedFile {
    path: PathBuf,
    stamp: Option<(SystemTime, u64)>,
    content: Option<Vec<u8>>,
}

impl WatchedFile {
    fn at(path: PathBuf) -> Self {
        let stamp = std::fs::metadata(&path).and_then(|found| Ok((found.modified()?, found.len()))).ok();
        let content = std::fs::read(&path).ok();
        Self { path, stamp, content }
    }

    /// Tells whether the file is unchanged. A file with a new time and the same content is.
    fn is_same_as(&self, other: &Self) -> bool {
        self.path == other.path && (self.stamp == other.stamp || self.content == other.content)
    }
}

/// Finds a project file that was trusted and no longer is, and describes what it would lose.
///
/// While a person edits a trusted file it is not trusted. Until they run `scrubjay trust` again, the backends it started
/// keep running.
fn lost_trust<'a>(before: &Loaded, after: &'a Loaded) -> Option<(&'a PathBuf, String)> {
    after.files.iter().find_map(|file| {
        let was_read = before.files.iter().any(|old| old.path == file.path && old.state == FileState::Read);
        match &file.state {
            FileState::Untrusted { left_out } if was_read => {
                Some((&file.path, format!("sets {} and is not trusted as it is now", left_out.join(", "))))
            }
            FileState::Refused { why } if was_read => {
                Some((&file.path, format!("cannot be used now ({why})")))
            }
            _ => None,
        }
    })
}

/// Ends the gateway after its terminal was closed.
fn end_with_terminal(gateway: &Weak<Gateway>) {
    if let Some(gateway) = gateway.upgrade() {
        gateway.stopping();
        gateway.shut_down("the terminal was closed");
    }
    // The warden ends the processes that are left.
    std::process::exit(HUNG_UP)
}

/// Catches hangups from now on.
pub(super) fn catch_hangups() -> anyhow::Result<Signal> {
    let kind = tokio::signal::unix::SignalKind::hangup();
    tokio::signal::unix::signal(kind).context("cannot catch SIGHUP")
}

/// Converts the problems of a client's options to the data of the JSON-RPC error.
fn problems_json(problems: Vec<Problem>) -> Value {
    serde_json::to_value(problems).unwrap_or_default()
}
