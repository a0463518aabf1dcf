//! Checks the arguments of a call against its tool's schema, before the tool sees them.
//!
//! All problems are reported at once, each with the path of the argument and what it may be, which serde's messages do
//! not name. An unknown argument is refused if it looks like a misspelt one, because it would be ignored silently.
//! Others are removed and named in the answer, because some hosts add arguments of their own. So a tool never uses an
//! argument that is not in its schema, and rules can rely on the schema.

use scrubjay_core::shorten::shortened_inert;
use scrubjay_core::spelling::nearest;
use serde::Serialize;
use serde_json::{Value, json};

use crate::reply::Failure;

/// How many characters of a wrong value are shown: enough to recognise it in a message that a model pays for.
const SHOWN_CHARS_MAX: usize = 60;
/// How many problems of one call are reported: a model corrects a few at a time.
const PROBLEMS_MAX: usize = 20;
/// The words for a schema's limits.
const AT_LEAST: &str = "at least";
const AT_MOST: &str = "at most";

/// One thing that is wrong with the arguments of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArgumentProblem {
    /// The path of the argument: `steps[2].status`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
    /// The allowed values, if there are only a few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<Value>,
    /// The sentence to show instead of the path and the message, where the toolset's specification words one.
    #[serde(skip)]
    pub(crate) sentence: Option<String>,
}

impl ArgumentProblem {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), allowed: Vec::new(), sentence: None }
    }
}

impl std::fmt::Display for ArgumentProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.sentence {
            Some(sentence) => f.write_str(sentence),
            None if self.path.is_empty() => f.write_str(&self.message),
            None => write!(f, "{} {}", self.path, self.message),
        }
    }
}

