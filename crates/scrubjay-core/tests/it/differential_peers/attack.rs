//! Makes lines that try to smuggle a call past rules: calls of harmless tools, mutated.
//!
//! A call is made of raw keys and values, so that both can be anything; then its text is mutated.

use crate::random::Random;

/// A call that no policy permits.
pub(super) const EVIL: &str = r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"delete_all","arguments":{"path":"/etc/passwd"}}}"#;

/// Raw keys (with their quotes) and raw values.
type Members = Vec<(String, Vec<u8>)>;

struct Shape {
    envelope: Members,
    params: Members,
    arguments: Members,
}

/// Everything that some reader takes for a line end or for white space, and a few others.
const SEPARATORS: [&str; 22] = [
    "\r", "\r\n", "\n", "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{1f}", "\u{85}", "\u{2028}",
    "\u{2029}", "\u{a0}", "\u{feff}", "\u{0}", "\u{1a}", " ", "\t", "", ",", ";", "\u{200b}",
];
const ODD_VALUES: [&str; 26] = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e400",
    "1E5",
    "01",
    "1.",
    ".5",
    "+1",
    "0x10",
    "1_000",
    "undefined",
    "True",
    "None",
    "'x'",
    "18446744073709551616",
    "9007199254740993",
    "-0",
    "1.0",
    "[1,]",
    "{\"a\":1,}",
    "\"\\x41\"",
    "\"\\ud800\"",
    "\"\\udc00\\ud800\"",
    "\"\t\"",
];
const ODD_NAMES: [&str; 22] = [
    r#"["delete_all"]"#,
    r#" "delete_all""#,
    r#""delete_all ""#,
    r#"" delete_all""#,
    r#""delete_all\u0000""#,
    r#""delete_all\u0000x""#,
    r#""\u0064elete_all""#,
    r#""delete\u005fall""#,
    r#""delete_all\n""#,
    r#""DELETE_ALL""#,
    r#""delete_\u0061ll""#,
    r#""\ud835\udc1delete_all""#,
    r#""ｄelete_all""#,
    r#""delete_all\ud800""#,
    r#""de\u00adlete_all""#,
    r#""\ufeffdelete_all""#,
    r#"{"name":"delete_all"}"#,
    "null",
    "0",
    "true",
    r#""delete\/all""#,
    r#""{\"name\":\"delete_all\"}""#,
];
const KEYS: [&str; 8] = ["jsonrpc", "id", "method", "params", "name", "arguments", "path", "_meta"];

fn quoted(key: &str) -> String {
    format!("\"{key}\"")
}

/// Spells a key in a way that some reader may still accept.
fn spelled(random: &mut Random, key: &str) -> String {
    match random.below(8) {
        0 => quoted(&key.to_uppercase()),
        1 => {
            let mut letters: Vec<char> = key.chars().collect();
            let at = random.below(letters.len());
            letters[at] = letters[at].to_ascii_uppercase();
            quoted(&letters.into_iter().collect::<String>())
        }
        2 => quoted(&key.replace('s', "\u{17f}").replace('k', "\u{212a}")),
        3 => quoted(&key.replace('i', random.pick(&["\u{131}", "\u{130}"]))),
        4 => {
            let at = random.below(key.len());
            let code = u32::from(key.as_bytes()[at]);
            let escape = if random.one_in(2) { format!("\\u{code:04x}") } else { format!("\\u{code:04X}") };
            quoted(&format!("{}{escape}{}", &key[..at], &key[at + 1..]))
        }
        5 => random.pick(&[key.to_owned(), format!("'{key}'")].each_ref().map(String::as_str)).to_owned(),
        6 => quoted(&format!("{key}{}", random.pick(&["\\u0000", " ", "\u{0}", "\u{200b}", "_", "\\"]))),
        _ => quoted(key),
    }
}

