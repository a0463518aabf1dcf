//! Passwords as generators and people make them: with every symbol, in every way to write them down.

use base64::Engine;
use serde_json::{Value, json};

use super::{STANDARD, redact};

/// Checks that a canary is gone from a text, alone and in messages, and that both looks agree.
fn check_gone(text: &str, is_left: impl Fn(&str) -> bool) {
    for text in [
        text.to_owned(),
        json!({ "result": { "content": [{ "type": "text", "text": text }] } }).to_string(),
        json!({ "x": json!({ "y": text }).to_string() }).to_string(),
    ] {
        let out = redact(&text);
        assert!(!is_left(&out), "{text}\n{out}");
        assert_eq!(redact(&out), out, "twice is once");
        assert_eq!(STANDARD.explain(text.as_bytes()).0.as_bytes(), out.as_bytes(), "the quick look agrees");
        if serde_json::from_str::<Value>(&text).is_ok() {
            assert!(serde_json::from_str::<Value>(&out).is_ok(), "{out}");
        }
    }
}

#[test]
fn wrapped_base64_goes_however_its_lines_end() {
    let token = format!("ghp_{}", "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW1xY3");
    // What is looked for is looked for within a line.
    let is_within_line = |before: &usize| (before + 1) * 8 / 6 / 64 == (before + 5) * 8 / 6 / 64;
    for before in (0..80).filter(is_within_line) {
        let data = format!("{} {token} and more behind it", "x".repeat(before));
        let digits = base64::engine::general_purpose::STANDARD.encode(data);
        for end in ["\n", "\r\n", "\n    ", "\r\n\t"] {
            let lines: Vec<String> =
                digits.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
            check_gone(&format!("blob:{end}{}{end}", lines.join(end)), |out| {
                lines.iter().any(|line| out.contains(line))
            });
        }
    }
}

#[test]
fn more_names_are_known_in_base64() {
    for text in [
        r#"{"apikey":"c4n4ryZq8c4n4ryZq8"}"#,
        r#"{"user":"anna","pwd":"c4n4ryZq8"}"#,
        "X-Api-Key: c4n4ryZq8c4n4ry",
        "user=anna passwd=c4n4ryZq8",
        "passphrase: c4n4ryZq8c4n4ry",
    ] {
        for before in ["", "a ", "ab "] {
            let digits = base64::engine::general_purpose::STANDARD.encode(format!("{before}{text}"));
            check_gone(&format!("blob {digits}"), |out| out.contains(&digits[..16]));
        }
    }
}

#[test]
fn a_private_key_in_a_form_goes() {
    for text in [
        "k=-----BEGIN+RSA+PRIVATE+KEY-----%0AMIIEc4n4ry%2Bab%0A-----END+RSA+PRIVATE+KEY-----%0A&b=1",
        "k=-----BEGIN+RSA+PRIVATE+KEY-----%0AMIIEab%2Fc4n4ry",
    ] {
        check_gone(text, |out| out.contains("c4n4ry"));
    }
}
