//! Frames: one entry as bytes. Length, checksum, fixed facts, extension fields, payload.
//!
//! Live files and, compressed, the blocks of sealed files hold the same frames. The checksum covers the entry's number,
//! too, so a frame is valid only in its own place. Unknown extension fields are skipped, so that a later version can
//! add facts without a new format.

use scrubjay_core::entry::{Direction, Entry, EntryKind, RuleEffects, RuleMarks, Terminator, Transport};

/// Bytes before the fixed facts: length and checksum.
const PREFIX: usize = 8;
/// Bytes of the fixed facts.
const FIXED: usize = 24;
/// Bytes that a frame adds to its payload.
pub(crate) const OVERHEAD: usize = PREFIX + FIXED;
/// A larger length in a frame is damage. 1 GiB: far above `--max-message-size`, and a length that memory can hold.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 30;
/// The longest payload: leaves 16 MiB of a block for facts, other entries and what compression may add.
pub(crate) const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - (16 << 20);

/// Writes the part of a frame before the payload.
///
/// Layout, little-endian: `u32` length of what follows the checksum, `u32` CRC-32 of length and all that
/// follows, xor the [`mark`] of the entry's number, `u8` kind, `u8` direction, transport and terminator, `u16` length
/// of the extension fields, `u32` processing time, `u64` wall time, `u64` time since start, extension fields, payload.
///
/// An extension field is a `u8` tag, a `u16` length and its value.
pub fn encode_head(number: u64, entry: &Entry<'_>, out: &mut Vec<u8>) {
    let extension = encode_extension(entry);
    let length = u32::try_from(FIXED + extension.len() + entry.payload.len())
        .expect("payloads are below PAYLOAD_BYTES_MAX");
    let mut head = [0u8; OVERHEAD];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[8] = kind_code(entry.kind);
    head[9] = shape_code(entry);
    let extension_length = u16::try_from(extension.len()).expect("extension fields are small");
    head[10..12].copy_from_slice(&extension_length.to_le_bytes());
    head[12..16].copy_from_slice(&entry.processing_ns.to_le_bytes());
    head[16..24].copy_from_slice(&entry.wall_ns.to_le_bytes());
    head[24..32].copy_from_slice(&entry.since_start_ns.to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    // The length too, because a wrong one would lead to a wrong next frame.
    crc.update(&head[..4]);
    crc.update(&head[PREFIX..]);
    crc.update(&extension);
    crc.update(entry.payload);
    head[4..8].copy_from_slice(&(crc.finalize() ^ mark(number)).to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(&extension);
}

/// Returns the number that is xored into the checksum of an entry's frame.
///
/// Without it, damage that makes the decompressor repeat or move whole frames would go unnoticed, because frames of
/// equal messages in one batch are equal.
fn mark(number: u64) -> u32 {
    (number as u32).wrapping_mul(MARK)
}

/// Odd, so every number below 2^32 has its own mark; large, so no flipped bit turns one into its neighbour's.
const MARK: u32 = 0x9E37_79B1;
/// The inverse of `MARK` modulo 2^32: it turns a mark back into its number.
const UNMARK: u32 = 0x0E8B_2F51;

/// Extension field: the backend of a message between the gateway and one.
const TAG_VIA: u8 = 1;
/// Extension field: the operation such a message belongs to.
const TAG_OPERATION: u8 = 2;
/// Extension field: what rules did to the message, as bits, and their names, one a line.
const TAG_RULES: u8 = 3;
/// Extension field: the tags that rules gave it, one a line.
const TAG_TAGS: u8 = 4;
/// Extension field: which connection to the backend; 0 is not written.
const TAG_CONNECTION: u8 = 5;
/// Longer names of backends are cut: a field must fit its 16-bit length.
const VIA_BYTES_MAX: usize = 256;
/// The names of all applied rules together, and all tags together, may be this long; further ones are left out.
const NAMES_BYTES_MAX: usize = 16 * 1024;

fn encode_extension(entry: &Entry<'_>) -> Vec<u8> {
    let mut fields = Vec::new();
    let mut field = |tag: u8, value: &[u8]| {
        fields.push(tag);
        fields.extend_from_slice(&u16::try_from(value.len()).expect("fields are small").to_le_bytes());
        fields.extend_from_slice(value);
    };
    if let Some(via) = entry.via {
        let end = (0..=via.len().min(VIA_BYTES_MAX)).rfind(|at| via.is_char_boundary(*at)).unwrap_or(0);
        field(TAG_VIA, &via.as_bytes()[..end]);
    }
    if entry.connection != 0 {
        field(TAG_CONNECTION, &entry.connection.to_le_bytes());
    }
    if let Some(operation) = entry.operation {
        field(TAG_OPERATION, &operation.to_le_bytes());
    }
    let judged = entry.rule_marks;
    if judged.is_intercepted() || !judged.rules.is_empty() {
        let names = whole_lines(judged.rules);
        field(TAG_RULES, &[&[judged.effects.bits()], names.as_bytes()].concat());
    }
    if !judged.tags.is_empty() {
        field(TAG_TAGS, whole_lines(judged.tags).as_bytes());
    }
    fields
}

/// Returns as many whole lines as fit.
fn whole_lines(lines: &str) -> &str {
    if lines.len() <= NAMES_BYTES_MAX {
        return lines;
    }
    let end = lines.as_bytes()[..=NAMES_BYTES_MAX].iter().rposition(|b| *b == b'\n');
    &lines[..end.unwrap_or(0)]
}

/// The decoded extension fields.
#[derive(Default)]
struct Extension<'a> {
    via: Option<&'a str>,
    connection: u32,
    operation: Option<u64>,
    rule_marks: RuleMarks<'a>,
}

/// Reads the extension fields it knows.
fn decode_extension(mut fields: &[u8]) -> Option<Extension<'_>> {
    let mut decoded = Extension::default();
    while let [tag, low, high, rest @ ..] = fields {
        let (value, behind) = rest.split_at_checked(usize::from(u16::from_le_bytes([*low, *high])))?;
        match *tag {
            TAG_VIA => decoded.via = std::str::from_utf8(value).ok(),
            TAG_CONNECTION => {
                decoded.connection = value.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            }
            TAG_OPERATION => decoded.operation = value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)),
            TAG_RULES => {
                let (effects, names) = value.split_first().unwrap_or((&0, &[]));
                decoded.rule_marks.effects = RuleEffects::of_bits(*effects);
                decoded.rule_marks.rules = std::str::from_utf8(names).unwrap_or_default();
            }
            TAG_TAGS => decoded.rule_marks.tags = std::str::from_utf8(value).unwrap_or_default(),
            _ => {}
        }
        fields = behind;
    }
    Some(decoded)
}

