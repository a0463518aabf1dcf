//! `create_project`, `list_projects` and `get_project`.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::CommitDurability;
use scrubjay_store::ledger::project::{self, Project};
use scrubjay_store::ledger::records::{activity, collection};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Records;
use super::time::iso;
use super::view::limit;
use crate::reply::{Failure, Reply, reply};
use crate::shared::random_id;

const ID_CHARS_MAX: usize = 100;
const NAME_CHARS_MAX: usize = 200;
const DESCRIPTION_CHARS_MAX: usize = 5_000;
/// The most projects on a page, and the default.
const PROJECTS_SHOWN: i64 = 100;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateArgs {
    /// The id, such as "my-app-design". Left out: a random one.
    id: Option<String>,
    /// The name that people read.
    name: String,
    /// What it is about.
    description: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct ListArgs {
    /// Begin after this project: next of the previous page.
    after: Option<String>,
    /// The most projects to list. Default and maximum: 100.
    limit: Option<i64>,
}

// Unknown arguments are refused: agents give `project_id`, as to the other tools, and would get the default project.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetArgs {
    /// The project. Left out: the default one.
    id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ProjectView {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) created: String,
    /// Counts the writes to the project.
    pub(super) tick: i64,
}

impl From<&Project> for ProjectView {
    fn from(project: &Project) -> Self {
        Self {
            id: project.id.clone(),
            name: project.name.clone(),
            description: project.description.clone(),
            created: iso(project.created_ns),
            tick: project.tick,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ListReply {
    projects: Vec<Listed>,
    /// Give it as `after` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Listed {
    id: String,
    name: String,
    description: Option<String>,
    tick: i64,
    /// How many sessions have not ended.
    open_sessions: i64,
    /// How many records are OPEN.
    open_records: i64,
}

#[tool_router(router = project_tools, vis = "pub(super)")]
impl Records {
    /// Create a project: a body of work with its own records and sessions. Usually not needed, because the default project
    /// exists.
    #[tool(title = "Create a project", output_schema = crate::reply::schema::<ProjectView>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn create_project(&self, Parameters(args): Parameters<CreateArgs>) -> Reply {
        let id = args.id.unwrap_or_else(random_id);
        let description = args.description.as_deref();
        for (what, text, chars_max) in [
            ("id", id.as_str(), ID_CHARS_MAX),
            ("name", args.name.trim(), NAME_CHARS_MAX),
            // It may be left out, unlike the others. "-" then passes the checks in its place.
            ("description", description.unwrap_or("-"), DESCRIPTION_CHARS_MAX),
        ] {
            let controls = what != "description" && text.chars().any(char::is_control);
            if text.is_empty() || text.chars().count() > chars_max || controls || text.contains('\0') {
                return Err(Failure::new(
                    "INVALID_PROJECT",
                    format!("{what} must have 1 to {chars_max} characters, and no control characters"),
                    "Correct it and call again.",
                ));
            }
        }
        let mut write = self.shared.ledger().await?.write(CommitDurability::Power).await?;
        if !project::insert(&mut write, &id, args.name.trim(), description).await? {
            return Err(Failure::new(
                "PROJECT_EXISTS",
                format!("a project with the id \"{id}\" exists already"),
                "Give it as project_id to work in it, or choose another id.",
            )
            .with(json!({ "id": id })));
        }
        let created = project::get(&mut write, &id).await?;
        write.commit().await?;
        let created = created.as_ref().map(ProjectView::from);
        reply(format!("Created project {id}. Give project_id \"{id}\" to work in it."), &created)
    }

    /// List all projects with their open sessions and open records.
    #[tool(title = "List projects", output_schema = crate::reply::schema::<ListReply>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn list_projects(&self, Parameters(args): Parameters<ListArgs>) -> Reply {
        let limit = limit(args.limit, PROJECTS_SHOWN, PROJECTS_SHOWN);
        let mut read = self.shared.ledger().await?.read().await?;
        let all = project::list(&mut read, args.after.as_deref().unwrap_or_default(), limit).await?;
        // A full page may be the last one; the page after it is then empty.
        let next = (all.len() as i64 == limit).then(|| all.last().map(|p| p.id.clone())).flatten();
        let mut projects = Vec::new();
        let mut text = format!("{} projects\n", all.len());
        for project in all {
            let collection = collection::open(&mut read, &project.id).await?;
            let open_sessions = activity::count_open_sessions(&mut read, &project.id).await?;
            let open_records = collection.totals.open;
            text +=
                &format!("- {}: {} ({})\n", project.id, project.name, counted(open_records, "open record"));
            let Project { id, name, description, tick, .. } = project;
            projects.push(Listed { id, name, description, tick, open_sessions, open_records });
        }
        reply(text, &ListReply { projects, next })
    }

    /// Get a project's name, description and tick. get_project_overview shows what is in it.
    #[tool(title = "Get a project", output_schema = crate::reply::schema::<ProjectView>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_project(
        &self,
        Parameters(args): Parameters<GetArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let project = self.read_scope(&context, args.id.as_deref()).await?.project;
        let text = format!("Project {}: {}, at tick {}.", project.id, project.name, project.tick);
        reply(text, &ProjectView::from(&project))
    }
}
