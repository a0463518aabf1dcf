//! The messages of the benchmark, byte for byte: what the client sends and what it must get back.
//!
//! Client and server build from the same constants, so an answer that passed through a
//! transparent relay can be compared whole. Ids are found by byte search, not by parsing JSON:
//! the harness must cost next to nothing compared with what it measures.

/// How every message of the benchmark itself begins, up to the id.
pub const HEAD: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";

/// What follows the id in a small call: with id and newline about 200 bytes.
pub const ECHO_CALL: &[u8] = b",\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\
\"path\":\"/srv/app/src/relay/session.rs\",\"line\":118,\"query\":\"open connection after a retry\",\
\"context\":3}}}\n";

/// What follows the id in the answer to a small call: with id and newline about 200 bytes.
pub const ECHO_ANSWER: &[u8] = b",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"\
src/relay/session.rs:118: let connection = self.pool.open(peer).await?; // retried twice, then reported\
\"}],\"isError\":false}}\n";

/// The bytes between the id and the text of a large answer.
pub const TEXT_BEFORE: &[u8] = b",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"";

/// The bytes after the text of a large answer.
pub const TEXT_AFTER: &[u8] = b"\"}],\"isError\":false}}\n";

/// The notification that ends the handshake.
pub const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

/// The protocol version of the handshake.
pub const VERSION: &str = "2025-06-18";

const INITIALIZE: &[u8] = b",\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\
\"capabilities\":{},\"clientInfo\":{\"name\":\"wrap-bench\",\"version\":\"1\"}}}\n";

/// Appends the call that opens the connection.
pub fn push_initialize(out: &mut Vec<u8>, id: u64) {
    push_message(out, id, INITIALIZE);
}

/// Appends a small call.
pub fn push_echo_call(out: &mut Vec<u8>, id: u64) {
    push_message(out, id, ECHO_CALL);
}

/// Appends a call whose answer carries `text_bytes` bytes of text.
pub fn push_large_call(out: &mut Vec<u8>, id: u64, text_bytes: usize) {
    push_message(
        out,
        id,
        b",\"method\":\"tools/call\",\"params\":{\"name\":\"large\",\"arguments\":{\"size\":",
    );
    push_number(out, text_bytes as u64);
    out.extend_from_slice(b"}}}\n");
}

/// Returns whether `line` (with its newline) is exactly the answer to the small call `id`.
pub fn is_echo_answer(line: &[u8], id: u64) -> bool {
    starts_answer(line, id).is_some_and(|rest| rest == ECHO_ANSWER)
}

/// Returns whether `line` is a result for the small call `id`, in any spelling that a relay writes.
pub fn is_echo_result(line: &[u8], id: u64) -> bool {
    answer_id(line) == Some(id)
        && after(line, b"src/relay/session.rs:118").is_some()
        && after(line, b"\"error\"").is_none()
}

/// Returns what follows the id when `line` begins as a message with that id.
pub fn starts_answer(line: &[u8], id: u64) -> Option<&[u8]> {
    let rest = line.strip_prefix(HEAD)?;
    let (found, rest) = leading_number(rest)?;
    (found == id).then_some(rest)
}

/// Returns the length of the line that answers the large call `id`, newline included.
pub fn large_answer_bytes(id: u64, text_bytes: usize) -> usize {
    let mut digits = Vec::new();
    push_number(&mut digits, id);
    HEAD.len() + digits.len() + TEXT_BEFORE.len() + text_bytes + TEXT_AFTER.len()
}

/// Returns the numeric id of an answer in any key order: relays that parse may write it anew.
pub fn answer_id(line: &[u8]) -> Option<u64> {
    let raw = raw_id(line)?;
    leading_number(raw).and_then(|(id, rest)| rest.is_empty().then_some(id))
}

