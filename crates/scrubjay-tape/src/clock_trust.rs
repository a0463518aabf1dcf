//! Whether the wall clock can be trusted, which must be known before anything is deleted for its age.
//!
//! `<data>/clock.json` keeps the last trusted time, together with the boot-time clock, which cannot be set. The wall
//! clock is trusted if it advanced by about as much as that clock. After a reboot nothing says how long the system was
//! off, so a longer step is trusted then, but never one longer than the age at which tapes are deleted. A clock that is
//! faked for this process alone (libfaketime) is found by the time that the file system gives to a new file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use scrubjay_core::units;
use serde::{Deserialize, Serialize};

use crate::clock::{self, Boot, saturate};
use crate::format::writer::create_private;
use crate::home::Home;

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 24 * 3600 * SECOND_NS;
/// Clocks that differ by less than 5 minutes agree: NTP may step that far when a machine wakes up.
const SLACK_NS: u64 = 5 * 60 * SECOND_NS;
/// How long a machine may be off, however short the age is: a weekend.
const OFF_NS: u64 = 2 * DAY_NS;
/// Like `OFF_NS`, if nothing is to be deleted for its age.
const OFF_UNASKED_NS: u64 = 30 * DAY_NS;

/// A reading of all clocks at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The wall clock, nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// The boot-time clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub boot: Option<Boot>,
    /// The time that the file system gave to a file written at that moment.
    #[serde(skip)]
    pub file_wall_ns: Option<u64>,
}

impl ClockReading {
    /// Reads all clocks. Writes a file to the data directory to read the file system's.
    #[must_use]
    pub fn take(home: &Home) -> Self {
        let file_wall_ns = probe(home);
        Self { wall_ns: clock::now().wall_ns, boot: clock::boot(), file_wall_ns }
    }
}

/// Writes a file, and returns the time that the file system gave to it; none if it cannot be written.
fn probe(home: &Home) -> Option<u64> {
    let path = home.root().join(format!("clock.{}.probe", std::process::id()));
    let written = create_private(&path).and_then(|mut file| file.write_all(b"t").map(|()| file));
    let written_ns = written.and_then(|file| clock::written_wall_ns(&file)).ok();
    // A file that stays is overwritten by the next process with this pid.
    let _ = std::fs::remove_file(&path);
    written_ns
}

/// Why the wall clock is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "doubt", rename_all = "snake_case")]
pub enum ClockDoubt {
    /// The file system has another time.
    Files {
        /// The wall clock less the file system's, in nanoseconds.
        by_ns: i64,
    },
    /// The clock advanced by more than the time that passed.
    Jump {
        /// By how much more, in nanoseconds.
        ahead_ns: u64,
        /// The last time that was trusted.
        believed_wall_ns: u64,
        /// Whether the system was rebooted since then.
        rebooted: bool,
    },
}

impl ClockDoubt {
    /// Describes it in a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Files { by_ns } => {
                let by = units::age(by_ns.unsigned_abs());
                let way = if *by_ns < 0 { "behind" } else { "ahead of" };
                format!("this program's clock is {by} {way} the time that the file system gives to new files")
            }
            Self::Jump { ahead_ns, rebooted, .. } => {
                let by = units::age(*ahead_ns);
                let since = if *rebooted { ", and the system was rebooted since" } else { "" };
                format!("the clock is {by} further ahead than the time that is known to have passed{since}")
            }
        }
    }
}

/// The clock readings that are kept between runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedClock {
    /// The last reading whose wall clock was trusted.
    trusted: ClockReading,
    /// The last reading.
    latest: ClockReading,
    /// The time that the boot-time clock measured between the two.
    measured_ns: u64,
}

impl TrustedClock {
    fn new(reading: ClockReading) -> Self {
        Self { latest: reading.clone(), trusted: reading, measured_ns: 0 }
    }

