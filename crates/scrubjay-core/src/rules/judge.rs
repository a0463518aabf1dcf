//! Applies the rules to the lines of one connection, in both directions: what is forwarded, what is sent back, after
//! what delay.

mod notes;
mod within;

use std::borrow::Cow;
use std::sync::Arc;

use self::notes::Notes;
use self::within::begun_tasks;
use super::Rules;
use super::apply::{RuleOutcome, RuleSubject};
use super::change::Edits;
use super::document::{Document, MessageNature};
use super::judgement::{Forwarded, Judgement};
use super::matching::{MatchingRules, OpenRequests, ReferenceKey, ReferenceTable};
use super::portable::plain_id;
use super::refusal::{RefusalReason, Refused, SEPARATORS_ESCAPED};
use super::strict::check;
use crate::entry::{Direction, RuleEffects};
use crate::envelope::BATCH_MAX;
use crate::json::edit;
use crate::json::strict::{JsonProblem, escape_separators, scan};
use crate::json::tree::Tree;
use crate::protocol::method;

/// The number of earlier rule sets that are kept for open requests. The answer to a request under an older one is
/// blocked, because the rules that apply to it are gone.
const EARLIER_MAX: usize = 4;

/// The rules and the open requests of one connection.
#[derive(Debug)]
pub struct Judge {
    in_force: ActiveRules,
    /// The name of the backend, or of the connection.
    backend: String,
    /// Earlier rules with requests that are still open.
    earlier: Vec<ActiveRules>,
    /// Requests that were made under rules that are no longer kept, or under several rule sets.
    unjudgeable: OpenRequests,
    bytes_max: usize,
}

/// Rules, with the requests made under them.
#[derive(Debug)]
struct ActiveRules {
    rules: Arc<Rules>,
    open: OpenRequests,
    /// What later messages may refer to: tasks and requests for input.
    memory: ReferenceTable,
    /// Whether one of the rules is about this connection.
    concerns: bool,
}

impl ActiveRules {
    fn new(rules: Arc<Rules>, backend: &str) -> Self {
        let concerns = rules.concern_backend(backend);
        Self { rules, open: OpenRequests::default(), memory: ReferenceTable::default(), concerns }
    }
}

impl Judge {
    /// Makes the judge of the connection to a backend; rules may not make a message longer than `bytes_max`.
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

    /// Replaces the rules. The answer to an open request is still judged by the rules under which it was made; a task
    /// that began under other rules counts as the task of any call.
    pub fn replace_rules(&mut self, rules: Arc<Rules>) {
        let new = ActiveRules::new(rules, &self.backend);
        self.earlier.push(std::mem::replace(&mut self.in_force, new));
        self.earlier.retain(|earlier| !earlier.open.is_empty());
        if self.earlier.len() > EARLIER_MAX {
            self.unjudgeable.absorb(self.earlier.remove(0).open);
        }
    }

    /// Forgets a request in this direction whose answer is no longer awaited.
    pub fn forget(&mut self, direction: Direction, id: &[u8]) {
        self.close(direction, &plain_id(id));
    }

