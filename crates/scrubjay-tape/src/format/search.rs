//! Finds the next valid frame behind damage.
//!
//! If a frame's length is damaged, nothing says where the next frame begins, so every offset is tried. A frame's
//! checksum tells its number, so the frames behind keep theirs. Works on any bytes: a file, or a decompressed block.

use std::fs::File;
use std::io;

use super::frame::{FrameCandidate, OVERHEAD};
use super::sealed::read_at_most;

/// How much is searched at a time.
const WINDOW: usize = 64 * 1024;
/// How many bytes checksums may cover while one tape is read: a file forged to look like frames at every offset must
/// not take hours. Text never looks like a frame, so real damage needs far less.
pub(super) const WORK_BYTES_MAX: u64 = 4 << 30;
/// How many entries may be missing without bytes in their place, as if a piece of the file was cut out.
const JUMP_MAX: u64 = 16;
/// The same, if the next frame confirms the number.
const CONFIRMED_JUMP_MAX: u64 = 1 << 24;

/// Bytes in which frames are searched.
pub(super) trait Bytes {
    /// Returns how many there are.
    fn length(&self) -> io::Result<u64>;
    /// Fills the buffer as far as there are bytes.
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Bytes for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        read_at_most(self, buffer, offset)
    }
}

impl Bytes for [u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let count = buffer.len().min(self.len() - from);
        buffer[..count].copy_from_slice(&self[from..from + count]);
        Ok(count)
    }
}

/// The offset of a frame, and its entry's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramePosition {
    pub(super) offset: u64,
    pub(super) number: u64,
}

/// Returns the first valid frame behind a damaged one; none if there is none, or `work_bytes` are used up.
///
/// # Errors
/// The bytes cannot be read.
pub(super) fn next_frame<B: Bytes + ?Sized>(
    bytes: &B,
    lost: FramePosition,
    work_bytes: &mut u64,
) -> io::Result<Option<FramePosition>> {
    let mut search = Search { bytes, length: bytes.length()?, lost, work_bytes, buffer: vec![0; WINDOW] };
    match search.try_claimed_length()? {
        Some(place) => Ok(Some(place)),
        None => search.scan(),
    }
}

struct Search<'a, B: ?Sized> {
    bytes: &'a B,
    length: u64,
    lost: FramePosition,
    work_bytes: &'a mut u64,
    buffer: Vec<u8>,
}

impl<B: Bytes + ?Sized> Search<'_, B> {
    /// If only the content of the frame is damaged, its length leads to the next one.
    fn try_claimed_length(&mut self) -> io::Result<Option<FramePosition>> {
        let mut prefix = [0; 4];
        self.bytes.read(&mut prefix, self.lost.offset)?;
        let Some(length) = super::frame::claimed_length(prefix) else { return Ok(None) };
        let next = FramePosition { offset: self.lost.offset + length as u64, number: self.lost.number + 1 };
        Ok(self.number_at(next.offset)?.filter(|n| *n == next.number as u32).map(|_| next))
    }

    /// Tries every offset.
    fn scan(&mut self) -> io::Result<Option<FramePosition>> {
        let mut window = vec![0; WINDOW];
        let mut from = self.lost.offset;
        loop {
            let present = self.bytes.read(&mut window, from)?;
            for (at, head) in (from..).zip(window[..present].windows(OVERHEAD)) {
                let head = head.first_chunk().expect("a window of that size");
                if FrameCandidate::at(head).is_some()
                    && let Some(place) = self.accept_candidate(at)?
                {
                    return Ok(Some(place));
                }
            }
            if present < WINDOW || *self.work_bytes == 0 {
                return Ok(None);
            }
            // Windows overlap, so that a head across the border of two is found.
            from += (WINDOW - OVERHEAD + 1) as u64;
        }
    }

    /// Returns the frame at an offset, if there is one whose number can follow the lost one.
    fn accept_candidate(&mut self, offset: u64) -> io::Result<Option<FramePosition>> {
        let Some(number) = self.number_at(offset)? else { return Ok(None) };
        // A checksum shows the number modulo 2^32 only.
        let missing = u64::from(number.wrapping_sub(self.lost.number as u32));
        let place = FramePosition { offset, number: self.lost.number.saturating_add(missing) };
        if place == self.lost {
            return Ok(None);
        }
        // The missing entries must have had room in the bytes between; a larger jump needs a second frame as proof.
        let room = (offset - self.lost.offset) / OVERHEAD as u64;
        let likely = missing <= room + JUMP_MAX;
        let sound = likely || (missing <= CONFIRMED_JUMP_MAX && self.is_followed(place)?);
        Ok(sound.then_some(place))
    }

    fn is_followed(&mut self, place: FramePosition) -> io::Result<bool> {
        let mut prefix = [0; 4];
        self.bytes.read(&mut prefix, place.offset)?;
        let length = super::frame::claimed_length(prefix).unwrap_or(0) as u64;
        Ok(self.number_at(place.offset + length)? == Some((place.number as u32).wrapping_add(1)))
    }

    /// Returns the number of the frame at an offset, if it is one.
    fn number_at(&mut self, offset: u64) -> io::Result<Option<u32>> {
        let mut head = [0; OVERHEAD];
        if self.bytes.read(&mut head, offset)? < OVERHEAD {
            return Ok(None);
        }
        let Some(mut candidate) = FrameCandidate::at(&head) else { return Ok(None) };
        let end = offset + candidate.length as u64;
        if end > self.length {
            return Ok(None);
        }
        let Some(left) = self.work_bytes.checked_sub(candidate.length as u64) else {
            *self.work_bytes = 0;
            return Ok(None);
        };
        *self.work_bytes = left;
        let mut at = offset + OVERHEAD as u64;
        while at < end {
            let piece = self.buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let got = self.bytes.read(&mut self.buffer[..piece], at)?;
            if got == 0 {
                return Ok(None);
            }
            candidate.update(&self.buffer[..got]);
            at += got as u64;
        }
        Ok(Some(candidate.number()))
    }
}

