//! The tools of all backends, with an index to search them.

use std::sync::{PoisonError, RwLock};

use scrubjay_core::retrieval::{RetrievalSettings, Shortlist, ToolIndex, ToolText, WordMatch};
use serde::Serialize;
use serde_json::Value;

use crate::{Lesson, RouteTask};

/// A tool of a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// The id of its backend.
    pub backend: String,
    /// The name that clients call it by.
    pub listed_as: String,
    /// Its definition, as the server lists it.
    pub definition: Value,
}

impl Tool {
    /// Returns its name at its backend.
    #[must_use]
    pub fn name(&self) -> &str {
        self.definition["name"].as_str().unwrap_or_default()
    }

    /// Returns the schema of its arguments.
    pub(crate) fn schema(&self) -> &Value {
        &self.definition["inputSchema"]
    }

    pub(crate) fn description(&self) -> &str {
        self.definition["description"].as_str().unwrap_or_default()
    }

    /// Returns its required arguments.
    fn needs(&self) -> Vec<String> {
        let required = self.schema()["required"].as_array().into_iter().flatten();
        required.filter_map(Value::as_str).map(str::to_owned).collect()
    }
}

/// A tool that a task may mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The name that clients call it by.
    pub name: String,
    /// The id of its backend.
    pub backend: String,
    /// Its name there.
    pub tool: String,
    /// How well it matches; comparable within one search.
    pub score: f32,
    /// Which words match where.
    pub why: Vec<WordMatch>,
    /// Its required arguments.
    pub needs: Vec<String>,
}

/// The tools of all backends.
pub struct Catalog {
    backends: Vec<String>,
    tools: Vec<Tool>,
    /// Behind a lock, because it learns while others search.
    index: RwLock<ToolIndex>,
}

impl Catalog {
    /// Makes a catalog. `backends` are those that [`ToolPresentation::Backends`](crate::ToolPresentation::Backends)
    /// offers, with or without tools.
    #[must_use]
    pub fn new(backends: Vec<String>, tools: Vec<Tool>) -> Self {
        let texts: Vec<ToolText> =
            tools.iter().map(|tool| ToolText::from_definition(&tool.backend, &tool.definition)).collect();
        Self { backends, tools, index: RwLock::new(ToolIndex::new(&texts, RetrievalSettings::full())) }
    }

    /// Adds the words of a task to the tool that it meant; does nothing if the catalog does not have the tool.
    pub(crate) fn learn(&self, lesson: &Lesson) {
        let is_meant = |tool: &Tool| tool.backend == lesson.backend && tool.name() == lesson.tool;
        if let Some(meant) = self.tools.iter().position(is_meant) {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.learn(&lesson.query, meant, lesson.conversation);
        }
    }

    /// Tells whether it was made of these backends and tools.
    #[must_use]
    pub fn is_of(&self, backends: &[String], tools: &[Tool]) -> bool {
        self.backends == backends && self.tools == tools
    }

    /// Returns the backends with their tools.
    pub(crate) fn by_backend(&self) -> impl Iterator<Item = (&str, Vec<&Tool>)> {
        let tools_of = |id: &str| self.tools.iter().filter(|tool| tool.backend == id).collect();
        self.backends.iter().map(move |id| (id.as_str(), tools_of(id)))
    }

    /// Returns a backend's tool.
    #[must_use]
    pub fn tool(&self, backend: &str, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.backend == backend && tool.name() == name)
    }

    /// Returns the tools that match a task best, best first, and how likely the right one is among them.
    #[must_use]
    pub fn find(&self, query: &str, limit: usize) -> (Vec<Candidate>, f32) {
        let shortlist = self.search_text(query, limit);
        let confidence = shortlist.confidence;
        (self.candidates(shortlist), confidence)
    }

    pub(crate) fn search(&self, task: &RouteTask, limit: usize) -> Shortlist {
        match &task.clarification {
            // The user's answer may hold the word that names the tool.
            Some((_, answer)) => self.search_text(&format!("{} {answer}", task.query), limit),
            None => self.search_text(&task.query, limit),
        }
    }

    fn search_text(&self, text: &str, limit: usize) -> Shortlist {
        self.index.read().unwrap_or_else(PoisonError::into_inner).search(text, limit)
    }

    pub(crate) fn chosen(&self, shortlist: &Shortlist) -> Vec<&Tool> {
        shortlist.hits.iter().map(|hit| &self.tools[hit.tool]).collect()
    }

    pub(crate) fn candidates(&self, shortlist: Shortlist) -> Vec<Candidate> {
        let candidate = |hit: scrubjay_core::retrieval::ToolHit| {
            let tool = &self.tools[hit.tool];
            Candidate {
                name: tool.listed_as.clone(),
                backend: tool.backend.clone(),
                tool: tool.name().to_owned(),
                score: hit.score,
                why: hit.why,
                needs: tool.needs(),
            }
        };
        shortlist.hits.into_iter().map(candidate).collect()
    }
}
