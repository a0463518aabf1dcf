//! Which backend owns a name or a URI.
//!
//! A name is looked up in the newest list that the client was given (`aggregate.rs`, `names.rs`). If it is not there,
//! all backends are asked for their lists. A URI may also belong to a backend by a template, or because only one
//! backend has resources at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use scrubjay_core::envelope::Era;
use scrubjay_core::protocol::code;
use thiserror::Error;

use super::Gateway;
use super::names::{NameTable, OwnedName};
use super::quarantine::HeldDefinition;
use crate::backend::Backend;
use crate::backend::list::ListKind;
use crate::session::{Call, Session, lock};

/// A backend, and its own name for what a client named.
pub(super) struct NameOwner {
    pub(super) backend: Arc<Backend>,
    /// The name without the prefix that it has for clients if two backends use it.
    pub(super) own_name: String,
}

/// Why a name leads to no backend. `word` is the kind of what was named: tool, prompt or resource.
#[derive(Debug, Error)]
pub(super) enum NoOwner {
    /// No backend ever listed it.
    #[error("unknown {word}: {name}{}", in_brackets(.not_available))]
    Unknown {
        /// The kind.
        word: &'static str,
        /// The name.
        name: String,
        /// The backends without an open connection, which may have it.
        not_available: Vec<String>,
    },
    /// It is in quarantine.
    #[error(transparent)]
    Held(#[from] HeldDefinition),
    /// The newest list has it, and its backend was removed since.
    #[error("{word} \"{name}\" belongs to backend \"{backend}\", which was removed from the configuration")]
    BackendRemoved {
        /// The kind.
        word: &'static str,
        /// The name.
        name: String,
        /// The backend's id.
        backend: Arc<str>,
    },
    /// An earlier list had it, and its backend was removed since.
    #[error("{word} \"{name}\" belonged to backend \"{backend}\", which was removed from the configuration")]
    EarlierBackendRemoved {
        /// The kind.
        word: &'static str,
        /// The name.
        name: String,
        /// The backend's id.
        backend: Arc<str>,
    },
    /// Its backend is running and does not list it now.
    #[error("backend \"{backend}\" does not offer {word} \"{name}\" any more")]
    NotOffered {
        /// The kind.
        word: &'static str,
        /// The name.
        name: String,
        /// The backend's id.
        backend: Arc<str>,
    },
    /// Its backend is not running.
    #[error("{word} \"{name}\" belongs to backend \"{backend}\", which is not available: {why}")]
    BackendNotAvailable {
        /// The kind.
        word: &'static str,
        /// The name.
        name: String,
        /// The backend's id.
        backend: Arc<str>,
        /// Why it is not running.
        why: String,
    },
}

fn in_brackets(not_available: &[String]) -> String {
    if not_available.is_empty() {
        return String::new();
    }
    format!(" (not available: {})", not_available.join(", "))
}

/// Returns the error code for a resource that no backend has, which differs between the eras.
pub(super) fn resource_not_found(era: Era) -> i64 {
    match era {
        Era::Legacy => code::RESOURCE_NOT_FOUND,
        Era::Modern => code::INVALID_PARAMS,
    }
}

impl Gateway {
    /// Finds the backend that owns a name: in the newest list that this client was given, else in the newest list that
    /// any client was given, else by asking all backends.
    pub(super) async fn owner(
        self: &Arc<Self>,
        call: &Arc<Call>,
        kind: ListKind,
        name: &str,
    ) -> Result<NameOwner, NoOwner> {
        let owned = match self.known_owner(call, kind, name) {
            Some(owned) => Some(owned),
            None => self.ask_for_name(call, kind, name).await.owner(name).cloned(),
        };
        let Some(owned) = owned else { return Err(self.why_no_owner(&call.session, kind, name)) };
        match self.backend(&owned.backend) {
            Some(backend) => Ok(NameOwner { backend, own_name: owned.own }),
            None => {
                let (word, name, backend) = (kind.word(), name.to_owned(), owned.backend);
                Err(NoOwner::BackendRemoved { word, name, backend })
            }
        }
    }