/// Joins problems into one sentence.
pub(crate) fn describe(problems: &[ArgumentProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns the failure of a call whose arguments are wrong.
pub(crate) fn refusal(problems: &[ArgumentProblem]) -> Failure {
    let hint = "Nothing was done. Correct the arguments as `problems` says, and call again.";
    Failure::new("INVALID_ARGUMENT", describe(problems), hint).with(json!({ "problems": problems }))
}

/// The result of a check.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ArgumentCheck {
    pub(crate) problems: Vec<ArgumentProblem>,
    /// Arguments that the tool does not have and that were removed.
    pub(crate) ignored: Vec<String>,
}

/// Checks arguments against a schema without references, and removes unknown ones. Whole numbers written as `20.0` become
/// integers.
pub(crate) fn check(arguments: &mut Value, schema: &Value) -> ArgumentCheck {
    let mut checked = ArgumentCheck::default();
    checked.value(arguments, schema, "");
    // A list of a thousand wrong items has a thousand problems; the first ones show what is wrong with all.
    checked.problems.truncate(PROBLEMS_MAX);
    checked
}

/// Removes arguments that the schema does not have, and checks nothing else.
pub(crate) fn check_names(arguments: &mut Value, schema: &Value) -> ArgumentCheck {
    let mut checked = ArgumentCheck::default();
    checked.names(arguments, schema, "");
    checked
}

impl ArgumentCheck {
    fn wrong(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(ArgumentProblem::new(path, message));
    }

    fn value(&mut self, value: &mut Value, schema: &Value, path: &str) {
        // Before the types: a list of the allowed values says more than the name of their type.
        if let Some(allowed) = allowed(schema) {
            if !allowed.contains(value) {
                let message = format!("must be {}, not {}", one_of(&allowed), shown(value));
                self.problems.push(ArgumentProblem { allowed, ..ArgumentProblem::new(path, message) });
            }
            return;
        }
        let choices = ["anyOf", "oneOf"].iter().find_map(|key| schema[key].as_array());
        if let Some(choices) = choices {
            // The alternatives have their own types and limits, so nothing beside them is checked.
            return self.choices(value, choices, path);
        }
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
            let message = format!("must be {}, not {}", named(schema, &types), shown(value));
            return self.wrong(path, message);
        }
        match value {
            Value::Object(_) => self.object(value, schema, path),
            Value::Array(items) => {
                self.length(items.len(), schema, ("minItems", "maxItems"), "items", path);
                for (n, item) in items.iter_mut().enumerate() {
                    self.value(item, &schema["items"], &format!("{path}[{n}]"));
                }
            }
            Value::String(text) => {
                self.length(text.chars().count(), schema, ("minLength", "maxLength"), "characters", path);
            }
            Value::Number(_) => self.number(value, schema, &types, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Checks a value that has several alternatives. If none fits, the problems of the nearest are reported.
    fn choices(&mut self, value: &mut Value, choices: &[Value], path: &str) {
        let mut nearest: Option<Self> = None;
        for choice in choices.iter().filter(|choice| !is_null(choice)) {
            // Tried on a copy, because a check removes unknown members.
            let (mut tried, mut attempt) = (value.clone(), Self::default());
            attempt.value(&mut tried, choice, path);
            if attempt.problems.is_empty() {
                *value = tried;
                self.ignored.extend(attempt.ignored);
                return;
            }
            // An alternative with a problem inside is nearer than one of another type.
            let is_within = attempt.problems.iter().any(|problem| problem.path != path);
            if nearest.is_none() || is_within {
                nearest = Some(attempt);
            }
        }
        let is_single = choices.iter().filter(|choice| !is_null(choice)).count() == 1;
        match nearest {
            None => {}
            Some(attempt) if is_single || attempt.problems.iter().any(|p| p.path != path) => {
                self.problems.extend(attempt.problems);
            }
            Some(_) => {
                let all: Vec<String> =
                    choices.iter().filter(|c| !is_null(c)).map(|c| named(c, &types(c))).collect();
                self.wrong(path, format!("must be {}, not {}", all.join(" or "), shown(value)));
            }
        }
    }

    fn object(&mut self, value: &mut Value, schema: &Value, path: &str) {
        self.names(value, schema, path);
        let Value::Object(members) = value else { return };
        // To a tool, null means the same as absent, so a required argument may not be null, and other nulls pass.
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if members.get(name).is_none_or(Value::is_null) {
                self.wrong(&below(path, name), "is required");
            }
        }
        for (name, value) in members.iter_mut().filter(|(_, value)| !value.is_null()) {
            if let Some(schema) = schema["properties"].get(name) {
                self.value(value, schema, &below(path, name));
            } else if schema["additionalProperties"].is_object() {
                self.value(value, &schema["additionalProperties"], &below(path, name));
            }
        }
    }

    fn names(&mut self, value: &mut Value, schema: &Value, path: &str) {
        let (Some(members), Some(known)) = (value.as_object_mut(), schema["properties"].as_object()) else {
            return;
        };
        let is_open = schema["additionalProperties"].is_object() || schema["additionalProperties"] == true;
        if is_open {
            // Any name is allowed here, for instance in metadata.
            return;
        }
        let unused: Vec<&str> =
            known.keys().map(String::as_str).filter(|name| !members.contains_key(*name)).collect();
        for name in members.keys().filter(|name| !known.contains_key(*name)) {
            let path = below(path, &short(name));
            // Only unused names count: if the argument is given under its right name too, this is not a misspelling of
            // it.
            match nearest(name, &unused) {
                Some(near) => self.wrong(&path, format!("is no argument of this tool: did you mean {near}?")),
                None if schema["additionalProperties"] == false => {
                    let known: Vec<&str> = known.keys().map(String::as_str).collect();
                    self.wrong(&path, format!("is no argument of this tool: it takes {}", known.join(", ")));
                }
                None => self.ignored.push(path),
            }
        }
        // Rules judge a call by its schema. An argument that is not in it must not reach the tool.
        members.retain(|name, _| known.contains_key(name));
    }

    fn length(&mut self, length: usize, schema: &Value, (least, most): (&str, &str), what: &str, path: &str) {
        let limit = |key: &str| schema[key].as_u64().and_then(|limit| usize::try_from(limit).ok());
        if let Some(least) = limit(least).filter(|least| length < *least) {
            self.wrong(path, format!("must have {AT_LEAST} {least} {what}, not {length}"));
        }
        if let Some(most) = limit(most).filter(|most| length > *most) {
            self.wrong(path, format!("must have {AT_MOST} {most} {what}, not {length}"));
        }
    }

    fn number(&mut self, value: &mut Value, schema: &Value, types: &[&str], path: &str) {
        let whole = types.contains(&"integer");
        // Serde does not take 20.0 for an integer.
        if whole && let Some(number) = value.as_f64().filter(|_| value.is_f64()) {
            *value = json!(number as i64);
        }
        let number = value.as_f64().unwrap_or(f64::NAN);
        let (least, most) = limits_of(schema["format"].as_str().filter(|_| whole));
        let least = schema["minimum"].as_f64().or(least);
        let most = schema["maximum"].as_f64().or(most);
        if let Some(least) = least.filter(|least| number < *least) {
            self.wrong(path, format!("must be {AT_LEAST} {least}, not {value}"));
        } else if let Some(most) = most.filter(|most| number > *most) {
            self.wrong(path, format!("must be {AT_MOST} {most}, not {value}"));
        }
    }
}

/// Returns the smallest and the largest number of a format. `schemars` writes the type of a number as a format, and serde's
/// message about a number beyond its type would not name the argument.
fn limits_of(format: Option<&str>) -> (Option<f64>, Option<f64>) {
    let limits = |least: i64, most: f64| (Some(least as f64), Some(most));
    match format {
        Some("int64" | "int") => limits(i64::MIN, i64::MAX as f64),
        Some("uint64" | "uint") => limits(0, u64::MAX as f64),
        Some("int32") => limits(i32::MIN.into(), i32::MAX.into()),
        Some("uint32") => limits(0, u32::MAX.into()),
        Some("uint16") => limits(0, u16::MAX.into()),
        Some("uint8") => limits(0, u8::MAX.into()),
        _ => (None, None),
    }
}

/// Returns the allowed values of a schema, if it lists them.
fn allowed(schema: &Value) -> Option<Vec<Value>> {
    if let Some(values) = schema["enum"].as_array() {
        return Some(values.iter().filter(|value| !value.is_null()).cloned().collect());
    }
    if let Some(only) = schema.get("const") {
        return Some(vec![only.clone()]);
    }
    let choices = ["anyOf", "oneOf"].iter().find_map(|key| schema[key].as_array())?;
    let each: Option<Vec<Vec<Value>>> =
        choices.iter().filter(|choice| !is_null(choice)).map(allowed).collect();
    each.map(|each| each.concat()).filter(|all| !all.is_empty())
}

fn is_null(schema: &Value) -> bool {
    schema["type"] == "null"
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(only) => vec![only.as_str()],
        Value::Array(all) => all.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect(),
        _ => Vec::new(),
    }
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        // Models write whole numbers as 20.0, too. Up to 9e15, less than 2^53, such a number is exact.
        "integer" => {
            value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|n| n.fract() == 0.0 && n.abs() < 9e15)
        }
        "null" => value.is_null(),
        _ => true,
    }
}

