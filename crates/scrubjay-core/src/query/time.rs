//! Times as people write them: an age, a day, a day and a time, `today`, `yesterday`, `now`.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use thiserror::Error;

use crate::units::parse_duration;

/// Which end of a day a text means that names only the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DayEdge {
    /// Its beginning: `since:` a day begins there.
    Start,
    /// Its end: `until:` a day includes the whole day. For times that are compared with `<` that is the first moment of the
    /// next day; for those compared with `<=` it is the day's last moment.
    End,
}

/// A text that is no time.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "expected a time ago like 30m or 2d, today, yesterday, now, a date like 2026-11-01, or 2026-11-01T14:30"
)]
pub struct TimeError;

/// Reads a time: an age such as `2d`, `now`, `today`, `yesterday`, a date, or a date and time in this zone.
///
/// # Errors
/// The text is none of these.
pub fn moment(value: &str, now_ns: u64, zone: &TimeZone, edge: DayEdge) -> Result<u64, TimeError> {
    if let Ok(ago) = parse_duration(value) {
        return Ok(now_ns.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)));
    }
    let read = || -> Option<Timestamp> {
        let local = |time: DateTime| time.to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp());
        let day = |day: Date| match edge {
            DayEdge::Start => local(day.into()),
            // Not 24 hours later: on days when clocks change a day is longer or shorter.
            DayEdge::End => local(day.tomorrow().ok()?.into()),
        };
        let now = Timestamp::from_nanosecond(now_ns.into()).ok()?;
        let today = now.to_zoned(zone.clone()).date();
        match value {
            "now" => Some(now),
            "today" => day(today),
            "yesterday" => day(today.yesterday().ok()?),
            _ if value.contains(['T', 't', ' ']) => {
                value.parse::<Timestamp>().ok().or_else(|| local(value.parse().ok()?))
            }
            _ => day(value.parse().ok()?),
        }
    };
    read().and_then(|time| u64::try_from(time.as_nanosecond()).ok()).ok_or(TimeError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_covers_its_first_to_its_last_moment() {
        // 2027-01-15T08:00:00Z, which is another day in Auckland than in Honolulu.
        const NOW: u64 = 1_800_000_000_000_000_000;
        let check = |value: &str, zone: &TimeZone, start: &str, end: &str| {
            for (edge, expected) in [(DayEdge::Start, start), (DayEdge::End, end)] {
                let expected: Timestamp = expected.parse().unwrap();
                let expected = u64::try_from(expected.as_nanosecond()).unwrap();
                assert_eq!(moment(value, NOW, zone, edge), Ok(expected), "{value} {edge:?}");
            }
        };
        let utc = &TimeZone::UTC;
        check("2026-11-01", utc, "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z");
        check("2026-12-31", utc, "2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z");
        check("today", utc, "2027-01-15T00:00:00Z", "2027-01-16T00:00:00Z");
        check("yesterday", utc, "2027-01-14T00:00:00Z", "2027-01-15T00:00:00Z");
        check("now", utc, "2027-01-15T08:00:00Z", "2027-01-15T08:00:00Z");
        check("2h", utc, "2027-01-15T06:00:00Z", "2027-01-15T06:00:00Z");
        check("2026-11-01T14:30", utc, "2026-11-01T14:30:00Z", "2026-11-01T14:30:00Z");
        check("2026-11-01T14:30:00+02:00", utc, "2026-11-01T12:30:00Z", "2026-11-01T12:30:00Z");
        let honolulu = &TimeZone::fixed(jiff::tz::offset(-10));
        check("today", honolulu, "2027-01-14T10:00:00Z", "2027-01-15T10:00:00Z");
        check("2026-11-01", honolulu, "2026-11-01T10:00:00Z", "2026-11-02T10:00:00Z");
        for wrong in ["", "tomorrow", "2026-13-01", "1.11.2026", "2026-11", "5"] {
            assert!(moment(wrong, NOW, utc, DayEdge::Start).is_err(), "{wrong}");
        }
    }
}
