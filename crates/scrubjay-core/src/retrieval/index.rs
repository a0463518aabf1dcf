//! The inverted index of the catalog: for each term the tools that have it, in which fields and with what weight.

use std::collections::HashMap;

use super::confidence::confidence;
use super::learned::LearnedWords;
use super::query::{self, TermGroup};
use super::score::Scored;
use super::similar_terms::SimilarTerms;
use super::synonyms::Synonyms;
use super::words::WordReader;
use super::{RetrievalSettings, Shortlist, ToolField, ToolHit, ToolText, WordMatch};

/// A term in a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    pub(super) tool: u32,
    /// How often it occurs, weighted by field and length.
    pub(super) weight: f32,
    fields: u8,
}

/// A catalog that can be searched.
pub struct ToolIndex {
    pub(super) settings: RetrievalSettings,
    pub(super) reader: WordReader,
    pub(super) synonyms: Synonyms,
    pub(super) near: SimilarTerms,
    ids: HashMap<String, u32>,
    terms: Vec<String>,
    pub(super) postings: Vec<Vec<Posting>>,
    pub(super) tools: usize,
    pub(super) asked: LearnedWords,
}

impl ToolIndex {
    /// Reads a catalog.
    #[must_use]
    pub fn new(tools: &[ToolText], settings: RetrievalSettings) -> Self {
        let reader = WordReader::new(settings.stems);
        let mut index = Self {
            settings,
            synonyms: Synonyms::new(&reader),
            reader,
            near: SimilarTerms::default(),
            ids: HashMap::new(),
            terms: Vec::new(),
            postings: Vec::new(),
            tools: tools.len(),
            asked: LearnedWords::default(),
        };
        let read: Vec<_> = tools.iter().map(|tool| index.read(tool)).collect();
        let lengths = mean_lengths(&read);
        for (tool, fields) in (0..).zip(&read) {
            for (field, terms) in ToolField::ALL.into_iter().zip(fields) {
                index.post(tool, field, terms, &lengths, fields);
            }
        }
        index
    }

    /// Cuts a tool into the terms of its fields.
    fn read(&mut self, tool: &ToolText) -> [Vec<u32>; 8] {
        let mut fields: [Vec<u32>; 8] = Default::default();
        for (field, terms) in ToolField::ALL.into_iter().zip(&mut fields) {
            if self.settings.weights[field as usize] == 0.0 {
                continue;
            }
            for text in tool.texts(field) {
                let mut words = Vec::new();
                self.reader.terms(text, |term| words.push(term.to_owned()));
                terms.extend(words.iter().map(|term| self.id_or_new(term)));
            }
        }
        fields
    }

    fn post(&mut self, tool: u32, field: ToolField, terms: &[u32], means: &[f32; 8], all: &[Vec<u32>; 8]) {
        let RetrievalSettings { weights, length, joined, .. } = self.settings;
        let relative = if joined {
            all.iter().map(Vec::len).sum::<usize>() as f32 / means.iter().sum::<f32>().max(1.0)
        } else {
            terms.len() as f32 / means[field as usize].max(1.0)
        };
        // As in BM25F: each field is normalised by its own length before fields are added up.
        let weight = weights[field as usize] / (1.0 - length + length * relative);
        for term in terms {
            self.add(*term, Posting { tool, weight, fields: field.bit() });
        }
    }

    /// Adds to a term's postings, which are in the order of the tools.
    fn add(&mut self, term: u32, posting: Posting) {
        let postings = &mut self.postings[term as usize];
        // While a catalog is read, the tool is always the last one: no search is needed.
        let at = match postings.last() {
            Some(last) if last.tool == posting.tool => Ok(postings.len() - 1),
            Some(last) if last.tool < posting.tool => Err(postings.len()),
            _ => postings.binary_search_by_key(&posting.tool, |p| p.tool),
        };
        match at {
            Ok(at) => {
                postings[at].weight += posting.weight;
                postings[at].fields |= posting.fields;
            }
            Err(at) => postings.insert(at, posting),
        }
    }

    fn id_or_new(&mut self, term: &str) -> u32 {
        if let Some(id) = self.ids.get(term) {
            return *id;
        }
        let id = u32::try_from(self.terms.len()).expect("a catalog has fewer than 2^32 words");
        self.ids.insert(term.to_owned(), id);
        self.terms.push(term.to_owned());
        self.postings.push(Vec::new());
        self.near.add(term, id);
        id
    }

    /// Returns the id of a term, if a tool has it.
    pub(super) fn id(&self, term: &str) -> Option<u32> {
        self.ids.get(term).copied()
    }

    pub(super) fn term(&self, id: u32) -> &str {
        &self.terms[id as usize]
    }

