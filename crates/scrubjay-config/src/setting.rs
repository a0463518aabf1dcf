//! The types of keys: how each is read, and how `config show` prints it.

use std::borrow::Cow;
use std::fmt::Display;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use scrubjay_core::glob::Glob;
use scrubjay_core::units::{parse_duration, parse_size};
use scrubjay_gateway::config::Secret;
use serde::Serialize;
use serde_json::{Value as Json, json};
use thiserror::Error;

use crate::cursor::Cursor;
use crate::mask;
use crate::node::Origin;

/// A value of `config show`, masked.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct ShownSetting {
    /// The key's path.
    pub key: String,
    /// The value as people may see it.
    pub value: Json,
    /// Its origin.
    pub origin: String,
    /// The texts behind the mask, which the logs must hide too.
    #[serde(skip)]
    pub(crate) hidden: Vec<String>,
}

impl ShownSetting {
    pub(crate) fn new(key: &str, value: impl Into<Json>, origin: &Origin) -> Self {
        Self { key: key.to_owned(), value: value.into(), origin: origin.to_string(), hidden: Vec::new() }
    }

    /// Shows the value that was written at a cursor.
    pub(crate) fn of(at: &Cursor<'_>, value: impl Into<Json>) -> Self {
        Self::new(&at.key, value, at.origin())
    }

    /// Shows a text whose secrets are masked.
    pub(crate) fn masked(at: &Cursor<'_>, masked: mask::Masked) -> Self {
        Self { hidden: masked.hidden, ..Self::of(at, masked.shown) }
    }
}

/// A type that a key can have.
pub(crate) trait Setting {
    type Value;

    /// Whether an environment variable can set it; a list of maps does not fit into one.
    const FITS_VARIABLE: bool = true;

    /// Reads the value; reports a wrong one.
    fn read(at: &Cursor<'_>) -> Option<Self::Value>;

    /// Returns the value for `config show`. A type with a `show` of its own needs none.
    fn json(_value: &Self::Value) -> Json {
        Json::Null
    }

    /// Adds the lines of `config show`: one, unless the type says otherwise.
    fn show(at: &Cursor<'_>, out: &mut Vec<ShownSetting>) {
        out.extend(Self::read(at).map(|value| ShownSetting::of(at, Self::json(&value))));
    }
}

/// A type with few values, each with a name.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    const NAMES: &'static [(&'static str, Self)];
    /// What stands before the names in a message about an item of a list.
    const WHAT: &'static str = "";

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }

    /// Lists the names for a message: `a, b or c`.
    fn listed() -> String {
        let names: Vec<&str> = Self::NAMES.iter().map(|(name, _)| *name).collect();
        let (last, others) = names.split_last().expect("a choice has a name");
        format!("{} or {last}", others.join(", "))
    }
}

impl<T: Choice> Setting for T {
    type Value = T;

    fn read(at: &Cursor<'_>) -> Option<T> {
        at.parse(&T::listed(), |text| {
            T::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| *value)
        })
    }

    fn json(value: &T) -> Json {
        value.name().into()
    }
}

/// A list of choices.
impl<T: Choice> Setting for Vec<T> {
    type Value = Self;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        let wrong = format!("must be {}{}", T::WHAT, T::listed());
        at.each(|text| T::NAMES.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or(&wrong))
    }

    fn json(value: &Self) -> Json {
        value.iter().map(|choice| choice.name()).collect()
    }
}

/// Names the values of a type: `choice!(Naming: "where-needed" = WhereNeeded, "always" = Always)`. With `enum` before
/// it, the type is made too; with a text behind the type, lists of it say that before the names.
macro_rules! choice {
    (enum $type:ident: $($name:literal = $value:ident),*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $type { $($value),* }
        $crate::setting::choice!($type: $($name = $value),*);
    };
    ($type:ty $(, $what:literal)?: $($name:literal = $value:ident),*) => {
        impl $crate::setting::Choice for $type {
            $(const WHAT: &'static str = $what;)?
            const NAMES: &'static [(&'static str, Self)] = &[$(($name, Self::$value)),*];
        }
    };
}
pub(crate) use choice;

impl Choice for bool {
    const NAMES: &'static [(&'static str, Self)] = &[("true", true), ("false", false)];
}

/// A number of bytes, in the type `N` that its crate uses.
pub(crate) struct Size<const MIN: u64, const MAX: u64, N = u64>(PhantomData<N>);

impl<const MIN: u64, const MAX: u64, N: Copy + TryFrom<u64> + TryInto<u64>> Setting for Size<MIN, MAX, N> {
    type Value = N;

    fn read(at: &Cursor<'_>) -> Option<N> {
        let range = if MAX == u64::MAX {
            format!("a size of at least {}", write_size(MIN))
        } else {
            format!("a size from {} to {}", write_size(MIN), write_size(MAX))
        };
        at.parse(&format!("{range}, like 100MB or 16MiB"), |text| in_range(parse_size(text).ok()?, MIN, MAX))
    }

    fn json(value: &N) -> Json {
        write_size(as_u64(*value)).into()
    }
}

