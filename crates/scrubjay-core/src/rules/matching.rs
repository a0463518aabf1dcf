//! Which rules a request fits: so few bits that those of every open request can be kept for its answer.

use super::Rule;
use crate::bounded_map::BoundedMap;
use crate::entry::Direction;
use crate::operation::OPEN_MAX;

/// No more rules can be in force.
pub const RULES_MAX: usize = 256;
/// So many tasks and demands for input are remembered on a connection: about 2 MiB.
const KNOWN_MAX: usize = 16_384;

/// Some of the rules, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleSet([u64; RULES_MAX / 64]);

impl RuleSet {
    pub(super) fn of(rules: &[Rule], fits: impl Fn(&Rule) -> bool) -> Self {
        let mut found = Self::default();
        for (number, _) in rules.iter().enumerate().filter(|(_, rule)| fits(rule)) {
            found.0[number / 64] |= 1 << (number % 64);
        }
        found
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.0[number / 64] & 1 << (number % 64) != 0
    }

    /// Adds others.
    pub(super) fn add(&mut self, others: Self) {
        for (mine, other) in self.0.iter_mut().zip(others.0) {
            *mine |= other;
        }
    }

    /// Keeps only those that others have, too.
    fn keep(&mut self, others: Self) {
        for (mine, other) in self.0.iter_mut().zip(others.0) {
            *mine &= other;
        }
    }
}

/// Which rules a message fits, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MatchingRules {
    /// Rules that it may fit.
    pub(super) any: RuleSet,
    /// Rules that it fits in any case.
    pub(super) all: RuleSet,
    /// Rules of what it is known to be, for what is only noted beside it.
    pub(super) own: RuleSet,
    /// Whether it answers a request about a task, and so begins none.
    pub(super) is_about_task: bool,
}

impl MatchingRules {
    /// These and no others.
    pub(super) fn exactly(fits: RuleSet) -> Self {
        Self { any: fits, all: fits, own: fits, is_about_task: false }
    }

    /// One or the other.
    pub(super) fn or(mut self, other: Self) -> Self {
        self.any.add(other.any);
        self.all.keep(other.all);
        self.own.add(other.own);
        self.is_about_task &= other.is_about_task;
        self
    }
}

/// Who asked, and a hash of the id: ids may be of any length.
type RequestKey = (Direction, [u8; 16]);

/// The requests that await their answer.
#[derive(Debug)]
pub(super) struct OpenRequests {
    requests: BoundedMap<RequestKey, SameId>,
}

/// The requests that are open under one id. Which of them an answer is to, nobody can tell, so each answer may be to any
/// of them: also the last one, for nobody knows which were answered before.
#[derive(Debug)]
struct SameId {
    fitting: MatchingRules,
    count: usize,
}

impl Default for OpenRequests {
    fn default() -> Self {
        Self { requests: BoundedMap::new(OPEN_MAX) }
    }
}

impl OpenRequests {
    /// Notes a request; the oldest is forgotten where there are too many.
    pub(super) fn note(&mut self, direction: Direction, id: &[u8], fitting: MatchingRules) {
        self.add((direction, hash(id)), SameId { fitting, count: 1 });
    }

    /// Notes all that are open elsewhere.
    pub(super) fn absorb(&mut self, other: Self) {
        other.requests.into_entries().for_each(|(asked, same)| self.add(asked, same));
    }

    /// Notes those that are open elsewhere under one id.
    pub(super) fn absorb_id(&mut self, other: &mut Self, direction: Direction, id: &[u8]) {
        let asked = (direction, hash(id));
        if let Some(same) = other.requests.remove(&asked) {
            self.add(asked, same);
        }
    }

    fn add(&mut self, asked: RequestKey, same: SameId) {
        match self.requests.get_mut(&asked) {
            Some(before) => {
                before.fitting = before.fitting.or(same.fitting);
                before.count += same.count;
            }
            None => {
                self.requests.insert(asked, same);
            }
        }
    }

    /// Finds the requests of this id that went this way.
    pub(super) fn find(&self, direction: Direction, id: &[u8]) -> Option<MatchingRules> {
        self.requests.get(&(direction, hash(id))).map(|same| same.fitting)
    }

    /// Takes out one of them, whichever; returns whether there was one.
    pub(super) fn take(&mut self, direction: Direction, id: &[u8]) -> bool {
        let asked = (direction, hash(id));
        let Some(same) = self.requests.get_mut(&asked) else { return false };
        same.count -= 1;
        if same.count == 0 {
            self.requests.remove(&asked);
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// What a later message may refer to, by the way it goes and a hash: names that peers give may be of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ReferenceKey {
    Task(Direction, [u8; 16]),
    Input(Direction, [u8; 16]),
}

impl ReferenceKey {
    /// A task by its id; its outcome goes this way.
    pub(super) fn task(direction: Direction, id: &[u8]) -> Self {
        Self::Task(direction, hash(id))
    }

    /// A demand for input by its key, and the state or the task it is part of; the answer goes this way.
    pub(super) fn input(direction: Direction, state: &[u8], key: &[u8]) -> Self {
        Self::Input(direction, hash(&[&hash(state), key].concat()))
    }
}

/// The tasks and demands for input that were made, each with the rules that what made it fits. What falls out counts as
/// unknown, and so as anything.
#[derive(Debug)]
pub(super) struct ReferenceTable {
    known: BoundedMap<ReferenceKey, MatchingRules>,
}

impl Default for ReferenceTable {
    fn default() -> Self {
        Self { known: BoundedMap::new(KNOWN_MAX) }
    }
}

impl ReferenceTable {
    /// Remembers something; what goes by a name that is known may be either.
    pub(super) fn remember(&mut self, known: ReferenceKey, fitting: MatchingRules) {
        match self.known.get_mut(&known) {
            Some(before) => *before = before.or(fitting),
            None => {
                self.known.insert(known, fitting);
            }
        }
    }

    pub(super) fn find(&self, known: &ReferenceKey) -> Option<MatchingRules> {
        self.known.get(known).copied()
    }
}

fn hash(id: &[u8]) -> [u8; 16] {
    *blake3::hash(id).as_bytes().first_chunk().expect("a hash is longer")
}
