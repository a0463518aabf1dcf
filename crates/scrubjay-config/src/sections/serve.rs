//! `serve`: how the gateway listens, and what it serves.

mod auth_tokens;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use scrubjay_gateway::config::{ConnectionLimits, HttpConfig, Naming, Secret, ServeConfig};

use super::limits::GIB;
use crate::loaded::Loaded;
use crate::section::section;
use crate::setting::{Choice, Count, List, ListItem, Size, Span, WrongValue, choice};

section! {
    /// `serve`.
    struct Serve {
        http: Option<SocketAddr>;
        auth_token: Option<Secret>;
        auth_token_file: Option<PathBuf>;
        allowed_hosts: List<Host> = "[]";
        allowed_origins: List<WebOrigin> = "[]";
        max_body_size: Option<Size<1024, GIB, usize>>;
        max_sessions: Count<1, 1_000_000> = "10000";
        session_idle: Span<1000> = "1h";
        disconnect_grace: Span<100> = "1m";
        max_connections: Count<8, 1_000_000> = "4096";
        header_timeout: Span<100> = "10s";
        body_timeout: Span<100> = "30s";
        idle_timeout: Span<100> = "5m";
        write_timeout: Span<100> = "1m";
        debug_port: Option<Count<0, 65_535, u16>>;
        naming: Naming = "where-needed";
        project: Option<String>;
        reload: bool = "false";
        toolsets: Vec<Toolset> = "recorder,progress,records,tapes,router";
    }
}

choice!(Naming: "where-needed" = WhereNeeded, "always" = Always);

/// A value of `Host`.
pub(crate) struct Host;

impl ListItem for Host {
    type Value = String;

    fn read(host: &str) -> Result<String, WrongValue> {
        let is_host = !host.is_empty() && !host.contains(['/', '@', ' ']);
        if is_host {
            Ok(host.to_owned())
        } else {
            Err("must be a host name, with a port where it has one".into())
        }
    }
}

/// A value of `Origin`.
pub(crate) struct WebOrigin;

impl ListItem for WebOrigin {
    type Value = String;

    fn read(origin: &str) -> Result<String, WrongValue> {
        match origin.split_once("://") {
            Some((scheme, host)) if !scheme.is_empty() && !host.is_empty() && !host.contains('/') => {
                Ok(origin.to_owned())
            }
            _ => Err("must be an origin like https://app.example".into()),
        }
    }
}

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
        Choice::name(self)
    }
}

choice!(Toolset, "a toolset: ": "recorder" = Recorder, "progress" = Progress, "records" = Records, "tapes" = Tapes,
    "router" = Router, "sample" = Sample);

impl Loaded {
    /// Returns what the gateway serves; the command sets the workspace. Reads the file of tokens.
    ///
    /// # Errors
    /// A token is required and missing, or set in both ways, or its file cannot be used.
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
        // One limit holds for a message on every transport; a request may only have a lower one.
        let message_max = self.settings.limits.max_message_size;
        Ok(HttpConfig {
            address,
            auth_tokens,
            allowed_hosts: serve.allowed_hosts.clone(),
            allowed_origins: serve.allowed_origins.clone(),
            body_bytes_max: serve.max_body_size.map_or(message_max, |size| size.min(message_max)),
            sessions_max: serve.max_sessions,
            session_idle_max: serve.session_idle,
            disconnect_grace: serve.disconnect_grace,
            body_timeout: serve.body_timeout,
            connections: ConnectionLimits {
                connections_max: serve.max_connections,
                header_timeout: serve.header_timeout,
                idle_timeout: serve.idle_timeout,
                write_timeout: serve.write_timeout,
            },
        })
    }

    /// Returns the port of the debug endpoints, if they are enabled; 0 is any free port.
    pub fn debug_port(&self) -> Option<u16> {
        self.settings.serve.debug_port
    }

    /// Returns the toolsets to serve, unless `--toolsets` names others.
    pub fn toolsets(&self) -> &[Toolset] {
        &self.settings.serve.toolsets
    }

    /// Tells whether the configuration is reloaded when a file changes.
    pub fn reloads(&self) -> bool {
        self.settings.serve.reload
    }
}
