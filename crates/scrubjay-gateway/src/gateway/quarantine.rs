//! Notices definitions that have changed, in this run or since the last, and holds back those that nobody approved, if
//! the user wants that.
//!
//! A list is checked when it comes in (`observe_list`), and its held definitions are left out when lists are merged
//! (`hold_back`). That happens after names are assigned, so that the name of a held tool never becomes another tool's.
//! Every call to a backend passes `held_call`. It is judged by the newest list of its own connection: each client may
//! have a server process of its own, and these may describe a tool differently. Approvals are read again when their
//! file has changed, so `scrubjay trust tool` needs no restart.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_core::protocol::{code, method};
use serde_json::json;
use thiserror::Error;

use super::Gateway;
use super::names::{ListedBackend, NameTable, NamedItem, OwnedName};
use crate::backend::connection::Connection;
use crate::backend::list::{BackendList, DefinitionHash, Hashes, ListKind};
use crate::backend::{Answer, Backend, Greeting, Link};
use crate::config::{Quarantine, QuarantineModes};
use crate::definitions::{
    DefinitionChange, DefinitionKind, Definitions, HeldReason, ObservedDefinition, ServerDefinitions, Stamp,
    spelled,
};
use crate::session::{Call, Session, lock};

/// The definitions of all backends, as they were seen and approved.
#[derive(Default)]
pub(super) struct ObservedDefinitions {
    store: OnceLock<Arc<Definitions>>,
    modes: Mutex<QuarantineModes>,
    servers: Mutex<HashMap<String, ObservedServer>>,
}

/// The definitions of one server, as of the last time its file was read.
#[derive(Default)]
struct ObservedServer {
    /// The name of its file.
    file: Option<String>,
    /// Its command or address, for people.
    described: String,
    server: ServerDefinitions,
    stamp: Stamp,
    /// Whether its file cannot be read. Then nothing counts as approved, and the file is not overwritten.
    is_unreadable: bool,
    /// The lists that this process has seen, by kind and whether they are modern. A change in the first list of a kind
    /// happened since an earlier run.
    looked_at: HashSet<(DefinitionKind, bool)>,
}

/// A definition that is held back. Its text is the error that clients and models get.
#[derive(Debug, Error)]
#[error(
    "{subject} held back: {}. A person can look at it and approve it with `scrubjay trust tool {backend}/{name}`",
    .why.words()
)]
pub(super) struct HeldDefinition {
    subject: String,
    backend: String,
    name: String,
    why: HeldReason,
}

impl HeldDefinition {
    fn new(definition_kind: DefinitionKind, backend: &str, name: &str, why: HeldReason) -> Self {
        let subject = match definition_kind {
            DefinitionKind::Instructions => format!("the instructions of backend \"{backend}\" are"),
            _ => format!("{} \"{name}\" of backend \"{backend}\" is", definition_kind.word()),
        };
        Self { subject, backend: backend.to_owned(), name: name.to_owned(), why }
    }
}

impl Gateway {
    /// Stores definitions and approvals from run to run.
    pub fn remember_definitions(&self, store: Arc<Definitions>) {
        // It is set once.
        let _ = self.observed.store.set(store);
    }

    /// Sets which definitions are held back from now on.
    pub fn quarantine(&self, modes: QuarantineModes) {
        *lock(&self.observed.modes) = modes;
        self.tools_changed();
    }

    fn mode_of(&self, backend: &Backend) -> Quarantine {
        // A toolset is part of this program, and is trusted with it.
        if backend.is_own { Quarantine::Off } else { lock(&self.observed.modes).of(&backend.id) }
    }

    /// Calls `look` with the definitions of a server, after reading its file again if that has changed.
    fn with_server<T>(&self, backend: &Backend, look: impl FnOnce(&mut ObservedServer) -> T) -> T {
        let Link::Configured(link) = backend.link() else {
            let mut servers = lock(&self.observed.servers);
            return look(servers.entry(backend.id.clone()).or_default());
        };
        let key = format!("{}\n{}", backend.id, link.identity());
        let mut servers = lock(&self.observed.servers);
        let observed = servers.entry(key).or_insert_with(|| {
            let named = self.observed.store.get().map(|store| store.name(&backend.id, link));
            let (file, described) =
                named.map(|(file, described)| (Some(file), described)).unwrap_or_default();
            ObservedServer { file, described, ..ObservedServer::default() }
        });
        let was_read = self.observed.store.get().is_some_and(|store| observed.refresh(store));
        let returned = look(observed);
        // `tools_changed` takes other locks.
        drop(servers);
        if was_read {
            self.tools_changed();
        }
        returned
    }

