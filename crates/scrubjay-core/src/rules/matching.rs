//! The rules that a request matches, as a bit set: small enough to keep for every open request until its answer comes.

use super::Rule;
use crate::bounded_map::BoundedMap;
use crate::entry::Direction;
use crate::operation::OPEN_MAX;

/// The most rules in force at once: a [`RuleSet`] has 256 bits.
pub const RULES_MAX: usize = 256;
/// The tasks and requests for input that are remembered for a connection: about 2 MiB. The oldest is dropped first, and
/// then counts as unknown.
const KNOWN_MAX: usize = 16_384;

/// A set of rules, one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleSet([u64; RULES_MAX / 64]);

impl RuleSet {
    pub(super) fn of(rules: &[Rule], matches: impl Fn(&Rule) -> bool) -> Self {
        let mut found = Self::default();
        for (number, _) in rules.iter().enumerate().filter(|(_, rule)| matches(rule)) {
            found.0[number / 64] |= 1 << (number % 64);
        }
        found
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.0[number / 64] & 1 << (number % 64) != 0
    }

    /// Adds the rules of another set.
    pub(super) fn union_with(&mut self, others: Self) {
        for (mine, other) in self.0.iter_mut().zip(others.0) {
            *mine |= other;
        }
    }

    /// Keeps only the rules that another set has too.
    fn intersect_with(&mut self, others: Self) {
        for (mine, other) in self.0.iter_mut().zip(others.0) {
            *mine &= other;
        }
    }
}

/// The rules that a message matches, as far as its request is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MatchingRules {
    /// Rules that may match: `block`, `mock` and `modify` apply in case of doubt.
    pub(super) any: RuleSet,
    /// Rules that certainly match: only these let an `allow` apply.
    pub(super) all: RuleSet,
    /// Rules that match what the message is known to be: for `tag` and `delay`, where doubt justifies neither.
    pub(super) own: RuleSet,
    /// Whether it answers a request about a task, and therefore begins no task.
    pub(super) is_about_task: bool,
}

impl MatchingRules {
    /// Makes the matches of a message that is known exactly.
    pub(super) fn exactly(rules: RuleSet) -> Self {
        Self { any: rules, all: rules, own: rules, is_about_task: false }
    }

    /// Combines the matches of a message that is one or the other.
    pub(super) fn or(mut self, other: Self) -> Self {
        self.any.union_with(other.any);
        self.all.intersect_with(other.all);
        self.own.union_with(other.own);
        // In case of doubt it may begin a task, whose rules must then be remembered.
        self.is_about_task &= other.is_about_task;
        self
    }
}

/// The direction of a request, and a hash of its id, because ids may have any length.
type RequestKey = (Direction, [u8; 16]);

/// The requests that wait for their answers.
#[derive(Debug)]
pub(super) struct OpenRequests {
    requests: BoundedMap<RequestKey, SameId>,
}

/// The open requests with one id. It is unknown which of them an answer belongs to, so each answer counts as one to any
/// of them; even the last one, because it is unknown which were answered before.
#[derive(Debug)]
struct SameId {
    matching: MatchingRules,
    count: usize,
}

impl Default for OpenRequests {
    fn default() -> Self {
        Self { requests: BoundedMap::new(OPEN_MAX) }
    }
}

impl OpenRequests {
    /// Adds a request; if there are too many, the oldest is dropped.
    pub(super) fn insert(&mut self, direction: Direction, id: &[u8], matching: MatchingRules) {
        self.add((direction, hash(id)), SameId { matching, count: 1 });
    }

    /// Moves all requests of another table here.
    pub(super) fn absorb(&mut self, other: Self) {
        other.requests.into_entries().for_each(|(key, same)| self.add(key, same));
    }

    /// Moves the requests of another table with one id here.
    pub(super) fn absorb_id(&mut self, other: &mut Self, direction: Direction, id: &[u8]) {
        let key = (direction, hash(id));
        if let Some(same) = other.requests.remove(&key) {
            self.add(key, same);
        }
    }

    fn add(&mut self, key: RequestKey, same: SameId) {
        match self.requests.get_mut(&key) {
            Some(before) => {
                before.matching = before.matching.or(same.matching);
                before.count += same.count;
            }
            None => {
                self.requests.insert(key, same);
            }
        }
    }

    /// Returns the matches of the open requests with this id and direction.
    pub(super) fn find(&self, direction: Direction, id: &[u8]) -> Option<MatchingRules> {
        self.requests.get(&(direction, hash(id))).map(|same| same.matching)
    }

    /// Removes one request with this id; returns whether there was one.
    pub(super) fn take(&mut self, direction: Direction, id: &[u8]) -> bool {
        let key = (direction, hash(id));
        let Some(same) = self.requests.get_mut(&key) else { return false };
        same.count -= 1;
        if same.count == 0 {
            self.requests.remove(&key);
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// The key of something that a later message may refer to: that message's direction, and a hash, because names given by
/// peers may have any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ReferenceKey {
    Task(Direction, [u8; 16]),
    Input(Direction, [u8; 16]),
}

impl ReferenceKey {
    /// Makes the key of a task from its id; `direction` is that of its result.
    pub(super) fn task(direction: Direction, id: &[u8]) -> Self {
        Self::Task(direction, hash(id))
    }

    /// Makes the key of a request for input from its name and its state or task; `direction` is that of the answer.
    pub(super) fn input(direction: Direction, state: &[u8], key: &[u8]) -> Self {
        Self::Input(direction, hash(&[&hash(state), key].concat()))
    }
}

/// Tasks and requests for input, with the rules that match the message behind each. What is dropped counts as unknown.
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
    /// Adds a task or request; if its key is known already, later messages may refer to either.
    pub(super) fn remember(&mut self, known: ReferenceKey, matching: MatchingRules) {
        match self.known.get_mut(&known) {
            Some(before) => *before = before.or(matching),
            None => {
                self.known.insert(known, matching);
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
