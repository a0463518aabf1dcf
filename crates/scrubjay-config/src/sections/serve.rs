//! `serve`: how the gateway listens, and what it serves.

mod auth_tokens;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use scrubjay_gateway::config::{ConnectionLimits, HttpConfig, Naming, ServeConfig};
use serde_json::{Value as Json, json};

use super::limits::GIB;
use crate::cursor::Cursor;
use crate::loaded::Loaded;
use crate::section::section;
use crate::setting::{Count, Setting, Size, Span, Token, choice, text_list};

section! {
    /// `serve`.
    Serve {
        http: Option<SocketAddr>;
        auth_token: Option<Token>;
        auth_token_file: Option<PathBuf>;
        allowed_hosts: Hosts = "[]";
        allowed_origins: Origins = "[]";
        max_body_size: Option<Size<1024, GIB>>;
        max_sessions: Count<1, 1_000_000> = "10000";
        session_idle: Span<1000> = "1h";
        disconnect_grace: Span<100> = "1m";
        max_connections: Count<8, 1_000_000> = "4096";
        header_timeout: Span<100> = "10s";
        body_timeout: Span<100> = "30s";
        idle_timeout: Span<100> = "5m";
        write_timeout: Span<100> = "1m";
        debug_port: Option<Count<0, 65_535>>;
        naming: Naming = "where-needed";
        project: Option<String>;
        reload: bool = "false";
        toolsets: Vec<Toolset> = "recorder,progress,records,tapes,router";
    }
}

choice!(Naming: "where-needed" = WhereNeeded, "always" = Always);

text_list!(
    /// Values of `Host`.
    Hosts,
    "a host name, with a port where it has one",
    |host| !host.is_empty() && !host.contains(['/', '@', ' '])
);

text_list!(
    /// Values of `Origin`.
    Origins,
    "an origin like https://app.example",
    |origin| {
        origin.split_once("://").is_some_and(|(s, h)| !s.is_empty() && !h.is_empty() && !h.contains('/'))
    }
);

/// A toolset of Scrubjay's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Toolset {
    /// Sessions, plans and file changes, recorded first and then done
    Recorder,
    /// What was done and how: logged, summarised, found again
    Progress,
    /// Design reasoning that outlives a conversation
    Records,
    /// What was recorded: searched and analysed
    Tapes,
    /// The tool for a task in plain words: found, or called
    Router,
    /// A few sample tools
    Sample,
}

impl Toolset {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorder => "recorder",
            Self::Progress => "progress",
            Self::Records => "records",
            Self::Tapes => "tapes",
            Self::Router => "router",
            Self::Sample => "sample",
        }
    }
}

impl Setting for Vec<Toolset> {
    fn read(at: &Cursor<'_>) -> Option<Self> {
        at.each(|name| {
            let wrong = "must be a toolset: recorder, progress, records, tapes, router or sample";
            Toolset::from_str(name, false).map_err(|_| wrong)
        })
    }

    fn json(&self) -> Json {
        json!(self.iter().map(|toolset| toolset.name()).collect::<Vec<_>>())
    }
}

impl Loaded {
    /// Returns what the gateway serves; the command sets the workspace. Reads the file of the token.
    ///
    /// # Errors
    /// The token is missing where one is needed, or given twice, or its file is not usable.
    pub fn serve_config(&self) -> anyhow::Result<ServeConfig> {
        let serve = &self.settings.serve;
        let http = serve.http.map(|address| self.http_config(address)).transpose()?;
        Ok(ServeConfig { backends: self.backends().to_vec(), naming: serve.naming, http, workspace: None })
    }

    fn http_config(&self, address: SocketAddr) -> anyhow::Result<HttpConfig> {
        let serve = &self.settings.serve;
        let auth_tokens = self.auth_tokens()?;
        if !address.ip().is_loopback() && auth_tokens.is_empty() {
            let message = "is open to other machines, and needs --auth-token-file, serve.auth_token or serve.auth_token_file";
            return Err(self.wrong("serve.http", message).into());
        }
        // A request is no longer than any message.
        let message_max = self.settings.limits.max_message_size.usize();
        Ok(HttpConfig {
            address,
            auth_tokens,
            allowed_hosts: serve.allowed_hosts.0.clone(),
            allowed_origins: serve.allowed_origins.0.clone(),
            body_bytes_max: serve.max_body_size.map_or(message_max, |size| size.usize().min(message_max)),
            sessions_max: serve.max_sessions.0,
            session_idle_max: serve.session_idle.0,
            disconnect_grace: serve.disconnect_grace.0,
            body_timeout: serve.body_timeout.0,
            connections: ConnectionLimits {
                connections_max: serve.max_connections.0,
                header_timeout: serve.header_timeout.0,
                idle_timeout: serve.idle_timeout.0,
                write_timeout: serve.write_timeout.0,
            },
        })
    }

    /// Returns the port of the debug endpoints, if they are wanted; 0 is any that is free.
    pub fn debug_port(&self) -> Option<u16> {
        let port = self.settings.serve.debug_port?.0;
        Some(u16::try_from(port).expect("the key's range ends at 65535"))
    }

    /// Returns the toolsets that are served unless `--toolsets` names others.
    pub fn toolsets(&self) -> &[Toolset] {
        &self.settings.serve.toolsets
    }

    /// Tells whether the configuration is reloaded when a file changes.
    pub fn reloads(&self) -> bool {
        self.settings.serve.reload
    }
}
