//! Two agents at one gateway over HTTP, each with a server of its own.

use std::io::Write;
use std::process::Stdio;

use anyhow::Context;
use scrubjay_tape::home::Home;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{newest, play};
use crate::commands::tape;

/// What each agent sends: it asks for the id of its server's process.
const SCRIPT: [&str; 3] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scrubjay-demo","version":"6"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"process","arguments":{}}}"#,
];
const AGENTS: [&str; 2] = ["demo-one", "demo-two"];

/// The answers that the agents got.
pub(super) struct TwoAgents {
    home: Home,
    served_by: Vec<String>,
}

impl TwoAgents {
    /// Prints the tape of the second agent, and which server each agent got.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let file = newest(&self.home, "http")?;
        let mut out = anstream::stdout();
        writeln!(
            out,
            "\nTwo agents at one gateway, each with a server of its own; the second one is recorded as tape {}:\n",
            file.id.short()
        )?;
        tape::print_tape(&self.home, &self.home.open(&file)?, 0, u64::MAX)?;
        writeln!(out)?;
        for (agent, served_by) in AGENTS.iter().zip(&self.served_by) {
            writeln!(out, "{agent} is served by {served_by}")?;
        }
        Ok(())
    }
}

/// Starts a gateway and connects both agents to it.
pub(super) async fn converse(home: &Home) -> anyhow::Result<TwoAgents> {
    let program = std::env::current_exe()?;
    let scrubjay = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("--data").arg(home.root()).args(words).kill_on_drop(true);
        command
    };
    let mut gateway =
        scrubjay(&["serve", "--log-level", "warn", "--toolsets", "none", "--http", "127.0.0.1:0"]);
    gateway.arg("--").arg(&program).arg("sample-server").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut gateway = gateway.spawn()?;
    let url = address(&mut gateway).await?;
    let mut served_by = Vec::new();
    // Both are started before either is served, so that they are connected at the same time.
    let mut agents = AGENTS.map(|agent| scrubjay(&["wrap", "--name", agent, "--url", &url]));
    let mut agents: Vec<Child> = agents
        .iter_mut()
        .map(|agent| agent.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn())
        .collect::<Result<_, _>>()?;
    for agent in &mut agents {
        let answer = play(agent, &SCRIPT).await?;
        let text = answer["result"]["content"][0]["text"].as_str();
        served_by.push(text.with_context(|| format!("no text in {answer}"))?.to_owned());
    }
    for agent in &mut agents {
        agent.wait().await?;
    }
    end(&mut gateway).await?;
    Ok(TwoAgents { home: home.clone(), served_by })
}

/// Reads the gateway's address from its standard error.
async fn address(gateway: &mut Child) -> anyhow::Result<String> {
    let mut lines = BufReader::new(gateway.stderr.take().context("standard error is piped")?).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some((_, url)) = line.split_once("serving on ") {
            let url = url.to_owned();
            // The rest of the output is read, too, so that a full pipe does not block the gateway.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(url);
        }
    }
    anyhow::bail!("the gateway ended before it printed its address")
}

/// Ends the gateway as a service manager would.
async fn end(gateway: &mut Child) -> anyhow::Result<()> {
    let pid = gateway.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
    rustix::process::kill_process(pid.context("it runs")?, rustix::process::Signal::TERM)?;
    gateway.wait().await?;
    Ok(())
}
