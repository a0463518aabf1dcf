//! `backends`: the MCP servers behind the gateway, checked as the gateway's specification demands.
//!
//! The same functions read them from a file and from a client's `initializationOptions`.

use std::collections::BTreeMap;
use std::time::Duration;

use scrubjay_gateway::config::{BackendConfig, BackendLink, InheritEnv, Quarantine};
use serde_json::{Value as Json, json};

use crate::cursor::Cursor;
use crate::mask::{self, Masked};
use crate::node::{Kind, Node, Origin, Scalar, Value};
use crate::problem::unknown;
use crate::setting::{Count, Setting, ShownSetting, Span, WrongValue, write_duration};

/// The gateway's specification: `^[a-zA-Z0-9_-]{1,64}$`.
const ID_CHARS_MAX: usize = 64;
/// Longer than most hosts wait (a minute), so that the host gives up first.
const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

const COMMON: [&str; 7] =
    ["id", "displayName", "type", "callTimeout", "shared", "maxConnections", "quarantine"];
const STDIO: [&str; 4] = ["command", "args", "env", "inheritEnv"];
const HTTP: [&str; 2] = ["url", "headers"];

/// The backends of one layer.
#[derive(Clone)]
pub(crate) struct Backends {
    pub(crate) list: Vec<BackendConfig>,
    /// Which definitions are held back, by the id of each backend that sets it.
    pub(crate) quarantine: BTreeMap<String, Quarantine>,
}

impl Setting for Backends {
    type Value = Self;

    const FITS_VARIABLE: bool = false;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        let items = at.list_of(" of backends")?;
        at.if_right(|| {
            let mut first: BTreeMap<&str, &Cursor<'_>> = BTreeMap::new();
            let mut list = Vec::with_capacity(items.len());
            for at in &items {
                if let Some(other) = at.node.text_at("id").and_then(|id| first.insert(id, at)) {
                    // With the line of the backend: in a long list it says which one is meant.
                    at.under("id").wrong::<()>(format!("is the id of {} already", other.key));
                }
                list.extend(read_backend(at));
            }
            let held = |at: &Cursor<'_>| {
                let mode = at.get::<Quarantine>("quarantine")?;
                Some((at.node.text_at("id")?.to_owned(), mode))
            };
            Some(Self { list, quarantine: items.iter().filter_map(held).collect() })
        })
    }

    fn show(at: &Cursor<'_>, out: &mut Vec<ShownSetting>) {
        let items = at.list_of("").unwrap_or_default();
        if items.is_empty() {
            out.push(ShownSetting::of(at, json!([])));
        }
        for at in items {
            show_backend(&at, out);
            let mut show_default = |key: &str, value: Json| {
                if at.member(key).is_none() {
                    out.push(ShownSetting::new(&at.under(key).key, value, &Origin::Default));
                }
            };
            if at.node.text_at("type") == Some("stdio") {
                show_default("inheritEnv", json!(false));
            }
            show_default("callTimeout", json!(write_duration(CALL_TIMEOUT_DEFAULT)));
        }
    }
}

/// Reads one backend. A wrong value is reported and becomes its default: with a problem, no backend counts.
fn read_backend(at: &Cursor<'_>) -> Option<BackendConfig> {
    let Value::Map(entries) = &at.node.value else {
        return at.wrong("must be a map of keys to values");
    };
    // First, because the type decides which keys are known.
    let link_type = read_type(at);
    refuse_others(at, entries, link_type);
    let id = at.required("id").and_then(|at| read_id(&at));
    let display_name = at.member("displayName").and_then(|at| Some(at.text()?.to_owned()));
    let call_timeout = at.get::<Span<1>>("callTimeout").unwrap_or(CALL_TIMEOUT_DEFAULT);
    let is_shared = at.get::<bool>("shared").unwrap_or_default();
    let connections_max = at.get::<Count<1, 100_000>>("maxConnections");
    let connections_max = connections_max.unwrap_or(BackendConfig::CONNECTIONS_MAX);
    // Every key is read before `?` ends the function, so that all problems of a backend are reported.
    let link = match link_type {
        Some("stdio") => read_stdio(at),
        Some(other) => read_http(at, other == "sse"),
        None => None,
    };
    Some(BackendConfig { id: id?, display_name, link: link?, call_timeout, is_shared, connections_max })
}