/// What is found where a frame is expected.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodedFrame<'a> {
    /// A whole frame, and its length in bytes.
    Frame(Entry<'a>, usize),
    /// The bytes end within the frame; this many are needed to decode it.
    Incomplete(usize),
    /// Not a frame: the length, the checksum or a code is wrong.
    Damaged,
}

/// Returns the length that a frame claims in its first bytes; `None` if no frame can be that long.
pub(super) fn claimed_length(prefix: [u8; 4]) -> Option<usize> {
    let body = u32::from_le_bytes(prefix) as usize;
    (FIXED..=FRAME_BYTES_MAX).contains(&body).then_some(PREFIX + body)
}

/// Reads the frame of the entry of this number at the start of the bytes.
#[must_use]
pub fn decode(number: u64, bytes: &[u8]) -> DecodedFrame<'_> {
    let Some(length) = bytes.first_chunk::<4>() else { return DecodedFrame::Incomplete(OVERHEAD) };
    let Some(whole) = claimed_length(*length) else { return DecodedFrame::Damaged };
    let Some(frame) = bytes.get(..whole) else { return DecodedFrame::Incomplete(whole) };
    let mut crc = crc32fast::Hasher::new();
    crc.update(&frame[..4]);
    crc.update(&frame[PREFIX..]);
    if (crc.finalize() ^ mark(number)).to_le_bytes() != frame[4..8] {
        return DecodedFrame::Damaged;
    }
    match decode_checked(frame) {
        Some(entry) => DecodedFrame::Frame(entry, whole),
        None => DecodedFrame::Damaged,
    }
}