/// Describes what a schema allows, for a sentence.
fn named(schema: &Value, types: &[&str]) -> String {
    let one = |name: &&str| match *name {
        "string" => "a string".to_owned(),
        "boolean" => "true or false".to_owned(),
        "integer" => "a whole number".to_owned(),
        "number" => "a number".to_owned(),
        "array" => match types_of_items(schema) {
            Some(items) => format!("a list of {items}"),
            None => "a list".to_owned(),
        },
        "object" => "an object".to_owned(),
        other => other.to_owned(),
    };
    types.iter().map(one).collect::<Vec<_>>().join(" or ")
}

fn types_of_items(schema: &Value) -> Option<&'static str> {
    match *types(&schema["items"]).first()? {
        "string" => Some("strings"),
        "integer" | "number" => Some("numbers"),
        "object" => Some("objects"),
        "boolean" => Some("true or false"),
        _ => None,
    }
}

fn one_of(allowed: &[Value]) -> String {
    let names: Vec<String> =
        allowed.iter().map(|value| value.as_str().map_or(value.to_string(), str::to_owned)).collect();
    match names.as_slice() {
        [only] => only.clone(),
        names => format!("one of {}", names.join(", ")),
    }
}

/// Shows the given value, shortened.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("\"{}\"", short(text)),
        other => other.to_string(),
    }
}

