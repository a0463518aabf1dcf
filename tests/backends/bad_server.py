#!/usr/bin/env python3
"""A legacy MCP server over stdio that misbehaves on request, for the gateway's tests.

    bad_server.py PREFIX [--silent]

Its tools are PREFIX_echo, which answers with its `text`, PREFIX_pid, PREFIX_redefine, which changes
PREFIX_echo's description, and PREFIX_misbehave, whose `how` names a function below. `--silent` never
says anything, not even when it is greeted.
"""

import json
import os
import subprocess
import sys
import time

PREFIX = sys.argv[1]
OUT = sys.stdout.buffer
DESCRIPTION = ["Answers with its text"]
ARGUMENTS = {}


def say(line, end=b"\n"):
    OUT.write((line if isinstance(line, bytes) else line.encode()) + end)
    OUT.flush()


def message(**members):
    return json.dumps({"jsonrpc": "2.0", **members}, ensure_ascii=False)


def answer(request_id, value):
    return message(id=request_id, result={"content": [{"type": "text", "text": value}]})


# ---------------------------------------------------------------- ways to misbehave

def crash(request_id):
    print("about to crash", file=sys.stderr, flush=True)
    os._exit(3)


def crash_half_way(request_id):
    say(answer(request_id, "never finished")[:30], end=b"")
    os._exit(4)


def hang(request_id):
    time.sleep(3600)


def nap(request_id):
    time.sleep(0.5)
    say(answer(request_id, "slept"))


def never_answer(request_id):
    pass


def flood(request_id):
    for number in range(20_000):
        say(message(method="notifications/message", params={"level": "info", "data": number}))
    say(answer(request_id, "flooded"))


def grandchild(request_id, escapes=False):
    """Leaves a process behind that holds our streams open, and exits."""
    child = subprocess.Popen(["sleep", "3600"], start_new_session=escapes)
    with open(ARGUMENTS["pid_file"], "w", encoding="utf-8") as file:
        file.write(str(child.pid))
    os._exit(5)


def escaped_grandchild(request_id):
    """The same, and it leaves our process group."""
    grandchild(request_id, escapes=True)


def garbage(request_id):
    say("Listening on port 3000...")
    say("")
    say('{"jsonrpc":"2.0","id":')
    say(b"\xff\xfe\x00 not text")
    say("[1,2,3]")
    say("null")
    say('{"neither":"fish nor fowl"}')
    say("[" * 100_000)
    say(answer(request_id, "after garbage"))


def crlf(request_id):
    say(answer(request_id, "with crlf"), end=b"\r\n")


def byte_order_mark(request_id):
    say(b"\xef\xbb\xbf" + answer(request_id, "with a mark").encode())


def bad_utf8(request_id):
    say(answer(request_id, "caf@").encode().replace(b"@", b"\xe9"))


def duplicate(request_id):
    say(answer(request_id, "first"))
    say(answer(request_id, "second"))


def unknown_ids(request_id):
    for stray in (request_id + 1_000_000, -1, 1.5, str(request_id), None, [request_id], 10**30):
        say(answer(stray, "to nobody"))
    say(answer(request_id, "after unknown ids"))


def huge(request_id):
    say(answer(request_id, "x" * (17 << 20)))


def neither(request_id):
    say(message(id=request_id))


def both(request_id):
    say(message(id=request_id, result={}, error={"code": -1, "message": "both"}))


# ---------------------------------------------------------------- the server

def tools():
    def tool(name, description):
        return {"name": f"{PREFIX}_{name}", "description": description, "inputSchema": {"type": "object"}}

    names = ("pid", "redefine", "misbehave")
    return [tool("echo", DESCRIPTION[0])] + [tool(name, name) for name in names]


def call(request_id, name, arguments):
    if name == f"{PREFIX}_misbehave":
        ARGUMENTS.update(arguments)
        globals()[arguments["how"]](request_id)
    elif name == f"{PREFIX}_redefine":
        DESCRIPTION[0] += "!"
        say(message(method="notifications/tools/list_changed"))
        say(answer(request_id, "redefined"))
    elif name == f"{PREFIX}_pid":
        say(answer(request_id, str(os.getpid())))
    else:
        say(answer(request_id, arguments.get("text", "")))


def main():
    for line in sys.stdin:
        if "--silent" in sys.argv:
            continue
        request = json.loads(line)
        request_id, method = request.get("id"), request.get("method")
        if request_id is None or method is None:
            continue
        if method == "initialize":
            capabilities = {"tools": {"listChanged": True}, "logging": {}}
            info = {"name": PREFIX, "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            say(message(id=request_id, result=result))
        elif method == "tools/list":
            say(message(id=request_id, result={"tools": tools()}))
        elif method == "tools/call":
            call(request_id, request["params"]["name"], request["params"].get("arguments") or {})
        else:
            say(message(id=request_id, error={"code": -32601, "message": "no such method"}))


main()
