//! A check against a checkpoint: whether the file is genuine, and what happened to each tape since.

use std::path::Path;

use anyhow::Context;
use scrubjay_core::units::counted;
use scrubjay_tape::checkpoint::{Checkpoint, Comparison};
use scrubjay_tape::home::Home;
use serde::Serialize;

use super::VerifyArgs;
use crate::commands::tape::checkpoint::PublicKey;
use crate::render::local_time;

/// A checkpoint, and the evidence that it is genuine.
pub(super) struct VouchedCheckpoint {
    checkpoint: Checkpoint,
    vouched: String,
    /// Whether the evidence includes something from outside the file: a root or a key that the user gave.
    is_proved: bool,
}

/// What a check against a checkpoint found.
#[derive(Serialize)]
pub(super) struct CheckpointReport {
    pub(super) is_fine: bool,
    root: String,
    made_wall_ns: u64,
    /// The evidence that the checkpoint is genuine.
    vouched: String,
    is_proved: bool,
    #[serde(flatten)]
    compared: Comparison,
}

/// Reads a checkpoint, and checks its root and signature.
pub(super) fn read(path: &Path, args: &VerifyArgs) -> anyhow::Result<VouchedCheckpoint> {
    let named = || path.display().to_string();
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let checkpoint = Checkpoint::parse(&text).with_context(named)?;
    // Case and blanks do not count, because a person copied the root.
    if let Some(root) = &args.root
        && !root.trim().eq_ignore_ascii_case(&checkpoint.root)
    {
        anyhow::bail!(
            "{}: this is not the checkpoint that you noted down: its root is {}",
            path.display(),
            checkpoint.root
        );
    }
    let signed = checkpoint.signed_bytes();
    let vouched = match (&args.public_key, &checkpoint.signature) {
        (Some(key), Some(signature)) if key.has_signed(&signed, signature) => {
            "signed by the key of --public-key".to_owned()
        }
        (Some(_), Some(_)) => anyhow::bail!("{}: the key of --public-key did not sign it", path.display()),
        (Some(_), None) => {
            anyhow::bail!("{}: it is not signed: check its root with --root instead", path.display())
        }
        (None, Some(signature)) => {
            let key = PublicKey::parse(&signature.public_key).with_context(named)?;
            if !key.has_signed(&signed, signature) {
                anyhow::bail!("{}: its signature is wrong", path.display());
            }
            format!("signed by {}: give --public-key to check that this is your key", signature.public_key)
        }
        (None, None) => "only the place where you kept the file: give --root to check more".to_owned(),
    };
    let is_proved = args.root.is_some() || args.public_key.is_some();
    let vouched = if args.root.is_some() { "it has the root of --root".to_owned() } else { vouched };
    Ok(VouchedCheckpoint { checkpoint, vouched, is_proved })
}

impl VouchedCheckpoint {
    /// Compares what was recorded before with what is there now.
    pub(super) fn compare(&self, home: &Home) -> anyhow::Result<CheckpointReport> {
        let compared = self.checkpoint.compare(home)?;
        Ok(CheckpointReport {
            is_fine: compared.is_fine(),
            root: self.checkpoint.root.clone(),
            made_wall_ns: self.checkpoint.made_wall_ns,
            vouched: self.vouched.clone(),
            is_proved: self.is_proved,
            compared,
        })
    }
}

impl CheckpointReport {
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("checkpoint {} of {}", self.root, local_time(self.made_wall_ns))];
        lines.push(format!("  evidence that the checkpoint is genuine: {}", self.vouched));
        let told = self.compared.tapes.iter();
        lines.extend(told.map(|tape| format!("  {}  {}", tape.tape, tape.words)));
        if !self.compared.new_tapes.is_empty() {
            let new = counted(self.compared.new_tapes.len() as u64, "tape");
            lines.push(format!("  {new} came since; the checkpoint does not cover them"));
        }
        if !self.compared.covers_facts {
            lines.push(
                "  an earlier version made it: it does not cover footers, or facts of headers that do not identify a \
                 tape; make a new one"
                    .to_owned(),
            );
        }
        lines.push(if self.is_fine && self.compared.covers_facts {
            "  nothing that was recorded before it was changed".to_owned()
        } else if self.is_fine {
            "  no entry that was recorded before it was changed".to_owned()
        } else {
            "  recordings that it covers were CHANGED or removed".to_owned()
        });
        lines
    }
}