    /// Compares the clocks with the last reading. `age` is the age at which something is to be deleted.
    #[must_use]
    pub fn judge(mut self, now: &ClockReading, age: Option<Duration>) -> (Self, Option<ClockDoubt>) {
        // A clock that is faked for this process must not change what other processes trust.
        if let Some(doubt) = differs_from_files(now) {
            return (self, Some(doubt));
        }
        let passed = self.passed_ns(now);
        self.measured_ns = self.measured_ns.saturating_add(passed);
        self.latest = now.clone();
        let ahead = i128::from(now.wall_ns) - i128::from(self.trusted.wall_ns) - i128::from(self.measured_ns);
        // A clock that is behind makes nothing look old, so it is no doubt. But the reading does not become the trusted
        // one: once the clock is right again, the jump forward must not look suspicious.
        if ahead < -i128::from(SLACK_NS) {
            return (self, None);
        }
        let ahead_ns = u64::try_from(ahead).unwrap_or(0);
        let rebooted = !is_same_boot(&self.trusted, now);
        let age_ns = age.map(saturate);
        let allowed_ns = match (rebooted, age_ns) {
            (false, age) => SLACK_NS.max(age.unwrap_or(0) / 10),
            (true, Some(age)) => OFF_NS.max(age),
            (true, None) => OFF_UNASKED_NS,
        };
        // A step is tolerated up to this limit only. Once a wrong clock became the trusted one, it would pass for every
        // other age too.
        if ahead_ns <= allowed_ns {
            // A step that passes only because of a long age does not become the trusted time.
            let settled_ns = allowed_ns.min(if rebooted { OFF_UNASKED_NS } else { SLACK_NS });
            return if ahead_ns <= settled_ns { (Self::new(now.clone()), None) } else { (self, None) };
        }
        let believed_wall_ns = self.trusted.wall_ns;
        (self, Some(ClockDoubt::Jump { ahead_ns, believed_wall_ns, rebooted }))
    }

    /// Returns the time that the boot-time clock measured since the last reading.
    fn passed_ns(&self, now: &ClockReading) -> u64 {
        match (&self.latest.boot, &now.boot) {
            (Some(then), Some(now)) if then.id == now.id => now.ns.saturating_sub(then.ns),
            (Some(_), Some(now)) => now.ns,
            _ => 0,
        }
    }

    /// Returns by how much the clock is behind the trusted time plus the time measured since; none if it is not.
    #[must_use]
    pub fn went_back_ns(&self, now: &ClockReading) -> Option<u64> {
        let passed_ns = self.measured_ns.saturating_add(self.passed_ns(now));
        let then = self.trusted.wall_ns.saturating_add(passed_ns);
        then.checked_sub(now.wall_ns).filter(|back| *back > SLACK_NS)
    }
}

fn is_same_boot(one: &ClockReading, other: &ClockReading) -> bool {
    matches!((&one.boot, &other.boot), (Some(one), Some(other)) if one.id == other.id)
}

fn differs_from_files(now: &ClockReading) -> Option<ClockDoubt> {
    let by = i128::from(now.wall_ns) - i128::from(now.file_wall_ns?);
    let by_ns = i64::try_from(by).unwrap_or(if by < 0 { i64::MIN } else { i64::MAX });
    (by_ns.unsigned_abs() > SLACK_NS).then_some(ClockDoubt::Files { by_ns })
}

impl Home {
    fn trusted_clock_path(&self) -> PathBuf {
        self.root().join("clock.json")
    }

    /// Returns the kept clock readings. If there are none, the newest file's time counts as the last reading.
    #[must_use]
    pub fn trusted_clock(&self) -> Option<TrustedClock> {
        let kept =
            std::fs::read(self.trusted_clock_path()).ok().and_then(|text| serde_json::from_slice(&text).ok());
        kept.or_else(|| {
            let files = [self.ledger(), self.index(), self.removed_path()].into_iter();
            let tapes = self.list().unwrap_or_default().into_iter().map(|tape| tape.path);
            let newest = files.chain(tapes).filter_map(|path| file_wall_ns(&path)).max()?;
            Some(TrustedClock::new(ClockReading { wall_ns: newest, boot: None, file_wall_ns: None }))
        })
    }

