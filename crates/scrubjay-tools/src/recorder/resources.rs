//! The views as resources: `scrubjay://sessions`, and for each session its timeline, story, evolution and the contents of
//! file revisions.
//!
//! `address.rs` parses their URIs, `subscriptions.rs` notifies subscribers of changes.

mod address;
mod subscriptions;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::ErrorData;
use rmcp::model::{
    ErrorCode, ListResourcesResult, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};
use scrubjay_store::ledger::{LedgerError, session};
use scrubjay_store::views::address::{SESSIONS, view as view_uri};
use scrubjay_store::views::content::{self, StatePoint, StoredContent};
use scrubjay_store::views::{self, SessionView, ViewError, evolution, story, timeline};
use serde::Serialize;
use serde_json::json;

use super::narrative;
use crate::reply::Failure;
use crate::shared::Shared;

use self::address::{Query, ResourceAddress};
pub(super) use self::subscriptions::Subscriptions;

const JSON: &str = "application/json";
const MARKDOWN: &str = "text/markdown";
const PLAIN: &str = "text/plain";
const BYTES: &str = "application/octet-stream";
/// How many sessions a page of the list has; each is three resources.
const SESSIONS_PAGE: i64 = 50;

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |view: &str, name: &str, title: &str, about: &str, mime: &str| {
        ResourceTemplate::new(format!("{}/{{id}}/{view}", SESSIONS), name)
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
            format!("{}/{{id}}/evolution/{{+path}}{{?revision,side}}", SESSIONS),
            "file-content",
        )
        .with_title("Content of a file")
        .with_description("The content of a file after a revision; with side=before, before it."),
    ]
}

pub(super) async fn list(shared: &Shared, cursor: Option<String>) -> Result<ListResourcesResult, ErrorData> {
    let wrong =
        || ErrorData::invalid_params("the cursor is not from this list: begin again without one", None);
    // The last session of a page, with its time: sessions that become active in between do not shift the next page.
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
        let all = Resource::new(SESSIONS, "sessions").with_title("Sessions").with_mime_type(JSON);
        resources.push(all.with_description("All sessions, the most recently active first."));
    }
    for session in &sessions {
        let title = session.title.as_deref().unwrap_or(&session.id);
        for (view, mime) in [("timeline", JSON), ("story", MARKDOWN), ("evolution", JSON)] {
            let uri = view_uri(&session.id, view);
            let name = format!("{view} of {}", session.id);
            resources
                .push(Resource::new(uri, name).with_title(format!("{title}: {view}")).with_mime_type(mime));
        }
    }
    let mut result = ListResourcesResult::with_all_items(resources);
    // A full page may be the last one; the page after it is then empty.
    if sessions.len() as i64 == SESSIONS_PAGE {
        result.next_cursor = sessions.last().map(|s| format!("{} {}", s.last_activity_ns, s.id));
    }
    Ok(result)
}

pub(super) async fn read(shared: &Shared, uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let address = ResourceAddress::parse(uri).ok_or_else(|| unknown(uri))?;
    shared.settle().await;
    // Only the ledger can fail; everything else means that what the address names does not exist.
    let contents = render(shared, &address, uri).await.map_err(|e| match e {
        ViewError::Ledger(e) => Failure::from(e).into_error(ErrorCode::INTERNAL_ERROR),
        other => {
            let data = json!({ "uri": uri, "hint": other.hint() });
            ErrorData::resource_not_found(other.to_string(), Some(data))
        }
    })?;
    Ok(ReadResourceResult::new(vec![contents]).into())
}

fn unknown(uri: &str) -> ErrorData {
    let message = format!("there is no resource {uri}: see resources/list and resources/templates/list");
    ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
}

async fn render(
    shared: &Shared,
    address: &ResourceAddress,
    uri: &str,
) -> Result<ResourceContents, ViewError> {
    let json = |text: String| ResourceContents::text(text, uri).with_mime_type(JSON);
    let mut read = shared.ledger().await?.read().await?;
    let Some(id) = address.session() else {
        let sessions = session::list(&mut read, None, None, views::PAGE_MAX).await?;
        let sessions: Vec<SessionView> = sessions.iter().map(SessionView::new).collect();
        return Ok(json(to_json(&json!({ "sessions": sessions }))));
    };
    let session = views::find_session(&mut read, id).await?;
    Ok(match address {
        ResourceAddress::Story(_, query) => {
            let mut story = story::read(&mut read, &session).await?;
            // As in `get_story`: no read stays open while the model works.
            drop(read);
            narrative::add(shared, &mut story).await?;
            let story = story.shorten_to(query.tokens_max());
            ResourceContents::text(story.markdown(), uri).with_mime_type(MARKDOWN)
        }
        ResourceAddress::Files(_, query) => {
            json(to_json(&evolution::files(&mut read, &session, Some(query.tokens_max())).await?))
        }
        ResourceAddress::File(_, path, Query { revision: Some(revision), side, .. }) => content(
            &content::read(&mut read, &session, path, StatePoint::Revision(*revision), *side).await?,
            uri,
        ),
        ResourceAddress::File(_, path, query) => {
            json(to_json(&evolution::read(&mut read, &session, path, query.window()).await?))
        }
        // Answered above: it has no session.
        ResourceAddress::Sessions => json(String::new()),
        ResourceAddress::Timeline(_, query) => {
            json(to_json(&timeline::read(&mut read, &session, query.window()).await?))
        }
    })
}

/// Returns a whole content: as text, or as a blob if it is binary.
fn content(content: &StoredContent, uri: &str) -> ResourceContents {
    match content.as_text() {
        Some(text) => ResourceContents::text(text, uri).with_mime_type(PLAIN),
        None => ResourceContents::blob(STANDARD.encode(&content.bytes), uri).with_mime_type(BYTES),
    }
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
