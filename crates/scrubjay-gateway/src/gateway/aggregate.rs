//! Merges the lists of all backends into one.
//!
//! Each list is requested from every backend, with one request at a time on each connection. A slow backend does not
//! hold up the others (`list_deadline.rs`): its last good list is used, or the result names it as missing, and the
//! client gets `list_changed` when its list arrives. Elements are passed on as they came, except for names
//! (`names.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_core::protocol::meta;
use scrubjay_core::protocol::result::{COMPLETE, RESULT_TYPE};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::list_deadline::ListDeadline;
use super::names::{self, AssignedNames, ListedBackend, NameTable, NamedItem};
use super::{Gateway, Request};
use crate::backend::connection::Connection;
use crate::backend::list::{BackendList, ListError, ListKind};
use crate::backend::{Answer, Backend};
use crate::budget::MemoryUse;
use crate::mirrored_headers::MirroredArgument;
use crate::session::{Call, Session, lock};

/// How many pages of one backend are read: a backend may return cursors without end.
const PAGES_MAX: usize = 1000;
/// How long the next page waits for memory.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// A longer list is merged only when memory is reserved for it as an answer: many clients may request one list at once,
/// and each gets a text of its own.
const LARGE_BYTES: usize = 256 * 1024;

/// The owners of names, across all clients.
#[derive(Default)]
pub(super) struct NameRegistry {
    /// The names that were assigned so far, by kind.
    pub(super) assigned: BTreeMap<ListKind, AssignedNames>,
    /// The owners as of the newest list of any client, by kind and whether that client was modern.
    pub(super) newest: BTreeMap<(ListKind, bool), Arc<NameTable>>,
}

/// The lists of all backends as one.
pub(super) struct AggregatedList {
    pub(super) named: Vec<NamedItem>,
    /// The owners of the names, even if there is no memory to keep the table.
    pub(super) table: Arc<NameTable>,
    /// The backends whose list is missing or outdated.
    pub(super) incomplete: Vec<IncompleteBackend>,
}

/// The lists of all backends before they are merged.
struct BackendLists {
    listed: Vec<ListedBackend>,
    incomplete: Vec<IncompleteBackend>,
}

/// A backend that did not send its list in time.
pub(super) struct IncompleteBackend {
    backend: String,
    why: String,
    /// Whether its last good list is used instead.
    is_last_good: bool,
}

/// One backend's answer to a request for its list.
struct BackendReply {
    /// The backend's index among all.
    place: usize,
    list: Result<Arc<BackendList>, ListError>,
}