fn read_type<'a>(at: &Cursor<'a>) -> Option<&'a str> {
    let at = at.required("type")?;
    match at.text()? {
        found @ ("stdio" | "http" | "sse") => Some(found),
        other => at.wrong(format!("must be \"stdio\", \"http\" or \"sse\", not {other:?}")),
    }
}

/// Reports the keys that a backend of this type does not have.
fn refuse_others(at: &Cursor<'_>, entries: &[(String, Node)], link_type: Option<&str>) {
    let (known, theirs, other_type): (Vec<&str>, &[&str], &str) = match link_type {
        Some("stdio") => ([&COMMON[..], &STDIO].concat(), &HTTP, "http"),
        Some(_) => ([&COMMON[..], &HTTP].concat(), &STDIO, "stdio"),
        None => ([&COMMON[..], &STDIO, &HTTP].concat(), &[], ""),
    };
    for (name, _) in entries.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
        at.member_or_self(name).wrong::<()>(if theirs.contains(&name.as_str()) {
            format!("belongs to backends of type \"{other_type}\"")
        } else {
            unknown(name, &known)
        });
    }
}

fn read_id(at: &Cursor<'_>) -> Option<String> {
    let id = at.text()?;
    let fits = (1..=ID_CHARS_MAX).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if fits { Some(id.to_owned()) } else { at.wrong("must be 1 to 64 letters, digits, _ or -") }
}

fn read_stdio(at: &Cursor<'_>) -> Option<BackendLink> {
    let command = at.required("command").and_then(|at| Some(at.filled_text()?.to_owned()));
    let texts = |at: &Cursor<'_>| at.each(|text| Ok::<_, &str>(text.to_owned()));
    let args = at.member("args").and_then(|at| texts(&at)).unwrap_or_default();
    let env = map_of_texts(at, "env", |name, _| {
        let fits = !name.is_empty() && !name.contains(['=', '\0']);
        if fits { Ok(()) } else { Err("is not the name of a variable".into()) }
    });
    let inherit_env = at.member("inheritEnv").and_then(|at| match &at.node.value {
        Value::Scalar(Scalar { kind: Kind::Boolean, text, .. }) => {
            Some(if text.eq_ignore_ascii_case("true") { InheritEnv::All } else { InheritEnv::Basic })
        }
        Value::List(_) => texts(&at).map(InheritEnv::Named),
        _ => at.wrong("must be true, false or a list of variables"),
    });
    Some(BackendLink::Stdio { command: command?, args, env, inherit_env: inherit_env.unwrap_or_default() })
}

fn read_http(at: &Cursor<'_>, sse: bool) -> Option<BackendLink> {
    let url = at.required("url").and_then(|at| {
        let url = at.filled_text()?;
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let fits = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':', '?', '#']))
            && url.bytes().all(|b| b.is_ascii_graphic());
        if fits { Some(url.to_owned()) } else { at.wrong("must be an http:// or https:// address") }
    });
    let headers = map_of_texts(at, "headers", |name, value| {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err("is not the name of a header".into());
        }
        let fits = value.bytes().all(|b| b.is_ascii_graphic() || b == b' ' || b == b'\t');
        if fits { Ok(()) } else { Err("must be visible ASCII characters".into()) }
    });
    Some(BackendLink::Http { url: url?, headers, sse })
}

fn map_of_texts(
    at: &Cursor<'_>,
    name: &str,
    check: impl Fn(&str, &str) -> Result<(), WrongValue>,
) -> BTreeMap<String, String> {
    let entries = at.member(name).and_then(|at| at.map_of("names to values")).unwrap_or_default();
    let read = |(name, at): (&str, Cursor<'_>)| {
        let text = at.text()?;
        at.reported(check(name, text).map(|()| (name.to_owned(), text.to_owned())))
    };
    entries.into_iter().filter_map(read).collect()
}

