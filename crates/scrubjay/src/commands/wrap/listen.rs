//! `scrubjay wrap --listen`: one server for hosts that speak Streamable HTTP, in both eras.
//!
//! In front of a program it is a transparent gateway: each host with a session has a server process of its own, as it
//! would on standard streams; requests of the modern era have no sessions and share one. In front of an HTTP server it is
//! a recording proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use scrubjay_config::Loaded;
use scrubjay_core::entry::Transport;
use scrubjay_gateway::config::{BackendConfig, BackendLink, HttpConfig, InheritEnv, Naming};
use scrubjay_gateway::gateway::{Gateway, NewRecording, NewTape};
use scrubjay_gateway::{front, tree, warden};
use scrubjay_tape::format::header::SessionRef;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Backlog, Recording, Subject, gateway_run_id};

use super::{Settings, WrapArgs};
use crate::cli::Global;
use crate::commands::serve;

/// The most sessions at once. Each has a server process of its own, so this is less than a gateway accepts.
const PROCESSES_MAX: usize = 256;
/// How long servers get to exit by themselves at the end; after that they are killed.
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// Loads the configuration, and the flags about listening, which have precedence. It runs before anything starts, so that a
/// mistake is reported at once.
pub(super) fn config(
    global: &Global,
    args: &WrapArgs,
    address: SocketAddr,
) -> anyhow::Result<(Loaded, HttpConfig)> {
    let flags = serve::http_flags(Some(address), args.auth_token_file.as_deref());
    let loaded = global.load_with(flags)?;
    let http = loaded.serve_config()?.http.context("an address to listen on was given")?;
    Ok((loaded, http))
}

/// Serves until a signal asks this process to stop.
pub(super) async fn run(
    args: &WrapArgs,
    config: HttpConfig,
    home: Home,
    (settings, backlog): (Settings, Backlog),
    subject: Subject,
) -> anyhow::Result<()> {
    let (options, rules, name) = (settings.options, settings.rules.clone(), subject.name.clone());
    // A body is one message, so the limit of messages is that of bodies.
    let mut config = HttpConfig { body_bytes_max: options.message_bytes_max, ..config };
    let recordings = recordings(home, settings, subject, backlog);
    let remote = super::endpoint(args)?;
    // Each session takes several files: sockets, pipes of a server, a tape.
    warden::raise_open_files();
    let gateway = if remote.is_some() {
        // The proxy needs a gateway for tapes and rules, but no backend.
        Gateway::new(Naming::default(), recordings, options, None, |_, _| Vec::new())
    } else {
        config.sessions_max = config.sessions_max.min(PROCESSES_MAX);
        Gateway::transparent(program(args, &name)?, std::env::current_dir().ok(), options, recordings)
    };
    if let Some(rules) = &rules {
        gateway.rule_with(rules);
    }
    let listener = tokio::net::TcpListener::bind(config.address)
        .await
        .with_context(|| format!("cannot listen on {}", config.address))?;
    super::say(&format!("serving on http://{}/mcp", listener.local_addr()?));
    let until = warden::stopped()?;
    match remote {
        Some(remote) => front::http::serve_proxy(gateway, remote, &name, listener, config, until).await,
        None => front::http::serve(gateway, listener, config, until).await,
    }
    .context("the HTTP server failed")?;
    // The servers' input has ended. Those that do not exit are killed.
    tree::end_descendants(LEAVE_MAX, tree::GRACE).await;
    Ok(())
}

/// Describes the program that is started for each host.
fn program(args: &WrapArgs, name: &str) -> anyhow::Result<BackendConfig> {
    let words = args.command.iter().map(|word| word.to_str().map(str::to_owned));
    let words: Option<Vec<String>> = words.collect();
    let mut words = words.context("with --listen, the command must be UTF-8")?.into_iter();
    let command = words.next().context("no command to start is given")?;
    // Like any wrapped server, it gets the whole environment.
    let link = BackendLink::Stdio {
        command,
        args: words.collect(),
        env: Default::default(),
        inherit_env: InheritEnv::All,
    };
    Ok(BackendConfig {
        id: backend_id(name),
        display_name: Some(name.to_owned()),
        link,
        // No limit: the host has its own timeouts.
        call_timeout: Duration::MAX,
        is_shared: false,
        connections_max: BackendConfig::CONNECTIONS_MAX,
    })
}

/// Makes an id of a name, with only the characters that the configuration allows in ids.
fn backend_id(name: &str) -> String {
    name.chars().take(64).map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Makes the recordings. The tape of a host's session has the name that it would have without --listen.
fn recordings(home: Home, settings: Settings, subject: Subject, backlog: Backlog) -> NewRecording {
    let Settings { limits, redactor, policy, .. } = settings;
    let gateway = gateway_run_id();
    Box::new(move |NewTape { name: part, kind, client }| {
        let name = if part == "http" { subject.name.clone() } else { format!("{} ({part})", subject.name) };
        let session = client.map(SessionRef::of_connection);
        let subject = Subject {
            name,
            kind,
            gateway: gateway.clone(),
            transport: Transport::Http,
            session,
            origin: subject.origin.clone().of_listener(),
            ..subject.clone()
        };
        Recording::new(home.clone(), subject, limits, Arc::clone(&redactor))
            .with_policy(&policy)
            .with_backlog(&backlog)
    })
}
