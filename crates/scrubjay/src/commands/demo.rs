//! `scrubjay demo`: short conversations through the real relay and gateway, and their recordings.

mod found_tools;
mod scenes;
mod two_agents;

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::Context;
use clap::Args;
use scrubjay_tape::home::{Home, TapeFile};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use self::scenes::{SCENES, Scene, SceneView};
use super::tape;
use crate::cli::Global;

/// Record a scripted conversation with a sample server, and show the recording
///
/// Starts a sample server behind `scrubjay wrap`, as a host would, and calls it in both eras of the protocol, then with
/// only failures recorded, then with rules. Starts it behind `scrubjay serve` together with one of Scrubjay's own
/// toolsets, and finds tools for a task in plain words. Then an agent works with Scrubjay's own tools, and another
/// searches the recordings. Finally two agents share a gateway, and each gets its own server. Every tape is printed.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {}

pub(crate) fn run(global: &Global, _: &DemoArgs) -> anyhow::Result<ExitCode> {
    let mut scratch = tempfile::Builder::new();
    // Kept after the end, so that the user can look closer with the commands printed below.
    let scratch =
        scratch.prefix("scrubjay-demo-").permissions(Permissions::from_mode(0o700)).tempdir()?.keep();
    // Beside each other, because files of a workspace have the modes that its user's programs give them, and those of
    // a data directory are closed to others.
    let home = Home::new(scratch.join("data"));
    for directory in [home.root(), &workspace(&home)] {
        DirBuilder::new().mode(0o700).create(directory)?;
    }
    let runtime = super::runtime()?;
    for scene in &SCENES {
        let ended = runtime.block_on(converse(&home, scene));
        ended.with_context(|| format!("the {} conversation", scene.name))?;
        if !global.json {
            show(&home, scene)?;
        }
    }
    let agents = runtime.block_on(two_agents::converse(&home)).context("the conversation of two agents")?;
    if global.json {
        let ids: Vec<String> = home.list()?.iter().map(|file| file.id.to_string()).collect();
        crate::render::print_json(&serde_json::json!({ "data": home.root(), "tapes": ids }))?;
        return Ok(ExitCode::SUCCESS);
    }
    agents.print()?;
    writeln!(
        anstream::stdout(),
        "\nAll conversations, newest first; tapes of backends are counted with their conversation:\n"
    )?;
    print_command(&home, &["tape", "ls"])?;
    writeln!(
        anstream::stdout(),
        "\nOne hash over all tapes; kept elsewhere, it reveals any later change:\n"
    )?;
    let checkpoint = home.root().join("checkpoint.json").display().to_string();
    print_command(&home, &["tape", "checkpoint", "--output", &checkpoint])?;
    let data = home.root().display();
    writeln!(
        anstream::stdout(),
        "\nExcept where only failures were recorded, every message was on tape before it was passed on. Look closer:\n\
         \n  scrubjay --data {data} tape ls --errors\
         \n  scrubjay --data {data} tape show latest --entry 3\
         \n  scrubjay --data {data} tape search error:true\
         \n  scrubjay --data {data} tape search 'tokens:>5000'\
         \n  scrubjay --data {data} tape stats latest\
         \n  scrubjay --data {data} tape verify --checkpoint {data}/checkpoint.json\
         \n  scrubjay --data {data} session ls\
         \n  scrubjay --data {data} session timeline demo\
         \n  scrubjay --data {data} session evolution demo feeder/monday.txt\
         \n  scrubjay --data {data} session cat demo feeder/monday.txt --at 1\
         \n  scrubjay --data {data} session rewind demo --to 4\
         \n  scrubjay --data {data} record tree --project default\
         \n\nTo record a server of your own, put `scrubjay wrap --` before its command in your host's configuration."
    )?;
    Ok(ExitCode::SUCCESS)
}

fn workspace(home: &Home) -> PathBuf {
    home.root().with_file_name("workspace")
}

/// Prints the recording of a conversation.
fn show(home: &Home, scene: &Scene) -> anyhow::Result<()> {
    let file = newest(home, scene.name)?;
    writeln!(anstream::stdout(), "\n{}, recorded as tape {}:\n", scene.title, file.id.short())?;
    let session = match scene.shown {
        SceneView::Story(session) => session,
        SceneView::Tape => return tape::print_tape(home, &home.open(&file)?, 0, u64::MAX),
        SceneView::FoundTools => {
            let recorded = home.open(&file)?;
            tape::print_tape(home, &recorded, 0, u64::MAX)?;
            return found_tools::print(&recorded);
        }
    };
    print_command(home, &["session", "story", session])?;
    writeln!(anstream::stdout(), "\nWhat feeder/monday.txt held at its first revision:\n")?;
    print_command(home, &["session", "cat", session, "feeder/monday.txt", "--at", "1"])
}

/// Runs a command of this binary; it prints to our standard output.
fn print_command(home: &Home, words: &[&str]) -> anyhow::Result<()> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    // Without a pager, which would stop the demo at each command.
    let status = command.arg("--data").arg(home.root()).arg("--no-pager").args(words).status()?;
    anyhow::ensure!(status.success(), "`scrubjay {}` failed", words.join(" "));
    Ok(())
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
    let mut command = Command::new(&program);
    command.arg("--data").arg(home.root());
    if let Some(config) = scene.config {
        let file = home.root().join(format!("{}.yaml", scene.name));
        let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
        written.write_all(config.as_bytes())?;
        command.arg("--config").arg(file);
    }
    for word in scene.command {
        match *word {
            "{workspace}" => command.arg(workspace(home)),
            word => command.arg(word),
        };
    }
    if scene.has_server {
        command.arg("--").arg(&program).arg("sample-server");
    }
    let mut recorder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    play(&mut recorder, scene.script).await?;
    let status = recorder.wait().await?;
    anyhow::ensure!(status.success(), "the recorder ended with {status}");
    Ok(())
}

/// Sends each line of a script, and waits for the answer to a request before the next line; returns the last answer.
async fn play(recorder: &mut Child, script: &[&str]) -> anyhow::Result<serde_json::Value> {
    let mut last = serde_json::Value::Null;
    let mut to = recorder.stdin.take().context("standard input is piped")?;
    let mut from = BufReader::new(recorder.stdout.take().context("standard output is piped")?).lines();
    for line in script {
        to.write_all(format!("{line}\n").as_bytes()).await?;
        let message: serde_json::Value = serde_json::from_str(line)?;
        let Some(id) = message.get("id") else { continue };
        loop {
            let answer =
                from.next_line().await?.context("the server ended in the middle of a conversation")?;
            let answer: serde_json::Value = serde_json::from_str(&answer)?;
            if answer.get("id") == Some(id) {
                last = answer;
                break;
            }
        }
    }
    Ok(last)
}
