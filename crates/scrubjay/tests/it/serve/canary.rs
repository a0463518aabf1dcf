//! A canary secret of every format, in every place where text enters Scrubjay: afterwards it is in no file and no log.
//!
//! The test searches everything that the run leaves: every byte of all files below the data directory (databases and
//! their logs included), every tape as our reader prints it, all exports and log lines, and the temporary directory.
//! The only exception is the content of files that an agent wrote, which must come back byte for byte.

mod backends;
mod ledger;
mod messages;
mod remote;

#[path = "../../../../scrubjay-core/src/redact/tests/canaries.rs"]
mod every_form;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use serde_json::{Value, json};

use every_form::Canary;

/// The places where a secret may enter; each is tried with all formats of secrets that fit there.
const PLACES: [&str; 74] = [
    "arguments of a call",
    "key of an argument",
    "result text",
    "structured result",
    "error message",
    "error data",
    "tool name",
    "tool or prompt name with the prefix of its backend",
    "tool description",
    "tool schema",
    "prompt name",
    "prompt arguments",
    "prompt result",
    "resource name",
    "resource URI",
    "resource contents",
    "resource blob",
    "server instructions",
    "server info",
    "server capabilities",
    "client info",
    "client capabilities",
    "_meta of a request",
    "_meta of a result",
    "progress message",
    "progress token",
    "log notification",
    "elicitation question",
    "elicitation answer",
    "sampling request",
    "sampling result",
    "roots",
    "completion argument",
    "completion values",
    "cancellation reason",
    "unknown method",
    "request id",
    "JSON within a string",
    "base64",
    "unicode escapes",
    "split by colours",
    "terminal hyperlink",
    "line that is not JSON",
    "batch",
    "message that is too long",
    "field with a telling name",
    "rule of the user",
    "tape name",
    "command line of a wrapped server",
    "environment of a wrapped server",
    "standard error of a wrapped server",
    "standard error of a backend",
    "standard error of a dying backend",
    "error about a dying backend",
    "environment of a backend",
    "command line of a backend",
    "id of a backend",
    "remembered greeting",
    "log lines at trace level",
    "debug endpoints",
    "address of an HTTP backend",
    "headers to an HTTP backend",
    "headers from an HTTP backend",
    "error body of an HTTP backend",
    "request headers of a client",
    "refused HTTP body",
    "unknown session id",
    "task for the router",
    "answer of the model",
    "error body of the model",
    "project",
    "session, plan, audit and progress",
    "records",
    "file paths",
];

/// A secret of a format that only a rule of the user describes.
const USERS_RULE: &str = "a rule of the user";

/// One run: its inputs, its outputs, and the places that it has tried.
struct CanaryRun {
    directory: tempfile::TempDir,
    canaries: Vec<Canary>,
    covered: BTreeSet<&'static str>,
    uses: usize,
    /// Output that must not contain a secret, by its source.
    outputs: Vec<(String, Vec<u8>)>,
}

