//! Decompresses blocks that may be damaged, without trusting the sizes they claim.

use std::cell::RefCell;

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// No block asks for a larger window, whatever a damaged one says: level 3 never takes more than 2 MiB.
const WINDOW_LOG_MAX: u32 = 23;
/// How much is decompressed at once; a block is rarely larger.
const DECOMPRESS_BYTES: usize = 1 << 20;
/// Decompresses as far as the bytes are sound, and returns whether all was.
///
/// Where they are not, anything may follow what is sound, and zeros.
pub(in crate::format) fn decompress(stored: &[u8], plain_bytes: u32, out: &mut Vec<u8>) -> bool {
    out.clear();
    let limit = plain_bytes as usize;
    DECODER.with_borrow_mut(|kept| decompress_with(kept, stored, limit, out))
}

thread_local! {
    /// Making one takes longer than most footers take to decompress; who lists thousands of tapes needs thousands.
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
        // The size is only a claim: memory is taken as bytes come. One byte too many shows that it lies.
        out.resize(from + DECOMPRESS_BYTES.min(limit - from + 1), 0);
        let mut output = OutBuffer::around(&mut out[from..]);
        // On an error the decoder does not tell how much it wrote before: all stays, checksums will tell.
        let Ok(wants) = decoder.run(&mut input, &mut output) else { return false };
        let written = output.pos();
        out.truncate(from + written);
        let ended = wants == 0 || (written == 0 && input.pos() == stored.len());
        if ended || out.len() > limit {
            return wants == 0 && out.len() == limit && input.pos() == stored.len();
        }
    }
}
