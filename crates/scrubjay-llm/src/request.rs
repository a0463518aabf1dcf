//! What is asked, and how it is written for an endpoint.

use async_openai::types::chat as wire;
use serde_json::Value;

use crate::config::LlmConfig;
use crate::reply::ToolCall;

/// A question for a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// No longer answer is wanted.
    pub max_tokens: Option<u32>,
    /// How freely the model chooses its words; some models know only their own.
    pub temperature: Option<f64>,
    /// Functions it may call.
    pub tools: Vec<Tool>,
    /// Whether it must, may or must not call one.
    pub tool_choice: ToolChoice,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// What the model shall be.
    System(String),
    /// What is asked.
    User(String),
    /// What the model said before.
    Assistant {
        /// Its words.
        text: String,
        /// Its calls.
        tool_calls: Vec<ToolCall>,
    },
    /// What came of a call.
    Tool {
        /// Which call.
        id: String,
        /// What came of it.
        text: String,
    },
}

/// A function that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// `^[a-zA-Z0-9_-]{1,64}$`.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// Whether a model calls functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it sees fit.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must, any.
    Required,
    /// It must, this one.
    Named(String),
}

impl ChatRequest {
    /// Asks one thing under one instruction.
    #[must_use]
    pub fn new(system: impl Into<String>, user: impl Into<String>) -> Self {
        let messages = vec![Message::System(system.into()), Message::User(user.into())];
        Self { messages, ..Self::default() }
    }

    /// Writes the body of the request.
    pub(crate) fn body(&self, config: &LlmConfig) -> Vec<u8> {
        let newer = config.is_openai();
        // One call at a time, said aloud: the default is many. Some endpoints refuse both keys without tools.
        let (tools, tool_choice, parallel_tool_calls) = if self.tools.is_empty() {
            (None, None, None)
        } else {
            let tools = self.tools.iter().map(|tool| wire::ChatCompletionTools::Function(tool.into()));
            (Some(tools.collect()), Some((&self.tool_choice).into()), Some(false))
        };
        let body = wire::CreateChatCompletionRequest {
            model: config.model.clone(),
            messages: self.messages.iter().map(Into::into).collect(),
            max_completion_tokens: self.max_tokens.filter(|_| newer),
            tools,
            tool_choice,
            parallel_tool_calls,
            ..Default::default()
        };
        let mut body = serde_json::to_value(body).expect("it is made of strings and numbers");
        if let Some(max) = self.max_tokens.filter(|_| !newer) {
            body["max_tokens"] = max.into();
        }
        // The library's number has half the width: 0.3 would be sent as 0.30000001192092896.
        if let Some(temperature) = self.temperature {
            body["temperature"] = temperature.into();
        }
        body.to_string().into_bytes()
    }
}

impl From<&Message> for wire::ChatCompletionRequestMessage {
    fn from(message: &Message) -> Self {
        match message {
            Message::System(text) => wire::ChatCompletionRequestSystemMessage::from(text.as_str()).into(),
            Message::User(text) => wire::ChatCompletionRequestUserMessage::from(text.as_str()).into(),
            Message::Assistant { text, tool_calls } => {
                let call = |call: &ToolCall| {
                    wire::ChatCompletionMessageToolCalls::Function(wire::ChatCompletionMessageToolCall {
                        id: call.id.clone(),
                        function: wire::FunctionCall {
                            name: call.name.clone(),
                            arguments: call.arguments.clone(),
                        },
                    })
                };
                wire::ChatCompletionRequestAssistantMessage {
                    content: (!text.is_empty()).then(|| text.as_str().into()),
                    tool_calls: (!tool_calls.is_empty()).then(|| tool_calls.iter().map(call).collect()),
                    ..Default::default()
                }
                .into()
            }
            Message::Tool { id, text } => wire::ChatCompletionRequestToolMessage {
                content: text.as_str().into(),
                tool_call_id: id.clone(),
            }
            .into(),
        }
    }
}

impl From<&Tool> for wire::ChatCompletionTool {
    fn from(tool: &Tool) -> Self {
        Self {
            function: wire::FunctionObject {
                name: tool.name.clone(),
                description: Some(tool.description.clone()),
                parameters: Some(tool.parameters.clone()),
                strict: None,
            },
        }
    }
}

impl From<&ToolChoice> for wire::ChatCompletionToolChoiceOption {
    fn from(choice: &ToolChoice) -> Self {
        match choice {
            ToolChoice::Auto => Self::Mode(wire::ToolChoiceOptions::Auto),
            ToolChoice::None => Self::Mode(wire::ToolChoiceOptions::None),
            ToolChoice::Required => Self::Mode(wire::ToolChoiceOptions::Required),
            ToolChoice::Named(name) => Self::Function(wire::ChatCompletionNamedToolChoice {
                function: wire::FunctionName { name: name.clone() },
            }),
        }
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
    fn a_plain_question() {
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
    fn tools_and_what_came_of_them() {
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
            tool_choice: ToolChoice::Named("f".to_owned()),
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
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": false,
        });
        assert_eq!(body(&request, "http://localhost"), expected);
        let auto = ChatRequest { tool_choice: ToolChoice::Auto, ..request };
        assert_eq!(body(&auto, "http://localhost")["tool_choice"], "auto");
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
            tool_choice: ToolChoice::Named("f".to_owned()),
        };
        let bytes = |base_url: &str, tool_choice: ToolChoice| {
            let config = LlmConfig { base_url: base_url.to_owned(), ..LlmConfig::default() };
            String::from_utf8(ChatRequest { tool_choice, ..request.clone() }.body(&config)).unwrap()
        };
        let messages = [
            r#"{"content":"s","role":"system"}"#,
            r#"{"content":"ü\n","role":"user"}"#,
            r#"{"content":"so \"be\" it","role":"assistant","tool_calls":"#,
            r#"[{"function":{"arguments":"{\"a\":1}","name":"f"},"id":"c1","type":"function"}]}"#,
            r#"{"role":"assistant"}"#,
            r#"{"content":"wrong","role":"tool","tool_call_id":"c1"}"#,
        ];
        let messages = messages.join(",").replacen(":,[", ":[", 1);
        let tools = concat!(
            r#"[{"function":{"description":"d","name":"f","parameters":"#,
            r#"{"properties":{"a":{},"b":{"type":"number"}},"type":"object"}},"type":"function"}]"#,
        );
        let check = |base_url: &str, choice: ToolChoice, limit: &str, choice_text: &str| {
            let expected = format!(
                "{{\"{limit}\":9,\"messages\":[{messages}],\"model\":\"gpt-4o-mini\",\
                 \"parallel_tool_calls\":false,\"temperature\":0.3,\
                 \"tool_choice\":{choice_text},\"tools\":{tools}}}"
            );
            assert_eq!(bytes(base_url, choice), expected);
        };
        let named = r#"{"function":{"name":"f"},"type":"function"}"#;
        check("http://localhost", ToolChoice::Named("f".to_owned()), "max_tokens", named);
        let openai = "https://api.openai.com/v1";
        check(openai, ToolChoice::Auto, "max_completion_tokens", r#""auto""#);
        check(openai, ToolChoice::None, "max_completion_tokens", r#""none""#);
        check(openai, ToolChoice::Required, "max_completion_tokens", r#""required""#);
    }
}
