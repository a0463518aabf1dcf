//! Hashes of the facts in a tape's header and footer, for checkpoints.
//!
//! The digest of the entries leaves most of these facts out, because it must stay the same when a tape is sealed,
//! exported and imported. So a checkpoint notes them separately. They are hashed as they are written, not as this
//! version parses them, so that a version that knows more facts gets the same hashes.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::header;
use super::reader::Tape;
use super::sealed;

/// The fact that a tape was imported. It is hashed separately, because an import changes this fact and no other.
pub(crate) const IMPORTED: &str = "imported";
/// Left out: the positions of the blocks follow from the file, and `verify` checks them.
const BLOCKS: &str = "blocks";

/// A hash over all facts, and a short hash of each that tells which one differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedFacts {
    /// The hash of all of them, in hex.
    pub digest: String,
    /// For each fact the first eight characters of its hash: enough to name a changed fact, not to prove anything.
    pub marks: BTreeMap<String, String>,
}

impl NotedFacts {
    fn new(facts: Map<String, Value>) -> Self {
        // Sorted by name, because the order in the file does not matter; without empty facts, because versions differ
        // in whether they write those.
        let facts: BTreeMap<String, Value> =
            facts.into_iter().filter(|(_, value)| !is_empty(value)).collect();
        let hash = |text: &[u8]| blake3::hash(text).to_hex();
        let digest = hash(&serde_json::to_vec(&facts).expect("facts are plain data")).to_string();
        let marks = facts.into_iter().map(|(name, value)| {
            let mark = hash(format!("{name} {value}").as_bytes())[..8].to_owned();
            (name, mark)
        });
        Self { digest, marks: marks.collect() }
    }

    /// Returns the names of the facts that differ; `None` if all are the same.
    pub(crate) fn differing(&self, others: Option<&Self>) -> Option<Vec<String>> {
        if others.is_some_and(|others| others.digest == self.digest) {
            return None;
        }
        let nothing = BTreeMap::new();
        let theirs = others.map_or(&nothing, |others| &others.marks);
        let mut names: Vec<String> = self.marks.keys().chain(theirs.keys()).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| self.marks.get(name) != theirs.get(name));
        Some(names)
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

impl Tape {
    /// Returns the hashes of its header's facts; none if it is damaged.
    pub(crate) fn header_facts(&self) -> io::Result<Option<NotedFacts>> {
        let Some(length) = self.header().and_then(|_| usize::try_from(self.body()).ok()) else {
            return Ok(None);
        };
        let mut bytes = vec![0; length];
        sealed::read_at_most(self.file(), &mut bytes, 0)?;
        let Some(mut facts) = header::facts(&bytes).and_then(object) else { return Ok(None) };
        let imported = facts.get_mut("links").and_then(|links| links.as_object_mut()?.remove(IMPORTED));
        facts.extend(imported.map(|imported| (IMPORTED.to_owned(), imported)));
        Ok(Some(NotedFacts::new(facts)))
    }

    /// Returns the hashes of its footer's facts; none if it has no footer.
    pub(crate) fn footer_facts(&self) -> io::Result<Option<NotedFacts>> {
        if self.footer().is_none() {
            return Ok(None);
        }
        let Some((text, _)) = sealed::read_footer_text(self.file())? else { return Ok(None) };
        let Some(mut facts) = object(&text) else { return Ok(None) };
        facts.remove(BLOCKS);
        Ok(Some(NotedFacts::new(facts)))
    }
}

fn object(text: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(text).ok()
}
