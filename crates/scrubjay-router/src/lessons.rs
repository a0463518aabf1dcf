//! Tasks with the tools that they meant: kept while the gateway runs, and added to every catalog that it makes.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::Catalog;

/// How many lessons are kept; the oldest are dropped first.
const LESSONS_MAX: usize = 2000;
/// Nothing is learned from a longer task.
const QUERY_CHARS_MAX: usize = 500;

/// A task that meant a tool: the call was made and succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lesson {
    /// The task.
    pub query: String,
    /// The id of the tool's backend.
    pub backend: String,
    /// The tool.
    pub tool: String,
    /// A hash of the conversation's id: words count more if several conversations used them.
    pub conversation: u64,
}

impl Lesson {
    /// Makes a lesson of a call in a conversation.
    #[must_use]
    pub fn new(query: &str, backend: &str, tool: &str, conversation: &str) -> Self {
        // Compared only within this process, so any hash will do.
        let mut hasher = DefaultHasher::new();
        conversation.hash(&mut hasher);
        Self {
            query: query.to_owned(),
            backend: backend.to_owned(),
            tool: tool.to_owned(),
            conversation: hasher.finish(),
        }
    }
}

/// All lessons.
#[derive(Debug, Default)]
pub struct Lessons(VecDeque<Lesson>);

impl Lessons {
    /// Adds a lesson; returns whether it was new and short enough.
    pub fn add(&mut self, lesson: Lesson) -> bool {
        if lesson.query.chars().nth(QUERY_CHARS_MAX).is_some() || self.0.contains(&lesson) {
            return false;
        }
        if self.0.len() >= LESSONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(lesson);
        true
    }

    /// Teaches a catalog all lessons; one that it knows already changes nothing.
    pub fn teach(&self, catalog: &Catalog) {
        self.0.iter().for_each(|lesson| catalog.learn(lesson));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Tool;

    fn catalog() -> Catalog {
        let tool = |name: &str| Tool {
            backend: "files".to_owned(),
            listed_as: name.to_owned(),
            definition: json!({ "name": name, "description": "Works on a file." }),
        };
        Catalog::new(vec!["files".to_owned()], vec![tool("read_file"), tool("delete_file")])
    }

    #[test]
    fn a_task_is_found_after_its_lesson() {
        let catalog = catalog();
        let mut lessons = Lessons::default();
        assert!(lessons.add(Lesson::new("nuke it", "files", "delete_file", "s")));
        assert!(!lessons.add(Lesson::new("nuke it", "files", "delete_file", "s")), "it is known");
        assert!(lessons.add(Lesson::new("nuke it", "elsewhere", "gone", "s")));
        assert_eq!(catalog.find("nuke that", 5).0, []);
        lessons.teach(&catalog);
        lessons.teach(&catalog);
        let (found, confidence) = catalog.find("nuke that", 5);
        assert_eq!((found.len(), found[0].tool.as_str(), confidence), (1, "delete_file", 0.0));
    }

    #[test]
    fn the_number_of_lessons_is_limited() {
        let mut lessons = Lessons::default();
        assert!(!lessons.add(Lesson::new(&"x".repeat(QUERY_CHARS_MAX + 1), "b", "t", "s")));
        for i in 0..2 * LESSONS_MAX {
            lessons.add(Lesson::new(&format!("q{i}"), "b", "t", "s"));
        }
        assert_eq!((lessons.0.len(), lessons.0[0].query.as_str()), (LESSONS_MAX, "q2000"));
    }
}