fn short(text: &str) -> String {
    shortened_inert(text, SHOWN_CHARS_MAX)
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "steps": { "type": "array", "items": { "type": "object", "properties": {
                    "status": { "anyOf": [
                        { "oneOf": [{ "const": "current", "description": "now" }, { "const": "done" }] },
                        { "type": "null" },
                    ] },
                    "n": { "type": ["integer", "null"], "format": "uint32" },
                } } },
                "title": { "type": "string", "maxLength": 5 },
                "session_id": { "type": ["string", "null"] },
                "value": { "anyOf": [{ "type": "string" }, { "type": "number" }] },
                "metadata": { "type": "object", "additionalProperties": true },
                "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
            },
            "required": ["title"],
        })
    }

    fn check(mut arguments: Value, expected: &[&str]) {
        let checked = super::check(&mut arguments, &schema());
        let all: Vec<String> = checked.problems.iter().map(ToString::to_string).collect();
        assert_eq!(all, expected, "{arguments}");
    }

    #[test]
    fn each_argument_is_named_with_what_it_may_be() {
        check(json!({ "title": "a", "metadata": { "anything": [1] }, "limit": 20.0 }), &[]);
        check(json!({}), &["title is required"]);
        check(json!({ "title": null }), &["title is required"]);
        check(json!({ "title": 5 }), &["title must be a string, not 5"]);
        check(json!({ "title": "abcdef" }), &["title must have at most 5 characters, not 6"]);
        check(
            json!({ "title": "a", "steps": [{}, { "status": "done" }, { "status": "finished", "n": -1 }] }),
            &[
                "steps[2].n must be at least 0, not -1",
                "steps[2].status must be one of current, done, not \"finished\"",
            ],
        );
        check(json!({ "title": "a", "steps": "x" }), &["steps must be a list of objects, not \"x\""]);
        check(json!({ "title": "a", "value": true }), &["value must be a string or a number, not true"]);
        check(json!({ "title": "a", "limit": 0 }), &["limit must be at least 1, not 0"]);
        check(json!({ "title": "a", "limit": 101 }), &["limit must be at most 100, not 101"]);
        check(json!({ "title": "a", "limit": 1.5 }), &["limit must be a whole number, not 1.5"]);
        check(json!({ "title": "a", "limit": "5" }), &["limit must be a whole number, not \"5\""]);
    }

    #[test]
    fn a_misspelt_argument_is_refused_and_an_unknown_one_ignored() {
        check(
            json!({ "tittle": "a" }),
            &["tittle is no argument of this tool: did you mean title?", "title is required"],
        );
        check(
            json!({ "title": "a", "sessionId": "s" }),
            &["sessionId is no argument of this tool: did you mean session_id?"],
        );
        // title is given as well, so tittle is not a misspelling of it.
        let mut both = json!({ "title": "a", "tittle": "b", "toolCallId": 3 });
        let checked = super::check(&mut both, &schema());
        assert_eq!((checked.problems, checked.ignored), (vec![], vec!["tittle".into(), "toolCallId".into()]));
        assert_eq!(both, json!({ "title": "a" }), "what is named as not used is not used");
    }

    #[test]
    fn allowed_values_are_listed_in_the_data() {
        let mut arguments = json!({ "title": "a", "steps": [{ "status": "x" }] });
        let checked = super::check(&mut arguments, &schema());
        assert_eq!(
            serde_json::to_value(&checked.problems).unwrap(),
            json!([{ "path": "steps[0].status", "message": "must be one of current, done, not \"x\"",
                "allowed": ["current", "done"] }])
        );
    }

    #[test]
    fn whole_numbers_written_as_floats_become_integers() {
        let mut arguments = json!({ "title": "a", "limit": 20.0 });
        super::check(&mut arguments, &schema());
        assert_eq!(arguments["limit"].to_string(), "20");
    }
}
