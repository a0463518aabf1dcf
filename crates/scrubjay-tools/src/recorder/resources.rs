//! The views as resources: `scrubjay://sessions`, and of each session timeline, story, evolution and the contents of
//! its files' revisions.
//!
//! Whoever subscribes hears of changes, those made by other processes too: the ledger is asked for its last
//! event, at once after a change of this process's own, else every second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    ErrorCode, ListResourcesResult, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate, ResourceUpdatedNotificationParam,
};
use rmcp::service::{Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer};
use scrubjay_store::ledger::{LedgerError, event, session};
use scrubjay_store::views::address::{self, Side};
use scrubjay_store::views::budget::{self, Window};
use scrubjay_store::views::content::{self, StatePoint, StoredContent};
use scrubjay_store::views::{self, SessionView, ViewError, evolution, story, timeline};
use serde::Serialize;
use serde_json::json;

use super::{Recorder, narrative};
use crate::reply::Failure;
use crate::shared::Shared;

const JSON: &str = "application/json";
const MARKDOWN: &str = "text/markdown";
const PLAIN: &str = "text/plain";
const BYTES: &str = "application/octet-stream";
/// How many sessions one page of the list has.
const SESSIONS_PAGE: i64 = 50;
/// How many resources one client may follow.
const FOLLOWED_MAX: usize = 1000;

/// What a URI leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ResourceAddress {
    Sessions,
    Timeline(String, Query),
    Story(String, Query),
    Files(String, Query),
    File(String, String, Query),
}

/// What stands behind the question mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Query {
    after: i64,
    limit: i64,
    max_tokens: Option<usize>,
    revision: Option<i64>,
    side: Side,
}

impl ResourceAddress {
    fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(address::SESSIONS)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() || path == "/" {
            return Some(Self::Sessions);
        }
        let (id, view) = path.strip_prefix('/')?.split_once('/')?;
        let (id, query) = (decode(id)?, Query::parse(query)?);
        // Only a file has revisions.
        let of_file = view.strip_prefix("evolution/");
        if of_file.is_none() && (query.revision.is_some() || query.side == Side::Before) {
            return None;
        }
        Some(match view {
            "timeline" => Self::Timeline(id, query),
            "story" => Self::Story(id, query),
            "evolution" => Self::Files(id, query),
            _ => Self::File(id, decode(of_file?)?, query),
        })
    }

    /// Returns the session it is about.
    fn session(&self) -> Option<&str> {
        match self {
            Self::Sessions => None,
            Self::Timeline(id, _) | Self::Story(id, _) | Self::Files(id, _) | Self::File(id, ..) => Some(id),
        }
    }
}

impl Query {
    const NONE: Self = Self { after: 0, limit: 200, max_tokens: None, revision: None, side: Side::After };

    fn parse(text: &str) -> Option<Self> {
        let mut query = Self::NONE;
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=')? {
                ("after", value) => query.after = value.parse().ok()?,
                ("limit", value) => query.limit = value.parse().ok()?,
                ("max_tokens", value) => query.max_tokens = Some(value.parse().ok()?),
                ("revision", value) => query.revision = Some(value.parse().ok()?),
                ("side", "before") => query.side = Side::Before,
                ("side", "after") => query.side = Side::After,
                _ => return None,
            }
        }
        // The side is one of a revision.
        (query.side == Side::After || query.revision.is_some()).then_some(query)
    }

    fn tokens_max(&self) -> usize {
        self.max_tokens.unwrap_or(budget::TOKENS).min(budget::TOKENS_MAX)
    }

    fn window(&self) -> Window {
        Window { after: self.after, limit: self.limit, tokens_max: Some(self.tokens_max()) }
    }
}