fn show_backend(at: &Cursor<'_>, out: &mut Vec<ShownSetting>) {
    let command = at.node.text_at("command").unwrap_or_default();
    for (name, at) in at.map_of("").unwrap_or_default() {
        match &at.node.value {
            Value::Map(_) => {
                for (key, at) in at.map_of("").unwrap_or_default() {
                    let Some(scalar) = at.node.scalar() else { continue };
                    // Any header may authorise: its name does not tell.
                    let masked =
                        if name == "headers" { mask::hide(&scalar.text) } else { mask_scalar(key, scalar) };
                    out.push(ShownSetting::masked(&at, masked));
                }
            }
            Value::List(items) => out.push(show_list(&at, command, items)),
            Value::Scalar(scalar) => out.push(ShownSetting::masked(&at, mask_scalar("", scalar))),
            Value::Null => {}
        }
    }
}

fn show_list(at: &Cursor<'_>, command: &str, items: &[Node]) -> ShownSetting {
    let scalars: Vec<&Scalar> = items.iter().filter_map(Node::scalar).collect();
    let mut masked = mask::mask_args(command, scalars.iter().map(|scalar| scalar.text.as_str()));
    for (masked, scalar) in masked.iter_mut().zip(&scalars).filter(|(_, scalar)| scalar.secret) {
        *masked = mask::hide(&scalar.text);
    }
    let (shown, hidden): (Vec<String>, Vec<Vec<String>>) =
        masked.into_iter().map(|m| (m.shown, m.hidden)).unzip();
    ShownSetting { hidden: hidden.concat(), ..ShownSetting::of(at, json!(shown)) }
}

