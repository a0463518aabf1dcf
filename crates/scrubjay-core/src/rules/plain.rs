//! Ids, numbers and names that are the same to every reader.

use std::borrow::Cow;

use crate::json::escape::Unescaped;

/// Whole numbers beyond this are not exact to every reader.
const EXACT_MAX: u64 = 1 << 53;
/// So many digits of a number every reader keeps.
const DIGITS_MAX: usize = 15;

/// Tells whether every reader gives back an id as it was: a text, or a whole number that is exact everywhere.
pub(super) fn is_plain_id(raw: &[u8]) -> bool {
    if raw.first() == Some(&b'"') {
        return !Unescaped::new(&raw[1..raw.len().max(2) - 1]).text.contains(&0);
    }
    // The official Python SDK takes a request with the id 1.0 for a notification.
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let is_below = |number: &i64| number.unsigned_abs() < EXACT_MAX;
    text != "-0" && text.parse::<i64>().ok().filter(is_below).is_some()
}

/// Returns an id so that two spellings of it are the same, also to readers that take a text for a number.
pub(super) fn plain_id(raw: &[u8]) -> Vec<u8> {
    let inside = raw.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let text = inside.map_or(Cow::Borrowed(raw), |inside| Unescaped::new(inside).text);
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse::<f64>().ok());
    // Beyond this, neighbouring whole numbers are one.
    let whole = number.filter(|n| n.fract() == 0.0 && n.abs() < 9e15);
    match whole {
        Some(whole) => format!("{}", whole + 0.0).into_bytes(),
        None if inside.is_some() => [b"\"", &*text].concat(),
        None => raw.to_vec(),
    }
}

/// Tells whether every reader takes a number for the same one.
pub(super) fn is_plain_number(raw: &[u8]) -> bool {
    let text = std::str::from_utf8(raw).unwrap_or_default();
    if let Ok(whole) = text.parse::<i64>() {
        return whole.unsigned_abs() <= EXACT_MAX;
    }
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_matches('0');
    let number = text.parse::<f64>().unwrap_or(f64::NAN);
    number.is_finite() && digits.len() <= DIGITS_MAX && (number != 0.0 || digits.is_empty())
}

/// Tells whether a name is the same to readers that trim, cut at NUL, drop what cannot be seen, or normalise.
pub(super) fn is_plain_name(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    !name.is_empty() && name.trim() == name && !name.chars().any(is_odd)
}

/// Tells whether a character is a control, cannot be seen, or becomes another when text is normalised (NFC, NFKC).
fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{a0}' | '\u{a8}' | '\u{aa}' | '\u{ad}' | '\u{af}' | '\u{b2}'..='\u{b5}' | '\u{b8}'..='\u{ba}'
            | '\u{bc}'..='\u{be}' | '\u{132}' | '\u{133}' | '\u{13f}' | '\u{140}' | '\u{149}' | '\u{17f}'
            | '\u{1c4}'..='\u{1cc}' | '\u{1f1}'..='\u{1f3}'
            // Modifier letters and combining marks.
            | '\u{2b0}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1d2c}'..='\u{1d6a}' | '\u{1d78}'
            | '\u{1d9b}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}'
            // Spaces, and what cannot be seen.
            | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{3000}'
            | '\u{3164}' | '\u{feff}' | '\u{fff0}'..='\u{ffff}' | '\u{e0000}'..='\u{e0fff}'
            // Letters in other shapes: superscripts, letterlike, circled, presentation and full-width forms.
            | '\u{2070}'..='\u{209f}' | '\u{2100}'..='\u{218b}' | '\u{2460}'..='\u{24ff}'
            | '\u{3200}'..='\u{33ff}' | '\u{f900}'..='\u{faff}' | '\u{fb00}'..='\u{fdff}'
            | '\u{fe00}'..='\u{fe1f}' | '\u{fe30}'..='\u{ffef}' | '\u{1d400}'..='\u{1d7ff}'
            | '\u{1f100}'..='\u{1f1ff}' | '\u{2f800}'..='\u{2fa1f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_numbers() {
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
