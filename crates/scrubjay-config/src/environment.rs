//! The environment: the process's own variables over those of `--env-file`, the layer that they make, and `${VAR}` in
//! files.
//!
//! Nothing is exported: programs that Scrubjay starts get only the variables of their own configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use scrubjay_core::spelling::nearest;
use thiserror::Error;

use crate::cursor;
use crate::layer::Layer;
use crate::mask::looks_secret;
use crate::node::{Kind, Node, Origin, Scalar, Value, below};
use crate::problem::Problem;
use crate::section;
use crate::setting::WrongValue;

/// Variables of the specifications that set one of our keys; an earlier one wins.
const ALIASES: [(&str, &str); 7] = [
    ("AGENT_PROGRESS_LOG_LEVEL", "log_level"),
    ("LOG_LEVEL", "log_level"),
    ("OPENAI_API_KEY", "llm.api_key"),
    ("OPENAI_BASE_URL", "llm.base_url"),
    ("AGENT_PROGRESS_MODEL", "llm.model"),
    ("AGENT_PROGRESS_DB_PATH", "storage"),
    ("DEBUG_PORT", "serve.debug_port"),
];
/// Our variables that set no key: the warden's, the tests' own, and the pager.
const NOT_KEYS: [&str; 6] = [
    "SCRUBJAY_WARDEN",
    "SCRUBJAY_WARDEN_MALLOC",
    "SCRUBJAY_PEERS",
    "SCRUBJAY_TEST_MARK",
    "SCRUBJAY_TEST_POSTGRES",
    "SCRUBJAY_PAGER",
];

/// Variables, each with its origin. It has no `Debug`, because they may be secrets.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, (String, Origin)>,
    /// Our variables whose values are not UTF-8: ignoring one would silently ignore a setting.
    unreadable: Vec<String>,
}

impl Environment {
    /// Returns the variables of the process.
    pub fn of_process() -> Self {
        Self::from_os(std::env::vars_os())
    }

