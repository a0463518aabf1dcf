//! `scrubjay serve`: one gateway in front of many servers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use scrubjay_core::entry::Transport;
use scrubjay_gateway::backend::{Backend, Mount, Streams};
use scrubjay_gateway::config::{
    BackendConfig, BackendLink, HttpConfig, InheritEnv, Naming, Secret, ServeConfig,
};
use scrubjay_gateway::front;
use scrubjay_gateway::gateway::{Gateway, NewRecording};
use scrubjay_gateway::{tree, warden};
use scrubjay_store::home::Home;
use scrubjay_store::recording::{Limits, Recording, Subject};
use scrubjay_store::tape::header::Origin;
use tokio::signal::unix::{SignalKind, signal};

use super::wrap::origin;
use crate::cli::Global;

/// How much a client and a toolset of this process may be apart.
const DUPLEX_BYTES: usize = 256 * 1024;

/// How long backends get to leave by themselves at the end.
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// Serve all backends behind one endpoint, recording
///
/// On standard input and output, or with --http on Streamable HTTP at /mcp, in both eras of the protocol.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Serve Streamable HTTP here instead of standard input and output
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:7420")]
    http: Option<SocketAddr>,
    /// A file with the token clients must show; required off loopback
    #[arg(long, value_name = "FILE")]
    auth_token_file: Option<PathBuf>,
    /// Where backends start [default: the working directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Which of Scrubjay's own toolsets to serve
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    toolsets: Vec<Toolset>,
    /// One more backend: the command that starts it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Toolset {
    /// A few sample tools
    Sample,
}

pub(crate) fn run(global: &Global, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let config = resolve(args)?;
    let runtime = super::runtime()?;
    match warden::role() {
        warden::Role::Warden => {
            let code = runtime.block_on(warden::watch_over()).context("cannot start the gateway")?;
            Ok(ExitCode::from(code))
        }
        warden::Role::Worker { warden } => {
            warden::begin_work(warden).context("cannot start the gateway")?;
            let home = global.home()?;
            let sweep = super::wrap::sweep_beside(&home)?;
            let served = runtime.block_on(serve(config, args, home, origin(warden)));
            // Their input has ended; whoever does not leave by itself is made to.
            runtime.block_on(tree::end_descendants(LEAVE_MAX, tree::GRACE));
            served?;
            // A panic there has been reported; tapes it did not reach are sealed at the next start.
            let _ = sweep.join();
            // Leaves at once: threads that copy standard streams may never return.
            std::process::exit(0)
        }
    }
}

fn resolve(args: &ServeArgs) -> anyhow::Result<ServeConfig> {
    let mut backends = Vec::new();
    if let Some((program, arguments)) = args.command.split_first() {
        let name = Path::new(program).file_stem().map(|n| n.to_string_lossy().into_owned());
        backends.push(BackendConfig {
            id: name
                .unwrap_or_default()
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .collect(),
            display_name: None,
            link: BackendLink::Stdio {
                command: program.clone(),
                args: arguments.to_vec(),
                env: Default::default(),
                inherit_env: InheritEnv::Basic,
            },
            call_timeout: Duration::from_secs(300),
        });
    }
    anyhow::ensure!(
        !backends.is_empty() || !args.toolsets.is_empty(),
        "there is nothing to serve: name a backend's command after --, or toolsets with --toolsets"
    );
    let token = args.auth_token_file.as_deref().map(read_token).transpose()?;
    let http = args.http.map(|address| HttpConfig {
        address,
        auth_token: token,
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        body_bytes_max: 16 << 20,
        sessions_max: 10_000,
        session_idle_max: Duration::from_secs(1800),
    });
    if let Some(http) = &http {
        anyhow::ensure!(
            http.address.ip().is_loopback() || http.auth_token.is_some(),
            "{} can be reached from other machines: name a token's file with --auth-token-file, or listen on 127.0.0.1",
            http.address
        );
    }
    Ok(ServeConfig { backends, naming: Naming::default(), http, workspace: args.workspace.clone() })
}

fn read_token(path: &Path) -> anyhow::Result<Secret> {
    let token = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let token = token.trim().to_owned();
    anyhow::ensure!(token.len() >= 16, "{}: a token has at least 16 characters", path.display());
    Ok(Secret::new(token))
}

async fn serve(config: ServeConfig, args: &ServeArgs, home: Home, origin: Origin) -> anyhow::Result<()> {
    let transport = if config.http.is_some() { Transport::Http } else { Transport::Stdio };
    let workspace = config.workspace.clone().or_else(|| std::env::current_dir().ok());
    let new_recording = recordings(home, transport, workspace.as_deref(), origin);
    let toolsets = args.toolsets.clone();
    let gateway = Gateway::new(config.naming, new_recording, |events, recording| {
        let configured = config.backends.iter().map(|backend| {
            let tape = recording(&format!("backend {}", backend.id));
            Backend::new(backend, workspace.clone(), tape, events.clone())
        });
        let own = toolsets.iter().map(|toolset| {
            let (name, mount) = mount(*toolset);
            Backend::mounted(name, mount, recording(&format!("toolset {name}")), events.clone())
        });
        configured.chain(own).collect()
    });
    match config.http {
        None => front::stdio::serve(gateway, "serve").await.context("cannot use the standard streams"),
        Some(http) => {
            let listener = tokio::net::TcpListener::bind(http.address)
                .await
                .with_context(|| format!("cannot listen on {}", http.address))?;
            let address = listener.local_addr()?;
            super::wrap::say(&format!("serving on http://{address}/mcp"));
            front::http::serve(gateway, listener, http, stopped()?).await.context("the HTTP server failed")
        }
    }
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

fn recordings(home: Home, transport: Transport, workspace: Option<&Path>, origin: Origin) -> NewRecording {
    let workspace = workspace.map(|w| w.to_string_lossy().into_owned());
    Box::new(move |name| {
        let subject = Subject {
            name: name.to_owned(),
            transport,
            program: None,
            workspace: workspace.clone(),
            origin: origin.clone(),
        };
        Recording::new(home.clone(), subject, Limits::default())
    })
}

fn mount(toolset: Toolset) -> (&'static str, Mount) {
    match toolset {
        Toolset::Sample => (
            "sample",
            Arc::new(|| {
                mounted(|r, w| async { scrubjay_tools::serve_sample(r, w).await.map_err(Into::into) })
            }),
        ),
    }
}

type Half = (tokio::io::ReadHalf<tokio::io::DuplexStream>, tokio::io::WriteHalf<tokio::io::DuplexStream>);

/// Runs a toolset on one end of a duplex stream, and returns the other end.
fn mounted<F>(
    serve: impl FnOnce(
        tokio::io::ReadHalf<tokio::io::DuplexStream>,
        tokio::io::WriteHalf<tokio::io::DuplexStream>,
    ) -> F,
) -> Streams
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let (ours, theirs) = tokio::io::duplex(DUPLEX_BYTES);
    let (reader, writer): Half = tokio::io::split(theirs);
    let serving = serve(reader, writer);
    tokio::spawn(async move {
        if let Err(e) = serving.await {
            tracing::error!(error = %e, "a toolset ended");
        }
    });
    let (reader, writer) = tokio::io::split(ours);
    (Box::new(reader), Box::new(writer))
}
