//! Checks the arguments of a call: finds every problem, and reports it in the words of the specification.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use rmcp::model::JsonObject;
use scrubjay_core::query::DayEdge;
use serde_json::Value;

use super::ProgressFailure;
use crate::arguments::ArgumentProblem;

/// A call's arguments, and the problems found so far.
pub(super) struct Arguments {
    object: JsonObject,
    problems: Vec<ArgumentProblem>,
}

impl Arguments {
    pub(super) fn new(object: JsonObject) -> Self {
        Self { object, problems: Vec::new() }
    }

    /// Fails if there were problems.
    pub(super) fn finish(self) -> Result<(), ProgressFailure> {
        if self.problems.is_empty() { Ok(()) } else { Err(ProgressFailure::Problems(self.problems)) }
    }

    /// Adds a problem.
    pub(super) fn problem(&mut self, name: &str, message: impl Into<String>) {
        self.problems.push(ArgumentProblem::new(name, message));
    }

    /// Adds the problem that an argument is not one of a few words.
    pub(super) fn problem_choice(&mut self, name: &str, words: &[&str]) {
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let problem = ArgumentProblem::new(name, format!("must be {}", quoted.join(" or ")));
        self.problems
            .push(ArgumentProblem { allowed: words.iter().map(|word| (*word).into()).collect(), ..problem });
    }

    /// Adds a problem that the specification words as a whole sentence.
    pub(super) fn problem_as_sentence(&mut self, name: &str, message: &str, sentence: impl Into<String>) {
        self.problems
            .push(ArgumentProblem { sentence: Some(sentence.into()), ..ArgumentProblem::new(name, message) });
    }

    /// Tells whether an argument was given; `null` counts as not given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.object.get(name).is_some_and(|value| !value.is_null())
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.object.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a required text.
    pub(super) fn required(&mut self, name: &str, chars_max: usize, missing: &str) -> String {
        // Asked before `text` takes the argument. A value of the wrong type is reported as that, and not as missing
        // too.
        let absent = !self.has(name);
        let text = self.text(name, chars_max);
        let blank = text.as_ref().is_some_and(|text| text.trim().is_empty());
        if absent || blank {
            self.problem(name, missing);
        }
        text.unwrap_or_default()
    }

    /// Takes an optional text.
    pub(super) fn text(&mut self, name: &str, chars_max: usize) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => {
                self.check(name, &text, chars_max);
                Some(text)
            }
            _ => {
                self.problem(name, "must be a string");
                None
            }
        }
    }

    fn check(&mut self, name: &str, text: &str, chars_max: usize) {
        if text.chars().count() > chars_max {
            self.problem(name, format!("exceeds maximum length of {chars_max} characters"));
        }
        // PostgreSQL cannot store NUL in a text.
        if text.contains('\0') {
            self.problem(name, "must not contain NUL characters");
        }
    }

    /// Takes an optional list of texts.
    pub(super) fn texts(&mut self, name: &str, items_max: usize, chars_max: usize) -> Vec<String> {
        let items = match self.take(name) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.problem(name, "must be an array of strings");
                return Vec::new();
            }
        };
        if items.len() > items_max {
            self.problem(name, format!("exceeds maximum of {items_max} items"));
            return Vec::new();
        }
        let mut texts = Vec::new();
        for (n, item) in items.into_iter().enumerate() {
            match item {
                Value::String(text) => {
                    self.check(&format!("{name}[{n}]"), &text, chars_max);
                    texts.push(text);
                }
                _ => self.problem(&format!("{name}[{n}]"), "must be a string"),
            }
        }
        texts
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.take(name) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(_) => {
                self.problem(name, "must be a boolean");
                false
            }
        }
    }

    /// Takes an optional whole number within limits.
    pub(super) fn number(&mut self, name: &str, min: i64, max: i64) -> Option<i64> {
        let value = self.take(name)?;
        // Models write 20.0 for 20. Up to 1e15 such a number is exact.
        let whole = |float: f64| (float.fract() == 0.0 && float.abs() < 1e15).then_some(float as i64);
        match value.as_i64().or_else(|| value.as_f64().and_then(whole)) {
            Some(number) if number < min => self.problem(name, format!("must be at least {min}")),
            Some(number) if number > max => self.problem(name, format!("exceeds maximum of {max}")),
            Some(number) => return Some(number),
            None => self.problem(name, "must be an integer"),
        }
        None
    }

    /// Takes a date, and returns its first or last microsecond.
    pub(super) fn date(&mut self, name: &str, edge: DayEdge) -> Option<i64> {
        let value = self.take(name)?;
        let moment = value.as_str().and_then(|text| moment(text.trim(), edge));
        if moment.is_none() {
            let sentence = format!("Invalid date format for {name}: expected ISO 8601");
            self.problem_as_sentence(name, "must be a date in ISO 8601", sentence);
        }
        moment
    }
}

