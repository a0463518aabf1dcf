//! A client's message, parsed once: its text in one shared buffer, and the places in it of the parts that the gateway
//! reads.
//!
//! A front checks HTTP headers against it, the gateway routes by it, and a backend gets its params, all from the same
//! buffer. Nothing is rewritten here, and there is no typed model of the protocol.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;

use scrubjay_core::envelope::JsonId;
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::{meta, result};
use serde_json::value::RawValue;

/// The members of params that most requests are asked for. They are found when a message is parsed, others when needed.
const PARAMS: [&str; 7] = ["_meta", "name", "uri", "taskId", "cursor", result::REQUEST_STATE, "arguments"];
/// The same, of `_meta`.
const META: [&str; 6] = [
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::CLIENT_INFO,
    meta::LOG_LEVEL,
    meta::PROGRESS_TOKEN,
    "traceparent",
];

/// Where a part begins and ends in the text. A request carries a dozen of them through every step of its way, so an
/// optional one has 8 bytes: no message is longer than 1 GiB, and no part ends at 0.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: NonZeroU32,
}

impl Span {
    /// Returns where a part of a text is.
    fn of(part: &str, text: &str) -> Self {
        // A part is always a slice of the text, so its place follows from the pointers, without a search.
        let start = part.as_ptr() as usize - text.as_ptr() as usize;
        let position = |at: usize| u32::try_from(at).expect("a message has at most 1 GiB");
        let end = NonZeroU32::new(position(start + part.len())).expect("a JSON value has at least one byte");
        Self { start: position(start), end }
    }

    fn in_text(self, text: &str) -> &str {
        &text[self.start as usize..self.end.get() as usize]
    }
}

/// A client's message.
#[derive(Clone, Debug)]
pub(crate) struct ClientMessage {
    text: Arc<str>,
    id: Option<Span>,
    /// Whether there is an id at all, though it be null.
    pub(crate) has_id: bool,
    method: Option<Arc<str>>,
    params: Option<Params>,
    result: Option<Span>,
    error: Option<Span>,
}

impl ClientMessage {
    /// Parses a message.
    ///
    /// # Errors
    /// The text is not a JSON object; it is given back.
    pub(crate) fn parse(text: Arc<str>) -> Result<Self, Arc<str>> {
        let Ok(parts) = Parts::of(&text) else { return Err(text) };
        let span = |part: Option<&RawValue>| part.map(|part| Span::of(part.get(), &text));
        let index = parts.params.map(|params| (Span::of(params.get(), &text), Index::of(params, &text)));
        let (id, result, error) = (span(parts.id), span(parts.result), span(parts.error));
        let (has_id, method) = (parts.has_id, parts.method.map(Arc::from));
        let params = index.map(|(span, index)| Params { text: text.clone(), span, index });
        Ok(Self { text, id, has_id, method, params, result, error })
    }

    /// Returns the whole of it, as it came.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the id as JSON; `None` if it is null or missing.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.map(|id| id.in_text(&self.text))
    }

    pub(crate) fn json_id(&self) -> Option<JsonId> {
        self.id().map(JsonId::from_raw)
    }

    pub(crate) fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    pub(crate) fn params(&self) -> Option<&Params> {
        self.params.as_ref()
    }

    /// Returns a member of the params as JSON.
    pub(crate) fn param(&self, key: &str) -> Option<&str> {
        self.params()?.get(key)
    }

    /// Returns a member of the params' `_meta` as JSON.
    pub(crate) fn meta(&self, key: &str) -> Option<&str> {
        self.params()?.meta(key)
    }

    pub(crate) fn result(&self) -> Option<&str> {
        self.result.map(|result| result.in_text(&self.text))
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.error.map(|error| error.in_text(&self.text))
    }
}

/// The params of a request: a part of a shared text, and where the members are that the gateway reads.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    text: Arc<str>,
    span: Span,
    index: Index,
}

#[derive(Clone, Debug)]
struct Index {
    params: [Option<Span>; PARAMS.len()],
    meta: [Option<Span>; META.len()],
    /// Whether the members can be told apart, in the params and in every `_meta` that they have.
    is_readable: bool,
}

impl Index {
    fn of(params: &RawValue, text: &str) -> Self {
        let span = |part: Option<&RawValue>| part.map(|part| Span::of(part.get(), text));
        let found = message::members_of(params, PARAMS);
        let [meta, ..] = found.values;
        let in_meta = meta.map(|meta| message::members_of(meta, META));
        let is_readable = found.is_readable
            && if found.is_repeated {
                // A server may read any of several members with that name.
                message::members_named(Some(params), "_meta").into_iter().all(message::is_readable)
            } else {
                in_meta.is_none_or(|meta| meta.is_readable)
            };
        Self {
            params: found.values.map(span),
            meta: in_meta.map_or([None; META.len()], |meta| meta.values.map(span)),
            is_readable,
        }
    }
}