    fn from_os(pairs: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in pairs {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => {
                    environment.variables.insert(name.clone(), (value, Origin::Environment(name)));
                }
                Err(_) if name.starts_with("SCRUBJAY_") => environment.unreadable.push(name),
                Err(_) => {}
            }
        }
        environment
    }

    /// Returns an environment of only these variables, for tests.
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        Self::from_os(pairs.iter().map(|(name, value)| (name.into(), value.into())))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|(value, _)| value.as_str())
    }

    /// Returns the value of a variable if it is an absolute path: the XDG specification ignores any other.
    pub fn directory(&self, name: &str) -> Option<&Path> {
        self.get(name).map(Path::new).filter(|path| path.is_absolute())
    }

    /// Adds the variables of a file. Those that are set already win.
    pub(crate) fn add_file(&mut self, text: &str, path: &Path, problems: &mut Vec<Problem>) {
        let path: Arc<Path> = path.into();
        let real = std::mem::take(&mut self.variables);
        for (line, text) in (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines()) {
            let path = Arc::clone(&path);
            match parse_line(text) {
                Ok(None) => {}
                Ok(Some((name, value))) => {
                    let origin = Origin::EnvFile { path, line, name: name.to_owned() };
                    self.variables.insert(name.to_owned(), (value, origin));
                }
                Err(error) => problems.push(Problem::new(&Origin::File { path, line }, "", error)),
            }
        }
        self.variables.extend(real);
    }

    /// Returns the layer of the environment; adds a notice for each unknown name that begins with `SCRUBJAY_`.
    pub(crate) fn layer(&self, notices: &mut Vec<String>, problems: &mut Vec<Problem>) -> Layer {
        for name in &self.unreadable {
            problems.push(Problem::new(&Origin::Environment(name.clone()), "", "is not UTF-8"));
        }
        let mut layer = Layer::default();
        // In reverse, so that the earlier one is put over the later one.
        for (name, path) in ALIASES.iter().rev() {
            let Some((node, key)) = self.node(name).zip(section::key(path)) else { continue };
            // Other programs read these variables too, so a value that is wrong for us is only a notice.
            match cursor::read(&node, path, key.check).1.first() {
                Some(problem) => notices.push(format!("{problem}; it is left out")),
                None => layer.put(path, node),
            }
        }
        let keys: Vec<(String, &'static str)> =
            section::keys().iter().filter_map(|key| Some((key.variable()?, &*key.path))).collect();
        for (name, path) in &keys {
            if let Some(node) = self.node(name) {
                layer.put(path, node);
            }
        }
        let known: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
        let ours = self.variables.keys().map(String::as_str).filter(|name| name.starts_with("SCRUBJAY_"));
        for name in ours.filter(|name| !known.contains(name) && !NOT_KEYS.contains(name)) {
            let hint =
                nearest(name, &known).map(|near| format!(": did you mean {near}?")).unwrap_or_default();
            notices.push(format!("${name} is not a variable that Scrubjay knows{hint}"));
        }
        layer.check(problems);
        layer
    }

    /// Returns the value of a variable that is set and not empty.
    fn node(&self, name: &str) -> Option<Node> {
        let (value, origin) = self.variables.get(name).filter(|(value, _)| !value.is_empty())?;
        Some(Node::text(value, origin.clone()))
    }

    /// Replaces `${VAR}` and `${VAR:-default}` in the texts of a value; `$${` stands for a plain `${`.
    ///
    /// Works on the tree, after parsing, so a variable's value is only ever text: never a key, a list or other YAML.
    pub(crate) fn expand(&self, node: &mut Node, key: &str, problems: &mut Vec<Problem>) {
        match &mut node.value {
            Value::Null => {}
            Value::Scalar(scalar) => {
                if let Err(error) = self.expand_scalar(scalar) {
                    problems.push(Problem::new(&node.origin, key, error));
                }
            }
            Value::List(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.expand(item, &format!("{key}[{i}]"), problems);
                }
            }
            Value::Map(entries) => {
                for (name, value) in entries {
                    self.expand(value, &below(key, name), problems);
                }
            }
        }
    }

    fn expand_scalar(&self, scalar: &mut Scalar) -> Result<(), ReferenceError> {
        if scalar.kind != Kind::Text || !scalar.text.contains("${") {
            return Ok(());
        }
        let mut out = String::with_capacity(scalar.text.len());
        let mut rest = scalar.text.as_str();
        while let Some((before, reference)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                out.extend([before, "${"]);
                rest = reference;
                continue;
            }
            let (inside, after) = reference.split_once('}').ok_or(ReferenceError::Open)?;
            let (name, default) =
                inside.split_once(":-").map_or((inside, None), |(name, text)| (name, Some(text)));
            if !is_variable_name(name) {
                return Err(ReferenceError::NoName(inside.to_owned()));
            }
            let value = self.get(name).filter(|value| default.is_none() || !value.is_empty());
            // An empty value counts only without a default, as in a shell's `:-`.
            let value = value.or(default).ok_or_else(|| ReferenceError::Unset(name.to_owned()))?;
            // What was put in is not searched again, so a variable's value cannot refer to another variable.
            out.extend([before, value]);
            scalar.expanded = true;
            scalar.secret |= looks_secret(name);
            rest = after;
        }
        out.push_str(rest);
        scalar.text = out;
        Ok(())
    }
}

/// What is wrong with a reference to a variable.
#[derive(Debug, Error)]
enum ReferenceError {
    #[error("has a ${{ without its }}: write $${{ for a plain ${{")]
    Open,
    #[error("has ${{{0}}}, which names no variable: write ${{NAME}}, or $${{ for a plain ${{")]
    NoName(String),
    #[error("needs the variable {0}, which is not set: set it, or write ${{{0}:-a default}}")]
    Unset(String),
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

const OPEN_QUOTE: &str = "has a quote without its end";

/// Reads a line of an environment file: `NAME=value`, `export NAME="value"`, a comment, or nothing. The error says what
/// is wrong with the line.
fn parse_line(line: &str) -> Result<Option<(&str, String)>, WrongValue> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
    let (name, value) = line.split_once('=').ok_or("is not of the form NAME=value")?;
    let name = name.trim_end();
    if !is_variable_name(name) {
        return Err("is not of the form NAME=value: a name has letters, digits and _".into());
    }
    let value = value.trim_start();
    let (value, rest) = match value.chars().next() {
        Some('\'') => {
            let (inside, rest) = value[1..].split_once('\'').ok_or(OPEN_QUOTE)?;
            (inside.to_owned(), rest)
        }
        Some('"') => double_quoted(&value[1..])?,
        _ => (bare(value).to_owned(), ""),
    };
    let rest = rest.trim_start();
    if !rest.is_empty() && !rest.starts_with('#') {
        return Err("has something after the closing quote".into());
    }
    Ok(Some((name, value)))
}

