//! Checks that every reader reads a message alike, so that rules can judge it.
//!
//! The text has passed [`crate::json::strict`]. This checks the message: its keys, its shape, its names, and the values
//! that rules read. docs/RULES.md is the specification.

use std::borrow::Cow;
use std::collections::HashSet;

use super::Rule;
use super::document::{Document, JsonPath};
use super::portable::{is_plain_id, is_plain_name};
use super::refusal::{RefusalReason, Refused};
use crate::json::fold::fold;
use crate::json::tree::NodeKind;
use crate::protocol::{meta, method, result};

/// The keys of an object that are compared one by one; further ones are kept in a set, so that large objects cost no
/// more.
const FEW_KEYS: usize = 8;

const ENVELOPE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
const ERROR: [&str; 3] = ["code", "message", "data"];
/// The keys of a result that decide whether a message is nested in it; all other keys are a server's own.
const RESULT: [&str; 8] = [
    "_meta",
    "error",
    result::INPUT_REQUESTS,
    result::REQUEST_STATE,
    "result",
    result::RESULT_TYPE,
    "task",
    "taskId",
];
const PARAMS: [&str; 45] = [
    "_meta",
    "argument",
    "arguments",
    "capabilities",
    "clientInfo",
    "context",
    "cursor",
    "data",
    "elicitationId",
    "error",
    "includeContext",
    "initializationOptions",
    result::INPUT_REQUESTS,
    result::INPUT_RESPONSES,
    "level",
    "logger",
    "maxTokens",
    "message",
    "messages",
    "metadata",
    "mode",
    "modelPreferences",
    "name",
    "progress",
    meta::PROGRESS_TOKEN,
    "protocolVersion",
    "reason",
    "ref",
    "requestId",
    result::REQUEST_STATE,
    "requestedSchema",
    "result",
    "status",
    "stopSequences",
    "subscriptions",
    "systemPrompt",
    "task",
    "taskId",
    "temperature",
    "toolChoice",
    "tools",
    "total",
    "ttl",
    "uri",
    "url",
];
const META: [&str; 8] = [
    meta::PROGRESS_TOKEN,
    meta::PROTOCOL_VERSION,
    meta::CLIENT_INFO,
    meta::CLIENT_CAPABILITIES,
    meta::SERVER_INFO,
    meta::LOG_LEVEL,
    meta::RELATED_TASK,
    meta::SUBSCRIPTION_ID,
];

/// Checks that a text is a message, and the same message for every reader.
pub(super) fn check(document: &Document<'_>) -> Result<(), Refused> {
    let strict = StrictCheck(document);
    strict.keys()?;
    strict.check_spelling(0, &ENVELOPE, true)?;
    strict.shape()
}

/// Checks that every reader finds the same values at the paths of some rules.
pub(super) fn check_paths<'r>(
    document: &Document<'_>,
    rules: impl Iterator<Item = &'r Rule>,
) -> Result<(), Refused> {
    let Some(body) = document.body() else { return Ok(()) };
    let at = document.tree.nodes[body].range.start;
    let is_ambiguous = |path: &JsonPath, document: &Document<'_>| {
        let body = document.body();
        body.is_some_and(|body| {
            path.0.find_for_every_reader(&document.text, &document.tree, body).is_ambiguous
        })
    };
    for path in rules.flat_map(Rule::paths) {
        let unpacked = document.unpacked().map_err(|flaw| Refused { why: RefusalReason::Text(flaw), at })?;
        if is_ambiguous(path, document) || unpacked.is_some_and(|unpacked| is_ambiguous(path, unpacked)) {
            return Err(Refused { why: RefusalReason::DuplicateKey, at });
        }
    }
    Ok(())
}

struct StrictCheck<'d, 'a>(&'d Document<'a>);

impl StrictCheck<'_, '_> {
    fn refuse<T>(&self, why: RefusalReason, node: usize) -> Result<T, Refused> {
        Err(Refused { why, at: self.0.tree.nodes[node].start() })
    }