/// Returns the end of the last byte that is not zero; `from` if there is none behind it.
///
/// # Errors
/// The bytes cannot be read.
pub(super) fn solid_end<B: Bytes + ?Sized>(bytes: &B, from: u64) -> io::Result<u64> {
    let mut window = vec![0; WINDOW];
    let mut end = bytes.length()?;
    while end > from {
        let start = end.saturating_sub(WINDOW as u64).max(from);
        let size = usize::try_from(end - start).expect("no more than a window");
        let present = bytes.read(&mut window[..size], start)?;
        if let Some(last) = window[..present].iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(from)
}

#[cfg(test)]
mod tests {
    use scrubjay_core::entry::{Direction, Entry, EntryKind, Terminator, Transport};

    use super::super::frame::encode_head;
    use super::*;

    /// Frames of `count` equal entries with consecutive numbers.
    fn frames(first: u64, count: u64) -> Vec<u8> {
        let entry = Entry {
            kind: EntryKind::Message,
            direction: Direction::ClientToServer,
            transport: Transport::Stdio,
            terminator: Terminator::Lf,
            wall_ns: 1,
            since_start_ns: 1,
            processing_ns: 1,
            via: None,
            connection: 0,
            operation: None,
            rule_marks: scrubjay_core::entry::RuleMarks::default(),
            payload: &b"{}"[..],
        };
        let mut bytes = Vec::new();
        for number in first..first + count {
            encode_head(number, &entry, &mut bytes);
            bytes.extend_from_slice(entry.payload);
        }
        bytes
    }

    fn check(bytes: &[u8], work_bytes: u64, found: Option<(u64, u64)>) {
        let lost = FramePosition { offset: 0, number: 7 };
        let place = next_frame(bytes, lost, &mut { work_bytes }).unwrap();
        assert_eq!(place.map(|p| (p.offset, p.number)), found);
    }

    #[test]
    fn a_frame_is_found_behind_damage_within_the_work_limit() {
        let bytes = [vec![0xAA; 100_000], frames(8, 1)].concat();
        check(&bytes, WORK_BYTES_MAX, Some((100_000, 8)));
        check(&bytes, 34, Some((100_000, 8)));
        check(&bytes, 33, None);
        // Candidates that turn out to be no frames use up work as well.
        let bytes = [frames(1 << 30, 1), vec![0xAA; 100], frames(8, 1)].concat();
        check(&bytes, WORK_BYTES_MAX, Some((134, 8)));
        check(&bytes, 60, None);
        check(&[0xAA; 100], WORK_BYTES_MAX, None);
        check(&[], WORK_BYTES_MAX, None);
    }

    #[test]
    fn large_jumps_of_entry_numbers_need_a_second_frame() {
        check(&frames(7 + 16, 1), WORK_BYTES_MAX, Some((0, 23)));
        check(&frames(7 + 17, 1), WORK_BYTES_MAX, None);
        check(&frames(7 + 17, 2), WORK_BYTES_MAX, Some((0, 24)));
        check(&frames(7 + (1 << 25), 2), WORK_BYTES_MAX, None);
        // Enough bytes for the missing entries make a jump plausible.
        check(&[vec![0; 1000], frames(7 + 40, 1)].concat(), WORK_BYTES_MAX, Some((1000, 47)));
        // Earlier entries are not found again, nor the lost position itself.
        check(&frames(6, 3), WORK_BYTES_MAX, Some((34, 7)));
        check(&frames(7, 1), WORK_BYTES_MAX, None);
    }
}
