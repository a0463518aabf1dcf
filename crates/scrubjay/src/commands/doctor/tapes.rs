//! Counts the recordings, those that are damaged, and those that wait to be sealed.

use scrubjay_core::units::counted;
use scrubjay_tape::catalog;
use scrubjay_tape::format::reader::TapeState;

use super::{Findings, Installation};

pub(super) fn check(installation: &Installation, findings: &mut Findings) {
    let files = match installation.home.list() {
        Ok(files) => files,
        Err(e) => {
            let what = format!("{:#}", anyhow::Error::from(e));
            // No command to paste: the directory may be another user's, who has to agree.
            let fix = "let its owner run this, give yourself access, or use another directory with --data";
            return findings.wrong(what, fix);
        }
    };
    let all = catalog::read_all(&installation.home, &files);
    let damaged: Vec<&str> =
        all.iter().filter(|tape| tape.damage.is_some()).map(|tape| tape.file.id.as_str()).collect();
    if let Some(first) = damaged.first() {
        let what = format!("{} damaged, among them {first}", counted(damaged.len() as u64, "tape"));
        findings.wrong(
            what,
            "`scrubjay tape verify` shows what is damaged; `scrubjay tape export ID` saves what can be read",
        );
    }
    let abandoned = all.iter().filter(|tape| tape.state == TapeState::Abandoned).count();
    // A note, not an error, because nothing is lost and nobody needs to do anything.
    if abandoned > 0 {
        let what = format!("{} left by a crash and not sealed yet", counted(abandoned as u64, "tape"));
        findings.note(what, "the next start of `scrubjay wrap` or `scrubjay serve` seals them");
    }
    let live = all.iter().filter(|tape| tape.state == TapeState::Live).count();
    findings.ok(format!("{}, {live} of them being recorded", counted(all.len() as u64, "tape")));
}