impl CanaryRun {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is a temporary directory");
        for name in ["inputs", "tmp", "exports", "workspace"] {
            std::fs::create_dir(directory.path().join(name)).expect("the test can write in its directory");
        }
        let mut canaries = every_form::canaries();
        let needle = "canary-4829136650".to_owned();
        canaries.push(Canary { name: USERS_RULE, text: format!("see {needle} there"), needle });
        Self { directory, canaries, covered: BTreeSet::new(), uses: 0, outputs: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Notes that a place was tried with this many secrets.
    fn cover(&mut self, place: &'static str, uses: usize) {
        assert!(PLACES.contains(&place), "{place} is not in the table");
        self.covered.insert(place);
        self.uses += uses;
    }

    /// Returns the secrets that can be part of a name: no white space, slashes or quotes.
    fn words(&self) -> Vec<String> {
        let is_word = |text: &str| !text.contains(|c: char| c.is_whitespace() || "/\\\"'{}%?#&$".contains(c));
        self.canaries.iter().map(|canary| canary.text.clone()).filter(|text| is_word(text)).collect()
    }

    fn texts(&self) -> Vec<String> {
        self.canaries.iter().map(|canary| canary.text.clone()).collect()
    }

    /// Returns all secrets in one text, each on lines of its own.
    fn all_in_one(&self) -> String {
        self.texts().join("\n\n")
    }

    /// Returns these settings together with a rule of the user.
    fn settings(&self, more: &Value) -> Value {
        let mut settings = json!({
            "log_level": "trace",
            "recorder": { "privacy": { "rules": [
                { "name": "mine", "regex": "canary-[0-9]{6,}" }, { "name": "codename", "field": "codename" },
            ] } },
        });
        for (key, value) in more.as_object().expect("settings are an object") {
            settings[key] = value.clone();
        }
        settings
    }

    /// Prepares `scrubjay` with settings; its log goes to a file.
    fn command(&self, name: &str, settings: &Value) -> Command {
        let config = self.path("inputs").join(format!("{name}.json"));
        std::fs::write(&config, self.settings(settings).to_string())
            .expect("the test can write in its directory");
        let mut command = Command::new("sh");
        let log = self.path(&format!("{name}.log"));
        command.args(["-c", "exec \"$@\" 2>>\"$LOG\"", "sh", env!("CARGO_BIN_EXE_scrubjay"), "--config"]);
        command.arg(&config).arg("--data").arg(self.data()).env("LOG", log);
        command.env("TMPDIR", self.path("tmp")).env("HOME", self.directory.path());
        command.env("SCRUBJAY_LLM_RETRIES", "0").env(crate::harness::BACKGROUND_VARIABLE, "false");
        command
    }

    /// Runs a command to its end and keeps what it printed.
    fn look(&mut self, args: &[&str]) -> String {
        let mut command = self.command("looking", &json!({}));
        let output = command.args(args).output().expect("scrubjay starts");
        self.outputs.push((args.join(" "), output.stdout.clone()));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs every command that reads: index, lists, exports.
    fn look_at_everything(&mut self) {
        self.look(&["index", "rebuild"]);
        let listed: Value =
            serde_json::from_str(&self.look(&["--json", "tape", "ls", "--all"])).expect("a list");
        let ids: Vec<String> = listed
            .as_array()
            .expect("tapes")
            .iter()
            .filter_map(|tape| Some(tape["id"].as_str()?.to_owned()))
            .collect();
        assert!(ids.len() > 5, "there are tapes of every scene: {}", ids.len());
        for id in ids {
            self.look(&["tape", "show", &id, "--json"]);
            for format in ["jsonl", "html", "har"] {
                let file = self.path("exports").join(format!("{id}.{format}"));
                let output = self.look(&["tape", "export", &id, "--format", format]);
                std::fs::write(file, output).expect("the test can write in its directory");
            }
        }
        for args in [
            &["session", "ls", "--json"][..],
            &["record", "ls"],
            &["progress", "show"],
            &["tape", "search", "said"],
        ] {
            self.look(args);
        }
    }

    /// Returns which secrets were found, and where.
    fn search(&self) -> (usize, Vec<String>) {
        // Found by their first two bytes, so that one pass searches for all of them.
        let mut needles: HashMap<usize, Vec<(&str, Vec<u8>)>> = HashMap::new();
        let mut begins = vec![false; 1 << 16];
        for canary in &self.canaries {
            for needle in spelled(canary) {
                begins[pair(&needle)] = true;
                needles.entry(pair(&needle)).or_default().push((canary.name, needle));
            }
        }
        let (mut files, mut found) = (0, Vec::new());
        let mut look = |what: &str, bytes: &[u8]| {
            files += 1;
            let lower = bytes.to_ascii_lowercase();
            let mut here = BTreeSet::new();
            for (at, window) in lower.windows(2).enumerate().filter(|(_, window)| begins[pair(window)]) {
                let possible = &needles[&pair(window)];
                for (name, _) in possible.iter().filter(|(_, needle)| lower[at..].starts_with(needle)) {
                    if here.insert(*name) {
                        let near = &bytes[at.saturating_sub(80)..bytes.len().min(at + 60)];
                        found.push(format!("{name} in {what}: {}", String::from_utf8_lossy(near)));
                    }
                }
            }
        };
        for path in files_below(self.directory.path()) {
            let inside = path.strip_prefix(self.directory.path()).expect("it is below").to_owned();
            if inside.starts_with("inputs") || inside.starts_with("workspace") {
                continue;
            }
            look(&format!("the name {}", inside.display()), inside.as_os_str().as_encoded_bytes());
            look(&inside.display().to_string(), &std::fs::read(&path).unwrap_or_default());
        }
        for (what, bytes) in &self.outputs {
            look(what, bytes);
        }
        (files, found)
    }
}

/// Returns the forms in which a secret may be in a file, in small letters: plain, as words of the index, and in base64.
fn spelled(canary: &Canary) -> Vec<Vec<u8>> {
    let plain = canary.needle.to_ascii_lowercase().into_bytes();
    if canary.name == USERS_RULE {
        // User rules are not applied to base64, as docs/REDACTION.md says.
        return vec![plain];
    }
    // The part of the base64 text that does not depend on its offset in the data.
    let coded = (0..3).map(|before| {
        let digits = BASE64_STANDARD_NO_PAD.encode(format!("{}{}", &"xxx"[..before], canary.needle));
        let certain = (before + canary.needle.len()) * 8 / 6;
        digits.as_bytes()[[0, 2, 3][before]..certain].to_ascii_lowercase()
    });
    std::iter::once(plain).chain(coded).collect()
}

fn pair(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { all.extend(files_below(&path)) } else { all.push(path) }
    }
    all
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures are wanted")]
fn no_secret_reaches_a_file_from_any_place() {
    let mut run = CanaryRun::new();
    messages::pass(&mut run);
    backends::pass(&mut run);
    backends::pass_with_prefixes(&mut run);
    remote::pass(&mut run);
    ledger::pass(&mut run);
    let (_, before) = run.search();
    run.look_at_everything();
    let (files, mut found) = run.search();
    found.extend(before);
    eprintln!(
        "canaries: {} forms, {} places, {} uses, {files} files and outputs searched, {} found",
        run.canaries.len(),
        run.covered.len(),
        run.uses,
        found.len()
    );
    assert!(found.is_empty(), "{} leaks:\n{}", found.len(), found[..found.len().min(40)].join("\n"));
    let missing: Vec<_> = PLACES.iter().filter(|place| !run.covered.contains(*place)).collect();
    assert!(missing.is_empty(), "nothing was put in {missing:?}");
}