    /// Returns by how much the clock is behind what it should be; none if it is not, or if nothing is known. Writes
    /// nothing, so it is cheap enough for the start of a recording.
    #[must_use]
    pub fn clock_behind_ns(&self) -> Option<u64> {
        let now = ClockReading { wall_ns: clock::now().wall_ns, boot: clock::boot(), file_wall_ns: None };
        self.trusted_clock()?.went_back_ns(&now)
    }

    /// Compares the clocks with the last reading, and keeps the new one.
    ///
    /// # Errors
    /// The new reading cannot be written.
    pub fn check_clock(&self, now: &ClockReading, age: Option<Duration>) -> io::Result<Option<ClockDoubt>> {
        let trusted = self.trusted_clock().unwrap_or_else(|| TrustedClock::new(now.clone()));
        let (trusted, doubt) = trusted.judge(now, age);
        // A faked clock is not kept.
        if !matches!(doubt, Some(ClockDoubt::Files { .. })) {
            self.store_trusted_clock(&trusted)?;
        }
        Ok(doubt)
    }

    /// Trusts the clock as it is, because a person says that it is right.
    ///
    /// # Errors
    /// The reading cannot be written.
    pub fn trust_clock(&self, now: &ClockReading) -> io::Result<()> {
        self.store_trusted_clock(&TrustedClock::new(now.clone()))
    }