    /// Returns a term's inverse document frequency: the fewer tools have it, the more it tells.
    pub(super) fn idf(&self, id: u32) -> f32 {
        self.idf_of(self.postings[id as usize].len() as f32)
    }

    /// Returns the inverse document frequency of a term that this many tools have.
    pub(super) fn idf_of(&self, tools: f32) -> f32 {
        let all = self.tools as f32;
        (1.0 + (all - tools + 0.5) / (tools + 0.5)).ln()
    }

    /// Remembers that a conversation used a tool for a task: the task's words find that tool from now on.
    ///
    /// Words of several conversations count more, up to a limit. One conversation teaches a word only once.
    pub fn learn(&mut self, task: &str, tool: usize, conversation: u64) {
        if tool >= self.tools || self.settings.weights[ToolField::AskedAs as usize] == 0.0 {
            return;
        }
        let tool = u32::try_from(tool).expect("a catalog has fewer than 2^32 tools");
        // Words of its own definition find the tool anyway.
        let has = |term: &str| {
            self.id(term).is_some_and(|id| {
                self.postings[id as usize].binary_search_by_key(&tool, |posting| posting.tool).is_ok()
            })
        };
        let said = query::groups(self, task).into_iter().filter(|group| group.is_said && !has(&group.term));
        for term in said.map(|group| group.term).collect::<Vec<_>>() {
            self.asked.learn(&term, tool, conversation);
        }
    }

    /// Returns the tools that match a task best. The same task finds the same tools in the same order.
    #[must_use]
    pub fn search(&self, task: &str, limit: usize) -> Shortlist {
        let groups = query::groups(self, task);
        let Scored { scores, signs } = self.score_with_learned(&groups);
        let mut order: Vec<usize> = (0..scores.len()).filter(|tool| scores[*tool] > 0.0).collect();
        // Equal scores keep the order of the catalog, so that a task always has the same answer.
        order.sort_unstable_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        order.truncate(limit);
        let hit = |tool| ToolHit { tool, score: scores[tool], why: self.why(&groups, tool) };
        Shortlist { hits: order.into_iter().map(hit).collect(), confidence: confidence(&signs), signs }
    }

    fn why(&self, groups: &[TermGroup<'_>], tool: usize) -> Vec<WordMatch> {
        let found = |group: &TermGroup<'_>| {
            let here = group.variants.iter().filter_map(|(term, likeness)| {
                let postings = &self.postings[*term as usize];
                let at = postings.binary_search_by_key(&tool, |p| p.tool as usize).ok()?;
                let score = self.idf(*term) * likeness * postings[at].weight;
                Some((*term, score, postings[at].fields))
            });
            let found = here.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
            let (found, fields) = match found {
                Some((term, _, fields)) => (self.term(term), fields),
                None => {
                    self.asked.of(&group.term, 1).find(|(asked, _)| *asked == tool)?;
                    (group.term.as_str(), ToolField::AskedAs.bit())
                }
            };
            Some(WordMatch {
                word: group.typed.to_owned(),
                found: found.to_owned(),
                fields: ToolField::ALL.into_iter().filter(|field| fields & field.bit() != 0).collect(),
            })
        };
        groups.iter().filter_map(found).collect()
    }
}

