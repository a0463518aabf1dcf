#!/usr/bin/env python3
"""The server that the MCP conformance suite expects, over stdio, in both protocol eras.

It implements newline-delimited JSON-RPC without an SDK, so that every byte is
ours: legacy (`initialize`, 2024-11-05 … 2025-11-25) and modern (stateless, 2026-07-28),
on one connection if necessary. This file is the protocol, with one function for each method. What is
offered is in conformance_catalog.py. A tool is written once and works in both eras, because
`ask` hides how the client is asked: by a request of our own (legacy), an `input_required`
result (modern), or a parked task (the tasks extension).

    conformance_server.py [--era both|legacy|modern] [--exit-on-probe]

`--era` (or MCP_ERA) limits it to one era. `--exit-on-probe` imitates legacy servers that
die on any message before `initialize`. Its answers depend only on what it is asked, except
task timestamps and the two `test_trigger_*_change` tools, which toggle an entry in a list.
"""

import argparse
import base64
import datetime
import hashlib
import hmac
import itertools
import json
import os
import queue
import sys
import threading

from conformance_catalog import (
    CAPABILITY_OF, HIDDEN, INTERNAL, PROMPTS, RESOURCES, TEMPLATE, TOOLS, RpcError, ToolError, text,
)

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
SERVER = {"name": "conformance-fixture", "version": "1.0.0"}
INSTRUCTIONS = "A fixture: it answers what the MCP conformance suite asks."

META = "io.modelcontextprotocol/"
TASKS = META + "tasks"
SUBSCRIPTION = META + "subscriptionId"

INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32600, -32601, -32602
RESOURCE_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32002, -32021, -32022

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


# ---------------------------------------------------------------- ways a call can end early

class Cancelled(Exception):
    """The client gave up on the call; nothing is answered."""


class InputRequired(Exception):
    """The modern way to ask: the call ends here and the client retries with the answers."""

    def __init__(self, requests, state):
        super().__init__("input required")
        self.result = {"resultType": "input_required", "inputRequests": requests}
        if state is not None:
            self.result["requestState"] = state


# ---------------------------------------------------------------- the wire

class Peer:
    """The one client on the other end of stdio, and what we must remember about it."""

    def __init__(self, era, exit_on_probe):
        self.era, self.exit_on_probe = era, exit_on_probe
        self.lock = threading.Lock()
        self.telling = threading.Lock()  # no broadcast between a listen's acknowledgement and its entry
        self.ids = itertools.count(1)
        self.waiting = {}        # our request's id -> queue for its response
        self.calls = {}          # their request's id -> Call
        self.listens = {}        # subscriptions/listen id -> filter
        self.session = None      # legacy: what `initialize` said
        self.log_level = "info"  # legacy: logging/setLevel
        self.watched = set()     # legacy: resources/subscribe

    def send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":"))
        with self.lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def notify(self, method, params=None):
        self.send({"method": method} | ({} if params is None else {"params": params}))

    def request(self, requests, call):
        """Ask the client several things at once (legacy only) and wait for all the answers."""
        answers = {}
        for key, (method, params) in requests.items():
            request_id, answers[key] = f"server-{next(self.ids)}", queue.Queue(1)
            self.waiting[request_id] = answers[key]
            self.send({"id": request_id, "method": method, "params": params})
        return {key: self.wait(answer, call) for key, answer in answers.items()}

    def wait(self, answer, call):
        while True:
            call.sleep(0)
            try:
                message = answer.get(timeout=0.1)
            except queue.Empty:
                continue
            if "error" in message:
                raise ToolError(f"The client refused: {message['error'].get('message')}")
            return message["result"]

    def broadcast(self, method, wanted, params=None):
        """Notify the legacy session, and each listen request whose filter includes it."""
        uri = (params or {}).get("uri")
        if self.session is not None and (uri is None or uri in self.watched):
            self.notify(method, params)
        with self.telling:
            for listen_id, accepted in self.listens.items():
                if uri in accepted.get(wanted, ()) if uri else accepted.get(wanted):
                    self.notify(method, {**(params or {}), "_meta": {SUBSCRIPTION: listen_id}})

    def end_listens(self):
        """End every listen from our side, with its final result."""
        with self.telling:
            for listen_id in self.listens:
                result = {"resultType": "complete", "_meta": {SUBSCRIPTION: listen_id}}
                self.send({"id": listen_id, "result": result})
            self.listens.clear()

    def receive(self, message):
        """Route one incoming message; requests run on a thread of their own."""
        if "method" not in message:
            waiter = self.waiting.pop(message.get("id"), None)
            if waiter:
                waiter.put(message)
        elif "id" not in message:
            self.on_notification(message)
        else:
            call = Call(self, message)
            self.calls[call.id] = call
            if call.method == "initialize":
                call.run()  # here, so that whatever follows finds the session
            else:
                threading.Thread(target=call.run, daemon=True).start()

    def on_notification(self, message):
        if message["method"] == "notifications/cancelled":
            request_id = (message.get("params") or {}).get("requestId")
            with self.telling:
                self.listens.pop(request_id, None)
            call = self.calls.get(request_id)
            if call:
                call.cancelled.set()