/// Parses a date, or a date and time, in UTC if it has no offset. Entries are shown in milliseconds, so the end of a time is
/// the last microsecond of its millisecond: an entry is found by the time that is shown for it.
fn moment(text: &str, edge: DayEdge) -> Option<i64> {
    if !text.contains(['T', 't', ' ']) {
        let day: Date = text.parse().ok()?;
        let start = day.to_zoned(TimeZone::UTC).ok()?.timestamp().as_microsecond();
        return Some(match edge {
            DayEdge::Start => start,
            DayEdge::End => start + 24 * 3_600_000_000 - 1,
        });
    }
    let moment = text.parse::<Timestamp>().ok().or_else(|| {
        let moment: DateTime = text.parse().ok()?;
        Some(moment.to_zoned(TimeZone::UTC).ok()?.timestamp())
    })?;
    Some(match edge {
        DayEdge::Start => moment.as_microsecond(),
        DayEdge::End => moment.as_microsecond().div_euclid(1000) * 1000 + 999,
    })
}

/// Formats a time in microseconds as ISO 8601.
pub(super) fn iso(at_us: i64) -> String {
    let ms = at_us.div_euclid(1000);
    Timestamp::from_millisecond(ms).map(|moment| format!("{moment:.3}")).unwrap_or_default()
}

/// Formats the day of a time in microseconds.
pub(super) fn day(at_us: i64) -> String {
    iso(at_us).chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, start: &str, end: &str) {
        let shown = |edge| moment(text, edge).map(|at| Timestamp::from_microsecond(at).unwrap().to_string());
        assert_eq!(shown(DayEdge::Start).as_deref(), Some(start), "{text}");
        assert_eq!(shown(DayEdge::End).as_deref(), Some(end), "{text}");
    }

    #[test]
    fn dates_of_every_format_are_parsed() {
        check("2025-06-15", "2025-06-15T00:00:00Z", "2025-06-15T23:59:59.999999Z");
        check("2025-06-15T14:32:00Z", "2025-06-15T14:32:00Z", "2025-06-15T14:32:00.000999Z");
        check("2025-06-15T14:32:00.123Z", "2025-06-15T14:32:00.123Z", "2025-06-15T14:32:00.123999Z");
        check("2025-06-15T14:32:00+02:00", "2025-06-15T12:32:00Z", "2025-06-15T12:32:00.000999Z");
        check("2025-06-15T23:30:00-05:00", "2025-06-16T04:30:00Z", "2025-06-16T04:30:00.000999Z");
        check("2025-06-15T14:32", "2025-06-15T14:32:00Z", "2025-06-15T14:32:00.000999Z");
        for odd in ["", "yesterday", "15.06.2025", "2025-13-01", "2025-06-31", "2025-06-15T25:00:00Z", "12"] {
            assert_eq!(moment(odd, DayEdge::Start), None, "{odd}");
        }
    }

    #[test]
    fn moments_are_shown_in_milliseconds() {
        assert_eq!(iso(1_750_000_000_123_456), "2025-06-15T15:06:40.123Z");
        assert_eq!(day(1_750_000_000_123_456), "2025-06-15");
    }

    #[test]
    fn only_whole_numbers_are_accepted() {
        let object = serde_json::json!({"a": 5, "b": 20.0, "c": 2.5, "d": "7", "e": 0, "f": 101, "g": 1e300});
        let mut arguments = Arguments::new(object.as_object().cloned().unwrap());
        let numbers: Vec<_> =
            ["a", "b", "c", "d", "e", "f", "g"].map(|name| arguments.number(name, 1, 100)).into();
        assert_eq!(numbers, [Some(5), Some(20), None, None, None, None, None]);
        assert_eq!(
            arguments.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "c must be an integer",
                "d must be an integer",
                "e must be at least 1",
                "f exceeds maximum of 100",
                "g must be an integer"
            ]
        );
    }
}
