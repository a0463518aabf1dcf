//! What is known of a backend: the eras it speaks, how it greets, and the lists it gave last.
//!
//! Part of it outlives the process (`memory.rs`), so that a client can be greeted, and a name be told from
//! another's, before a server has started.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use scrubjay_core::envelope::Era;
use scrubjay_store::clock;
use serde_json::{Value, json};

use super::offer::{Item, Kind, Offer};
use crate::memory::Memory;
use crate::session::lock;

/// How a backend greets in one era.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// What it offers, as JSON.
    pub(crate) capabilities: String,
    /// What it tells a client to do, where it does.
    pub(crate) instructions: Option<String>,
}

/// What is known of one backend.
#[derive(Default)]
pub(crate) struct Known {
    facts: Mutex<Facts>,
    memory: OnceLock<(Arc<Memory>, String)>,
}

#[derive(Clone, Default)]
struct Facts {
    /// Whether it speaks each era.
    speaks: [Option<bool>; 2],
    greetings: [Option<Greeting>; 2],
    lists: HashMap<(bool, Kind), Arc<Offer>>,
    /// Whether a client waited for its greeting or a list in vain.
    kept_waiting: bool,
}

impl Known {
    /// Takes up what an earlier run knew, and keeps what this one learns.
    pub(super) fn remember_in(&self, memory: Arc<Memory>, name: String) {
        if let Some(remembered) = memory.load(&name) {
            *lock(&self.facts) = Facts::read(&remembered);
        }
        // There is one memory, given once.
        let _ = self.memory.set((memory, name));
    }

    pub(crate) fn speaks(&self, era: Era) -> Option<bool> {
        lock(&self.facts).speaks[era as usize]
    }

    pub(super) fn learn_era(&self, era: Era, speaks: bool) {
        lock(&self.facts).speaks[era as usize] = Some(speaks);
    }

    /// Forgets which eras it speaks: it did not start as it did before, so it may have changed.
    pub(super) fn forget_eras(&self) {
        lock(&self.facts).speaks = Default::default();
    }

    /// Forgets what it offers: rules may hide some of it now.
    pub(crate) fn forget_offers(&self) {
        let mut facts = lock(&self.facts);
        facts.greetings = Default::default();
        facts.lists.clear();
    }

    /// Returns how it greets, in this era or, where that is not known, in the other.
    pub(crate) fn greeting(&self, era: Era) -> Option<(Era, Greeting)> {
        let facts = lock(&self.facts);
        let other = if era == Era::Modern { Era::Legacy } else { Era::Modern };
        let known = |era: Era| facts.greetings[era as usize].clone().map(|greeting| (era, greeting));
        known(era).or_else(|| known(other))
    }

    pub(super) fn learn_greeting(&self, era: Era, greeting: Greeting) {
        let mut facts = lock(&self.facts);
        facts.kept_waiting = false;
        let before = facts.greetings[era as usize].replace(greeting);
        let is_news = before != facts.greetings[era as usize];
        drop(facts);
        if is_news {
            self.save();
        }
    }

    /// Returns the newest list of definitions that any client was given.
    pub(crate) fn list(&self, era: Era, kind: Kind) -> Option<Arc<Offer>> {
        lock(&self.facts).lists.get(&(era == Era::Modern, kind)).cloned()
    }

    /// Returns whether a list of this kind is known, whichever era it was given in.
    pub(crate) fn has_list(&self, kind: Kind) -> bool {
        lock(&self.facts).lists.keys().any(|(_, known)| *known == kind)
    }

    /// Notes a list of definitions; returns the one that was known, where it is the same.
    pub(crate) fn learn_list(&self, era: Era, kind: Kind, offer: Arc<Offer>) -> Arc<Offer> {
        let mut facts = lock(&self.facts);
        facts.kept_waiting = false;
        if !kind.is_definition() {
            return offer;
        }
        let known = facts.lists.entry((era == Era::Modern, kind)).or_default();
        if *known == offer {
            return known.clone();
        }
        *known = offer.clone();
        drop(facts);
        self.save();
        offer
    }

    /// Notes that clients wait for it in vain: the next does not wait as long.
    pub(crate) fn keeps_waiting(&self) {
        let before = std::mem::replace(&mut lock(&self.facts).kept_waiting, true);
        if !before {
            self.save();
        }
    }

    /// Returns whether clients waited for it in vain, the last time they did.
    pub(crate) fn kept_waiting(&self) -> bool {
        lock(&self.facts).kept_waiting
    }

    fn save(&self) {
        if let Some((memory, name)) = self.memory.get() {
            memory.save(name, &lock(&self.facts).write());
        }
    }
}

/// A week: a server that was updated since may speak more eras, and is asked again.
const ERAS_FOR_S: u64 = 7 * 24 * 3600;
const ERAS: [(Era, &str); 2] = [(Era::Legacy, "legacy"), (Era::Modern, "modern")];
const KINDS: [Kind; 2] = [Kind::Tools, Kind::Prompts];

impl Facts {
    fn write(&self) -> Value {
        let at_s = clock::now().wall_ns / 1_000_000_000;
        let mut all = json!({ "version": 1, "at": at_s, "keptWaiting": self.kept_waiting });
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

    fn read(all: &Value) -> Self {
        let mut facts =
            Self { kept_waiting: all["keptWaiting"].as_bool().unwrap_or_default(), ..Self::default() };
        let age_s =
            (clock::now().wall_ns / 1_000_000_000).saturating_sub(all["at"].as_u64().unwrap_or_default());
        for (era, word) in ERAS {
            let said = &all[word];
            facts.speaks[era as usize] = said["speaks"].as_bool().filter(|_| age_s < ERAS_FOR_S);
            if said["capabilities"].is_object() {
                facts.greetings[era as usize] = Some(Greeting {
                    capabilities: said["capabilities"].to_string(),
                    instructions: said["instructions"].as_str().map(str::to_owned),
                });
            }
            for kind in KINDS {
                let Some(items) = said[kind.member()].as_array() else { continue };
                let item = |raw: &Value| {
                    Some(Item { name: raw[kind.key()].as_str()?.to_owned(), raw: raw.to_string() })
                };
                let offer = Offer { items: items.iter().filter_map(item).collect() };
                facts.lists.insert((era == Era::Modern, kind), Arc::new(offer));
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut facts = Facts { speaks: [Some(true), Some(false)], kept_waiting: true, ..Facts::default() };
        facts.greetings[Era::Legacy as usize] = Some(Greeting {
            capabilities: r#"{"tools":{}}"#.to_owned(),
            instructions: Some("be kind".to_owned()),
        });
        let item = Item { name: "echo".to_owned(), raw: r#"{"name":"echo"}"#.to_owned() };
        facts.lists.insert((false, Kind::Tools), Arc::new(Offer { items: vec![item] }));
        let read = Facts::read(&facts.write());
        assert_eq!(read.speaks, facts.speaks);
        assert_eq!(read.greetings, facts.greetings);
        assert_eq!(read.lists, facts.lists);
        assert!(read.kept_waiting);
        // A damaged file is read as an empty one.
        for odd in [json!(null), json!([1]), json!({ "legacy": 3, "modern": { "tools": [1, {}] } })] {
            assert_eq!(Facts::read(&odd).speaks, [None, None]);
        }
    }
}
