//! A data directory for one test, read with the command line as a user would.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use tempfile::TempDir;

use super::running::Running;
use super::wrapped::Wrap;
use super::{BACKGROUND_VARIABLE, SCRUBJAY};

pub(crate) const UP: &str = "client_to_server";
pub(crate) const DOWN: &str = "server_to_client";

/// A scratch directory with a data directory in it.
pub(crate) struct Lab {
    scratch: TempDir,
    data: PathBuf,
}

/// The output of a command, and how it ended.
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// A tape, read from its export.
#[derive(Debug, PartialEq)]
pub(crate) struct ExportedTape {
    pub(crate) header: Value,
    pub(crate) entries: Vec<Entry>,
}

/// One entry of a tape.
#[derive(Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) json: Value,
    pub(crate) payload: Vec<u8>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let scratch = tempfile::Builder::new().prefix("scrubjay-it-").tempdir().expect("/tmp is writable");
        let data = scratch.path().join("data");
        Self { scratch, data }
    }

    /// Keeps its recordings elsewhere.
    pub(crate) fn with_data(mut self, data: PathBuf) -> Self {
        self.data = data;
        self
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Names a scratch file.
    pub(crate) fn file(&self, name: &str) -> String {
        self.scratch.path().join(name).to_str().expect("paths here are UTF-8").to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).unwrap_or_default()
    }

    /// Prepares to record a server.
    pub(crate) fn wrap(&self, command: &[&str]) -> Wrap {
        Wrap::new(&self.data, command)
    }

    /// Prepares to record the sample server.
    pub(crate) fn wrap_sample(&self) -> Wrap {
        self.wrap(&[SCRUBJAY, "sample-server"])
    }

    /// Prepares to record the sample server, with what it receives kept in a scratch file.
    pub(crate) fn wrap_logged_sample(&self, log: &str) -> Wrap {
        self.wrap(&["sh", "-c", "tee \"$0\" | \"$1\" sample-server", &self.file(log), SCRUBJAY])
    }

    /// Records some lines to `cat` and back, and returns the tape's id.
    pub(crate) fn record(&self, name: &str, lines: &[u8]) -> String {
        let earlier = self.tape_ids();
        let mut wrapped = self.wrap(&["cat"]).with(&["--name", name]).start();
        wrapped.send(lines);
        assert_eq!(wrapped.leave(), 0);
        let fresh = &self.tape_ids() - &earlier;
        fresh.into_iter().next().expect("the connection had messages")
    }

    /// Starts a command.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(SCRUBJAY);
        command.arg("--data").arg(&self.data).args(arguments).env_remove("SCRUBJAY_DATA");
        // Files that a command keeps in the temporary directory are removed with the lab.
        command.env("TMPDIR", self.scratch.path());
        command.env(BACKGROUND_VARIABLE, "false");
        Running::start(&mut command)
    }

    /// Runs a command to its end, with nothing to read.
    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut running = self.start(arguments);
        running.close_stdin();
        let code = running.exit_code();
        CommandOutput { code, stdout: running.rest(), stderr: running.stderr_text() }
    }

    /// Runs a command that must succeed and print nothing on standard error.
    pub(crate) fn run_ok(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run(arguments);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{arguments:?}");
        output.stdout
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run_ok(arguments);
        serde_json::from_slice(&output).unwrap_or_else(|e| panic!("{arguments:?}: {e}"))
    }

    /// Lists all tapes, newest first.
    pub(crate) fn tapes(&self) -> Vec<Value> {
        let listed = self.json(&["tape", "ls", "--all", "--limit", "10000", "--json"]);
        listed.as_array().expect("a list").clone()
    }

    /// Returns the ids of all tapes from the names of their files, because reading many tapes takes long.
    pub(crate) fn tape_ids(&self) -> BTreeSet<String> {
        let names = std::fs::read_dir(self.data.join("tapes")).into_iter().flatten();
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names
            .filter_map(|name| {
                Some(
                    name.strip_suffix(".live").or(name.strip_suffix(".tape"))?.rsplit_once('-')?.1.to_owned(),
                )
            })
            .collect()
    }

    /// Returns the only tape.
    pub(crate) fn only_tape(&self) -> ExportedTape {
        let tapes = self.tapes();
        assert_eq!(tapes.len(), 1, "{tapes:?}");
        self.export(text(&tapes[0]["id"]))
    }

    pub(crate) fn export(&self, id: &str) -> ExportedTape {
        let exported = self.run_ok(&["tape", "export", id, "--format", "jsonl"]);
        ExportedTape::parse(&exported)
    }

    /// Runs `tape verify` on every tape; all must be undamaged.
    pub(crate) fn verify(&self) -> Vec<Value> {
        let checked = self.json(&["tape", "verify", "--json"]);
        let checked = checked.as_array().expect("a list").clone();
        assert!(checked.iter().all(|one| one["sound"] == true), "{checked:?}");
        checked
    }

    /// Starts and ends a recorder without messages, which seals the tapes that a crash left.
    pub(crate) fn start_again(&self) {
        let wrapped = self.wrap(&["true"]).start();
        assert_eq!(wrapped.leave(), 0);
    }

    /// Runs a command that must fail, and returns its standard error.
    pub(crate) fn run_failing(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(
            (output.code, output.stdout.as_slice()),
            (1, &b""[..]),
            "{arguments:?}: {}",
            output.stderr
        );
        assert!(!output.stderr.contains("panicked"), "{arguments:?}: {}", output.stderr);
        output.stderr
    }
}

impl ExportedTape {
    pub(crate) fn parse(exported: &[u8]) -> Self {
        let mut lines = exported.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let value: Value = serde_json::from_slice(line).expect("an exported line is JSON");
            value
        });
        let header = lines.next().expect("an export begins with its tape")["tape"].clone();
        Self { header, entries: lines.map(Entry::new).collect() }
    }

    pub(crate) fn id(&self) -> String {
        text(&self.header["id"]).to_owned()
    }

    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.json["kind"] == kind)
    }

    pub(crate) fn messages<'a>(&'a self, direction: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.of_kind("message").filter(move |entry| entry.json["direction"] == direction)
    }

    /// Returns the bytes of one direction as they were on the wire.
    pub(crate) fn wire(&self, direction: &str) -> Vec<u8> {
        self.messages(direction).flat_map(Entry::on_wire).collect()
    }
}

impl Entry {
    fn new(json: Value) -> Self {
        let payload = match (json["raw"].as_str(), json["raw_base64"].as_str()) {
            (Some(raw), None) => raw.as_bytes().to_vec(),
            (None, Some(coded)) => BASE64_STANDARD.decode(coded).expect("base 64"),
            both => panic!("an entry has either raw or raw_base64: {both:?}"),
        };
        Self { json, payload }
    }

    fn on_wire(&self) -> Vec<u8> {
        let ending: &[u8] = match text(&self.json["terminator"]) {
            "lf" => b"\n",
            "crlf" => b"\r\n",
            "eof" => b"",
            other => panic!("an unknown terminator {other}"),
        };
        [&self.payload, ending].concat()
    }

    /// Returns the payload of an entry that is not a message.
    pub(crate) fn facts(&self) -> Value {
        serde_json::from_slice(&self.payload).expect("facts are JSON")
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}
