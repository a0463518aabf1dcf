//! The digest of a tape's entries: one hash over its frames, the same while the tape is live and when it is sealed.
//!
//! The hash chain of a sealed tape covers compressed blocks, so it is known only after sealing. This digest is known as
//! soon as an entry is written. The next tape names the end of its predecessor by it, and a checkpoint names what a
//! live tape held.

use scrubjay_core::entry::Transport;
use scrubjay_core::id::TapeId;
use serde::{Deserialize, Serialize};

use super::header::Header;

/// The first `entries` entries of a tape, as another tape or a checkpoint names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeEnd {
    /// The tape.
    pub tape: TapeId,
    /// How many entries, from the first.
    pub entries: u64,
    /// Their digest, in hex.
    pub digest: String,
}

/// The digest of a tape's entries up to some entry, to which more can be added.
#[derive(Clone, Debug)]
pub(crate) struct RunningDigest(blake3::Hasher);

impl RunningDigest {
    /// Begins with the facts that identify the tape, so that the same entries on another tape have another digest.
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

    /// Returns the first bytes of the digest: enough to locate a change, not to prove one.
    pub(crate) fn short(&self) -> [u8; 4] {
        *self.0.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes")
    }
}

/// Returns the header's facts that identify a tape, as JSON that does not depend on which other facts a version knows.
/// That a tape was imported is left out, so that an import with the same entries has the same digest.
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
