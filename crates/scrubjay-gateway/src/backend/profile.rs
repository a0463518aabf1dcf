//! What is known of a backend: the eras it speaks, its greetings, and its newest lists.
//!
//! Part of it is stored from run to run (`profile_store.rs`), so that the gateway can greet a client, and knows whose
//! tool a name is, before a server has started.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use scrubjay_core::envelope::Era;
use scrubjay_core::redact::cut;
use scrubjay_tape::clock;
use serde_json::{Value, json};
use thiserror::Error;

use super::list::{BackendList, ListDigest, ListItem, ListKind};
use crate::budget::{Account, MemoryUse};
use crate::profile_store::ProfileStore;
use crate::session::lock;

/// What a backend says of itself in one era.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Its capabilities, as JSON.
    pub(crate) capabilities: String,
    /// Its instructions to clients, if it has any.
    pub(crate) instructions: Option<String>,
    /// Whether it was stored by an earlier run, and so is redacted.
    pub(crate) is_copy: bool,
}

/// How many bytes of capabilities a backend may declare; one that declares more is not used, since JSON cannot be cut.
const CAPABILITIES_BYTES_MAX: usize = 64 * 1024;
/// How many bytes of instructions are passed on; the rest is cut.
pub(super) const INSTRUCTIONS_BYTES_MAX: usize = 64 * 1024;
/// How many of those bytes are reserved for the note that the rest was cut.
const CUT_BYTES: usize = 80;

/// A backend declares more capabilities than are kept.
#[derive(Debug, Error)]
#[error("its capabilities have {bytes} bytes, and may have {CAPABILITIES_BYTES_MAX}")]
pub(crate) struct CapabilitiesTooLong {
    bytes: usize,
}

impl Greeting {
    /// Takes a backend's capabilities and instructions, cutting the latter to what may be kept.
    pub(super) fn new(
        capabilities: String,
        instructions: Option<String>,
    ) -> Result<Self, CapabilitiesTooLong> {
        let bytes = capabilities.len();
        if bytes > CAPABILITIES_BYTES_MAX {
            return Err(CapabilitiesTooLong { bytes });
        }
        Ok(Self { capabilities, instructions: instructions.map(Self::shortened), is_copy: false })
    }

    fn shortened(text: String) -> String {
        if text.len() <= INSTRUCTIONS_BYTES_MAX {
            return text;
        }
        let end = text.floor_char_boundary(INSTRUCTIONS_BYTES_MAX - CUT_BYTES);
        // Cut between words if there are any: the redactor does not recognise half a secret.
        let beginning = cut(&text, text[..end].chars().count());
        format!("{beginning} [cut by scrubjay: {} bytes of {}]", beginning.len(), text.len())
    }
}

/// What is known of one backend.
pub(crate) struct BackendProfile {
    facts: Mutex<ProfileData>,
    memory: OnceLock<(Arc<ProfileStore>, String)>,
    /// Where the memory of its lists is charged.
    account: Arc<Account>,
    /// The lists that are in use anywhere, so that equal ones are kept once: every client may have its own connection.
    /// Copies from earlier runs have entries of their own.
    shared: Mutex<HashMap<(ListKind, bool, ListDigest), Weak<BackendList>>>,
}

#[derive(Clone, Default)]
struct ProfileData {
    /// Whether it speaks each era, by `Era as usize`.
    speaks: [Option<bool>; 2],
    greetings: [Option<Greeting>; 2],
    lists: HashMap<(bool, ListKind), Arc<BackendList>>,
    /// Whether a client waited in vain for its greeting or a list.
    was_slow: bool,
}

