//! The header: the first bytes of a tape, with its version and the facts known when it began.
//!
//! Facts are JSON, so that a later version can add some. Command lines and environments may hold secrets, so only the
//! program's name is kept.

mod session;

use scrubjay_core::entry::Transport;
use scrubjay_core::id::TapeId;
use scrubjay_core::redact::Redactor;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::digest::TapeEnd;

pub use self::session::{Origin, SessionRef, SessionSource};

/// The first eight bytes of every tape.
pub const MAGIC: &[u8; 8] = b"SCRUBJAY";
/// The version this program writes.
pub const VERSION: u16 = 1;
/// Bytes before the facts: magic, version, state, length, checksum.
const PREFIX: usize = 20;
/// The longest header: opening a tape reads no more than this.
pub(crate) const HEADER_BYTES_MAX: usize = 64 * 1024;
/// To how much each text is cut if the header would be too long. JSON escapes may make it six times as long.
const TEXT_BYTES_MAX: usize = 1024;

/// How the frames behind the header are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Plain frames, growing.
    Live,
    /// Compressed blocks and a footer.
    Sealed,
}

/// The facts of a tape that are known when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Identifies the tape.
    pub id: TapeId,
    /// What the user calls the connection.
    pub name: String,
    /// What was recorded; none on tapes of versions that did not note it. [`Header::kind`] works for any tape.
    #[serde(rename = "kind", skip_serializing_if = "Option::is_none", default)]
    pub noted_kind: Option<TapeKind>,
    /// The run of the gateway that wrote it: its tapes have the same one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gateway: Option<String>,
    /// What carries its messages.
    pub transport: Transport,
    /// When it began, nanoseconds since the Unix epoch.
    pub started_wall_ns: u64,
    /// By how much the clock was behind the trusted time when the tape began, in nanoseconds. The times of such a tape
    /// are in doubt, so it is not removed for its age.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_behind_ns: Option<u64>,
    /// The program that serves, without its arguments.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<String>,
    /// The workspace: the directory the connection was opened in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workspace: Option<String>,
    /// Where the connection came from, which tells the session it belongs to.
    #[serde(default)]
    pub origin: Origin,
    /// The session in which it began.
    #[serde(default)]
    pub session: SessionRef,
    /// The tape that this one continues.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub continues: Option<TapeId>,
    /// Its place among the tapes of one connection, from 1.
    pub part: u32,
    /// The version of the program that recorded it.
    pub recorder: String,
    /// How its blocks are compressed when it is sealed.
    #[serde(skip_serializing_if = "Compression::is_usual", default)]
    pub compression: Compression,
    /// Its links to other tapes, and whether it was imported.
    #[serde(skip_serializing_if = "Links::is_empty", default)]
    pub links: Links,
}

/// A tape's links to earlier tapes, and whether it was imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The end of the tape that this one continues, as it was when this one began. Only a note of what was left out and
    /// the end entry may follow it there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub previous: Option<TapeEnd>,
    /// The end of the last closed tape of the same session when this connection began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub follows: Option<TapeEnd>,
    /// How it was imported; none if it was recorded here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub imported: Option<Imported>,
}

impl Links {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a tape was imported into this data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// When, nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// The format of the file it was imported from: `jsonl` or `native`.
    pub format: String,
    /// The program that imported it.
    pub by: String,
}

/// What was recorded on a tape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapeKind {
    /// The messages of a client, together with those between the gateway and backends on its behalf.
    #[default]
    Conversation,
    /// The messages between the gateway and a backend or toolset on behalf of no single client.
    Backend,
    /// Requests that the HTTP front refused.
    Refused,
    /// Messages that came after the end of their connection.
    Late,
}

impl TapeKind {
    /// Derives the kind from the names that the gateway gives its tapes, for headers that do not note it.
    ///
    /// Only for the gateway's own tapes: a user may give a wrapped program any name.
    fn of_name(name: &str) -> Self {
        // `wrap --listen` puts its own name in front: "files (server)".
        let part = name.strip_suffix(')').and_then(|n| n.rsplit_once(" (")).map_or(name, |(_, part)| part);
        match part {
            "refused" => Self::Refused,
            "after the end" => Self::Late,
            "server" if part.len() < name.len() => Self::Backend,
            _ if name.starts_with("backend ") || name.starts_with("toolset ") => Self::Backend,
            _ => Self::Conversation,
        }
    }
}