    /// Returns the name under which a definition is stored.
    fn stored_name(&self, name: &str) -> String {
        self.observed.store.get().map_or_else(|| name.to_owned(), |store| store.stored_name(name))
    }

    /// Compares a list with what was seen before; records and reports what has changed.
    pub(super) fn observe_list(
        &self,
        call: &Arc<Call>,
        kind: ListKind,
        backend: &Backend,
        era: Era,
        offer: &BackendList,
    ) {
        let Some(definition_kind) = definition_kind_of(kind).filter(|_| !backend.is_own) else { return };
        let hashes = self.hashes_of(offer);
        self.observe(&call.session, definition_kind, backend, era, hashes, || texts_of(offer));
    }

    /// Returns the hash of each definition of a list.
    fn hashes_of<'a>(&self, offer: &'a BackendList) -> &'a Hashes {
        let name_and_hash =
            |(name, text): (&str, String)| (name.to_owned(), self.hash_of(&text, offer.is_copy()));
        offer.hashes(|| texts_of(offer).into_iter().map(name_and_hash).collect())
    }

    fn hash_of(&self, text: &str, is_copy: bool) -> DefinitionHash {
        let store = self.observed.store.get();
        let hash = store.map_or_else(|| blake3::hash(text.as_bytes()).to_string(), |store| store.hash(text));
        let redacted = || store.map_or_else(|| text.to_owned(), |store| store.redacted(text));
        DefinitionHash { hash, copy: is_copy.then(redacted) }
    }

    fn observe<'a>(
        &self,
        session: &Session,
        definition_kind: DefinitionKind,
        backend: &Backend,
        era: Era,
        hashes: &Hashes,
        texts: impl FnOnce() -> BTreeMap<&'a str, String>,
    ) {
        let mode = self.mode_of(backend);
        let store = self.observed.store.get();
        let (changes, since_last_run) = self.with_server(backend, |observed| {
            let since_last_run = observed.looked_at.insert((definition_kind, era == Era::Modern));
            let hashed: Vec<(&str, String, String)> = hashes
                .iter()
                .map(|(name, hash)| {
                    let stored_name = self.stored_name(name);
                    let hash = observed.known_hash(definition_kind, &stored_name, hash).to_owned();
                    (&**name, stored_name, hash)
                })
                .collect();
            let pairs = hashed.iter().map(|(_, stored_name, hash)| (&**stored_name, &**hash));
            // Most lists are what they were; then the file is neither locked nor written.
            if observed.server.has_seen(era, definition_kind, pairs, mode) || observed.is_unreadable {
                return (Vec::new(), since_last_run);
            }
            let mut texts = texts();
            let item = |(name, stored_name, hash): (&str, String, String)| {
                let text = texts.remove(name).unwrap_or_default();
                let (text, removed) = match store {
                    Some(store) => store.without_secrets(&text),
                    None => (text, Vec::new()),
                };
                ObservedDefinition { name: stored_name, hash, text, removed }
            };
            let items: Vec<ObservedDefinition> = hashed.into_iter().map(item).collect();
            let changes = observed
                .observe(store, backend, mode, |server| server.observe(era, definition_kind, &items, mode));
            let why = |change: DefinitionChange| {
                let why = observed.server.why_held(definition_kind, &change.name, &change.after, mode);
                (change, why)
            };
            (changes.into_iter().map(why).collect(), since_last_run)
        });
        if !changes.is_empty() {
            self.tools_changed();
        }
        for (change, why) in changes {
            report_change(session, definition_kind, backend, &change, why, since_last_run);
        }
    }

    /// Removes from a merged list the definitions that are held back.
    pub(super) fn hold_back(
        &self,
        kind: ListKind,
        listed: &[ListedBackend],
        table: &mut NameTable,
        named: &mut Vec<NamedItem>,
    ) {
        let Some(definition_kind) = definition_kind_of(kind) else { return };
        if !lock(&self.observed.modes).hold_any() {
            return;
        }
        let mut held: HashSet<OwnedName> = HashSet::new();
        for list in listed {
            let names = self.held_names(definition_kind, &list.backend, &list.offer);
            held.extend(names.into_iter().map(|own| OwnedName { backend: list.backend.clone(), own }));
        }
        if !held.is_empty() {
            named.retain(|named| !held.contains(&named.owned));
            table.leave_out(&held);
        }
    }

    /// Returns the names of the definitions that are held back in a backend's list.
    fn held_names(&self, definition_kind: DefinitionKind, backend: &str, offer: &BackendList) -> Vec<String> {
        let backend = self.backend(backend).filter(|backend| self.mode_of(backend) != Quarantine::Off);
        let Some(backend) = backend else { return Vec::new() };
        let (hashes, mode) = (self.hashes_of(offer), self.mode_of(&backend));
        self.with_server(&backend, |observed| {
            let is_held = |(name, hash): &(&String, &DefinitionHash)| {
                observed.why_held(definition_kind, &self.stored_name(name), hash, mode).is_some()
            };
            hashes.iter().filter(is_held).map(|(name, _)| name.clone()).collect()
        })
    }

    fn why_held(
        &self,
        definition_kind: DefinitionKind,
        backend: &Backend,
        offer: &BackendList,
        name: &str,
    ) -> Option<HeldReason> {
        let mode = self.mode_of(backend);
        if mode == Quarantine::Off {
            return None;
        }
        // A server may take a name that it does not list.
        let Some(hash) = self.hashes_of(offer).get(name) else { return Some(HeldReason::Unknown) };
        self.with_server(backend, |observed| {
            observed.why_held(definition_kind, &self.stored_name(name), hash, mode)
        })
    }

    /// Returns the definition of a name if it is held back in the newest list that a session has of its backend.
    pub(super) fn held_definition(
        &self,
        session: &Session,
        kind: ListKind,
        owned: &OwnedName,
    ) -> Option<HeldDefinition> {
        let (definition_kind, backend) = (definition_kind_of(kind)?, self.backend(&owned.backend)?);
        let (_, offer) = lock(&session.lists).get(&(kind, backend.id.clone())).cloned()?;
        let offer = offer.filter(|offer| self.hashes_of(offer).contains_key(&owned.own))?;
        let why = self.why_held(definition_kind, &backend, &offer, &owned.own)?;
        Some(HeldDefinition::new(definition_kind, &owned.backend, &owned.own, why))
    }

    /// Refuses a call of a definition that is held back on the connection that the call goes to. Every call to a
    /// backend passes here, however its tool was found.
    pub(super) async fn held_call(
        self: &Arc<Self>,
        call: &Arc<Call>,
        backend: &Arc<Backend>,
        connection: &Arc<Connection>,
        method: &str,
        params: Option<&str>,
    ) -> Option<Answer> {
        let (definition_kind, kind) = match method {
            method::TOOLS_CALL => (DefinitionKind::Tool, ListKind::Tools),
            method::PROMPTS_GET | method::COMPLETION_COMPLETE => (DefinitionKind::Prompt, ListKind::Prompts),
            _ => return None,
        };
        if self.mode_of(backend) == Quarantine::Off {
            return None;
        }
        let params = params.unwrap_or_default();
        let of_prompt = message::members_like(params, "ref");
        let named: Vec<&str> = match method {
            method::COMPLETION_COMPLETE => of_prompt.iter().map(|(_, of)| of.get()).collect(),
            _ => vec![params],
        };
        // With two names, or one in another spelling, the server may take another than we do.
        let names: Vec<_> = named.iter().flat_map(|object| message::members_like(object, "name")).collect();
        let (why, name) = match names.as_slice() {
            [] => return None,
            [(_, name)] => {
                let name = message::string(Some(name))?;
                let offer = match self.newest_list(call, backend, connection, kind).await {
                    Ok(offer) => offer,
                    Err(unseen) => return Some(unseen),
                };
                let why = self.why_held(definition_kind, backend, &offer, &name)?;
                (HeldDefinition::new(definition_kind, &backend.id, &name, why).to_string(), name)
            }
            _ => ("params.name is given more than once".to_owned(), String::new()),
        };
        tracing::warn!(backend = backend.id, name, "a call of something that is held back was refused");
        let facts = json!({
            "event": "held_call_refused", "backend": backend.id, "kind": definition_kind.word(), "name": name,
        });
        call.session.record_note(&facts);
        let data = json!({ "held": true, "backend": backend.id, "name": name });
        Some(Answer::Error(message::error(code::INVALID_PARAMS, &why, Some(&data))))
    }

    /// Returns the newest list of a connection, and requests it if there is none. A name may be known from an earlier
    /// run or another client, so the definition on this connection is checked before it is first used.
    async fn newest_list(
        self: &Arc<Self>,
        call: &Arc<Call>,
        backend: &Arc<Backend>,
        connection: &Arc<Connection>,
        kind: ListKind,
    ) -> Result<Arc<BackendList>, Answer> {
        if let Some(offer) = connection.newest_list(kind) {
            return Ok(offer);
        }
        Box::pin(self.list_on(backend, connection, call, kind)).await.map_err(|why| {
            let (member, id) = (kind.member(), &backend.id);
            let why = format!("the {member} of backend \"{id}\" cannot be looked at first: {why}");
            Answer::error(code::INTERNAL, &why)
        })
    }

    /// Compares a server's instructions with those seen before, and notes which lists it does not offer. Without that
    /// note its first prompt, for example, would count as part of the first list, and be approved with it.
    pub(super) fn observe_greeting(&self, session: &Session, backend: &Backend, connection: &Connection) {
        if backend.is_own {
            return;
        }
        // It was learned when the connection was made.
        let greeting = backend.known.greeting(connection.era).filter(|(era, _)| *era == connection.era);
        if let Some((era, greeting)) = greeting {
            self.observe_instructions(session, backend, era, &greeting);
        }
        for kind in [ListKind::Tools, ListKind::Prompts] {
            if let Some(definition_kind) =
                definition_kind_of(kind).filter(|_| !connection.offers(kind.capability()))
            {
                self.observe(
                    session,
                    definition_kind,
                    backend,
                    connection.era,
                    &Hashes::new(),
                    BTreeMap::new,
                );
            }
        }
    }

    /// Compares a server's instructions with those seen before; returns their hash.
    fn observe_instructions(
        &self,
        session: &Session,
        backend: &Backend,
        era: Era,
        greeting: &Greeting,
    ) -> Option<DefinitionHash> {
        let (definition_kind, name) = (DefinitionKind::Instructions, DefinitionKind::Instructions.word());
        let text = greeting.instructions.as_deref();
        let hash = text.map(|text| self.hash_of(text, greeting.is_copy));
        let hashes: Hashes = hash.iter().map(|hash| (name.to_owned(), hash.clone())).collect();
        let texts = || text.into_iter().map(|text| (name, text.to_owned())).collect();
        self.observe(session, definition_kind, backend, era, &hashes, texts);
        hash
    }

    /// Returns a server's instructions for a client, or that they are held back.
    pub(super) fn seen_instructions(
        &self,
        session: &Session,
        backend: &Backend,
        era: Era,
        greeting: Greeting,
    ) -> Option<String> {
        if backend.is_own {
            return greeting.instructions;
        }
        let hash = self.observe_instructions(session, backend, era, &greeting)?;
        let (definition_kind, name) = (DefinitionKind::Instructions, DefinitionKind::Instructions.word());
        let mode = self.mode_of(backend);
        match self.with_server(backend, |observed| observed.why_held(definition_kind, name, &hash, mode)) {
            Some(why) => Some(format!("({})", HeldDefinition::new(definition_kind, &backend.id, name, why))),
            None => greeting.instructions,
        }
    }
}

