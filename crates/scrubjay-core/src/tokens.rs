//! Estimates how many tokens a text costs a model, as the tokenizer `o200k` would count them.
//!
//! Cuts the text as `o200k` does before it looks into its table (words with the character before them, digits by three,
//! punctuation, white space), and adds up what pieces of each kind and length cost on average (`tokens/costs.rs`). The
//! table itself has 200,000 rows and 2 MB; without it the sum is within a few per cent on code, JSON, logs and prose
//! (docs/SEARCH.md has the figures), in one pass and without allocating. Other models count up to a third differently,
//! so every view that shows these numbers must call them estimates.

mod costs;
mod script;

use self::costs::{
    CAPITAL, JSON, LOWER, MIXED, PUNCTUATION, RANDOM_CAPITAL, RANDOM_LOWER, RANDOM_MIXED, RANDOM_UPPER,
    SPACED, SPACED_CAPITAL, TOKEN, UPPER, cost, lead_cost,
};
use self::script::Script;

/// The tokens of an image in an answer, regardless of its bytes: between a small one and a full screen.
pub(crate) const IMAGE_TOKENS: u64 = 1000;

/// The kinds of bytes, as bits; a byte may have several.
const LOWER_CASE: u8 = 1;
const UPPER_CASE: u8 = 2;
const DIGIT: u8 = 4;
const SPACE: u8 = 8;
const LINE_END: u8 = 16;
const SIGN: u8 = 32;
/// Occurs between the values of JSON.
const JSON_SIGN: u8 = 64;
/// Occurs in base64.
const DATA_SIGN: u8 = 128;
const LETTER: u8 = LOWER_CASE | UPPER_CASE;

/// The kinds of each byte: one lookup instead of several comparisons.
static KINDS: [u8; 256] = kinds();

const fn kinds() -> [u8; 256] {
    let mut kinds = [0; 256];
    let mut byte = 0u8;
    while byte < 0x80 {
        kinds[byte as usize] = match byte {
            b'a'..=b'z' => LOWER_CASE,
            b'A'..=b'Z' => UPPER_CASE,
            b'0'..=b'9' => DIGIT,
            b'\n' | b'\r' => SPACE | LINE_END,
            b' ' | b'\t' | 0x0b | 0x0c => SPACE,
            b'"' | b'{' | b'}' | b'[' | b']' | b':' | b',' => SIGN | JSON_SIGN,
            b'+' | b'/' | b'=' => SIGN | DATA_SIGN,
            _ => SIGN,
        };
        byte += 1;
    }
    kinds
}

fn kind(byte: u8) -> u8 {
    KINDS[usize::from(byte)]
}

/// Returns how many bytes at the beginning are of a kind.
fn run(bytes: &[u8], of: u8) -> usize {
    bytes.iter().position(|byte| kind(*byte) & of == 0).unwrap_or(bytes.len())
}

/// Estimates how many tokens a text has.
#[must_use]
pub fn estimate_tokens(text: &str) -> usize {
    let mut pieces = Pieces::new(text);
    while pieces.advance() {}
    pieces.tokens()
}

/// Returns the longest beginning of a text with at most this many tokens.
#[must_use]
pub fn beginning(text: &str, tokens_max: usize) -> &str {
    let mut pieces = Pieces::new(text);
    loop {
        let end = pieces.at;
        if !pieces.advance() {
            return text;
        }
        if pieces.tokens() > tokens_max {
            // Pieces end between characters; `get` only avoids a panic if one did not.
            return text.get(..end).unwrap_or_default();
        }
    }
}

/// Reads a text piece by piece.
struct Pieces<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The cost so far, in hundredths of a token.
    cost: u64,
    /// How often letters and digits have alternated with nothing between them, which ids do and words do not.
    alternations: u8,
    last: Last,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Letter,
    Digit,
    /// A quotation mark: the word after it is as common in the table as after a space.
    Quote,
    Other,
}

