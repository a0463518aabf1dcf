//! `scrubjay demo`: a short real conversation through the real relay, and what is left of it.

use std::io::Write;
use std::process::{ExitCode, Stdio};

use anyhow::Context;
use clap::Args;
use scrubjay_store::home::{Home, TapeFile};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::tape;
use crate::cli::Global;

/// Record a scripted conversation with a sample server, and show the recording
///
/// Starts the sample server behind `scrubjay wrap`, as a host would, talks to it in both eras of the protocol,
/// then behind `scrubjay serve` beside a toolset of Scrubjay's own, and prints the tapes.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {}

/// A client of the first era: a handshake, then calls.
const LEGACY: [&str; 9] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scrubjay-demo","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"what, where and when"}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"count","arguments":{"to":3,"delay_ms":20},"_meta":{"progressToken":"count-1"}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"slow","arguments":{"ms":250}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"fail","arguments":{"message":"the disk is on fire"}}}"#,
    r#"{"jsonrpc":"2.0","id":6,"method":"resources/read","params":{"uri":"sample://readme"}}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"summarize","arguments":{"topic":"flight recorders"}}}"#,
];

/// A client of the second era: every request carries its version.
const MODERN: [&str; 3] = [
    r#"{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"scrubjay-demo","version":"2"}}}}"#,
    r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"large","arguments":{"bytes":1048576},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
    r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"no_such_tool","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
];

/// A client of the gateway: two backends offer the same names, so one's are prefixed.
const GATEWAY: [&str; 6] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scrubjay-demo","version":"3"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"to the toolset"}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"scrubjay__slow","arguments":{"ms":40}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"scrubjay__fail","arguments":{}}}"#,
];

/// One conversation: what it shows, how it is started, what is said.
struct Scene {
    title: &'static str,
    name: &'static str,
    command: &'static [&'static str],
    script: &'static [&'static str],
}

const SCENES: [Scene; 3] = [
    Scene {
        title: "An agent that opens with a handshake (2025-11-25)",
        name: "demo-legacy",
        command: &["wrap", "--name", "demo-legacy"],
        script: &LEGACY,
    },
    Scene {
        title: "An agent whose every request stands alone (2026-07-28)",
        name: "demo-modern",
        command: &["wrap", "--name", "demo-modern"],
        script: &MODERN,
    },
    Scene {
        title: "One gateway in front of several servers; VIA tells the gateway's time from the backend's",
        name: "serve",
        command: &["serve", "--log-level", "warn", "--toolsets", "sample"],
        script: &GATEWAY,
    },
];

pub(crate) fn run(global: &Global, _: &DemoArgs) -> anyhow::Result<ExitCode> {
    let scratch = tempfile::Builder::new().prefix("scrubjay-demo-").tempdir()?.keep();
    let home = Home::new(scratch.clone());
    let runtime = super::runtime()?;
    for scene in &SCENES {
        let held = runtime.block_on(converse(&home, scene));
        held.with_context(|| format!("the {} conversation", scene.name))?;
        let file = newest(&home, scene.name)?;
        if !global.json {
            writeln!(anstream::stdout(), "\n{}, recorded as tape {}:\n", scene.title, file.id.short())?;
            tape::print_tape(&home.open(&file)?, 0, u64::MAX)?;
        }
    }
    if global.json {
        let ids: Vec<String> = home.list()?.iter().map(|file| file.id.to_string()).collect();
        crate::render::print_json(&serde_json::json!({ "data": scratch, "tapes": ids }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let data = scratch.display();
    writeln!(
        anstream::stdout(),
        "\nEvery message was on tape before it was passed on. Look closer:\n\
         \n  scrubjay --data {data} tape ls\
         \n  scrubjay --data {data} tape show latest --entry 3\
         \n  scrubjay --data {data} tape verify\
         \n\nTo record a server of your own, put `scrubjay wrap --` before its command in your host's configuration."
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Finds the newest tape with this name.
fn newest(home: &Home, name: &str) -> anyhow::Result<TapeFile> {
    let named = |file: &TapeFile| {
        home.open(file).is_ok_and(|tape| tape.header().is_some_and(|header| header.name == name))
    };
    home.list()?.into_iter().find(named).with_context(|| format!("no tape is named {name}"))
}

async fn converse(home: &Home, scene: &Scene) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let mut recorder = Command::new(&program)
        .arg("--data")
        .arg(home.root())
        .args(scene.command)
        .arg("--")
        .arg(&program)
        .arg("sample-server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    talk(&mut recorder, scene.script).await?;
    let status = recorder.wait().await?;
    anyhow::ensure!(status.success(), "the recorder ended with {status}");
    Ok(())
}

/// Says each line, and waits for the answer to each request before the next.
async fn talk(recorder: &mut Child, script: &[&str]) -> anyhow::Result<()> {
    let mut to = recorder.stdin.take().context("standard input is piped")?;
    let mut from = BufReader::new(recorder.stdout.take().context("standard output is piped")?).lines();
    for line in script {
        to.write_all(format!("{line}\n").as_bytes()).await?;
        let said: serde_json::Value = serde_json::from_str(line)?;
        let Some(id) = said.get("id") else { continue };
        loop {
            let heard = from.next_line().await?.context("the server ended in the middle")?;
            let heard: serde_json::Value = serde_json::from_str(&heard)?;
            if heard.get("id") == Some(id) {
                break;
            }
        }
    }
    Ok(())
}
