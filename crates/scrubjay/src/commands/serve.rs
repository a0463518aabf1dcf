//! `scrubjay serve`: one gateway in front of many servers, and Scrubjay's own toolsets among them.

mod debug;
mod lessons;
mod plan_steps;
mod reload;
mod storage;
mod toolsets;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use scrubjay_config::{Flag, Loaded, Toolset};
use scrubjay_core::entry::Transport;
use scrubjay_core::redact::Redactor;
use scrubjay_gateway::backend::Backend;
use scrubjay_gateway::bridge::http::all_ended;
use scrubjay_gateway::config::{BackendConfig, BackendLink, InheritEnv, QuarantineModes, ServeConfig};
use scrubjay_gateway::front;
use scrubjay_gateway::gateway::{Gateway, NewRecording, NewTape, TakeOptions};
use scrubjay_gateway::profile_store::ProfileStore;
use scrubjay_gateway::{tree, warden};
use scrubjay_store::ledger::{Ledger, session};
use scrubjay_tape::format::header::{Origin, SessionRef};
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Backlog, Policy, Recording, RotationLimits, Subject, Watch, gateway_run_id};
use scrubjay_tools::Shared;

use self::debug::Debug;
use self::reload::ActiveConfig;
use super::index::background;
use super::wrap::origin;
use crate::cli::Global;
use crate::log;

/// How long a call to a backend named on the command line may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

/// How long to wait at the end for the ledger, and for backends on HTTP to end their sessions.
const GOODBYE_MAX: Duration = Duration::from_secs(3);
/// How long backends get to exit by themselves at the end; after that they are killed.
const LEAVE_MAX: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  scrubjay serve                   # the configured backends, on standard input and output
  scrubjay serve --http            # the same at http://127.0.0.1:7420/mcp
  scrubjay serve --toolsets recorder,tapes -- npx -y @modelcontextprotocol/server-everything";

/// Serve all backends behind one endpoint, and record them
///
/// Serves on standard input and output, or with --http on Streamable HTTP under /mcp, in both eras of the protocol.
/// Backends come from `backends` in the configuration, and COMMAND is one more.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Serve Streamable HTTP at this address instead of standard input and output
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:7420")]
    http: Option<SocketAddr>,
    /// A file with the token that clients must send; required if ADDR is not a loopback address
    #[arg(long, value_name = "FILE")]
    auth_token_file: Option<PathBuf>,
    /// Start backends in this directory [default: the working directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// The project that agents work on [default: the name of the workspace's repository]
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Serve these toolsets of Scrubjay's own, or none [default: recorder,progress,records,tapes,router]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = toolsets::parse)]
    toolsets: Option<Vec<Option<Toolset>>>,
    /// Offer debug endpoints (logs, messages, state) to this machine on this port; 0 chooses a free one
    #[arg(long, value_name = "PORT")]
    debug_port: Option<u16>,
    /// Reload the configuration when one of its files changes, not only on SIGHUP
    #[arg(long)]
    reload: bool,
    /// Start one more backend with this command
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(global: &Global, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let loaded = global.load_with(all_flags(args))?;
    let config = resolve(args, &loaded)?;
    // With `llm.required`, a missing key is reported before anything starts.
    loaded.llm_config()?;
    let redactor = loaded.redactor(Some(&loaded.home()?))?;
    let policy = loaded.policy()?;
    let runtime = super::runtime()?;
    match warden::role() {
        warden::Role::Warden => {
            let ended = runtime.block_on(warden::watch_over(true)).context("cannot start the gateway")?;
            if ended.was_killed {
                // A failure is only reported: the next start tries again, and the host gets the worker's exit code.
                if let Err(e) = clean_up(&loaded, redactor, &runtime) {
                    super::wrap::say(&format!("cannot end the sessions of a killed gateway: {e:#}"));
                }
            }
            background::start_at_end(global, &loaded);
            Ok(ExitCode::from(ended.exit_code))
        }
        warden::Role::Worker { warden } => {
            let _inside = runtime.enter();
            // Before the work begins: until a handler is set, a hangup ends the process.
            let hangups = reload::catch_hangups()?;
            warden::begin_work().context("cannot start the gateway")?;
            // Each client and each backend takes several files.
            warden::raise_open_files();
            let log = Arc::new(log::init(&loaded)?);
            let home = loaded.home()?;
            let starter = background::Starter::new(global, loaded.indexes_in_background());
            let sweep = super::wrap::sweep_in_background(&home, loaded.retention(), &starter)?;
            super::wrap::check_durability(loaded.relay(), &policy)?;
            super::wrap::warn_if_off(&policy);
            let watch = Watch::default();
            let debug = Arc::new(Debug::new(watch.clone(), home.clone(), redactor.clone(), log.clone()));
            let recordings = recordings(
                &config,
                home,
                origin(warden),
                loaded.limits(),
                (redactor, policy),
                (watch, starter.backlog()),
            );
            let active = Arc::new(ActiveConfig::new(global, args, loaded, log, debug.clone())?);
            let shared = active.shared.clone();
            let served = runtime.block_on(serve(config, active, hangups, recordings));
            // Whether it served or failed: the ends of sessions are in the ledger before anything else is ended.
            runtime.block_on(end_sessions(&shared));
            debug.end();
            // Waits until backends on HTTP were sent the end of their sessions.
            runtime.block_on(all_ended(GOODBYE_MAX));
            // The input of backends on standard streams has ended. Those that do not exit are killed.
            runtime.block_on(tree::end_descendants(LEAVE_MAX, tree::GRACE));
            let code = served?;
            // A panic there has been reported; tapes it did not reach are sealed at the next start.
            let _ = sweep.join();
            // Without waiting: threads that copy standard streams may block for ever.
            std::process::exit(code.into())
        }
    }
}