impl<'a> Pieces<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0, cost: 0, alternations: 0, last: Last::Other }
    }

    fn tokens(&self) -> usize {
        let tokens = ((self.cost + TOKEN / 2) / TOKEN).max(u64::from(self.cost > 0));
        usize::try_from(tokens).unwrap_or(usize::MAX)
    }

    /// Reads the next piece; returns whether there was one.
    fn advance(&mut self) -> bool {
        let Some(&byte) = self.bytes.get(self.at) else { return false };
        match kind(byte) {
            LOWER_CASE | UPPER_CASE => self.word(None),
            DIGIT => self.digits(),
            0 => self.foreign(),
            of if of & SPACE != 0 => self.space(),
            _ => self.punctuation(self.at),
        }
        true
    }

    /// Returns the byte there; after the end a line end, which belongs to no piece before it.
    fn peek(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(b'\n')
    }

    /// Reads ASCII letters: capitals, then small ones.
    fn word(&mut self, lead: Option<u8>) {
        if self.last == Last::Digit {
            self.alternations = self.alternations.saturating_add(1);
        }
        let is_spaced = lead == Some(b' ') || self.last == Last::Quote;
        self.last = Last::Letter;
        let rest = &self.bytes[self.at..];
        let upper = run(rest, UPPER_CASE);
        let lower = run(&rest[upper..], LOWER_CASE);
        let length = upper + lower;
        let is_random = self.alternations >= 2;
        let costs = match (upper, lower, is_random) {
            (0, _, true) => RANDOM_LOWER,
            (0, _, false) if is_spaced => SPACED,
            (0, _, false) => LOWER,
            (1, _, true) => RANDOM_CAPITAL,
            (1, _, false) if is_spaced => SPACED_CAPITAL,
            (1, _, false) => CAPITAL,
            (_, 0, true) => RANDOM_UPPER,
            (_, 0, false) => UPPER,
            (_, _, true) => RANDOM_MIXED,
            (_, _, false) => MIXED,
        };
        self.cost += cost(costs, length) + lead.map_or(0, lead_cost);
        self.at += length;
        if lower > 0 && self.peek(self.at) == b'\'' {
            self.contraction();
        }
    }

    /// Reads the end of `it's` or `they'll`, which is part of the word.
    fn contraction(&mut self) {
        let length = match (self.peek(self.at + 1) | 0x20, self.peek(self.at + 2) | 0x20) {
            (b's' | b't' | b'm' | b'd', next) if !next.is_ascii_lowercase() => 2,
            (b'r' | b'v', b'e') | (b'l', b'l') => 3,
            _ => return,
        };
        self.at += length;
        self.cost += TOKEN * 4 / 10;
    }

    /// Reads digits, three of which are a token.
    fn digits(&mut self) {
        if self.last == Last::Letter {
            self.alternations = self.alternations.saturating_add(1);
        }
        self.last = Last::Digit;
        let length = run(&self.bytes[self.at..], DIGIT);
        self.cost += length.div_ceil(3) as u64 * TOKEN;
        self.at += length;
    }

    /// Reads white space; its last character belongs to the next piece.
    fn space(&mut self) {
        (self.alternations, self.last) = (0, Last::Other);
        let rest = &self.bytes[self.at..];
        let length = run(rest, SPACE);
        let lines = rest[..length].iter().rposition(|b| kind(*b) & LINE_END != 0).map_or(0, |at| at + 1);
        let behind = length - lines;
        let (next, before) = (self.peek(self.at + length), self.peek(self.at + length - 1));
        // Long indentation is in the table up to about 80 characters.
        self.cost += if lines > 0 { TOKEN + lines as u64 / 80 * TOKEN } else { 0 };
        let is_word = kind(next) & LETTER != 0;
        let is_led = is_word || before == b' ' && (kind(next) & SIGN != 0 || next >= 0x80);
        let is_lead = behind > 0 && is_led;
        let alone = behind - usize::from(is_lead);
        self.cost += if alone > 0 { TOKEN + alone as u64 / 80 * TOKEN } else { 0 };
        self.at += length;
        if is_lead && is_word {
            self.word(Some(before));
        } else if is_lead && next < 0x80 {
            self.punctuation(self.at);
        } else if is_lead {
            self.foreign();
        }
    }

    /// Reads punctuation; a single character belongs to the word after it.
    fn punctuation(&mut self, begin: usize) {
        let rest = &self.bytes[begin..];
        let length = run(rest, SIGN);
        let (signs, first) = (&rest[..length], rest[0]);
        let shared = signs.iter().fold(!0, |shared, byte| shared & kind(*byte));
        // Base64 has `+`, `/` and `=` within it, so these do not end a random run.
        if shared & DATA_SIGN == 0 {
            (self.alternations, self.last) = (0, Last::Other);
        }
        let is_behind_space = begin > 0 && self.bytes[begin - 1] == b' ';
        if length == 1 && kind(self.peek(begin + 1)) & LETTER != 0 && !is_behind_space {
            self.at = begin + 1;
            return self.word(Some(first));
        }
        let is_line = length > 5 && signs.iter().all(|b| *b == first);
        let is_json = shared & JSON_SIGN != 0;
        self.cost += match (is_line, is_json) {
            (true, _) => TOKEN + length as u64 * 4,
            (false, true) => cost(JSON, length),
            (false, false) => cost(PUNCTUATION, length),
        };
        if rest[length - 1] == b'"' {
            self.last = Last::Quote;
        }
        // Line ends right after it belong to it.
        let ends = run(&rest[length..], LINE_END);
        self.at = begin + length + ends;
    }

    /// Reads letters or signs beyond ASCII: a run of one script, or repetitions of one sign.
    fn foreign(&mut self) {
        (self.alternations, self.last) = (0, Last::Other);
        let Some(first) = self.text.get(self.at..).and_then(|rest| rest.chars().next()) else {
            self.at = self.bytes.len();
            return;
        };
        let rest = &self.text[self.at..];
        let script = Script::of(first);
        let (mut count, mut bytes) = (0u64, 0);
        for c in rest.chars() {
            let belongs = if script == Script::Sign { c == first } else { Script::of(c).goes_with(script) };
            if !belongs {
                break;
            }
            count += 1;
            bytes += c.len_utf8();
        }
        self.cost += script.cost(count);
        self.at += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The count of `o200k` itself, and the allowed error of the estimate for such a short text, in per cent.
    fn check(exact: usize, text: &str) {
        let estimated = estimate_tokens(text);
        let off = estimated.abs_diff(exact) * 100 / exact;
        assert!(off <= 30, "{estimated} for {exact}: {text}");
    }

    #[test]
    fn estimates_are_near_what_the_tokenizer_counts() {
        check(
            38,
            "The relay forwards a message only after it was recorded. If the disk is full, nothing is forwarded, and the client hears an error that names the file and says what to do next.",
        );
        check(
            33,
            "pub fn tokens(text: &str) -> u64 {\n    let mut pieces = Pieces::new(text);\n    while pieces.advance() {}\n    pieces.tokens()\n}\n",
        );
        check(
            63,
            r#"{"name":"read_file","description":"Read the complete contents of a file as text.","inputSchema":{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"number","description":"If provided, returns only the first N lines"}},"required":["path"],"additionalProperties":false}}"#,
        );
        check(
            53,
            "2026-11-17 06:40:44.123 ERROR [pool-3-thread-7] com.example.OrderService - order 84731 failed: java.net.ConnectException: Connection refused (10.0.3.17:5432)\n",
        );
        check(
            59,
            "drwxr-xr-x  2 root root    4096 Nov 17 05:57 src\n-rw-r--r--  1 root root 9130169 Nov 17 05:57 gpt-tokenizer-4.0.0.tgz\n",
        );
        check(
            66,
            "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg==",
        );
        check(49, "3f2a9c01-77de-4b1c-9a55-0c6f1e2d3b4a 9b74c9897bac770ffc029102a200c5de");
        check(21, "请先阅读文档，然后再运行测试。如果出现错误，请检查日志文件并重新启动服务器。");
        check(19, "このツールはファイルを読み込み、その内容をテキストとして返します。");
        check(20, "Сервер не отвечает на запросы, проверьте подключение и попробуйте ещё раз.");
        assert_eq!(["", "a", "it\'s", "1234", "\n\n\n"].map(estimate_tokens), [0, 1, 1, 2, 1]);
    }

    #[test]
    fn a_beginning_stays_within_the_token_limit() {
        let text = "Größe und Länge: 12345 Zeichen, それで終わり.";
        let all = estimate_tokens(text);
        for max in 0..=all {
            let cut = beginning(text, max);
            assert!(estimate_tokens(cut) <= max && text.starts_with(cut), "{max}: {cut}");
        }
        assert_eq!((beginning(text, all), beginning(text, 0)), (text, ""));
    }

    proptest! {
        #[test]
        fn any_text_has_a_number_of_tokens(text in any::<String>(), max in 0usize..50) {
            prop_assert!(estimate_tokens(&text) <= 4 * text.chars().count());
            prop_assert_eq!(estimate_tokens(&text) == 0, text.is_empty());
            prop_assert!(estimate_tokens(beginning(&text, max)) <= max);
        }
    }
}
