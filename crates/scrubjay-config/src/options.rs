//! What a client may send with `initialize`: the `GatewayOptions` of the gateway's specification.
//!
//! Two of its rules are ours: no key is required (files and the environment may give it), and keys it does
//! not know are left alone, as its schema does. Variables do not expand here: it is JSON that a program wrote.

use super::level::LogLevel;
use super::node::{Kind, Node, Origin, Scalar, Value};
use super::problem::{Problem, entries};
use super::raw::{Given, Part, RawConfig};
use super::setting::{Count, Token, text};

/// A client's options.
pub(crate) struct GatewayOptions {
    /// What they say of our own keys: the level, the backends, the key for the model, the debug port.
    pub(crate) layer: RawConfig,
}

impl GatewayOptions {
    /// Checks a client's `initializationOptions`.
    pub(crate) fn parse(options: &serde_json::Value) -> Result<Self, Vec<Problem>> {
        let node = Node::from_json(options, &Origin::Options);
        let mut problems = Vec::new();
        if let Value::Scalar(_) | Value::List(_) = node.value {
            entries(&node, "", &[], &mut problems);
        }
        let mut layer = RawConfig::default();
        if let Some(level) = node.get("logLevel") {
            text(level, "logLevel", &mut problems);
            layer.log_level = Part::read(level, "logLevel", &mut problems);
        }
        if let Some(backends) = node.get("backends") {
            layer.backends = Part::read(backends, "backends", &mut problems);
            let said = layer.backends.iter().flat_map(|given| given.value.quarantine.keys());
            for id in said {
                let why = format!("is not taken from a client (backend {id}): set it in the configuration");
                problems.push(Problem::new(&backends.origin, "backends.quarantine", why));
            }
            if matches!(&backends.value, Value::Null) {
                problems.push(Problem::new(&backends.origin, "backends", "must be a list of backends"));
            } else if matches!(&backends.value, Value::List(items) if items.is_empty()) {
                problems.push(Problem::new(&backends.origin, "backends", "must name at least one backend"));
            }
        }
        layer.llm.api_key = node.get("OPENAI_API_KEY").and_then(|node| api_key(node, &mut problems));
        layer.serve.debug_port = node.get("DEBUG_PORT").and_then(|node| debug_port(node, &mut problems));
        if problems.is_empty() { Ok(Self { layer }) } else { Err(problems) }
    }

    /// Takes back a level that would silence warnings, unless the owner's own level is as quiet; says so.
    ///
    /// Warnings are how a person hears that something was not recorded, or that a tool changed: no client may turn
    /// them off.
    pub(crate) fn keep_warnings(&mut self, configured: LogLevel) -> Option<String> {
        let asked =
            self.layer.log_level.as_mut().filter(|asked| asked.value > LogLevel::Warn.max(configured))?;
        let quietest = LogLevel::Warn.max(configured);
        let told = format!(
            "a client asked for logLevel {}, which would hide warnings: {quietest} holds",
            asked.value
        );
        asked.value = quietest;
        Some(told)
    }

    /// Returns a problem for each option that would change something, for clients that may not.
    pub(crate) fn changes_of(&self, now: &RawConfig) -> Vec<Problem> {
        fn differs<T: PartialEq>(given: Option<&Given<T>>, now: Option<&Given<T>>) -> bool {
            given.is_some_and(|given| now.is_none_or(|now| now.value != given.value))
        }
        let layer = &self.layer;
        let configured = now.backends.as_ref().map(|now| now.value.list.as_slice()).unwrap_or_default();
        let mut asked = layer.backends.iter().flat_map(|given| &given.value.list);
        let brings_backend = asked.any(|backend| !configured.contains(backend));
        let changes = [
            ("logLevel", differs(layer.log_level.as_ref(), now.log_level.as_ref()), "log_level"),
            ("backends", brings_backend, "backends"),
            // Never compared: the answer would tell a client whether its guess is right.
            ("OPENAI_API_KEY", layer.llm.api_key.is_some(), "llm.api_key or the variable OPENAI_API_KEY"),
            (
                "DEBUG_PORT",
                differs(layer.serve.debug_port.as_ref(), now.serve.debug_port.as_ref()),
                "serve.debug_port",
            ),
        ];
        let refused = changes.into_iter().filter(|(_, is_change, _)| *is_change);
        let problem = |(option, _, key)| {
            let why = format!("is not taken from a client on HTTP: configure the gateway with {key}");
            Problem::new(&Origin::Options, option, why)
        };
        refused.map(problem).collect()
    }
}

fn api_key(node: &Node, problems: &mut Vec<Problem>) -> Option<Given<Token>> {
    if text(node, "OPENAI_API_KEY", problems)?.is_empty() {
        problems.push(Problem::new(&node.origin, "OPENAI_API_KEY", "must not be empty"));
        return None;
    }
    Part::read(node, "OPENAI_API_KEY", problems)
}

fn debug_port(node: &Node, problems: &mut Vec<Problem>) -> Option<Given<Count<0, 65_535>>> {
    let port = match &node.value {
        Value::Null => return None,
        Value::Scalar(Scalar { kind: Kind::Number, text, .. }) => {
            text.parse::<u16>().ok().filter(|port| *port > 0)
        }
        _ => None,
    };
    if port.is_none() {
        problems.push(Problem::new(
            &node.origin,
            "DEBUG_PORT",
            "must be a port: a whole number from 1 to 65535",
        ));
    }
    port.map(|port| Given { value: Count(port.into()), origin: node.origin.clone() })
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
        assert_eq!(options.layer.serve.debug_port.unwrap().value.0, 3001);
        assert_eq!(options.layer.llm.api_key.unwrap().value.0.reveal(), "sk-x");
        assert_eq!(options.layer.backends.unwrap().value.list[0].id, "filesystem");
        assert_eq!(options.layer.log_level.unwrap().value.to_string(), "debug");
    }

    #[test]
    fn a_client_cannot_silence_warnings() {
        let kept = |asked: &str, configured: LogLevel| {
            let mut options = GatewayOptions::parse(&json!({ "logLevel": asked })).ok().unwrap();
            let told = options.keep_warnings(configured);
            (options.layer.log_level.unwrap().value, told.is_some())
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
