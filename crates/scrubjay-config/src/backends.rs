//! The backends: checked as the seed's schema does, every problem at once.
//!
//! The same function reads them from a file and from a client's `initializationOptions`.

use std::collections::BTreeMap;
use std::time::Duration;

use scrubjay_gateway::config::{BackendConfig, BackendLink, InheritEnv, Quarantine};

use super::mask::{self, Masked};
use super::node::{Kind, Node, Origin, Scalar, Value, below};
use super::problem::{Problem, unknown};
use super::setting::{Count, Setting, Shown, Span, text, texts, write_duration};

const ID_CHARS_MAX: usize = 64;
/// Longer than hosts wait by themselves (a minute, mostly), so that it is they who give up first.
const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

const COMMON: [&str; 7] =
    ["id", "displayName", "type", "callTimeout", "shared", "maxConnections", "quarantine"];
const STDIO: [&str; 4] = ["command", "args", "env", "inheritEnv"];
const HTTP: [&str; 2] = ["url", "headers"];

/// The backends of one layer, and how they were written.
#[derive(Clone)]
pub struct Backends {
    pub list: Vec<BackendConfig>,
    /// Which of their definitions are held back, by their ids, where they say.
    pub quarantine: BTreeMap<String, Quarantine>,
    written: Node,
}

impl Setting for Backends {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let list = read_backends(node, key, problems);
        let quarantine = read_quarantine(node, key, problems);
        (problems.len() == before).then(|| Self { list, quarantine, written: node.clone() })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        if self.list.is_empty() {
            out.push(Shown::new(key, serde_json::json!([]), origin));
        }
        let Value::List(items) = &self.written.value else { return };
        for (i, (item, backend)) in items.iter().zip(&self.list).enumerate() {
            let path = format!("{key}[{i}]");
            show_backend(item, &path, out);
            if item.get("inheritEnv").is_none() && matches!(backend.link, BackendLink::Stdio { .. }) {
                out.push(Shown::new(&below(&path, "inheritEnv"), false, &Origin::Default));
            }
            if item.get("callTimeout").is_none() {
                let timeout = write_duration(backend.call_timeout);
                out.push(Shown::new(&below(&path, "callTimeout"), timeout, &Origin::Default));
            }
        }
    }
}

/// Reads a list of backends; what is wrong with it is reported.
fn read_backends(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Vec<BackendConfig> {
    let Value::List(items) = &node.value else {
        problems.push(Problem::new(&node.origin, key, "must be a list of backends"));
        return Vec::new();
    };
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut backends = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let path = format!("{key}[{i}]");
        if let Some(Value::Scalar(id)) = item.get("id").map(|id| &id.value)
            && let Some(first) = seen.insert(&id.text, i)
        {
            let message = format!("is the id of {key}[{first}] already");
            problems.push(Problem::new(&item.origin, below(&path, "id"), message));
        }
        backends.extend(Fields { node: item, path: &path, problems }.backend());
    }
    backends
}

/// Reads which definitions each backend says are held back.
fn read_quarantine(node: &Node, key: &str, problems: &mut Vec<Problem>) -> BTreeMap<String, Quarantine> {
    let Value::List(items) = &node.value else { return BTreeMap::new() };
    let said = items.iter().enumerate().filter_map(|(i, item)| {
        let mode = Quarantine::read(item.get("quarantine")?, &format!("{key}[{i}].quarantine"), problems)?;
        match &item.get("id")?.value {
            Value::Scalar(id) => Some((id.text.clone(), mode)),
            _ => None,
        }
    });
    said.collect()
}