impl BackendProfile {
    /// Makes an empty one; its lists are charged to this account.
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self { facts: Mutex::default(), memory: OnceLock::new(), account, shared: Mutex::default() }
    }

    /// Loads what an earlier run stored, and stores what this one learns.
    pub(super) fn remember_in(&self, memory: Arc<ProfileStore>, name: String) {
        if let Some(remembered) = memory.load(&name) {
            *lock(&self.facts) = ProfileData::read(&remembered, |kind, offer| self.share(kind, offer));
        }
        // Fails only if it was set before, and then to the same store.
        let _ = self.memory.set((memory, name));
    }

    pub(crate) fn speaks(&self, era: Era) -> Option<bool> {
        lock(&self.facts).speaks[era as usize]
    }

    pub(super) fn learn_era(&self, era: Era, speaks: bool) {
        lock(&self.facts).speaks[era as usize] = Some(speaks);
    }

    /// Forgets which eras it speaks: a server that starts differently may be another version.
    pub(super) fn forget_eras(&self) {
        lock(&self.facts).speaks = Default::default();
    }

    /// Forgets its greetings and lists: after a change of rules, parts of them may be hidden.
    pub(crate) fn forget_offers(&self) {
        let mut facts = lock(&self.facts);
        facts.greetings = Default::default();
        facts.lists.clear();
    }

    /// Returns its greeting in this era or, if that is not known, in the other.
    pub(crate) fn greeting(&self, era: Era) -> Option<(Era, Greeting)> {
        let facts = lock(&self.facts);
        let other = if era == Era::Modern { Era::Legacy } else { Era::Modern };
        let known = |era: Era| facts.greetings[era as usize].clone().map(|greeting| (era, greeting));
        known(era).or_else(|| known(other))
    }

    pub(super) fn learn_greeting(&self, era: Era, greeting: Greeting) {
        let mut facts = lock(&self.facts);
        facts.was_slow = false;
        // A copy of the same greeting counts as the same: the file has it already.
        let is_same = |before: &Greeting| Greeting { is_copy: false, ..before.clone() } == greeting;
        let is_news = !facts.greetings[era as usize].as_ref().is_some_and(is_same);
        facts.greetings[era as usize] = Some(greeting);
        // `save` locks it again.
        drop(facts);
        if is_news {
            self.save();
        }
    }

    /// Returns the newest list of definitions that any client got.
    pub(crate) fn list(&self, era: Era, kind: ListKind) -> Option<Arc<BackendList>> {
        lock(&self.facts).lists.get(&(era == Era::Modern, kind)).cloned()
    }

    /// Returns whether a list of this kind is known, in either era.
    pub(crate) fn has_list(&self, kind: ListKind) -> bool {
        lock(&self.facts).lists.keys().any(|(_, known)| *known == kind)
    }

    /// Returns an equal list that is in use, or else this one with its memory charged. If there is no room for it, it
    /// is returned anyway, and `may_be_kept` returns false.
    pub(crate) fn share(&self, kind: ListKind, offer: BackendList) -> Arc<BackendList> {
        let offer = offer.whole();
        let mut shared = lock(&self.shared);
        let key = (kind, offer.is_copy(), offer.digest());
        if let Some(same) = shared.get(&key).and_then(Weak::upgrade) {
            return same;
        }
        let charge = self.account.charge(MemoryUse::BackendList, offer.bytes()).ok();
        let offer = Arc::new(offer.with_charge(charge));
        // Entries of lists that are not in use any more are removed where the map grows.
        shared.retain(|_, offer| offer.strong_count() > 0);
        shared.insert(key, Arc::downgrade(&offer));
        offer
    }

    /// Notes a list of definitions.
    pub(crate) fn learn_list(&self, era: Era, kind: ListKind, offer: &Arc<BackendList>) {
        let mut facts = lock(&self.facts);
        facts.was_slow = false;
        if !kind.is_definition() || !offer.may_be_kept() {
            return;
        }
        let known = facts.lists.entry((era == Era::Modern, kind)).or_default();
        if known == offer {
            return;
        }
        *known = offer.clone();
        drop(facts);
        self.save();
    }

    /// Notes that a client waited in vain: the next one does not wait as long.
    pub(crate) fn note_slow(&self) {
        let before = std::mem::replace(&mut lock(&self.facts).was_slow, true);
        if !before {
            self.save();
        }
    }

    /// Returns whether the last client that waited for it waited in vain.
    pub(crate) fn was_slow(&self) -> bool {
        lock(&self.facts).was_slow
    }

    fn save(&self) {
        if let Some((memory, name)) = self.memory.get() {
            memory.save(name, &lock(&self.facts).write());
        }
    }
}

/// For how long the eras of an earlier run count: after a week the server may have been updated, and is asked again.
const ERAS_FOR_S: u64 = 7 * 24 * 3600;
const ERAS: [(Era, &str); 2] = [(Era::Legacy, "legacy"), (Era::Modern, "modern")];
const KINDS: [ListKind; 2] = [ListKind::Tools, ListKind::Prompts];

impl ProfileData {
    fn write(&self) -> Value {
        let at_s = clock::now().wall_ns / 1_000_000_000;
        let mut all = json!({ "version": 1, "at": at_s, "keptWaiting": self.was_slow });
        for (era, word) in ERAS {
            let mut facts = json!({ "speaks": self.speaks[era as usize] });
            if let Some(greeting) = &self.greetings[era as usize] {
                facts["capabilities"] = serde_json::from_str(&greeting.capabilities).unwrap_or_default();
                facts["instructions"] = json!(greeting.instructions);
            }
            for kind in KINDS {
                if let Some(offer) = self.lists.get(&(era == Era::Modern, kind)) {
                    let items = offer.items.iter().filter_map(|item| serde_json::from_str(&item.raw).ok());
                    facts[kind.member()] = Value::Array(items.collect());
                }
            }
            all[word] = facts;
        }
        all
    }

