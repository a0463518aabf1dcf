//! Times as agents write and read them: ISO 8601.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use scrubjay_core::export::iso_time;

use crate::reply::Failure;

/// Formats nanoseconds since the Unix epoch.
pub(super) fn iso(at_ns: i64) -> String {
    // To the nanosecond: a `since` or a point copied from an answer then means exactly that version.
    iso_time(u64::try_from(at_ns).unwrap_or(0))
}

/// Parses a time or a day; a day stands for its midnight in UTC.
pub(super) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    let day = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|day| day.timestamp());
    let at = text.parse::<Timestamp>().ok().or_else(day)?;
    i64::try_from(at.as_nanosecond()).ok()
}

/// Parses the time from which a list begins; 0 if none is given.
pub(super) fn since(text: Option<&str>) -> Result<i64, Failure> {
    let Some(text) = text else { return Ok(0) };
    parse(text).ok_or_else(|| {
        Failure::new(
            "INVALID_TIME",
            format!("\"{text}\" is not a time"),
            "Write it like 2026-01-31T09:00:00Z or 2026-01-31.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_to_the_nanosecond() {
        let at = 1_790_000_000_123_456_789;
        assert_eq!(parse(&iso(at)), Some(at));
        assert_eq!(parse("1970-01-02"), Some(86_400_000_000_000));
        assert_eq!(parse("1970-01-01T01:00:00+01:00"), Some(0));
        assert!(since(Some("yesterday")).is_err());
    }
}
