//! The answer to a task: the backend's result with the choice added to it, or why there is none.

use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, Splice};
use scrubjay_core::protocol::{code, meta, result};
use scrubjay_core::redact::cut;
use scrubjay_core::units::counted;
use scrubjay_router::{NoCall, PlannedCall, RouteResult, RouteTask, ToolPresentation};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::elicitation::NotConfirmed;

const NO_ACTION_TEXT: &str = "AI orchestrator could not determine an action for your query.";
/// How many characters of a backend's error message are repeated.
const SUMMARY_CHARS_MAX: usize = 500;

/// Why a task has no result.
pub(super) struct Refusal {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl Refusal {
    pub(super) fn new(code: i64, message: &str) -> Self {
        Self { code, message: message.to_owned(), data: None }
    }

    /// Refuses a task that is not valid.
    pub(super) fn params(problems: &[Value]) -> Self {
        let words = |p: &Value| {
            format!("{} {}", p["path"].as_str().unwrap_or(""), p["message"].as_str().unwrap_or(""))
        };
        let all: Vec<String> = problems.iter().map(|p| words(p).trim().to_owned()).collect();
        let message = format!("the task is not valid: {}", all.join("; "));
        Self { code: code::INVALID_PARAMS, message, data: Some(json!({ "problems": problems })) }
    }

    /// Says why no call was chosen, and which tools match best.
    pub(super) fn no_call(task: &RouteTask, route: &RouteResult, why: &NoCall) -> Self {
        let mut data = alternatives(task, route, why.reason());
        if let Some(missing) = why.missing() {
            data["missing"] = missing.into();
        }
        Self {
            code: code::NO_ACTION,
            message: format!("{NO_ACTION_TEXT} {}", sentence(&why.to_string())),
            data: Some(data),
        }
    }

    /// Says that a call was not made because it was not confirmed.
    pub(super) fn unconfirmed(
        task: &RouteTask,
        route: &RouteResult,
        plan: &PlannedCall,
        why: NotConfirmed,
    ) -> Self {
        let mut data = alternatives(task, route, why.reason());
        data["plan"] = json!(plan);
        let what = plan.tool().unwrap_or(&plan.mcp_method);
        let message = format!("{}/{what} may destroy something and was not called: {why}.", plan.backend_id);
        Self { code: code::NO_ACTION, message, data: Some(data) }
    }

    /// Says that the calls of a plan were not made because they were not confirmed.
    pub(super) fn unapproved(
        task: &RouteTask,
        route: &RouteResult,
        steps: &[PlannedCall],
        why: NotConfirmed,
    ) -> Self {
        let mut data = alternatives(task, route, why.reason());
        data["steps"] = json!(steps);
        let message = match why {
            NotConfirmed::CannotAsk => "the client cannot be asked for a yes; call the steps directly",
            NotConfirmed::Declined => "they were not confirmed",
        };
        let message = format!("{}, none of which was made: {message}.", counted(steps.len(), "planned call"));
        Self { code: code::NO_ACTION, message, data: Some(data) }
    }

    /// Adds the steps that were done before.
    pub(super) fn after(mut self, done: &[Value]) -> Self {
        self.message = format!("stopped at step {}: {}", done.len() + 1, self.message);
        if let Some(data) = &mut self.data {
            data["done"] = json!(done);
        }
        self
    }

    /// Passes on a backend's error.
    pub(super) fn backend(plan: &PlannedCall, error: &Value, chosen: Value) -> Self {
        let summary = cut(error["message"].as_str().unwrap_or("it failed"), SUMMARY_CHARS_MAX);
        let what = plan.tool().unwrap_or(&plan.mcp_method);
        let message = format!("{}/{what} failed: {summary}", plan.backend_id);
        let data = json!({ "backend": plan.backend_id, "error": error, "chosen": chosen });
        Self { code: error["code"].as_i64().unwrap_or(code::INTERNAL), message, data: Some(data) }
    }

    /// Writes it as the error of a request; `data` also has the code and hint that errors of tools have.
    pub(super) fn error(&self) -> String {
        let mut data = self.data.clone().unwrap_or_else(|| json!({}));
        (data["code"], data["hint"]) = (self.name().into(), self.hint().into());
        message::error(self.code, &self.message, Some(&data))
    }

    /// Returns the code for programs.
    fn name(&self) -> &'static str {
        match self.code {
            // First: its number is the backend's own, and may be any of those below.
            _ if self.is_about("backend") => "BACKEND_FAILED",
            code::INVALID_PARAMS => "INVALID_ARGUMENT",
            code::NOT_INITIALIZED => "NOT_INITIALIZED",
            code::NO_ACTION => "NO_ACTION",
            _ => "ROUTER",
        }
    }