/// How the blocks of a sealed tape are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// With zstd.
    #[default]
    Zstd,
    /// Not compressed: zstd frames of raw blocks.
    None,
}

impl Compression {
    fn is_usual(&self) -> bool {
        *self == Self::Zstd
    }
}

impl Header {
    /// Returns what was recorded.
    #[must_use]
    pub fn kind(&self) -> TapeKind {
        self.noted_kind.unwrap_or_else(|| {
            let is_wrapped = self.program.is_some() && self.transport == Transport::Stdio;
            if is_wrapped { TapeKind::Conversation } else { TapeKind::of_name(&self.name) }
        })
    }

    /// Redacts its texts: all of them, since most came from outside, and an imported header may hold anything.
    #[must_use]
    pub fn redacted(mut self, redactor: &Redactor) -> Self {
        let Texts { said, made } = self.texts();
        // Ids and digests of our own are no secrets, and links between tapes need them.
        let foreign = made.into_iter().filter(|text| !is_made_here(text));
        for text in said.into_iter().chain(foreign) {
            *text = redactor.redact_text(text).into_owned();
        }
        self
    }

    /// Cuts long texts if the header would be too long: a recording with half a name is better than none.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        if encode(&self, Layout::Live).len() > HEADER_BYTES_MAX {
            let Texts { said, made } = self.texts();
            for text in said.into_iter().chain(made) {
                let end = (0..=text.len().min(TEXT_BYTES_MAX)).rfind(|at| text.is_char_boundary(*at));
                text.truncate(end.unwrap_or(0));
            }
        }
        self
    }

    /// Returns all its texts. Destructures every field, so that a new one cannot be forgotten.
    fn texts(&mut self) -> Texts<'_> {
        let Self {
            id: _,
            name,
            noted_kind: _,
            gateway,
            transport: _,
            started_wall_ns: _,
            clock_behind_ns: _,
            program,
            workspace,
            origin: Origin { host_session, traceparent, host_pid: _, host_started: _, host_program },
            session: SessionRef { id: session, told_by: _ },
            continues: _,
            part: _,
            recorder,
            compression: _,
            links: Links { previous, follows, imported },
        } = self;
        let optional = [program, workspace, host_session, traceparent, host_program];
        let imported = imported.iter_mut().flat_map(|Imported { wall_ns: _, format, by }| [format, by]);
        let said = optional.into_iter().flatten().chain([name, recorder]).chain(imported).collect();
        let ends = [previous, follows].into_iter().flatten();
        let digests = ends.map(|TapeEnd { tape: _, entries: _, digest }| digest);
        Texts { said, made: digests.chain(gateway).chain([session]).collect() }
    }
}

/// The texts of a header.
struct Texts<'a> {
    /// Texts that may hold anything.
    said: Vec<&'a mut String>,
    /// Ids and digests that Scrubjay makes, unless another program wrote the tape.
    made: Vec<&'a mut String>,
}

/// Tells whether a text has the form of an id or a digest that Scrubjay makes.
fn is_made_here(text: &str) -> bool {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest || text.parse::<TapeId>().is_ok()
}

/// Why a header cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// The file is no tape.
    #[error("not a tape: the file does not begin as one")]
    NotATape,
    /// The header is cut off or altered.
    #[error("the tape's header is damaged")]
    Damaged,
    /// A later version wrote the tape.
    #[error(
        "the tape is of version {0}, and this scrubjay reads up to {VERSION}: update scrubjay to read it"
    )]
    TooNew(u16),
}

/// Writes a header.
#[must_use]
pub fn encode(header: &Header, layout: Layout) -> Vec<u8> {
    let facts = serde_json::to_vec(header).expect("a header is plain data");
    let mut bytes = Vec::with_capacity(PREFIX + facts.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u16::from(layout == Layout::Sealed).to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(facts.len()).expect("headers are small").to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes);
    crc.update(&facts);
    bytes.extend_from_slice(&crc.finalize().to_le_bytes());
    bytes.extend_from_slice(&facts);
    bytes
}

/// Returns the JSON of the facts of a valid header.
pub(super) fn facts(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(PREFIX..)
}

