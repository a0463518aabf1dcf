//! The gateway's configuration: its backends, how it names their tools, how it listens.
//!
//! Resolved values only. Where they come from (files, environment, flags, a client's options) is not known here.

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
    /// A name for people, in addition to the id.
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

/// How a backend is reached. Its `Debug` shows neither environment nor headers nor arguments: they may hold secrets.
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
        /// Which variables of this process it gets.
        inherit_env: InheritEnv,
    },
    /// An HTTP endpoint.
    Http {
        /// Its address.
        url: String,
        /// Headers that are sent with every request.
        headers: BTreeMap<String, String>,
        /// Whether it speaks the first HTTP transport, with one event stream. If not set, the first request finds out.
        sse: bool,
    },
}

impl BackendLink {
    /// Returns what identifies the server, for a keyed hash, never to be shown. Environment and headers are left out: a
    /// renewed token must not make it another server, whose definitions nobody has approved.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Stdio { command, args, .. } => format!("{command:?} {args:?}"),
            Self::Http { url, .. } => url.clone(),
        }
    }

    /// Describes the server for a person, without what may be secret: the options of a program; user, password and
    /// query of a URL.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::Stdio { command, args, .. } => {
                // From the first option on nothing is shown: its value may be the next argument.
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

    /// Returns all of it, secrets included, for a keyed hash, never to be shown.
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

/// Which environment variables of this process a backend gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InheritEnv {
    /// Those that any program needs, such as PATH, HOME and the locale.
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
    /// Those that differ from what was first seen of the backend, or from what was approved.
    Changed,
    /// All that nobody approved.
    New,
}

/// Which definitions of which backend are held back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuarantineModes {
    /// For backends that are not named below.
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

    /// Returns whether any definition can be held back.
    pub(crate) fn hold_any(&self) -> bool {
        self.all != Quarantine::Off || self.backends.values().any(|mode| *mode != Quarantine::Off)
    }
}

/// When a backend's name is put before its tools' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// If two backends have a tool of the same name.
    #[default]
    WhereNeeded,
    /// Always.
    Always,
}

/// How the HTTP front listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The tokens; a client must show one of them. Required off loopback.
    pub auth_tokens: Vec<AuthToken>,
    /// `Host` values that are answered besides loopback names and the bound address.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values that are answered besides loopback ones.
    pub allowed_origins: Vec<String>,
    /// The length of the longest request body.
    pub body_bytes_max: usize,
    /// How many sessions may be open at once.
    pub sessions_max: usize,
    /// A session without messages for this long is closed.
    pub session_idle_max: Duration,
    /// If each client has a server of its own: how long after its streams broke off a client counts as gone.
    pub disconnect_grace: Duration,
    /// The least time that a request body has to arrive; a long one has more.
    pub body_timeout: Duration,
    /// How many connections there may be, and how long each may idle or stall.
    pub connections: ConnectionLimits,
}

/// What the gateway serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeConfig {
    /// The backends.
    pub backends: Vec<BackendConfig>,
    /// How their tools are named.
    pub naming: Naming,
    /// The HTTP front; `None` for standard input and output.
    pub http: Option<HttpConfig>,
    /// The workspace, which is the working directory of backends.
    pub workspace: Option<PathBuf>,
}

/// A token that admits a client. Each token is a principal of its own: clients with different tokens are never one
/// client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthToken {
    /// The name that the user gave to it.
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