/// Returns the bytes of the id, quotes included if it is a string; none for a notification.
pub fn raw_id(line: &[u8]) -> Option<&[u8]> {
    let value = match line.strip_prefix(HEAD) {
        Some(rest) => rest,
        // Arguments and results of the benchmark never hold an `"id"`, so the first is the one.
        None => after(line, b"\"id\":")?,
    };
    let value = value.trim_ascii_start();
    let end = value.iter().position(|byte| matches!(byte, b',' | b'}'))?;
    Some(value[..end].trim_ascii_end())
}

/// Returns the string value of the first `"key":"value"`, with `key` given as `"key":`.
pub fn string_after<'line>(line: &'line [u8], key: &[u8]) -> Option<&'line [u8]> {
    let value = after(line, key)?.trim_ascii_start().strip_prefix(b"\"")?;
    let end = value.iter().position(|&byte| byte == b'"')?;
    Some(&value[..end])
}

/// Returns the number after the first `key`.
pub fn number_after(line: &[u8], key: &[u8]) -> Option<u64> {
    leading_number(after(line, key)?.trim_ascii_start()).map(|(number, _)| number)
}

/// Returns the place of the first newline.
pub fn find_newline(bytes: &[u8]) -> Option<usize> {
    // Whole blocks without an early exit become vector instructions; a 10 MiB answer is scanned
    // in about a millisecond, without a dependency.
    let (blocks, _) = bytes.as_chunks::<64>();
    let clean =
        blocks.iter().take_while(|block| !block.iter().fold(false, |hit, &b| hit | (b == b'\n'))).count();
    let from = clean * 64;
    bytes[from..].iter().position(|&byte| byte == b'\n').map(|at| from + at)
}

/// Appends a number in decimal, without the machinery of `fmt`.
pub fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn push_message(out: &mut Vec<u8>, id: u64, rest: &[u8]) {
    out.extend_from_slice(HEAD);
    push_number(out, id);
    out.extend_from_slice(rest);
}

fn after<'line>(line: &'line [u8], needle: &[u8]) -> Option<&'line [u8]> {
    let at = line.windows(needle.len()).position(|window| window == needle)?;
    Some(&line[at + needle.len()..])
}

fn leading_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes.iter().take(19).take_while(|byte| byte.is_ascii_digit()).count();
    let number = bytes[..digits].iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    (digits > 0).then_some((number, &bytes[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_are_about_200_bytes() {
        let mut call = Vec::new();
        push_echo_call(&mut call, 123_456);
        assert!((190..=210).contains(&call.len()), "{}", call.len());
        let answer = HEAD.len() + 6 + ECHO_ANSWER.len();
        assert!((190..=210).contains(&answer), "{answer}");
    }

    #[test]
    fn an_id_is_found_in_any_key_order() {
        let check = |line: &str, expected| assert_eq!(answer_id(line.as_bytes()), expected, "{line}");
        check("{\"jsonrpc\":\"2.0\",\"id\":17,\"result\":{}}\n", Some(17));
        check("{\"result\":{},\"jsonrpc\":\"2.0\",\"id\":17}\n", Some(17));
        check("{\"jsonrpc\": \"2.0\", \"id\": 17, \"result\": {}}\n", Some(17));
        check("{\"jsonrpc\":\"2.0\",\"id\":\"17\",\"result\":{}}\n", None);
        check("{\"jsonrpc\":\"2.0\",\"method\":\"ping\"}\n", None);
    }

    #[test]
    fn an_answer_with_another_id_or_body_is_refused() {
        let mut line = Vec::new();
        push_message(&mut line, 42, ECHO_ANSWER);
        assert!(is_echo_answer(&line, 42));
        assert!(!is_echo_answer(&line, 4));
        assert!(!is_echo_answer(&line[..line.len() - 1], 42));
    }

    #[test]
    fn a_newline_is_found_at_any_position() {
        for at in [0, 1, 63, 64, 65, 127, 128, 199] {
            let mut bytes = [b'x'; 200];
            bytes[at] = b'\n';
            assert_eq!(find_newline(&bytes), Some(at));
            assert_eq!(find_newline(&bytes[..at]), None);
        }
    }
}
