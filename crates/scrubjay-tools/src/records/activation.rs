//! `activate`: a record with everything needed to reason with it.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_store::ledger::records::activation::{self, Activation, SeenVersion};
use scrubjay_store::ledger::records::bundle::{self, Bundle};
use scrubjay_store::ledger::records::diff::of_bodies;
use scrubjay_store::ledger::records::{Record, RecordRef, RecordState, Scope, citation, full, history};
use scrubjay_store::ledger::{CommitDurability, Write};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Records;
use super::budget::{self, ContextView};
use super::time::iso;
use crate::reply::{Failure, Reply, reply};

#[derive(Deserialize, JsonSchema)]
pub(super) struct ActivateArgs {
    /// The record.
    id: String,
    /// Activate it without a warning although another session works on it. Set it only if the user agreed.
    #[serde(default, rename = "override")]
    overridden: bool,
    /// About how many tokens the answer may have. It is filled in this order: the record, its parent, open children,
    /// siblings, other children, grandchildren. What does not fit is left out and listed.
    max_tokens: Option<i64>,
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ActivateReply {
    /// The session in which it is active now.
    session_id: String,
    context: ContextView,
    /// Whether this session had activated it before.
    already_loaded: bool,
    /// What changed since this session last activated it.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<ChangedView>,
    /// Another session that also works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict: Option<ConflictView>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct ConflictView {
    session_id: String,
    last_activity: String,
    message: String,
}

#[derive(Serialize, JsonSchema)]
struct ChangedView {
    /// The version that this session saw before.
    from_version: i64,
    /// The version that it sees now.
    to_version: i64,
    /// Which fields of the record differ.
    fields: Vec<&'static str>,
    /// Who wrote the newest version.
    by_session: String,
    /// The diff of the body.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    diff: String,
    /// The ids of parent, children and grandchildren that other sessions have changed since.
    around: Vec<String>,
}

/// A warning before the record is used.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Warning {
    /// conflict, stale, orphan or suspect.
    #[serde(rename = "type")]
    kind: &'static str,
    message: String,
    details: Value,
}

#[tool_router(router = activation_tools, vis = "pub(super)")]
impl Records {
    /// Load a record and its context: the record, its parent and its open children with their bodies, other relatives in
    /// brief. Required before you change the record or create one below it. Warns if another session works on it, if
    /// you missed many changes, or if code that it cites has changed.
    #[tool(title = "Activate a record", output_schema = crate::reply::schema::<ActivateReply>(), annotations(destructive_hint = false, idempotent_hint = true, open_world_hint = false))]
    async fn activate(
        &self,
        Parameters(args): Parameters<ActivateArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        // Sessions whose process is gone are ended first: they are no reason to ask the user.
        self.shared.end_departed().await?;
        let (project, session) = (args.project_id.as_deref(), args.session_id.as_deref());
        // `Process`: an activation that is lost with the power is made again, as the next change demands.
        let (mut write, scope) =
            self.write_scope(&context, CommitDurability::Process, project, session).await?;
        let id = args.id.parse()?;
        let activated = activation::activate(&mut write, &scope, id, args.overridden).await?;
        let bundle = bundle::load(&mut write, &scope.collection, id).await?;
        let changed = match activated.before {
            Some(seen_version) => changed(&mut write, &scope, &bundle, seen_version).await?,
            None => None,
        };
        let conflict = conflict(&activated).filter(|_| !args.overridden);
        let mut warnings = self.warnings(&scope, &activated, &bundle);
        warnings.extend(conflict.clone().map(|conflict| Warning {
            kind: "conflict",
            message: conflict.message.clone(),
            details: json!({ "session_id": conflict.session_id, "last_activity": conflict.last_activity }),
        }));
        warnings.extend(suspects(&mut write, &scope, &bundle.target).await?);
        let siblings = match args.max_tokens {
            Some(_) => Some(bundle::siblings(&mut write, &scope.collection, &bundle.target.now).await?),
            None => None,
        };
        // Everything was read in the transaction that activated the record, so the versions that the session is said to have
        // seen are those in the answer.
        write.commit().await?;
        let context = budget::fit(&bundle, siblings, args.max_tokens, warnings);
        let mut text = context.text();
        if let Some(changed) = changed.as_ref().filter(|c| c.from_version != c.to_version) {
            text += &format!(
                "\nChanged since you last activated it (version {} → {}, by session {}): {}\n{}",
                changed.from_version,
                changed.to_version,
                changed.by_session,
                changed.fields.join(", "),
                changed.diff
            );
        }
        let already_loaded = activated.before.is_some();
        let session_id = scope.session.id;
        reply(text, &ActivateReply { session_id, context, already_loaded, changed, conflict })
    }