/// Seals the tapes of a killed worker and ends its sessions.
fn clean_up(
    loaded: &Loaded,
    redactor: Arc<Redactor>,
    runtime: &tokio::runtime::Runtime,
) -> anyhow::Result<()> {
    let home = loaded.home()?;
    super::wrap::sweep(&home);
    if home.processes().exists() {
        runtime.block_on(async {
            let ledger = Ledger::open(&loaded.storage()?, redactor).await?;
            session::end_departed(&ledger, |process| home.process(process)).await?;
            ledger.close().await;
            anyhow::Ok(())
        })?;
    }
    Ok(())
}

/// Returns the flags about listening as values of the configuration.
pub(super) fn http_flags(http: Option<SocketAddr>, auth_token_file: Option<&Path>) -> Vec<Flag> {
    let http = http.map(|address| Flag { name: "--http", key: "serve.http", value: address.to_string() });
    let token = auth_token_file.map(|path| Flag {
        name: "--auth-token-file",
        key: "serve.auth_token_file",
        value: path.display().to_string(),
    });
    http.into_iter().chain(token).collect()
}

/// Returns all flags as values of the configuration.
fn all_flags(args: &ServeArgs) -> Vec<Flag> {
    let flag = |name, key, value: String| Flag { name, key, value };
    let mut all = http_flags(args.http, args.auth_token_file.as_deref());
    all.extend(args.debug_port.map(|port| flag("--debug-port", "serve.debug_port", port.to_string())));
    all.extend(args.reload.then(|| flag("--reload", "serve.reload", true.to_string())));
    all
}