impl ObservedServer {
    /// Returns the hash of a definition; for a redacted copy that of the original, because approvals are of the
    /// original.
    fn known_hash<'a>(
        &'a self,
        definition_kind: DefinitionKind,
        stored_name: &str,
        definition: &'a DefinitionHash,
    ) -> &'a str {
        let original = definition
            .copy
            .as_ref()
            .and_then(|copy| self.server.hash_of_copy(definition_kind, stored_name, copy));
        original.unwrap_or(&definition.hash)
    }

    fn why_held(
        &self,
        definition_kind: DefinitionKind,
        stored_name: &str,
        definition: &DefinitionHash,
        mode: Quarantine,
    ) -> Option<HeldReason> {
        self.server.why_held(
            definition_kind,
            stored_name,
            self.known_hash(definition_kind, stored_name, definition),
            mode,
        )
    }

    /// Reads the file again if it has changed; returns whether it had.
    fn refresh(&mut self, store: &Definitions) -> bool {
        let Some(file) = &self.file else { return false };
        let stamp = store.stamp(file);
        if stamp == self.stamp {
            return false;
        }
        self.stamp = stamp;
        match store.load(file) {
            Ok((server, _)) => {
                self.is_unreadable = false;
                self.server = server.unwrap_or_default();
            }
            Err(e) => {
                tracing::error!(error = %e, "what is known of a backend's definitions cannot be read");
                self.is_unreadable = true;
                self.server = ServerDefinitions::default();
            }
        }
        true
    }

    /// Applies `observe` to the file, or to memory if there is no file or it cannot be written.
    fn observe(
        &mut self,
        store: Option<&Arc<Definitions>>,
        backend: &Backend,
        mode: Quarantine,
        observe: impl Fn(&mut ServerDefinitions) -> Vec<DefinitionChange>,
    ) -> Vec<DefinitionChange> {
        let Some((store, file)) = store.zip(self.file.as_ref()) else {
            self.server.quarantine = mode;
            return observe(&mut self.server);
        };
        let written = store.update_stamped(file, |server| {
            server.backend = store.redacted(&backend.id);
            server.described.clone_from(&self.described);
            server.quarantine = mode;
            observe(server)
        });
        match written {
            Ok((changes, server, stamp)) => {
                (self.server, self.stamp) = (server, stamp);
                changes
            }
            Err(e) => {
                tracing::error!(error = %e, "the definitions of a backend are not kept: changes may go unnoticed later");
                self.server.quarantine = mode;
                observe(&mut self.server)
            }
        }
    }
}

