//! `record_session_start` and `record_session_end`.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::session::{
    self, MESSAGE_CHARS_MAX, Session, SessionError, SessionStart, StartOutcome, TITLE_CHARS_MAX,
};
use scrubjay_store::ledger::{CommitDurability, event};
use serde::{Deserialize, Serialize};

use super::{Recorder, limits};
use crate::reply::{Reply, reply};

#[derive(Deserialize, JsonSchema)]
pub(super) struct StartArgs {
    /// An id to choose for a new session, or the id of one to resume. Left out: this connection's own session.
    id: Option<String>,
    /// What the session is about, in a few words.
    title: Option<String>,
    /// What the user asked for.
    user_message: Option<String>,
    /// The session this one branches off from.
    parent_session: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct EndArgs {
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// A summary of the result.
    summary: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SessionReply {
    /// The session's id.
    session_id: String,
    /// The project it belongs to.
    project_id: String,
    /// What the session is about.
    title: Option<String>,
    /// active or closed.
    status: &'static str,
    /// Whether the session existed before.
    resumed: bool,
    /// How many events it has.
    events: i64,
}

impl SessionReply {
    fn new(session: &Session, resumed: bool, events: i64) -> Self {
        Self {
            session_id: session.id.clone(),
            project_id: session.project_id.clone(),
            title: session.title.clone(),
            status: if session.ended_ns.is_some() { "closed" } else { "active" },
            resumed,
            events,
        }
    }
}

#[tool_router(router = session_tools, vis = "pub(super)")]
impl Recorder {
    /// Give this connection's session a title, begin another, or resume an earlier one by its id. A session begins by itself
    /// with your first call, so this is optional.
    #[tool(title = "Start a session", output_schema = crate::reply::schema::<SessionReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn record_session_start(
        &self,
        Parameters(args): Parameters<StartArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        limits::check("title", args.title.as_deref(), TITLE_CHARS_MAX)?;
        limits::check("user_message", args.user_message.as_deref(), MESSAGE_CHARS_MAX)?;
        let caller = self.shared.caller(&context);
        let beginning = SessionStart {
            id: args.id,
            title: args.title,
            user_message: args.user_message,
            parent_session: args.parent_session,
        };
        let mut write = self.shared.ledger().await?.write(CommitDurability::Power).await?;
        let (session, started) = session::start(&mut write, &caller, beginning).await?;
        // Counted in the same transaction, so that the number includes the event of this call.
        let events = event::count(&mut write, &session.id).await?;
        write.commit().await?;
        self.shared.notify_written();
        let resumed = started == StartOutcome::Resumed;
        let verb = if resumed { "continues" } else { "began" };
        let text = format!("Session {} {verb} in project {}.", session.id, session.project_id);
        reply(text, &SessionReply::new(&session, resumed, events))
    }

    /// End the session, with a summary of its result. Everything recorded is on disk when this returns. Your next call
    /// begins another session.
    #[tool(title = "End the session", output_schema = crate::reply::schema::<SessionReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn record_session_end(
        &self,
        Parameters(args): Parameters<EndArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        limits::check("summary", args.summary.as_deref(), MESSAGE_CHARS_MAX)?;
        let caller = self.shared.caller(&context);
        let mut write = self.shared.ledger().await?.write(CommitDurability::Power).await?;
        // Ending a session twice is not an error: an agent cannot know that another connection ended it.
        let session = match session::current(&mut write, &caller, args.session_id.as_deref()).await {
            Err(SessionError::Ended(id)) => {
                session::get(&mut write, &id).await?.ok_or(SessionError::NotFound(id))?
            }
            current => current?,
        };
        let already_closed = session.ended_ns.is_some();
        let session = match already_closed {
            true => session,
            false => session::end(&mut write, &caller, session, args.summary.as_deref()).await?,
        };
        let events = event::count(&mut write, &session.id).await?;
        write.commit().await?;
        self.shared.notify_written();
        let text = if already_closed {
            format!("Session {} had already ended.", session.id)
        } else {
            format!("Session {} ended with {}.", session.id, counted(events, "event"))
        };
        reply(text, &SessionReply::new(&session, already_closed, events))
    }
}
