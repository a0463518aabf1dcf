//! The types that keys have: how each is read from text, and how it is shown.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use scrubjay_core::units::{parse_duration, parse_size};
use scrubjay_gateway::config::{Naming, Quarantine, Secret};
use scrubjay_gateway::relay::{Durability, OnRecordFailure};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::mask;
use super::node::{Kind, Node, Origin, Scalar, Value};
use super::problem::Problem;
use super::toolset::Toolset;

/// A value of `config show`, masked.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The key's path.
    pub key: String,
    /// The value as people may see it.
    pub value: Json,
    /// Where it came from.
    pub origin: String,
    /// What the mask hides: for the logs, which must hide it too.
    #[serde(skip)]
    pub hidden: Vec<String>,
}

impl Shown {
    pub(crate) fn new(key: &str, value: impl Into<Json>, origin: &Origin) -> Self {
        Self { key: key.to_owned(), value: value.into(), origin: origin.to_string(), hidden: Vec::new() }
    }

    /// Shows a text of which some may be hidden.
    pub fn masked(key: &str, masked: mask::Masked, origin: &Origin) -> Self {
        Self { hidden: masked.hidden, ..Self::new(key, masked.shown, origin) }
    }

    /// Shows a key without a value.
    pub fn nothing(key: &str) -> Self {
        Self::new(key, Json::Null, &Origin::Default)
    }
}

/// A type that a key can have.
pub(crate) trait Setting: Sized {
    /// Reads the value, or reports why it cannot be one.
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self>;
    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>);
}

/// Returns the single value that stands at a key.
pub(crate) fn scalar<'n>(node: &'n Node, key: &str, problems: &mut Vec<Problem>) -> Option<&'n Scalar> {
    if let Value::Scalar(scalar) = &node.value {
        return Some(scalar);
    }
    problems.push(Problem::new(&node.origin, key, "must be a single value"));
    None
}

/// Returns the text that stands at a key.
///
/// In a file `PORT: 3000` means the text `3000`; a client's JSON has to say what it means.
pub(crate) fn text<'n>(node: &'n Node, key: &str, problems: &mut Vec<Problem>) -> Option<&'n str> {
    let wrong = match &node.value {
        Value::Scalar(s) if s.kind != Kind::Text && node.origin == Origin::Options => "must be a string",
        Value::Scalar(s) if s.text.contains('\0') => "must not contain a NUL character",
        Value::Scalar(s) => return Some(&s.text),
        Value::Null | Value::List(_) | Value::Map(_) => "must be a string",
    };
    problems.push(Problem::new(&node.origin, key, wrong));
    None
}

/// Returns the items of the list that stands at a key.
pub(crate) fn items<'n>(
    node: &'n Node,
    key: &str,
    problems: &mut Vec<Problem>,
    of: &str,
) -> Option<&'n [Node]> {
    if let Value::List(items) = &node.value {
        return Some(items);
    }
    problems.push(Problem::new(&node.origin, key, format!("must be a list of {of}")));
    None
}

/// Returns the texts of the list that stands at a key; where there are no lists, commas part them.
pub(crate) fn texts(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Vec<String>> {
    match &node.value {
        Value::List(items) => {
            let before = problems.len();
            let read = |(i, item)| text(item, &format!("{key}[{i}]"), problems).map(str::to_owned);
            let texts: Vec<String> = items.iter().enumerate().filter_map(read).collect();
            (problems.len() == before).then_some(texts)
        }
        Value::Scalar(s) if node.origin.lists_with_commas() => {
            Some(s.text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect())
        }
        _ => {
            problems.push(Problem::new(&node.origin, key, "must be a list"));
            None
        }
    }
}

/// Reads a value from text with a function that says what it must be.
pub(crate) fn parse<T>(
    node: &Node,
    key: &str,
    problems: &mut Vec<Problem>,
    must_be: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let scalar = scalar(node, key, problems)?;
    let value = read(scalar.text.trim());
    if value.is_none() {
        problems.push(Problem::new(&node.origin, key, format!("must be {must_be}, not {}", scalar.quoted())));
    }
    value
}

/// A type with few values, each with a name.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    const NAMES: &'static [(&'static str, Self)];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }
}