fn mean_lengths(tools: &[[Vec<u32>; 8]]) -> [f32; 8] {
    std::array::from_fn(|field| {
        let total: usize = tools.iter().map(|fields| fields[field].len()).sum();
        total as f32 / tools.len().max(1) as f32
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalog() -> Vec<ToolText> {
        let tool = |backend: &str, name: &str, description: &str| {
            let definition = json!({"name": name, "description": description, "inputSchema":
                {"properties": {"path": {"description": "where it lies"}}}});
            ToolText::from_definition(backend, &definition)
        };
        vec![
            tool("files", "read_file", "Returns the contents of a file."),
            tool("files", "deleteFile", "Deletes a file for good."),
            tool("files", "list_directory", "Names everything in a directory."),
            tool("web", "take_screenshot", "Captures the visible page as a picture."),
            tool("chat", "send_message", "Posts to a channel."),
            tool("chat", "delete_message", "Takes back what was posted."),
        ]
    }

    fn index() -> ToolIndex {
        ToolIndex::new(&catalog(), RetrievalSettings::full())
    }

    fn first(index: &ToolIndex, task: &str) -> Option<String> {
        let hits = index.search(task, 3).hits;
        hits.first().map(|hit| catalog()[hit.tool].full_name())
    }

    #[test]
    fn tasks_find_their_tools() {
        let index = index();
        let check = |task: &str, expected: &str| {
            assert_eq!(first(&index, task).as_deref(), Some(expected), "{task}");
        };
        check("read the file", "files/read_file");
        check("open this document", "files/read_file");
        check("remove a.txt, the file", "files/deleteFile");
        check("ls the folder", "files/list_directory");
        check("scrennshot please", "web/take_screenshot");
        check("tell the room we are late", "chat/send_message");
        check("delete my message", "chat/delete_message");
        assert_eq!(first(&index, "order a pizza"), None);
        assert_eq!(first(&index, ""), None);
    }

    #[test]
    fn hits_name_the_matching_words_and_fields() {
        let hits = index().search("erase the file", 1).hits;
        let delete = WordMatch {
            word: "erase".to_owned(),
            found: "delet".to_owned(),
            fields: vec![ToolField::Name, ToolField::Description],
        };
        assert_eq!(hits[0].why[0], delete);
        assert_eq!(hits[0].why[1].found, "file");
        assert!(hits[0].why[1].fields.contains(&ToolField::Backend), "files is one of its words");
    }

    #[test]
    fn a_tool_is_found_by_learned_words() {
        let mut index = index();
        assert_eq!(first(&index, "nuke it"), None);
        index.learn("nuke it", 1, 0);
        assert_eq!(first(&index, "nuke that").as_deref(), Some("files/deleteFile"));
        assert_eq!(index.search("nuke", 1).hits[0].why[0].fields, [ToolField::AskedAs]);
        index.learn("nuke", 99, 0);
        // Words of more conversations count more, up to a limit, and repetitions in one conversation count once.
        let score = |index: &ToolIndex| index.search("nuke", 1).hits[0].score;
        let once = score(&index);
        (0..20).for_each(|_| index.learn("nuke", 1, 0));
        assert_eq!(score(&index), once);
        (0..20).for_each(|by| index.learn("nuke", 1, by));
        let often = score(&index);
        (20..40).for_each(|by| index.learn("nuke", 1, by));
        assert!(once < often && often == score(&index), "{once} {often}");
    }

    #[test]
    fn only_words_of_several_conversations_raise_the_confidence() {
        let mut index = index();
        for by in 0..3 {
            assert_eq!(index.search("nuke it", 5).confidence, 0.0, "after {by}");
            index.learn("nuke it", 1, by);
        }
        assert!(index.search("nuke it", 5).acts());
    }

    #[test]
    fn learned_words_do_not_change_a_clear_answer() {
        let mut index = index();
        let clear = "read the file";
        let before = index.search(clear, 3);
        for by in 0..9 {
            index.learn("read the file", 4, by);
            index.learn("please read any file whatsoever", 5, by);
        }
        let after = index.search(clear, 3);
        assert_eq!((after.hits[0].tool, after.hits[0].score), (before.hits[0].tool, before.hits[0].score));
        assert!(after.confidence >= before.confidence);
        for hit in index.search(clear, 9).hits.iter().filter(|hit| hit.tool >= 4) {
            assert!(hit.score <= 0.2 * after.hits[0].score, "{hit:?}");
        }
    }

    #[test]
    fn values_are_not_learned() {
        let mut index = index();
        index.learn("/srv/qzzk.txt 4711 \"qzzw\"", 0, 0);
        assert_eq!(index.asked.words_of(0), 0);
    }

    #[test]
    fn a_tool_learns_a_limited_number_of_words() {
        let mut index = index();
        for i in 0..1000 {
            let word: String = format!("{i:03}").bytes().map(|b| char::from(b - b'0' + b'k')).collect();
            index.learn(&format!("qz{word}x"), 0, 0);
        }
        assert_eq!(index.asked.words_of(0), crate::retrieval::learned::WORDS_MAX);
    }

    #[test]
    fn the_order_is_always_the_same() {
        let task = "delete the message or the file, show the page";
        let expected = index().search(task, 10);
        assert!(expected.hits.len() > 3);
        for _ in 0..5 {
            assert_eq!(index().search(task, 10), expected);
        }
        let twins = vec![catalog()[0].clone(); 4];
        let order = ToolIndex::new(&twins, RetrievalSettings::full()).search("read", 9).hits;
        assert_eq!(order.iter().map(|hit| hit.tool).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn an_empty_catalog_has_no_hits() {
        let nothing = ToolIndex::new(&[], RetrievalSettings::full()).search("read", 5);
        assert!(nothing.hits.is_empty() && nothing.confidence == 0.0 && !nothing.acts());
    }

    #[test]
    fn a_task_that_no_tool_serves_is_not_acted_on() {
        let index = index();
        assert!(index.search("read the file", 5).acts());
        for task in ["order a pizza with extra cheese", "what is the meaning of life", "???"] {
            assert!(!index.search(task, 5).acts(), "{task}");
        }
    }
}
