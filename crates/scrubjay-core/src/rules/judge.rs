//! Judges the lines of one connection, in both directions: what goes on, what goes back, how long it waits.

mod notes;
mod within;

use std::borrow::Cow;
use std::sync::Arc;

use self::notes::Notes;
use self::within::begun;
use super::Rules;
use super::apply::{RuleOutcome, RuleSubject};
use super::change::Edits;
use super::document::{Document, MessageNature};
use super::judgement::{Judgement, Onward};
use super::matching::{MatchingRules, OpenRequests, ReferenceKey, ReferenceTable};
use super::portable::plain_id;
use super::refusal::{RefusalReason, Refused, SEPARATORS_ESCAPED};
use super::strict::check;
use crate::entry::{Direction, RuleEffects};
use crate::envelope::BATCH_MAX;
use crate::json::edit;
use crate::json::strict::{JsonProblem, escape_separators, scan};
use crate::json::tree::Tree;

/// The rules before so many changes are not kept: the answer to a request that was made under them is blocked.
const EARLIER_MAX: usize = 4;

/// The rules at work on one connection.
#[derive(Debug)]
pub struct Judge {
    in_force: ActiveRules,
    /// The backend, or the connection's name.
    backend: String,
    /// Rules that were in force before.
    earlier: Vec<ActiveRules>,
    /// Requests that were made under rules which are not kept, or under several.
    unjudgeable: OpenRequests,
    bytes_max: usize,
}

/// Rules with the requests made under them.
#[derive(Debug)]
struct ActiveRules {
    rules: Arc<Rules>,
    open: OpenRequests,
    /// What later messages may refer to: tasks, and demands for input.
    memory: ReferenceTable,
    /// Whether one of them is about this connection.
    concerns: bool,
}

impl ActiveRules {
    fn new(rules: Arc<Rules>, backend: &str) -> Self {
        let concerns = rules.concern(backend);
        Self { rules, open: OpenRequests::default(), memory: ReferenceTable::default(), concerns }
    }
}

impl Judge {
    /// Puts rules to work on the connection to a backend; no message may become longer than `bytes_max`.
    #[must_use]
    pub fn new(rules: Arc<Rules>, backend: &str, bytes_max: usize) -> Self {
        Self {
            in_force: ActiveRules::new(rules, backend),
            backend: backend.to_owned(),
            earlier: Vec::new(),
            unjudgeable: OpenRequests::default(),
            bytes_max,
        }
    }

    /// Puts other rules in force. The answer to a request is still judged by the rules it was made under;
    /// a task that was begun under other rules counts as one that may be anything.
    pub fn replace_rules(&mut self, rules: Arc<Rules>) {
        let new = ActiveRules::new(rules, &self.backend);
        self.earlier.push(std::mem::replace(&mut self.in_force, new));
        self.earlier.retain(|earlier| !earlier.open.is_empty());
        if self.earlier.len() > EARLIER_MAX {
            self.unjudgeable.absorb(self.earlier.remove(0).open);
        }
    }

    /// Forgets a request that went this way: nobody waits for its answer any more.
    pub fn forget(&mut self, direction: Direction, id: &[u8]) {
        self.close(direction, &plain_id(id));
    }

