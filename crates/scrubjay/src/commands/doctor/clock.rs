//! Whether the clock is trusted, and whether time ran backwards in recordings.

use scrubjay_core::units::{age, counted};
use scrubjay_tape::clock_trust::ClockReading;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::verify::ClockJump;
use scrubjay_tape::home::{Home, TapeFile};

use super::{Findings, Installation};

const SECOND_NS: u64 = 1_000_000_000;
/// Clocks are corrected by this much without anybody being at fault.
const SLACK_NS: u64 = 5 * 60 * SECOND_NS;
/// So much of tapes that do not say in their footers how the clock went is read.
const READ_BYTES_MAX: u64 = 64 << 20;
/// An entry may have waited for a moment before it was written.
const BACK_NS: u64 = 5 * SECOND_NS;

pub(super) fn check(installation: &Installation, findings: &mut Findings) {
    let home = &installation.home;
    if !home.root().is_dir() {
        return findings.ok("nothing to compare with yet");
    }
    let now = ClockReading::take(home);
    let retention = installation.loaded.as_ref().ok().and_then(|loaded| loaded.retention());
    if let Some(clock) = home.trusted_clock() {
        if let Some(back) = clock.went_back_ns(&now) {
            let what = format!(
                "time ran backwards: the clock is {} behind the last time it was believed here",
                age(back)
            );
            findings.wrong(
                what,
                "set the clock of this machine; until then new recordings have wrong times and are not removed for \
                 their age. If it is right, `scrubjay tape rm --older-than AGE --trust-clock` says so",
            );
        }
        if let Some(doubt) = clock.judge(&now, retention).1 {
            findings.wrong(
                format!("{}; tapes are not removed for their age", doubt.words()),
                "set the clock of this machine; if it is right, `scrubjay tape rm --older-than AGE --trust-clock` \
                 says so",
            );
        }
    }
    check_tapes(home, now.wall_ns, findings);
    if findings.is_empty() {
        findings.ok("goes as it should");
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
    // The newest come first: they matter most, and the budget may not last for all.
    let files = home.list().unwrap_or_default();
    let mut budget = READ_BYTES_MAX;
    let odd: Vec<(&TapeFile, ClockAnomalies)> =
        files.iter().filter_map(|file| Some((file, read_clock(home, file, now_ns, &mut budget)?))).collect();
    let of = |wanted: fn(&ClockAnomalies) -> bool| -> Vec<&TapeFile> {
        odd.iter().filter(|(_, odd)| wanted(odd)).map(|(file, _)| *file).collect()
    };
    let future = of(|odd| odd.is_future);
    if let Some(first) = future.first() {
        let what =
            format!("{} from the future, among them {}", counted(future.len() as u64, "tape"), first.id);
        findings.wrong(
            what,
            "the clock was ahead when it was recorded, or is behind now: set it right; such tapes are not removed \
             for their age until that time has come",
        );
    }
    let behind = of(|odd| odd.is_behind);
    if let Some(first) = behind.first() {
        let what = format!(
            "the clock was behind when {} began, among them {}",
            counted(behind.len() as u64, "tape"),
            first.id
        );
        findings.note(
            what,
            "they are younger than they say, so they are not removed for their age: `scrubjay tape rm ID` removes \
             them, or `scrubjay tape rm --older-than AGE --trust-clock`",
        );
    }
    let back = of(|odd| odd.ran_back);
    if let Some(first) = back.first() {
        let what =
            format!("time ran backwards on {}, among them {}", counted(back.len() as u64, "tape"), first.id);
        findings
            .note(what, "`scrubjay tape verify ID` says where; the order of entries is right all the same");
    }
}

/// Looks at the times of a tape as its header and footer tell them, or its entries while there is budget to read them.
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

/// Tells whether time ran backwards between two entries of a tape, also where it came back.
fn ran_back(tape: &Tape, budget: &mut u64) -> bool {
    if let Some(jumps) = tape.noted_clock_jumps() {
        return jumps.iter().any(ClockJump::is_back);
    }
    // Its footer has no such facts: it is being recorded, or an earlier version sealed it.
    let Some(left) = tape.file_bytes().ok().and_then(|bytes| budget.checked_sub(bytes)) else { return false };
    *budget = left;
    tape.find_clock_jumps().is_ok_and(|jumps| jumps.iter().any(ClockJump::is_back))
}
