//! The environment as a map: the process's own variables over those of `--env-file`.
//!
//! Nothing is exported: programs that Scrubjay starts get only the variables of their own configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use scrubjay_core::spelling::nearest;

use crate::node::{Node, Origin};
use crate::problem::Problem;
use crate::section;

/// Variables of the specifications that give one of our keys; an earlier one wins.
const ALIASES: [(&str, &str); 7] = [
    ("AGENT_PROGRESS_LOG_LEVEL", "log_level"),
    ("LOG_LEVEL", "log_level"),
    ("OPENAI_API_KEY", "llm.api_key"),
    ("OPENAI_BASE_URL", "llm.base_url"),
    ("AGENT_PROGRESS_MODEL", "llm.model"),
    ("AGENT_PROGRESS_DB_PATH", "storage"),
    ("DEBUG_PORT", "serve.debug_port"),
];
/// Variables of ours that are no configuration: the warden's, the tests' own, and the pager.
const NOT_KEYS: [&str; 6] = [
    "SCRUBJAY_WARDEN",
    "SCRUBJAY_WARDEN_MALLOC",
    "SCRUBJAY_PEERS",
    "SCRUBJAY_TEST_MARK",
    "SCRUBJAY_TEST_POSTGRES",
    "SCRUBJAY_PAGER",
];

/// Variables and where each comes from. They may be secrets: it has no `Debug`.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, (String, Origin)>,
    /// Our variables whose values are not UTF-8.
    unreadable: Vec<String>,
}

impl Environment {
    /// Takes the process's variables.
    pub fn of_process() -> Self {
        Self::from_os(std::env::vars_os())
    }

    fn from_os(pairs: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut unreadable = Vec::new();
        let text = pairs.filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            match value.into_string() {
                Ok(value) => Some((name, value)),
                Err(_) if name.starts_with("SCRUBJAY_") => {
                    unreadable.push(name);
                    None
                }
                Err(_) => None,
            }
        });
        let variables = Self::from_pairs(text).variables;
        Self { variables, unreadable }
    }

    /// Takes these variables and no others.
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        Self::from_pairs(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
    }

    fn from_pairs(pairs: impl Iterator<Item = (String, String)>) -> Self {
        let variables = pairs.map(|(k, v)| (k.clone(), (v, Origin::Environment(k)))).collect();
        Self { variables, unreadable: Vec::new() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|(value, _)| value.as_str())
    }

    /// Returns a variable that holds an absolute path.
    pub fn directory(&self, name: &str) -> Option<&Path> {
        self.get(name).map(Path::new).filter(|path| path.is_absolute())
    }

    /// Adds the variables of a file, below those that are there.
    pub fn add_file(&mut self, text: &str, path: &Path, problems: &mut Vec<Problem>) {
        let path: Arc<Path> = path.into();
        let real = std::mem::take(&mut self.variables);
        for (i, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
            match parse_line(line) {
                Ok(None) => {}
                Ok(Some((name, value))) => {
                    let origin =
                        Origin::EnvFile { path: Arc::clone(&path), line: i + 1, name: name.to_owned() };
                    self.variables.insert(name.to_owned(), (value, origin));
                }
                Err(message) => {
                    let origin = Origin::File { path: Arc::clone(&path), line: i + 1 };
                    problems.push(Problem::new(&origin, "", message));
                }
            }
        }
        self.variables.extend(real);
    }

    /// Returns the layer of the environment; adds a notice for each unknown name that begins with `SCRUBJAY_`.
    pub fn layer(&self, notices: &mut Vec<String>, problems: &mut Vec<Problem>) -> Node {
        for name in &self.unreadable {
            problems.push(Problem::new(&Origin::Environment(name.clone()), "", "is not UTF-8"));
        }
        let keys: Vec<(String, String)> =
            section::keys().into_iter().filter_map(|key| Some((key.variable()?, key.path))).collect();
        let mut tree = Node::map(Origin::Default);
        for (name, path) in ALIASES.iter().rev() {
            self.put_alias(name, path, &mut tree, notices);
        }
        for (name, path) in &keys {
            if let Some((value, origin)) = self.variables.get(name).filter(|(value, _)| !value.is_empty()) {
                tree.put(path, Node::text(value, origin.clone()));
            }
        }
        let known: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
        let ours = self.variables.keys().filter(|name| name.starts_with("SCRUBJAY_"));
        for name in ours.filter(|n| !known.contains(&n.as_str()) && !NOT_KEYS.contains(&n.as_str())) {
            let hint =
                nearest(name, &known).map(|near| format!(": did you mean {near}?")).unwrap_or_default();
            notices.push(format!("${name} is not a variable that Scrubjay knows{hint}"));
        }
        section::check(&tree, problems);
        tree
    }

    /// Puts the value of a variable that other programs use too: a value that is wrong for us is only a notice.
    fn put_alias(&self, name: &str, path: &str, tree: &mut Node, notices: &mut Vec<String>) {
        let Some((value, origin)) = self.variables.get(name).filter(|(value, _)| !value.is_empty()) else {
            return;
        };
        let mut alone = Node::map(Origin::Default);
        alone.put(path, Node::text(value, origin.clone()));
        let mut problems = Vec::new();
        section::check(&alone, &mut problems);
        match problems.first() {
            Some(problem) => notices.push(format!("{problem}; it is left out")),
            None => tree.put(path, Node::text(value, origin.clone())),
        }
    }
}