impl Shape {
    fn new(random: &mut Random) -> Self {
        let id = random.pick(&[
            "1",
            "2",
            "\"a\"",
            "1.0",
            "1e0",
            "123456789012345678901234567890",
            "null",
            "-1",
            "[1]",
        ]);
        let method =
            random.pick(&["tools/call", "tools/call", "tools/call", "tools/call", "ping", "tools\\/call"]);
        let mut envelope: Members = vec![
            (quoted("jsonrpc"), b"\"2.0\"".to_vec()),
            (quoted("method"), quoted(method).into_bytes()),
            (quoted("params"), Vec::new()),
        ];
        let id = if random.one_in(3) { id } else { "1" };
        if !random.one_in(8) {
            envelope.push((quoted("id"), id.as_bytes().to_vec()));
        }
        let name = random.pick(&["echo", "echo", "read"]);
        let path = random.pick(&["/tmp/x", "/tmp/x", "/home/x", "", "\\/etc/x"]);
        let mut arguments: Members = vec![(quoted("x"), b"0".to_vec())];
        if !random.one_in(3) {
            arguments.push((quoted("path"), quoted(path).into_bytes()));
        }
        let params = vec![(quoted("name"), quoted(name).into_bytes()), (quoted("arguments"), Vec::new())];
        Self { envelope, params, arguments }
    }

    /// The object in which a key stands.
    fn place(&mut self, key: &str) -> &mut Members {
        match key {
            "name" | "arguments" | "_meta" => &mut self.params,
            "path" | "x" => &mut self.arguments,
            _ => &mut self.envelope,
        }
    }

    /// Adds a member with this key and a forbidden value, before or after the existing ones.
    fn add_evil(&mut self, random: &mut Random) {
        let key = random.pick(&KEYS);
        let value: &str = match key {
            "method" => {
                random.pick(&["\"tools/call\"", "[\"tools/call\"]", "\"tools/call\\u0000\"", "\"ping\""])
            }
            "params" => random.pick(&[
                r#"{"name":"delete_all","arguments":{"path":"/etc/passwd"}}"#,
                r#"[{"name":"delete_all"}]"#,
                r#"["delete_all",{}]"#,
                r#""{\"name\":\"delete_all\"}""#,
            ]),
            "name" => {
                if random.one_in(3) {
                    "\"delete_all\""
                } else {
                    random.pick(&ODD_NAMES)
                }
            }
            "arguments" => random.pick(&[
                r#"{"path":"/etc/passwd"}"#,
                r#""{\"path\":\"/etc/passwd\"}""#,
                "[]",
                "null",
                "[\"/etc\"]",
            ]),
            "path" => random.pick(&[
                "\"/etc/passwd\"",
                "\"\\/etc\"",
                "[\"/etc\"]",
                "\"/etc\\u0000\"",
                "\"\\u002fetc\"",
            ]),
            "_meta" => random.pick(&["{\"progressToken\":1,\"PROGRESSTOKEN\":2}", "{}", "[]"]),
            _ => random.pick(&["\"2.0\"", "7", "\"1.0\"", "{}"]),
        };
        let spelling = spelled(random, key);
        let is_first = random.one_in(2);
        let replaces = random.one_in(3);
        let place = self.place(key);
        if replaces {
            place.retain(|(known, _)| *known != quoted(key));
        }
        place.insert(if is_first { 0 } else { place.len() }, (spelling, value.as_bytes().to_vec()));
    }

    fn add_odd(&mut self, random: &mut Random) {
        let value = match random.below(8) {
            0 => {
                let separator = random.pick(&SEPARATORS);
                format!("[{separator}{EVIL}{separator}]")
            }
            1 => {
                // A forbidden call within a string, between characters that some readers take for line ends.
                let separator = random.pick(&SEPARATORS);
                let escaped = serde_json::Value::from(EVIL).to_string();
                let inside = &escaped[1..escaped.len() - 1];
                format!("\"a{separator}{inside}{separator}\"")
            }
            2 => format!("{}{}{}", "[".repeat(random.below(400)), EVIL, "]".repeat(random.below(400))),
            3 => {
                let depth = random.below(200);
                format!("{}{EVIL}{}", "[".repeat(depth), "]".repeat(depth))
            }
            4 => {
                let (open, close) = random.pick(&[("/*", "*/"), ("//", ""), ("#", "\r"), ("<!--", "-->")]);
                format!("1{open}{EVIL}{close}")
            }
            5 => format!(r#"{{"__proto__":{{"path":"/etc/passwd","name":"delete_all"}},"y":{EVIL}}}"#),
            6 => {
                format!("{{\"A\":1,\"a\":2,\"{}\":\"\u{2028}é😀\u{85}\"}}", random.pick(&["a", "b", "Path"]))
            }
            _ => random.pick(&ODD_VALUES).to_owned(),
        };
        let key = random.pick(&["x", "y", "__proto__", "_meta", "id"]);
        let place = if random.one_in(3) { &mut self.params } else { &mut self.arguments };
        place.retain(|(known, _)| *known != quoted(key));
        place.push((quoted(key), value.into_bytes()));
    }

    fn text(&self, random: &mut Random, is_spaced: bool) -> Vec<u8> {
        let arguments = object(&self.arguments, None, random, is_spaced);
        let params = object(&self.params, Some(("\"arguments\"", &arguments)), random, is_spaced);
        object(&self.envelope, Some(("\"params\"", &params)), random, is_spaced)
    }
}

/// Writes an object; an empty value stands for the inner text.
fn object(members: &Members, inner: Option<(&str, &[u8])>, random: &mut Random, is_spaced: bool) -> Vec<u8> {
    let mut out = b"{".to_vec();
    let space = |out: &mut Vec<u8>, random: &mut Random| {
        if is_spaced {
            let space =
                if random.one_in(12) { random.pick(&SEPARATORS) } else { random.pick(&[" ", "\t", ""]) };
            out.extend_from_slice(space.as_bytes());
        }
    };
    for (n, (key, value)) in members.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        space(&mut out, random);
        out.extend_from_slice(key.as_bytes());
        space(&mut out, random);
        out.push(b':');
        space(&mut out, random);
        match inner {
            Some((_, inner)) if value.is_empty() => out.extend_from_slice(inner),
            _ => out.extend_from_slice(value),
        }
        space(&mut out, random);
    }
    out.push(b'}');
    out
}