    fn store_trusted_clock(&self, trusted: &TrustedClock) -> io::Result<()> {
        let path = self.trusted_clock_path();
        let temporary = path.with_extension(format!("{}.new", std::process::id()));
        let written = create_private(&temporary)
            .and_then(|mut file| file.write_all(&serde_json::to_vec(trusted)?))
            .and_then(|()| std::fs::rename(&temporary, &path));
        if written.is_err() {
            // The caller gets the first error; one from clearing up would hide it.
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }
}

fn file_wall_ns(path: &Path) -> Option<u64> {
    clock::written_wall_ns(&File::open(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600 * SECOND_NS;
    const YEAR: u64 = 365 * DAY_NS;
    /// Some day in 2026.
    const THEN: u64 = 1_790_000_000 * SECOND_NS;
    const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

    fn at(wall_ns: u64, boot: &str, ns: u64) -> ClockReading {
        ClockReading { wall_ns, boot: Some(Boot { id: boot.to_owned(), ns }), file_wall_ns: Some(wall_ns) }
    }

    /// Judges the readings in turn, and returns for each whether the clock was trusted.
    fn believed(readings: &[ClockReading], age: Option<Duration>) -> Vec<bool> {
        let mut trusted = TrustedClock::new(readings[0].clone());
        let mut verdicts = Vec::new();
        for now in &readings[1..] {
            let (next, doubt) = trusted.judge(now, age);
            trusted = next;
            verdicts.push(doubt.is_none());
        }
        verdicts
    }

    #[test]
    fn a_clock_is_trusted_if_the_boot_clock_agrees() {
        let check = |what: &str, readings: &[ClockReading], expected: &[bool]| {
            assert_eq!(believed(readings, Some(RETENTION)), expected, "{what}");
        };
        let begin = at(THEN, "a", HOUR);
        check("an hour later", &[begin.clone(), at(THEN + HOUR, "a", 2 * HOUR)], &[true]);
        check("forty days of running", &[begin.clone(), at(THEN + 40 * DAY_NS, "a", 40 * DAY_NS)], &[true]);
        check(
            "ten years ahead, again and again, and back",
            &[
                begin.clone(),
                at(THEN + 10 * YEAR, "a", HOUR + SECOND_NS),
                at(THEN + 10 * YEAR, "a", 2 * HOUR),
                at(THEN + 2 * HOUR, "a", 3 * HOUR),
            ],
            &[false, false, true],
        );
        check("ten years ahead after a start", &[begin.clone(), at(THEN + 10 * YEAR, "b", HOUR)], &[false]);
        check("off for three weeks", &[begin.clone(), at(THEN + 21 * DAY_NS, "b", 0)], &[true]);
        check("off for three months", &[begin.clone(), at(THEN + 90 * DAY_NS, "b", 0)], &[false]);
        check(
            "off for three months, then on for long: the step is as large as before",
            &[
                begin.clone(),
                at(THEN + 90 * DAY_NS, "b", 0),
                at(THEN + 105 * DAY_NS, "b", 15 * DAY_NS),
                at(THEN + 121 * DAY_NS, "b", 31 * DAY_NS),
            ],
            &[false, false, false],
        );
        check(
            "set back, and right again",
            &[begin.clone(), at(THEN - YEAR, "a", 2 * HOUR), at(THEN + 2 * HOUR, "a", 3 * HOUR)],
            &[true, true],
        );
        check(
            "set back, and ahead",
            &[begin.clone(), at(THEN - YEAR, "b", HOUR), at(THEN + YEAR, "b", 2 * HOUR)],
            &[true, false],
        );
        let faked = ClockReading { file_wall_ns: Some(THEN + HOUR), ..at(THEN + 10 * YEAR, "a", 2 * HOUR) };
        check("a clock that the file system does not have", &[begin.clone(), faked], &[false]);
        let unknown = ClockReading { boot: None, ..begin };
        let later = |ns| ClockReading { wall_ns: THEN + ns, boot: None, file_wall_ns: None };
        check("nothing to compare with", &[unknown, later(DAY_NS), later(YEAR)], &[true, false]);
    }

    #[test]
    fn a_jump_is_not_trusted_for_a_short_age() {
        let readings = [at(THEN, "a", HOUR), at(THEN + 10 * YEAR, "a", HOUR + SECOND_NS)];
        for seconds in [60, 3600, 24 * 3600, 3600 * 24 * 365] {
            assert_eq!(believed(&readings, Some(Duration::from_secs(seconds))), [false], "{seconds}");
        }
        assert_eq!(believed(&readings, None), [false]);
    }

    #[test]
    fn a_step_trusted_for_a_long_age_is_not_trusted_for_a_short_one() {
        for boot in ["a", "b"] {
            let jumped = at(THEN + 10 * YEAR, boot, 2 * HOUR);
            let trusted = TrustedClock::new(at(THEN, "a", HOUR));
            let (trusted, doubt) = trusted.judge(&jumped, Some(2400 * RETENTION));
            assert_eq!(doubt, None, "an age of two hundred years");
            assert!(trusted.judge(&jumped, Some(RETENTION)).1.is_some(), "and one of thirty days");
        }
    }

    #[test]
    fn a_clock_that_went_back_is_reported() {
        let trusted = TrustedClock::new(at(THEN, "a", HOUR));
        assert_eq!(trusted.went_back_ns(&at(THEN + HOUR, "a", 2 * HOUR)), None);
        assert_eq!(trusted.went_back_ns(&at(THEN - HOUR, "a", 2 * HOUR)), Some(2 * HOUR));
        assert_eq!(trusted.went_back_ns(&at(THEN - HOUR, "b", 0)), Some(HOUR));
        // Reported each time, until the clock is right.
        let (trusted, doubt) = trusted.judge(&at(THEN - YEAR, "b", HOUR), Some(RETENTION));
        assert_eq!(doubt, None, "nothing looks older than it is");
        assert_eq!(trusted.went_back_ns(&at(THEN - YEAR + HOUR, "b", 2 * HOUR)), Some(YEAR + HOUR));
        assert_eq!(trusted.went_back_ns(&at(THEN + 3 * HOUR, "b", 2 * HOUR)), None);
    }
}