    /// Checks that no object has a key twice, or a key that some readers do not treat as one.
    fn keys(&self) -> Result<(), Refused> {
        let tree = &self.0.tree;
        for object in (0..tree.nodes.len()).filter(|node| tree.nodes[*node].kind == NodeKind::Object) {
            let (mut few, mut many) = (Vec::<Cow<'_, [u8]>>::new(), HashSet::new());
            for child in tree.children(object) {
                let key = self.0.key(child);
                // In C a key ends at NUL, so it would be another key to some readers.
                if key.contains(&0) {
                    return self.refuse(RefusalReason::Nul, child);
                }
                // Some JavaScript copies members one by one, and this key would then set the copy's prototype.
                if *key == *b"__proto__" {
                    return self.refuse(RefusalReason::Prototype, child);
                }
                let is_new = if few.len() < FEW_KEYS {
                    let is_new = !few.contains(&key);
                    few.push(key);
                    is_new
                } else {
                    !few.contains(&key) && many.insert(key)
                };
                if !is_new {
                    return self.refuse(RefusalReason::DuplicateKey, child);
                }
            }
        }
        Ok(())
    }

    /// Checks that keys of the protocol are spelled exactly, and, if `all` is set, that no two keys are the same for a
    /// reader that ignores case.
    fn check_spelling(&self, object: usize, known: &[&str], all: bool) -> Result<(), Refused> {
        let mut seen = HashSet::new();
        for child in self.0.tree.children(object) {
            let key = self.0.key(child);
            let folded = fold(&key);
            let meant = known.iter().find(|known| known.as_bytes().eq_ignore_ascii_case(&folded));
            // Go's `encoding/json` matches keys in any case, other readers do not see such a key.
            if meant.is_some_and(|meant| *key != *meant.as_bytes()) {
                return self.refuse(RefusalReason::Spelling, child);
            }
            if all && !seen.insert(folded.into_owned()) {
                return self.refuse(RefusalReason::DuplicateKey, child);
            }
        }
        Ok(())
    }

    fn shape(&self) -> Result<(), Refused> {
        let document = self.0;
        let no_message = |what, node| self.refuse(RefusalReason::NotAMessage(what), node);
        let [version, id, method, params, result, error] =
            ENVELOPE.map(|name| document.member(0, name.as_bytes()));
        if let Some(version) = version.filter(|version| document.raw(*version) != b"\"2.0\"") {
            return no_message("its jsonrpc is not \"2.0\"", version);
        }
        let is_null = |node: usize| document.raw(node) == b"null";
        // JSON-RPC has the id null on an error if the id of the request could not be read.
        let is_known_id = |id: usize| is_plain_id(document.raw(id)) || error.is_some() && is_null(id);
        if let Some(id) = id.filter(|id| !is_known_id(*id)) {
            return no_message("its id is neither a string nor a whole number below 2^53", id);
        }
        match (method, result, error) {
            (Some(method), None, None) if document.kind(method) == NodeKind::String => {
                if !is_plain_name(&document.inside(method).text) {
                    return self.refuse(RefusalReason::Name, method);
                }
                params.map_or(Ok(()), |params| self.params(params))?;
                self.tool_is_named()
            }
            (Some(method), None, None) => no_message("its method is not a string", method),
            (None, Some(result), None) if id.is_some() => self.body(result, &RESULT),
            (None, Some(result), None) => no_message("it is a result without an id", result),
            (None, None, Some(error)) if document.kind(error) == NodeKind::Object => self.body(error, &ERROR),
            (None, None, Some(error)) => no_message("its error is not an object", error),
            _ => no_message("it must have one of method, result and error", 0),
        }
    }

    fn params(&self, params: usize) -> Result<(), Refused> {
        match self.0.kind(params) {
            NodeKind::Object => {
                self.check_spelling(params, &PARAMS, true)?;
                self.meta(params)
            }
            _ if self.0.raw(params) == b"null" => Ok(()),
            _ => self.refuse(RefusalReason::NotAMessage("its params are not an object"), params),
        }
    }

    fn body(&self, body: usize, known: &[&str]) -> Result<(), Refused> {
        if self.0.kind(body) != NodeKind::Object {
            return Ok(());
        }
        // All other keys are the server's own, and may differ only by case.
        self.check_spelling(body, known, false)?;
        self.meta(body)
    }

    fn meta(&self, holder: usize) -> Result<(), Refused> {
        let Some(meta) = self.0.member(holder, b"_meta") else { return Ok(()) };
        match self.0.kind(meta) {
            NodeKind::Object => self.check_spelling(meta, &META, true),
            _ if self.0.raw(meta) == b"null" => Ok(()),
            _ => self.refuse(RefusalReason::NotAMessage("its _meta is not an object"), meta),
        }
    }

    /// Checks that a call names its tool or prompt, and that its arguments are an object.
    fn tool_is_named(&self) -> Result<(), Refused> {
        let document = self.0;
        let Some(method) = document.method() else { return Ok(()) };
        if ![method::TOOLS_CALL, method::PROMPTS_GET].iter().any(|named| *method == *named.as_bytes()) {
            return Ok(());
        }
        let params =
            document.member(0, b"params").filter(|params| document.kind(*params) == NodeKind::Object);
        let name = params.and_then(|params| document.member(params, b"name"));
        let Some(name) = name.filter(|name| document.kind(*name) == NodeKind::String) else {
            return self.refuse(RefusalReason::Name, name.or(params).unwrap_or(0));
        };
        if !is_plain_name(&document.inside(name).text) {
            return self.refuse(RefusalReason::Name, name);
        }
        let arguments = params.and_then(|params| document.member(params, b"arguments"));
        let is_other =
            |node: &usize| document.kind(*node) != NodeKind::Object && document.raw(*node) != b"null";
        match arguments.filter(is_other) {
            Some(arguments) => {
                self.refuse(RefusalReason::NotAMessage("its arguments are not an object"), arguments)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_why(line: &str, expected: Option<RefusalReason>) {
        let document = Document::new(Cow::Borrowed(line.as_bytes())).unwrap();
        assert_eq!(check(&document).err().map(|refused| refused.why), expected, "{line}");
    }

    #[test]
    fn ordinary_messages_pass() {
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":null}"#,
            r#"{"jsonrpc":"2.0","id":-3,"method":"tools/call","params":{"name":"echo","arguments":{"a":1,"A":2}}}"#,
            r#"{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"查询","arguments":null,"_meta":{"progressToken":1}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"Content":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x","data":{"Code":1,"code":2}}}"#,
            r#"{"id":9007199254740991,"method":"x","params":{"foo":[{"a":1},{"a":1}],"Bar":2}}"#,
        ] {
            check_why(line, None);
        }
    }

    #[test]
    fn keys_that_readers_differ_on_are_refused() {
        use RefusalReason::{DuplicateKey, Nul, Prototype, Spelling};
        for (line, why) in [
            (r#"{"id":1,"method":"a","method":"b"}"#, DuplicateKey),
            (r#"{"id":1,"method":"a","m\u0065thod":"b"}"#, DuplicateKey),
            (r#"{"id":1,"method":"a","x":1,"X":2}"#, DuplicateKey),
            (r#"{"id":1,"method":"a","params":{"x":{"y":[{"z":1,"z":1}]}}}"#, DuplicateKey),
            (r#"{"id":1,"method":"a","params":{"foo":1,"FOO":1}}"#, DuplicateKey),
            (r#"{"id":1,"method":"a","params":{"_meta":{"k":1,"\u212a":1}}}"#, DuplicateKey),
            (r#"{"id":1,"result":{"_meta":{"k":1,"K":1}}}"#, DuplicateKey),
            (r#"{"id":1,"Method":"a"}"#, Spelling),
            (r#"{"id":1,"method":"a","param\u017f":{}}"#, Spelling),
            (r#"{"\u0131d":1,"method":"a"}"#, Spelling),
            (r#"{"id":1,"method":"tools/call","params":{"name":"a","Arguments":{}}}"#, Spelling),
            (r#"{"id":1,"method":"tools/call","params":{"Name":"a"}}"#, Spelling),
            (r#"{"id":1,"method":"x","params":{"_META":{}}}"#, Spelling),
            (r#"{"id":1,"method":"x","params":{"_meta":{"progresstoken":1}}}"#, Spelling),
            (r#"{"id":1,"error":{"Code":1}}"#, Spelling),
            (r#"{"id":1,"method":"x","params":{"a":{"__proto__":{}}}}"#, Prototype),
            (r#"{"id":1,"method":"x","params":{"a\u0000":1}}"#, Nul),
        ] {
            check_why(line, Some(why));
        }
        let many: Vec<String> = (0..20).chain([15]).map(|n| format!("\"k{n}\":1")).collect();
        check_why(
            &format!(r#"{{"method":"x","params":{{"a":{{{}}}}}}}"#, many.join(",")),
            Some(DuplicateKey),
        );
    }

    #[test]
    fn texts_that_are_not_messages_are_refused() {
        for line in [
            r"{}",
            r#"{"id":1}"#,
            r#"{"id":1,"method":3}"#,
            r#"{"id":null,"method":"x"}"#,
            r#"{"id":true,"method":"x"}"#,
            r#"{"id":1.5,"method":"x"}"#,
            r#"{"id":1.0,"method":"x"}"#,
            r#"{"id":1e3,"method":"x"}"#,
            r#"{"id":-0,"method":"x"}"#,
            r#"{"id":9007199254740992,"method":"x"}"#,
            r#"{"id":{},"result":{}}"#,
            r#"{"id":1,"method":"x","result":{}}"#,
            r#"{"id":1,"result":{},"error":{}}"#,
            r#"{"id":1,"error":"x"}"#,
            r#"{"result":{}}"#,
            r#"{"id":null,"result":{}}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,
            r#"{"jsonrpc":2.0,"id":1,"method":"x"}"#,
            r#"{"id":1,"method":"x","params":[{"name":"a"}]}"#,
            r#"{"id":1,"method":"x","params":{"_meta":[]}}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":"a","arguments":"{}"}}"#,
        ] {
            let document = Document::new(Cow::Borrowed(line.as_bytes())).unwrap();
            assert!(matches!(check(&document).unwrap_err().why, RefusalReason::NotAMessage(_)), "{line}");
        }
    }

    #[test]
    fn names_that_readers_normalise_differently_are_refused() {
        for name in [
            "",
            " a",
            "a ",
            "a\\t",
            "a\\u0000b",
            "\\u200bdelete",
            "de\\u00adlete",
            "ｄelete",
            "𝐝elete",
            "e\\u0301",
            "ﬁle",
            "a\\u0085",
            "\\u212aill",
            "²",
            "a\\ufeff",
        ] {
            let line = format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#);
            check_why(&line, Some(RefusalReason::Name));
        }
        for line in [
            r#"{"id":1,"method":"tools/call"}"#,
            r#"{"id":1,"method":"tools/call","params":{}}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":["delete"]}}"#,
            r#"{"id":1,"method":"tools/call ","params":{"name":"x"}}"#,
        ] {
            check_why(line, Some(RefusalReason::Name));
        }
        for name in ["a", "get_weather-2.x/y:z", "supprimé", "天気", "удалить", "a b", "ünï"] {
            check_why(&format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#), None);
        }
    }
}