/// Takes percent signs out of a part of a URI.
fn decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                tail
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    String::from_utf8(bytes).ok()
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |view: &str, name: &str, title: &str, about: &str, mime: &str| {
        ResourceTemplate::new(format!("{}/{{id}}/{view}", address::SESSIONS), name)
            .with_title(title)
            .with_description(about)
            .with_mime_type(mime)
    };
    vec![
        template(
            "timeline{?after,limit,max_tokens}",
            "timeline",
            "Timeline",
            "All events of a session in order; next_after leads to the next page.",
            JSON,
        ),
        template("story{?max_tokens}", "story", "Story", "What a session did, step by step.", MARKDOWN),
        template("evolution{?max_tokens}", "evolution", "Evolution", "The files a session changed.", JSON),
        template(
            "evolution/{+path}{?after,limit,max_tokens}",
            "file-evolution",
            "Evolution of a file",
            "A file's revisions with their differences; next_after leads to the next page.",
            JSON,
        ),
        ResourceTemplate::new(
            format!("{}/{{id}}/evolution/{{+path}}{{?revision,side}}", address::SESSIONS),
            "file-content",
        )
        .with_title("Content of a file")
        .with_description("What a file held after a revision, or with side=before what it held before it."),
    ]
}

pub(super) async fn list(shared: &Shared, cursor: Option<String>) -> Result<ListResourcesResult, ErrorData> {
    let wrong = || ErrorData::invalid_params("the cursor is not one of this list", None);
    let before = match &cursor {
        Some(cursor) => {
            let (ns, id) = cursor.split_once(' ').ok_or_else(wrong)?;
            Some((ns.parse().map_err(|_| wrong())?, id))
        }
        None => None,
    };
    let failed = |e: LedgerError| Failure::from(e).into_error(ErrorCode::INTERNAL_ERROR);
    let mut read = shared.ledger().await.map_err(failed)?.read().await.map_err(failed)?;
    let sessions = session::list(&mut read, None, before, SESSIONS_PAGE).await.map_err(failed)?;
    let mut resources = Vec::new();
    if before.is_none() {
        let all = Resource::new(address::SESSIONS, "sessions").with_title("Sessions").with_mime_type(JSON);
        resources.push(all.with_description("All sessions, the most recently active first."));
    }
    for session in &sessions {
        let title = session.title.as_deref().unwrap_or(&session.id);
        for (view, mime) in [("timeline", JSON), ("story", MARKDOWN), ("evolution", JSON)] {
            let uri = address::view(&session.id, view);
            let name = format!("{view} of {}", session.id);
            resources
                .push(Resource::new(uri, name).with_title(format!("{title}: {view}")).with_mime_type(mime));
        }
    }
    let mut result = ListResourcesResult::with_all_items(resources);
    if sessions.len() as i64 == SESSIONS_PAGE {
        result.next_cursor = sessions.last().map(|s| format!("{} {}", s.last_activity_ns, s.id));
    }
    Ok(result)
}

pub(super) async fn read(shared: &Shared, uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let place = ResourceAddress::parse(uri).ok_or_else(|| unknown(uri))?;
    shared.settle().await;
    let contents = render(shared, &place, uri).await.map_err(|e| match e {
        ViewError::Ledger(e) => Failure::from(e).into_error(ErrorCode::INTERNAL_ERROR),
        other => {
            let data = json!({ "uri": uri, "hint": other.hint() });
            ErrorData::resource_not_found(other.to_string(), Some(data))
        }
    })?;
    Ok(ReadResourceResult::new(vec![contents]).into())
}

fn unknown(uri: &str) -> ErrorData {
    let message =
        format!("there is no resource {uri}: resources/list and resources/templates/list say what is");
    ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
}