    /// Tells whether a rule is about this connection, so that only what every reader reads alike passes.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.in_force.concerns
            || !self.unjudgeable.is_empty()
            || self.earlier.iter().any(|one| one.concerns && !one.open.is_empty())
    }

    /// Returns the rules that an answer is judged by, which of them its request fits, and whether that was made.
    fn asked(&self, direction: Direction, id: &[u8], notes: &Notes) -> (Arc<Rules>, MatchingRules, bool) {
        for in_force in std::iter::once(&self.in_force).chain(self.earlier.iter().rev()) {
            if let Some(fitting) = in_force.open.find(direction, id) {
                let is_now = Arc::ptr_eq(&in_force.rules, &self.in_force.rules);
                // The same batch answers it already.
                let again = notes.has_answered(id).then(|| in_force.rules.of_unknown());
                let fitting = again.map_or(fitting, |unknown| fitting.or(unknown));
                return (in_force.rules.clone(), fitting, is_now);
            }
        }
        if self.unjudgeable.find(direction, id).is_some() {
            let rules = Rules::that_block_everything();
            let fitting = rules.of_unknown();
            return (Arc::new(rules), fitting, false);
        }
        let rules = &self.in_force.rules;
        // An error without an id answers nobody's request.
        let is_harmless = id == b"null";
        let fitting =
            if is_harmless { MatchingRules::exactly(rules.of_any_method()) } else { rules.of_unknown() };
        (rules.clone(), fitting, false)
    }

    /// Judges a line: a message, or each message of a batch by itself. What readers may read in different ways is
    /// refused; a line of nothing but space says nothing, and passes.
    pub fn line(&mut self, direction: Direction, line: &[u8]) -> Judgement {
        if !self.is_strict() || line.iter().all(|b| matches!(b, b' ' | b'\t')) {
            return Judgement::default();
        }
        let mut notes = Notes::default();
        match self.strictly(direction, line, &mut notes) {
            Ok(judgement) => {
                self.keep(direction, notes);
                judgement
            }
            Err(refused) => refused.judgement(direction, line, |id| {
                self.close(direction.reversed(), &plain_id(id.as_bytes()));
            }),
        }
    }

    fn strictly(&self, direction: Direction, line: &[u8], notes: &mut Notes) -> Result<Judgement, Refused> {
        let mut separators = scan(line)?;
        let mut judgement = match line.trim_ascii_start().first() {
            Some(b'{') => self.message(direction, line, self.bytes_max, notes)?,
            Some(b'[') => self.batch(direction, line, notes)?,
            _ => {
                return Err(Refused {
                    why: RefusalReason::NotAMessage("it is neither an object nor a batch"),
                    at: 0,
                });
            }
        };
        // An id comes back as it was spelled.
        if let Some(back) = &mut judgement.back {
            *back = escape_separators(back, &scan(back)?);
        }
        let text = match &judgement.onward {
            Onward::Nothing => return Ok(judgement),
            Onward::Same => line,
            Onward::Other(other) => {
                separators = scan(other)?;
                other
            }
        };
        if !separators.is_empty() {
            let escaped = escape_separators(text, &separators);
            if escaped.len() > self.bytes_max {
                return Err(Refused { why: RefusalReason::TooLong, at: separators[0] });
            }
            judgement.onward = Onward::Other(escaped);
            judgement.marks.note(SEPARATORS_ESCAPED, RuleEffects::CHANGED);
        }
        Ok(judgement)
    }

    fn batch(&self, direction: Direction, text: &[u8], notes: &mut Notes) -> Result<Judgement, Refused> {
        let tree =
            Tree::parse(text).ok_or(Refused { why: RefusalReason::Text(JsonProblem::NotJson), at: 0 })?;
        let mut whole = Judgement::default();
        let (mut edits, mut gone, mut back) = (Edits::new(), Vec::new(), Vec::new());
        let mut put = 0;
        let members: Vec<usize> = tree.children(0).collect();
        if !(1..=BATCH_MAX).contains(&members.len()) {
            let why = RefusalReason::NotAMessage("it is a batch of no messages, or of more than 1024");
            return Err(Refused { why, at: 0 });
        }
        for member in &members {
            let range = tree.nodes[*member].range.clone();
            let one =
                self.message(direction, &text[range.clone()], self.bytes_max.saturating_sub(put), notes);
            let one = one.map_err(|refused| Refused { at: refused.at + range.start, ..refused })?;
            whole.marks.add(&one.marks);
            whole.delay = whole.delay.max(one.delay);
            back.extend(one.back);
            match one.onward {
                Onward::Same => {}
                Onward::Other(other) => {
                    put += other.len();
                    edits.push((range, other));
                }
                Onward::Nothing => gone.push(*member),
            }
        }
        if !back.is_empty() {
            whole.back = Some([b"[", &*back.join(&b","[..]), b"]"].concat());
        }
        if !gone.is_empty() && gone.len() == members.len() {
            whole.onward = Onward::Nothing;
        } else if !gone.is_empty() || !edits.is_empty() {
            whole.marks.act(RuleEffects::CHANGED);
            let taken = edit::take_out(&tree, 0, |member| gone.binary_search(&member).is_ok());
            edits.extend(taken.into_iter().map(|(_, range)| (range, Vec::new())));
            edits.sort_by_key(|(range, _)| range.start);
            let edits = edits.iter().map(|(range, with)| (range.clone(), &**with));
            whole.onward = Onward::Other(edit::apply(text, edits));
        }
        Ok(whole)
    }

    fn message(
        &self,
        direction: Direction,
        text: &[u8],
        bytes_max: usize,
        notes: &mut Notes,
    ) -> Result<Judgement, Refused> {
        let no_object = Refused { why: RefusalReason::NotAMessage("it is not an object"), at: 0 };
        let document = Document::new(Cow::Borrowed(text)).ok_or(no_object)?;
        check(&document)?;
        let nature = document.nature();
        let id = plain_id(document.id().as_bytes());
        let (rules, fitting, is_asked) = match nature {
            MessageNature::Request | MessageNature::Notification => {
                (self.in_force.rules.clone(), self.said(direction, &document), false)
            }
            MessageNature::Answer => self.asked(direction.reversed(), &id, notes),
        };
        let case = RuleSubject { document, nature, rules, fitting };
        let ruled = self.judge(direction, case, (bytes_max, 0), notes)?;
        if nature == MessageNature::Answer {
            if is_asked && !fitting.is_about_task {
                let tasks = begun(&ruled.document).map(|id| ReferenceKey::task(direction, &id));
                tasks.for_each(|task| notes.know(task, fitting));
            }
            notes.answer(id);
        } else if nature == MessageNature::Request && ruled.ending.is_none() {
            notes.open(id, self.opening(direction, &ruled));
        }
        let RuleOutcome { document, mut judgement, ending, .. } = ruled;
        if let Some(ending) = ending {
            return Ok(judgement.end(&document, nature, &ending));
        }
        if let Cow::Owned(other) = document.text {
            judgement.onward = Onward::Other(other);
        }
        Ok(judgement)
    }

    /// Returns which rules a request or a notification fits.
    fn said(&self, direction: Direction, document: &Document<'_>) -> MatchingRules {
        let fitting = MatchingRules::exactly(self.in_force.rules.fitting(document));
        let is_news = document.method().is_some_and(|method| method.starts_with(b"notifications/tasks"));
        // What is told of a task may be its outcome.
        match is_news.then(|| self.task(direction, document)).flatten() {
            Some(task) => fitting.or(task),
            None => fitting,
        }
    }

    /// Returns which rules the answer to a request will fit: what is answered about a task is of the call that began it.
    fn opening(&self, direction: Direction, ruled: &RuleOutcome<'_>) -> MatchingRules {
        let RuleOutcome { document, fitting, .. } = ruled;
        if !document.method().is_some_and(|method| method.starts_with(b"tasks/")) {
            return *fitting;
        }
        let fitting = self.task(direction.reversed(), document).map_or(*fitting, |task| fitting.or(task));
        MatchingRules { is_about_task: true, ..fitting }
    }
}

/// Judges what a client says to a gateway, which takes it apart before rules see what becomes of it: none where every
/// reader reads it alike.
#[must_use]
pub fn refuse_unreadable(direction: Direction, line: &[u8]) -> Option<Judgement> {
    let read = || -> Result<(), Refused> {
        scan(line)?;
        let no_object = Refused { why: RefusalReason::NotAMessage("it is not an object"), at: 0 };
        check(&Document::new(Cow::Borrowed(line)).ok_or(no_object)?)
    };
    read().err().map(|refused| refused.judgement(direction, line, |_| ()))
}
