//! Hashes by which two calls or two answers are recognised as the same, regardless of id and progress token.

use serde_json::Value;

use crate::json::canonical::canonical;
use crate::json::fields;

/// Hashes a request's method and parameters, without `_meta`.
#[must_use]
pub fn request_identity(payload: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(payload).ok()?;
    let [method, params] = fields(text, ["method", "params"]).ok()?.values;
    let mut params: Value =
        params.map_or(Ok(Value::Null), |params| serde_json::from_str(params.get())).ok()?;
    if let Value::Object(members) = &mut params {
        // Progress tokens and trace ids differ in each request.
        members.remove("_meta");
    }
    Some(number(&[method?.get(), &canonical(&params)]))
}

/// Hashes an answer's result or error.
#[must_use]
pub fn answer_identity(payload: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(payload).ok()?;
    let [result, error] = fields(text, ["result", "error"]).ok()?.values;
    Some(number(&[result.or(error)?.get()]))
}

fn number(texts: &[&str]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(text.as_bytes());
        // Separated, so that moving text from one to the next gives another hash.
        hasher.update(b"\0");
    }
    u64::from_le_bytes(*hasher.finalize().as_bytes().first_chunk().expect("a hash is longer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_differ_in_id_token_or_spelling_are_identical() {
        let of = |text: &str| request_identity(text.as_bytes());
        let call = of(r#"{"id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1,"b":"x"}}}"#);
        assert!(call.is_some());
        let same = r#"{"method":"tools/call","id":"z","params":{"_meta":{"progressToken":7},"arguments":{"b":"\u0078", "a":1},"name":"t"}}"#;
        assert_eq!(of(same), call);
        let other = r#"{"id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":2,"b":"x"}}}"#;
        assert_ne!(of(other), call);
        assert_eq!((of("[1]"), of("nothing")), (None, None));
        let identity = |text: &str| answer_identity(text.as_bytes());
        assert_eq!(identity(r#"{"id":1,"result":{"a":1}}"#), identity(r#"{"id":2,"result":{"a":1}}"#));
        assert_ne!(identity(r#"{"id":1,"result":{"a":1}}"#), identity(r#"{"id":1,"result":{"a":2}}"#));
    }
}
