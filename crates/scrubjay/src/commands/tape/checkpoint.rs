//! `scrubjay tape checkpoint`: one hash over all recordings, to be kept elsewhere.

mod key;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use scrubjay_core::units::counted;
use scrubjay_tape::checkpoint::Checkpoint;
use scrubjay_tape::clock;
use scrubjay_tape::home::Home;

use crate::cli::Global;
use crate::render::{Table, print_json};

pub(super) use key::PublicKey;

/// Print one hash over all recordings, to keep elsewhere
///
/// Write the checkpoint to a file with `--output`. Keep that file, or the printed root, where it is out of reach of
/// everyone who can change the recordings. `tape verify --checkpoint FILE` then proves that no earlier recording was
/// changed, or names the tape or entry that was. With `--key` the checkpoint is signed (ed25519), so the file can be
/// kept anywhere.
#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    /// Write the checkpoint to this file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Sign it with the key in this file
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Create the key first, in a file that only its owner can read
    #[arg(long, requires = "key")]
    new_key: bool,
}

pub(crate) fn run(global: &Global, home: &Home, args: &CheckpointArgs) -> anyhow::Result<ExitCode> {
    let key = match &args.key {
        Some(path) if args.new_key => Some(key::create(path)?),
        Some(path) => Some(key::read(path)?),
        None => None,
    };
    let mut checkpoint = Checkpoint::make(home, clock::now().wall_ns)?;
    // Only the root is signed, because it covers the time and all tapes.
    checkpoint.signature = key.map(|key| key.sign(&checkpoint.signed_bytes()));
    if let Some(path) = &args.output {
        let mut file = super::export::create(path)?;
        serde_json::to_writer(&mut file, &checkpoint)?;
        file.write_all(b"\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    if global.json {
        print_json(&checkpoint)?;
        return Ok(ExitCode::SUCCESS);
    }
    let entries: u64 = checkpoint.tapes.iter().map(|tape| tape.entries).sum();
    let mut note = Table::note();
    let tapes = counted(checkpoint.tapes.len() as u64, "tape");
    note.line(&format!("root {}  {tapes}, {}", checkpoint.root, counted(entries, "entry")))?;
    if let Some(signature) = &checkpoint.signature {
        note.line(&format!("signed by {}", signature.public_key))?;
    }
    if let Some(path) = &args.output {
        note.line(&format!(
            "check later with: scrubjay tape verify --checkpoint {} {}",
            path.display(),
            match &checkpoint.signature {
                Some(signature) => format!("--public-key {}", signature.public_key),
                None => format!("--root {}", checkpoint.root),
            }
        ))?;
    } else if !global.quiet {
        note.line("to check it later, write the checkpoint to a file with --output")?;
    }
    Ok(ExitCode::SUCCESS)
}