    /// Reads what `write` made; anything else in the file is ignored, and so are lists that there is no room for.
    fn read(all: &Value, share: impl Fn(ListKind, BackendList) -> Arc<BackendList>) -> Self {
        let mut facts =
            Self { was_slow: all["keptWaiting"].as_bool().unwrap_or_default(), ..Self::default() };
        let age_s =
            (clock::now().wall_ns / 1_000_000_000).saturating_sub(all["at"].as_u64().unwrap_or_default());
        for (era, word) in ERAS {
            let stored = &all[word];
            facts.speaks[era as usize] = stored["speaks"].as_bool().filter(|_| age_s < ERAS_FOR_S);
            if stored["capabilities"].is_object() {
                let capabilities = stored["capabilities"].to_string();
                let instructions = stored["instructions"].as_str().map(str::to_owned);
                let greeting = Greeting::new(capabilities, instructions).ok();
                facts.greetings[era as usize] =
                    greeting.map(|greeting| Greeting { is_copy: true, ..greeting });
            }
            for kind in KINDS {
                let Some(items) = stored[kind.member()].as_array() else { continue };
                let item = |raw: &Value| {
                    Some(ListItem { name: raw[kind.key()].as_str()?.to_owned(), raw: raw.to_string() })
                };
                let offer = share(kind, BackendList::copied(items.iter().filter_map(item).collect()));
                if offer.may_be_kept() {
                    facts.lists.insert((era == Era::Modern, kind), offer);
                }
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, MemoryLimits};

    fn offer(text: &str) -> BackendList {
        BackendList::of(vec![ListItem { name: "echo".to_owned(), raw: text.to_owned() }])
    }

    #[test]
    fn equal_lists_are_kept_once_and_what_has_no_room_is_not() {
        const MIB: usize = 1 << 20;
        let budget = Budget::new(MemoryLimits { process_bytes_max: 16 * MIB, session_bytes_max: 4 * MIB });
        let known = BackendProfile::new(budget.backend());
        let long = |n: usize| format!("{n}{}", "x".repeat(MIB));
        let one = known.share(ListKind::Tools, offer(&long(1)));
        assert!(Arc::ptr_eq(&one, &known.share(ListKind::Tools, offer(&long(1)))));
        let others: Vec<_> = (2..9).map(|n| known.share(ListKind::Tools, offer(&long(n)))).collect();
        let kept = others.iter().filter(|offer| offer.may_be_kept()).count();
        assert!(kept == 0, "a backend has an eighth: {kept}");
        known.learn_list(Era::Legacy, ListKind::Tools, &others[0]);
        assert_eq!(known.list(Era::Legacy, ListKind::Tools), None);
        known.learn_list(Era::Legacy, ListKind::Tools, &one);
        drop((one, others));
        assert!(budget.used() > MIB, "the newest that fits stays");
        known.forget_offers();
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_backend_may_say_only_so_much_of_itself() {
        let long = |c: &str| c.repeat(INSTRUCTIONS_BYTES_MAX);
        let refused = Greeting::new(long("x"), None).and(Greeting::new(long("xx"), None));
        assert!(refused.expect_err("too long").to_string().contains("may have 65536"));
        for text in [long("x") + "y", long("ä"), long("word ")] {
            let cut = Greeting::new(String::new(), Some(text.clone())).expect("it is cut");
            let cut = cut.instructions.expect("it has some");
            assert!(cut.len() <= INSTRUCTIONS_BYTES_MAX && cut.ends_with(&format!("of {}]", text.len())));
            let again = Greeting::new(String::new(), Some(cut.clone())).expect("it is short");
            assert_eq!(again.instructions, Some(cut), "read again it is the same");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut facts =
            ProfileData { speaks: [Some(true), Some(false)], was_slow: true, ..ProfileData::default() };
        facts.greetings[Era::Legacy as usize] = Some(Greeting {
            capabilities: r#"{"tools":{}}"#.to_owned(),
            instructions: Some("be kind".to_owned()),
            is_copy: true,
        });
        let item = ListItem { name: "echo".to_owned(), raw: r#"{"name":"echo"}"#.to_owned() };
        facts.lists.insert((false, ListKind::Tools), Arc::new(BackendList::of(vec![item])));
        let share = |_, offer| {
            BackendProfile::new(Budget::new(MemoryLimits::default()).backend()).share(ListKind::Tools, offer)
        };
        let read = ProfileData::read(&facts.write(), share);
        assert_eq!(read.speaks, facts.speaks);
        assert_eq!(read.greetings, facts.greetings);
        assert_eq!(read.lists, facts.lists);
        assert!(read.was_slow);
        // A damaged file is read as an empty one.
        for odd in [json!(null), json!([1]), json!({ "legacy": 3, "modern": { "tools": [1, {}] } })] {
            assert_eq!(ProfileData::read(&odd, share).speaks, [None, None]);
        }
    }
}
