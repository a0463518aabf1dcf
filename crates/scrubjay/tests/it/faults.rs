//! Every read, write, sync, open and rename fails once, one at a time, in one process that continues to work: nothing
//! that was acknowledged is lost, nothing stays broken, and no restart is needed.
//!
//! `SCRUBJAY_FAULTS_ALL=1` (`scripts/faults`) walks through every call of the story with every error; without it
//! a sample is taken that is the same each time.

mod disk;
mod power;
mod raw;
mod served;
mod shim;
mod wrapped;

use shim::{Fault, Kind, Mode};

/// The errors of a disk that fails, is full, or has reached this user's quota.
const ERRORS: [i32; 3] = [5, 28, 122];

/// Tells whether every call fails once, not only a sample.
fn is_whole_walk() -> bool {
    std::env::var_os("SCRUBJAY_FAULTS_ALL").is_some()
}

/// Runs `story` for n = 1, 2, …, and lets the nth call of one kind fail. `story` returns whether it made n such calls.
///
/// A sample takes the first calls, then every call at growing distances, each time with another error.
fn walk(kind: Kind, texts: &'static str, story: impl FnMut(&Fault) -> bool) -> u32 {
    walk_by(kind, texts, |left| left + 1 + left / 2, story)
}

/// Like [`walk`], but `next` returns which call the sample takes after one.
fn walk_by(
    kind: Kind,
    texts: &'static str,
    next: impl Fn(u32) -> u32,
    mut story: impl FnMut(&Fault) -> bool,
) -> u32 {
    let mut failed_calls = 0;
    let mut left = 1;
    loop {
        let mut faults = Vec::new();
        let errors: &[i32] = if kind == Kind::Read { &ERRORS[..1] } else { &ERRORS };
        if is_whole_walk() {
            faults.extend(errors.iter().map(|error| (Mode::Fails, *error)));
        } else {
            faults.push((Mode::Fails, errors[left as usize % errors.len()]));
        }
        if kind == Kind::Write && (is_whole_walk() || left % 2 == 1) {
            faults.extend([(Mode::Short, 0), (Mode::ShortThenFails, ERRORS[1])]);
        }
        let mut call_failed = false;
        for (mode, error) in faults {
            if story(&Fault { kind, mode, error, left, texts }) {
                call_failed = true;
                failed_calls += 1;
            }
        }
        if !call_failed {
            return failed_calls;
        }
        left = if is_whole_walk() { left + 1 } else { next(left) };
    }
}
