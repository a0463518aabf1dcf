//! Parses what an endpoint answers, leniently: many speak this API, and few speak all of it.

use scrubjay_core::shorten::shortened_inert;
use scrubjay_http::Secret;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A model's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatReply {
    /// The text; empty if the model only calls functions.
    pub text: String,
    /// The functions that the model calls.
    pub tool_calls: Vec<ToolCall>,
    /// Whether the answer was cut off at the token limit.
    pub cut_short: bool,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// Its arguments, as the model wrote them: usually JSON.
    pub arguments: String,
}

/// What is wrong with an answer. The texts quote nothing of it: it may repeat the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedReply {
    /// Not JSON.
    #[error("it is not JSON")]
    NotJson,
    /// JSON of another shape.
    #[error("it is not a chat completion")]
    NotACompletion,
    /// A chat completion without an answer in it.
    #[error("it has no choices")]
    NoChoices,
    /// The connection broke before its end.
    #[error("it broke off")]
    BrokeOff,
    /// More than is read.
    #[error("it is longer than 1 MiB")]
    TooLong,
}

#[derive(Deserialize)]
struct RawReply {
    choices: Vec<RawChoice>,
}

#[derive(Deserialize)]
struct RawChoice {
    message: RawMessage,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct RawMessage {
    content: Option<RawContent>,
    refusal: Option<String>,
    tool_calls: Option<Vec<RawToolCall>>,
}

/// A text, or a list of parts of which some are texts.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawContent {
    Text(String),
    Parts(Vec<RawPart>),
}

#[derive(Deserialize)]
struct RawPart {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct RawToolCall {
    id: Option<String>,
    function: RawFunction,
}

#[derive(Deserialize)]
struct RawFunction {
    name: String,
    #[serde(default)]
    arguments: RawArguments,
}

/// Arguments as a text of JSON, as the API defines, or as a JSON value, as some endpoints send them.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawArguments {
    Text(String),
    Value(serde_json::Value),
}

impl Default for RawArguments {
    fn default() -> Self {
        Self::Text("{}".to_owned())
    }
}

impl ChatReply {
    /// Parses the body of an answer.
    pub(crate) fn parse(body: &[u8], key: Option<&Secret>) -> Result<Self, MalformedReply> {
        let raw: RawReply = serde_json::from_slice(body).map_err(|_| {
            if serde_json::from_slice::<IgnoredAny>(body).is_ok() {
                MalformedReply::NotACompletion
            } else {
                MalformedReply::NotJson
            }
        })?;
        let choice = raw.choices.into_iter().next().ok_or(MalformedReply::NoChoices)?;
        let scrub = |text: String| key.map_or(text.clone(), |key| key.scrub(text));
        let text = match choice.message.content {
            Some(RawContent::Text(text)) => text,
            Some(RawContent::Parts(parts)) => parts.into_iter().map(|part| part.text).collect(),
            None => choice.message.refusal.unwrap_or_default(),
        };
        let calls = choice.message.tool_calls.unwrap_or_default();
        let tool_call = |(i, call): (usize, RawToolCall)| ToolCall {
            // Some endpoints send no id, but the result of a call must name one.
            id: call.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{i}")),
            name: call.function.name,
            arguments: scrub(match call.function.arguments {
                RawArguments::Text(text) => text,
                RawArguments::Value(value) => value.to_string(),
            }),
        };
        Ok(Self {
            text: scrub(text),
            tool_calls: calls.into_iter().enumerate().map(tool_call).collect(),
            cut_short: choice.finish_reason.as_deref() == Some("length"),
        })
    }
}

/// Returns the endpoint's own message in the body of an error, without the key, inert and short.
pub(crate) fn complaint(body: &[u8], key: Option<&Secret>) -> String {
    /// A message of one line; longer bodies are pages of HTML.
    const CHARS_MAX: usize = 300;
    let message_text = serde_json::from_slice::<serde_json::Value>(body).ok().and_then(|body| {
        let error = body.get("error").unwrap_or(&body);
        let message = error.get("message").or_else(|| error.get("detail")).unwrap_or(error);
        message.as_str().map(str::to_owned)
    });
    let message_text = message_text.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    // Before it is cut: half a key would not be recognised.
    let message_text = key.map_or(message_text.clone(), |key| key.scrub(message_text));
    shortened_inert(&message_text, CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<ChatReply, MalformedReply> {
        ChatReply::parse(body.as_bytes(), Some(&Secret::new("sk-canary-1")))
    }

    #[test]
    fn minimal_and_unusual_replies_are_parsed() {
        assert_eq!(parse(r#"{"choices":[{"message":{"content":"hi"}}]}"#).unwrap().text, "hi");
        let odd = r#"{"choices":[{"message":{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"x"}],
            "tool_calls":[{"function":{"name":"f","arguments":{"x":1}}},{"id":"","function":{"name":"g"}}]},
            "finish_reason":"length"}],"service_tier":"on_demand","usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        let reply = parse(odd).unwrap();
        assert_eq!((reply.text.as_str(), reply.cut_short), ("a", true));
        let calls: Vec<_> =
            reply.tool_calls.iter().map(|c| (c.id.as_str(), c.name.as_str(), c.arguments.as_str())).collect();
        assert_eq!(calls, [("call_0", "f", r#"{"x":1}"#), ("call_1", "g", "{}")]);
    }

    #[test]
    fn malformed_replies_are_distinguished() {
        assert_eq!(parse("<html>"), Err(MalformedReply::NotJson));
        assert_eq!(parse(r#"{"choices":"#), Err(MalformedReply::NotJson));
        assert_eq!(parse(r#"{"ok":true}"#), Err(MalformedReply::NotACompletion));
        assert_eq!(parse(r#"{"choices":[]}"#), Err(MalformedReply::NoChoices));
    }

    #[test]
    fn the_key_is_removed_from_every_reply() {
        let reply = parse(
            r#"{"model":"sk-canary-1","choices":[{"message":{"content":"key sk-canary-1",
            "tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"k\":\"sk-canary-1\"}"}}]}}]}"#,
        )
        .unwrap();
        assert!(!format!("{reply:?}").contains("canary"), "{reply:?}");
    }

    #[test]
    fn error_messages_are_short_and_inert() {
        let key = Secret::new("sk-canary-1");
        let check = |body: &str, expected: &str| {
            assert_eq!(complaint(body.as_bytes(), Some(&key)), expected, "{body}");
        };
        check(r#"{"error":{"message":"bad key sk-canary-1"}}"#, "bad key ***");
        check(r#"{"error":"no such model"}"#, "no such model");
        check(r#"{"detail":"nope"}"#, "nope");
        check("sk-canary-1\u{1b}[2J", "***\\u{1b}[2J");
        check("", "");
        let long = complaint("x".repeat(5000).as_bytes(), None);
        assert!(long.chars().count() == 300 && long.ends_with('…'));
    }
}