/// Bytes that may be a frame of any number, while its checksum is computed.
pub(super) struct FrameCandidate {
    /// The length of the frame, if it is one.
    pub(super) length: usize,
    crc: crc32fast::Hasher,
    stored: u32,
}

impl FrameCandidate {
    /// Takes the possible head of a frame; `None` if it cannot be one.
    pub(super) fn at(head: &[u8; OVERHEAD]) -> Option<Self> {
        let length = claimed_length(*head.first_chunk()?)?;
        let extension = usize::from(u16::from_le_bytes([head[10], head[11]]));
        // Cheap checks first: few offsets hold a frame, and a checksum costs a read of the whole length.
        if kind_of(head[8]).is_none() || shape_of(head[9]).is_none() || OVERHEAD + extension > length {
            return None;
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head[..4]);
        crc.update(&head[PREFIX..]);
        Some(Self { length, crc, stored: u32::from_le_bytes(*head[4..].first_chunk()?) })
    }

    /// Takes the bytes behind the head, in order, up to the length.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
    }

    /// Returns the entry's number modulo 2^32, if this is a frame; other bytes give a random number.
    pub(super) fn number(self) -> u32 {
        (self.stored ^ self.crc.finalize()).wrapping_mul(UNMARK)
    }
}

/// Decodes a frame whose checksum is right.
pub(super) fn decode_checked(frame: &[u8]) -> Option<Entry<'_>> {
    let (direction, transport, terminator) = shape_of(frame[9])?;
    let extension = usize::from(u16::from_le_bytes([frame[10], frame[11]]));
    let decoded = decode_extension(frame.get(OVERHEAD..OVERHEAD + extension)?)?;
    Some(Entry {
        kind: kind_of(frame[8])?,
        direction,
        transport,
        terminator,
        processing_ns: u32::from_le_bytes(*frame[12..].first_chunk()?),
        wall_ns: u64::from_le_bytes(*frame[16..].first_chunk()?),
        since_start_ns: u64::from_le_bytes(*frame[24..].first_chunk()?),
        via: decoded.via,
        connection: decoded.connection,
        operation: decoded.operation,
        rule_marks: decoded.rule_marks,
        payload: frame.get(OVERHEAD + extension..)?,
    })
}

fn kind_code(kind: EntryKind) -> u8 {
    // Written out and not derived from the enum, because these numbers are in files.
    match kind {
        EntryKind::Message => 1,
        EntryKind::Stderr => 2,
        EntryKind::Oversize => 3,
        EntryKind::Gap => 4,
        EntryKind::End => 5,
        EntryKind::Note => 6,
        EntryKind::Original => 7,
    }
}

fn kind_of(code: u8) -> Option<EntryKind> {
    Some(match code {
        1 => EntryKind::Message,
        2 => EntryKind::Stderr,
        3 => EntryKind::Oversize,
        4 => EntryKind::Gap,
        5 => EntryKind::End,
        6 => EntryKind::Note,
        7 => EntryKind::Original,
        _ => return None,
    })
}

/// Bit 0 direction, bits 1–3 transport, bits 4–5 terminator.
fn shape_code(entry: &Entry<'_>) -> u8 {
    let direction = u8::from(entry.direction == Direction::ServerToClient);
    let transport = match entry.transport {
        Transport::Stdio => 0,
        Transport::Http => 1,
        Transport::Memory => 2,
    };
    let terminator = match entry.terminator {
        Terminator::Lf => 0,
        Terminator::Crlf => 1,
        Terminator::Eof => 2,
    };
    direction | transport << 1 | terminator << 4
}

