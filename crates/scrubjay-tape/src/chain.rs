//! Checks the links between tapes.
//!
//! A tape names the end of the tape that it continues, and of the last closed tape of its session: the number of
//! entries and their digest. An altered, cut or missing tape is found as long as a tape that names it is left. No tape
//! names the newest tape of a session: only a checkpoint covers that one. A tape that was imported alone may name
//! others that were never in this data directory.

use std::collections::HashMap;
use std::io;

use scrubjay_core::entry::EntryKind;
use scrubjay_core::id::TapeId;
use scrubjay_core::units;
use serde::Serialize;

use crate::format::digest::TapeEnd;
use crate::format::header::{Header, Imported};
use crate::format::observe::{CLOCK_SLACK_NS, CLOSING_MAX, Observed, Observer};
use crate::format::reader::{OpenError, Tape, TapeState};
use crate::format::verify::{VerifyReport, verify_observed};
use crate::home::{FindError, Home, TapeFile};
use crate::removed::Removed;

/// What is wrong with a link between two tapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkProblem {
    /// A tape that this one names is not here, and there is no note of its removal.
    Missing,
    /// The entries are not those whose digest another tape names.
    Changed,
    /// Another tape names more entries than this one has.
    Shortened,
    /// There are entries behind the end that another tape names.
    Added,
    /// The part numbers of a connection's tapes are not consecutive.
    Order,
    /// The file has the name of another tape.
    Misplaced,
    /// Two tapes say that they continue this one.
    Forked,
}

/// A link between two tapes that is wrong.
#[derive(Clone, Debug, Serialize)]
pub struct LinkFinding {
    /// What is wrong.
    pub problem: LinkProblem,
    /// The other tape.
    pub other: TapeId,
    /// The same as a sentence.
    pub what: String,
}

/// The result of checking a tape by itself and against the tapes that name it.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedTape {
    /// Whether it is being written, abandoned or sealed.
    pub state: TapeState,
    /// What is wrong with the tape by itself.
    #[serde(flatten)]
    pub report: VerifyReport,
    /// What is wrong with its links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkFinding>,
    /// Notes that are no problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How it was imported, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imported: Option<Imported>,
}

impl CheckedTape {
    /// Returns whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.report.is_sound() && self.links.is_empty()
    }

    /// Tells whether the clock ran backwards on it, or between it and the next tape.
    #[must_use]
    pub fn time_ran_back(&self) -> bool {
        self.report.clock_jumps.iter().any(|jump| jump.is_back())
            || self.notes.iter().any(|note| note.contains(RAN_BACK))
    }
}

const RAN_BACK: &str = "time ran backwards";

/// The link by which one tape names another.
#[derive(Clone, Debug)]
struct LinkClaim {
    by: TapeId,
    by_part: u32,
    by_started_wall_ns: u64,
    /// Whether it continues the other tape; else it only comes after it in the session.
    continues: bool,
    /// None on tapes of versions that did not name ends.
    end: Option<TapeEnd>,
}

/// The facts that tell which tapes were recorded together, and in which order.
#[derive(Debug)]
struct TapeRelation {
    id: TapeId,
    session: String,
    gateway: Option<String>,
    /// When it began, and which part of its connection it is.
    place: (u64, u32),
    is_imported: bool,
}

impl TapeRelation {
    fn new(header: &Header) -> Self {
        Self {
            id: header.id,
            session: header.session.id.clone(),
            gateway: header.gateway.clone(),
            place: (header.started_wall_ns, header.part),
            is_imported: header.links.imported.is_some(),
        }
    }

    /// Tells whether both are of one session, or of one run of a gateway.
    fn is_related(&self, other: &Self) -> bool {
        let one_session = !self.session.is_empty() && self.session == other.session;
        one_session || (self.gateway.is_some() && self.gateway == other.gateway)
    }
}

/// On which side of a tape another one is that it names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Neighbour {
    Before,
    Behind,
}

/// The links between all tapes of a data directory.
#[derive(Debug)]
pub struct Chain {
    relatives: Vec<TapeRelation>,
    claims: HashMap<TapeId, Vec<LinkClaim>>,
    present: HashMap<TapeId, TapeFile>,
    removed: HashMap<TapeId, Removed>,
}

