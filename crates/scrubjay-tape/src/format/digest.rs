//! What stands for the entries of a tape: one hash over its frames, the same while it is live and when it is sealed.
//!
//! The chain of a sealed tape is over compressed blocks, so it is known only when the tape is sealed. This digest
//! is known as soon as an entry is written: by it the next tape names the end of the one before, and a checkpoint
//! names what a tape held while it was still being written.

use scrubjay_core::entry::Transport;
use scrubjay_core::id::TapeId;
use serde::{Deserialize, Serialize};

use super::header::Header;

/// The end of a tape, or of a part of it, as another tape or a checkpoint names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeEnd {
    /// Which tape.
    pub tape: TapeId,
    /// How many of its entries this is about, from the first.
    pub entries: u64,
    /// Their digest, in hex.
    pub digest: String,
}

/// The digest of the entries of a tape from the first up to some entry.
#[derive(Clone, Debug)]
pub(crate) struct RunningDigest(blake3::Hasher);

impl RunningDigest {
    /// Begins with what identifies the tape: the same entries on another tape have another digest.
    pub(crate) fn new(header: Option<&Header>) -> Self {
        let mut hasher = blake3::Hasher::new();
        let identity = header.map(identity).unwrap_or_default();
        hasher.update(&(identity.len() as u64).to_le_bytes()).update(&identity);
        Self(hasher)
    }

    /// Takes the next frames, whole or in parts.
    pub(crate) fn update(&mut self, frames: &[u8]) {
        self.0.update(frames);
    }

    pub(crate) fn hex(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }

    /// Returns the first bytes of the digest: enough to find a place, not to prove anything.
    pub(crate) fn short(&self) -> [u8; 4] {
        *self.0.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes")
    }
}

/// Returns the facts of a header that no honest program changes, in a form that does not depend on which other
/// facts a version knows. That a tape was imported is not among them: an import with the same entries has the same
/// digest.
fn identity(header: &Header) -> Vec<u8> {
    #[derive(Serialize)]
    struct Identity<'a> {
        id: TapeId,
        name: &'a str,
        transport: Transport,
        started_wall_ns: u64,
        program: Option<&'a str>,
        workspace: Option<&'a str>,
        gateway: Option<&'a str>,
        session: &'a str,
        continues: Option<TapeId>,
        part: u32,
        previous: Option<&'a TapeEnd>,
        follows: Option<&'a TapeEnd>,
    }
    let identity = Identity {
        id: header.id,
        name: &header.name,
        transport: header.transport,
        started_wall_ns: header.started_wall_ns,
        program: header.program.as_deref(),
        workspace: header.workspace.as_deref(),
        gateway: header.gateway.as_deref(),
        session: &header.session.id,
        continues: header.continues,
        part: header.part,
        previous: header.links.previous.as_ref(),
        follows: header.links.follows.as_ref(),
    };
    serde_json::to_vec(&identity).expect("facts are plain data")
}