/// Reads the header at the start of the bytes, and returns its length.
///
/// # Errors
/// The bytes are no tape, a damaged one, or one from a later version.
pub fn decode(bytes: &[u8]) -> Result<(Header, Layout, u16, usize), HeaderError> {
    if !bytes.starts_with(MAGIC) {
        return Err(HeaderError::NotATape);
    }
    let prefix = bytes.first_chunk::<PREFIX>().ok_or(HeaderError::Damaged)?;
    let version = u16::from_le_bytes([prefix[8], prefix[9]]);
    let length = u32::from_le_bytes([prefix[12], prefix[13], prefix[14], prefix[15]]) as usize;
    let end = PREFIX.saturating_add(length);
    if end > HEADER_BYTES_MAX || end > bytes.len() {
        return Err(HeaderError::Damaged);
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&prefix[..16]);
    crc.update(&bytes[PREFIX..end]);
    if crc.finalize().to_le_bytes() != prefix[16..20] {
        return Err(HeaderError::Damaged);
    }
    // After the checksum: a flipped bit in the version must not tell users to update.
    if version > VERSION {
        return Err(HeaderError::TooNew(version));
    }
    let layout = if prefix[10] == 0 { Layout::Live } else { Layout::Sealed };
    let header = serde_json::from_slice(&bytes[PREFIX..end]).map_err(|_| HeaderError::Damaged)?;
    Ok((header, layout, version, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of a version that did not note the kind of tape.
    fn old_header(name: &str, program: Option<&str>, transport: &str) -> Header {
        let facts = serde_json::json!({
            "id": "k3f9abcdefghjkmn", "name": name, "transport": transport, "started_wall_ns": 1, "part": 1,
            "program": program, "recorder": "0.1.0"
        });
        serde_json::from_value(facts).unwrap()
    }

    #[test]
    fn the_kind_of_an_old_tape_follows_from_its_name() {
        let check = |name: &str, program: Option<&str>, transport: &str, expected: TapeKind| {
            assert_eq!(old_header(name, program, transport).kind(), expected, "{name}");
        };
        check("serve", None, "stdio", TapeKind::Conversation);
        check("http", None, "http", TapeKind::Conversation);
        check("backend files", None, "stdio", TapeKind::Backend);
        check("toolset tapes", None, "http", TapeKind::Backend);
        check("refused", None, "http", TapeKind::Refused);
        check("after the end", None, "stdio", TapeKind::Late);
        check("files (server)", Some("files"), "http", TapeKind::Backend);
        check("files (refused)", Some("files"), "http", TapeKind::Refused);
        check("server", None, "http", TapeKind::Conversation);
        // The name that a user gives a program does not decide the kind.
        check("backend files", Some("node"), "stdio", TapeKind::Conversation);
        check("files (server)", Some("node"), "stdio", TapeKind::Conversation);
    }

    #[test]
    fn the_noted_kind_wins_over_the_name() {
        let header =
            Header { noted_kind: Some(TapeKind::Conversation), ..old_header("refused", None, "http") };
        let (read, ..) = decode(&encode(&header, Layout::Live)).unwrap();
        assert_eq!((read.kind(), &read), (TapeKind::Conversation, &header));
    }

    #[test]
    fn every_text_of_a_header_is_redacted_except_generated_ids() {
        const SECRET: &str = "ghp_c4n4ry003a1B2c3D4e5F6g7H8i9J0k1L2m3Z";
        let redactor = Redactor::standard();
        let secret = || SECRET.to_owned();
        let id = TapeId::from_random([7; 10]);
        let end = |digest: String| Some(TapeEnd { tape: id, entries: 1, digest });
        let header = Header {
            name: secret(),
            gateway: Some(secret()),
            program: Some(secret()),
            workspace: Some(secret()),
            origin: Origin {
                host_session: Some(secret()),
                traceparent: Some(secret()),
                host_program: Some(secret()),
                ..Origin::default()
            },
            session: SessionRef { id: secret(), told_by: SessionSource::Agent },
            recorder: secret(),
            links: Links {
                previous: end(secret()),
                follows: end(secret()),
                imported: Some(Imported { wall_ns: 1, format: secret(), by: secret() }),
            },
            ..old_header("n", None, "stdio")
        };
        let redacted = serde_json::to_string(&header.clone().redacted(&redactor)).unwrap();
        assert!(!redacted.contains(SECRET), "{redacted}");
        assert_eq!(serde_json::to_string(&header).unwrap().matches(SECRET).count(), 13);
        let made = Header {
            gateway: Some(id.to_string()),
            origin: Origin {
                traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
                ..Origin::default()
            },
            session: SessionRef::of_connection("c"),
            links: Links { previous: end(blake3::hash(b"x").to_hex().to_string()), ..Links::default() },
            ..old_header("n", Some("node"), "stdio")
        };
        assert_eq!(made.clone().redacted(&redactor), made);
    }
}
