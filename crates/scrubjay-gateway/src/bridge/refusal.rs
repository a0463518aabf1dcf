//! Makes an error from an HTTP answer that is no JSON-RPC message. Pure.
//!
//! A client on a stream of lines sees no status and no headers, so the error repeats them. Of an authentication
//! challenge it repeats only the parameters for people: nonces and tokens stay out of answers and tapes.

use hyper::header::{HeaderMap, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use scrubjay_core::inert::inert_bytes;
use serde_json::{Value, json};

/// How many bytes of a body are quoted in the message of an error.
const EXCERPT_BYTES_MAX: usize = 200;
/// How many bytes of a body are repeated in an error's data: an OAuth error or a short page fits.
const BODY_BYTES_MAX: usize = 1024;
/// How many bytes of the challenges are repeated.
const CHALLENGE_BYTES_MAX: usize = 1024;
/// The parameters of a challenge that are meant for people or clients to read.
const READABLE: [&str; 6] =
    ["realm", "scope", "error", "error_description", "error_uri", "resource_metadata"];

/// What an error repeats of an HTTP answer.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: StatusCode,
    challenge: Option<String>,
    body: Option<String>,
}

impl HttpAnswer {
    pub(super) fn of<B>(response: &Response<B>) -> Self {
        Self { status: response.status(), challenge: challenge(response.headers()), body: None }
    }

    /// Keeps the beginning of the body.
    pub(super) fn keep_body(&mut self, text: &[u8]) {
        let beginning = &text[..text.len().min(BODY_BYTES_MAX)];
        self.body = (!beginning.is_empty()).then(|| inert_bytes(beginning));
    }

    /// Returns the sentence that says how the server refused.
    pub(super) fn refusal_text(&self) -> String {
        let status = self.status;
        match (status, &self.challenge) {
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(challenge)) => {
                format!("the server answered HTTP {status} and wants {challenge}: give it a header")
            }
            (StatusCode::UNAUTHORIZED, None) => {
                format!("the server wants to know who calls (HTTP {status}): give it a header")
            }
            _ => format!("the server answered HTTP {status}"),
        }
    }

    /// Returns it as the data of an error.
    pub(super) fn data(&self) -> Value {
        let mut data = json!({ "httpStatus": self.status.as_u16() });
        for (key, value) in [("wwwAuthenticate", &self.challenge), ("body", &self.body)] {
            if let Some(value) = value {
                data[key] = json!(value);
            }
        }
        data
    }
}

/// Quotes the beginning of a text, after a colon.
pub(super) fn excerpt(text: &[u8]) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!(": {}", inert_bytes(&text[..text.len().min(EXCERPT_BYTES_MAX)]))
}

/// Returns the part of the challenges that may be repeated: schemes and `READABLE` parameters.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let mut kept: Vec<String> = Vec::new();
    for piece in headers.get_all(WWW_AUTHENTICATE).iter().flat_map(|value| pieces(value.as_bytes())) {
        let piece = inert_bytes(piece.trim_ascii());
        let (scheme, parameter) = match piece.split_once(' ') {
            Some((scheme, rest)) if !scheme.contains('=') => (Some(scheme), rest.trim_start()),
            None if !piece.contains('=') => (Some(piece.as_str()), ""),
            _ => (None, piece.as_str()),
        };
        if let Some(scheme) = scheme.filter(|scheme| !scheme.is_empty()) {
            kept.push(scheme.to_owned());
        }
        let name = parameter.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        if let Some(last) = kept.last_mut().filter(|_| READABLE.contains(&name.as_str())) {
            let space = if last.contains(' ') { ", " } else { " " };
            // A query may hold a secret.
            let shown = parameter.split_once('?').map(|(shown, _)| format!("{shown}\""));
            *last += &format!("{space}{}", shown.as_deref().unwrap_or(parameter));
        }
    }
    let mut text = kept.join(", ");
    let end = (0..=text.len().min(CHALLENGE_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    (!text.is_empty()).then_some(text)
}

/// Splits at the commas outside quotes.
fn pieces(value: &[u8]) -> Vec<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let cut = |byte: &u8| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => return *byte == b',' && !quoted,
        }
        false
    };
    value.split(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_tells_what_is_meant_to_be_read() {
        let check = |value: &str, expected: Option<&str>| {
            let headers = [(WWW_AUTHENTICATE, value.parse().unwrap())].into_iter().collect();
            assert_eq!(challenge(&headers).as_deref(), expected, "{value}");
        };
        check("Bearer", Some("Bearer"));
        check(
            r#"Bearer error="invalid_token", resource_metadata="https://x/y?key=hidden", nonce="n""#,
            Some(r#"Bearer error="invalid_token", resource_metadata="https://x/y""#),
        );
        check(
            r#"Digest nonce="n",realm="a, b", Basic realm="c""#,
            Some(r#"Digest realm="a, b", Basic realm="c""#),
        );
        check("Negotiate dG9rZW4=", Some("Negotiate"));
        check("", None);
    }
}
