//! Real hosts and real servers, talking through `scrubjay wrap` and talking directly.
//!
//! Each conversation runs twice: host → tap a → server, and host → tap a → wrap → tap b → server.
//! The relay must forward every byte, the tape must hold every message, and the host must
//! have the same conversation either way. Needs `scripts/install-peers` and `SCRUBJAY_PEERS`,
//! the path of `tests/peers`.

mod rig;
mod tape;
mod transcript;

use rig::{Host, Peers, Route, Run, Server};
use transcript::{Era, assert_same_bytes, assert_same_lines, era, lines};

/// How often a conversation is repeated because a host's own timer changed its course.
const ATTEMPTS_MAX: u32 = 3;

/// Runs one conversation directly and through wrap, and proves that wrap made no difference.
fn prove(name: &str, host: Host, server: Server, expected: Era) {
    let peers = Peers::find();
    for attempt in 1..=ATTEMPTS_MAX {
        let name = format!("{name}-{attempt}");
        let direct = peers.run(&name, host, server, Route::Direct);
        let wrapped = peers.run(&name, host, server, Route::Wrapped);
        relay_is_transparent(&wrapped);
        tape::tape_matches(&wrapped);
        let eras = (era(&direct.tap("a.in")), era(&wrapped.tap("a.in")));
        if eras == (expected, expected) {
            return same_conversation(&direct, &wrapped, host, server);
        }
        // Claude Code waits 3 s for the answer to its probe and then falls back, so on a busy machine its
        // conversation may take another course, with wrap or without. Any other host is always the same.
        assert!(host.gives_up_on_a_slow_probe(), "{name}: expected {expected:?}, saw {eras:?}");
    }
    panic!("{name}: never {expected:?} on both routes in {ATTEMPTS_MAX} attempts");
}

/// Runs one conversation with rules in force: the same values pass, and nothing is refused.
fn prove_ruled(name: &str, host: Host, server: Server) {
    let peers = Peers::find();
    let run = peers.run(name, host, server, Route::Ruled);
    for (one, other) in [("a.in", "b.in"), ("b.out", "a.out")] {
        let values = |tap: &str| -> Vec<serde_json::Value> {
            lines(&run.tap(tap)).iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
        };
        assert_eq!(values(one), values(other), "{name}: {one} and {other}");
    }
    tape::nothing_was_refused(&run);
}

/// What entered wrap on one side left it on the other: the same bytes, all of them, both ways.
fn relay_is_transparent(wrapped: &Run) {
    assert_same_bytes("client to server", &wrapped.tap("a.in"), &wrapped.tap("b.in"));
    assert_same_bytes("server to client", &wrapped.tap("b.out"), &wrapped.tap("a.out"));
}

/// The host sent, received and reported the same on both routes.
fn same_conversation(direct: &Run, wrapped: &Run, host: Host, server: Server) {
    let [was, is] = [direct, wrapped].map(|run| {
        let masked = transcript::mask(lines(&run.tap("a.in")), lines(&run.tap("a.out")), server);
        (masked, lines(&run.host_view(host)))
    });
    assert_same_lines("messages of the client, direct and wrapped", &was.0.client, &is.0.client);
    assert_same_lines("messages of the server, direct and wrapped", &was.0.server, &is.0.server);
    assert_same_lines("report of the host, direct and wrapped", &was.1, &is.1);
}

const TOOLS_LIST: Host = Host::Inspector(&["--method", "tools/list"]);
const TOOLS_CALL: Host =
    Host::Inspector(&["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=héllo 鳥🐦"]);

const fn resources_read(server: Server) -> Host {
    Host::Inspector(match server {
        Server::Everything => {
            &["--method", "resources/read", "--uri", "demo://resource/static/document/features.md"]
        }
        Server::Python => &["--method", "resources/read", "--uri", "peer://greeting"],
    })
}

#[test]
#[ignore = "needs peers"]
fn inspector_lists_tools_of_everything() {
    prove("inspector-list-everything", TOOLS_LIST, Server::Everything, Era::Legacy);
}

#[test]
#[ignore = "needs peers"]
fn inspector_lists_tools_of_python() {
    prove("inspector-list-python", TOOLS_LIST, Server::Python, Era::Legacy);
}

#[test]
#[ignore = "needs peers"]
fn inspector_calls_a_tool_of_everything() {
    prove("inspector-call-everything", TOOLS_CALL, Server::Everything, Era::Legacy);
}

#[test]
#[ignore = "needs peers"]
fn inspector_calls_a_tool_of_python() {
    prove("inspector-call-python", TOOLS_CALL, Server::Python, Era::Legacy);
}

#[test]
#[ignore = "needs peers"]
fn inspector_reads_a_resource_of_everything() {
    let server = Server::Everything;
    prove("inspector-read-everything", resources_read(server), server, Era::Legacy);
}

#[test]
#[ignore = "needs peers"]
fn inspector_reads_a_resource_of_python() {
    let server = Server::Python;
    prove("inspector-read-python", resources_read(server), server, Era::Legacy);
}

#[test]
#[ignore = "needs peers"]
fn python_auto_falls_back_with_everything() {
    prove("python-auto-everything", Host::Python("auto"), Server::Everything, Era::FellBack);
}

#[test]
#[ignore = "needs peers"]
fn python_auto_is_modern_with_python() {
    prove("python-auto-python", Host::Python("auto"), Server::Python, Era::Modern);
}

#[test]
#[ignore = "needs peers"]
fn python_legacy_initializes_everything() {
    prove("python-legacy-everything", Host::Python("legacy"), Server::Everything, Era::Legacy);
}

#[test]
#[ignore = "needs peers"]
fn python_legacy_initializes_python() {
    prove("python-legacy-python", Host::Python("legacy"), Server::Python, Era::Legacy);
}

#[test]
#[ignore = "needs peers"]
fn python_pinned_skips_discovery() {
    prove("python-pinned-python", Host::Python("2026-07-28"), Server::Python, Era::Pinned);
}

#[test]
#[ignore = "needs peers"]
fn claude_falls_back_with_everything() {
    prove("claude-everything", Host::Claude, Server::Everything, Era::FellBack);
}

#[test]
#[ignore = "needs peers"]
fn claude_is_modern_with_python() {
    prove("claude-python", Host::Claude, Server::Python, Era::Modern);
}

#[test]
#[ignore = "needs peers"]
fn rules_refuse_no_message_of_real_peers() {
    for (name, host, server) in [
        ("ruled-inspector-list-everything", TOOLS_LIST, Server::Everything),
        ("ruled-inspector-call-python", TOOLS_CALL, Server::Python),
        ("ruled-inspector-read-everything", resources_read(Server::Everything), Server::Everything),
        ("ruled-python-auto-everything", Host::Python("auto"), Server::Everything),
        ("ruled-python-auto-python", Host::Python("auto"), Server::Python),
        ("ruled-python-legacy-python", Host::Python("legacy"), Server::Python),
        ("ruled-python-pinned-python", Host::Python("2026-07-28"), Server::Python),
        ("ruled-claude-everything", Host::Claude, Server::Everything),
        ("ruled-claude-python", Host::Claude, Server::Python),
    ] {
        prove_ruled(name, host, server);
    }
}
