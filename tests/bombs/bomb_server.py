#!/usr/bin/env python3
"""A legacy MCP server over stdio that sends too much, or stops reading, when a tool is called.

With the arguments `WHAT BYTES COUNT`, its lists or capabilities have that many bytes and differ for each process.
"""

import json
import os
import sys
import time

OUT = sys.stdout.buffer


def say(**members):
    OUT.write(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")
    OUT.flush()


def text(request_id, value):
    say(id=request_id, result={"content": [{"type": "text", "text": value}]})


def call(request_id, name, arguments):
    if name == "echo":
        text(request_id, str(len(arguments.get("text", ""))))
    elif name == "large":
        text(request_id, "x" * arguments["bytes"])
    elif name == "flood":
        # Answered first, so that the messages after it belong to no call.
        text(request_id, "flooding")
        data = "x" * arguments["bytes"]
        for _ in range(arguments["count"]):
            if arguments.get("to_all"):
                say(method="notifications/resources/updated", params={"uri": "bomb://all", "data": data})
            else:
                say(method="notifications/message", params={"level": "info", "data": data})
    elif name == "deaf":
        text(request_id, "deaf from now on")
        time.sleep(3600)
    elif name == "ask":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        params = {"message": "x" * arguments["bytes"], "requestedSchema": schema}
        say(id=f"ask-{request_id}", method="elicitation/create", params=params)
    else:
        text(request_id, "done")


def of_itself(what, count, fill):
    """Returns its lists, whose content differs for each process."""
    own = str(os.getpid())
    if what == "tools":
        return [{"name": f"t{n}", "description": own + fill, "inputSchema": {"type": "object"}} for n in range(count)]
    if what == "names":
        return [{"name": f"t{n}_{own}", "description": fill, "inputSchema": {"type": "object"}} for n in range(count)]
    if what == "resources":
        return [{"uri": f"bomb://{own}/{n}", "name": fill} for n in range(count)]
    return []


def main():
    what, size, count = (sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 3 else ("", 0, 1)
    much = of_itself(what, count, "x" * (size // count))
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "large", "flood", "deaf", "ask")]
    if what:
        tools = much if what in ("tools", "names") else []
    capabilities = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}
    if what == "capabilities":
        capabilities["experimental"] = {"x": {"y": str(os.getpid()) + "x" * size}}
    instructions = {"instructions": str(os.getpid()) + "x" * size} if what == "instructions" else {}
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, request_id = message.get("method"), message.get("id")
        if method == "initialize":
            info = {"name": "bomb", "version": "1"}
            version = "2025-11-25"
            greeting = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info, **instructions}
            say(id=request_id, result=greeting)
        elif method == "tools/list" and what == "pages":
            # Each page names a next one, so the list never ends.
            tool = {"name": "page", "description": "x" * size, "inputSchema": {"type": "object"}}
            say(id=request_id, result={"tools": [tool], "nextCursor": "more"})
        elif method == "tools/list":
            say(id=request_id, result={"tools": tools})
        elif method == "resources/list":
            say(id=request_id, result={"resources": much if what == "resources" else []})
        elif method == "resources/templates/list":
            say(id=request_id, result={"resourceTemplates": []})
        elif method == "tools/call":
            call(request_id, message["params"]["name"], message["params"].get("arguments", {}))
        elif method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            say(id=request_id, result={})
        elif method and request_id is not None:
            say(id=request_id, error={"code": -32601, "message": "no such method"})


main()
