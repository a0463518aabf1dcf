//! Ids, numbers and names that are the same for every reader.

use std::borrow::Cow;

use unicode_normalization::is_nfkc;

use crate::json::escape::Unescaped;

/// Whole numbers beyond this are not exact for readers that use doubles.
const EXACT_MAX: u64 = 1 << 53;
/// The decimal digits that a double always preserves.
const DIGITS_MAX: usize = 15;

/// Tells whether every reader returns an id unchanged: a string without NUL, or a whole number that is exact
/// everywhere.
pub(super) fn is_plain_id(raw: &[u8]) -> bool {
    if raw.first() == Some(&b'"') {
        return !Unescaped::new(&raw[1..raw.len().max(2) - 1]).text.contains(&0);
    }
    // The official Python SDK takes a request with the id 1.0 for a notification.
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let is_below = |number: &i64| number.unsigned_abs() < EXACT_MAX;
    // JavaScript writes -0 back as 0, so an answer would have another id than its request.
    text != "-0" && text.parse::<i64>().ok().filter(is_below).is_some()
}

/// Returns an id in normal form: equal for all spellings that some reader takes for the same id, `1`, `1.0` and `"1"`.
pub(super) fn plain_id(raw: &[u8]) -> Vec<u8> {
    let inside = raw.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let text = inside.map_or(Cow::Borrowed(raw), |inside| Unescaped::new(inside).text);
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse::<f64>().ok());
    // Beyond this, doubles merge neighbouring whole numbers, which must remain different ids.
    let whole = number.filter(|n| n.fract() == 0.0 && n.abs() < 9e15);
    match whole {
        // Adding 0.0 turns -0 into 0.
        Some(whole) => format!("{}", whole + 0.0).into_bytes(),
        None if inside.is_some() => [b"\"", &*text].concat(),
        None => raw.to_vec(),
    }
}

/// Tells whether a number is the same for every reader.
pub(super) fn is_plain_number(raw: &[u8]) -> bool {
    let text = std::str::from_utf8(raw).unwrap_or_default();
    if let Ok(whole) = text.parse::<i64>() {
        return whole.unsigned_abs() <= EXACT_MAX;
    }
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_matches('0');
    let number = text.parse::<f64>().unwrap_or(f64::NAN);
    // The last check refuses numbers so small that a double makes them zero.
    number.is_finite() && digits.len() <= DIGITS_MAX && (number != 0.0 || digits.is_empty())
}

/// Tells whether a name is the same for readers that trim, cut at NUL, drop invisible characters, or normalise.
pub(super) fn is_plain_name(name: &[u8]) -> bool {
    if name.is_ascii() {
        // Nearly every name is ASCII, which needs no normalisation.
        let has_space_outside = name.first() == Some(&b' ') || name.last() == Some(&b' ');
        return !name.is_empty() && !has_space_outside && !name.iter().any(u8::is_ascii_control);
    }
    let Ok(name) = std::str::from_utf8(name) else { return false };
    name.trim() == name && !name.chars().any(is_invisible_or_modifier) && is_nfkc(name)
}

/// Tells whether a character is a control character, modifies the one before it, or is invisible.
fn is_invisible_or_modifier(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Modifier letters and combining marks.
            '\u{2b0}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1d2c}'..='\u{1d6a}' | '\u{1d78}'
            | '\u{1d9b}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}'
            // Spaces.
            | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{2028}' | '\u{2029}' | '\u{202f}'
            | '\u{205f}' | '\u{2800}' | '\u{3000}'
            // Invisible characters that many readers ignore (Default_Ignorable_Code_Point).
            | '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{ffff}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
            // Other format characters (Cf).
            | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}')
}

#[cfg(test)]
mod tests {
    use unicode_normalization::UnicodeNormalization;

    use super::*;

    #[test]
    fn plain_names_are_unchanged_by_normalising_and_trimming() {
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            let name = format!("a{c}b");
            if is_plain_name(name.as_bytes()) {
                assert!(
                    name.nfkc().eq(name.chars()) && name.nfc().eq(name.chars()),
                    "U+{:04X}",
                    u32::from(c)
                );
            }
        }
        // Each of these is another name to some reader: drop.v2, 삭제, क़.
        for name in [
            "drop\u{2024}v2",
            "drop.v\u{1fbf2}",
            "\u{1109}\u{1161}\u{11a8}\u{110c}\u{1166}",
            "\u{958}",
            "drop\u{61c}.v2",
            "a\u{600}",
            "a\u{6dd}b",
            "a\u{110bd}b",
            "a\u{13430}b",
            "a\u{1bca0}b",
            "a\u{1d173}b",
            "a\u{2800}b",
        ] {
            assert!(!is_plain_name(name.as_bytes()), "{}", name.escape_unicode());
        }
        for name in ["drop.v2", "삭제", "\u{915}\u{93c}", "supprimé", "天気", "удалить", "a b", "ünï"]
        {
            assert!(is_plain_name(name.as_bytes()), "{name}");
        }
        for name in ["", " a", "a ", "a\tb", "a\u{7f}"] {
            assert!(!is_plain_name(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn ids_are_normalised_and_numbers_checked() {
        assert_eq!(plain_id(b"1.0"), plain_id(b"1"));
        assert_eq!(plain_id(b"\"1\""), plain_id(b"1"));
        assert_eq!(plain_id(br#""\u0061""#), plain_id(br#""a""#));
        assert_ne!(plain_id(br#""a""#), plain_id(br#""b""#));
        for (number, plain) in [
            ("0", true),
            ("-12.5", true),
            ("1e3", true),
            ("0.1", true),
            ("9007199254740992", true),
            ("0.0", true),
            ("9007199254740993", false),
            ("1e400", false),
            ("10.0000000000000001", false),
            ("1e-400", false),
            ("1.50000000000000000", true),
        ] {
            assert_eq!(is_plain_number(number.as_bytes()), plain, "{number}");
        }
    }
}