    /// Returns what to do next.
    fn hint(&self) -> &'static str {
        match self.name() {
            "INVALID_ARGUMENT" => "Nothing was done. Correct the task as `problems` says, and send it again.",
            "NOT_INITIALIZED" => "Send `initialize` first.",
            "NO_ACTION" => "Call one of the `candidates` directly, or say more precisely what is to be done.",
            "BACKEND_FAILED" => "Look at the error, and call the tool directly with other arguments.",
            _ => "Call a tool directly.",
        }
    }

    fn is_about(&self, key: &str) -> bool {
        self.data.as_ref().is_some_and(|data| data.get(key).is_some())
    }

    /// Writes it as a tool's result. The text repeats the data, for hosts that show a model only the text.
    pub(super) fn tool_result(&self) -> Value {
        let error = json!({
            "code": self.name(), "message": self.message, "hint": self.hint(), "recovery_hint": self.hint(),
            "details": self.data,
        });
        let text = match &self.data {
            Some(data) => format!("{}\n{data}", self.message),
            None => self.message.clone(),
        };
        json!({
            "content": [{ "type": "text", "text": text }],
            "structuredContent": { "error": error },
            "isError": true,
        })
    }
}

fn alternatives(task: &RouteTask, route: &RouteResult, reason: &str) -> Value {
    json!({
        "query": task.query,
        "reason": reason,
        "confidence": route.confidence,
        "candidates": route.candidates,
    })
}

/// Describes a choice: the call, the confidence, the words that led to it, and the alternatives.
pub(super) fn chosen(mode: ToolPresentation, plan: &PlannedCall, route: &RouteResult) -> Value {
    let is_it = |c: &&scrubjay_router::Candidate| {
        c.backend == plan.backend_id && Some(c.tool.as_str()) == plan.tool()
    };
    let rank = route.candidates.iter().position(|c| is_it(&c));
    let others = route.candidates.iter().filter(|c| !is_it(c)).take(4);
    json!({
        "mode": match mode { ToolPresentation::Catalog => "catalog", ToolPresentation::Backends => "backends" },
        "plan": plan,
        "confidence": route.confidence,
        "rank": rank.map(|rank| rank + 1),
        "why": rank.map(|rank| &route.candidates[rank].why),
        "alternatives": others.map(|c| json!({ "name": c.name, "score": c.score })).collect::<Vec<_>>(),
        "model": route.model,
    })
}

/// Joins the results of several calls into one result, in order.
pub(super) fn of_steps(done: &[Value]) -> Value {
    let content: Vec<Value> = done
        .iter()
        .flat_map(|step| match step["result"]["content"].as_array() {
            Some(content) => content.clone(),
            None => vec![json!({ "type": "text", "text": step["result"].to_string() })],
        })
        .collect();
    let steps: Vec<&Value> = done.iter().map(|step| &step["result"]["_meta"][meta::ROUTE]).collect();
    json!({ "content": content, "isError": false, "_meta": { meta::ROUTE: { "steps": steps } } })
}

/// Adds a choice to a result's `_meta`, and replaces what a backend put under the same name.
pub(super) fn with_choice(result: &str, chosen: &Value) -> String {
    let Ok(object) = serde_json::from_str::<&RawValue>(result) else { return result.to_owned() };
    let chosen = chosen.to_string();
    let whole = format!("{{\"{}\":{chosen}}}", meta::ROUTE);
    // Spliced into the text, so that the rest of the backend's result keeps its bytes. Duplicate keys are all replaced:
    // clients differ on which of them counts.
    let metas = message::members_named(Some(object), "_meta");
    let mut splice = Splice::new(object.get());
    if metas.is_empty() {
        splice = splice.add_member(Some(object), "_meta", &whole);
    }
    for meta in metas {
        let forged = message::members_named(Some(meta), meta::ROUTE);
        splice = match (meta.get().starts_with('{'), forged.is_empty()) {
            (false, _) => splice.replace(Some(meta), &whole),
            (true, true) => splice.add_member(Some(meta), meta::ROUTE, &chosen),
            (true, false) => forged.into_iter().fold(splice, |s, other| s.replace(Some(other), &chosen)),
        };
    }
    splice.finish()
}

/// Tells whether a tool's result is an error.
pub(super) fn is_failure(result: &str) -> bool {
    let object = serde_json::from_str::<&RawValue>(result).ok();
    message::member(object, "isError").is_some_and(|is_error| is_error.get() == "true")
}

/// Adds the `resultType` that modern clients expect in a result.
pub(super) fn with_type(mut result: Value, era: Era) -> Value {
    if era == Era::Modern {
        result[result::RESULT_TYPE] = result::COMPLETE.into();
    }
    result
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_put_into_a_result_and_nothing_else_changes() {
        let check = |result: &str, expected: &str| {
            assert_eq!(with_choice(result, &json!({"a": 1})), expected);
        };
        check(r#"{"n": 1.0}"#, r#"{"_meta":{"scrubjay/route":{"a":1}},"n": 1.0}"#);
        check(r#"{"_meta": {"x":1e400}}"#, r#"{"_meta": {"scrubjay/route":{"a":1},"x":1e400}}"#);
        check(r#"{"_meta":{"scrubjay/route":"forged"}}"#, r#"{"_meta":{"scrubjay/route":{"a":1}}}"#);
        check(r#"{"_meta":null}"#, r#"{"_meta":{"scrubjay/route":{"a":1}}}"#);
        check("not JSON", "not JSON");
    }

    #[test]
    fn reasons_become_sentences() {
        assert_eq!(sentence("the model chose no tool"), "The model chose no tool.");
        assert_eq!(sentence("what?"), "What?");
        assert_eq!(sentence(""), ".");
    }
}
