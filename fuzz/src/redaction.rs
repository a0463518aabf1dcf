//! Redaction: valid JSON stays valid, redacting again changes nothing, the raw check agrees with the full search, and a
//! planted secret is removed.

use std::sync::LazyLock;

use scrubjay_core::redact::{LineContext, Redactor, SENSITIVE_FIELDS};
use serde::de::IgnoredAny;
use serde_json::json;

use crate::settings;

static STANDARD: LazyLock<Redactor> = LazyLock::new(Redactor::standard);

const RANDOM: &str = "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW1xY3zA5bC7dE9fG2hJ4kL6mN8pQ0rS";
/// A part of every secret below.
const TELLING: &str = "aB3dE5fG7hI9jK1lM2nO";

/// The most passes after the first until nothing more is redacted, besides one for each flag of a command.
const PASSES_MAX: usize = 8;

/// Secrets of several forms, put together here so that no scanner takes this file for a leak.
static SECRETS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let part = |n: usize| &RANDOM[..n];
    vec![
        format!("ghp_{}", part(36)),
        format!("github_pat_{}_{}", part(22), part(59)),
        format!("glpat-{}", part(20)),
        format!("npm_{}", part(36)),
        format!("sk-ant-api03-{}", part(60)),
        format!("sk-proj-{}", part(48)),
        format!("hf_{}", part(34)),
        format!("sk_live_{}", part(24)),
        format!("xoxb-123456789012-{}", part(24)),
        format!("AIza{}", part(35)),
        format!("hvs.{}", part(40)),
        format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{}", part(43)),
        format!("postgres://app:{}@db.example/x", part(20)),
        format!("password={}", part(20)),
        format!("Authorization: Bearer {}", part(32)),
        format!("Authorization: Digest username=\"a\", realm=\"b\", response=\"{}\"", part(32)),
        format!("[\"-----BEGIN RSA PRIVATE KEY-----\", \"{RANDOM}\", \"-----END RSA PRIVATE KEY-----\"]"),
        format!("\npassword: |\n  {}\n", part(20)),
        format!("\npassword:\n  {}\n", part(20)),
        format!("<password>{}</password>", part(20)),
        format!("curl -u bob:{} https://x.example", part(20)),
        format!("mysql -u root -p{} db", part(20)),
        format!("CREATE USER a IDENTIFIED BY '{}'", part(20)),
        format!("machine h.example login a password {}", part(20)),
        format!("&quot;password&quot;:&quot;{}&quot;", part(20)),
        format!("ghp%5F{}", part(36)),
        format!("%7B%22password%22%3A%22{}%22%7D", part(20)),
        format!("SECRET_KEY_BASE={}", part(40)),
    ]
});

/// Checks a message; the first byte chooses a secret, the second how it is planted, the third where.
pub fn check(data: &[u8]) {
    let Some(([secret, how, place], text)) = settings(data) else { return };
    laws(text);
    let mut lines = LineContext::default();
    for line in text.split(|byte| *byte == b'\n') {
        let once = lines.redact(&STANDARD, line).into_owned();
        // A line of a key may consist of digits only, which is JSON by accident.
        let is_message = matches!(line.trim_ascii_start().first(), Some(b'{' | b'['));
        assert!(
            !is_message || !is_json(line) || is_json(once.as_bytes()),
            "{}",
            String::from_utf8_lossy(line)
        );
    }
    if text.windows(TELLING.len()).any(|window| window == TELLING.as_bytes()) {
        return;
    }
    let secret = &SECRETS[usize::from(secret) % SECRETS.len()];
    let planted = plant(secret, how, usize::from(place) % (text.len() + 1), text);
    laws(&planted);
    let redacted = STANDARD.redact(&planted);
    let out = String::from_utf8_lossy(redacted.as_bytes());
    assert!(!out.contains(TELLING), "{secret} is left\n in {}\nout {out}", String::from_utf8_lossy(&planted));
}

fn plant(secret: &str, how: u8, place: usize, text: &[u8]) -> Vec<u8> {
    let (before, behind) = text.split_at(place);
    let words =
        || format!("{} {secret} {}", String::from_utf8_lossy(before), String::from_utf8_lossy(behind));
    match how % 6 {
        // Plain, between other words.
        0 => [before, b" ", secret.as_bytes(), b" ", behind].concat(),
        // In a string of a message.
        1 => json!({ "jsonrpc": "2.0", "id": 1, "result": { "content": [{ "type": "text", "text": words() }] } })
            .to_string()
            .into_bytes(),
        // In JSON inside a string of a message.
        2 => json!({ "params": { "arguments": { "x": json!({ "y": words() }).to_string() } } }).to_string().into_bytes(),
        // As a value of its own.
        3 => json!({ String::from_utf8_lossy(before): String::from_utf8_lossy(behind), "x": [secret] }).to_string().into_bytes(),
        // With every letter escaped.
        4 => {
            let escaped: String = secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            let around = serde_json::to_string(&String::from_utf8_lossy(text)).expect("it is text");
            format!(r#"{{"a":{around},"b":" {escaped} "}}"#).into_bytes()
        }
        // On a line of its own.
        _ => [before, b"\n", secret.as_bytes(), b"\n", behind].concat(),
    }
}

fn laws(text: &[u8]) {
    let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let once = STANDARD.redact(text);
    if is_json(text) {
        assert!(
            is_json(once.as_bytes()),
            "the output is not JSON\n in {}\nout {}",
            shown(text),
            shown(once.as_bytes())
        );
    }
    let (long, findings) = STANDARD.explain(text);
    // The raw check searches names in usual spellings only; the full search finds any, such as `p.ass_word`.
    let is_name = |rule: &str| rule == "telling-name" || SENSITIVE_FIELDS.contains(&rule);
    if once.is_changed() || findings.iter().any(|finding| !is_name(&finding.rule)) {
        assert_eq!(
            shown(long.as_bytes()),
            shown(once.as_bytes()),
            "the raw check missed a secret: {}",
            shown(text)
        );
    }
    // A mark is shorter than its secret, so words around it may come near enough to be read as a name and its value,
    // and a second pass redacts those. Marks are never redacted, so the number of passes is limited. Backspaces can hide
    // the flags of a command from each other: then each pass finds the password behind one more.
    let flags = text.windows(2).filter(|two| *two == b"-p" || *two == b"-u").count();
    let mut latest = once.as_bytes().to_vec();
    for _ in 0..PASSES_MAX + flags {
        let next = STANDARD.redact(&latest).as_bytes().to_vec();
        if next == latest {
            return;
        }
        latest = next;
    }
    panic!("redaction does not converge: {}\nlast {}", shown(text), shown(&latest));
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}