fn mask_scalar(name: &str, scalar: &Scalar) -> Masked {
    if scalar.secret { mask::hide(&scalar.text) } else { mask::mask(name, &scalar.text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor;

    fn read(backends: &serde_json::Value) -> Result<Vec<BackendConfig>, Vec<String>> {
        let node = Node::from_json(backends, &Origin::Options);
        let (read, problems) = cursor::read(&node, "backends", Backends::read);
        assert_eq!(read.is_none(), !problems.is_empty());
        read.map(|b| b.list)
            .ok_or_else(|| problems.iter().map(|p| format!("{} {}", p.key, p.message)).collect())
    }

    fn refused(backend: &serde_json::Value, expected: &[&str]) {
        assert_eq!(read(&json!([backend])).unwrap_err(), expected, "{backend}");
    }

    #[test]
    fn the_example_of_the_specification_is_accepted() {
        let backends = read(&json!([
            {"id": "filesystem", "type": "stdio", "command": "npx",
             "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/Shared/TestPoCDir1"]},
            {"id": "mcpBrowserbase", "displayName": "Browserbase", "type": "stdio", "command": "npx",
             "env": {"BROWSERBASE_API_KEY": "bb_api"}, "inheritEnv": ["PROXY"], "callTimeout": "10s"},
            {"id": "far", "type": "http", "url": "https://far.example/mcp", "headers": {"Authorization": "Bearer x"}},
            {"id": "old", "type": "sse", "url": "https://old.example/sse"},
        ]))
        .unwrap();
        assert_eq!(backends[0].id, "filesystem");
        assert_eq!(backends[0].display_name, None);
        assert_eq!(backends[0].call_timeout, CALL_TIMEOUT_DEFAULT);
        let BackendLink::Stdio { command, args, env, inherit_env } = &backends[0].link else { panic!() };
        assert_eq!((command.as_str(), args.len(), env.len()), ("npx", 3, 0));
        assert_eq!(*inherit_env, InheritEnv::Basic);
        let BackendLink::Stdio { env, inherit_env, .. } = &backends[1].link else { panic!() };
        assert_eq!(env["BROWSERBASE_API_KEY"], "bb_api");
        assert_eq!(*inherit_env, InheritEnv::Named(vec!["PROXY".to_owned()]));
        assert_eq!(backends[1].call_timeout, Duration::from_secs(10));
        assert_eq!(backends[1].display_name.as_deref(), Some("Browserbase"));
        assert!(matches!(&backends[3].link, BackendLink::Http { sse: true, .. }));
        let BackendLink::Http { url, headers, sse: false } = &backends[2].link else { panic!() };
        assert_eq!(
            (url.as_str(), headers["Authorization"].as_str()),
            ("https://far.example/mcp", "Bearer x")
        );
        assert_eq!(read(&json!([])), Ok(Vec::new()));
    }

    #[test]
    fn every_problem_is_reported() {
        refused(&json!({}), &["backends[0].type is required", "backends[0].id is required"]);
        refused(
            &json!({"id": "a b", "type": "stdio", "command": "", "args": [1, "x"], "env": {"A": 1, "B=": "x"},
                    "displayName": 3, "inheritEnv": "yes", "callTimeout": "soon", "comand": "x", "url": "http://x"}),
            &[
                "backends[0].comand is not a known key: did you mean `command`?",
                "backends[0].url belongs to backends of type \"http\"",
                "backends[0].id must be 1 to 64 letters, digits, _ or -",
                "backends[0].displayName must be a string",
                "backends[0].callTimeout must be a duration of at least 1ms, like 30s, 5m or 1h, not \"soon\"",
                "backends[0].command must not be empty",
                "backends[0].args[0] must be a string",
                "backends[0].env.A must be a string",
                "backends[0].env.B= is not the name of a variable",
                "backends[0].inheritEnv must be true, false or a list of variables",
            ],
        );
        refused(
            &json!({"id": "x", "type": "http", "url": "ftp://x", "headers": {"a b": "x", "c": "d\ne"}, "env": {}}),
            &[
                "backends[0].env belongs to backends of type \"stdio\"",
                "backends[0].url must be an http:// or https:// address",
                "backends[0].headers.a b is not the name of a header",
                "backends[0].headers.c must be visible ASCII characters",
            ],
        );
        refused(
            &json!({"id": "x", "type": "ws"}),
            &["backends[0].type must be \"stdio\", \"http\" or \"sse\", not \"ws\""],
        );
        refused(&json!("npx"), &["backends[0] must be a map of keys to values"]);
        refused(
            &json!({"id": "x", "type": "stdio", "command": "c", "args": "x", "env": null}),
            &["backends[0].args must be a list", "backends[0].env must be a map of names to values"],
        );
        assert_eq!(read(&json!({})).unwrap_err(), ["backends must be a list of backends"]);
    }

    #[test]
    fn ids_are_unique_and_valid_in_tool_names() {
        let stdio = |id: &str| json!({"id": id, "type": "stdio", "command": "c"});
        assert!(read(&json!([stdio(&"x".repeat(64)), stdio("A-Z_0")])).is_ok());
        for id in ["", "a.b", "é", &"x".repeat(65)] {
            assert!(read(&json!([stdio(id)])).is_err(), "{id}");
        }
        let twice = read(&json!([stdio("a"), stdio("b"), stdio("a")])).unwrap_err();
        assert_eq!(twice, ["backends[2].id is the id of backends[0] already"]);
    }

    #[test]
    fn secrets_of_backends_are_masked_and_collected() {
        let node = Node::from_json(
            &json!([
                {"id": "x", "type": "stdio", "command": "c", "args": ["--key", "k-123456", "-pS-123456"],
                 "env": {"API_KEY": "e-123456", "PORT": "80"}},
                {"id": "y", "type": "http", "url": "https://u:p-123456@h/", "headers": {"X-Custom": "h-123456"}},
                {"id": "z", "type": "http", "url": "https://h/?v=1&sig=s-123456"},
            ]),
            &Origin::Options,
        );
        let mut shown = Vec::new();
        cursor::read(&node, "backends", |at| Backends::show(at, &mut shown));
        let text = serde_json::to_string(&shown).unwrap();
        assert!(!text.contains("123456"), "{text}");
        assert!(text.contains("https://u:***@h/") && text.contains(r#"["--key","***","***"]"#), "{text}");
        let hidden: Vec<&str> = shown.iter().flat_map(|s| &s.hidden).map(String::as_str).collect();
        assert_eq!(hidden, ["k-123456", "-pS-123456", "e-123456", "h-123456", "p-123456", "s-123456"]);
        let defaults = shown.iter().filter(|s| s.origin == "default").map(|s| s.key.as_str());
        let expected = [
            "backends[0].inheritEnv",
            "backends[0].callTimeout",
            "backends[1].callTimeout",
            "backends[2].callTimeout",
        ];
        assert_eq!(defaults.collect::<Vec<_>>(), expected);
    }
}
