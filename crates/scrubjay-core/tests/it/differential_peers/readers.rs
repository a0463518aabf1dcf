//! The readers: programs in other languages that run as long as the test, and serde in the test itself.

use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::needs::peers;

/// A call as a reader found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) method: Option<String>,
    pub(super) name: Option<String>,
    pub(super) id: Option<String>,
    pub(super) path: Option<String>,
}

impl Call {
    /// Tells whether another call is the same. A reader may find no path, if it does not accept the
    /// spelling of the key.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let same_id = |one: &str, other: &str| match (one.parse::<f64>(), other.parse::<f64>()) {
            (Ok(one), Ok(other)) => one == other,
            _ => one == other,
        };
        let ids = match (&self.id, &other.id) {
            (Some(one), Some(other)) => same_id(one, other),
            (one, other) => one == other,
        };
        let paths = match (&self.path, &other.path) {
            (Some(one), Some(other)) => same_id(one, other) || one.starts_with(['[', '{']),
            (_, other) => other.is_none(),
        };
        let is_call = self.method.as_deref() == Some("tools/call");
        // Rules read nothing else of other messages.
        self.method == other.method && ids && (!is_call || self.name == other.name && paths)
    }
}

type Readings = Vec<(String, Vec<Call>)>;

/// One reader, or several in one language.
pub(super) struct Reader {
    pub(super) language: &'static str,
    program: Option<(Child, ChildStdin, ChildStdout)>,
}

impl Reader {
    fn start(language: &'static str, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("needs {language}: {error}: run scripts/install-peers"));
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { language, program: Some((child, stdin, stdout)) }
    }

    /// Returns the calls that it finds in each stream.
    pub(super) fn read(&mut self, streams: &[&[u8]]) -> Vec<Readings> {
        let Some((_, stdin, stdout)) = &mut self.program else {
            return streams.iter().map(|stream| serde(stream)).collect();
        };
        let frame: Vec<u8> = streams.iter().flat_map(|stream| [&length(stream), *stream].concat()).collect();
        stdin.write_all(&[&length(&frame), frame.as_slice()].concat()).unwrap();
        let frame = read_frame(stdout);
        let mut rest = frame.as_slice();
        streams.iter().map(|_| readings(&read_frame(&mut rest))).collect()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some((mut child, stdin, _)) = self.program.take() {
            drop(stdin);
            let _ = child.wait();
        }
    }
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap().to_be_bytes()
}

fn read_frame(source: &mut impl Read) -> Vec<u8> {
    let mut head = [0; 4];
    source.read_exact(&mut head).expect("the parser runs");
    let mut frame = vec![0; u32::from_be_bytes(head) as usize];
    source.read_exact(&mut frame).expect("the parser answers");
    frame
}

/// A call as a parser reports it: method, name, id, path.
type ReportedCall = [Option<String>; 4];

fn readings(frame: &[u8]) -> Readings {
    let replies: Vec<(String, Option<Vec<ReportedCall>>)> = serde_json::from_slice(frame).unwrap();
    let call = |[method, name, id, path]: ReportedCall| Call { method, name, id, path };
    replies
        .into_iter()
        .map(|(name, calls)| (name, calls.unwrap_or_default().into_iter().map(call).collect()))
        .collect()
}

/// Starts a reader of each language.
pub(super) fn start_all() -> Vec<Reader> {
    let peers = peers();
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parsers");
    let mut python = Command::new(peers.join(".venv/bin/python"));
    python.arg(place.join("python_parsers.py"));
    let mut node = Command::new("node");
    node.arg(place.join("node_parsers.mjs")).env("SCRUBJAY_PEERS", &peers);
    let mut readers = vec![Reader { language: "serde", program: None }];
    let go = built_with_go(&place.join("go_parsers.go"));
    for (language, command) in [("python", python), ("node", node), ("go", go)] {
        readers.push(Reader::start(language, command));
    }
    readers
}

fn built_with_go(source: &Path) -> Command {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Two tests may build at the same time.
    let program =
        scratch.join(format!("go_parsers-{}-{:?}", std::process::id(), std::thread::current().id()));
    let mut go = Command::new("go");
    go.arg("build").arg("-o").arg(&program).arg(source);
    go.env("GOCACHE", scratch.join("go-cache")).env("GOFLAGS", "").env("GO111MODULE", "off");
    let status = go.status().expect("needs go: run scripts/install-peers");
    assert!(status.success(), "tests/parsers/go_parsers.go does not build");
    Command::new(program)
}

/// A message as most Rust servers read it.
#[derive(Deserialize)]
struct Typed {
    method: String,
    id: Option<Value>,
    params: Option<TypedParams>,
}

#[derive(Deserialize)]
struct TypedParams {
    name: Option<String>,
    arguments: Option<TypedArguments>,
}

#[derive(Deserialize)]
struct TypedArguments {
    path: Option<String>,
}

impl Typed {
    fn call(self) -> Call {
        let (name, arguments) = self.params.map_or((None, None), |params| (params.name, params.arguments));
        let id = self.id.as_ref().and_then(fact);
        Call { method: Some(self.method), name, id, path: arguments.and_then(|arguments| arguments.path) }
    }
}

fn fact(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

type Members = BTreeMap<String, Box<RawValue>>;

fn members(raw: Option<&RawValue>) -> Members {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Reads strict JSON like a reader that ignores the case of argument keys and keeps numbers of any size.
pub(super) fn widest(line: &[u8]) -> Vec<Call> {
    let one = || serde_json::from_slice::<Members>(line).map(|one| vec![one]);
    let messages = serde_json::from_slice::<Vec<Members>>(line).or_else(|_| one()).unwrap_or_default();
    messages.iter().filter_map(widest_of).collect()
}

fn widest_of(message: &Members) -> Option<Call> {
    let spelled = |raw: &RawValue| match raw.get() {
        "null" => None,
        text => Some(serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned())),
    };
    let member = |object: &'_ Members, key| object.get(key).and_then(|raw| spelled(raw));
    let params = members(message.get("params").map(|raw| &**raw));
    let arguments = members(params.get("arguments").map(|raw| &**raw));
    let is_path = |key: &str| key.to_lowercase().to_uppercase() == "PATH";
    let path = arguments.iter().find(|(key, _)| is_path(key)).and_then(|(_, path)| spelled(path));
    Some(Call {
        method: Some(member(message, "method")?),
        name: member(&params, "name"),
        id: member(message, "id"),
        path,
    })
}

fn of_value(message: &Value) -> Option<Call> {
    let method = message.get("method").and_then(fact)?;
    let params = &message["params"];
    let path = fact(&params["arguments"]["path"]);
    Some(Call { method: Some(method), name: fact(&params["name"]), id: fact(&message["id"]), path })
}

fn serde(stream: &[u8]) -> Readings {
    let lines: Vec<String> = stream.lines().map_while(Result::ok).collect();
    let typed = lines.iter().flat_map(|line| {
        let many = serde_json::from_str::<Vec<Typed>>(line);
        many.or_else(|_| serde_json::from_str(line).map(|one| vec![one])).unwrap_or_default()
    });
    let values = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let flat = |value: Value| value.as_array().cloned().unwrap_or_else(|| vec![value]);
    let streamed = serde_json::Deserializer::from_slice(stream).into_iter::<Value>().map_while(Result::ok);
    vec![
        ("serde structs".to_owned(), typed.map(Typed::call).collect()),
        ("serde value".to_owned(), values.flat_map(flat).filter_map(|one| of_value(&one)).collect()),
        ("serde stream".to_owned(), streamed.flat_map(flat).filter_map(|one| of_value(&one)).collect()),
    ]
}