async fn render(shared: &Shared, place: &ResourceAddress, uri: &str) -> Result<ResourceContents, ViewError> {
    let json = |text: String| ResourceContents::text(text, uri).with_mime_type(JSON);
    let mut read = shared.ledger().await?.read().await?;
    let Some(id) = place.session() else {
        let sessions = session::list(&mut read, None, None, views::PAGE_MAX).await?;
        let sessions: Vec<SessionView> = sessions.iter().map(SessionView::new).collect();
        return Ok(json(written(&json!({ "sessions": sessions }))));
    };
    let session = views::find_session(&mut read, id).await?;
    Ok(match place {
        ResourceAddress::Story(_, query) => {
            let mut story = story::read(&mut read, &session).await?;
            drop(read);
            narrative::add(shared, &mut story).await?;
            let story = story.fit(query.tokens_max());
            ResourceContents::text(story.markdown(), uri).with_mime_type(MARKDOWN)
        }
        ResourceAddress::Files(_, query) => {
            json(written(&evolution::files(&mut read, &session, Some(query.tokens_max())).await?))
        }
        ResourceAddress::File(_, path, Query { revision: Some(revision), side, .. }) => content(
            &content::read(&mut read, &session, path, StatePoint::Revision(*revision), *side).await?,
            uri,
        ),
        ResourceAddress::File(_, path, query) => {
            json(written(&evolution::read(&mut read, &session, path, query.window()).await?))
        }
        ResourceAddress::Sessions => json(String::new()),
        ResourceAddress::Timeline(_, query) => {
            json(written(&timeline::read(&mut read, &session, query.window()).await?))
        }
    })
}

/// Shows all of a content: as text, or as bytes where it is none.
fn content(content: &StoredContent, uri: &str) -> ResourceContents {
    match content.as_text() {
        Some(text) => ResourceContents::text(text, uri).with_mime_type(PLAIN),
        None => ResourceContents::blob(STANDARD.encode(&content.bytes), uri).with_mime_type(BYTES),
    }
}

fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// What one client of the older era follows, and how far it has been told.
#[derive(Default)]
pub(super) struct Subscriptions {
    uris: Mutex<BTreeMap<String, i64>>,
    is_running: AtomicBool,
}

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, i64>> {
        self.uris.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self, uri: &str) {
        self.lock().remove(uri);
    }
}

impl Recorder {
    /// Follows a resource on behalf of a client of the older era.
    pub(super) async fn subscribe_to(
        &self,
        uri: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let place = ResourceAddress::parse(&uri).ok_or_else(|| unknown(&uri))?;
        let version = version(&self.shared, &place)
            .await
            .map_err(|e| Failure::from(e).into_error(ErrorCode::INTERNAL_ERROR))?;
        {
            let mut uris = self.followed.lock();
            if uris.len() >= FOLLOWED_MAX && !uris.contains_key(&uri) {
                let message = format!("{FOLLOWED_MAX} resources are followed already: unsubscribe from some");
                return Err(ErrorData::invalid_request(message, None));
            }
            uris.insert(uri, version);
        }
        self.follow(context);
        Ok(())
    }

    /// Keeps a client of the older era told for as long as it is there.
    pub(super) fn follow(&self, context: &RequestContext<RoleServer>) {
        if self.followed.is_running.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shared, followed, peer) = (self.shared.clone(), self.followed.clone(), context.peer.clone());
        tokio::spawn(async move {
            let mut sessions = count(&shared).await.unwrap_or(0);
            while !peer.is_transport_closed() {
                shared.wait_for_news().await;
                if let Err(e) = tell(&shared, &followed, &peer, &mut sessions).await {
                    tracing::debug!(error = %e, "followers cannot be told");
                }
            }
        });
    }

    /// Keeps a client of the newer era told until it leaves.
    pub(super) async fn tell_while(&self, context: SubscriptionContext) {
        let accepted = context.accepted().clone();
        let uris = accepted.resource_subscriptions.clone().unwrap_or_default();
        let places: Vec<(String, ResourceAddress)> = uris
            .into_iter()
            .take(FOLLOWED_MAX)
            .filter_map(|uri| Some((uri.clone(), ResourceAddress::parse(&uri)?)))
            .collect();
        let mut versions = BTreeMap::new();
        for (uri, place) in &places {
            versions.insert(uri.clone(), version(&self.shared, place).await.unwrap_or(0));
        }
        let mut sessions = count(&self.shared).await.unwrap_or(0);
        loop {
            tokio::select! {
                () = context.cancelled() => return,
                () = self.shared.wait_for_news() => {}
            }
            for (uri, place) in &places {
                let Ok(now) = version(&self.shared, place).await else { continue };
                if versions.insert(uri.clone(), now) != Some(now)
                    && context.sink().notify_resource_updated(uri).await.is_err()
                {
                    return;
                }
            }
            let now = count(&self.shared).await.unwrap_or(sessions);
            if std::mem::replace(&mut sessions, now) != now && accepted.resources_list_changed == Some(true) {
                // Whoever is gone is noticed above.
                let _ = context.sink().notify_resource_list_changed().await;
            }
        }
    }
}

