//! A request as callers compose it, and as the chat completions API receives it.

use serde::Serialize;
use serde_json::Value;

use crate::config::LlmConfig;
use crate::reply::ToolCall;

/// A question for a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The longest answer, in tokens; the endpoint's own limit if absent.
    pub max_tokens: Option<u32>,
    /// The sampling temperature; some models accept only their default, so absent is safest.
    pub temperature: Option<f64>,
    /// Functions it may call.
    pub tools: Vec<Tool>,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Instructions.
    System(String),
    /// The question.
    User(String),
    /// An earlier answer of the model.
    Assistant {
        /// Its text.
        text: String,
        /// Its calls.
        tool_calls: Vec<ToolCall>,
    },
    /// The result of a call.
    Tool {
        /// The id of the call.
        id: String,
        /// The result.
        text: String,
    },
}

/// A function that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Matches `^[a-zA-Z0-9_-]{1,64}$`: endpoints refuse other names.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

impl ChatRequest {
    /// Makes a request of one instruction and one question.
    #[must_use]
    pub fn new(system: impl Into<String>, user: impl Into<String>) -> Self {
        let messages = vec![Message::System(system.into()), Message::User(user.into())];
        Self { messages, ..Self::default() }
    }

    /// Writes the body of the request.
    pub(crate) fn body(&self, config: &LlmConfig) -> Vec<u8> {
        let is_openai = config.is_openai();
        let body = Body {
            max_completion_tokens: self.max_tokens.filter(|_| is_openai),
            max_tokens: self.max_tokens.filter(|_| !is_openai),
            messages: self.messages.iter().map(Into::into).collect(),
            model: &config.model,
            // The API's default is several calls at once. Some endpoints refuse this and `tool_choice` without tools.
            parallel_tool_calls: (!self.tools.is_empty()).then_some(false),
            temperature: self.temperature,
            tool_choice: (!self.tools.is_empty()).then_some("auto"),
            tools: self.tools.iter().map(Into::into).collect(),
        };
        serde_json::to_vec(&body).expect("strings, numbers and JSON values can be written as JSON")
    }
}

// The API's request, as far as we use it. Fields are in alphabetical order, so that the bytes sent are those that
// earlier versions sent.

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    messages: Vec<WireMessage<'a>>,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireFunction<'a, WireTool<'a>>>,
}

#[derive(Default, Serialize)]
struct WireMessage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireFunction<'a, WireCall<'a>>>,
}

/// The API wraps what concerns a function: `{"type": "function", "function": …}`.
#[derive(Serialize)]
struct WireFunction<'a, T> {
    function: T,
    /// Present in calls only.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    r#type: &'static str,
}

#[derive(Serialize)]
struct WireCall<'a> {
    arguments: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
struct WireTool<'a> {
    description: &'a str,
    name: &'a str,
    parameters: &'a Value,
}

impl<T> WireFunction<'_, T> {
    fn new(function: T) -> Self {
        Self { function, id: None, r#type: "function" }
    }
}

impl<'a> From<&'a Message> for WireMessage<'a> {
    fn from(message: &'a Message) -> Self {
        match message {
            Message::System(text) => Self { content: Some(text), role: "system", ..Self::default() },
            Message::User(text) => Self { content: Some(text), role: "user", ..Self::default() },
            Message::Assistant { text, tool_calls } => Self {
                content: (!text.is_empty()).then_some(text),
                role: "assistant",
                tool_calls: tool_calls.iter().map(Into::into).collect(),
                ..Self::default()
            },
            Message::Tool { id, text } => {
                Self { content: Some(text), role: "tool", tool_call_id: Some(id), ..Self::default() }
            }
        }
    }
}

impl<'a> From<&'a ToolCall> for WireFunction<'a, WireCall<'a>> {
    fn from(call: &'a ToolCall) -> Self {
        let function = WireCall { arguments: &call.arguments, name: &call.name };
        Self { id: Some(&call.id), ..Self::new(function) }
    }
}

