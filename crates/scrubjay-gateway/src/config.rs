//! The gateway's configuration: its backends, how it names their tools, how it listens.
//!
//! Resolved values only. Where they come from (files, environment, flags, a client's options) is the
//! binary's business.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::listener::ConnectionLimits;
pub use scrubjay_http::Secret;

/// A backend: an MCP server behind the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// Its id, `^[a-zA-Z0-9_-]{1,64}$`.
    pub id: String,
    /// What people read instead of the id.
    pub display_name: Option<String>,
    /// How to reach it.
    pub link: BackendLink,
    /// How long a call to it may take.
    pub call_timeout: Duration,
    /// Whether one legacy connection may serve all clients; otherwise each client has its own.
    pub is_shared: bool,
    /// How many clients may have a legacy connection to it at once.
    pub connections_max: usize,
}

impl BackendConfig {
    /// How many clients may have a legacy connection of their own: each may be a process of tens of megabytes.
    pub const CONNECTIONS_MAX: usize = 256;
}

/// How a backend is reached. What is in its environment and headers does not show.
#[derive(Clone, PartialEq, Eq)]
pub enum BackendLink {
    /// A program with pipes.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables set for it.
        env: BTreeMap<String, String>,
        /// Which of our own variables it gets.
        inherit_env: InheritEnv,
    },
    /// An HTTP endpoint.
    Http {
        /// Where.
        url: String,
        /// Sent with every request.
        headers: BTreeMap<String, String>,
        /// Whether it speaks the first HTTP transport, with one event stream; else that is found out.
        sse: bool,
    },
}

impl BackendLink {
    /// Spells out what is started or reached, and nothing of how: for a keyed hash, never to be shown. A token that is
    /// renewed makes no other server.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Stdio { command, args, .. } => format!("{command:?} {args:?}"),
            Self::Http { url, .. } => url.clone(),
        }
    }

    /// Describes what is started or reached to a person, without what may be secret: options, and what stands behind a
    /// name and a password or a question mark.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::Stdio { command, args, .. } => {
                let plain = args.iter().take_while(|arg| !arg.starts_with("--") && !arg.contains('='));
                let mut words: Vec<&str> = vec![command];
                words.extend(plain.map(String::as_str));
                if words.len() <= args.len() {
                    words.push("…");
                }
                words.join(" ")
            }
            Self::Http { url, .. } => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
                let rest = rest.split(['?', '#']).next().unwrap_or_default();
                let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
                let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
                format!("{scheme}://{host}/{path}")
            }
        }
    }

    /// Spells it out, secrets included: for a keyed hash, never to be shown.
    pub(crate) fn spelled(&self) -> String {
        match self {
            Self::Stdio { command, args, env, inherit_env } => {
                format!("{command:?} {args:?} {env:?} {inherit_env:?}")
            }
            Self::Http { url, headers, sse } => format!("{url:?} {headers:?} {sse:?}"),
        }
    }
}

impl std::fmt::Debug for BackendLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdio { command, .. } => {
                f.debug_struct("Stdio").field("command", command).finish_non_exhaustive()
            }
            Self::Http { .. } => f.debug_struct("Http").finish_non_exhaustive(),
        }
    }
}

/// Which of our own environment variables a backend gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InheritEnv {
    /// Those any program needs: PATH, HOME, locale and the like.
    #[default]
    Basic,
    /// Those and the named ones.
    Named(Vec<String>),
    /// All.
    All,
}

/// Which definitions of a backend are held back until a person approves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quarantine {
    /// None.
    #[default]
    Off,
    /// Those that are not what they were when the backend was first seen, or when they were approved.
    Changed,
    /// All that nobody approved.
    New,
}

/// Which definitions of which backend are held back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuarantineModes {
    /// Of any that is not named below.
    pub all: Quarantine,
    /// By a backend's id.
    pub backends: BTreeMap<String, Quarantine>,
}

impl QuarantineModes {
    /// Returns which definitions of a backend are held back.
    #[must_use]
    pub fn of(&self, backend: &str) -> Quarantine {
        self.backends.get(backend).copied().unwrap_or(self.all)
    }

    /// Tells whether any can be.
    pub(crate) fn hold_any(&self) -> bool {
        self.all != Quarantine::Off || self.backends.values().any(|mode| *mode != Quarantine::Off)
    }
}

/// When a backend's name is put before its tools' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// Where two backends would collide.
    #[default]
    WhereNeeded,
    /// Always.
    Always,
}

/// How the HTTP front listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Where.
    pub address: SocketAddr,
    /// The tokens; a client must show one of them. Required off loopback.
    pub auth_tokens: Vec<AuthToken>,
    /// `Host` values that are answered besides loopback names and the bound address.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values that are answered besides loopback ones.
    pub allowed_origins: Vec<String>,
    /// No request body may be longer.
    pub body_bytes_max: usize,
    /// No more sessions at once.
    pub sessions_max: usize,
    /// A session with no traffic for so long is closed.
    pub session_idle_max: Duration,
    /// Where each client has a server of its own, one whose streams broke off is taken to have left after this.
    pub disconnect_grace: Duration,
    /// A body must come at a steady pace; this is the least time it has.
    pub body_timeout: Duration,
    /// How many connections there may be, and how long each may dawdle.
    pub connections: ConnectionLimits,
}

/// What the gateway serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeConfig {
    /// The backends.
    pub backends: Vec<BackendConfig>,
    /// How their tools are named.
    pub naming: Naming,
    /// The HTTP front, where there is one; otherwise standard input and output.
    pub http: Option<HttpConfig>,
    /// The workspace: where backends start.
    pub workspace: Option<PathBuf>,
}

/// A token that lets a client in. Who shows it is a principal of its own: clients of different tokens are never one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthToken {
    /// Whose it is, where the user gave it a name.
    pub name: Option<String>,
    /// The token itself.
    pub secret: Secret,
}

impl HttpConfig {
    /// Returns whether clients are identified by their tokens: each has its own, or one that bears its name.
    pub(crate) fn tells_by_token(&self) -> bool {
        self.auth_tokens.len() > 1 || self.auth_tokens.iter().any(|token| token.name.is_some())
    }
}
