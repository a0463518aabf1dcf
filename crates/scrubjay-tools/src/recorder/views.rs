//! The views as tools, for hosts without resources: sessions, timeline, story, evolution.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_core::tokens::estimate_tokens;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::Read;
use scrubjay_store::ledger::blob::hex;
use scrubjay_store::ledger::session::{self, Session};
use scrubjay_store::views::address::{self, Side};
use scrubjay_store::views::budget::{self, Window};
use scrubjay_store::views::content::{self, StatePoint};
use scrubjay_store::views::{self, SessionView, evolution, story, timeline};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Recorder, narrative};
use crate::reply::{Failure, Reply, reply};

/// The default number of events on a page.
const EVENTS: i64 = 100;
/// The default number of revisions on a page.
const REVISIONS: i64 = 20;
/// The default number of sessions on a page.
const SESSIONS: i64 = 20;
/// The smallest token limit: there must be room for one item.
const TOKENS_MIN: u64 = 200;

#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionsArgs {
    /// Only sessions of this project.
    project_id: Option<String>,
    /// The most sessions to list; 20 by default.
    limit: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct TimelineArgs {
    /// The session's id, or a prefix of it. Left out: this connection's own.
    session_id: Option<String>,
    /// Begin after this event: next_after of the previous page.
    after: Option<i64>,
    /// The most events; 100 by default, 1000 at most.
    limit: Option<i64>,
    /// About how many tokens the answer may have; 8000 by default. The page ends when it is full.
    max_tokens: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct StoryArgs {
    /// The session's id, or a prefix of it. Left out: this connection's own.
    session_id: Option<String>,
    /// About how many tokens the answer may have; 8000 by default.
    max_tokens: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct EvolutionArgs {
    /// The session's id, or a prefix of it. Left out: this connection's own.
    session_id: Option<String>,
    /// One file, by its path in the workspace. Left out: the list of changed files.
    path: Option<String>,
    /// Begin after this revision: next_after of the previous page.
    after: Option<i64>,
    /// The most revisions; 20 by default, 1000 at most.
    limit: Option<i64>,
    /// With path: the file's content at this revision, instead of the differences.
    revision: Option<i64>,
    /// With revision: the content after it (the default) or before it.
    side: Option<SideArg>,
    /// With revision: begin at this byte: next_offset of the previous answer.
    offset: Option<u64>,
    /// About how many tokens the answer may have; 8000 by default. The page ends when it is full.
    max_tokens: Option<u64>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SideArg {
    After,
    Before,
}

/// A file's content at a revision, or a part of it.
#[derive(Serialize)]
struct ContentReply {
    path: String,
    revision: i64,
    event_id: i64,
    hash: String,
    /// The size of the whole content, in bytes.
    size: usize,
    /// utf-8, or base64 for binary content.
    encoding: &'static str,
    /// Missing if the content is binary and too long.
    content: Option<String>,
    /// The offset of this part, in bytes.
    offset: usize,
    /// The offset of the next part.
    next_offset: Option<usize>,
    /// The URI of the whole content.
    uri: String,
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

    /// Read everything that happened in a session, in order: plan steps, file changes, decisions, notes.
    #[tool(title = "Read the timeline", annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_timeline(
        &self,
        Parameters(args): Parameters<TimelineArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let (mut read, session) = self.open_session(args.session_id.as_deref(), &context).await?;
        let window = window(args.after, args.limit.unwrap_or(EVENTS), args.max_tokens);
        let page = timeline::read(&mut read, &session, window).await?;
        let mut text = page.events.iter().map(timeline::EventView::line).collect::<Vec<_>>().join("\n");
        if let Some(next) = page.next_after {
            text.push_str(&format!("\n… more after {next}"));
        }
        reply(text, &page)
    }

    /// Read a summary of a session, grouped by the steps of its plan: changed files, decisions, counts. Shorter than the
    /// timeline.
    #[tool(title = "Read the story", annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_story(
        &self,
        Parameters(args): Parameters<StoryArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let (mut read, session) = self.open_session(args.session_id.as_deref(), &context).await?;
        let mut story = story::read(&mut read, &session).await?;
        // A snapshot that stays open while the model is slow would keep the log of the database from shrinking.
        drop(read);
        narrative::add(&self.shared, &mut story).await?;
        let story = story.shorten_to(tokens_max(args.max_tokens));
        reply(story.markdown(), &story)
    }

    /// Read which files a session changed; with path, that file's revisions with their diffs; with path and revision, its
    /// content at that revision.
    #[tool(
        title = "Read the evolution of files",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn get_evolution(
        &self,
        Parameters(args): Parameters<EvolutionArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let (mut read, session) = self.open_session(args.session_id.as_deref(), &context).await?;
        let tokens_max = tokens_max(args.max_tokens);
        match (&args.path, args.revision) {
            (None, Some(_)) => Err(Failure::new(
                "PATH_REQUIRED",
                "revision is given without path",
                "Give the path of the file, too.",
            )),
            (None, None) => show_files(&evolution::files(&mut read, &session, Some(tokens_max)).await?),
            (Some(path), None) => {
                let window = window(args.after, args.limit.unwrap_or(REVISIONS), args.max_tokens);
                show_revisions(&evolution::read(&mut read, &session, path, window).await?)
            }
            (Some(path), Some(revision)) => {
                let side = match args.side {
                    Some(SideArg::Before) => Side::Before,
                    _ => Side::After,
                };
                let at = StatePoint::Revision(revision);
                let content = content::read(&mut read, &session, path, at, side).await?;
                let offset = usize::try_from(args.offset.unwrap_or(0)).unwrap_or(usize::MAX);
                show_content(&session, &content, offset, tokens_max)
            }
        }
    }

    async fn open_session(
        &self,
        named: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<(Read, Session), Failure> {
        // Changes that a crash left open are settled first: a view would show them as pending.
        self.shared.settle().await;
        let mut read = self.shared.ledger().await?.read().await?;
        let session = match named {
            Some(start) => views::find_session(&mut read, start).await?,
            None => session::of_caller(&mut read, &self.shared.caller(context)).await?.ok_or_else(|| {
                Failure::new(
                    "SESSION_NOT_FOUND",
                    "this connection has no session yet",
                    "Give the session_id of one that list_sessions shows, or begin one with record_session_start.",
                )
            })?,
        };
        Ok((read, session))
    }
}

fn tokens_max(asked: Option<u64>) -> usize {
    // Clamped, not refused: an agent that asks for too much or too little still gets an answer.
    let asked = asked.map_or(budget::TOKENS as u64, |asked| asked.max(TOKENS_MIN));
    usize::try_from(asked).unwrap_or(usize::MAX).min(budget::TOKENS_MAX)
}

fn window(after: Option<i64>, limit: i64, asked: Option<u64>) -> Window {
    Window { after: after.unwrap_or(0), limit, tokens_max: Some(tokens_max(asked)) }
}

fn show_files(files: &evolution::ChangedFiles) -> Reply {
    let line = |f: &evolution::FileView| {
        format!("{} ({}, +{} -{})", f.path, counted(f.revisions, "revision"), f.added, f.removed)
    };
    let mut text: Vec<String> = files.files.iter().map(line).collect();
    let left_out = files.total - files.files.len() as i64;
    if left_out > 0 {
        text.push(format!("… {} more: raise max_tokens", counted(left_out, "file")));
    }
    reply(text.join("\n"), files)
}

fn show_revisions(page: &evolution::Evolution) -> Reply {
    let revisions = page.revisions.iter().map(|r| {
        let mut text =
            format!("revision {} (event {}, {}, {})\n", r.id, r.event_id, r.source.name(), r.state.name());
        if let Some(content) = &r.initial_content {
            text.push_str(&format!("what was there before:\n{content}\n"));
        }
        text.push_str(&r.diff);
        if let Some(cut) = &r.cut {
            text.push_str(&format!("\n({cut})\n"));
        }
        text
    });
    let mut text = revisions.collect::<Vec<_>>().join("\n");
    if let Some(next) = page.next_after {
        text.push_str(&format!("\n… more after {next}"));
    }
    reply(text, page)
}

fn show_content(
    session: &Session,
    content: &content::StoredContent,
    offset: usize,
    tokens_max: usize,
) -> Reply {
    let revision = &content.revision;
    let uri = address::content(&session.id, &revision.path, revision.id, content.side);
    let piece = content.piece(offset, tokens_max);
    // Nobody can use a part of a binary file, so it is given whole or not at all.
    let whole = || Some(STANDARD.encode(&content.bytes)).filter(|text| estimate_tokens(text) <= tokens_max);
    let (encoding, text, offset, next_offset) = match piece {
        Some(piece) => ("utf-8", Some(piece.text.to_owned()), piece.offset, piece.next_offset),
        None => ("base64", whole(), 0, None),
    };
    let text_shown = match (encoding, &text, next_offset) {
        ("utf-8", Some(text), None) => text.clone(),
        ("utf-8", Some(text), Some(next)) => {
            format!("{text}\n… continue with offset {next}; the whole content is the resource {uri}")
        }
        _ => format!(
            "{} at revision {} is binary, {}: the whole content is the resource {uri}",
            revision.path,
            revision.id,
            counted(content.bytes.len(), "byte")
        ),
    };
    let answer = ContentReply {
        path: revision.path.clone(),
        revision: revision.id,
        event_id: revision.event_id,
        hash: hex(&content.hash),
        size: content.bytes.len(),
        encoding,
        content: text,
        offset,
        next_offset,
        uri,
    };
    reply(text_shown, &answer)
}
