//! Case folding of keys: two keys with the same fold may be the same key for some reader that ignores case.
//!
//! It covers more than any single reader: the simple folds of Go (`ſ` is `s`, the Kelvin sign `k`), those of Java and
//! .NET (a dotted or dotless `i` is `i`), and full folds (`ß` is `ss`).

use std::borrow::Cow;

/// Returns the fold of an unescaped key.
pub(crate) fn fold<'k>(key: &Cow<'k, [u8]>) -> Cow<'k, [u8]> {
    if key.is_ascii() {
        return if key.iter().any(u8::is_ascii_uppercase) {
            Cow::Owned(key.to_ascii_lowercase())
        } else {
            key.clone()
        };
    }
    let mut out = String::with_capacity(key.len());
    for c in String::from_utf8_lossy(key).chars() {
        // Its lower case would have a combining dot.
        if c == '\u{130}' {
            out.push('i');
            continue;
        }
        for lower in c.to_lowercase() {
            // By way of upper case, which merges `ſ` with `s`, `ς` with `σ`, and expands `ß`.
            for upper in lower.to_uppercase() {
                out.extend(upper.to_lowercase());
            }
        }
    }
    Cow::Owned(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_any_reader_treats_as_equal_have_the_same_fold() {
        let fold = |key: &'static str| fold(&Cow::Borrowed(key.as_bytes())).into_owned();
        for (one, other) in [
            ("name", "NAME"),
            ("params", "param\u{17f}"),
            ("k", "\u{212a}"),
            ("id", "\u{131}d"),
            ("id", "\u{130}D"),
            ("ß", "\u{1e9e}"),
            ("ß", "ss"),
            ("σ", "ς"),
            ("µ", "μ"),
            ("é", "É"),
        ] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
        }
        assert_ne!(fold("name"), fold("nаme"), "a Cyrillic a is another letter to everybody");
        assert_ne!(fold("a_b"), fold("ab"));
    }
}