/// Reads up to the closing quote; returns the rest of the line too.
fn double_quoted(text: &str) -> Result<(String, &str), WrongValue> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[i + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('t') => value.push('\t'),
                Some(c @ ('"' | '\\' | '$')) => value.push(c),
                Some(c) => value.extend(['\\', c]),
                None => break,
            },
            c => value.push(c),
        }
    }
    Err(OPEN_QUOTE.into())
}

/// Cuts off a comment, which begins with `#` at the start or after a space.
fn bare(text: &str) -> &str {
    let begins_comment =
        |(at, _): &(usize, &str)| text[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let end = text.match_indices('#').find(begins_comment).map_or(text.len(), |(at, _)| at);
    text[..end].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::LogLevel;
    use crate::sections::serve::Host;
    use crate::setting::List;

    #[test]
    fn lines_of_an_environment_file_are_parsed() {
        let check = |line: &str, expected: Option<(&str, &str)>| {
            let parsed = parse_line(line).unwrap();
            assert_eq!(parsed.as_ref().map(|(k, v)| (*k, v.as_str())), expected, "{line}");
        };
        check("", None);
        check("  # A=1", None);
        check("A=1", Some(("A", "1")));
        check("export A = two words  # a note", Some(("A", "two words")));
        check("A=", Some(("A", "")));
        check("A= # nothing", Some(("A", "")));
        check("A=a#b", Some(("A", "a#b")));
        check("A='$x \\n # y' # note", Some(("A", "$x \\n # y")));
        check(r#"A="a\"b\n\\ \d # é" "#, Some(("A", "a\"b\n\\ \\d # é")));
        check("A=x=y", Some(("A", "x=y")));
        for wrong in ["A", "=1", "1A=2", "A B=1", "A='x", "A=\"x\\", "A='x'y"] {
            assert!(parse_line(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_real_environment_wins_over_the_file() {
        let mut environment = Environment::of(&[("A", "real")]);
        let mut problems = Vec::new();
        environment.add_file("A=file\nB=1\nB=2\nwrong\n", Path::new("dev.env"), &mut problems);
        assert_eq!(environment.get("A"), Some("real"));
        assert_eq!(environment.get("B"), Some("2"));
        let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(messages, ["dev.env:4: is not of the form NAME=value"]);
    }

    fn layer(pairs: &[(&str, &str)]) -> (Layer, Vec<String>, Vec<Problem>) {
        let (mut notices, mut problems) = (Vec::new(), Vec::new());
        let tree = Environment::of(pairs).layer(&mut notices, &mut problems);
        (tree, notices, problems)
    }

    #[test]
    fn our_variable_wins_over_the_names_of_other_programs() {
        let level = |pairs: &[(&str, &str)]| {
            let layer = layer(pairs).0;
            let level = layer.read::<LogLevel>("log_level").unwrap();
            (level.to_string(), layer.get("log_level").unwrap().origin.to_string())
        };
        let all =
            [("LOG_LEVEL", "warn"), ("AGENT_PROGRESS_LOG_LEVEL", "debug"), ("SCRUBJAY_LOG_LEVEL", "trace")];
        assert_eq!(level(&all), ("trace".to_owned(), "$SCRUBJAY_LOG_LEVEL".to_owned()));
        assert_eq!(level(&all[..2]), ("debug".to_owned(), "$AGENT_PROGRESS_LOG_LEVEL".to_owned()));
        assert_eq!(level(&all[..1]), ("warn".to_owned(), "$LOG_LEVEL".to_owned()));
    }

    #[test]
    fn an_invalid_value_under_a_shared_name_is_ignored_with_a_notice() {
        let (found, notices, problems) = layer(&[("LOG_LEVEL", "verbose")]);
        assert!(found.get("log_level").is_none() && problems.is_empty());
        assert!(notices[0].contains("$LOG_LEVEL") && notices[0].contains("left out"), "{notices:?}");
        assert!(layer(&[("SCRUBJAY_LOG_LEVEL", "")]).0.get("log_level").is_none());
    }

    #[test]
    fn wrong_and_unknown_scrubjay_variables_are_reported() {
        let (_, _, problems) = layer(&[("SCRUBJAY_SERVE_MAX_SESSIONS", "many")]);
        assert!(problems[0].to_string().starts_with("$SCRUBJAY_SERVE_MAX_SESSIONS: "), "{problems:?}");
        let (_, notices, _) = layer(&[("SCRUBJAY_LOGLEVEL", "info"), ("SCRUBJAY_WARDEN", "1")]);
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].contains("did you mean SCRUBJAY_LOG_LEVEL?"), "{notices:?}");
    }

    #[test]
    fn a_scrubjay_variable_that_is_not_utf_8_is_reported() {
        use std::os::unix::ffi::OsStringExt;
        let broken = |name: &str| (OsString::from(name), OsString::from_vec(b"/d\xff".to_vec()));
        let environment = Environment::from_os([broken("SCRUBJAY_DATA"), broken("OTHER")].into_iter());
        let mut problems = Vec::new();
        environment.layer(&mut Vec::new(), &mut problems);
        assert_eq!(
            problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["$SCRUBJAY_DATA: is not UTF-8"]
        );
    }

    #[test]
    fn lists_in_variables_are_separated_by_commas() {
        let (layer, _, problems) = layer(&[("SCRUBJAY_SERVE_ALLOWED_HOSTS", "a.example, b.example,")]);
        assert!(problems.is_empty());
        let hosts = layer.read::<List<Host>>("serve.allowed_hosts").unwrap();
        assert_eq!(hosts, ["a.example", "b.example"]);
    }

    fn check_expanded(text: &str, expected: Result<&str, &str>) {
        let environment = Environment::of(&[("HOME", "/h"), ("EMPTY", ""), ("TRAP", "${HOME}\nk: v")]);
        let b = ("b".to_owned(), Node::text(text, Origin::Default));
        let mut node = Node { origin: Origin::Default, value: Value::Map(vec![b]) };
        let mut problems = Vec::new();
        environment.expand(&mut node, "a", &mut problems);
        let scalar = node.get("b").and_then(Node::scalar).unwrap();
        match expected {
            Ok(expected) => {
                assert_eq!(scalar.text, expected, "{text}");
                assert!(problems.is_empty(), "{problems:?}");
            }
            Err(words) => {
                assert_eq!(problems.len(), 1, "{text}");
                assert!(problems[0].message.contains(words), "{problems:?}");
                assert_eq!(problems[0].key, "a.b");
            }
        }
    }

    #[test]
    fn variables_are_expanded() {
        check_expanded("plain $HOME $", Ok("plain $HOME $"));
        check_expanded("${HOME}/x and ${HOME}", Ok("/h/x and /h"));
        check_expanded("${NOBODY:-there}", Ok("there"));
        check_expanded("${NOBODY:-}", Ok(""));
        check_expanded("${EMPTY:-full}", Ok("full"));
        check_expanded("${EMPTY}", Ok(""));
        check_expanded("$${HOME} costs $$5", Ok("${HOME} costs $$5"));
    }

    #[test]
    fn the_value_of_a_variable_is_not_expanded_again() {
        check_expanded("${TRAP}", Ok("${HOME}\nk: v"));
    }

    #[test]
    fn an_unset_or_malformed_variable_is_reported() {
        check_expanded("x${NOBODY}", Err("the variable NOBODY, which is not set"));
        check_expanded("${HOME", Err("without its }"));
        check_expanded("${a b}", Err("names no variable"));
        check_expanded("${}", Err("names no variable"));
        check_expanded("${1}", Err("names no variable"));
    }

    #[test]
    fn a_value_from_a_secret_variable_is_secret() {
        let environment = Environment::of(&[("GITHUB_TOKEN", "t0p"), ("HOME", "/h")]);
        for (text, secret) in [("x-${GITHUB_TOKEN}", true), ("${HOME}", false)] {
            let mut scalar = Scalar::new(text.to_owned(), Kind::Text);
            environment.expand_scalar(&mut scalar).unwrap();
            assert_eq!(scalar.secret, secret);
            assert!(!scalar.quoted().contains("t0p"));
        }
    }
}
