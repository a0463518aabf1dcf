//! The views as tools, for hosts without resources: sessions, timeline, story, evolution.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_store::ledger::session::{self, Session};
use scrubjay_store::ledger::{LedgerError, Read};
use scrubjay_store::views::{self, SessionView, evolution, story, timeline};
use serde::Deserialize;
use serde_json::json;

use super::{Recorder, narrative};
use crate::reply::{Failure, Reply, reply};

/// How many events a page has where nobody says.
const EVENTS: i64 = 100;
/// How many revisions.
const REVISIONS: i64 = 20;
/// How many sessions.
const SESSIONS: i64 = 20;

#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionsArgs {
    /// Of this project alone.
    project_id: Option<String>,
    /// At most so many; 20 by default.
    limit: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct TimelineArgs {
    /// The session, or the beginning of its id. Left out: this connection's own.
    session_id: Option<String>,
    /// Begin after this event: next_after of the page before.
    after: Option<i64>,
    /// At most so many events; 100 by default, 1000 at most.
    limit: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct StoryArgs {
    /// The session, or the beginning of its id. Left out: this connection's own.
    session_id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct EvolutionArgs {
    /// The session, or the beginning of its id. Left out: this connection's own.
    session_id: Option<String>,
    /// One file, by its path in the workspace. Left out: the list of changed files.
    path: Option<String>,
    /// Begin after this revision: next_after of the page before.
    after: Option<i64>,
    /// At most so many revisions; 20 by default, 1000 at most.
    limit: Option<i64>,
}

#[tool_router(router = view_tools, vis = "pub(super)")]
impl Recorder {
    /// List sessions, the most recently active first.
    #[tool(title = "List sessions", annotations(read_only_hint = true, open_world_hint = false))]
    async fn list_sessions(&self, Parameters(args): Parameters<SessionsArgs>) -> Reply {
        let mut read = self.shared.ledger().await?.read().await?;
        let limit = args.limit.unwrap_or(SESSIONS).clamp(1, views::PAGE_MAX);
        let sessions = session::list(&mut read, args.project_id.as_deref(), None, limit).await?;
        let sessions: Vec<SessionView> = sessions.iter().map(SessionView::new).collect();
        let line = |s: &SessionView| {
            format!(
                "{} {} {} ({})",
                s.id,
                s.status,
                s.title.as_deref().unwrap_or("untitled"),
                s.last_activity
            )
        };
        let text: Vec<String> = sessions.iter().map(line).collect();
        reply(text.join("\n"), &json!({ "sessions": sessions }))
    }

    /// Read a session's events in order.
    #[tool(title = "Read the timeline", annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_timeline(
        &self,
        Parameters(args): Parameters<TimelineArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let (mut read, session) = self.look_at(args.session_id.as_deref(), &context).await?;
        let (after, limit) = (args.after.unwrap_or(0), args.limit.unwrap_or(EVENTS));
        let page = timeline::read(&mut read, &session, after, limit).await?;
        let lines = page.events.iter().map(|e| format!("{} {} {}: {}", e.id, e.at, e.kind.name(), e.summary));
        let mut text = lines.collect::<Vec<_>>().join("\n");
        if let Some(next) = page.next_after {
            text.push_str(&format!("\n… more after {next}"));
        }
        reply(text, &page)
    }

    /// Read what a session did, step by step: files, decisions, numbers.
    #[tool(title = "Read the story", annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_story(
        &self,
        Parameters(args): Parameters<StoryArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let (mut read, session) = self.look_at(args.session_id.as_deref(), &context).await?;
        let mut story = story::read(&mut read, &session).await?;
        drop(read);
        narrative::add(&self.shared, &mut story).await?;
        reply(story.markdown(), &story)
    }

    /// Read which files a session changed, or one file's revisions with their differences.
    #[tool(
        title = "Read the evolution of files",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn get_evolution(
        &self,
        Parameters(args): Parameters<EvolutionArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let (mut read, session) = self.look_at(args.session_id.as_deref(), &context).await?;
        let Some(path) = args.path else {
            let files = evolution::files(&mut read, &session).await?;
            let line = |f: &evolution::FileView| {
                format!("{} ({} revisions, +{} -{})", f.path, f.revisions, f.added, f.removed)
            };
            let text: Vec<String> = files.files.iter().map(line).collect();
            return reply(text.join("\n"), &files);
        };
        let (after, limit) = (args.after.unwrap_or(0), args.limit.unwrap_or(REVISIONS));
        let page = evolution::read(&mut read, &session, &path, after, limit).await?;
        let revisions = page.revisions.iter().map(|r| {
            format!(
                "revision {} (event {}, {}, {})\n{}",
                r.id,
                r.event_id,
                r.source.name(),
                r.state.name(),
                r.diff
            )
        });
        reply(revisions.collect::<Vec<_>>().join("\n"), &page)
    }

    async fn look_at(
        &self,
        named: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<(Read, Session), Failure> {
        let mut read = self.shared.ledger().await?.read().await?;
        let session = match named {
            Some(start) => views::find_session(&mut read, start).await?,
            None => own(&mut read, &self.shared.caller(context)).await?.ok_or_else(|| {
                Failure::new(
                    "SESSION_NOT_FOUND",
                    "this connection has no session yet",
                    "Name one of list_sessions, or begin one with record_session_start.",
                )
            })?,
        };
        Ok((read, session))
    }
}

async fn own(read: &mut Read, caller: &session::Caller) -> Result<Option<Session>, LedgerError> {
    session::of_caller(read, caller).await
}
