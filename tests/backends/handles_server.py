#!/usr/bin/env python3
"""An MCP server over stdio that gives out handles, for tests of who may use them. It does not distinguish clients.

    handles_server.py [--era legacy|modern] [--heard FILE]

Its tools: `echo` (answers with its `nonce`, after one progress message), `count` (makes `steps` progress messages of
`bytes` bytes each, then answers), `forge` (makes a progress message for the `token` it is given, then answers), `token`
(answers with the progress token of the call), `wait` and `release` (a call that is answered when another one is made),
`begin` (begins a task), `ask` (requests input with a state; called again with the state it answers with the stored text),
`status` (sends the status of a task), `log` (logs its `text` while no call is under way), `ask_late` (asks its `text` after
it has answered), `reply` (answers with the client's reply, when it has come) and `stop` (exits). Methods: `tasks/get`, `tasks/result`,
`tasks/cancel`, `tasks/list`, `resources/subscribe`, `completion/complete`. With `--heard` every line it reads is written
to the file.
"""

import json
import os
import sys

ERA = sys.argv[sys.argv.index("--era") + 1] if "--era" in sys.argv else "legacy"
HEARD = open(sys.argv[sys.argv.index("--heard") + 1], "w") if "--heard" in sys.argv else None
TASKS, STATES, WAITING, REPLIES, READERS = {}, {}, [], [], []
TOOLS = ("echo", "count", "forge", "token", "wait", "release", "begin", "ask", "status", "log", "ask_late", "reply")
TOOLS += ("long", "stop")


def say(**members):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def answer(request_id, value, **more):
    result = {"content": [{"type": "text", "text": value}], **more}
    if ERA == "modern":
        result.setdefault("resultType", "complete")
    say(id=request_id, result=result)


def progress(token, number, message=""):
    params = {"progressToken": token, "progress": number}
    if message:
        params["message"] = message
    say(method="notifications/progress", params=params)


def begin(request_id, arguments):
    task = f"task-{len(TASKS) + 1}"
    TASKS[task] = arguments["secret"]
    facts = {"taskId": task, "status": "working", "createdAt": "2026-01-01T00:00:00Z", "ttl": 60000}
    if ERA == "modern":
        say(id=request_id, result={"resultType": "task", **facts})
    else:
        say(id=request_id, result={"task": facts})


def ask(request_id, params, arguments):
    state = params.get("requestState")
    if state is None:
        state = f"state-{len(STATES) + 1}"
        STATES[state] = arguments["secret"]
        asked = {"name": {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}}}
        say(id=request_id, result={"resultType": "input_required", "inputRequests": asked, "requestState": state})
    else:
        answer(request_id, STATES.get(state, f"no such state: {state}"))


def read_reply():
    if REPLIES and READERS:
        answer(READERS.pop(0), json.dumps(REPLIES.pop(0)))


def call(request_id, params):
    name, arguments = params["name"], params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if name == "echo":
        if token is not None:
            progress(token, 1, arguments["nonce"])
        answer(request_id, arguments["nonce"])
    elif name == "count":
        for number in range(1, arguments["steps"] + 1):
            progress(token, number, "x" * arguments.get("bytes", 0))
        answer(request_id, "counted")
    elif name == "forge":
        progress(arguments["token"], 1)
        answer(request_id, "forged")
    elif name == "token":
        answer(request_id, json.dumps(token))
    elif name == "wait":
        WAITING.append((request_id, token))
    elif name == "release":
        for waiting, of_waiting in WAITING:
            if of_waiting is not None:
                progress(of_waiting, 1)
            answer(waiting, "released")
        WAITING.clear()
        answer(request_id, "done")
    elif name == "begin":
        begin(request_id, arguments)
    elif name == "ask":
        ask(request_id, params, arguments)
    elif name == "status":
        say(method="notifications/tasks/status", params={"taskId": arguments["task"], "status": "secret status"})
        answer(request_id, "told")
    elif name == "log":
        answer(request_id, "logs")
        for _ in range(arguments.get("times", 1)):
            say(method="notifications/message", params={"level": "error", "data": arguments["text"]})
    elif name == "ask_late":
        answer(request_id, "asks")
        schema = {"type": "object", "properties": {}}
        say(id="late", method="elicitation/create", params={"message": arguments["text"], "requestedSchema": schema})
    elif name == "reply":
        READERS.append(request_id)
        read_reply()
    elif name == "long":
        answer(request_id, "x" * arguments["bytes"])
    elif name == "stop":
        sys.exit(3)
    else:
        say(id=request_id, error={"code": -32602, "message": f"no such tool: {name}"})


def greet(request_id, method):
    capabilities = {"tools": {}, "logging": {}, "resources": {"subscribe": True}, "completions": {}, "tasks": {}}
    if method == "initialize" and ERA == "legacy":
        info = {"name": "handles", "version": "1"}
        say(id=request_id, result={"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
    elif method == "server/discover" and ERA == "modern":
        known = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}
        say(id=request_id, result={"resultType": "complete", **known})
    else:
        say(id=request_id, error={"code": -32601, "message": "no such method"})


def main():
    for line in sys.stdin:
        if HEARD:
            HEARD.write(line)
            HEARD.flush()
        message = json.loads(line)
        request_id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method is None:
            REPLIES.append(message)
            read_reply()
            continue
        if request_id is None:
            continue
        if method in ("initialize", "server/discover"):
            greet(request_id, method)
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            say(id=request_id, result={"tools": tools, "ttlMs": 0, "cacheScope": "private"})
        elif method == "tools/call":
            call(request_id, params)
        elif method == "tasks/list":
            say(id=request_id, result={"tasks": [{"taskId": task, "status": "working"} for task in TASKS]})
        elif method.startswith("tasks/"):
            answer(request_id, TASKS.get(params.get("taskId"), "no such task"), status="working")
        elif method == "subscriptions/listen":
            continue
        elif method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
            say(id=request_id, result={})
        else:
            say(id=request_id, error={"code": -32601, "message": "no such method"})


main()