impl<T: Choice> Setting for T {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let names: Vec<&str> = T::NAMES.iter().map(|(name, _)| *name).collect();
        let (last, others) = names.split_last()?;
        parse(node, key, problems, &format!("{} or {last}", others.join(", ")), |text| {
            T::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| *value)
        })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, self.name(), origin));
    }
}

impl Choice for OnRecordFailure {
    const NAMES: &'static [(&'static str, Self)] = &[("stop", Self::Stop), ("forward", Self::Forward)];
}

impl Choice for Durability {
    const NAMES: &'static [(&'static str, Self)] = &[("process", Self::Process), ("power", Self::Power)];
}

impl Choice for Naming {
    const NAMES: &'static [(&'static str, Self)] =
        &[("where-needed", Self::WhereNeeded), ("always", Self::Always)];
}

impl Choice for Quarantine {
    const NAMES: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("changed", Self::Changed), ("new", Self::New)];
}

impl Choice for bool {
    const NAMES: &'static [(&'static str, Self)] = &[("true", true), ("false", false)];
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Setting for Size<MIN, MAX> {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let range = if MAX == u64::MAX {
            format!("a size of at least {}", write_size(MIN))
        } else {
            format!("a size from {} to {}", write_size(MIN), write_size(MAX))
        };
        let within = |bytes: &u64| (MIN..=MAX).contains(bytes);
        parse(node, key, problems, &format!("{range}, like 100MB or 16MiB"), |text| {
            parse_size(text).ok().filter(within).map(Self)
        })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, write_size(self.0), origin));
    }
}

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<const MIN_MS: u64>(pub Duration);

impl<const MIN_MS: u64> Setting for Span<MIN_MS> {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let shortest = Duration::from_millis(MIN_MS);
        let must_be = format!("a duration of at least {}, like 30s, 5m or 1h", write_duration(shortest));
        parse(node, key, problems, &must_be, |text| {
            parse_duration(text).ok().filter(|span| *span >= shortest).map(Self)
        })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, write_duration(self.0), origin));
    }
}

/// A number of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Setting for Count<MIN, MAX> {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        parse(node, key, problems, &format!("a whole number from {MIN} to {MAX}"), |text| {
            text.parse().ok().filter(|n| (MIN..=MAX).contains(n)).map(Self)
        })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, self.0, origin));
    }
}

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl Setting for Address {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        parse(node, key, problems, "an address and a port like 127.0.0.1:8080", |text| {
            let local =
                |port: &str| Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?));
            text.strip_prefix("localhost:").map_or_else(|| text.parse().ok(), local).map(Self)
        })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, self.0.to_string(), origin));
    }
}

/// Says why a path that begins with `~` is not taken, and what to write instead.
///
/// Only a shell knows it; taken literally it would be a directory of that name.
pub(crate) fn with_tilde(path: &str, origin: &Origin) -> Option<String> {
    let rest = path.strip_prefix('~')?;
    let is_home = rest.is_empty() || rest.starts_with('/');
    Some(match origin {
        Origin::File { .. } | Origin::Default if is_home => {
            format!("must not begin with ~: write ${{HOME}}{rest}")
        }
        _ => "must not begin with ~, which only a shell knows: write the whole path".to_owned(),
    })
}

/// A path; one in a file starts from that file's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location(pub PathBuf);

impl Setting for Location {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let text = text(node, key, problems)?;
        let wrong = match text {
            "" => Some("must not be empty".to_owned()),
            _ => with_tilde(text, &node.origin),
        };
        if let Some(wrong) = wrong {
            problems.push(Problem::new(&node.origin, key, wrong));
            return None;
        }
        Some(Self(node.origin.directory().unwrap_or(Path::new("")).join(text)))
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, self.0.to_string_lossy(), origin));
    }
}

/// Words of any kind, in which an address may hide a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