/// A length of time.
pub(crate) struct Span<const MIN_MS: u64>;

impl<const MIN_MS: u64> Setting for Span<MIN_MS> {
    type Value = Duration;

    fn read(at: &Cursor<'_>) -> Option<Duration> {
        let shortest = Duration::from_millis(MIN_MS);
        let must_be = format!("a duration of at least {}, like 30s, 5m or 1h", write_duration(shortest));
        at.parse(&must_be, |text| parse_duration(text).ok().filter(|span| *span >= shortest))
    }

    fn json(value: &Duration) -> Json {
        write_duration(*value).into()
    }
}

/// A whole number, in the type `N` that its crate uses.
pub(crate) struct Count<const MIN: u64, const MAX: u64, N = usize>(PhantomData<N>);

impl<const MIN: u64, const MAX: u64, N: Copy + TryFrom<u64> + TryInto<u64>> Setting for Count<MIN, MAX, N> {
    type Value = N;

    fn read(at: &Cursor<'_>) -> Option<N> {
        at.parse(&format!("a whole number from {MIN} to {MAX}"), |text| {
            in_range(text.parse().ok()?, MIN, MAX)
        })
    }

    fn json(value: &N) -> Json {
        as_u64(*value).into()
    }
}

fn in_range<N: TryFrom<u64>>(number: u64, min: u64, max: u64) -> Option<N> {
    (min..=max).contains(&number).then(|| N::try_from(number).ok()).flatten()
}

fn as_u64(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

/// A share of one, or a probability.
pub(crate) struct Share;

impl Setting for Share {
    type Value = f64;

    fn read(at: &Cursor<'_>) -> Option<f64> {
        at.parse("a number from 0 to 1", |text| text.parse().ok().filter(|share| (0.0..=1.0).contains(share)))
    }

    fn json(value: &f64) -> Json {
        (*value).into()
    }
}

impl Setting for SocketAddr {
    type Value = Self;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        at.parse("an address and a port like 127.0.0.1:8080", |text| match text.strip_prefix("localhost:") {
            Some(port) => Some(Self::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?)),
            None => text.parse().ok(),
        })
    }

    fn json(value: &Self) -> Json {
        value.to_string().into()
    }
}

/// Why a text cannot be a value. The message follows the name of the key, or the place of the text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct WrongValue(Cow<'static, str>);

impl WrongValue {
    pub(crate) fn new(message: impl Display) -> Self {
        Self(message.to_string().into())
    }
}

impl From<&'static str> for WrongValue {
    fn from(message: &'static str) -> Self {
        Self(message.into())
    }
}

/// Refuses a path that begins with `~`: only a shell replaces it, and here it would name a directory `~`.
pub(crate) fn check_tilde(path: &str, origin: &Origin) -> Result<(), WrongValue> {
    let Some(rest) = path.strip_prefix('~') else { return Ok(()) };
    let is_home = rest.is_empty() || rest.starts_with('/');
    Err(match origin {
        Origin::File { .. } | Origin::Default if is_home => {
            WrongValue::new(format_args!("must not begin with ~: write ${{HOME}}{rest}"))
        }
        _ => "must not begin with ~, which only a shell knows: write the whole path".into(),
    })
}

/// A path. A relative one in a file starts from that file's directory.
impl Setting for PathBuf {
    type Value = Self;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        let text = at.filled_text()?;
        at.reported(check_tilde(text, at.origin()))?;
        Some(at.origin().directory().unwrap_or(Path::new("")).join(text))
    }

    fn json(value: &Self) -> Json {
        value.to_string_lossy().into()
    }
}

/// Any text. If it is an address, secrets in it are masked.
impl Setting for String {
    type Value = Self;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        let text = at.text()?.trim();
        if text.is_empty() { at.wrong("must not be empty") } else { Some(text.to_owned()) }
    }

    fn show(at: &Cursor<'_>, out: &mut Vec<ShownSetting>) {
        out.extend(Self::read(at).map(|text| ShownSetting::masked(at, mask::mask(&at.key, &text))));
    }
}

/// A secret that is sent as a header: a client's token, or our own key.
impl Setting for Secret {
    type Value = Self;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        let text = at.filled_text()?;
        // No message quotes the text: it may be most of a secret.
        if fits_header(text) {
            return Some(Self::new(text.to_owned()));
        }
        at.wrong("must be visible ASCII characters without spaces")
    }

    fn show(at: &Cursor<'_>, out: &mut Vec<ShownSetting>) {
        out.extend(Self::read(at).map(|secret| ShownSetting::masked(at, mask::hide(secret.reveal()))));
    }
}

/// Tells whether a token can be sent in a header.
pub(crate) fn fits_header(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic())
}

/// A list of texts, each of which is read as an `I`.
pub(crate) struct List<I>(PhantomData<I>);

/// The type of the items of a list.
pub(crate) trait ListItem {
    type Value: Serialize;

    fn read(text: &str) -> Result<Self::Value, WrongValue>;
}

impl<I: ListItem> Setting for List<I> {
    type Value = Vec<I::Value>;