class Call:
    """One request of the client: its era, what it may do, and how it asks for more."""

    def __init__(self, peer, message):
        self.peer, self.id, self.method = peer, message["id"], message["method"]
        params = message.get("params")
        self.params = params if isinstance(params, dict) else {}
        meta = self.params.get("_meta")
        self.meta = meta if isinstance(meta, dict) else {}
        self.cancelled = threading.Event()
        self.modern, self.capabilities, self.answers = None, {}, {}

    def run(self):
        try:
            self.enter_era()
            result = METHODS[self.method](self)
            if result is not None:
                self.peer.send({"id": self.id, "result": self.finish(result)})
        except InputRequired as stop:
            self.peer.send({"id": self.id, "result": self.finish(stop.result)})
        except RpcError as error:
            self.peer.send({"id": self.id, "error": error.body})
        except Cancelled:
            pass
        except Exception as error:  # a bug of the fixture: say so instead of hanging the suite
            self.peer.send({"id": self.id, "error": {"code": INTERNAL, "message": f"Fixture: {error!r}"}})
        finally:
            self.peer.calls.pop(self.id, None)

    def enter_era(self):
        """Decide the era of this request, and refuse what that era does not have."""
        era = self.peer.era
        self.modern = era == "modern" or (era == "both" and META + "protocolVersion" in self.meta)
        if era == "both" and not self.modern and self.method != "initialize" and self.peer.session is None:
            self.modern = True  # nobody initialized: only a modern request could be meant
        if self.modern:
            self.enter_modern()
        else:
            self.enter_legacy()
        handler = METHODS.get(self.method)
        if handler is None or ("modern" if self.modern else "legacy") not in handler.eras:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {self.method}")

    def enter_modern(self):
        requested = self.meta.get(META + "protocolVersion")
        if self.method == "initialize" and requested is None:
            refuse_version(self.params.get("protocolVersion"))
        missing = [key for key in ("protocolVersion", "clientCapabilities") if META + key not in self.meta]
        if missing:
            raise RpcError(INVALID_PARAMS, "Missing in params._meta: " + ", ".join(META + key for key in missing))
        if requested != MODERN:
            refuse_version(requested)
        self.capabilities = self.meta[META + "clientCapabilities"]

    def enter_legacy(self):
        if self.method == "initialize":
            return
        if self.peer.session is None:
            if self.peer.exit_on_probe:
                os._exit(1)
            if self.method in METHODS and "legacy" in METHODS[self.method].eras and self.method != "ping":
                raise RpcError(INVALID_REQUEST, f"{self.method} before initialize")
        else:
            self.capabilities = self.peer.session.get("capabilities") or {}

    def finish(self, result):
        """Add what every modern result carries."""
        if not self.modern:
            return result
        meta = {META + "serverInfo": SERVER, **result.get("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}

    # -- during the call

    def sleep(self, seconds):
        """Pause, unless the client cancels the call."""
        if self.cancelled.wait(seconds):
            raise Cancelled

    def progress(self, done, total):
        if "progressToken" in self.meta:
            token = self.meta["progressToken"]
            self.peer.notify("notifications/progress", {"progressToken": token, "progress": done, "total": total})

    def log(self, level, data):
        threshold = self.meta.get(META + "logLevel") if self.modern else self.peer.log_level
        if threshold in LEVELS and LEVELS.index(level) >= LEVELS.index(threshold):
            self.peer.notify("notifications/message", {"level": level, "logger": SERVER["name"], "data": data})

    def has_tasks(self):
        return self.modern and TASKS in (self.capabilities.get("extensions") or {})

    def require(self, capability):
        """Require a client capability; the error is that of the era."""
        if capability in self.capabilities:
            return
        if not self.modern:
            raise ToolError(f"The client does not support {capability}")
        refuse_without(capability, {capability: {}})

    def require_tasks(self):
        """Require the tasks extension, except in the legacy era, which has none."""
        if self.modern and not self.has_tasks():
            refuse_without(TASKS, {"extensions": {TASKS: {}}})

    def go_on_as_task(self, work):
        """Answer with a task that does the rest, if the client supports tasks."""
        if not self.has_tasks():
            return work(self)
        task = Task(self)
        TASKS_BY_ID[task.id] = task
        created = {"resultType": "task", **task.describe()}
        threading.Thread(target=task.run, args=(work,), daemon=True).start()
        return created

    def ask(self, requests, stateful=False):
        """Put questions `{key: (method, params)}` to the client; answers by key."""
        for method, _ in requests.values():
            self.require(CAPABILITY_OF[method])
        if not self.modern:
            return self.peer.request(requests, self)
        self.collect_answers()
        pending = {key: {"method": m, "params": p} for key, (m, p) in requests.items() if key not in self.answers}
        if pending:
            raise InputRequired(pending, seal(self, self.answers) if stateful else None)
        return {key: self.answers[key] for key in requests}

    def collect_answers(self):
        """Read the retry's answers: those of this round, and earlier ones kept in `requestState`."""
        given = self.params.get("inputResponses", {})
        if not isinstance(given, dict) or not all(isinstance(answer, dict) for answer in given.values()):
            raise RpcError(INVALID_PARAMS, "inputResponses must map each key to a response object")
        if "requestState" in self.params:
            self.answers.update(unseal(self, self.params["requestState"]))
        self.answers.update(given)


def refuse_version(requested):
    data = {"supported": [MODERN], "requested": str(requested)}
    raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def refuse_without(capability, required):
    data = {"requiredCapabilities": required}
    raise RpcError(MISSING_CAPABILITY, f"Missing client capability: {capability}", data)


def seal(call, answers):
    """Pack earlier answers into an opaque `requestState`, bound to its operation by an HMAC."""
    body = base64.urlsafe_b64encode(json.dumps({"of": subject(call), "answers": answers}).encode()).decode()
    return body + "." + hmac.new(b"conformance", body.encode(), hashlib.sha256).hexdigest()


def unseal(call, state):
    body, _, mark = str(state).rpartition(".")
    if not hmac.compare_digest(mark, hmac.new(b"conformance", body.encode(), hashlib.sha256).hexdigest()):
        raise RpcError(INVALID_PARAMS, "requestState failed its integrity check")
    packed = json.loads(base64.urlsafe_b64decode(body))
    if packed["of"] != subject(call):
        raise RpcError(INVALID_PARAMS, "requestState belongs to another operation")
    return packed["answers"]


def subject(call):
    return [call.method, call.params.get("name") or call.params.get("uri")]


# ---------------------------------------------------------------- methods

METHODS = {}


def method(name, *eras, cache=None):
    """Register a method. `cache` is its modern (ttlMs, cacheScope)."""

    def register(function):
        def handler(call):
            result = function(call)
            if cache and call.modern and result is not None:
                result = {**result, "ttlMs": cache[0], "cacheScope": cache[1]}
            return result

        handler.eras = eras or ("legacy", "modern")
        METHODS[name] = handler
        return function

    return register


def capabilities(modern):
    both = {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True},
        "completions": {},
        "logging": {},
    }
    return both | ({"extensions": {TASKS: {}}} if modern else {})


@method("initialize", "legacy")
def initialize(call):
    call.peer.session = call.params
    requested = call.params.get("protocolVersion")
    version = requested if requested in LEGACY else LEGACY[0]
    return {
        "protocolVersion": version,
        "capabilities": capabilities(modern=False),
        "serverInfo": SERVER,
        "instructions": INSTRUCTIONS,
    }


@method("server/discover", "modern", cache=(60000, "public"))
def discover(call):
    return {"supportedVersions": [MODERN], "capabilities": capabilities(modern=True), "instructions": INSTRUCTIONS}


@method("ping", "legacy")
def ping(call):
    return {}


@method("logging/setLevel", "legacy")
def set_level(call):
    if call.params.get("level") not in LEVELS:
        raise RpcError(INVALID_PARAMS, "Unknown log level")
    call.peer.log_level = call.params["level"]
    return {}


@method("subscriptions/listen", "modern")
def listen(call):
    """Acknowledge, and leave the request unanswered until the client cancels it."""
    wanted = call.params.get("notifications") or {}
    known = ("toolsListChanged", "promptsListChanged", "resourceSubscriptions")
    accepted = {key: wanted[key] for key in known if wanted.get(key)}
    acknowledged = {"_meta": {SUBSCRIPTION: call.id}, "notifications": accepted}
    with call.peer.telling:
        call.peer.notify("notifications/subscriptions/acknowledged", acknowledged)
        call.peer.listens[call.id] = accepted


@method("completion/complete")
def complete(call):
    known = ("paris", "park", "party", "test-one", "test-two")
    value = (call.params.get("argument") or {}).get("value", "")
    values = [word for word in known if word.startswith(value)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


@method("tools/list", cache=(0, "public"))
def list_tools(call):
    return {"tools": [tool.entry for tool in TOOLS.values() if tool.entry["name"] not in HIDDEN]}


@method("tools/call")
def call_tool(call):
    tool = TOOLS.get(call.params.get("name"))
    if tool is None or tool.entry["name"] in HIDDEN:
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {call.params.get('name')}")
    arguments = call.params.get("arguments") or {}
    if tool.task == "required":
        call.require_tasks()
    if tool.task:
        return call.go_on_as_task(lambda runner: run_tool(tool, runner, arguments))
    return run_tool(tool, call, arguments)


def run_tool(tool, call, arguments):
    schema = tool.entry["inputSchema"]
    try:
        missing = [name for name in schema.get("required", ()) if name not in arguments]
        if missing:
            raise ToolError("Missing argument: " + ", ".join(missing))
        result = tool.function(call, **{name: arguments[name] for name in schema["properties"] if name in arguments})
        return result if isinstance(result, dict) else {"content": result}
    except ToolError as failure:
        return {"content": text(str(failure)), "isError": True}


@method("prompts/list", cache=(0, "public"))
def list_prompts(call):
    return {"prompts": [prompt.entry for prompt in PROMPTS.values() if prompt.entry["name"] not in HIDDEN]}


@method("prompts/get")
def get_prompt(call):
    prompt = PROMPTS.get(call.params.get("name"))
    if prompt is None or prompt.entry["name"] in HIDDEN:
        raise RpcError(INVALID_PARAMS, f"Unknown prompt: {call.params.get('name')}")
    arguments = call.params.get("arguments") or {}
    missing = [a["name"] for a in prompt.entry.get("arguments", ()) if a["required"] and a["name"] not in arguments]
    if missing:
        raise RpcError(INVALID_PARAMS, "Missing prompt argument: " + ", ".join(missing))
    return {"messages": [{"role": "user", "content": part} for part in prompt.function(call, **arguments)]}


@method("resources/list", cache=(60000, "public"))
def list_resources(call):
    return {"resources": [entry for entry, _ in RESOURCES.values()]}


@method("resources/templates/list", cache=(60000, "public"))
def list_templates(call):
    return {"resourceTemplates": [TEMPLATE]}


@method("resources/read", cache=(1000, "private"))
def read_resource(call):
    uri = str(call.params.get("uri"))
    if uri in RESOURCES:
        entry, content = RESOURCES[uri]
        return {"contents": [{"uri": uri, "mimeType": entry["mimeType"], **content}]}
    head, tail = TEMPLATE["uriTemplate"].split("{id}")
    if uri.startswith(head) and uri.endswith(tail) and "/" not in uri[len(head):-len(tail)]:
        number = uri[len(head):-len(tail)]
        body = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        return {"contents": [{"uri": uri, "mimeType": TEMPLATE["mimeType"], "text": body}]}
    raise RpcError(INVALID_PARAMS if call.modern else RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})


@method("resources/subscribe", "legacy")
def subscribe(call):
    call.peer.watched.add(call.params.get("uri"))
    return {}


@method("resources/unsubscribe", "legacy")
def unsubscribe(call):
    call.peer.watched.discard(call.params.get("uri"))
    return {}


# ---------------------------------------------------------------- tasks (modern extension)

TASK_IDS = itertools.count(1)
TASKS_BY_ID = {}


class Task:
    """A tool call that outlives its request. It has the part of `Call` that task tools use."""

    def __init__(self, call):
        self.call = call
        self.id = f"task-{next(TASK_IDS)}"
        self.status, self.outcome = "working", {}
        self.created = self.updated = now()
        self.cancelled, self.answered = threading.Event(), threading.Condition()
        self.pending, self.answers = {}, {}

    def run(self, work):
        try:
            self.settle("completed", {"result": work(self)})
        except RpcError as error:
            self.settle("failed", {"error": error.body})
        except Cancelled:
            self.settle("cancelled", {})

    def settle(self, status, outcome):
        with self.answered:
            self.status, self.outcome, self.updated = status, outcome, now()

    def ask(self, requests, stateful=False):
        """Park until `tasks/update` has brought every answer."""
        with self.answered:
            self.pending = {key: {"method": m, "params": p} for key, (m, p) in requests.items()}
            self.settle("input_required", {})
            while self.pending and not self.cancelled.is_set():
                self.answered.wait(0.1)
            if self.cancelled.is_set():
                raise Cancelled
            self.settle("working", {})
            return {key: self.answers[key] for key in requests}

    def answer(self, responses):
        with self.answered:
            for key in list(self.pending):
                if key in responses:
                    self.answers[key] = responses[key]
                    del self.pending[key]
            self.answered.notify_all()

    def sleep(self, seconds):
        if self.cancelled.wait(seconds):
            raise Cancelled

    def progress(self, done, total):
        self.call.progress(done, total)

    def describe(self):
        return {
            "taskId": self.id, "status": self.status, "createdAt": self.created, "lastUpdatedAt": self.updated,
            "ttlMs": 600000, "pollIntervalMs": 100,
        }


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def find_task(call):
    call.require_tasks()
    task = TASKS_BY_ID.get(call.params.get("taskId"))
    if task is None:
        raise RpcError(INVALID_PARAMS, f"Unknown task: {call.params.get('taskId')}")
    return task


@method("tasks/get", "modern")
def get_task(call):
    task = find_task(call)
    with task.answered:
        asking = {"inputRequests": dict(task.pending)} if task.status == "input_required" else {}
        return {**task.describe(), **task.outcome, **asking}


@method("tasks/update", "modern")
def update_task(call):
    find_task(call).answer(call.params.get("inputResponses") or {})
    return {}


@method("tasks/cancel", "modern")
def cancel_task(call):
    find_task(call).cancelled.set()
    return {}


# ---------------------------------------------------------------- main

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--era", choices=("both", "legacy", "modern"), default=os.environ.get("MCP_ERA", "both"))
    parser.add_argument("--exit-on-probe", action="store_true", help="legacy: die on anything before initialize")
    options = parser.parse_args()
    peer = Peer(options.era, options.exit_on_probe)
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except ValueError as error:
            peer.send({"id": None, "error": {"code": -32700, "message": f"Parse error: {error}"}})
            continue
        if isinstance(message, dict):
            peer.receive(message)
        else:
            peer.send({"id": None, "error": {"code": INVALID_REQUEST, "message": "Batches are not served"}})
    os._exit(0)  # the client left: do not wait for calls under way


if __name__ == "__main__":
    main()