impl Chain {
    /// Reads the headers of all tapes.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn read(home: &Home) -> Result<Self, FindError> {
        let files = home.list()?;
        let mut claims: HashMap<TapeId, Vec<LinkClaim>> = HashMap::new();
        let mut relatives = Vec::with_capacity(files.len());
        // A tape that cannot be opened is reported when it is checked itself.
        for header in files.iter().filter_map(|file| home.open(file).ok()?.header().cloned()) {
            relatives.push(TapeRelation::new(&header));
            let Header { id: by, part: by_part, started_wall_ns: by_started_wall_ns, .. } = header;
            let claim = |continues, end| LinkClaim { by, by_part, by_started_wall_ns, continues, end };
            if let Some(before) = header.continues {
                claims.entry(before).or_default().push(claim(true, header.links.previous));
            }
            if let Some(before) = header.links.follows {
                claims.entry(before.tape).or_default().push(claim(false, Some(before)));
            }
        }
        let failed = |source| FindError::Io { path: home.root().to_owned(), source };
        let removed = home.removed().map_err(failed)?;
        let present = files.into_iter().map(|file| (file.id, file)).collect();
        Ok(Self { relatives, claims, present, removed })
    }

    /// Checks a tape, and whether it matches what other tapes say of it.
    ///
    /// # Errors
    /// The file cannot be read. Problems of the tape are no errors: they are in the answer.
    pub fn check(&self, home: &Home, file: &TapeFile) -> Result<CheckedTape, OpenError> {
        let tape = home.open(file)?;
        let io_error = |source: io::Error| OpenError::Io { path: file.path.clone(), source };
        let claims = self.claims.get(&file.id).map(Vec::as_slice).unwrap_or_default();
        let ends = || claims.iter().filter_map(|claim| Some(claim.end.as_ref()?.entries)).collect();
        let (report, observed) =
            verify_observed(&tape, || Observer::new(tape.header(), ends())).map_err(io_error)?;
        let imported = tape.header().and_then(|header| header.links.imported.clone());
        let state = tape.state();
        let mut checked = CheckedTape { state, report, links: Vec::new(), notes: Vec::new(), imported };
        if let Some(header) = tape.header() {
            self.look_back(home, file, header, &mut checked);
        }
        self.look_forward(home, tape.header(), &observed, &mut checked);
        checked.note_clock(tape.header());
        checked.note_totals();
        // A damaged tape differs from what other tapes say of it in any case, and its damage is reported already.
        if checked.report.is_sound() {
            for claim in claims {
                check_claim(&tape, claim, &observed, &mut checked);
            }
            let continuing: Vec<&LinkClaim> = claims.iter().filter(|claim| claim.continues).collect();
            // A recording continues a tape once, so one of two is a copy or forged.
            if let [first, second, ..] = continuing.as_slice() {
                let what = format!("tapes {} and {} both say that they continue it", first.by, second.by);
                checked.find(LinkProblem::Forked, second.by, what);
            }
        }
        Ok(checked)
    }

    /// Checks that the earlier tapes that a tape names are here.
    fn look_back(&self, home: &Home, file: &TapeFile, header: &Header, checked: &mut CheckedTape) {
        if header.id != file.id {
            let what = format!("the file has the name of tape {}, and holds tape {}", file.id, header.id);
            checked.find(LinkProblem::Misplaced, header.id, what);
        }
        if let Some(before) = header.continues {
            self.look_for(home, header, Neighbour::Before, before, "continues", checked);
            if header.links.previous.is_none() {
                let what = format!("it names tape {before}, which it continues, but not its end");
                checked.notes.push(what);
            }
        }
        if let Some(end) = &header.links.follows {
            self.look_for(home, header, Neighbour::Before, end.tape, "comes after", checked);
        }
    }

    /// Checks that the next tape that a tape names is here.
    fn look_forward(
        &self,
        home: &Home,
        header: Option<&Header>,
        observed: &Observed,
        checked: &mut CheckedTape,
    ) {
        let end = observed.last.iter().rev().find_map(|last| last.end.as_ref());
        if let (Some(header), Some(next)) = (header, end.and_then(|end| end.continues_on)) {
            self.look_for(home, header, Neighbour::Behind, next, "goes on with", checked);
        }
    }

    /// Notes a named tape that is not here.
    fn look_for(
        &self,
        home: &Home,
        by: &Header,
        side: Neighbour,
        tape: TapeId,
        how: &str,
        checked: &mut CheckedTape,
    ) {
        // It may have come or gone since the list was read.
        let is_here = || home.list().is_ok_and(|files| files.iter().any(|file| file.id == tape));
        if self.present.contains_key(&tape) || is_here() {
            return;
        }
        let noted = self.removed.get(&tape).cloned();
        if let Some(removed) = noted.or_else(|| home.removed().ok()?.remove(&tape)) {
            checked.notes.push(format!("it {how} tape {tape}, which was removed {}", removed.by.words()));
        } else if checked.imported.is_some() && !self.was_here(by, side, tape) {
            checked.notes.push(format!("it {how} tape {tape}, which is not here"));
        } else {
            let what = format!("it {how} tape {tape}, which is missing");
            checked.find(LinkProblem::Missing, tape, what);
        }
    }

    /// Tells whether a tape that an imported one names must have been here: a tape beyond it is here, or one that was
    /// recorded here with it. Without this, somebody could delete a tape and excuse it by re-importing its neighbours.
    fn was_here(&self, by: &Header, side: Neighbour, tape: TapeId) -> bool {
        let claims = self.claims.get(&tape).map(Vec::as_slice).unwrap_or_default();
        let is_named_from_behind = side == Neighbour::Behind && claims.iter().any(|claim| claim.by != by.id);
        let near = TapeRelation::new(by);
        let is_beyond = |other: &TapeRelation| match side {
            Neighbour::Before => other.place < near.place,
            Neighbour::Behind => other.place > near.place,
        };
        let mut related = self.relatives.iter().filter(|other| other.id != by.id && other.is_related(&near));
        is_named_from_behind || related.any(|other| !other.is_imported || is_beyond(other))
    }
}

