//! Puts the lists of all backends together, and remembers who owns which name.
//!
//! A tool or prompt keeps its name unless two backends use it: then each of theirs is `<backend>__<name>`.
//! The long form always works in a call. What a list holds is passed on as it came, but for that name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, Splice};
use serde_json::json;
use serde_json::value::RawValue;

use super::{Gateway, Request};
use crate::backend::{Answer, Backend, CallError};
use crate::config::Naming;
use crate::session::{Call, lock};

/// How long a list waits for a backend: a slow one is missing, and announces itself when it is ready.
const LIST_MAX: Duration = Duration::from_secs(10);
/// How many pages of one backend are read.
const PAGES_MAX: usize = 1000;

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    pub(super) fn of_list(method: &str) -> Self {
        match method {
            "prompts/list" => Self::Prompts,
            "resources/list" => Self::Resources,
            "resources/templates/list" => Self::Templates,
            _ => Self::Tools,
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// The member of the result that holds the list.
    fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an element that names it.
    fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }
}

/// Who owns which name.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// By kind and name as clients see it: the backend's place, and its own name.
    by_name: HashMap<(Kind, String), (usize, String)>,
    /// The hash of each definition, by backend, whether modern, kind and name: to notice changes. A server may say the
    /// same in other words to clients of another era.
    definitions: HashMap<(usize, bool, Kind, String), blake3::Hash>,
    /// The arguments that are repeated in headers, by the tool's name as clients see it.
    mirrored: HashMap<String, Vec<Mirrored>>,
}

/// An argument of a tool that HTTP clients repeat in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirrored {
    /// The header's name after `Mcp-Param-`.
    pub header: String,
    /// The property's place among the arguments.
    pub path: Vec<String>,
}

/// One element of a backend's list.
struct Listed {
    backend: usize,
    era: Era,
    name: String,
    raw: String,
}