impl Setting for Text {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let text = text(node, key, problems)?.trim();
        if text.is_empty() {
            problems.push(Problem::new(&node.origin, key, "must not be empty"));
            return None;
        }
        Some(Self(text.to_owned()))
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::masked(key, mask::mask(key, &self.0), origin));
    }
}

/// A secret: one that a client must show, or that we must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(pub Secret);

impl Token {
    /// Takes a token that fits into a header.
    pub fn new(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        fits.then(|| Self(Secret::new(text.to_owned())))
    }
}

impl Setting for Token {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let token = Self::new(text(node, key, problems)?);
        if token.is_none() {
            let message = "must be visible ASCII characters without spaces";
            problems.push(Problem::new(&node.origin, key, message));
        }
        token
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::masked(key, mask::hide(self.0.reveal()), origin));
    }
}

/// Values of `Host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(pub Vec<String>);

impl Setting for Hosts {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let fits = |host: &str| !host.is_empty() && !host.contains(['/', '@', ' ']);
        list(node, key, problems, "a host name, with a port where it has one", fits).map(Self)
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, json!(self.0), origin));
    }
}

/// Values of `Origin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins(pub Vec<String>);

impl Setting for Origins {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let fits = |origin: &str| {
            origin.split_once("://").is_some_and(|(s, h)| !s.is_empty() && !h.is_empty() && !h.contains('/'))
        };
        list(node, key, problems, "an origin like https://app.example", fits).map(Self)
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, json!(self.0), origin));
    }
}

/// The toolsets that are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolsets(pub Vec<Toolset>);

impl Setting for Toolsets {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let names = list(
            node,
            key,
            problems,
            "a toolset: recorder, progress, records, tapes, router or sample",
            |name| Toolset::from_str(name, false).is_ok(),
        )?;
        Some(Self(names.iter().filter_map(|name| Toolset::from_str(name, false).ok()).collect()))
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        let names: Vec<&str> = self.0.iter().map(|toolset| toolset.name()).collect();
        out.push(Shown::new(key, json!(names), origin));
    }
}

/// Returns the texts of a list, each of which must fit.
pub(crate) fn list(
    node: &Node,
    key: &str,
    problems: &mut Vec<Problem>,
    must_be: &str,
    fits: impl Fn(&str) -> bool,
) -> Option<Vec<String>> {
    let texts = texts(node, key, problems)?;
    let wrong: Vec<Problem> = texts
        .iter()
        .enumerate()
        .filter(|(_, text)| !fits(text))
        .map(|(i, _)| Problem::new(&node.origin, format!("{key}[{i}]"), format!("must be {must_be}")))
        .collect();
    let fine = wrong.is_empty();
    problems.extend(wrong);
    fine.then_some(texts)
}

