//! Decompresses blocks that may be damaged, without trusting the sizes they claim.

use std::cell::RefCell;

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// The largest window a block may ask for (8 MiB), so that a forged one cannot take more memory. Level 3 needs 2 MiB.
const WINDOW_LOG_MAX: u32 = 23;
/// How much is decompressed at a time: rarely is a block larger than 1 MiB.
const DECOMPRESS_BYTES: usize = 1 << 20;

/// Decompresses as far as the bytes are valid, and returns whether all of them were.
///
/// If not, `out` may end with garbage or zeros; checksums of frames tell.
pub(in crate::format) fn decompress(stored: &[u8], plain_bytes: u32, out: &mut Vec<u8>) -> bool {
    out.clear();
    let limit = plain_bytes as usize;
    DECODER.with_borrow_mut(|kept| decompress_with(kept, stored, limit, out))
}

thread_local! {
    /// Reused, because creating a decoder takes longer than decompressing most footers, and listings read thousands.
    static DECODER: RefCell<Option<Decoder<'static>>> = const { RefCell::new(None) };
}

fn decompress_with(
    kept: &mut Option<Decoder<'static>>,
    stored: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> bool {
    if kept.as_mut().is_none_or(|decoder| decoder.reinit().is_err()) {
        *kept = Decoder::new().ok();
    }
    let Some(decoder) = kept else { return false };
    if decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).is_err() {
        return false;
    }
    let mut input = InBuffer::around(stored);
    loop {
        let from = out.len();
        // The claimed size may be forged, so memory grows with the output. One byte more than claimed proves it wrong.
        out.resize(from + DECOMPRESS_BYTES.min(limit - from + 1), 0);
        let mut output = OutBuffer::around(&mut out[from..]);
        // On an error the decoder does not say how much it wrote, so everything stays; checksums tell what is valid.
        let Ok(wants) = decoder.run(&mut input, &mut output) else { return false };
        let written = output.pos();
        out.truncate(from + written);
        let ended = wants == 0 || (written == 0 && input.pos() == stored.len());
        if ended || out.len() > limit {
            return wants == 0 && out.len() == limit && input.pos() == stored.len();
        }
    }
}
