#!/usr/bin/env python3
"""A legacy MCP server over stdio whose definitions are in a file.

    definitions_server.py FILE [ANYTHING...]

FILE is JSON with `tools`, `prompts`, `instructions` and `capabilities`. It is read again for every request, so that a test
can change the definitions between runs or within one. Every tool answers with its name; its calls are appended to FILE.calls.
"""

import json
import sys

FILE = sys.argv[1]


def said():
    with open(FILE, encoding="utf-8") as file:
        return json.load(file)


def say(**members):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def answer(method, params):
    if method == "initialize":
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": said().get("capabilities", {"tools": {"listChanged": True}, "prompts": {}}),
            "serverInfo": {"name": "definitions", "version": "1"},
        }
        if "instructions" in said():
            result["instructions"] = said()["instructions"]
        return result
    if method in ("tools/list", "prompts/list"):
        kind = method.split("/")[0]
        return {kind: said().get(kind, [])}
    if method == "tools/call":
        with open(FILE + ".calls", "a", encoding="utf-8") as file:
            file.write(params["name"] + "\n")
        return {"content": [{"type": "text", "text": params["name"] + " ran"}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": params["name"]}}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    result = answer(request["method"], request.get("params") or {})
    if result is None:
        say(id=request["id"], error={"code": -32601, "message": "no such method"})
    else:
        say(id=request["id"], result=result)
