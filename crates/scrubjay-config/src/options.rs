//! What a client may send with `initialize`: the `GatewayOptions` of the gateway's specification.
//!
//! Two of its rules are ours: no key is required (files and the environment may give it), and unknown keys are left
//! alone, as its schema does. Variables do not expand here: a program wrote this JSON.

use crate::cursor::{self, Cursor};
use crate::level::LogLevel;
use crate::node::{Kind, Node, Origin, Scalar, Value};
use crate::problem::Problem;
use crate::sections::Settings;
use crate::sections::backends::Backends;
use crate::setting::{Choice, Setting, Token};

/// A client's options, checked.
pub(crate) struct GatewayOptions {
    /// The same as values of our own keys.
    pub(crate) layer: Node,
    log_level: Option<LogLevel>,
    backends: Option<Backends>,
    debug_port: Option<usize>,
}

/// The options, and the keys that give the same.
const KEYS: [(&str, &str); 4] = [
    ("logLevel", "log_level"),
    ("backends", "backends"),
    ("OPENAI_API_KEY", "llm.api_key"),
    ("DEBUG_PORT", "serve.debug_port"),
];

impl GatewayOptions {
    /// Checks a client's `initializationOptions`.
    pub(crate) fn parse(options: &serde_json::Value) -> Result<Self, Vec<Problem>> {
        let node = Node::from_json(options, &Origin::Options);
        let mut problems = Vec::new();
        let mut parsed = cursor::read(&node, "", &mut problems, Self::read);
        for (option, key) in KEYS {
            if let Some(node) = node.find(option) {
                parsed.layer.put(key, node.clone());
            }
        }
        if problems.is_empty() { Ok(parsed) } else { Err(problems) }
    }

    fn read(at: &Cursor<'_>) -> Self {
        if let Value::Scalar(_) | Value::List(_) = at.node.value {
            at.entries(&[]);
        }
        let log_level = at.member("logLevel").and_then(|at| {
            at.text();
            if at.is_null() { None } else { LogLevel::read(&at) }
        });
        let backends = at.member("backends").and_then(|at| read_backends(&at));
        if let Some(at) = at.member("OPENAI_API_KEY")
            && let Some(text) = at.text()
        {
            if text.is_empty() {
                at.wrong::<()>("must not be empty");
            } else {
                Token::read(&at);
            }
        }
        let debug_port = at.member("DEBUG_PORT").and_then(|at| read_port(&at));
        Self { layer: Node::map(Origin::Options), log_level, backends, debug_port }
    }

    /// Takes back a level that would silence warnings, unless the owner's own level is as quiet; returns a notice.
    ///
    /// By warnings a person hears that something was not recorded, or that a tool changed: no client may turn them off.
    pub(crate) fn keep_warnings(&mut self, configured: LogLevel) -> Option<String> {
        let quietest = LogLevel::Warn.max(configured);
        let asked = self.log_level.filter(|asked| *asked > quietest)?;
        self.log_level = Some(quietest);
        self.layer.put("log_level", Node::text(quietest.name(), Origin::Options));
        Some(format!("a client asked for logLevel {asked}, which would hide warnings: {quietest} holds"))
    }

    /// Returns a problem for each option that would change something, for clients that may not.
    pub(crate) fn changes_of(&self, now: &Settings) -> Vec<Problem> {
        let configured = now.backends.as_ref().map_or(&[][..], |now| &now.list);
        let mut asked = self.backends.iter().flat_map(|backends| &backends.list);
        let changes = [
            self.log_level.is_some_and(|level| level != now.log_level),
            asked.any(|backend| !configured.contains(backend)),
            // Never compared: the answer would tell a client whether its guess is right.
            self.layer.find("llm.api_key").is_some(),
            self.debug_port.is_some_and(|port| now.serve.debug_port.is_none_or(|now| now.0 != port)),
        ];
        let problem = |((option, key), _): ((&str, &str), bool)| {
            let or_variable = if option == "OPENAI_API_KEY" { " or the variable OPENAI_API_KEY" } else { "" };
            let why =
                format!("is not taken from a client on HTTP: configure the gateway with {key}{or_variable}");
            Problem::new(&Origin::Options, option, why)
        };
        KEYS.into_iter().zip(changes).filter(|(_, is_change)| *is_change).map(problem).collect()
    }
}

fn read_backends(at: &Cursor<'_>) -> Option<Backends> {
    if at.is_null() {
        return at.wrong("must be a list of backends");
    }
    let backends = Backends::read(at)?;
    for id in backends.quarantine.keys() {
        let why = format!("is not taken from a client (backend {id}): set it in the configuration");
        at.of("quarantine").wrong::<()>(why);
    }
    if backends.list.is_empty() {
        return at.wrong("must name at least one backend");
    }
    Some(backends)
}

