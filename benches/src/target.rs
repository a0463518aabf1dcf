//! The targets: the server itself, and relays in front of it, each as a command line.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The relay between client and server, if any.
#[derive(Clone, Debug)]
pub enum Relay {
    /// No relay: the client talks to the server.
    Direct,
    /// Bytes copied, nothing else.
    Raw(PathBuf),
    /// `scrubjay wrap`, recording into the scratch directory.
    Scrubjay(PathBuf),
    /// `tee` on the server's output: recording without understanding, in one direction.
    Tee,
    /// `fastmcp run` with the server in its configuration file.
    FastMcp(PathBuf),
}

/// One target of the benchmark.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name in the report.
    pub name: String,
    /// The relay.
    pub relay: Relay,
    /// The server behind it.
    pub server: PathBuf,
}

impl Target {
    /// Returns whether the relay must pass the server's bytes unchanged.
    pub fn is_verbatim(&self) -> bool {
        !self.is_peer()
    }

    /// Returns whether this is a relay of another project.
    pub fn is_peer(&self) -> bool {
        matches!(self.relay, Relay::FastMcp(_))
    }

    /// Returns the command that starts the target with `scratch` as its only place to write.
    pub fn command(&self, scratch: &Scratch) -> io::Result<Command> {
        let server = self.server.as_os_str();
        let mut command = match &self.relay {
            Relay::Direct => Command::new(server),
            Relay::Raw(relay) => with_args(relay, [OsStr::new("--"), server]),
            Relay::Scrubjay(scrubjay) => {
                let data = scratch.record();
                let (wrap, name, bench) = (OsStr::new("wrap"), OsStr::new("--name"), OsStr::new("bench"));
                let end = OsStr::new("--");
                with_args(scrubjay, [OsStr::new("--data"), data.as_os_str(), wrap, name, bench, end, server])
            }
            Relay::Tee => {
                let file = scratch.record().join("tee.log");
                let script = OsStr::new("\"$0\" | tee \"$1\"");
                with_args(Path::new("sh"), [OsStr::new("-c"), script, server, file.as_os_str()])
            }
            Relay::FastMcp(fastmcp) => {
                let config = scratch.path().join("mcp.json");
                let server = crate::json::Json::text(self.server.to_string_lossy());
                let text = format!("{{\"mcpServers\":{{\"bench\":{{\"command\":{server},\"args\":[]}}}}}}");
                fs::write(&config, text)?;
                with_args(fastmcp, [OsStr::new("run"), config.as_os_str(), OsStr::new("--no-banner")])
            }
        };
        isolate(&mut command, scratch);
        Ok(command)
    }
}

/// Keeps the user's own configuration out of the benchmark.
pub fn isolate(command: &mut Command, scratch: &Scratch) {
    for (key, _) in std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("SCRUBJAY_")) {
        command.env_remove(key);
    }
    command.current_dir(scratch.path());
    command.env("XDG_CONFIG_HOME", scratch.path()).env("XDG_DATA_HOME", scratch.path());
}

fn with_args<const N: usize>(program: &Path, args: [&OsStr; N]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// A directory for one run of one target, removed with the recordings in it.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates an empty directory below `root`.
    pub fn new(root: &Path, name: &str) -> io::Result<Self> {
        // Each has a name of its own: the process that indexes recordings may still write to the one before.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let path = root.join(format!("{name}-{}", MADE.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(path.join("record"))?;
        Ok(Self { path })
    }

    /// Returns the directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory that recordings go to.
    pub fn record(&self) -> PathBuf {
        self.path.join("record")
    }

    /// Returns how many bytes were recorded.
    pub fn recorded_bytes(&self) -> io::Result<u64> {
        let mut sum = 0;
        let mut pending = vec![self.record()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    pending.push(entry.path());
                } else {
                    sum += metadata.len();
                }
            }
        }
        Ok(sum)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next run, which clears the root.
        let _ = fs::remove_dir_all(&self.path);
    }
}