    fn warnings(&self, scope: &Scope, activated: &Activation, bundle: &Bundle) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let (tick, seen) = (activated.tick, scope.session.last_sync_tick);
        if self.is_stale(tick, seen) {
            warnings.push(Warning {
                kind: "stale",
                message: format!("{} writes occurred since your last sync; call sync_session", tick - seen),
                details: json!({ "project_tick": tick, "last_sync_tick": seen, "tick_gap": tick - seen }),
            });
        }
        let is_unfinished = [RecordState::Open, RecordState::Later].contains(&activated.now.state);
        let finished_parent = bundle.parent.as_ref().map(|parent| &parent.now).filter(|parent| {
            is_unfinished && [RecordState::Resolved, RecordState::Discarded].contains(&parent.state)
        });
        if let Some(RecordRef { id, state, .. }) = finished_parent {
            warnings.push(Warning {
                kind: "orphan",
                message: format!("its parent {id} is {}", state.name()),
                details: json!({ "parent_id": id, "parent_state": state }),
            });
        }
        warnings
    }
}

fn conflict(activated: &Activation) -> Option<ConflictView> {
    let other = activated.others.first()?;
    let more = match activated.others.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let last_activity = iso(other.last_activity_ns);
    let message = format!(
        "{} is also active in session {}{more}, last active at {last_activity}; ask the user before you change it",
        activated.now.id, other.session_id
    );
    Some(ConflictView { session_id: other.session_id.clone(), last_activity, message })
}

async fn changed(
    write: &mut Write,
    scope: &Scope,
    bundle: &Bundle,
    seen_version: SeenVersion,
) -> Result<Option<ChangedView>, Failure> {
    let (target, collection) = (&bundle.target, &scope.collection);
    let mut around = Vec::new();
    let whole = bundle.parent.iter().chain(&bundle.open).map(|record| &record.now);
    for now in
        whole.chain(&bundle.other).chain(&bundle.grandchildren).filter(|now| now.tick > seen_version.tick)
    {
        // A session's own changes are known to it.
        if history::author(write, collection, now.id, now.version).await? != scope.session.id {
            around.push(now.id.to_string());
        }
    }
    if seen_version.version == target.version && around.is_empty() {
        return Ok(None);
    }
    let old = full(write, collection, target.now.id, Some(seen_version.version)).await?;
    Ok(Some(ChangedView {
        from_version: seen_version.version,
        to_version: target.version,
        fields: old.content.differences(&target.content),
        by_session: history::author(write, collection, target.now.id, target.version).await?,
        diff: of_bodies(
            target.now.id,
            (seen_version.version, &old.content),
            (target.version, &target.content),
        ),
        around,
    }))
}

async fn suspects(write: &mut Write, scope: &Scope, target: &Record) -> Result<Option<Warning>, Failure> {
    if target.now.cited == 0 {
        return Ok(None);
    }
    let suspects = citation::suspects(write, &scope.collection, target.now.id).await?;
    let Some(first) = suspects.first() else { return Ok(None) };
    let details: Vec<_> =
        suspects.iter().map(|s| json!({ "citation": s.citation, "diff": s.diff })).collect();
    Ok(Some(Warning {
        kind: "suspect",
        message: format!("{} has changed since it was cited; check whether this still holds", first.citation),
        details: json!(details),
    }))
}

impl Warning {
    /// Writes it as one line.
    pub(super) fn line(&self) -> String {
        format!("Warning ({}): {}\n", self.kind, self.message)
    }
}
