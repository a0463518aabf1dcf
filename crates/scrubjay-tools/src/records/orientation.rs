//! `get_project_overview`, `search_records`, `list_records` and `get_record_ref`: tools that only read.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::records::activity::{self, ActivityFilter};
use scrubjay_store::ledger::records::collection::Totals;
use scrubjay_store::ledger::records::listing::{self, RecordFilter, TreePlace};
use scrubjay_store::ledger::records::search::{self, RecordSearch};
use scrubjay_store::ledger::records::{RecordId, RecordState, activation, require};
use serde::{Deserialize, Deserializer, Serialize};

use super::activity::ActivityView;
use super::project::ProjectView;
use super::view::{RefView, WorkflowState, ids, limit, refs, section, states};
use super::{ReadScope, Records};
use crate::reply::{Failure, Reply, reply};

/// How many records of each kind an overview shows. An overview is read at the start of every chat, so its size is
/// limited, and totals say how much there is.
const OVERVIEW_SHOWN: i64 = 50;
const SESSIONS_SHOWN: i64 = 20;
const SESSION_RECORDS_SHOWN: i64 = 50;
const ACTIVITY_SHOWN: i64 = 20;
const SEARCH_SHOWN: i64 = 20;
const SEARCH_MAX: i64 = 100;
const LIST_SHOWN: i64 = 100;
const LIST_MAX: i64 = 500;

