//! The text of a large answer: log lines as a server would return them, the same on every run.
//!
//! Times, ids and words vary from a seeded generator, so the text compresses moderately (about
//! as logs do) instead of collapsing as a single repeated byte would. It is already escaped for
//! a JSON string.

const LEVELS: &str = "INFO INFO DEBUG WARN ERROR";
const PLACES: &str = "relay::session store::tape http::server pool::lease auth::token cache::shard \
job::queue index::merge";
const WORDS: &str = "opened closed request response after before retry timeout connection peer cache \
key miss hit token expired user account updated while reading writing block segment offset commit \
rollback queue full drained worker started stopped with from into batch of records checksum verified \
index merged slow query plan schema migration";

/// Returns exactly `bytes` bytes of escaped log text.
pub fn log_text(bytes: usize) -> Vec<u8> {
    let lines = Lines {
        levels: LEVELS.split(' ').collect(),
        places: PLACES.split(' ').collect(),
        words: WORDS.split(' ').collect(),
    };
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut text = Vec::with_capacity(bytes + 512);
    let mut millis = 0;
    while text.len() < bytes {
        millis += random.below(90);
        lines.push_one(&mut text, &mut random, millis);
    }
    cut_at_line(&mut text, bytes);
    text
}

struct Lines {
    levels: Vec<&'static str>,
    places: Vec<&'static str>,
    words: Vec<&'static str>,
}

impl Lines {
    fn push_one(&self, text: &mut Vec<u8>, random: &mut Random, millis: u64) {
        let (hour, minute, second) = (millis / 3_600_000 % 24, millis / 60_000 % 60, millis / 1000 % 60);
        let (level, place) = (random.pick(&self.levels), random.pick(&self.places));
        let head = format!(
            "2025-11-15T{hour:02}:{minute:02}:{second:02}.{:03}Z {level:<5} {place} conn={:06x} msg=\\\"",
            millis % 1000,
            random.below(1 << 24),
        );
        text.extend_from_slice(head.as_bytes());
        for _ in 0..4 + random.below(6) {
            text.extend_from_slice(random.pick(&self.words).as_bytes());
            text.push(b' ');
        }
        let tail = format!("\\\" took_us={} bytes={}\\n", random.below(20_000), random.below(1 << 20));
        text.extend_from_slice(tail.as_bytes());
    }
}

// Cutting inside an escape would make the JSON invalid: cut after a whole line and fill up.
fn cut_at_line(text: &mut Vec<u8>, bytes: usize) {
    text.truncate(bytes);
    let line_end = text.windows(2).rposition(|pair| pair == b"\\n").map_or(0, |at| at + 2);
    text.truncate(line_end);
    text.resize(bytes, b'.');
}

// xorshift64*: small, fast and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    fn pick<'words>(&mut self, words: &[&'words str]) -> &'words str {
        words[self.below(words.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_requested_size_and_no_raw_control_byte() {
        for bytes in [0, 1, 40, 1000, 100_000] {
            let text = log_text(bytes);
            assert_eq!(text.len(), bytes);
            assert!(text.iter().all(|&byte| (b' '..0x7f).contains(&byte)));
            assert!(!text.ends_with(b"\\"), "an escape was cut");
        }
    }

    #[test]
    fn the_text_is_the_same_every_time() {
        assert_eq!(log_text(5000), log_text(5000));
    }
}