/// Reads a line of an environment file: `NAME=value`, `export NAME="value"`, a comment, or nothing.
fn parse_line(line: &str) -> Result<Option<(&str, String)>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
    let (name, value) = line.split_once('=').ok_or("is not of the form NAME=value")?;
    let name = name.trim_end();
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(valid) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("is not of the form NAME=value: a name has letters, digits and _".to_owned());
    }
    let value = value.trim_start();
    let (value, rest) = match value.chars().next() {
        Some('\'') => {
            let (inside, rest) = value[1..].split_once('\'').ok_or("has a quote without its end")?;
            (inside.to_owned(), rest)
        }
        Some('"') => double_quoted(&value[1..])?,
        _ => (bare(value).to_owned(), ""),
    };
    let rest = rest.trim_start();
    if rest.is_empty() || rest.starts_with('#') {
        Ok(Some((name, value)))
    } else {
        Err("has something after the closing quote".to_owned())
    }
}

/// Reads up to the closing quote; returns the rest of the line too.
fn double_quoted(text: &str) -> Result<(String, &str), String> {
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
    Err("has a quote without its end".to_owned())
}

/// Cuts off a comment, which begins with `#` at the start or after a space.
fn bare(text: &str) -> &str {
    let comment = text
        .match_indices('#')
        .map(|(at, _)| at)
        .find(|at| text[..*at].is_empty() || text[..*at].ends_with(char::is_whitespace));
    text[..comment.unwrap_or(text.len())].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_an_environment_file() {
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
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["dev.env:4: is not of the form NAME=value"]);
    }

    fn layer(pairs: &[(&str, &str)]) -> (Node, Vec<String>, Vec<Problem>) {
        let (mut notices, mut problems) = (Vec::new(), Vec::new());
        let tree = Environment::of(pairs).layer(&mut notices, &mut problems);
        (tree, notices, problems)
    }

    fn over_defaults(tree: &Node) -> Node {
        let mut all = section::defaults();
        section::put_over(&mut all, tree);
        all
    }

    #[test]
    fn our_name_wins_over_the_seeds() {
        let level = |pairs: &[(&str, &str)]| {
            let tree = layer(pairs).0;
            let node = tree.find("log_level").unwrap();
            (section::values(&over_defaults(&tree)).log_level.to_string(), node.origin.to_string())
        };
        let all =
            [("LOG_LEVEL", "warn"), ("AGENT_PROGRESS_LOG_LEVEL", "debug"), ("SCRUBJAY_LOG_LEVEL", "trace")];
        assert_eq!(level(&all), ("trace".to_owned(), "$SCRUBJAY_LOG_LEVEL".to_owned()));
        assert_eq!(level(&all[..2]), ("debug".to_owned(), "$AGENT_PROGRESS_LOG_LEVEL".to_owned()));
        assert_eq!(level(&all[..1]), ("warn".to_owned(), "$LOG_LEVEL".to_owned()));
    }

    #[test]
    fn names_that_others_use_too_do_no_harm() {
        let (tree, notices, problems) = layer(&[("LOG_LEVEL", "verbose")]);
        assert!(tree.find("log_level").is_none() && problems.is_empty());
        assert!(notices[0].contains("$LOG_LEVEL") && notices[0].contains("left out"), "{notices:?}");
        assert!(layer(&[("SCRUBJAY_LOG_LEVEL", "")]).0.find("log_level").is_none());
    }

    #[test]
    fn wrong_and_unknown_names_of_ours_are_told() {
        let (_, _, problems) = layer(&[("SCRUBJAY_SERVE_MAX_SESSIONS", "many")]);
        assert!(problems[0].to_string().starts_with("$SCRUBJAY_SERVE_MAX_SESSIONS: "), "{problems:?}");
        let (_, notices, _) = layer(&[("SCRUBJAY_LOGLEVEL", "info"), ("SCRUBJAY_WARDEN", "1")]);
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].contains("did you mean SCRUBJAY_LOG_LEVEL?"), "{notices:?}");
    }

    #[test]
    fn a_value_of_ours_that_is_no_text_is_not_passed_over() {
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
    fn lists_have_commas() {
        let (tree, _, problems) = layer(&[("SCRUBJAY_SERVE_ALLOWED_HOSTS", "a.example, b.example,")]);
        assert!(problems.is_empty());
        let hosts = section::values(&over_defaults(&tree)).serve.allowed_hosts;
        assert_eq!(hosts.0, ["a.example", "b.example"]);
    }
}