async fn tell(
    shared: &Shared,
    followed: &Subscriptions,
    peer: &Peer<RoleServer>,
    sessions: &mut i64,
) -> Result<(), LedgerError> {
    let uris: Vec<(String, i64)> = followed.lock().iter().map(|(uri, seen)| (uri.clone(), *seen)).collect();
    for (uri, seen) in uris {
        let Some(place) = ResourceAddress::parse(&uri) else { continue };
        let now = version(shared, &place).await?;
        if now != seen && followed.lock().insert(uri.clone(), now).is_some() {
            // A client that is gone is noticed by whoever calls.
            let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await;
        }
    }
    let now = count(shared).await?;
    if std::mem::replace(sessions, now) != now {
        let _ = peer.notify_resource_list_changed().await;
    }
    Ok(())
}

/// Returns a number that changes whenever a resource does.
async fn version(shared: &Shared, place: &ResourceAddress) -> Result<i64, LedgerError> {
    let mut read = shared.ledger().await?.read().await?;
    event::last(&mut read, place.session()).await
}

async fn count(shared: &Shared) -> Result<i64, LedgerError> {
    session::count(&mut shared.ledger().await?.read().await?).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found() {
        let check = |uri: &str, expected: Option<ResourceAddress>| {
            assert_eq!(ResourceAddress::parse(uri), expected, "{uri}")
        };
        let a = || "a".to_owned();
        check("scrubjay://sessions", Some(ResourceAddress::Sessions));
        check("scrubjay://sessions/a%20b/story", Some(ResourceAddress::Story("a b".to_owned(), Query::NONE)));
        check("scrubjay://sessions/a/timeline", Some(ResourceAddress::Timeline(a(), Query::NONE)));
        let page = Query { after: 3, limit: 5, max_tokens: Some(700), ..Query::NONE };
        check(
            "scrubjay://sessions/a/timeline?after=3&limit=5&max_tokens=700",
            Some(ResourceAddress::Timeline(a(), page)),
        );
        check("scrubjay://sessions/a/evolution", Some(ResourceAddress::Files(a(), Query::NONE)));
        let file = |query| Some(ResourceAddress::File(a(), "src/m n.rs".to_owned(), query));
        check("scrubjay://sessions/a/evolution/src/m%20n.rs", file(Query::NONE));
        let old = Query { revision: Some(7), side: Side::Before, ..Query::NONE };
        check("scrubjay://sessions/a/evolution/src/m%20n.rs?revision=7&side=before", file(old));
        for wrong in [
            "scrubjay://sessions/a/timeline?x=1",
            "scrubjay://sessions/a/timeline?revision=1",
            "scrubjay://sessions/a/evolution?revision=1",
            "scrubjay://sessions/a/evolution/x?side=before",
            "scrubjay://sessions/a/evolution/x?revision=1&side=beside",
            "scrubjay://sessions/a",
            "scrubjay://else",
            "scrubjay://sessions/%zz/story",
        ] {
            check(wrong, None);
        }
    }
}