/// The fields of one backend.
struct Fields<'a> {
    node: &'a Node,
    path: &'a str,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Fields<'a> {
    fn backend(mut self) -> Option<BackendConfig> {
        let Value::Map(entries) = &self.node.value else {
            self.wrong(self.node, "", "must be a map of keys to values");
            return None;
        };
        let link_type = self.link_type();
        self.refuse_others(entries, link_type);
        let id = self.id();
        let display_name = self.optional_text("displayName");
        let call_timeout = self.call_timeout();
        let is_shared = self.is_shared();
        let connections_max = self.connections_max();
        let link = match link_type {
            Some("stdio") => self.stdio(),
            Some(other) => self.http(other == "sse"),
            None => None,
        };
        Some(BackendConfig {
            id: id?,
            display_name: display_name?,
            link: link?,
            call_timeout: call_timeout?,
            is_shared: is_shared?,
            connections_max: connections_max?,
        })
    }

    fn link_type(&mut self) -> Option<&'a str> {
        let node = self.required("type")?;
        match text(node, &below(self.path, "type"), self.problems)? {
            found @ ("stdio" | "http" | "sse") => Some(found),
            other => {
                let message = format!("must be \"stdio\", \"http\" or \"sse\", not {other:?}");
                self.wrong(node, "type", &message);
                None
            }
        }
    }

    /// Reports every key that a backend of this type does not have.
    fn refuse_others(&mut self, entries: &[(String, Node)], link_type: Option<&str>) {
        let (ours, theirs, other_type): (&[&str], &[&str], &str) = match link_type {
            Some("stdio") => (&STDIO, &HTTP, "http"),
            Some(_) => (&HTTP, &STDIO, "stdio"),
            None => (&[], &[], ""),
        };
        let known: Vec<&str> = match link_type {
            Some(_) => COMMON.iter().chain(ours).copied().collect(),
            None => COMMON.iter().chain(&STDIO).chain(&HTTP).copied().collect(),
        };
        for (name, node) in entries.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
            if theirs.contains(&name.as_str()) {
                self.wrong(node, name, &format!("belongs to backends of type \"{other_type}\""));
            } else {
                self.wrong(node, name, &unknown(name, &known));
            }
        }
    }

    fn id(&mut self) -> Option<String> {
        let node = self.required("id")?;
        let id = text(node, &below(self.path, "id"), self.problems)?;
        let fits = (1..=ID_CHARS_MAX).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !fits {
            self.wrong(node, "id", "must be 1 to 64 letters, digits, _ or -");
        }
        fits.then(|| id.to_owned())
    }

    fn call_timeout(&mut self) -> Option<Duration> {
        let Some(node) = self.node.get("callTimeout") else { return Some(CALL_TIMEOUT_DEFAULT) };
        Span::<1>::read(node, &below(self.path, "callTimeout"), self.problems).map(|span| span.0)
    }

    fn is_shared(&mut self) -> Option<bool> {
        let Some(node) = self.node.get("shared") else { return Some(false) };
        bool::read(node, &below(self.path, "shared"), self.problems)
    }

    fn connections_max(&mut self) -> Option<usize> {
        let Some(node) = self.node.get("maxConnections") else { return Some(BackendConfig::CONNECTIONS_MAX) };
        let count = Count::<1, 100_000>::read(node, &below(self.path, "maxConnections"), self.problems)?;
        Some(usize::try_from(count.0).unwrap_or(usize::MAX))
    }

    fn stdio(&mut self) -> Option<BackendLink> {
        let command = self.required_text("command");
        let args = match self.node.get("args") {
            Some(node) => texts(node, &below(self.path, "args"), self.problems),
            None => Some(Vec::new()),
        };
        let env = self.map_of_texts("env", |name, _| {
            let fits = !name.is_empty() && !name.contains(['=', '\0']);
            if fits { Ok(()) } else { Err("is not the name of a variable") }
        });
        let inherit_env = self.inherit_env();
        Some(BackendLink::Stdio { command: command?, args: args?, env: env?, inherit_env: inherit_env? })
    }

    fn inherit_env(&mut self) -> Option<InheritEnv> {
        let Some(node) = self.node.get("inheritEnv") else { return Some(InheritEnv::default()) };
        match &node.value {
            Value::Scalar(Scalar { kind: Kind::Boolean, text, .. }) => {
                let all = text.eq_ignore_ascii_case("true");
                Some(if all { InheritEnv::All } else { InheritEnv::Basic })
            }
            Value::List(_) => {
                let names = texts(node, &below(self.path, "inheritEnv"), self.problems)?;
                Some(InheritEnv::Named(names))
            }
            _ => {
                self.wrong(node, "inheritEnv", "must be true, false or a list of variables");
                None
            }
        }
    }

    fn http(&mut self, sse: bool) -> Option<BackendLink> {
        let url = self.required_text("url").and_then(|url| {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            let fits = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':', '?', '#']))
                && url.bytes().all(|b| b.is_ascii_graphic());
            if !fits {
                self.wrong(self.node.get("url")?, "url", "must be an http:// or https:// address");
            }
            fits.then_some(url)
        });
        let headers = self.map_of_texts("headers", |name, value| {
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if name.is_empty() || !name.bytes().all(token) {
                return Err("is not the name of a header");
            }
            let fits = value.bytes().all(|b| b.is_ascii_graphic() || b == b' ' || b == b'\t');
            if fits { Ok(()) } else { Err("must be visible ASCII characters") }
        });
        Some(BackendLink::Http { url: url?, headers: headers?, sse })
    }

    fn map_of_texts(
        &mut self,
        name: &str,
        check: impl Fn(&str, &str) -> Result<(), &'static str>,
    ) -> Option<BTreeMap<String, String>> {
        let Some(node) = self.node.get(name) else { return Some(BTreeMap::new()) };
        let Value::Map(entries) = &node.value else {
            self.wrong(node, name, "must be a map of names to values");
            return None;
        };
        let before = self.problems.len();
        let mut map = BTreeMap::new();
        for (key, value) in entries {
            let path = below(&below(self.path, name), key);
            let Some(text) = text(value, &path, self.problems) else { continue };
            match check(key, text) {
                Ok(()) => drop(map.insert(key.clone(), text.to_owned())),
                Err(message) => self.problems.push(Problem::new(&value.origin, path, message)),
            }
        }
        (self.problems.len() == before).then_some(map)
    }

    fn required(&mut self, name: &str) -> Option<&'a Node> {
        let found = self.node.get(name);
        if found.is_none() {
            self.wrong(self.node, name, "is required");
        }
        found
    }

    fn required_text(&mut self, name: &str) -> Option<String> {
        let node = self.required(name)?;
        let text = text(node, &below(self.path, name), self.problems)?;
        if text.is_empty() {
            self.wrong(node, name, "must not be empty");
        }
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Returns `None` for a value that is wrong, `Some(None)` where there is none.
    fn optional_text(&mut self, name: &str) -> Option<Option<String>> {
        let Some(node) = self.node.get(name) else { return Some(None) };
        text(node, &below(self.path, name), self.problems).map(|text| Some(text.to_owned()))
    }

    fn wrong(&mut self, node: &Node, name: &str, message: &str) {
        let key = if name.is_empty() { self.path.to_owned() } else { below(self.path, name) };
        self.problems.push(Problem::new(&node.origin, key, message));
    }
}