    /// Asks all backends for their lists to find a name. Calls of one client take turns, and use what another found in
    /// the meantime: without that, many calls at once would each read every list.
    async fn ask_for_name(self: &Arc<Self>, call: &Arc<Call>, kind: ListKind, name: &str) -> Arc<NameTable> {
        let name_lookups = &call.session.name_lookups[kind as usize];
        let before = name_lookups.done.load(Ordering::Acquire);
        let _turn = name_lookups.turn.lock().await;
        let has_been_asked = name_lookups.done.load(Ordering::Acquire) != before;
        if let Some(table) = has_been_asked.then(|| known_table(&call.session, kind)).flatten() {
            return table;
        }
        let table = self.aggregate_for_name(call, kind, name).await.table;
        name_lookups.done.fetch_add(1, Ordering::AcqRel);
        table
    }

    fn known_owner(&self, call: &Call, kind: ListKind, name: &str) -> Option<OwnedName> {
        let table = match known_table(&call.session, kind) {
            Some(table) => table,
            // Tools and prompts describe the server and are the same for all clients. Resources may be one client's
            // data.
            None if kind.is_definition() => {
                lock(&self.routes).newest.get(&(kind, call.facts.era == Era::Modern)).cloned()?
            }
            None => return None,
        };
        table.owner(name).cloned()
    }

    fn why_no_owner(&self, session: &Session, kind: ListKind, name: &str) -> NoOwner {
        let owned = lock(&self.routes).assigned.get(&kind).and_then(|names| names.owner(name).cloned());
        let (word, name) = (kind.word(), name.to_owned());
        let Some(owned) = owned else {
            return NoOwner::Unknown { word, name, not_available: self.backends_without_connection() };
        };
        if let Some(held) = self.held_definition(session, kind, &owned) {
            return held.into();
        }
        let Some(backend) = self.backend(&owned.backend) else {
            return NoOwner::EarlierBackendRemoved { word, name, backend: owned.backend };
        };
        let state = backend.state();
        if state.is_ready {
            return NoOwner::NotOffered { word, name, backend: owned.backend };
        }
        let why = state.why.unwrap_or_else(|| "it is not running".to_owned());
        NoOwner::BackendNotAvailable { word, name, backend: owned.backend, why }
    }

    fn backends_without_connection(&self) -> Vec<String> {
        let backends = self.backends();
        backends.iter().filter(|b| b.open_connections().is_empty()).map(|b| b.title()).collect()
    }

    /// Returns the templates that a table names, and their owners.
    pub(super) fn templates(&self, table: &NameTable) -> Vec<(String, Arc<Backend>)> {
        table
            .names()
            .filter_map(|(name, owned)| Some((name.to_owned(), self.backend(&owned.backend)?)))
            .collect()
    }

    /// Finds the backend of a resource: by its list, by its templates, or because it is the only one that has
    /// resources.
    pub(super) async fn owner_of_uri(self: &Arc<Self>, call: &Arc<Call>, uri: &str) -> Option<Arc<Backend>> {
        if let Ok(owner) = self.owner(call, ListKind::Resources, uri).await {
            return Some(owner.backend);
        }
        let known = known_table(&call.session, ListKind::Templates);
        let mut fitting = known.and_then(|table| self.fitting_template(&table, uri));
        if fitting.is_none() {
            let table = self.aggregate(call, ListKind::Templates).await.table;
            fitting = self.fitting_template(&table, uri);
        }
        if fitting.is_some() {
            return fitting;
        }
        let mut able = Vec::new();
        for backend in self.backends().iter() {
            if let Some(connection) = backend.open_connection(&call.session, call.facts.era)
                && connection.offers("resources")
            {
                able.push(backend.clone());
            }
        }
        // Servers may have resources that they do not list. If two could have it, a guess may reach the wrong one.
        if able.len() == 1 { able.pop() } else { None }
    }