fn shape_of(code: u8) -> Option<(Direction, Transport, Terminator)> {
    let direction = if code & 1 == 0 { Direction::ClientToServer } else { Direction::ServerToClient };
    let transport = match code >> 1 & 7 {
        0 => Transport::Stdio,
        1 => Transport::Http,
        2 => Transport::Memory,
        _ => return None,
    };
    let terminator = match code >> 4 {
        0 => Terminator::Lf,
        1 => Terminator::Crlf,
        2 => Terminator::Eof,
        _ => return None,
    };
    Some((direction, transport, terminator))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(payload: &[u8]) -> Entry<'_> {
        Entry {
            kind: EntryKind::Stderr,
            direction: Direction::ServerToClient,
            transport: Transport::Memory,
            terminator: Terminator::Eof,
            wall_ns: 1_800_000_000_000_000_000,
            since_start_ns: 42,
            processing_ns: 7,
            via: Some("files"),
            connection: 7,
            operation: Some(12),
            rule_marks: RuleMarks {
                effects: RuleEffects::CHANGED.and(RuleEffects::DELAYED),
                rules: "cap\nslow",
                tags: "reviewed",
            },
            payload,
        }
    }

    #[test]
    fn frames_round_trip_and_any_flipped_bit_is_noticed() {
        let entry = sample(b"payload");
        let mut bytes = Vec::new();
        encode_head(3, &entry, &mut bytes);
        bytes.extend_from_slice(entry.payload);
        assert_eq!(decode(3, &bytes), DecodedFrame::Frame(entry, bytes.len()));
        assert_eq!(decode(4, &bytes), DecodedFrame::Damaged);
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(decode(3, &broken), DecodedFrame::Frame(..)), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(matches!(decode(3, &bytes[..cut]), DecodedFrame::Incomplete(_)), "cut at {cut}");
        }
    }

    #[test]
    fn names_beyond_the_limit_are_left_out_as_whole_lines() {
        let names = vec!["x".repeat(64); 1000].join("\n");
        let entry = Entry {
            rule_marks: RuleMarks { rules: &names, tags: &names, ..RuleMarks::default() },
            ..sample(b"{}")
        };
        let mut bytes = Vec::new();
        encode_head(0, &entry, &mut bytes);
        bytes.extend_from_slice(entry.payload);
        let DecodedFrame::Frame(read, _) = decode(0, &bytes) else { panic!("a frame") };
        assert_eq!(read.rule_marks.rule_names().len(), NAMES_BYTES_MAX / 65);
        assert!(read.rule_marks.tag_names().iter().all(|name| name.len() == 64));
    }

    #[test]
    fn a_frame_without_a_connection_has_the_old_layout() {
        let entry =
            Entry { connection: 0, rule_marks: RuleMarks::default(), operation: None, ..sample(b"{}") };
        assert_eq!(encode_extension(&entry), [&[TAG_VIA, 5, 0], &b"files"[..]].concat());
        let mut bytes = Vec::new();
        encode_head(0, &entry, &mut bytes);
        bytes.extend_from_slice(entry.payload);
        assert_eq!(decode(0, &bytes), DecodedFrame::Frame(entry, bytes.len()));
        // An unknown tag and a truncated value are ignored.
        let decoded = decode_extension(&[99, 1, 0, 7, TAG_CONNECTION, 2, 0, 1, 0]).unwrap();
        assert_eq!((decoded.connection, decoded.via), (0, None));
    }

    #[test]
    fn a_frame_is_valid_only_for_its_entry_number() {
        for number in [0, 1, 3, 1 << 20, u64::from(u32::MAX)] {
            let entry = sample(b"payload");
            let mut bytes = Vec::new();
            encode_head(number, &entry, &mut bytes);
            bytes.extend_from_slice(entry.payload);
            let mut candidate = FrameCandidate::at(bytes.first_chunk().unwrap()).unwrap();
            assert_eq!(candidate.length, bytes.len());
            candidate.update(&bytes[OVERHEAD..]);
            assert_eq!(u64::from(candidate.number()), number);
        }
    }
}
