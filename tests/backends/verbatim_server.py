#!/usr/bin/env python3
"""An MCP server over stdio, of both eras, whose answers have a JSON spelling that no library writes.

For tests that messages pass unchanged. Every line that it reads is appended to the file named by its argument,
after its process id. Tools: `pid`, `ask` (asks the client for its roots and answers with what it was given),
`count` (reports progress), `wait` (never answers), `die`. Anything unknown gets an error of its own.
"""

import json
import os
import sys

LOG = open(sys.argv[1], "a")
WAITING = {}

LIST = (
    '{ "tools" : [{"name":"pid","inputSchema":{"type":"object"}, "x-odd" : 1.0}], "_meta":{"odd":1e400},'
    ' "nextCursor":"page two", "ttlMs":  7, "resultType":"complete","cacheScope":"public"}'
)
CAPABILITIES = '{"tools":{"listChanged":true},"experimental":{"odd":{"n":1.50}}}'
GREETING = (
    '{"protocolVersion":"2025-06-18","capabilities":' + CAPABILITIES + ','
    '"serverInfo":{"name":"odd","version":"0.0","odd":true},"instructions":"be odd"}'
)
DISCOVERED = (
    '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":' + CAPABILITIES + ','
    '"ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"odd","version":"0"}}}'
)
ERROR = '{"data":{"n":1.0},"code":-32000,"message":"odd: %s"}'


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def result(number, value):
    say('{"result":%s,"id":%s,"jsonrpc":"2.0"}' % (value, json.dumps(number)))


def text(number, value):
    result(number, json.dumps({"content": [{"type": "text", "text": value}], "resultType": "complete"}))


def notify(method, params):
    say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))


def call(number, params):
    name, meta = params.get("name"), params.get("_meta", {})
    if name == "pid":
        text(number, str(os.getpid()))
    elif name == "ask":
        WAITING["q-1"] = number
        say('{"jsonrpc":"2.0","id":"q-1","method":"roots/list","params":{"odd":1.0}}')
    elif name == "count":
        notify("notifications/progress", {"progressToken": meta.get("progressToken"), "progress": 1})
        text(number, "counted")
    elif name == "die":
        os._exit(7)
    elif name != "wait":
        say('{"error":%s,"id":%s,"jsonrpc":"2.0"}' % (ERROR % name, json.dumps(number)))


for line in sys.stdin:
    LOG.write("%d %s" % (os.getpid(), line))
    LOG.flush()
    message = json.loads(line)
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        text(WAITING.pop(number), json.dumps(message.get("result") or message.get("error")))
    elif number is None:
        if method == "notifications/odd":
            notify("notifications/tools/list_changed", {"_meta": {"odd": 1}})
    elif method == "initialize":
        result(number, GREETING)
    elif method == "server/discover":
        result(number, DISCOVERED)
    elif method == "tools/list":
        result(number, LIST)
    elif method == "tools/call":
        call(number, params)
    elif method == "subscriptions/listen":
        meta = {"io.modelcontextprotocol/subscriptionId": number}
        notify("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": {}})
        notify("notifications/tools/list_changed", {"_meta": meta})
    else:
        say('{"error":%s,"id":%s,"jsonrpc":"2.0"}' % (ERROR % method, json.dumps(number)))