impl Gateway {
    pub(super) async fn list(self: &Arc<Self>, request: &Request) -> Answer {
        let kind = Kind::of_list(&request.method);
        if message::member(request.raw_params(), "cursor").is_some_and(|c| c.get() != "null") {
            return Answer::error(super::code::INVALID_PARAMS, "unknown cursor: the list has one page");
        }
        let listed = self.gather(&request.call, kind).await;
        let mut items: Vec<String> = listed.into_iter().map(|(_, raw)| raw).collect();
        if kind == Kind::Tools && self.offers_router_tools() {
            items.extend(super::route::definitions());
        }
        let items = items.join(",");
        let member = kind.member();
        Answer::Result(match request.call.facts.era {
            Era::Legacy => format!(r#"{{"{member}":[{items}]}}"#),
            Era::Modern => {
                format!(
                    r#"{{"resultType":"complete","{member}":[{items}],"ttlMs":0,"cacheScope":"private"}}"#
                )
            }
        })
    }

    /// Finds the backend that owns a name, asking all of them where it is not known yet.
    pub(super) async fn owner(
        self: &Arc<Self>,
        call: &Arc<Call>,
        kind: Kind,
        name: &str,
    ) -> Option<(Arc<Backend>, String)> {
        if let Some(found) = self.known_owner(kind, name) {
            return Some(found);
        }
        self.gather(call, kind).await;
        self.known_owner(kind, name)
    }

    pub(super) fn known_owner(&self, kind: Kind, name: &str) -> Option<(Arc<Backend>, String)> {
        let routes = lock(&self.routes);
        let (place, own) = routes.by_name.get(&(kind, name.to_owned()))?;
        Some((self.places()[*place].clone(), own.clone()))
    }

    /// Returns the templates and their owners, as far as they are known.
    pub(super) fn known_templates(&self) -> Vec<(String, Arc<Backend>)> {
        let routes = lock(&self.routes);
        let templates = routes.by_name.iter().filter(|((kind, _), _)| *kind == Kind::Templates);
        let backends = self.places();
        templates.map(|((_, name), (place, _))| (name.clone(), backends[*place].clone())).collect()
    }

    /// Asks every backend for its list; returns the elements by their names for clients.
    pub(super) async fn gather(self: &Arc<Self>, call: &Arc<Call>, kind: Kind) -> Vec<(String, String)> {
        let mut asked = tokio::task::JoinSet::new();
        for (place, backend) in self.places().iter().enumerate().filter(|(_, backend)| !backend.is_retired())
        {
            let (gateway, backend, call) = (self.clone(), backend.clone(), call.clone());
            asked.spawn(async move {
                let list = gateway.list_of(&backend, &call, kind);
                let items = match tokio::time::timeout(LIST_MAX, list).await {
                    Ok(Ok(listed)) => listed,
                    Ok(Err(e)) => {
                        tracing::debug!(backend = backend.id, error = %e, ?kind, "missing from a list");
                        gateway.miss(&backend.id);
                        (Era::Legacy, Vec::new())
                    }
                    Err(_) => {
                        tracing::warn!(backend = backend.id, ?kind, "too slow to be listed");
                        gateway.miss(&backend.id);
                        (Era::Legacy, Vec::new())
                    }
                };
                (place, items)
            });
        }
        let mut by_backend = BTreeMap::new();
        while let Some(answered) = asked.join_next().await {
            if let Ok((place, items)) = answered {
                by_backend.insert(place, items);
            }
        }
        let listed: Vec<Listed> = by_backend
            .into_iter()
            .flat_map(|(backend, (era, items))| {
                items.into_iter().map(move |(name, raw)| Listed { backend, era, name, raw })
            })
            .collect();
        self.notice_changes(call, kind, &listed);
        self.name_for_clients(kind, listed)
    }

    fn name_for_clients(&self, kind: Kind, listed: Vec<Listed>) -> Vec<(String, String)> {
        let mut owners: HashMap<&str, usize> = HashMap::new();
        let mut shared: std::collections::HashSet<String> = std::collections::HashSet::new();
        for item in &listed {
            let is_ours =
                kind == Kind::Tools && self.offers_router_tools() && super::route::is_own(&item.name);
            if *owners.entry(&item.name).or_insert(item.backend) != item.backend || is_ours {
                shared.insert(item.name.clone());
            }
        }
        let backends = self.places();
        let naming = *lock(&self.naming);
        let mut routes = lock(&self.routes);
        let mut named = Vec::with_capacity(listed.len());
        for item in listed {
            let backend = &backends[item.backend];
            let long = format!("{}__{}", backend.id, item.name);
            let prefixed = matches!(kind, Kind::Tools | Kind::Prompts)
                && !backend.is_own
                && (shared.contains(&item.name) || naming == Naming::Always);
            let owner = (item.backend, item.name.clone());
            let (name, raw) = if prefixed {
                (long.clone(), renamed(&item.raw, kind, &long))
            } else {
                (item.name.clone(), item.raw)
            };
            if matches!(kind, Kind::Tools | Kind::Prompts) {
                routes.by_name.insert((kind, long), owner.clone());
            }
            if kind == Kind::Tools {
                match mirrored_in(&raw) {
                    none if none.is_empty() => routes.mirrored.remove(&name),
                    some => routes.mirrored.insert(name.clone(), some),
                };
            }
            // Two backends with one URI: the first in the configuration keeps it.
            routes.by_name.entry((kind, name.clone())).or_insert(owner);
            named.push((name, raw));
        }
        named
    }

    /// Returns the arguments of a tool that are repeated in headers, as far as the tool is known.
    #[must_use]
    pub fn mirrored(&self, tool: &str) -> Vec<Mirrored> {
        lock(&self.routes).mirrored.get(tool).cloned().unwrap_or_default()
    }

    /// Records and reports definitions that are not what they were: a tool that changes may be a trap.
    fn notice_changes(&self, call: &Arc<Call>, kind: Kind, listed: &[Listed]) {
        let backends = self.places();
        let mut changed = Vec::new();
        {
            let mut routes = lock(&self.routes);
            for item in listed {
                let hash = blake3::hash(item.raw.as_bytes());
                let before = routes
                    .definitions
                    .insert((item.backend, item.era == Era::Modern, kind, item.name.clone()), hash);
                if let Some(before) = before.filter(|before| *before != hash) {
                    changed.push((item, before, hash));
                }
            }
        }
        for (item, before, after) in changed {
            let backend = &backends[item.backend].id;
            tracing::warn!(
                backend,
                ?kind,
                name = item.name,
                "a definition changed in the middle of a session"
            );
            call.session.record_note(&json!({
                "event": "definition_changed",
                "backend": backend,
                "kind": kind.capability(),
                "name": item.name,
                "before": before.to_hex().to_string(),
                "after": after.to_hex().to_string(),
            }));
        }
    }

    /// Forgets who owns names of a kind; the next call or list asks again.
    pub(super) fn forget_routes(&self, backend: &str, method: &str) {
        let kinds: &[Kind] = match method {
            "notifications/tools/list_changed" => &[Kind::Tools],
            "notifications/prompts/list_changed" => &[Kind::Prompts],
            "notifications/resources/list_changed" => &[Kind::Resources, Kind::Templates],
            _ => &[],
        };
        if kinds.contains(&Kind::Tools) {
            self.tools_changed();
        }
        let place = self.places().iter().position(|b| b.id == backend);
        let gone = |kind: &Kind, at: usize| kinds.contains(kind) && Some(at) == place;
        lock(&self.routes).by_name.retain(|(kind, _), (at, _)| !gone(kind, *at));
    }

    /// Forgets who owns which name, and the definitions of the backends in these places.
    pub(super) fn forget_all_routes(&self, places: &[usize]) {
        let mut routes = lock(&self.routes);
        routes.by_name.clear();
        routes.mirrored.clear();
        routes.definitions.retain(|(place, ..), _| !places.contains(place));
    }

    /// Reads all pages of one backend's list; returns the era in which they were read, too.
    async fn list_of(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        call: &Arc<Call>,
        kind: Kind,
    ) -> Result<(Era, Vec<(String, String)>), CallError> {
        let connection = self.connect(backend, call.facts.era).await?;
        if !connection.offers(kind.capability()) {
            return Ok((connection.era, Vec::new()));
        }
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params = cursor.as_ref().map(|cursor| format!(r#"{{"cursor":{cursor}}}"#));
            let params = super::calls::adapted(call, connection.era, params.as_deref());
            let answer =
                connection.call(Some(call), kind.method(), params.as_deref(), backend.call_timeout());
            let Answer::Result(result) = answer.await? else { break };
            let Ok(result) = serde_json::from_str::<&RawValue>(&result) else { break };
            for item in message::elements(message::member(Some(result), kind.member())) {
                if let Some(name) = message::string(message::member(Some(item), kind.key())) {
                    items.push((name, item.get().to_owned()));
                }
            }
            cursor = message::member(Some(result), "nextCursor")
                .map(|c| c.get().to_owned())
                .filter(|c| c != "null");
            if cursor.is_none() {
                break;
            }
        }
        Ok((connection.era, items))
    }
}

/// Reads which arguments a tool's definition wants repeated in headers.
fn mirrored_in(definition: &str) -> Vec<Mirrored> {
    let mut found = Vec::new();
    if definition.contains("x-mcp-header") {
        let definition: serde_json::Value = serde_json::from_str(definition).unwrap_or_default();
        find_mirrored(&definition["inputSchema"], &mut Vec::new(), &mut found);
    }
    found
}

fn find_mirrored(schema: &serde_json::Value, path: &mut Vec<String>, found: &mut Vec<Mirrored>) {
    // Only what `properties` alone leads to has one fixed place among the arguments.
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        if let Some(header) = property["x-mcp-header"].as_str() {
            found.push(Mirrored { header: header.to_owned(), path: path.clone() });
        }
        find_mirrored(property, path, found);
        path.pop();
    }
}

fn renamed(raw: &str, kind: Kind, name: &str) -> String {
    let Ok(object) = serde_json::from_str::<&RawValue>(raw) else { return raw.to_owned() };
    let old = message::member(Some(object), kind.key());
    Splice::new(object.get()).replace(old, &serde_json::Value::from(name).to_string()).finish()
}