/// Changes a text as a whole.
fn mutate(random: &mut Random, text: &mut Vec<u8>) {
    let evil = EVIL.as_bytes();
    let separator = random.pick(&SEPARATORS).as_bytes();
    match random.below(14) {
        0 => text.splice(..0, b"\xef\xbb\xbf".iter().copied()).for_each(drop),
        1 => text.extend([separator, evil].concat()),
        2 => text.splice(..0, [evil, separator].concat()).for_each(drop),
        3 => *text = [b"[", text.as_slice(), b",", evil, b"]"].concat(),
        4 => *text = [b"[", text.as_slice(), b"]"].concat(),
        5 => *text = [b"[", text.as_slice(), b",", text.as_slice(), b"]"].concat(),
        6 => *text = [b"[[", evil, b"],", text.as_slice(), b"]"].concat(),
        7 => {
            // Not UTF-8, or an invalid form of it.
            let odd: [&[u8]; 7] = [
                b"\xff",
                b"\xc0\x8a",
                b"\xc1\xa4elete_all",
                b"\xed\xa0\x80",
                b"\xe2\x80",
                b"\xf8\x88\x80\x80\x80",
                b"\x85",
            ];
            let (at, odd) = (random.below(text.len() + 1), random.pick(&odd));
            text.splice(at..at, odd.iter().copied());
        }
        8 => {
            let at = random.below(text.len() + 1);
            text.splice(at..at, separator.iter().copied());
        }
        9 => {
            let at = random.below(text.len());
            text.remove(at);
        }
        10 => {
            let at = random.below(text.len());
            text[at] = random.pick(b"{}[]\",:\\\r\0 da0");
        }
        11 => {
            // In another encoding.
            let plain = String::from_utf8_lossy(if random.one_in(2) { evil } else { text }).into_owned();
            *text = match random.below(3) {
                0 => plain.encode_utf16().flat_map(u16::to_le_bytes).collect(),
                1 => plain.encode_utf16().flat_map(u16::to_be_bytes).collect(),
                _ => plain.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect(),
            };
        }
        12 => {
            // Letters replaced by escapes.
            let at = random.below(text.len());
            if text[at].is_ascii_alphabetic() {
                let escape = format!("\\u{:04x}", text[at]);
                text.splice(at..=at, escape.into_bytes());
            }
        }
        _ => text.extend_from_slice(separator),
    }
}

/// Makes a line.
pub(super) fn make(random: &mut Random) -> Vec<u8> {
    let mut shape = Shape::new(random);
    for _ in 0..random.pick(&[0, 0, 1, 1, 2]) {
        shape.add_evil(random);
    }
    for _ in 0..random.pick(&[0, 0, 1]) {
        shape.add_odd(random);
    }
    let is_spaced = random.one_in(4);
    let mut text = shape.text(random, is_spaced);
    for _ in 0..random.pick(&[0, 0, 0, 1, 2]) {
        mutate(random, &mut text);
    }
    // Our line reader has already split the stream at line feeds.
    text.retain(|byte| *byte != b'\n');
    if text.last() == Some(&b'\r') && random.one_in(2) {
        text.pop();
    }
    text
}