#[derive(Deserialize, JsonSchema)]
pub(super) struct OverviewArgs {
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct SearchArgs {
    /// Words to search for; "words in quotes" must follow each other; begin* matches words that begin so.
    query: String,
    /// Only records of these types.
    types: Option<Vec<String>>,
    /// Only records in these states.
    states: Option<Vec<WorkflowState>>,
    /// Only records below this one, at any depth.
    parent_id: Option<String>,
    /// The most records to return. Default: 20, maximum: 100.
    limit: Option<i64>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct ListArgs {
    /// Only records in these states.
    states: Option<Vec<WorkflowState>>,
    /// Only records of these types.
    types: Option<Vec<String>>,
    /// Only children of this record; "" or null for the roots. Left out: the whole project.
    #[serde(default, deserialize_with = "nullable")]
    #[schemars(with = "Option<String>")]
    parent_id: Option<Option<String>>,
    /// How many levels down. Default: 1 below a parent or for the roots, else all.
    depth: Option<i64>,
    /// Begin after this record: next of the previous page.
    after: Option<String>,
    /// The most records to return. Default: 100, maximum: 500.
    limit: Option<i64>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

/// Distinguishes null from a missing argument: null means the roots, missing means the whole project.
fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct RefArgs {
    /// The record.
    id: String,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct OverviewReply {
    project: ProjectView,
    /// Sessions that have not ended, the most recently active first.
    open_sessions: Vec<OpenSessionView>,
    /// Records without a parent, the newest first.
    root_records: Vec<RefView>,
    /// OPEN records, the newest first.
    open_records: Vec<RefView>,
    /// LATER records, the newest first.
    later_records: Vec<RefView>,
    /// What happened last, the newest first.
    recent_activity: Vec<ActivityView>,
    /// How many there are in all; list_records shows the rest.
    totals: TotalsView,
}

#[derive(Serialize, JsonSchema)]
struct OpenSessionView {
    id: String,
    title: Option<String>,
    /// The records it has activated, at most 50.
    active_records: Vec<String>,
    active_count: i64,
    last_sync_tick: i64,
    /// How many writes it has not seen.
    tick_gap: i64,
    /// active or stale.
    status: &'static str,
}

#[derive(Serialize, JsonSchema)]
struct TotalsView {
    open_sessions: i64,
    records: i64,
    roots: i64,
    open: i64,
    later: i64,
    resolved: i64,
    discarded: i64,
}

impl TotalsView {
    fn new(totals: Totals, open_sessions: i64) -> Self {
        let Totals { records, roots, open, later, resolved, discarded } = totals;
        Self { open_sessions, records, roots, open, later, resolved, discarded }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SearchReply {
    /// The best matches, the best first.
    results: Vec<HitView>,
    /// How many match.
    total: i64,
    /// "all" if every word matches, "any" if no record has all of them.
    matched: &'static str,
    /// A note if only the newest matches were ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct HitView {
    #[serde(flatten)]
    record: RefView,
    /// How well it matches, from 0 to 1; the best match has 1.
    relevance: f64,
    /// The text around the first match, with matches between **.
    snippet: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ListReply {
    records: Vec<RefView>,
    /// How many there are without the limit.
    total: i64,
    /// Give it as `after` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[tool_router(router = orientation_tools, vis = "pub(super)")]
impl Records {
    /// Get an overview of a project: open sessions, root records, open and deferred records, recent activity. Call it at the
    /// start of every chat.
    #[tool(title = "Project overview", output_schema = crate::reply::schema::<OverviewReply>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_project_overview(
        &self,
        Parameters(args): Parameters<OverviewArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        // First, or sessions whose process is gone would be listed as open.
        self.shared.end_departed().await?;
        let mut at = self.read_scope(&context, args.project_id.as_deref()).await?;
        let (open_sessions, sessions) = self.sessions(&mut at).await?;
        let ReadScope { mut read, project, collection, .. } = at;
        let roots = listing::newest(&mut read, &collection, None, OVERVIEW_SHOWN).await?;
        let root_records = refs(&mut read, &collection, &roots).await?;
        let open = listing::newest(&mut read, &collection, Some(RecordState::Open), OVERVIEW_SHOWN).await?;
        let open_records = refs(&mut read, &collection, &open).await?;
        let later = listing::newest(&mut read, &collection, Some(RecordState::Later), OVERVIEW_SHOWN).await?;
        let later_records = refs(&mut read, &collection, &later).await?;
        let wanted = ActivityFilter { limit: ACTIVITY_SHOWN, ..ActivityFilter::default() };
        let recent = activity::recent(&mut read, &project.id, &wanted).await?;
        let totals = TotalsView::new(collection.totals, sessions);
        let mut text = format!(
            "Project {}: {}, at tick {}. {}, {} open, {} later; {}.\n",
            project.id,
            project.name,
            project.tick,
            counted(totals.records, "record"),
            totals.open,
            totals.later,
            counted(sessions, "open session")
        );
        text += &section("Roots", &root_records, totals.roots);
        text += &section("Open", &open_records, totals.open);
        text += &section("Later", &later_records, totals.later);
        let recent_activity: Vec<_> = recent.into_iter().map(ActivityView::from).collect();
        text += &ActivityView::lines("\nRecent activity\n", &recent_activity);
        let project = ProjectView::from(&project);
        reply(
            text,
            &OverviewReply {
                project,
                open_sessions,
                root_records,
                open_records,
                later_records,
                recent_activity,
                totals,
            },
        )
    }

    /// Find records by words in their titles, summaries, bodies and types. Returns the best matches in brief, with snippets;
    /// activate one to read it.
    #[tool(title = "Search records", output_schema = crate::reply::schema::<SearchReply>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn search_records(
        &self,
        Parameters(args): Parameters<SearchArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let ReadScope { mut read, collection, .. } =
            self.read_scope(&context, args.project_id.as_deref()).await?;
        let below = args.parent_id.as_deref().map(str::parse::<RecordId>).transpose()?;
        let search = RecordSearch {
            query: args.query,
            types: args.types.unwrap_or_default(),
            states: states(args.states),
            below,
            limit: limit(args.limit, SEARCH_SHOWN, SEARCH_MAX) as usize,
        };
        let found = search::search(&mut read, &collection, &search).await?;
        let mut results = Vec::new();
        let mut text = format!("Found {} for \"{}\"", counted(found.total, "record"), search.query);
        text += if found.all_words { ".\n" } else { "; none of them has all the words.\n" };
        for hit in found.hits {
            let views = refs(&mut read, &collection, std::slice::from_ref(&hit.now)).await?;
            for record in views {
                text += &format!("- {} [{}] {}: {}\n", record.id, record.state, record.title, hit.snippet);
                results.push(HitView { record, relevance: hit.relevance, snippet: hit.snippet.clone() });
            }
        }
        let note = found.newest_only.then(|| {
            format!(
                "Only the {} newest matches were ranked; add words to narrow the search.",
                search::RANKED_MAX
            )
        });
        let matched = if found.all_words { "all" } else { "any" };
        reply(text, &SearchReply { results, total: found.total, matched, note })
    }

    /// List records in brief, filtered by state, type and position in the tree.
    #[tool(title = "List records", output_schema = crate::reply::schema::<ListReply>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn list_records(
        &self,
        Parameters(args): Parameters<ListArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let ReadScope { mut read, collection, .. } =
            self.read_scope(&context, args.project_id.as_deref()).await?;
        let depth = args.depth.unwrap_or(1).max(1);
        // Schemas for models have no null (see `schema.rs`), so the empty text means the same.
        let parent = args.parent_id.map(|parent| parent.filter(|id| !id.is_empty()));
        let place = match (&parent, args.depth) {
            (Some(Some(parent)), _) => TreePlace::Below(parent.parse()?, depth),
            (Some(None), _) | (None, Some(_)) => TreePlace::Roots(depth),
            (None, None) => TreePlace::Anywhere,
        };
        let filter = RecordFilter {
            states: states(args.states),
            types: args.types.unwrap_or_default(),
            place,
            session: None,
            after: args.after.as_deref().map(str::parse::<RecordId>).transpose()?,
            limit: limit(args.limit, LIST_SHOWN, LIST_MAX),
        };
        let (page, total) = listing::list(&mut read, &collection, &filter).await?;
        let next =
            (page.len() as i64 == filter.limit).then(|| page.last().map(|r| r.id.to_string())).flatten();
        let records = refs(&mut read, &collection, &page).await?;
        let mut text = section("Records", &records, total.max(records.len() as i64));
        if records.is_empty() {
            "No records.".clone_into(&mut text);
        }
        reply(text.trim_start(), &ListReply { records, total, next })
    }

    /// Get one record in brief, without its body and without activating it.
    #[tool(title = "Get a record in brief", output_schema = crate::reply::schema::<RefView>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_record_ref(
        &self,
        Parameters(args): Parameters<RefArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let ReadScope { mut read, collection, .. } =
            self.read_scope(&context, args.project_id.as_deref()).await?;
        let now = require(&mut read, &collection, args.id.parse()?).await?;
        let view = refs(&mut read, &collection, &[now]).await?.remove(0);
        reply(view.line(), &view)
    }

    async fn sessions(&self, at: &mut ReadScope) -> Result<(Vec<OpenSessionView>, i64), Failure> {
        let open = activity::open_sessions(&mut at.read, &at.project.id, SESSIONS_SHOWN).await?;
        let mut views = Vec::new();
        for session in open {
            let (active, active_count) =
                activation::active(&mut at.read, &session.id, SESSION_RECORDS_SHOWN).await?;
            let stale = self.is_stale(at.project.tick, session.last_sync_tick);
            views.push(OpenSessionView {
                id: session.id,
                title: session.title,
                active_records: ids(&active),
                active_count,
                last_sync_tick: session.last_sync_tick,
                tick_gap: at.project.tick - session.last_sync_tick,
                status: if stale { "stale" } else { "active" },
            });
        }
        // Counted only if the list may be cut.
        let total = match views.len() as i64 {
            few if few < SESSIONS_SHOWN => few,
            _ => activity::count_open_sessions(&mut at.read, &at.project.id).await?,
        };
        Ok((views, total))
    }
}
