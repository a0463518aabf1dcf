//! Questions to users about a task: whether a destructive call may be made, which tool is meant, what a model wants to
//! know.
//!
//! They are asked by elicitation, in the client's era. A client that cannot show forms is not asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::glob::Glob;
use scrubjay_core::inert::inert;
use scrubjay_core::protocol::method;
use scrubjay_router::{Candidate, PlannedCall};
use serde_json::{Value, json};

use super::super::eras::ask_client;
use crate::backend::Answer;
use crate::session::Call;

/// How long a user may take to answer; then it counts as no answer.
const ANSWER_MAX: Duration = Duration::from_secs(600);
/// How many tools a user is asked to choose from.
const CHOICES_MAX: usize = 5;
/// How many characters of a call's arguments are shown; the rest is cut.
const SHOWN_CHARS_MAX: usize = 500;
/// How many characters of a user's answer are passed on to the model; the rest is cut.
const ANSWER_CHARS_MAX: usize = 4000;
const NONE_OF_THESE: &str = "none of these";

/// First words of tools' names that count as destructive if the server does not say whether they are.
const DESTROYING: [&str; 14] = [
    "delete",
    "remove",
    "rm",
    "rmdir",
    "drop",
    "destroy",
    "erase",
    "wipe",
    "purge",
    "truncate",
    "unlink",
    "kill",
    "reset",
    "overwrite",
];

/// Which calls need the user's confirmation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// Whether destructive calls do.
    pub confirm_destructive: bool,
    /// Calls that count as destructive even if their server says otherwise: `backend/tool`.
    pub destructive: Vec<Glob>,
    /// Calls that need no confirmation, even destructive ones.
    pub allowed: Vec<Glob>,
}

impl Consent {
    /// Tells whether a call needs a confirmation.
    pub(super) fn is_needed(&self, plan: &PlannedCall, definition: Option<&Value>) -> bool {
        let name = plan.tool().unwrap_or(&plan.mcp_method);
        let full = format!("{}/{name}", plan.backend_id);
        let is_one_of = |patterns: &[Glob]| patterns.iter().any(|pattern| pattern.matches(&full));
        self.confirm_destructive
            && !is_one_of(&self.allowed)
            && (is_one_of(&self.destructive) || destroys(name, definition))
    }
}

/// Tells whether a call is destructive: by its server's hints, or else by its name.
fn destroys(name: &str, definition: Option<&Value>) -> bool {
    let hint = |key: &str| definition.and_then(|definition| definition["annotations"][key].as_bool());
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (Some(true), _) => false,
        (_, Some(is_destructive)) => is_destructive,
        _ => {
            // Servers put groups before names: in `fs/rm` only the last part is the verb.
            let last = name.rsplit(['/', '.', ':']).next().unwrap_or(name);
            DESTROYING.contains(&first_word(last).to_ascii_lowercase().as_str())
        }
    }
}

/// Returns the first word of a name like `delete_file` or `deleteFile`.
fn first_word(name: &str) -> &str {
    let mut after_lower = false;
    let end = name.find(|c: char| {
        let ends = !c.is_ascii_alphabetic() || (c.is_ascii_uppercase() && after_lower);
        after_lower = c.is_ascii_lowercase();
        ends
    });
    &name[..end.unwrap_or(name.len())]
}

/// Why a call was not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotConfirmed {
    /// The client cannot be asked.
    CannotAsk,
    /// The user declined, or did not answer.
    Declined,
}

impl NotConfirmed {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::CannotAsk => "needs_confirmation",
            Self::Declined => "declined",
        }
    }
}

impl fmt::Display for NotConfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CannotAsk => {
                "the client cannot be asked for a yes; call it directly, or allow it with router.allowed"
            }
            Self::Declined => "it was not confirmed",
        })
    }
}

/// Tells whether a client can show forms.
pub(super) fn can_ask(call: &Call) -> bool {
    let capabilities: Value = serde_json::from_str(&call.facts.capabilities).unwrap_or_default();
    let elicitation = &capabilities["elicitation"];
    // By the specification an empty capability means forms; one that names only URLs does not.
    elicitation.is_object() && (elicitation.get("form").is_some() || elicitation.get("url").is_none())
}

/// Asks the user to confirm a call.
pub(super) async fn confirm(call: &Arc<Call>, plan: &PlannedCall) -> Result<(), NotConfirmed> {
    if !can_ask(call) {
        return Err(NotConfirmed::CannotAsk);
    }
    let message = format!("Call {}? It may destroy something.", described(plan));
    // Unset by default: a form that is sent without a look must not confirm anything.
    let confirm = json!({ "type": "boolean", "title": "Call it", "default": false });
    let content = ask(call, &message, "confirm", &confirm).await;
    if content == Some(Value::Bool(true)) { Ok(()) } else { Err(NotConfirmed::Declined) }
}