fn read_port(at: &Cursor<'_>) -> Option<usize> {
    let port = match &at.node.value {
        Value::Null => return None,
        Value::Scalar(Scalar { kind: Kind::Number, text, .. }) => text.parse::<u16>().ok(),
        _ => None,
    };
    let port = port.filter(|port| *port > 0).map(usize::from);
    port.or_else(|| at.wrong("must be a port: a whole number from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(options: &serde_json::Value) -> Vec<String> {
        let problems = GatewayOptions::parse(options).err().unwrap_or_default();
        problems.iter().map(|p| format!("{} {}", p.key, p.message)).collect()
    }

    #[test]
    fn the_example_of_the_seed_is_taken() {
        let options = GatewayOptions::parse(&json!({
            "logLevel": "debug", "OPENAI_API_KEY": "sk-x", "DEBUG_PORT": 3001, "somethingElse": true,
            "backends": [{"id": "filesystem", "type": "stdio", "command": "npx", "args": ["-y"]}],
        }))
        .ok()
        .unwrap();
        let Value::Scalar(key) = &options.layer.find("llm.api_key").unwrap().value else { panic!() };
        assert_eq!((options.debug_port, key.text.as_str()), (Some(3001), "sk-x"));
        assert_eq!(options.backends.unwrap().list[0].id, "filesystem");
        assert_eq!(options.log_level.unwrap().to_string(), "debug");
    }

    #[test]
    fn a_client_cannot_silence_warnings() {
        let kept = |asked: &str, configured: LogLevel| {
            let mut options = GatewayOptions::parse(&json!({ "logLevel": asked })).ok().unwrap();
            let told = options.keep_warnings(configured);
            (options.log_level.unwrap(), told.is_some())
        };
        assert_eq!(kept("silent", LogLevel::Info), (LogLevel::Warn, true));
        assert_eq!(kept("error", LogLevel::Trace), (LogLevel::Warn, true));
        assert_eq!(kept("warn", LogLevel::Trace), (LogLevel::Warn, false));
        assert_eq!(kept("trace", LogLevel::Silent), (LogLevel::Trace, false));
        // The owner's own choice may be quieter.
        assert_eq!(kept("error", LogLevel::Error), (LogLevel::Error, false));
        assert_eq!(kept("silent", LogLevel::Error), (LogLevel::Error, true));
    }

    #[test]
    fn nothing_is_required() {
        for options in [json!(null), json!({}), json!({"DEBUG_PORT": null})] {
            assert!(GatewayOptions::parse(&options).is_ok(), "{options}");
        }
    }

    #[test]
    fn every_bad_option_is_named() {
        let told = refused(&json!({
            "logLevel": "loud", "OPENAI_API_KEY": "", "DEBUG_PORT": "3001",
            "backends": [{"id": "a", "type": "stdio"}, {"id": "a", "type": "stdio", "command": "c"}],
        }));
        let expected = [
            "logLevel must be trace, debug, info, warn, error, fatal or silent, not \"loud\"",
            "backends[0].command is required",
            "backends[1].id is the id of backends[0] already",
            "OPENAI_API_KEY must not be empty",
            "DEBUG_PORT must be a port: a whole number from 1 to 65535",
        ];
        assert_eq!(told, expected);
        let held = json!({"id": "a", "type": "stdio", "command": "c", "quarantine": "off"});
        assert!(refused(&json!({ "backends": [held] }))[0].contains("quarantine is not taken from a client"));
        assert_eq!(refused(&json!({"backends": []})), ["backends must name at least one backend"]);
        assert_eq!(refused(&json!({"backends": null})), ["backends must be a list of backends"]);
        for port in [json!(0), json!(-1), json!(1.5), json!(65536), json!(true)] {
            assert_eq!(refused(&json!({ "DEBUG_PORT": port })).len(), 1, "{port}");
        }
        assert_eq!(refused(&json!({"logLevel": 3, "OPENAI_API_KEY": 4})).len(), 3);
        assert_eq!(refused(&json!([1])), [" must be a map of keys to values"]);
    }

    #[test]
    fn a_key_is_never_repeated() {
        let told = refused(&json!({"OPENAI_API_KEY": ["sk-123456"], "DEBUG_PORT": "sk-123456"}));
        assert!(!told.concat().contains("sk-123456"), "{told:?}");
    }
}
