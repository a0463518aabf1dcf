//! Parses the URIs of the recorder's resources: which session, which view, which part of it.

use scrubjay_store::views::address::{self, Side};
use scrubjay_store::views::budget::{self, Window};

/// A parsed URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResourceAddress {
    Sessions,
    Timeline(String, Query),
    Story(String, Query),
    Files(String, Query),
    File(String, String, Query),
}

/// The query of a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) after: i64,
    pub(super) limit: i64,
    pub(super) max_tokens: Option<usize>,
    pub(super) revision: Option<i64>,
    pub(super) side: Side,
}

impl ResourceAddress {
    pub(super) fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(address::SESSIONS)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() || path == "/" {
            return Some(Self::Sessions);
        }
        let (id, view) = path.strip_prefix('/')?.split_once('/')?;
        let (id, query) = (decode(id)?, Query::parse(query)?);
        // A query that has no effect is refused: its client expects something that it does not get.
        let of_file = view.strip_prefix("evolution/");
        if of_file.is_none() && (query.revision.is_some() || query.side == Side::Before) {
            return None;
        }
        Some(match view {
            "timeline" => Self::Timeline(id, query),
            "story" => Self::Story(id, query),
            "evolution" => Self::Files(id, query),
            _ => Self::File(id, decode(of_file?)?, query),
        })
    }

    /// Returns the session; none for the list of all.
    pub(super) fn session(&self) -> Option<&str> {
        match self {
            Self::Sessions => None,
            Self::Timeline(id, _) | Self::Story(id, _) | Self::Files(id, _) | Self::File(id, ..) => Some(id),
        }
    }
}

impl Query {
    const NONE: Self = Self { after: 0, limit: 200, max_tokens: None, revision: None, side: Side::After };

    fn parse(text: &str) -> Option<Self> {
        let mut query = Self::NONE;
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=')? {
                ("after", value) => query.after = value.parse().ok()?,
                ("limit", value) => query.limit = value.parse().ok()?,
                ("max_tokens", value) => query.max_tokens = Some(value.parse().ok()?),
                ("revision", value) => query.revision = Some(value.parse().ok()?),
                ("side", "before") => query.side = Side::Before,
                ("side", "after") => query.side = Side::After,
                // Refused like a query without effect: a misspelt parameter must not be ignored.
                _ => return None,
            }
        }
        // `side` needs a revision.
        (query.side == Side::After || query.revision.is_some()).then_some(query)
    }

    pub(super) fn tokens_max(&self) -> usize {
        self.max_tokens.unwrap_or(budget::TOKENS).min(budget::TOKENS_MAX)
    }

    pub(super) fn window(&self) -> Window {
        Window { after: self.after, limit: self.limit, tokens_max: Some(self.tokens_max()) }
    }
}

/// Decodes percent-encoding; none if the result is not UTF-8.
fn decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                tail
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_parsed() {
        let check = |uri: &str, expected: Option<ResourceAddress>| {
            assert_eq!(ResourceAddress::parse(uri), expected, "{uri}")
        };
        let a = || "a".to_owned();
        check("scrubjay://sessions", Some(ResourceAddress::Sessions));
        check("scrubjay://sessions/a%20b/story", Some(ResourceAddress::Story("a b".to_owned(), Query::NONE)));
        check("scrubjay://sessions/a/timeline", Some(ResourceAddress::Timeline(a(), Query::NONE)));
        let page = Query { after: 3, limit: 5, max_tokens: Some(700), ..Query::NONE };
        check(
            "scrubjay://sessions/a/timeline?after=3&limit=5&max_tokens=700",
            Some(ResourceAddress::Timeline(a(), page)),
        );
        check("scrubjay://sessions/a/evolution", Some(ResourceAddress::Files(a(), Query::NONE)));
        let file = |query| Some(ResourceAddress::File(a(), "src/m n.rs".to_owned(), query));
        check("scrubjay://sessions/a/evolution/src/m%20n.rs", file(Query::NONE));
        let old = Query { revision: Some(7), side: Side::Before, ..Query::NONE };
        check("scrubjay://sessions/a/evolution/src/m%20n.rs?revision=7&side=before", file(old));
        for wrong in [
            "scrubjay://sessions/a/timeline?x=1",
            "scrubjay://sessions/a/timeline?revision=1",
            "scrubjay://sessions/a/evolution?revision=1",
            "scrubjay://sessions/a/evolution/x?side=before",
            "scrubjay://sessions/a/evolution/x?revision=1&side=beside",
            "scrubjay://sessions/a",
            "scrubjay://else",
            "scrubjay://sessions/%zz/story",
        ] {
            check(wrong, None);
        }
    }
}