    fn read(at: &Cursor<'_>) -> Option<Self::Value> {
        at.each(I::read)
    }

    fn json(value: &Self::Value) -> Json {
        json!(value)
    }
}

/// A pattern of methods or tools.
impl ListItem for Glob {
    type Value = Self;

    fn read(pattern: &str) -> Result<Self, WrongValue> {
        Self::parse(pattern).map_err(WrongValue::new)
    }
}

/// Writes a size so that `parse_size` reads the same.
fn write_size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")].map(|(bits, unit)| (1 << bits, unit));
    let units = units.into_iter().chain([(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB")]);
    exact(bytes, units).unwrap_or_else(|| bytes.to_string())
}

/// Writes a duration so that `parse_duration` reads the same.
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
    use scrubjay_gateway::config::Naming;
    use scrubjay_gateway::relay::{Durability, OnRecordFailure};

    use super::*;
    use crate::cursor;
    use crate::node::Node;
    use crate::problem::Problem;
    use crate::sections::serve::{Host, WebOrigin};

    fn read_node<T: Setting>(node: &Node) -> (Option<T::Value>, Vec<Problem>) {
        cursor::read(node, "k", T::read)
    }

    fn read<T: Setting>(text: &str) -> Result<T::Value, String> {
        let (value, problems) = read_node::<T>(&Node::text(text, Origin::Default));
        assert_eq!(value.is_none(), !problems.is_empty(), "{text}");
        value.ok_or_else(|| problems[0].message.clone())
    }

    #[test]
    fn written_sizes_and_durations_can_be_parsed() {
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
    fn ranges_are_checked() {
        assert_eq!(read::<Size<1024, 2048>>("2KiB"), Ok(2048));
        let message = "must be a size from 1KiB to 2KiB, like 100MB or 16MiB, not \"1\"";
        assert_eq!(read::<Size<1024, 2048>>("1"), Err(message.to_owned()));
        assert!(read::<Span<1000>>("10ms").is_err_and(|m| m.contains("at least 1s")));
        assert!(read::<Count<1, 5>>("6").is_err() && read::<Count<1, 5>>("-1").is_err());
    }

    #[test]
    fn listen_addresses_are_parsed() {
        assert_eq!(read::<SocketAddr>("localhost:80").unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(read::<SocketAddr>("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(read::<SocketAddr>("0.0.0.0:0").unwrap().to_string(), "0.0.0.0:0");
        for wrong in ["80", "example.com:80", "localhost:x", ""] {
            assert!(read::<SocketAddr>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_must_fit_into_a_header_and_never_appear_in_errors() {
        assert!(read::<Secret>("s3cret!").is_ok());
        for wrong in ["", "two words", "line\nline", "sécret"] {
            assert!(read::<Secret>(wrong).is_err_and(|m| wrong.is_empty() || !m.contains(wrong)), "{wrong}");
        }
        assert_eq!(format!("{:?}", read::<Secret>("s3cret!").unwrap()), "***");
    }

    #[test]
    fn choices_are_read_in_any_case() {
        assert_eq!(read::<Naming>("Always"), Ok(Naming::Always));
        assert!(read::<Durability>("both").is_err_and(|m| m.contains("process or power")));
        assert_eq!(OnRecordFailure::Forward.name(), "forward");
    }

    #[test]
    fn a_json_number_is_not_accepted_as_a_string() {
        let number = |origin: &Origin| read_node::<String>(&Node::from_json(&json!(3000), origin));
        assert_eq!(number(&Origin::Default).0.as_deref(), Some("3000"));
        let (none, problems) = number(&Origin::Options);
        assert_eq!((none, problems[0].message.as_str()), (None, "must be a string"));
    }

    #[test]
    fn a_relative_path_starts_at_the_directory_of_its_file() {
        let file = Origin::File { path: Path::new("/etc/scrubjay/config.yaml").into(), line: 1 };
        let path =
            |text: &str, origin: &Origin| read_node::<PathBuf>(&Node::text(text, origin.clone())).0.unwrap();
        assert_eq!(path("data", &file), Path::new("/etc/scrubjay/data"));
        assert_eq!(path("/data", &file), Path::new("/data"));
        assert_eq!(path("data", &Origin::Flag("--data")), Path::new("data"));
        assert!(read::<PathBuf>("~/data").is_err_and(|m| m.contains("${HOME}")));
    }

    #[test]
    fn origins_and_hosts_are_distinguished() {
        let node = |items: &[&str]| Node::from_json(&json!(items), &Origin::Default);
        let keys = |problems: Vec<Problem>| problems.into_iter().map(|p| p.key).collect::<Vec<_>>();
        assert!(read_node::<List<Host>>(&node(&["a.example:8080"])).0.is_some());
        assert!(read_node::<List<WebOrigin>>(&node(&["https://a.example"])).0.is_some());
        assert_eq!(keys(read_node::<List<Host>>(&node(&["ok", "https://a.example"])).1), ["k[1]"]);
        assert_eq!(keys(read_node::<List<WebOrigin>>(&node(&["a.example"])).1), ["k[0]"]);
    }
}