fn show_backend(node: &Node, path: &str, out: &mut Vec<Shown>) {
    let Value::Map(entries) = &node.value else { return };
    let command = match node.get("command").map(|node| &node.value) {
        Some(Value::Scalar(scalar)) => scalar.text.as_str(),
        _ => "",
    };
    for (name, value) in entries {
        let path = below(path, name);
        match (&value.value, name.as_str()) {
            (Value::Map(pairs), _) => {
                for (key, value) in pairs {
                    if let Value::Scalar(scalar) = &value.value {
                        // What a header is called does not tell whether its value lets somebody in.
                        let masked = if name == "headers" {
                            mask::hide(&scalar.text)
                        } else {
                            mask_scalar(key, scalar)
                        };
                        out.push(Shown::masked(&below(&path, key), masked, &value.origin));
                    }
                }
            }
            (Value::List(items), _) => out.push(show_list(&path, command, items, &value.origin)),
            (Value::Scalar(scalar), _) => {
                out.push(Shown::masked(&path, mask_scalar("", scalar), &value.origin));
            }
            (Value::Null, _) => {}
        }
    }
}

fn show_list(path: &str, command: &str, items: &[Node], origin: &Origin) -> Shown {
    let scalars: Vec<&Scalar> = items
        .iter()
        .filter_map(|item| if let Value::Scalar(scalar) = &item.value { Some(scalar) } else { None })
        .collect();
    let mut masked = mask::mask_args(command, scalars.iter().map(|scalar| scalar.text.as_str()));
    for (masked, scalar) in masked.iter_mut().zip(&scalars) {
        if scalar.secret {
            *masked = mask::hide(&scalar.text);
        }
    }
    let (shown, hidden): (Vec<String>, Vec<Vec<String>>) =
        masked.into_iter().map(|m| (m.shown, m.hidden)).unzip();
    Shown { hidden: hidden.concat(), ..Shown::new(path, serde_json::json!(shown), origin) }
}

fn mask_scalar(name: &str, scalar: &Scalar) -> Masked {
    if scalar.secret { mask::hide(&scalar.text) } else { mask::mask(name, &scalar.text) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(backends: &serde_json::Value) -> Result<Vec<BackendConfig>, Vec<String>> {
        let mut problems = Vec::new();
        let node = Node::from_json(backends, &Origin::Options);
        let read = Backends::read(&node, "backends", &mut problems);
        assert_eq!(read.is_none(), !problems.is_empty());
        read.map(|b| b.list)
            .ok_or_else(|| problems.iter().map(|p| format!("{} {}", p.key, p.message)).collect())
    }

    fn refused(backend: &serde_json::Value, expected: &[&str]) {
        assert_eq!(read(&json!([backend])).unwrap_err(), expected, "{backend}");
    }

    #[test]
    fn the_example_of_the_seed_is_taken() {
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
    fn every_problem_is_named() {
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
    fn ids_are_unique_and_fit_a_tool_name() {
        let stdio = |id: &str| json!({"id": id, "type": "stdio", "command": "c"});
        assert!(read(&json!([stdio(&"x".repeat(64)), stdio("A-Z_0")])).is_ok());
        for id in ["", "a.b", "é", &"x".repeat(65)] {
            assert!(read(&json!([stdio(id)])).is_err(), "{id}");
        }
        let twice = read(&json!([stdio("a"), stdio("b"), stdio("a")])).unwrap_err();
        assert_eq!(twice, ["backends[2].id is the id of backends[0] already"]);
    }

    #[test]
    fn secrets_are_masked_and_known() {
        let node = Node::from_json(
            &json!([
                {"id": "x", "type": "stdio", "command": "c", "args": ["--key", "k-123456", "-pS-123456"],
                 "env": {"API_KEY": "e-123456", "PORT": "80"}},
                {"id": "y", "type": "http", "url": "https://u:p-123456@h/", "headers": {"X-Custom": "h-123456"}},
                {"id": "z", "type": "http", "url": "https://h/?v=1&sig=s-123456"},
            ]),
            &Origin::Options,
        );
        let backends = Backends::read(&node, "backends", &mut Vec::new()).unwrap();
        let mut shown = Vec::new();
        backends.show("backends", &Origin::Options, &mut shown);
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
