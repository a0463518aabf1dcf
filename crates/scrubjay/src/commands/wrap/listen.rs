//! `scrubjay wrap --listen`: one server for hosts that speak Streamable HTTP, in both eras.
//!
//! A gateway with a single backend, whose names therefore stay as they are. All hosts share the one server.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use scrubjay_core::entry::Transport;
use scrubjay_gateway::backend::Backend;
use scrubjay_gateway::bridge::http::all_ended;
use scrubjay_gateway::config::{BackendConfig, BackendLink, HttpConfig, InheritEnv, Naming, Secret};
use scrubjay_gateway::front;
use scrubjay_gateway::gateway::{Gateway, NewRecording};
use scrubjay_store::home::Home;
use scrubjay_store::recording::{Limits, Recording, Subject};
use tokio::signal::unix::{SignalKind, signal};

use super::WrapArgs;

/// How long a call may take when it shows no progress.
const CALL_MAX: Duration = Duration::from_secs(300);
/// How long servers are waited for that must hear of the end.
const GOODBYE_MAX: Duration = Duration::from_secs(3);

/// Checks what can be checked before anything starts, and returns how to listen.
pub(super) fn config(args: &WrapArgs, address: SocketAddr) -> anyhow::Result<HttpConfig> {
    let auth_token = args.auth_token_file.as_deref().map(read_token).transpose()?;
    anyhow::ensure!(
        address.ip().is_loopback() || auth_token.is_some(),
        "{address} can be reached from other machines: name a token's file with --auth-token-file, or listen on 127.0.0.1"
    );
    Ok(HttpConfig {
        address,
        auth_token,
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        body_bytes_max: 16 << 20,
        sessions_max: 10_000,
        session_idle_max: Duration::from_secs(1800),
    })
}

fn read_token(path: &Path) -> anyhow::Result<Secret> {
    let token = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let token = token.trim().to_owned();
    anyhow::ensure!(token.len() >= 16, "{}: a token has at least 16 characters", path.display());
    Ok(Secret::new(token))
}

/// Serves until this process is told to stop.
pub(super) async fn serve(
    args: &WrapArgs,
    config: HttpConfig,
    home: Home,
    limits: Limits,
    subject: Subject,
) -> anyhow::Result<()> {
    let backend = BackendConfig {
        id: backend_id(&subject.name),
        display_name: Some(subject.name.clone()),
        link: link(args)?,
        call_timeout: CALL_MAX,
    };
    let gateway =
        Gateway::new(Naming::WhereNeeded, recordings(home, limits, subject), |events, recording| {
            vec![Backend::new(&backend, std::env::current_dir().ok(), recording("server"), events.clone())]
        });
    let listener = tokio::net::TcpListener::bind(config.address)
        .await
        .with_context(|| format!("cannot listen on {}", config.address))?;
    super::say(&format!("serving on http://{}/mcp", listener.local_addr()?));
    front::http::serve(gateway, listener, config, stopped()?).await.context("the HTTP server failed")?;
    all_ended(GOODBYE_MAX).await;
    Ok(())
}

fn link(args: &WrapArgs) -> anyhow::Result<BackendLink> {
    if let Some(url) = &args.url {
        let headers = super::headers(args)?;
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        return Ok(BackendLink::Http { url: url.clone(), headers });
    }
    let words = args.command.iter().map(|word| word.to_str().map(str::to_owned));
    let words: Option<Vec<String>> = words.collect();
    let mut words = words.context("with --listen, a command must be UTF-8")?.into_iter();
    let command = words.next().context("there is no command to start")?;
    // Like any wrapped server, it gets the environment as it is.
    Ok(BackendLink::Stdio {
        command,
        args: words.collect(),
        env: Default::default(),
        inherit_env: InheritEnv::All,
    })
}

fn backend_id(name: &str) -> String {
    name.chars().take(64).map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Names the tape of a host's session as it would be named without --listen.
fn recordings(home: Home, limits: Limits, subject: Subject) -> NewRecording {
    Box::new(move |part| {
        let name = if part == "http" { subject.name.clone() } else { format!("{} ({part})", subject.name) };
        let subject = Subject { name, transport: Transport::Http, ..subject.clone() };
        Recording::new(home.clone(), subject, limits)
    })
}

/// Is done when this process is told to stop.
fn stopped() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    })
}
