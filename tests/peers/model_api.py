"""A stand-in for the model APIs that real hosts talk to, so that they run offline.

    model_api.py PLAN LOG

PLAN is JSON: a list of {"server", "tool", "arguments"}. The model asks for these tools one after the other,
each in a turn of its own, and then ends with a text that has all their results. It finds the name under which
the host offers a tool among those the host sent; one that is not offered is reported in that last text, and so
is a call that failed. Each request of the host is appended to LOG as a line of JSON.

It implements Anthropic Messages (Claude Code), OpenAI Responses (Codex) and Chat Completions (opencode), and Gemini's
generateContent (Gemini CLI). It keeps no state: the progress of a conversation is read from the request.
"""

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MISSING = "NOT OFFERED"


def as_text(value):
    """Flattens a tool's result in the form that a host sends."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Messages:
    """Anthropic Messages, streamed."""

    path = re.compile(r"/v1/messages$")

    def tools(self, body):
        return [tool["name"] for tool in body.get("tools", []) if "name" in tool]

    def results(self, body):
        blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
        return [as_text(block.get("content")) for block in blocks if block.get("type") == "tool_result"]

    def call(self, name, arguments, turn):
        block = {"type": "tool_use", "id": f"toolu_{turn}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        return self.stream(block, delta, "tool_use")

    def say(self, text):
        return self.stream({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn")

    def stream(self, block, delta, reason):
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "stand-in", "content": []}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
        yield {"type": "message_start", "message": message}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
        yield {"type": "message_stop"}


class Responses:
    """OpenAI Responses, streamed."""

    path = re.compile(r"/responses$")

    def tools(self, body):
        for tool in body.get("tools", []):
            if tool.get("type") == "namespace":
                yield from ((tool["name"], inner["name"]) for inner in tool["tools"])
            elif "name" in tool:
                yield tool["name"]

    def results(self, body):
        outputs = [item for item in body["input"] if item.get("type") == "function_call_output"]
        return [as_text(item["output"]) for item in outputs]

    def call(self, name, arguments, turn):
        item = {"type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}"}
        if isinstance(name, tuple):
            item["namespace"], name = name
        return self.stream(item | {"name": name, "arguments": json.dumps(arguments)})

    def say(self, text):
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return self.stream({"type": "message", "id": "msg_1", "role": "assistant", "content": content})

    def stream(self, item):
        yield {"type": "response.created", "response": {"id": "resp_1"}}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        yield {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}}


class Completions:
    """OpenAI Chat Completions, streamed."""

    path = re.compile(r"/chat/completions$")

    def tools(self, body):
        return [tool["function"]["name"] for tool in body.get("tools", [])]

    def results(self, body):
        return [as_text(message["content"]) for message in body["messages"] if message["role"] == "tool"]

    def call(self, name, arguments, turn):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call_{turn}", "type": "function", "function": function}
        return self.stream({"role": "assistant", "tool_calls": [call]}, "tool_calls")

    def say(self, text):
        return self.stream({"role": "assistant", "content": text}, "stop")

    def stream(self, delta, reason):
        chunk = {"id": "chatcmpl_1", "object": "chat.completion.chunk", "created": 1, "model": "stand-in"}
        yield chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        yield chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}


class Gemini:
    """Gemini's generateContent, whole or streamed."""

    path = re.compile(r":(streamG|g)enerateContent$")

    def tools(self, body):
        declared = [f for tool in body.get("tools", []) for f in tool.get("functionDeclarations", [])]
        return [function["name"] for function in declared]

    def results(self, body):
        parts = [part for content in body["contents"] for part in content.get("parts", [])]
        return [as_text(p["functionResponse"].get("response")) for p in parts if "functionResponse" in p]

    def call(self, name, arguments, turn):
        return self.stream({"functionCall": {"name": name, "args": arguments, "id": f"call_{turn}"}})

    def say(self, text):
        return self.stream({"text": text})

    def stream(self, part):
        candidate = {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [part]}}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        yield {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "stand-in"}


APIS = [Messages(), Responses(), Completions(), Gemini()]


def offered(api, body, step):
    """Returns the name the host gave to a tool, which holds the server's name and ends with the tool's."""
    for name in api.tools(body):
        whole = "__".join(name) if isinstance(name, tuple) else name
        if step["server"] in whole and whole.endswith(step["tool"]):
            return name
    return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, **what):
        with self.server.lock, open(self.server.log, "a", encoding="utf-8") as log:
            log.write(json.dumps(what, ensure_ascii=False) + "\n")

    def answer(self, api, body):
        """Asks for the next tool of the plan, or ends."""
        plan, results = self.server.plan, api.results(body)
        if not list(api.tools(body)):
            # A side request of the host: a title, a summary.
            return api.say("a stand-in's answer")
        missing = [step for step in plan if offered(api, body, step) is None]
        steps = [step for step in plan if step not in missing]
        if len(results) < len(steps):
            step = steps[len(results)]
            return api.call(offered(api, body, step), step["arguments"], len(results))
        lost = [f"{MISSING}: {step['server']} {step['tool']}" for step in missing]
        return api.say("\n".join(["THE TOOLS SAID", *results, *lost]))

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        api = next((api for api in APIS if api.path.search(path)), None)
        if api is None:
            self.note(method="POST", path=self.path, known=False)
            return self.send(404, "application/json", b"{}")
        body = json.loads(raw)
        self.note(method="POST", path=self.path, known=True, tools=list(api.tools(body)), results=api.results(body), body=body)
        chunks = list(self.answer(api, body))
        if path.endswith(":generateContent"):
            return self.send(200, "application/json", json.dumps(chunks[0]).encode())
        stream = "".join(self.event(chunk) for chunk in chunks)
        if isinstance(api, Completions):
            stream += "data: [DONE]\n\n"
        self.send(200, "text/event-stream", stream.encode())

    def event(self, chunk):
        name = f"event: {chunk['type']}\n" if "type" in chunk else ""
        return f"{name}data: {json.dumps(chunk)}\n\n"

    def do_GET(self):
        self.note(method=self.command, path=self.path, known=False)
        self.send(404, "application/json", b"{}")

    do_HEAD = do_GET

    def send(self, status, kind, content):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def main():
    plan, log = sys.argv[1:]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.plan, server.log, server.lock = json.loads(plan), log, threading.Lock()
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


main()