    /// Tells whether a rule is about this connection, so that only messages pass that every reader reads alike.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.in_force.concerns
            || !self.unjudgeable.is_empty()
            || self.earlier.iter().any(|one| one.concerns && !one.open.is_empty())
    }

    /// Returns the rules for an answer, which of them its request matches, and whether the request was made under the
    /// rules now in force.
    fn rules_of_answer(
        &self,
        direction: Direction,
        id: &[u8],
        notes: &Notes,
    ) -> (Arc<Rules>, MatchingRules, bool) {
        for in_force in std::iter::once(&self.in_force).chain(self.earlier.iter().rev()) {
            if let Some(matching) = in_force.open.find(direction, id) {
                let is_now = Arc::ptr_eq(&in_force.rules, &self.in_force.rules);
                // A second answer to the same request in one batch: it is unknown what it answers.
                let again = notes.has_answered(id).then(|| in_force.rules.for_unknown_request());
                let matching = again.map_or(matching, |unknown| matching.or(unknown));
                return (in_force.rules.clone(), matching, is_now);
            }
        }
        if self.unjudgeable.find(direction, id).is_some() {
            let rules = Rules::blocking_everything();
            let matching = rules.for_unknown_request();
            return (Arc::new(rules), matching, false);
        }
        let rules = &self.in_force.rules;
        // An error without an id answers no request.
        let is_harmless = id == b"null";
        let matching = if is_harmless {
            MatchingRules::exactly(rules.for_any_method())
        } else {
            rules.for_unknown_request()
        };
        (rules.clone(), matching, false)
    }

    /// Judges a line: a message, or each message of a batch. A line that readers may read in different ways is refused;
    /// a blank line passes.
    pub fn line(&mut self, direction: Direction, line: &[u8]) -> Judgement {
        if !self.is_strict() || line.iter().all(|b| matches!(b, b' ' | b'\t')) {
            return Judgement::default();
        }
        let mut notes = Notes::default();
        match self.judge_line(direction, line, &mut notes) {
            Ok(judgement) => {
                self.commit(direction, notes);
                judgement
            }
            Err(refused) => refused.judgement(direction, line, |id| {
                // The requester gets an error in place of this answer, so it waits no longer.
                self.close(direction.reversed(), &plain_id(id.as_bytes()));
            }),
        }
    }

    fn judge_line(&self, direction: Direction, line: &[u8], notes: &mut Notes) -> Result<Judgement, Refused> {
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
        // A reply repeats the id as it was spelled, which may contain a line separator.
        if let Some(back) = &mut judgement.back {
            *back = escape_separators(back, &scan(back)?);
        }
        let text = match &judgement.forwarded {
            Forwarded::Nothing => return Ok(judgement),
            Forwarded::Unchanged => line,
            Forwarded::Changed(other) => {
                separators = scan(other)?;
                other
            }
        };
        if !separators.is_empty() {
            let escaped = escape_separators(text, &separators);
            if escaped.len() > self.bytes_max {
                return Err(Refused { why: RefusalReason::TooLong, at: separators[0] });
            }
            judgement.forwarded = Forwarded::Changed(escaped);
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
            // The changes of all messages together must stay within the limit, hence the subtraction of `put`.
            let range = tree.nodes[*member].range.clone();
            let one =
                self.message(direction, &text[range.clone()], self.bytes_max.saturating_sub(put), notes);
            let one = one.map_err(|refused| Refused { at: refused.at + range.start, ..refused })?;
            whole.marks.add(&one.marks);
            // A batch is one line, so all its messages wait for the longest delay.
            whole.delay = whole.delay.max(one.delay);
            back.extend(one.back);
            match one.forwarded {
                Forwarded::Unchanged => {}
                Forwarded::Changed(other) => {
                    put += other.len();
                    edits.push((range, other));
                }
                Forwarded::Nothing => gone.push(*member),
            }
        }
        if !back.is_empty() {
            whole.back = Some([b"[", &*back.join(&b","[..]), b"]"].concat());
        }
        // An empty batch is not valid JSON-RPC, so nothing at all is sent.
        if !gone.is_empty() && gone.len() == members.len() {
            whole.forwarded = Forwarded::Nothing;
        } else if !gone.is_empty() || !edits.is_empty() {
            whole.marks.add_effects(RuleEffects::CHANGED);
            let taken = edit::take_out(&tree, 0, |member| gone.binary_search(&member).is_ok());
            edits.extend(taken.into_iter().map(|(_, range)| (range, Vec::new())));
            edits.sort_by_key(|(range, _)| range.start);
            let edits = edits.iter().map(|(range, with)| (range.clone(), &**with));
            whole.forwarded = Forwarded::Changed(edit::apply(text, edits));
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
        // In normal form, because an answer may spell the id of its request in another way.
        let id = plain_id(document.id().as_bytes());
        let (rules, matching, is_known_request) = match nature {
            MessageNature::Request | MessageNature::Notification => {
                (self.in_force.rules.clone(), self.matching_of_sent(direction, &document), false)
            }
            MessageNature::Answer => self.rules_of_answer(direction.reversed(), &id, notes),
        };
        let subject = RuleSubject { document, nature, rules, matching };
        let outcome = self.judge(direction, subject, (bytes_max, 0), notes)?;
        if nature == MessageNature::Answer {
            if is_known_request && !matching.is_about_task {
                let tasks = begun_tasks(&outcome.document).map(|id| ReferenceKey::task(direction, &id));
                tasks.for_each(|task| notes.remember(task, matching));
            }
            notes.answer(id);
        // A request that a rule answers is not forwarded, so no answer of the server belongs to it.
        } else if nature == MessageNature::Request && outcome.reply.is_none() {
            notes.open(id, self.matching_of_answer(direction, &outcome));
        }
        let RuleOutcome { document, mut judgement, reply, .. } = outcome;
        if let Some(reply) = reply {
            return Ok(judgement.stopped_with(&document, nature, &reply));
        }
        // Text that no rule changed is still borrowed from the line, which then passes byte for byte.
        if let Cow::Owned(other) = document.text {
            judgement.forwarded = Forwarded::Changed(other);
        }
        Ok(judgement)
    }

    /// Returns the rules that a request or a notification matches.
    fn matching_of_sent(&self, direction: Direction, document: &Document<'_>) -> MatchingRules {
        let matching = MatchingRules::exactly(self.in_force.rules.matching(document));
        let about_task = method::NOTIFICATIONS_TASKS_PREFIX.as_bytes();
        let is_news = document.method().is_some_and(|method| method.starts_with(about_task));
        // A notification about a task may contain its result, so the rules of the call apply too.
        match is_news.then(|| self.matching_of_task(direction, document)).flatten() {
            Some(task) => matching.or(task),
            None => matching,
        }
    }

    /// Returns the rules that the answer to a request will match: an answer about a task also counts as one to the call
    /// that began the task.
    fn matching_of_answer(&self, direction: Direction, outcome: &RuleOutcome<'_>) -> MatchingRules {
        let RuleOutcome { document, matching, .. } = outcome;
        if !document.method().is_some_and(|method| method.starts_with(method::TASKS_PREFIX.as_bytes())) {
            return *matching;
        }
        let matching =
            self.matching_of_task(direction.reversed(), document).map_or(*matching, |task| matching.or(task));
        MatchingRules { is_about_task: true, ..matching }
    }
}

/// Judges a client's line to a gateway, which parses it before the rules see the messages it becomes; `None` if every
/// reader reads the line alike.
#[must_use]
pub fn refuse_unreadable(direction: Direction, line: &[u8]) -> Option<Judgement> {
    let read = || -> Result<(), Refused> {
        scan(line)?;
        let no_object = Refused { why: RefusalReason::NotAMessage("it is not an object"), at: 0 };
        check(&Document::new(Cow::Borrowed(line)).ok_or(no_object)?)
    };
    read().err().map(|refused| refused.judgement(direction, line, |_| ()))
}