/// Asks for confirmation of several calls, some of which may be destructive.
pub(super) async fn approve(call: &Arc<Call>, steps: &[(&PlannedCall, bool)]) -> Result<(), NotConfirmed> {
    if !can_ask(call) {
        return Err(NotConfirmed::CannotAsk);
    }
    let line = |(i, (plan, destroys)): (usize, &(&PlannedCall, bool))| {
        let end = if *destroys { " (it may destroy something)" } else { "" };
        format!("{}. {}{end}", i + 1, described(plan))
    };
    let lines: Vec<String> = steps.iter().enumerate().map(line).collect();
    let message = format!("Make these calls, one after the other?\n{}", lines.join("\n"));
    let confirm = json!({ "type": "boolean", "title": "Make them", "default": false });
    let content = ask(call, &message, "confirm", &confirm).await;
    if content == Some(Value::Bool(true)) { Ok(()) } else { Err(NotConfirmed::Declined) }
}

/// Describes a call to a person.
pub(super) fn described(plan: &PlannedCall) -> String {
    let (what, with) = match plan.tool() {
        Some(tool) => (tool, &plan.mcp_params["arguments"]),
        None => (plan.mcp_method.as_str(), &plan.mcp_params),
    };
    let with = with.to_string();
    let shown: String = with.chars().take(SHOWN_CHARS_MAX).collect();
    let more = if shown.len() < with.len() { "…" } else { "" };
    format!("{}/{} with {}{more}", plan.backend_id, inert(what), inert(&shown))
}

/// Asks the user which of the best candidates is meant.
pub(super) async fn ask_tool(call: &Arc<Call>, candidates: &[Candidate]) -> Option<Candidate> {
    let nearest = &candidates[..candidates.len().min(CHOICES_MAX)];
    let names = nearest.iter().map(|candidate| candidate.name.as_str());
    let choices: Vec<&str> = names.chain([NONE_OF_THESE]).collect();
    let tool = json!({ "type": "string", "title": "Tool", "enum": choices });
    let content = ask(call, "Which tool is meant?", "tool", &tool).await?;
    nearest.iter().find(|candidate| content.as_str() == Some(candidate.name.as_str())).cloned()
}

/// Asks the user what the model wants to know.
pub(super) async fn ask_detail(call: &Arc<Call>, question: &str) -> Option<String> {
    let answer = json!({ "type": "string", "title": "Answer" });
    let content = ask(call, question, "answer", &answer).await?;
    let answer: String = content.as_str()?.trim().chars().take(ANSWER_CHARS_MAX).collect();
    (!answer.is_empty()).then_some(answer)
}

/// Shows a form with one field, and returns its value if the user sent the form.
async fn ask(call: &Arc<Call>, message: &str, field: &str, schema: &Value) -> Option<Value> {
    let params = json!({
        "message": message,
        "requestedSchema": { "type": "object", "properties": { field: schema }, "required": [field] },
    });
    let params = params.to_string();
    let asked = ask_client(call, method::ELICITATION_CREATE, Some(&params));
    let Ok(Answer::Result(answer)) = tokio::time::timeout(ANSWER_MAX, asked).await else { return None };
    let mut answer: Value = serde_json::from_str(&answer).ok()?;
    (answer["action"] == "accept").then(|| answer["content"][field].take())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(tool: &str) -> PlannedCall {
        PlannedCall {
            backend_id: "files".to_owned(),
            mcp_method: "tools/call".to_owned(),
            mcp_params: json!({ "name": tool }),
        }
    }

    #[test]
    fn what_destroys_needs_a_yes() {
        let consent = Consent { confirm_destructive: true, ..Consent::default() };
        let needed =
            |tool: &str, hints: Value| consent.is_needed(&plan(tool), Some(&json!({ "annotations": hints })));
        assert!(needed("write_file", json!({ "destructiveHint": true })));
        assert!(!needed("write_file", json!({ "destructiveHint": true, "readOnlyHint": true })));
        assert!(!needed("delete_draft", json!({ "destructiveHint": false })));
        for tool in
            ["delete_file", "deleteFile", "Delete File", "rm", "fs/rm", "files.remove-all", "DROP_TABLE"]
        {
            assert!(needed(tool, json!({})), "{tool}");
        }
        for tool in ["read_file", "removed_items", "list", "format", "", "_delete"] {
            assert!(!needed(tool, json!(null)), "{tool}");
        }
        let method = PlannedCall { mcp_method: "fs/rm".to_owned(), mcp_params: json!({}), ..plan("") };
        assert!(consent.is_needed(&method, None));
    }

    #[test]
    fn the_owner_has_the_last_word() {
        let list = |patterns: &[&str]| patterns.iter().map(|pattern| Glob::new(pattern)).collect();
        let hints = json!({ "annotations": { "readOnlyHint": true } });
        let consent = Consent {
            confirm_destructive: true,
            destructive: list(&["files/read*", "web/*"]),
            allowed: list(&["files/delete_file"]),
        };
        assert!(consent.is_needed(&plan("read_file"), Some(&hints)));
        assert!(!consent.is_needed(&plan("list"), Some(&hints)));
        assert!(!consent.is_needed(&plan("delete_file"), None));
        assert!(consent.is_needed(&plan("delete_files"), None));
        let off = Consent { confirm_destructive: false, ..consent };
        assert!(!off.is_needed(&plan("read_file"), Some(&hints)));
    }
}