/// Returns the text of each definition of a list by its name, in canonical form.
fn texts_of(offer: &BackendList) -> BTreeMap<&str, String> {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for item in &offer.items {
        // A name that is listed twice is defined by both texts: it is unknown which of them a client takes.
        let text = texts.entry(&item.name).or_default();
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(&spelled(&item.raw));
    }
    texts
}

fn definition_kind_of(kind: ListKind) -> Option<DefinitionKind> {
    match kind {
        ListKind::Tools => Some(DefinitionKind::Tool),
        ListKind::Prompts => Some(DefinitionKind::Prompt),
        // They are data of a client, and change by themselves.
        ListKind::Resources | ListKind::Templates => None,
    }
}

/// Records and reports one change.
fn report_change(
    session: &Session,
    definition_kind: DefinitionKind,
    backend: &Backend,
    change: &DefinitionChange,
    why: Option<HeldReason>,
    since_last_run: bool,
) {
    let (id, name) = (&backend.id, &change.name);
    let event = if change.before.is_some() { "definition_changed" } else { "definition_added" };
    let when = if since_last_run { "since an earlier run" } else { "in the middle of a session" };
    let kind = definition_kind.word();
    match (why, &change.before) {
        (Some(why), _) => tracing::warn!(
            backend = id,
            kind,
            name,
            "a definition changed {when} and is held back ({}): look at it with `scrubjay trust`",
            why.words()
        ),
        (None, Some(_)) => tracing::warn!(backend = id, kind, name, "a definition changed {when}"),
        (None, None) => tracing::info!(backend = id, kind, name, "a server that is known has something new"),
    }
    session.record_note(&json!({
        "event": event,
        "backend": id,
        "kind": match definition_kind { DefinitionKind::Tool => "tools", DefinitionKind::Prompt => "prompts", DefinitionKind::Instructions => "instructions" },
        "name": name,
        "before": change.before,
        "after": change.after,
        "since": if since_last_run { "an earlier run" } else { "this run" },
        "held": why.is_some(),
    }));
}

#[cfg(test)]
mod tests;
