#!/usr/bin/env python3
"""A legacy MCP server over stdio that keeps state for its session, for the gateway's tests.

    session_server.py [--mute-discover]

After `initialized` it asks a client that has roots for them. Its tools: `pid`, `roots` (what it was given),
`client` (how the client introduced itself), `ask` (asks the user by elicitation and answers with the reply),
`log` (logs its `text`, then answers), `wait` (answers when `release` is called) and `release`. With
`--mute-discover` it ignores what it does not know, instead of answering with an error.
"""

import json
import os
import sys

STATE = {"roots": None, "initialize": {}, "next": 0}
WAITING = []
ASKED = {}
TOOLS = ("pid", "roots", "client", "ask", "log", "wait", "release")


def say(**members):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def text(request_id, value):
    say(id=request_id, result={"content": [{"type": "text", "text": value}]})


def ask(method, params, then):
    STATE["next"] += 1
    ASKED[f"q{STATE['next']}"] = then
    say(id=f"q{STATE['next']}", method=method, params=params)


def take_roots(answer):
    STATE["roots"] = [root["uri"] for root in answer.get("result", {}).get("roots", [])]


def call(request_id, name, arguments):
    if name == "pid":
        text(request_id, str(os.getpid()))
    elif name == "roots":
        text(request_id, json.dumps(STATE["roots"]))
    elif name == "client":
        text(request_id, json.dumps(STATE["initialize"]))
    elif name == "ask":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        params = {"message": arguments.get("text", "who?"), "requestedSchema": schema}
        ask("elicitation/create", params, lambda answer: text(request_id, json.dumps(answer.get("result", answer.get("error")))))
    elif name == "log":
        say(method="notifications/message", params={"level": "error", "data": arguments["text"]})
        text(request_id, "logged")
    elif name == "wait":
        WAITING.append(request_id)
    elif name == "release":
        for waiting in WAITING:
            text(waiting, "released")
        WAITING.clear()
        text(request_id, "done")
    else:
        say(id=request_id, error={"code": -32602, "message": f"no such tool: {name}"})


def main():
    for line in sys.stdin:
        message = json.loads(line)
        request_id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method is None:
            ASKED.pop(request_id, lambda answer: None)(message)
        elif method == "initialize":
            STATE["initialize"] = params
            capabilities = {"tools": {"listChanged": True}, "logging": {}}
            info = {"name": "session", "version": "1"}
            greeting = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            say(id=request_id, result={**greeting, "instructions": "Ask for roots first."})
        elif method == "notifications/initialized":
            if "roots" in STATE["initialize"].get("capabilities", {}):
                ask("roots/list", {}, take_roots)
        elif request_id is None:
            continue
        elif method == "tools/list":
            say(id=request_id, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]})
        elif method == "tools/call":
            call(request_id, params["name"], params.get("arguments") or {})
        elif method == "logging/setLevel":
            say(id=request_id, result={})
        elif "--mute-discover" not in sys.argv:
            say(id=request_id, error={"code": -32601, "message": "no such method"})


main()