impl<'a> From<&'a Tool> for WireFunction<'a, WireTool<'a>> {
    fn from(tool: &'a Tool) -> Self {
        Self::new(WireTool { description: &tool.description, name: &tool.name, parameters: &tool.parameters })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(request: &ChatRequest, base_url: &str) -> Value {
        let config = LlmConfig { base_url: base_url.to_owned(), ..LlmConfig::default() };
        serde_json::from_slice(&request.body(&config)).unwrap()
    }

    #[test]
    fn a_temperature_is_sent_as_it_was_written() {
        for base_url in ["https://api.openai.com/v1", "http://127.0.0.1:1/v1"] {
            let request = ChatRequest { temperature: Some(0.3), ..ChatRequest::new("s", "u") };
            let config = LlmConfig { base_url: base_url.to_owned(), ..LlmConfig::default() };
            let text = String::from_utf8(request.body(&config)).unwrap();
            assert!(
                text.contains(r#""temperature":0.3,"#) || text.contains(r#""temperature":0.3}"#),
                "{text}"
            );
        }
    }

    #[test]
    fn a_question_without_tools_is_written() {
        let request =
            ChatRequest { max_tokens: Some(9), temperature: Some(0.0), ..ChatRequest::new("s", "u") };
        let expected = json!({
            "model": "gpt-4o-mini", "max_tokens": 9, "temperature": 0.0,
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        });
        assert_eq!(body(&request, "http://localhost/v1"), expected);
        let newer = body(&request, "https://api.openai.com/v1");
        assert_eq!((&newer["max_tokens"], &newer["max_completion_tokens"]), (&Value::Null, &json!(9)));
    }

    #[test]
    fn tools_and_their_results_are_written() {
        let parameters = json!({"type": "object", "properties": {"x": {"type": "number"}}});
        let call = ToolCall { id: "c1".to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
        let request = ChatRequest {
            messages: vec![
                Message::User("u".to_owned()),
                Message::Assistant { text: String::new(), tool_calls: vec![call] },
                Message::Tool { id: "c1".to_owned(), text: "wrong".to_owned() },
            ],
            tools: vec![Tool {
                name: "f".to_owned(),
                description: "d".to_owned(),
                parameters: parameters.clone(),
            }],
            ..ChatRequest::default()
        };
        let expected = json!({
            "model": "gpt-4o-mini",
            "messages": [
                {"role": "user", "content": "u"},
                {"role": "assistant", "tool_calls":
                    [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "content": "wrong", "tool_call_id": "c1"},
            ],
            "tools": [{"type": "function",
                "function": {"name": "f", "description": "d", "parameters": parameters}}],
            "tool_choice": "auto",
            "parallel_tool_calls": false,
        });
        assert_eq!(body(&request, "http://localhost"), expected);
    }

    #[test]
    fn the_bytes_of_a_request_stay_the_same() {
        let call = ToolCall { id: "c1".to_owned(), name: "f".to_owned(), arguments: r#"{"a":1}"#.to_owned() };
        let answered = Message::Assistant { text: "so \"be\" it".to_owned(), tool_calls: vec![call] };
        let request = ChatRequest {
            messages: vec![
                Message::System("s".to_owned()),
                Message::User("ü\n".to_owned()),
                answered,
                Message::Assistant { text: String::new(), tool_calls: Vec::new() },
                Message::Tool { id: "c1".to_owned(), text: "wrong".to_owned() },
            ],
            max_tokens: Some(9),
            temperature: Some(0.3),
            tools: vec![Tool {
                name: "f".to_owned(),
                description: "d".to_owned(),
                parameters: json!({"type": "object", "properties": {"b": {"type": "number"}, "a": {}}}),
            }],
        };
        let messages = [
            r#"{"content":"s","role":"system"}"#,
            r#"{"content":"ü\n","role":"user"}"#,
            concat!(
                r#"{"content":"so \"be\" it","role":"assistant","tool_calls":"#,
                r#"[{"function":{"arguments":"{\"a\":1}","name":"f"},"id":"c1","type":"function"}]}"#
            ),
            r#"{"role":"assistant"}"#,
            r#"{"content":"wrong","role":"tool","tool_call_id":"c1"}"#,
        ];
        let messages = messages.join(",");
        let tools = concat!(
            r#"[{"function":{"description":"d","name":"f","parameters":"#,
            r#"{"properties":{"a":{},"b":{"type":"number"}},"type":"object"}},"type":"function"}]"#,
        );
        for (base_url, limit) in
            [("http://localhost", "max_tokens"), ("https://api.openai.com/v1", "max_completion_tokens")]
        {
            let expected = format!(
                "{{\"{limit}\":9,\"messages\":[{messages}],\"model\":\"gpt-4o-mini\",\
                 \"parallel_tool_calls\":false,\"temperature\":0.3,\
                 \"tool_choice\":\"auto\",\"tools\":{tools}}}"
            );
            let config = LlmConfig { base_url: base_url.to_owned(), ..LlmConfig::default() };
            assert_eq!(String::from_utf8(request.body(&config)).unwrap(), expected);
        }
    }
}
