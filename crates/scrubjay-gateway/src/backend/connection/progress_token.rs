//! Progress tokens towards a backend: our own in place of the client's, so that a backend can only name calls it
//! received.

use scrubjay_core::message::{self, Splice};
use scrubjay_core::protocol::meta;
use serde_json::value::RawValue;

use super::channel::RpcChannel;

impl RpcChannel {
    /// Returns the progress token of a call towards the backend, as JSON: its id, and 128 bits that cannot be guessed.
    pub(super) fn progress_token(&self, id: u64) -> String {
        let code = blake3::keyed_hash(&self.token_key, &id.to_le_bytes()).to_hex();
        format!("\"{id}-{}\"", &code[..32])
    }

    /// Returns the call that a progress token was made for.
    pub(super) fn call_of_token(&self, token: &RawValue) -> Option<u64> {
        let text = message::string(Some(token))?;
        let id = text.split_once('-')?.0.parse().ok()?;
        // The whole token is compared: an id alone could be guessed, and would name another client's call.
        (message::string(serde_json::from_str(&self.progress_token(id)).ok())? == text).then_some(id)
    }
}

/// Returns a request to a backend with our own id and, in place of the client's progress token, our own; also returns
/// the client's.
pub(super) fn request_line(
    id: u64,
    method: &str,
    params: Option<&str>,
    own: impl FnOnce() -> String,
) -> (String, Option<String>) {
    let id = id.to_string();
    // Without `_meta`, written plainly or with an escape, there is no token, and params need not be parsed: most calls.
    let may_have_token = |params: &&str| params.contains("_meta") || params.contains('\\');
    let object = params.filter(may_have_token).and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
    // All of them are replaced: readers differ on which of two equal keys counts.
    let metas = message::members_named(object, "_meta");
    let tokens: Vec<&RawValue> =
        metas.into_iter().flat_map(|meta| message::members_named(Some(meta), meta::PROGRESS_TOKEN)).collect();
    let (Some(object), Some(theirs)) = (object, tokens.last().map(|token| token.get().to_owned())) else {
        return (message::request(&id, method, params), None);
    };
    let own = own();
    let spliced =
        tokens.iter().fold(Splice::new(object.get()), |params, token| params.replace(Some(token), &own));
    (message::request(&id, method, Some(&spliced.finish())), Some(theirs))
}

pub(super) fn random_key() -> [u8; 32] {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the system has a source of randomness");
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_gets_our_token_wherever_the_client_put_its_own_and_the_rest_as_it_came() {
        let check = |params: Option<&str>, expected: Option<&str>, token: Option<&str>| {
            let (line, theirs) = request_line(7, "tools/call", params, || "\"own\"".to_owned());
            assert_eq!(line, message::request("7", "tools/call", expected), "{params:?}");
            assert_eq!(theirs.as_deref(), token, "{params:?}");
        };
        check(None, None, None);
        check(Some(r#"{ "n":1.0}"#), Some(r#"{ "n":1.0}"#), None);
        check(Some(r#"{"_meta":{"x": 1}}"#), Some(r#"{"_meta":{"x": 1}}"#), None);
        check(
            Some(r#"{"_meta":{"progressToken":1}, "n":1.0}"#),
            Some(r#"{"_meta":{"progressToken":"own"}, "n":1.0}"#),
            Some("1"),
        );
        check(
            Some(r#"{"\u005fmeta":{"progress\u0054oken":"a"}}"#),
            Some(r#"{"\u005fmeta":{"progress\u0054oken":"own"}}"#),
            Some("\"a\""),
        );
        check(
            Some(r#"{"_meta":{"progressToken":1},"_meta":{"progressToken":2,"progressToken":3}}"#),
            Some(
                r#"{"_meta":{"progressToken":"own"},"_meta":{"progressToken":"own","progressToken":"own"}}"#,
            ),
            Some("3"),
        );
        check(Some(r#"["_meta"]"#), Some(r#"["_meta"]"#), None);
    }
}