fn resolve(args: &ServeArgs, loaded: &Loaded) -> anyhow::Result<ServeConfig> {
    let mut config = loaded.serve_config()?;
    config.workspace.clone_from(&args.workspace);
    if let Some((program, arguments)) = args.command.split_first() {
        let stem =
            Path::new(program).file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        config.backends.push(BackendConfig {
            // With only the characters that the configuration allows in ids.
            id: stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect(),
            display_name: None,
            link: BackendLink::Stdio {
                command: program.clone(),
                args: arguments.to_vec(),
                env: Default::default(),
                inherit_env: InheritEnv::Basic,
            },
            call_timeout: CALL_TIMEOUT,
            is_shared: false,
            connections_max: BackendConfig::CONNECTIONS_MAX,
        });
    }
    // On standard streams this is not an error: a client may bring backends in its options.
    let serves_own = toolsets::chosen(args, loaded).iter().any(|toolset| *toolset != Toolset::Router);
    anyhow::ensure!(
        config.http.is_none() || !config.backends.is_empty() || serves_own,
        "there is nothing to serve: configure `backends`, give a backend's command after --, or choose toolsets with \
         --toolsets"
    );
    Ok(config)
}

async fn serve(
    config: ServeConfig,
    active: Arc<ActiveConfig>,
    hangups: tokio::signal::unix::Signal,
    new_recording: NewRecording,
) -> anyhow::Result<u8> {
    let (workspace, started) = (workspace(&config), &active.started);
    let toolsets = toolsets::mounts(&active.args, started, &active.shared);
    let options_taker = active.clone();
    // A client on standard streams is the process that started us, so it may start programs; a client on HTTP may not.
    let options: TakeOptions = match config.http {
        None => Box::new(move |options| options_taker.take_options(options)),
        Some(_) => Box::new(move |options| options_taker.refuse_options(options)),
    };
    let relay = started.relay();
    let gateway = Gateway::new(config.naming, new_recording, relay, Some(options), |events, recording| {
        let configured = config.backends.iter().map(|backend| {
            let tape = recording(NewTape::of_backend(&format!("backend {}", backend.id)));
            Backend::new(backend, workspace.clone(), tape, events.clone())
        });
        let own = toolsets.into_iter().map(|(name, mount)| {
            let tape = recording(NewTape::of_backend(&format!("toolset {name}")));
            Backend::mounted(name, mount, tape, events.clone())
        });
        configured.chain(own).collect()
    });
    if let Some(rules) = &started.rules() {
        gateway.rule_with(rules);
    }
    load_earlier_runs(&gateway, started)?;
    let routing = active.routing(started, started.llm_config()?);
    if routing.as_ref().is_some_and(|routing| routing.learns) {
        lessons::learn_in_background(&gateway, started.home()?);
    }
    gateway.route_with(routing);
    let shared = active.shared.clone();
    // Weak: the gateway owns the toolsets, and they would keep it alive.
    let weak_gateway = Arc::downgrade(&gateway);
    shared.on_move(move |connection, session| {
        if let Some(gateway) = weak_gateway.upgrade() {
            gateway.move_to_session(connection, session);
        }
    });
    gateway.on_leave(Box::new(move |connection, reason| {
        let (shared, reason) = (shared.clone(), reason.to_owned());
        tokio::spawn(async move {
            if let Err(e) = shared.client_left(&connection, &reason).await {
                tracing::error!(error = %e, "the end of a session is not in the ledger; the next start notes it");
            }
        });
    }));
    // Before the first greeting, whose instructions name a problem with the ledger.
    if toolsets::use_ledger(&active.args, started) {
        storage::check(&gateway, &active.shared).await;
    }
    if toolsets::chosen(&active.args, started).contains(&Toolset::Recorder) {
        // In a task, so that no greeting waits for it.
        let shared = active.shared.clone();
        tokio::spawn(async move { shared.settle().await });
    }
    active.debug.set_gateway(&gateway);
    active.debug.adopt(started);
    tokio::spawn(active.clone().follow_changes(Arc::downgrade(&gateway), hangups));
    match config.http {
        None => front::stdio::serve(gateway, "serve", warden::stopped()?)
            .await
            .context("cannot use the standard streams"),
        Some(http) => {
            let listener = tokio::net::TcpListener::bind(http.address)
                .await
                .with_context(|| format!("cannot listen on {}", http.address))?;
            let address = listener.local_addr()?;
            super::wrap::say(&format!("serving on http://{address}/mcp"));
            front::http::serve(gateway, listener, http, warden::stopped()?)
                .await
                .context("the HTTP server failed")?;
            Ok(0)
        }
    }
}

