//! Groups of words that people use for the same thing when they describe tasks.
//!
//! Made by hand, common words only: a word in many groups would mean everything.

use std::collections::HashMap;

use super::words::WordReader;

const GROUPS: &[&str] = &[
    // What is done.
    "read show open view display print get fetch retrieve load see look know contain",
    "delete remove rm erase destroy trash unlink discard drop wipe",
    "list ls enumerate show display overview which",
    "search find grep lookup locate query look seek where",
    "create make new add generate open set start insert put begin schedule plan jot",
    "write save store put overwrite dump record append",
    "send post deliver share message dm tell write notify shoot",
    "run execute exec launch start invoke call trigger",
    "edit update change modify patch alter replace set adjust fix correct",
    "move rename mv relocate transfer shift reschedule postpone",
    "copy cp duplicate clone",
    "stop kill terminate halt end shutdown quit",
    "cancel abort delete revoke",
    "close finish resolve complete done",
    "compare diff difference changed changes",
    "download fetch get retrieve pull",
    "upload push put send",
    "undo revert restore discard reset rollback",
    "count number total statistics",
    "reply answer respond",
    "assign delegate assignee",
    "remember memorize store save note",
    "forget delete remove",
    "invite attendee add participant",
    "click press tap push",
    "type fill enter input",
    "resize scale shrink enlarge smaller bigger thumbnail",
    "crop cut trim",
    "convert transform turn export",
    "combine merge join concatenate",
    "describe explain info information details detail metadata properties",
    "install setup deploy",
    "restart reboot bounce",
    "visit navigate go browse open",
    "subscribe watch follow monitor",
    "restrict permission access permissions allow grant",
    // What it is done to.
    "directory folder dir directories",
    "file document doc",
    "repository repo project",
    "picture image photo photograph pic png jpg jpeg",
    "message text note dm",
    "email mail message letter inbox mailbox",
    "meeting event appointment calendar",
    "issue ticket bug task story defect",
    "pr pull merge mr",
    "container docker",
    "pod kubernetes k8s kubectl cluster",
    "database db sql postgres",
    "schema column columns structure definition",
    "row rows record entry entries",
    "webpage page site website url web link",
    "comment remark reply feedback",
    "user person people member colleague account profile",
    "team group members",
    "log logs output journal",
    "commit revision checkin",
    "history log past previous",
    "screenshot capture snapshot screengrab",
    "weather forecast temperature rain umbrella sunny snow hot cold",
    "direction directions route navigate drive walk way path",
    "distance far kilometres miles",
    "place restaurant nearby location near cafe shop spot",
    "address coordinates geocode latitude longitude",
    "size big large bytes space",
    "channel room chat",
    "emoji reaction react thumbs",
    "free available availability busy slot",
    "process processes program job",
    "command shell bash terminal cmd script",
    "bucket storage s3 cloud",
    "object blob file",
    "key secret token credential password",
    "label tag category",
    "release version publish",
    "workflow pipeline ci build action actions",
    "branch branches",
    "contact addressbook phone",
    "sprint iteration",
    "priority urgent importance severity",
    "recent latest newest last",
    "air pollution quality smog",
    "tree hierarchy recursive structure",
    "javascript js script",
    "graph relation entity knowledge",
    "deployment workload service",
    "scale replicas replica instances",
    "draft unsent",
    "attachment attached",
    "signed presigned shareable share link",
];

/// The groups, by stem.
pub(super) struct Synonyms {
    of: HashMap<String, Vec<String>>,
}

impl Synonyms {
    pub(super) fn new(reader: &WordReader) -> Self {
        let mut of: HashMap<String, Vec<String>> = HashMap::new();
        for group in GROUPS {
            let mut stems: Vec<String> =
                group.split(' ').filter_map(|word| reader.term(word)).map(Into::into).collect();
            stems.sort_unstable();
            stems.dedup();
            for stem in &stems {
                let others = of.entry(stem.clone()).or_default();
                others.extend(stems.iter().filter(|other| *other != stem).cloned());
            }
        }
        for others in of.values_mut() {
            others.sort_unstable();
            others.dedup();
        }
        Self { of }
    }

    /// Returns the stems that may stand for this one.
    pub(super) fn of(&self, stem: &str) -> &[String] {
        self.of.get(stem).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_finds_its_synonyms_with_any_ending() {
        let reader = WordReader::new(true);
        let synonyms = Synonyms::new(&reader);
        let kin = |word: &str| synonyms.of(&reader.term(word).unwrap()).to_vec();
        assert!(kin("folders").contains(&"directori".to_owned()));
        assert!(kin("erasing").contains(&"delet".to_owned()));
        assert!(kin("flamingo").is_empty());
        assert!(!kin("delete").contains(&"delet".to_owned()), "a word is not its own synonym");
    }
}