/// Writes a size so that it reads back as the same.
fn write_size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")].map(|(bits, unit)| (1 << bits, unit));
    let units = units.into_iter().chain([(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB")]);
    exact(bytes, units).unwrap_or_else(|| bytes.to_string())
}

/// Writes a duration so that it reads back as the same.
pub(crate) fn write_duration(span: Duration) -> String {
    let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    exact(ms, units.into_iter()).unwrap_or_else(|| format!("{ms}ms"))
}

fn exact(value: u64, mut units: impl Iterator<Item = (u64, &'static str)>) -> Option<String> {
    let (factor, unit) = units.find(|(factor, _)| value >= *factor && value.is_multiple_of(*factor))?;
    Some(format!("{}{unit}", value / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Setting>(text: &str) -> Result<T, String> {
        let mut problems = Vec::new();
        let value = T::read(&Node::text(text, Origin::Default), "k", &mut problems);
        assert_eq!(value.is_none(), !problems.is_empty(), "{text}");
        value.ok_or_else(|| problems[0].message.clone())
    }

    #[test]
    fn what_is_written_reads_back() {
        for size in [1, 1000, 1024, 1_000_000, 16 << 20, 5_000_000_000, 3 << 30] {
            assert_eq!(parse_size(&write_size(size)), Ok(size));
        }
        for ms in [1, 1000, 90_000, 3_600_000, 86_400_000] {
            let span = Duration::from_millis(ms);
            assert_eq!(parse_duration(&write_duration(span)), Ok(span));
        }
        assert_eq!(write_size(16 << 20), "16MiB");
        assert_eq!(write_duration(Duration::from_secs(5400)), "90m");
    }

    #[test]
    fn ranges_are_kept() {
        assert_eq!(read::<Size<1024, 2048>>("2KiB"), Ok(Size(2048)));
        let told = "must be a size from 1KiB to 2KiB, like 100MB or 16MiB, not \"1\"";
        assert_eq!(read::<Size<1024, 2048>>("1"), Err(told.to_owned()));
        assert!(read::<Span<1000>>("10ms").is_err_and(|m| m.contains("at least 1s")));
        assert!(read::<Count<1, 5>>("6").is_err() && read::<Count<1, 5>>("-1").is_err());
    }

    #[test]
    fn addresses_are_local_unless_they_say_otherwise() {
        assert_eq!(read::<Address>("localhost:80").unwrap().0.to_string(), "127.0.0.1:80");
        assert_eq!(read::<Address>("[::1]:80").unwrap().0.to_string(), "[::1]:80");
        assert_eq!(read::<Address>("0.0.0.0:0").unwrap().0.to_string(), "0.0.0.0:0");
        for wrong in ["80", "example.com:80", "localhost:x", ""] {
            assert!(read::<Address>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_fit_into_a_header_and_are_never_repeated() {
        assert!(read::<Token>("s3cret!").is_ok());
        for wrong in ["", "two words", "line\nline", "sécret"] {
            assert!(read::<Token>(wrong).is_err_and(|m| wrong.is_empty() || !m.contains(wrong)), "{wrong}");
        }
        assert_eq!(format!("{:?}", read::<Token>("s3cret!").unwrap()), "Token(***)");
    }

    #[test]
    fn choices_are_read_in_any_case() {
        assert_eq!(read::<Naming>("Always"), Ok(Naming::Always));
        assert!(read::<Durability>("both").is_err_and(|m| m.contains("process or power")));
        assert_eq!(OnRecordFailure::Forward.name(), "forward");
    }

    #[test]
    fn json_has_to_say_what_it_means() {
        let mut problems = Vec::new();
        let number = |origin: &Origin| Node::from_json(&json!(3000), origin);
        assert_eq!(text(&number(&Origin::Default), "k", &mut problems), Some("3000"));
        assert_eq!(text(&number(&Origin::Options), "k", &mut problems), None);
        assert_eq!(problems[0].message, "must be a string");
    }

    #[test]
    fn a_path_starts_where_it_was_written() {
        let file = Origin::File { path: Path::new("/etc/scrubjay/config.yaml").into(), line: 1 };
        let path = |text: &str, origin: &Origin| {
            Location::read(&Node::text(text, origin.clone()), "k", &mut Vec::new()).unwrap().0
        };
        assert_eq!(path("data", &file), Path::new("/etc/scrubjay/data"));
        assert_eq!(path("/data", &file), Path::new("/data"));
        assert_eq!(path("data", &Origin::Flag("--data")), Path::new("data"));
        assert!(read::<Location>("~/data").is_err_and(|m| m.contains("${HOME}")));
    }

    #[test]
    fn origins_and_hosts_are_told_apart() {
        let node = |items: &[&str]| Node::from_json(&json!(items), &Origin::Default);
        let mut problems = Vec::new();
        assert!(Hosts::read(&node(&["a.example:8080"]), "h", &mut problems).is_some());
        assert!(Origins::read(&node(&["https://a.example"]), "o", &mut problems).is_some());
        assert!(Hosts::read(&node(&["ok", "https://a.example"]), "h", &mut problems).is_none());
        assert!(Origins::read(&node(&["a.example"]), "o", &mut problems).is_none());
        assert_eq!(problems.iter().map(|p| p.key.as_str()).collect::<Vec<_>>(), ["h[1]", "o[0]"]);
    }
}