impl CheckedTape {
    fn find(&mut self, problem: LinkProblem, other: TapeId, what: String) {
        self.links.push(LinkFinding { problem, other, what });
    }

    fn note_totals(&mut self) {
        if !self.report.doubtful_totals.is_empty() {
            self.notes.push(format!(
                "its footer does not match the totals of its entries ({}): another version of scrubjay sealed \
                 it, or it was altered",
                self.report.doubtful_totals.join(", ")
            ));
        }
    }

    fn note_clock(&mut self, header: Option<&Header>) {
        if let Some(behind) = header.and_then(|header| header.clock_behind_ns) {
            self.notes.push(format!(
                "the clock was {} behind when it began: its times are in doubt, and it is not removed for its age",
                units::age(behind)
            ));
        }
        for jump in &self.report.clock_jumps {
            let by = units::age(jump.by_ns.unsigned_abs());
            self.notes.push(if jump.is_back() {
                format!("{RAN_BACK} by {by} before entry {}", jump.entry)
            } else {
                format!(
                    "the clock went ahead by {by} more than the time that passed before entry {} (it was set, or \
                     the machine slept)",
                    jump.entry
                )
            });
        }
    }
}

/// Checks what another tape says of this one.
fn check_claim(tape: &Tape, claim: &LinkClaim, observed: &Observed, checked: &mut CheckedTape) {
    let by = claim.by;
    let how = if claim.continues { "continues it" } else { "comes after it" };
    if let Some(last) = observed.last_wall_ns
        && claim.by_started_wall_ns.saturating_add(CLOCK_SLACK_NS) < last
    {
        let back = units::age(last - claim.by_started_wall_ns);
        checked.notes.push(format!("{RAN_BACK} by {back} between its last entry and tape {by}, which {how}"));
    }
    if let Some(header) = tape.header()
        && claim.continues
        && claim.by_part != header.part + 1
    {
        let what =
            format!("it is part {}, and tape {by}, which {how}, is part {}", header.part, claim.by_part);
        checked.find(LinkProblem::Order, by, what);
    }
    let Some(end) = &claim.end else { return };
    let imported = if checked.imported.is_some() { "; it was imported" } else { "" };
    let (has, had) = (observed.entries, end.entries);
    if has < had {
        let what = format!("it has {has} entries, and tape {by}, which {how}, says it had {had}{imported}");
        return checked.find(LinkProblem::Shortened, by, what);
    }
    if observed.found.get(&had) != Some(&end.digest) {
        let what = format!(
            "it is not what it was: tape {by}, which {how}, names another digest of its first {had} entries{imported}"
        );
        return checked.find(LinkProblem::Changed, by, what);
    }
    if !is_closing(claim, observed, had) {
        let more = has - had;
        let what = format!(
            "{more} entries were added behind the {had} that tape {by}, which {how}, names{imported}"
        );
        checked.find(LinkProblem::Added, by, what);
    }
}

/// Tells whether only closing entries (a note, the end) follow the named end.
fn is_closing(claim: &LinkClaim, observed: &Observed, had: u64) -> bool {
    if !claim.continues || observed.entries - had > CLOSING_MAX {
        return observed.entries == had;
    }
    observed.last.iter().filter(|last| last.number >= had).all(|last| match last.kind {
        EntryKind::End => last.end.as_ref().is_some_and(|end| end.continues_on == Some(claim.by)),
        EntryKind::Note => true,
        _ => false,
    })
}