impl Gateway {
    pub(super) async fn list(self: &Arc<Self>, request: &Request) -> Answer {
        let kind = ListKind::of_list(&request.method);
        // Pages of backends are read completely: names can only be assigned with all lists at hand.
        if request.params.as_ref().and_then(|p| p.get("cursor")).is_some_and(|c| c != "null") {
            return Answer::error(super::code::INVALID_PARAMS, "unknown cursor: the list has one page");
        }
        let lists = self.collect_lists(&request.call, kind, None).await;
        let bytes = lists.listed.iter().map(|list| list.offer.bytes()).sum();
        if bytes > LARGE_BYTES
            && let Err(full) = request.call.reserve_for_answer(bytes).await
        {
            return Answer::error(super::code::INTERNAL, &format!("the list has {bytes} bytes: {full}"));
        }
        let AggregatedList { named, incomplete, .. } = self.merge_lists(&request.call, kind, lists);
        let has_ours = kind == ListKind::Tools && self.offers_router_tools();
        let ours = has_ours.then(super::route::definitions).into_iter().flatten();
        let (member, meta) = (kind.member(), meta_of(&incomplete));
        let complete = format!(r#""{RESULT_TYPE}":"{COMPLETE}","#);
        let (before, after) = match request.call.facts.era {
            Era::Legacy => ("", ""),
            Era::Modern => (&*complete, r#","ttlMs":0,"cacheScope":"private""#),
        };
        let bytes: usize = named.iter().map(|named| named.raw.len() + 1).sum();
        let mut result = String::with_capacity(bytes + before.len() + after.len() + meta.len() + 32);
        result.push_str(&format!(r#"{{{before}"{member}":["#));
        let mut comma = "";
        // Each item is dropped as it is written: a long list is not in memory twice.
        for raw in named.into_iter().map(|named| named.raw).chain(ours) {
            result.push_str(comma);
            result.push_str(&raw);
            comma = ",";
        }
        result.push_str(&format!("]{after}{meta}}}"));
        Answer::Result(result)
    }

    /// Asks every backend for its list; returns the elements by their names for clients.
    pub(super) async fn aggregate(self: &Arc<Self>, call: &Arc<Call>, kind: ListKind) -> AggregatedList {
        let lists = self.collect_lists(call, kind, None).await;
        self.merge_lists(call, kind, lists)
    }

    /// The same, to find the owner of a name: waits longer for the backends that may have it.
    pub(super) async fn aggregate_for_name(
        self: &Arc<Self>,
        call: &Arc<Call>,
        kind: ListKind,
        name: &str,
    ) -> AggregatedList {
        let lists = self.collect_lists(call, kind, Some(name)).await;
        self.merge_lists(call, kind, lists)
    }

    /// Asks every backend for its list; waits longer for those that may have a wanted name.
    async fn collect_lists(
        self: &Arc<Self>,
        call: &Arc<Call>,
        kind: ListKind,
        wanted: Option<&str>,
    ) -> BackendLists {
        let backends = self.backends();
        let (reply, mut replies) = mpsc::channel(backends.len().max(1));
        for (place, backend) in backends.iter().enumerate() {
            // In tasks of their own: a list that comes too late for this request is still learned.
            tokio::spawn(self.clone().ask_for_list(
                place,
                backend.clone(),
                call.clone(),
                kind,
                reply.clone(),
            ));
        }
        drop(reply);
        let mut deadline = ListDeadline::new(&backends, &call.session, kind, wanted.is_some());
        let mut lists: BTreeMap<usize, Result<Arc<BackendList>, ListError>> = BTreeMap::new();
        while lists.len() < backends.len() {
            let answered: Vec<usize> = lists.keys().copied().collect();
            let next = deadline.wait(&backends, &answered, replies.recv());
            let Some(BackendReply { place, list }) = next.await else { break };
            deadline.answered(&backends[place], list.is_ok());
            // The end is enough: the wanted name may be the long one, `<backend>__<name>`.
            if let (Some(wanted), Ok(offer)) = (wanted, &list)
                && offer.items.iter().any(|item| wanted.ends_with(&item.name))
            {
                deadline.found();
            }
            lists.insert(place, list);
        }
        // Closed before the queue is emptied: a backend that answers after that finds it closed, and its list is
        // announced with `list_changed` instead of being lost.
        replies.close();
        while let Ok(BackendReply { place, list }) = replies.try_recv() {
            lists.insert(place, list);
        }
        self.complete_lists(call, kind, &backends, lists)
    }

    /// Uses the last good list of a backend that sent none, and names what is missing.
    fn complete_lists(
        &self,
        call: &Arc<Call>,
        kind: ListKind,
        backends: &[Arc<Backend>],
        mut lists: BTreeMap<usize, Result<Arc<BackendList>, ListError>>,
    ) -> BackendLists {
        let session = &call.session;
        let mut incomplete = Vec::new();
        let mut listed = Vec::with_capacity(backends.len());
        for (place, backend) in backends.iter().enumerate() {
            let offer = match lists.remove(&place) {
                Some(Ok(offer)) => offer,
                Some(Err(error)) => {
                    let why = error.to_string();
                    tracing::debug!(backend = backend.id, why, ?kind, "missing from a list");
                    lock(&session.lists).remove(&(kind, backend.id.clone()));
                    incomplete.push(IncompleteBackend {
                        backend: backend.id.clone(),
                        why,
                        is_last_good: false,
                    });
                    continue;
                }
                None => {
                    let last = last_good(backend, session, call.facts.era, kind);
                    let why = if last.is_some() { "it is slow to answer" } else { "it has not answered yet" };
                    tracing::warn!(backend = backend.id, ?kind, "too slow to be listed");
                    backend.known.note_slow();
                    let (backend, why, is_last_good) = (backend.id.clone(), why.to_owned(), last.is_some());
                    incomplete.push(IncompleteBackend { backend, why, is_last_good });
                    match last {
                        Some(last) => last,
                        None => continue,
                    }
                }
            };
            session.remember_list(kind, &backend.id, &offer);
            listed.push(ListedBackend { backend: backend.id.as_str().into(), is_own: backend.is_own, offer });
        }
        if !incomplete.is_empty() {
            session.record_note(&json!({
                "event": "list_incomplete", "list": kind.method(), "backends": described(&incomplete),
            }));
        }
        BackendLists { listed, incomplete }
    }

    fn merge_lists(&self, call: &Arc<Call>, kind: ListKind, lists: BackendLists) -> AggregatedList {
        let (named, table) = self.name_for_client(call, kind, &lists.listed);
        AggregatedList { named, table, incomplete: lists.incomplete }
    }

    /// Assigns names to the elements, and stores their owners for this client and as the newest of all.
    fn name_for_client(
        &self,
        call: &Arc<Call>,
        kind: ListKind,
        listed: &[ListedBackend],
    ) -> (Vec<NamedItem>, Arc<NameTable>) {
        let is_ours = kind == ListKind::Tools && self.offers_router_tools();
        let naming = *lock(&self.naming);
        let is_reserved = |name: &str| is_ours && super::route::is_own(name);
        let mut routes = lock(&self.routes);
        let assigned = routes.assigned.entry(kind).or_default();
        let (mut table, mut named) = names::name_all(kind, listed, naming, is_reserved, assigned);
        self.hold_back(kind, listed, &mut table, &mut named);
        let newest = routes.newest.entry((kind, call.facts.era == Era::Modern)).or_default();
        let mut fits = true;
        let table = if **newest == table {
            newest.clone()
        } else {
            fits = table.charge_memory(&self.budget);
            let table = Arc::new(table);
            if fits {
                *newest = table.clone();
            }
            table
        };
        drop(routes);
        let mut tables = lock(&call.session.tables);
        if fits {
            tables.insert(kind, table.clone());
        } else {
            tables.remove(&kind);
        }
        drop(tables);
        if !fits {
            call.session.note_not_kept(&json!({ "names": kind.member(), "count": named.len() }));
        }
        (named, table)
    }

    /// Asks one backend for its list and hands it to the gathering task; after that has ended, the client gets
    /// `list_changed` instead.
    async fn ask_for_list(
        self: Arc<Self>,
        place: usize,
        backend: Arc<Backend>,
        call: Arc<Call>,
        kind: ListKind,
        reply: mpsc::Sender<BackendReply>,
    ) {
        let list = self.list_of(&backend, &call, kind).await;
        if let Err(too_late) = reply.send(BackendReply { place, list }).await
            && let Ok(offer) = too_late.0.list
        {
            self.announce_late_list(&backend, &call.session, kind, &offer);
        }
    }

    /// Announces a list that came after the client's request was answered, if it differs from the last.
    fn announce_late_list(
        &self,
        backend: &Backend,
        session: &Arc<Session>,
        kind: ListKind,
        offer: &Arc<BackendList>,
    ) {
        if session.remember_list(kind, &backend.id, offer) {
            self.tools_changed();
            self.announce_change(kind.changed(), |other| other.client == session.client);
        }
    }

    /// Reads all pages of one backend's list, or joins a read that is already under way.
    async fn list_of(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        call: &Arc<Call>,
        kind: ListKind,
    ) -> Result<Arc<BackendList>, ListError> {
        let connection = self.connect(backend, call).await?;
        self.list_on(backend, &connection, call, kind).await
    }

    /// Reads all pages of one backend's list on a connection, or joins a read that is already under way there.
    pub(super) async fn list_on(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        connection: &Arc<Connection>,
        call: &Arc<Call>,
        kind: ListKind,
    ) -> Result<Arc<BackendList>, ListError> {
        if !connection.offers(kind.capability()) {
            return Ok(Arc::default());
        }
        // Resources may be one client's data, so they are listed for each session.
        let apart = (!kind.is_definition()).then(|| call.session.id.clone());
        let read = || {
            let (gateway, backend, call, connection) =
                (self.clone(), backend.clone(), call.clone(), connection.clone());
            tokio::spawn(async move {
                let offer = read_list(&backend, &connection, &call, kind).await?;
                // Inside the shared read, so that lists are learned in the order in which they were read.
                gateway.observe_list(&call, kind, &backend, connection.era, &offer);
                backend.known.learn_list(connection.era, kind, &offer);
                connection.learn_list(kind, &offer);
                Ok(offer)
            })
        };
        connection.list_reads.join((kind, apart), read).await
    }

    /// Returns the arguments of a tool that are repeated in headers; none if no list has named the tool yet.
    pub(crate) fn mirrored(&self, tool: &str) -> Vec<MirroredArgument> {
        let newest = lock(&self.routes).newest.get(&(ListKind::Tools, true)).cloned();
        newest.map(|table| table.mirrored(tool)).unwrap_or_default()
    }

    /// Forgets all lists; also the assigned names if tools are to be named differently.
    pub(super) fn forget_all_lists(&self, others: &[String], names_change: bool) {
        let mut routes = lock(&self.routes);
        routes.newest.clear();
        if names_change {
            routes.assigned.clear();
        }
        drop(routes);
        for session in self.all_sessions() {
            lock(&session.tables).clear();
            lock(&session.lists).retain(|(_, backend), _| !others.contains(backend));
        }
    }

    /// Forgets the lists that a backend says have changed, for the sessions that it concerns: the next call requests
    /// them.
    pub(super) fn forget_lists(&self, method: &str, concerns: impl Fn(&Session) -> bool) {
        let kinds = ListKind::of_change(method);
        if kinds.contains(&ListKind::Tools) {
            self.tools_changed();
        }
        lock(&self.routes).newest.retain(|(kind, _), _| !kinds.contains(kind));
        for session in self.all_sessions().iter().filter(|session| concerns(session)) {
            lock(&session.tables).retain(|kind, _| !kinds.contains(kind));
        }
    }
}

/// Returns the last good list of a backend: the last one for this client or, of tools and prompts, for any client.
fn last_good(backend: &Backend, session: &Session, era: Era, kind: ListKind) -> Option<Arc<BackendList>> {
    let own = lock(&session.lists).get(&(kind, backend.id.clone())).and_then(|(_, offer)| offer.clone());
    let other = if era == Era::Modern { Era::Legacy } else { Era::Modern };
    own.or_else(|| backend.known.list(era, kind)).or_else(|| backend.known.list(other, kind))
}

async fn read_list(
    backend: &Backend,
    connection: &Connection,
    call: &Arc<Call>,
    kind: ListKind,
) -> Result<Arc<BackendList>, ListError> {
    let mut offer = BackendList::default();
    let mut cursor: Option<String> = None;
    let limit = backend.message_limit();
    let (mut bytes, mut charge) = (0, backend.budget().nothing(MemoryUse::Backend, true));
    for _ in 0..PAGES_MAX {
        let params = cursor.as_ref().map(|cursor| format!(r#"{{"cursor":{cursor}}}"#));
        let params = super::eras::adapted(call, connection.era, params.as_deref());
        let answer =
            connection.call(Some(call), kind.method(), params.as_deref(), backend.call_timeout()).await;
        let result = match answer? {
            Answer::Result(result) => result,
            // A server may offer resources and not know the method for templates.
            Answer::Error(_) if kind == ListKind::Templates => break,
            Answer::Error(error) => return Err(ListError::Refused { method: kind.method(), error }),
        };
        bytes += result.len();
        if limit.is_exceeded_by(bytes) {
            return Err(ListError::TooLong { method: kind.method(), bytes_max: limit.bytes_max() });
        }
        // A single page is charged with its answer. The sum of several is charged nowhere else.
        if cursor.is_some() {
            charge.resize_within(bytes, ROOM_WAIT_MAX).await?;
        }
        let Ok(result) = serde_json::from_str::<&RawValue>(&result) else { break };
        offer.add_page(kind, result);
        cursor =
            message::member(Some(result), "nextCursor").map(|c| c.get().to_owned()).filter(|c| c != "null");
        if cursor.is_none() {
            break;
        }
    }
    // Charged until the answer is delivered to the client.
    call.hold(charge);
    Ok(backend.known.share(kind, offer))
}

fn described(incomplete: &[IncompleteBackend]) -> serde_json::Value {
    let description = |i: &IncompleteBackend| {
        let state = if i.is_last_good { "last_good" } else { "missing" };
        json!({ "backend": i.backend, "state": state, "why": i.why })
    };
    incomplete.iter().map(description).collect()
}

/// Returns the member that names what is missing from a list, with a comma before it; empty if nothing is missing.
fn meta_of(incomplete: &[IncompleteBackend]) -> String {
    if incomplete.is_empty() {
        return String::new();
    }
    format!(r#","_meta":{}"#, json!({ meta::INCOMPLETE: described(incomplete) }))
}

#[cfg(test)]
mod tests;
