//! The views as resources: `scrubjay://sessions`, and of each session timeline, story and evolution.
//!
//! Whoever subscribes hears of changes, those made by other processes too: the ledger is asked for its last
//! event, at once after a change of this process's own, else every second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ErrorCode, ListResourcesResult, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate, ResourceUpdatedNotificationParam,
};
use rmcp::service::{Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer};
use scrubjay_store::ledger::{LedgerError, event, session};
use scrubjay_store::views::{self, SessionView, ViewError, evolution, story, timeline};
use serde::Serialize;
use serde_json::json;

use super::{Recorder, narrative};
use crate::reply::Failure;
use crate::shared::Shared;

const SESSIONS_URI: &str = "scrubjay://sessions";
const JSON: &str = "application/json";
const MARKDOWN: &str = "text/markdown";
/// How many sessions one page of the list has.
const SESSIONS_PAGE: i64 = 50;
/// How many resources one client may follow.
const FOLLOWED_MAX: usize = 1000;

/// What a URI leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Sessions,
    Timeline(String, Paging),
    Story(String),
    Files(String),
    File(String, String, Paging),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Paging {
    after: i64,
    limit: i64,
}

impl Place {
    fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(SESSIONS_URI)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() || path == "/" {
            return Some(Self::Sessions);
        }
        let (id, view) = path.strip_prefix('/')?.split_once('/')?;
        let (id, paging) = (decode(id)?, Paging::parse(query)?);
        Some(match view {
            "timeline" => Self::Timeline(id, paging),
            "story" => Self::Story(id),
            "evolution" => Self::Files(id),
            _ => Self::File(id, decode(view.strip_prefix("evolution/")?)?, paging),
        })
    }

    /// Returns the session it is about.
    fn session(&self) -> Option<&str> {
        match self {
            Self::Sessions => None,
            Self::Timeline(id, _) | Self::Story(id) | Self::Files(id) | Self::File(id, ..) => Some(id),
        }
    }
}

impl Paging {
    fn parse(query: &str) -> Option<Self> {
        let mut paging = Self { after: 0, limit: 200 };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=')? {
                ("after", value) => paging.after = value.parse().ok()?,
                ("limit", value) => paging.limit = value.parse().ok()?,
                _ => return None,
            }
        }
        Some(paging)
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

/// Writes a session's id as a part of a URI.
fn encode(id: &str) -> String {
    id.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            other => out.push_str(&format!("%{other:02X}")),
        }
        out
    })
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |view: &str, name: &str, title: &str, about: &str, mime: &str| {
        ResourceTemplate::new(format!("{SESSIONS_URI}/{{id}}/{view}"), name)
            .with_title(title)
            .with_description(about)
            .with_mime_type(mime)
    };
    vec![
        template("timeline{?after,limit}", "timeline", "Timeline", "All events of a session in order.", JSON),
        template("story", "story", "Story", "What a session did, step by step.", MARKDOWN),
        template("evolution", "evolution", "Evolution", "The files a session changed.", JSON),
        template(
            "evolution/{+path}{?after,limit}",
            "file-evolution",
            "Evolution of a file",
            "A file's revisions with their differences.",
            JSON,
        ),
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
        let all = Resource::new(SESSIONS_URI, "sessions").with_title("Sessions").with_mime_type(JSON);
        resources.push(all.with_description("All sessions, the most recently active first."));
    }
    for session in &sessions {
        let title = session.title.as_deref().unwrap_or(&session.id);
        for (view, mime) in [("timeline", JSON), ("story", MARKDOWN), ("evolution", JSON)] {
            let uri = format!("{SESSIONS_URI}/{}/{view}", encode(&session.id));
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
    let place = Place::parse(uri).ok_or_else(|| unknown(uri))?;
    let (text, mime) = render(shared, &place).await.map_err(|e| match e {
        ViewError::Ledger(e) => Failure::from(e).into_error(ErrorCode::INTERNAL_ERROR),
        other => {
            let data = json!({ "uri": uri, "hint": other.hint() });
            ErrorData::resource_not_found(other.to_string(), Some(data))
        }
    })?;
    let contents = ResourceContents::text(text, uri).with_mime_type(mime);
    Ok(ReadResourceResult::new(vec![contents]).into())
}

fn unknown(uri: &str) -> ErrorData {
    let message =
        format!("there is no resource {uri}: resources/list and resources/templates/list say what is");
    ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
}

async fn render(shared: &Shared, place: &Place) -> Result<(String, &'static str), ViewError> {
    let mut read = shared.ledger().await?.read().await?;
    let Some(id) = place.session() else {
        let sessions = session::list(&mut read, None, None, views::PAGE_MAX).await?;
        let sessions: Vec<SessionView> = sessions.iter().map(SessionView::new).collect();
        return Ok((pretty(&json!({ "sessions": sessions })), JSON));
    };
    let session = views::find_session(&mut read, id).await?;
    Ok(match place {
        Place::Story(_) => {
            let mut story = story::read(&mut read, &session).await?;
            drop(read);
            narrative::add(shared, &mut story).await?;
            (story.markdown(), MARKDOWN)
        }
        Place::Files(_) => (pretty(&evolution::files(&mut read, &session).await?), JSON),
        Place::File(_, path, page) => {
            (pretty(&evolution::read(&mut read, &session, path, page.after, page.limit).await?), JSON)
        }
        Place::Sessions => (String::new(), JSON),
        Place::Timeline(_, page) => {
            (pretty(&timeline::read(&mut read, &session, page.after, page.limit).await?), JSON)
        }
    })
}

fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// What one client of the older era follows, and how far it has been told.
#[derive(Default)]
pub(super) struct Followed {
    uris: Mutex<BTreeMap<String, i64>>,
    is_running: AtomicBool,
}

impl Followed {
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
        let place = Place::parse(&uri).ok_or_else(|| unknown(&uri))?;
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
        let places: Vec<(String, Place)> = uris
            .into_iter()
            .take(FOLLOWED_MAX)
            .filter_map(|uri| Some((uri.clone(), Place::parse(&uri)?)))
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
    followed: &Followed,
    peer: &Peer<RoleServer>,
    sessions: &mut i64,
) -> Result<(), LedgerError> {
    let uris: Vec<(String, i64)> = followed.lock().iter().map(|(uri, seen)| (uri.clone(), *seen)).collect();
    for (uri, seen) in uris {
        let Some(place) = Place::parse(&uri) else { continue };
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
async fn version(shared: &Shared, place: &Place) -> Result<i64, LedgerError> {
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
        let check = |uri: &str, expected: Option<Place>| assert_eq!(Place::parse(uri), expected, "{uri}");
        let all = Paging { after: 0, limit: 200 };
        check("scrubjay://sessions", Some(Place::Sessions));
        check("scrubjay://sessions/a%20b/story", Some(Place::Story("a b".to_owned())));
        check("scrubjay://sessions/a/timeline", Some(Place::Timeline("a".to_owned(), all)));
        check(
            "scrubjay://sessions/a/timeline?after=3&limit=5",
            Some(Place::Timeline("a".to_owned(), Paging { after: 3, limit: 5 })),
        );
        check("scrubjay://sessions/a/evolution", Some(Place::Files("a".to_owned())));
        let file = Place::File("a".to_owned(), "src/m n.rs".to_owned(), all);
        check("scrubjay://sessions/a/evolution/src/m%20n.rs", Some(file));
        check("scrubjay://sessions/a/timeline?x=1", None);
        check("scrubjay://sessions/a", None);
        check("scrubjay://else", None);
        check("scrubjay://sessions/%zz/story", None);
    }
}
