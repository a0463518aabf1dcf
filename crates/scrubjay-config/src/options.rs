//! The options that a client may send with `initialize`: `GatewayOptions` of the gateway's specification.
//!
//! No option is required, because files and the environment may set the same. Unknown options are ignored, as the
//! specification's schema allows them. Variables are not expanded: a program wrote this JSON.

use serde_json::Value as Json;

use scrubjay_gateway::config::Secret;

use crate::cursor::{self, Cursor};
use crate::layer::Layer;
use crate::node::{Kind, Node, Origin, Scalar, Value};
use crate::problem::Problem;
use crate::sections::backends::Backends;
use crate::sections::{LogLevel, Settings};
use crate::setting::{Choice, Count, Setting};

/// An option, the key that it sets, and the function that reports a wrong value.
type OptionKey = (&'static str, &'static str, fn(&Cursor<'_>));

const KEYS: [OptionKey; 4] = [
    ("logLevel", "log_level", check::<LogLevel>),
    ("backends", "backends", check_backends),
    ("OPENAI_API_KEY", "llm.api_key", check::<Secret>),
    ("DEBUG_PORT", "serve.debug_port", check_port),
];

/// Checks a client's `initializationOptions`, and returns them as a layer of our own keys.
pub(crate) fn parse(options: &Json) -> Result<Layer, Vec<Problem>> {
    let node = Node::from_json(options, &Origin::Options);
    let mut layer = Layer::default();
    let ((), problems) = cursor::read(&node, "", |at| {
        // `entries` reports that these are no map. It is not called for a map, whose unknown keys are ignored.
        if let Value::Scalar(_) | Value::List(_) = at.node.value {
            at.entries(&[]);
        }
        for (option, key, check) in KEYS {
            let Some(at) = at.member(option) else { continue };
            check(&at);
            if !at.is_null() {
                layer.put(key, at.node.clone());
            }
        }
    });
    if problems.is_empty() { Ok(layer) } else { Err(problems) }
}

/// Raises a log level that would hide warnings to `warn`, unless the owner's own level hides them too; returns a notice.
///
/// Warnings tell a person that something was not recorded, or that a tool changed. No client may turn them off.
pub(crate) fn keep_warnings(options: &mut Layer, configured: LogLevel) -> Option<String> {
    let quietest = LogLevel::Warn.max(configured);
    let requested = options.read::<LogLevel>("log_level").filter(|requested| *requested > quietest)?;
    options.put("log_level", Node::text(quietest.name(), Origin::Options));
    Some(format!("a client asked for logLevel {requested}, which would hide warnings: {quietest} holds"))
}

/// Returns a problem for each option that would change the configuration.
pub(crate) fn changes_of(options: &Layer, now: &Settings) -> Vec<Problem> {
    let configured = now.backends.as_ref().map_or(&[][..], |now| &now.list);
    let is_change = |key: &str| match key {
        "log_level" => options.read::<LogLevel>(key).is_some_and(|level| level != now.log_level),
        "backends" => options
            .read::<Backends>(key)
            .is_some_and(|asked| asked.list.iter().any(|backend| !configured.contains(backend))),
        "serve.debug_port" => {
            options.read::<Count<0, 65_535, u16>>(key).is_some_and(|port| now.serve.debug_port != Some(port))
        }
        // A key is never compared: the answer would tell a client whether its guess is right.
        _ => options.get(key).is_some(),
    };
    let changes = KEYS.into_iter().filter(|(_, key, _)| is_change(key));
    let problem = |(option, key, _): OptionKey| {
        let or_variable = if option == "OPENAI_API_KEY" { " or the variable OPENAI_API_KEY" } else { "" };
        let why =
            format!("is not taken from a client on HTTP: configure the gateway with {key}{or_variable}");
        Problem::new(&Origin::Options, option, why)
    };
    changes.map(problem).collect()
}

fn check<T: Setting>(at: &Cursor<'_>) {
    T::read(at);
}

fn check_backends(at: &Cursor<'_>) {
    if at.is_null() {
        at.wrong::<()>("must be a list of backends");
        return;
    }
    let Some(backends) = Backends::read(at) else { return };
    for id in backends.quarantine.keys() {
        let why = format!("is not taken from a client (backend {id}): set it in the configuration");
        at.under("quarantine").wrong::<()>(why);
    }
    if backends.list.is_empty() {
        at.wrong::<()>("must name at least one backend");
    }
}

fn check_port(at: &Cursor<'_>) {
    let is_port = match &at.node.value {
        Value::Null => true,
        Value::Scalar(Scalar { kind: Kind::Number, text, .. }) => {
            text.parse::<u16>().is_ok_and(|port| port > 0)
        }
        _ => false,
    };
    if !is_port {
        at.wrong::<()>("must be a port: a whole number from 1 to 65535");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(options: &serde_json::Value) -> Vec<String> {
        let problems = parse(options).err().unwrap_or_default();
        problems.iter().map(|p| format!("{} {}", p.key, p.message)).collect()
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let options = parse(&json!({
            "logLevel": "debug", "OPENAI_API_KEY": "sk-x", "DEBUG_PORT": 3001, "somethingElse": true,
            "backends": [{"id": "filesystem", "type": "stdio", "command": "npx", "args": ["-y"]}],
        }))
        .ok()
        .unwrap();
        let text = |key: &str| options.get(key).and_then(Node::scalar).unwrap().text.clone();
        assert_eq!((text("serve.debug_port"), text("llm.api_key")), ("3001".to_owned(), "sk-x".to_owned()));
        assert_eq!(options.read::<Backends>("backends").unwrap().list[0].id, "filesystem");
        assert_eq!(text("log_level"), "debug");
    }

    #[test]
    fn a_client_cannot_silence_warnings() {
        let kept = |asked: &str, configured: LogLevel| {
            let mut options = parse(&json!({ "logLevel": asked })).ok().unwrap();
            let warning = keep_warnings(&mut options, configured);
            (options.read::<LogLevel>("log_level").unwrap(), warning.is_some())
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
    fn no_option_is_required() {
        for options in [json!(null), json!({}), json!({"DEBUG_PORT": null})] {
            assert!(parse(&options).is_ok(), "{options}");
        }
    }

    #[test]
    fn every_invalid_option_is_reported() {
        let messages = refused(&json!({
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
        assert_eq!(messages, expected);
        let held = json!({"id": "a", "type": "stdio", "command": "c", "quarantine": "off"});
        assert!(refused(&json!({ "backends": [held] }))[0].contains("quarantine is not taken from a client"));
        assert_eq!(refused(&json!({"backends": []})), ["backends must name at least one backend"]);
        assert_eq!(refused(&json!({"backends": null})), ["backends must be a list of backends"]);
        for port in [json!(0), json!(-1), json!(1.5), json!(65536), json!(true)] {
            assert_eq!(refused(&json!({ "DEBUG_PORT": port })).len(), 1, "{port}");
        }
        assert_eq!(refused(&json!({"logLevel": 3, "OPENAI_API_KEY": 4})).len(), 2);
        assert_eq!(refused(&json!([1])), [" must be a map of keys to values"]);
    }

    #[test]
    fn an_error_never_contains_the_key() {
        let messages = refused(&json!({"OPENAI_API_KEY": ["sk-123456"], "DEBUG_PORT": "sk-123456"}));
        assert!(!messages.concat().contains("sk-123456"), "{messages:?}");
    }
}