    fn fitting_template(&self, table: &NameTable, uri: &str) -> Option<Arc<Backend>> {
        most_specific(self.templates(table), uri)
    }
}

/// Returns the owners of names as of the newest list that this client was given.
pub(super) fn known_table(session: &Session, kind: ListKind) -> Option<Arc<NameTable>> {
    lock(&session.tables).get(&kind).cloned()
}

/// Returns the owner of the template that fits a URI; if several fit, the one with the longest fixed part counts.
fn most_specific<T>(mut templates: Vec<(String, T)>, uri: &str) -> Option<T> {
    templates.sort_by_key(|(template, _)| std::cmp::Reverse(fixed_part(template).len()));
    templates.into_iter().find(|(template, _)| uri.starts_with(fixed_part(template))).map(|(_, one)| one)
}

fn fixed_part(template: &str) -> &str {
    template.split('{').next().unwrap_or(template)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::gateway::stage::Stage;

    #[test]
    fn of_several_templates_that_fit_the_most_specific_counts() {
        let templates = || {
            [
                ("file:///{path}", 1),
                ("file:///logs/{day}", 2),
                ("db://{table}/{row}", 3),
                ("file:///exact", 4),
            ]
            .map(|(template, owner)| (template.to_owned(), owner))
            .to_vec()
        };
        let check = |uri, owner| assert_eq!(most_specific(templates(), uri), owner, "{uri}");
        check("file:///notes/a", Some(1));
        check("file:///logs/today", Some(2));
        check("db://users/7", Some(3));
        check("file:///exact", Some(4));
        check("https://example.org", None);
        assert_eq!(most_specific::<u8>(Vec::new(), "file:///a"), None);
    }

    fn notes(method: &str, _: &Value) -> Option<Value> {
        match method {
            "resources/list" => Some(json!({ "resources": [{ "name": "n", "uri": "note:///listed" }] })),
            "resources/templates/list" => {
                Some(json!({ "resourceTemplates": [{ "name": "t", "uriTemplate": "note:///{id}" }] }))
            }
            "resources/read" => Some(json!({ "contents": [{ "uri": "x", "text": "notes" }] })),
            _ => None,
        }
    }

    fn others(method: &str, _: &Value) -> Option<Value> {
        match method {
            "resources/list" => Some(json!({ "resources": [{ "name": "o", "uri": "other:///listed" }] })),
            "resources/templates/list" => Some(json!({ "resourceTemplates": [] })),
            "resources/read" => Some(json!({ "contents": [{ "uri": "x", "text": "others" }] })),
            _ => None,
        }
    }

    async fn read(stage: &Stage, uri: &str) -> Option<String> {
        let session = stage.gateway.open_session("a client");
        let request = stage.legacy(&session, "resources/read", &json!({ "uri": uri }));
        let answer = stage.answer(request).await;
        answer["result"]["contents"][0]["text"].as_str().map(str::to_owned)
    }

    #[tokio::test(start_paused = true)]
    async fn a_resource_is_read_from_the_backend_that_lists_it_or_has_its_template() {
        let stage = Stage::new(&[("notes", notes), ("others", others)]);
        assert_eq!(read(&stage, "note:///listed").await.as_deref(), Some("notes"));
        assert_eq!(read(&stage, "other:///listed").await.as_deref(), Some("others"));
        assert_eq!(read(&stage, "note:///unlisted").await.as_deref(), Some("notes"));
        assert_eq!(read(&stage, "other:///unlisted").await, None, "either of two could have it");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_lists_is_read_from_the_only_backend_with_resources() {
        let stage = Stage::new(&[("others", others)]);
        assert_eq!(read(&stage, "other:///unlisted").await.as_deref(), Some("others"));
    }
}
