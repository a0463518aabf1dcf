//! Whether the clock is trusted, and whether time ran backwards in recordings.

use scrubjay_core::units::{age, counted};
use scrubjay_tape::clock_trust::ClockReading;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::verify::ClockJump;
use scrubjay_tape::home::{Home, TapeFile};

use super::{Findings, Installation};

const SECOND_NS: u64 = 1_000_000_000;
/// 5 minutes: a smaller difference is an ordinary correction of a clock, not a finding.
const SLACK_NS: u64 = 5 * 60 * SECOND_NS;
/// 64 MiB: how much is read of tapes whose footers do not say how the clock went, so that the check takes a moment, not
/// minutes.
const READ_BYTES_MAX: u64 = 64 << 20;
/// 5 seconds: by how much times may differ because an entry waited before it was written.
const BACK_NS: u64 = 5 * SECOND_NS;

pub(super) fn check(installation: &Installation, findings: &mut Findings) {
    let home = &installation.home;
    if !home.root().is_dir() {
        return findings.ok("there are no recordings to compare it with yet");
    }
    let now = ClockReading::take(home);
    // The retention decides how far the clock may be ahead, so this judges as the next start of `wrap` or `serve` will.
    let retention = installation.loaded.as_ref().ok().and_then(|loaded| loaded.retention());
    if let Some(clock) = home.trusted_clock() {
        if let Some(back) = clock.went_back_ns(&now) {
            let what = format!(
                "time ran backwards: the clock is {} behind the last time that was trusted here",
                age(back)
            );
            findings.wrong(
                what,
                "set the clock of this machine; until then new recordings have wrong times and are not removed for \
                 their age. If it is right, confirm it with `scrubjay tape rm --older-than AGE --trust-clock`",
            );
        }
        if let Some(doubt) = clock.judge(&now, retention).1 {
            findings.wrong(
                format!("{}; tapes are not removed for their age", doubt.words()),
                "set the clock of this machine; if it is right, confirm it with `scrubjay tape rm --older-than AGE \
                 --trust-clock`",
            );
        }
    }
    check_tapes(home, now.wall_ns, findings);
    if findings.is_empty() {
        findings.ok("agrees with the recordings");
    }
}

/// What is wrong with the times of a tape.
#[derive(Clone, Copy)]
struct ClockAnomalies {
    /// It has entries from the future.
    is_future: bool,
    /// The clock was behind when it was recorded.
    is_behind: bool,
    /// Time ran backwards on it.
    ran_back: bool,
}

fn check_tapes(home: &Home, now_ns: u64, findings: &mut Findings) {
    // The newest come first, because they matter most and the budget may not be enough for all.
    let files = home.list().unwrap_or_default();
    let mut budget = READ_BYTES_MAX;
    let wrong: Vec<(&TapeFile, ClockAnomalies)> =
        files.iter().filter_map(|file| Some((file, read_clock(home, file, now_ns, &mut budget)?))).collect();
    let of = |wanted: fn(&ClockAnomalies) -> bool| -> Vec<&TapeFile> {
        wrong.iter().filter(|(_, wrong)| wanted(wrong)).map(|(file, _)| *file).collect()
    };
    let future = of(|wrong| wrong.is_future);
    if let Some(first) = future.first() {
        let what = format!(
            "{} with times in the future, among them {}",
            counted(future.len() as u64, "tape"),
            first.id
        );
        findings.wrong(
            what,
            "the clock was ahead when they were recorded, or is behind now: set it; such tapes are not removed for \
             their age until that time has come",
        );
    }
    let behind = of(|wrong| wrong.is_behind);
    if let Some(first) = behind.first() {
        let what = format!(
            "the clock was behind when {} began, among them {}",
            counted(behind.len() as u64, "tape"),
            first.id
        );
        findings.note(
            what,
            "they are younger than their times say, so they are not removed for their age: remove them with `scrubjay \
             tape rm ID` or `scrubjay tape rm --older-than AGE --trust-clock`",
        );
    }
    let back = of(|wrong| wrong.ran_back);
    if let Some(first) = back.first() {
        let what =
            format!("time ran backwards on {}, among them {}", counted(back.len() as u64, "tape"), first.id);
        findings.note(what, "`scrubjay tape verify ID` says where; the order of the entries is right");
    }
}

/// Examines the times in a tape's header and footer, or those of its entries while the budget allows to read them.
fn read_clock(home: &Home, file: &TapeFile, now_ns: u64, budget: &mut u64) -> Option<ClockAnomalies> {
    let tape = home.open(file).ok()?;
    let header = tape.header()?;
    let started = header.started_wall_ns;
    let (ended, lasted) =
        tape.footer().map_or((started, 0), |footer| (footer.ended_wall_ns, footer.duration_ns));
    let ended_early = ended.saturating_add(BACK_NS) < started.saturating_add(lasted);
    Some(ClockAnomalies {
        is_future: ended.max(started) > now_ns.saturating_add(SLACK_NS),
        is_behind: header.clock_behind_ns.is_some(),
        ran_back: ended_early || ran_back(&tape, budget),
    })
}

/// Tells whether time ran backwards between two entries of a tape, even if it was set forward again later.
fn ran_back(tape: &Tape, budget: &mut u64) -> bool {
    if let Some(jumps) = tape.noted_clock_jumps() {
        return jumps.iter().any(ClockJump::is_back);
    }
    // No footer says so: the tape is being recorded, or an earlier version sealed it.
    let Some(left) = tape.file_bytes().ok().and_then(|bytes| budget.checked_sub(bytes)) else { return false };
    *budget = left;
    tape.find_clock_jumps().is_ok_and(|jumps| jumps.iter().any(ClockJump::is_back))
}