/// Loads into the gateway what earlier runs learned of backends: their lists and their definitions.
fn load_earlier_runs(gateway: &Gateway, started: &Loaded) -> anyhow::Result<()> {
    gateway.quarantine(started.quarantine());
    match started.definitions() {
        Ok(definitions) => gateway.remember_definitions(Arc::new(definitions)),
        // Without them a changed tool would not be noticed, so quarantine, which the user asked for, would not work.
        Err(e) if started.quarantine() != QuarantineModes::default() => return Err(e),
        Err(e) => {
            tracing::warn!(
                error = format!("{e:#}"),
                "tools that changed since the last run cannot be noticed"
            )
        }
    }
    match profile_store(started) {
        Ok(profile_store) => gateway.remember_in(&profile_store),
        // Without them only the first greeting is incomplete.
        Err(e) => {
            tracing::warn!(
                error = format!("{e:#}"),
                "the capabilities of backends in the last run are not known"
            )
        }
    }
    Ok(())
}

/// Records in the ledger that all clients left; gives up after `GOODBYE_MAX`.
async fn end_sessions(shared: &Shared) {
    match tokio::time::timeout(GOODBYE_MAX, shared.all_left("the host left")).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::error!(error = %e, "the end of a session is not in the ledger"),
        Err(_) => tracing::error!("the end of a session is not in the ledger: the database does not answer"),
    }
}

/// Opens the store of what backends offered in earlier runs.
fn profile_store(loaded: &Loaded) -> anyhow::Result<Arc<ProfileStore>> {
    let home = loaded.home()?;
    let key = home.hash_key().context("cannot read the key for hashes")?;
    Ok(Arc::new(ProfileStore::new(home.backends(), loaded.redactor(Some(&home))?, key)))
}

fn workspace(config: &ServeConfig) -> Option<PathBuf> {
    config.workspace.clone().or_else(|| std::env::current_dir().ok())
}

fn recordings(
    config: &ServeConfig,
    home: Home,
    origin: Origin,
    limits: RotationLimits,
    (redactor, policy): (Arc<Redactor>, Policy),
    (watch, backlog): (Watch, Backlog),
) -> NewRecording {
    let transport = if config.http.is_some() { Transport::Http } else { Transport::Stdio };
    let workspace = workspace(config).map(|w| w.to_string_lossy().into_owned());
    // On standard streams all messages belong to the conversation of the host. On HTTP each client has its own.
    let (origin, conversation) = match transport {
        Transport::Http => (origin.of_listener(), None),
        Transport::Stdio | Transport::Memory => {
            let conversation = super::wrap::conversation(&home, &origin, workspace.as_deref());
            (origin, Some(conversation))
        }
    };
    let gateway = gateway_run_id();
    Box::new(move |NewTape { name, kind, client }| {
        let subject = Subject {
            name: name.to_owned(),
            kind,
            gateway: gateway.clone(),
            transport,
            program: None,
            workspace: workspace.clone(),
            origin: origin.clone(),
            session: match (client, &conversation) {
                (_, Some(_)) => None,
                (Some(handle), None) => Some(SessionRef::of_connection(handle)),
                (None, None) => SessionRef::of_host(&origin, workspace.as_deref()),
            },
            conversation: conversation.clone(),
        };
        Recording::new(home.clone(), subject, limits, Arc::clone(&redactor))
            .with_policy(&policy)
            .with_watch(&watch)
            .with_backlog(&backlog)
    })
}
