//! Reads and writes sizes, durations and counts as people write them: `16MiB`, `100MB`, `250ms`, `1h`, `1 line`, `2
//! children`.

use std::fmt::{Display, Write};
use std::time::Duration;

use thiserror::Error;

/// Why a text is no size or duration, and how to write one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// The text is not a size.
    #[error("\"{0}\" is not a size: write it like 4096, 100MB or 16MiB")]
    Size(String),
    /// The text is not a duration.
    #[error("\"{0}\" is not a duration: write it like 100ms, 0.5s, 30s, 5m, 1h or 7d")]
    Duration(String),
}

/// Parses a size in bytes: a number with an optional `B`, `KB`, `MB`, `GB` (thousands) or `KiB`, `MiB`, `GiB`.
///
/// # Errors
/// The text is not a size.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let factor = |unit: &str| {
        Some(match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" => 1_000,
            "m" | "mb" => 1_000_000,
            "g" | "gb" => 1_000_000_000,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            _ => return None,
        })
    };
    parse(text, factor).ok_or_else(|| UnitError::Size(text.to_owned()))
}

/// Parses a duration: a number, with or without a fraction, and `ns`, `us`, `ms`, `s`, `m`, `h` or `d`.
///
/// # Errors
/// The text is not a duration.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let factor = |unit: &str| {
        Some(match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000_u64,
            _ => return None,
        })
    };
    let read = || -> Option<Duration> {
        let text = text.trim();
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        // Digits after the ninth are ignored: they change even a day by less than 0.1 ms.
        let (part, digits) = (part.get(..9).unwrap_or(part), part.len().min(9));
        let factor = u128::from(factor(unit.trim())?);
        let below =
            part.parse::<u64>().ok().map(u128::from)? * factor / 10u128.pow(u32::try_from(digits).ok()?);
        let ns = whole.parse::<u64>().ok().map(u128::from)?.checked_mul(factor)? + below;
        let seconds = u64::try_from(ns / 1_000_000_000).ok()?;
        Some(Duration::new(seconds, u32::try_from(ns % 1_000_000_000).ok()?))
    };
    read().ok_or_else(|| UnitError::Duration(text.to_owned()))
}

fn parse(text: &str, factor: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    number.parse::<u64>().ok()?.checked_mul(factor(unit.trim())?)
}

/// Writes a size in three figures: `512 B`, `1.21 kB`, `10.5 MB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    scaled(bytes, &[(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")])
}

/// Writes a duration in three figures: `850 ns`, `1.21 ms`, `12.3 s`; from a minute on `4m 05s`, `2h 30m`.
#[must_use]
pub fn duration(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..60 if ns < 1_000 => format!("{ns} ns"),
        0..60 => scaled(ns, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")]),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Writes a long time: like `duration`, but from two days on in days.
#[must_use]
pub fn age(ns: u64) -> String {
    match ns / 1_000_000_000 / 86_400 {
        0..2 => duration(ns),
        days => format!("{days} days"),
    }
}

/// Writes a count with its noun: `1 line`, `2 lines`, `0 entries`, `3 children`. The noun is given in the singular, and
/// words may precede it.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    if count == N::from(1) { format!("{count} {noun}") } else { format!("{count} {}", plural(noun)) }
}

/// Returns the plural of a noun. It knows the forms that our own messages need.
fn plural(noun: &str) -> String {
    let last_but_one = noun.chars().rev().nth(1);
    match noun {
        _ if noun.ends_with("child") => format!("{noun}ren"),
        _ if noun.ends_with('y') && !last_but_one.is_some_and(|c| "aeiou".contains(c)) => {
            format!("{}ies", &noun[..noun.len() - 1])
        }
        _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

fn scaled(value: u64, units: &[(u64, &str)]) -> String {
    let (factor, unit) = units.iter().find(|(factor, _)| value >= *factor).expect("a smallest unit fits");
    // Digits are cut off, not rounded, so that 999.9 MB is never shown as 1000.
    let (whole, rest) = (value / factor, value % factor);
    let mut text = whole.to_string();
    match whole {
        0..10 => write!(text, ".{:02}", rest * 100 / factor),
        10..100 => write!(text, ".{}", rest * 10 / factor),
        _ => Ok(()),
    }
    .expect("writing to a string cannot fail");
    format!("{text} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("100MB"), Ok(100_000_000));
        assert_eq!(parse_size("16 MiB"), Ok(16 << 20));
        assert!(parse_size("a lot").unwrap_err().to_string().contains("100MB"));
        assert!(parse_size("99999999999GB").is_err());
        assert_eq!(parse_duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_duration("0.5ms"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("1.25 s"), Ok(Duration::from_millis(1250)));
        assert_eq!(parse_duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("0.1234567891d"), Ok(Duration::from_nanos(10_666_666_569_600)));
        assert_eq!(parse_duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_duration("18446744073709551615ms").map(|d| d.as_millis()), Ok(u64::MAX.into()));
        for wrong in
            ["1 fortnight", "5", "", "ms", ".5s", "1.s", "1.2.3s", "-1s", "1.5", "18446744073709551615d"]
        {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_durations_are_written() {
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_215), "1.21 kB");
        assert_eq!(size(10_485_760), "10.4 MB");
        assert_eq!(duration(1_215_000), "1.21 ms");
        assert_eq!(duration(12_345_000_000), "12.3 s");
        assert_eq!(duration(245_000_000_000), "4m 05s");
        assert_eq!(duration(9_000_000_000_000), "2h 30m");
    }

    #[test]
    fn nouns_are_singular_for_one_and_plural_otherwise() {
        let check = |count: i64, noun: &str, expected: &str| assert_eq!(counted(count, noun), expected);
        check(0, "line", "0 lines");
        check(1, "line", "1 line");
        check(2, "grandchild", "2 grandchildren");
        check(1, "child", "1 child");
        check(3, "entry", "3 entries");
        check(2, "day", "2 days");
        check(2, "match", "2 matches");
        check(21, "open session", "21 open sessions");
        assert_eq!(counted(1_usize, "file"), "1 file");
        assert_eq!(counted(2_u64, "file"), "2 files");
    }
}