impl Params {
    /// Parses params that are a text of their own; `None` if that is not JSON.
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Option<Self> {
        let text = text.into();
        let raw: &RawValue = serde_json::from_str(&text).ok()?;
        let (span, index) = (Span::of(raw.get(), &text), Index::of(raw, &text));
        Some(Self { text, span, index })
    }

    /// Returns a member as JSON.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        match PARAMS.iter().position(|known| *known == key) {
            Some(place) => self.index.params[place].map(|span| span.in_text(&self.text)),
            None => message::member(self.raw(), key).map(RawValue::get),
        }
    }

    /// Returns a member of `_meta` as JSON.
    pub(crate) fn meta(&self, key: &str) -> Option<&str> {
        match META.iter().position(|known| *known == key) {
            Some(place) => self.index.meta[place].map(|span| span.in_text(&self.text)),
            None => message::member(message::member(self.raw(), "_meta"), key).map(RawValue::get),
        }
    }

    /// Returns whether the members of the params and of their `_meta` can be told apart: then what is not found among
    /// them is not there for a server either.
    pub(crate) fn is_readable(&self) -> bool {
        self.index.is_readable
    }

    /// Returns them as a raw value, for readers of what is not looked up in advance.
    pub(crate) fn raw(&self) -> Option<&RawValue> {
        serde_json::from_str(self).ok()
    }
}

impl Deref for Params {
    type Target = str;

    fn deref(&self) -> &str {
        self.span.in_text(&self.text)
    }
}

/// Returns the text that a JSON string says.
pub(crate) fn text_in(json: Option<&str>) -> Option<String> {
    serde_json::from_str(json?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ClientMessage {
        ClientMessage::parse(text.into()).expect("an object")
    }

    #[test]
    fn parts_are_slices_of_the_text_as_it_came() {
        let message = parse(
            r#"{ "params" : {"n":1.0,"name":"a\u0062", "_meta":{"progressToken": 1e400 ,"x":[1]}}, "id":7,"method":"tools/call"}"#,
        );
        assert_eq!((message.id(), message.method()), (Some("7"), Some("tools/call")));
        assert_eq!((message.param("name"), message.param("n")), (Some("\"a\\u0062\""), Some("1.0")));
        assert_eq!((message.meta("progressToken"), message.meta("x")), (Some("1e400"), Some("[1]")));
        assert_eq!(text_in(message.param("name")).as_deref(), Some("ab"));
        let params = message.params().expect("there are params");
        assert_eq!(&**params, r#"{"n":1.0,"name":"a\u0062", "_meta":{"progressToken": 1e400 ,"x":[1]}}"#);
        assert!(Arc::ptr_eq(&params.text, &message.text), "nothing is copied");
        assert!(params.is_readable());
    }

    #[test]
    fn members_are_found_as_a_search_for_each_would_find_them() {
        for text in [
            r#"{"name":"a","name":"b","_meta":{"progressToken":1},"_meta":{"progressToken":2}}"#,
            r#"{"\u006eame":"a","_meta":7}"#,
            r#"{"_meta":{"traceparent":"x","progressToken":null}}"#,
            r#"{"name":"a","\ud800":1}"#,
            r#"{"_meta":{"\ud800":1,"progressToken":1},"name":"a"}"#,
            r#"{"_meta":{"\ud800":1},"_meta":{}}"#,
            r#"["name"]"#,
            r#""name""#,
            "{}",
        ] {
            let params = Params::new(text).expect("JSON");
            let raw = params.raw();
            for key in PARAMS.into_iter().chain(["other"]) {
                assert_eq!(params.get(key), message::member(raw, key).map(RawValue::get), "{key} in {text}");
            }
            let beside = message::member(raw, "_meta");
            for key in META.into_iter().chain(["other"]) {
                assert_eq!(
                    params.meta(key),
                    message::member(beside, key).map(RawValue::get),
                    "{key} in {text}"
                );
            }
            let metas = message::members_named(raw, "_meta");
            let is_readable = raw.into_iter().chain(metas).all(message::is_readable);
            assert_eq!(params.is_readable(), is_readable, "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_given_back() {
        for text in ["[1]", "7", "not JSON", ""] {
            assert_eq!(&*ClientMessage::parse(text.into()).expect_err("no object"), text);
        }
        assert!(Params::new("not JSON").is_none());
    }
}
