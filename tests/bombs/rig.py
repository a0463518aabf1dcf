"""A gateway under attack: starts it, sends raw requests to it, and measures its memory."""

import itertools
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = [sys.executable, "-B", os.path.join(HERE, "bomb_server.py")]
MIB = 1 << 20
DEADLINE_S = 60

_, DESCRIPTORS_MAX = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS_MAX, DESCRIPTORS_MAX))


class Gateway:
    """`scrubjay serve --http`, or `scrubjay wrap --listen`, with the bomb server behind it."""

    def __init__(self, binary, settings, shared=False, wrap=False, of_itself=None):
        self.binary = binary
        self.directory = tempfile.TemporaryDirectory(prefix="bombs-")
        root = self.directory.name
        self.data = os.path.join(root, "data")
        settings = dict(settings)
        if not wrap:
            backend = {"id": "bomb", "type": "stdio", "command": SERVER[0], "args": SERVER[1:], "shared": shared}
            settings["backends"] = [backend]
            if of_itself:
                # With a second, shared backend that sends little, so that other clients can be served.
                much = {**backend, "id": "much", "args": SERVER[1:] + [str(argument) for argument in of_itself]}
                settings["backends"] = [{**backend, "shared": True}, much]
        config = os.path.join(root, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(settings, file)
        command = [binary, "--config", config, "--data", self.data]
        if wrap:
            command += ["wrap", "--listen", "127.0.0.1:0", "--", *SERVER]
        else:
            command += ["serve", "--http", "127.0.0.1:0", "--toolsets", "none"]
        environment = {**os.environ, "SCRUBJAY_INDEX_BACKGROUND": "false", "HOME": root}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, cwd=root
        )
        self.address = None
        for line in self.process.stderr:
            found = re.search(rb"serving on http://([0-9.]+):(\d+)", line)
            if found:
                self.address = (found[1].decode(), int(found[2]))
                break
        assert self.address, "the gateway says where it serves"
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.worker = self.children(self.process.pid)[0]
        self.base = self.memory("VmRSS")

    @staticmethod
    def children(pid):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]

    def memory(self, key):
        with open(f"/proc/{self.worker}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(key + ":")) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.worker}/fd"))

    def stop(self):
        self.process.terminate()
        self.process.wait(DEADLINE_S)

    def notes(self):
        """Returns everything that is on its tapes, after it has stopped."""
        listed = json.loads(self.run("--json", "tape", "ls", "--all"))
        return "".join(self.run("--json", "tape", "export", tape["id"], "--format", "jsonl") for tape in listed)

    def run(self, *arguments):
        return subprocess.run(
            [self.binary, "--data", self.data, *arguments], check=True, capture_output=True, text=True, errors="replace"
        ).stdout

    def connect(self, receive_buffer=None):
        stream = socket.socket()
        if receive_buffer:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        stream.settimeout(DEADLINE_S)
        stream.connect(self.address)
        return stream


def request(request_id, method, params=None):
    message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    if request_id is not None:
        message["id"] = request_id
    return json.dumps(message)


def head(method, length, headers):
    lines = [f"{method} /mcp HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}", "Content-Type: application/json"]
    lines += ["Accept: application/json, text/event-stream"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def send(stream, method, body, headers):
    data = body.encode()
    stream.sendall(head(method, len(data), headers))
    stream.sendall(data)


def receive(stream):
    """Reads an answer to its end; returns status, headers and body."""
    file = stream.makefile("rb")
    status = file.readline()
    if not status:
        raise ConnectionError("no answer")
    headers = {}
    while (line := file.readline().strip()):
        name, _, value = line.partition(b":")
        headers[name.lower().decode()] = value.strip().decode()
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while (size := int(file.readline(), 16)):
            body += file.read(size)
            file.readline()
    else:
        body = file.read(int(headers.get("content-length", 0)))
    return int(status.split()[1]), headers, body


class Session:
    """A legacy session; each request has a connection of its own."""

    def __init__(self, gateway, capabilities=None, info=None):
        self.gateway = gateway
        self.headers = {"Connection": "close"}
        self.numbers = itertools.count(7)
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities or {},
            "clientInfo": info or {"name": "bomb", "version": "1"},
        }
        self.status, headers, self.answer = self.post(request(1, "initialize", params))
        self.id = headers.get("mcp-session-id")
        if self.id:
            self.headers["Mcp-Session-Id"] = self.id
            self.post(request(None, "notifications/initialized"))

    def begin(self, body, method="POST", receive_buffer=None):
        stream = self.gateway.connect(receive_buffer)
        send(stream, method, body, self.headers)
        return stream

    def post(self, body):
        with self.begin(body) as stream:
            return receive(stream)

    def call(self, tool, **arguments):
        params = {"name": tool, "arguments": arguments}
        status, _, body = self.post(request(next(self.numbers), "tools/call", params))
        return status, body

    def echo(self):
        status, body = self.call("echo", text="hello")
        assert status == 200 and b'"5"' in body, (status, body[:300])

    def listen(self, receive_buffer=None):
        return self.begin("", "GET", receive_buffer)

    def end(self):
        with self.begin("", "DELETE") as stream:
            return receive(stream)[0]


class Bystander:
    """A client that makes a small call again and again, and notes how long the slowest took."""

    def __init__(self, gateway):
        self.session = Session(gateway)
        self.session.echo()
        self.calls, self.slowest, self.failed, self.over = 0, 0.0, None, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over:
            begun = time.monotonic()
            try:
                self.session.echo()
            except Exception as e:  # noqa: BLE001: the error is reported by finish
                self.failed = repr(e)
                return
            self.calls += 1
            self.slowest = max(self.slowest, time.monotonic() - begun)
            time.sleep(0.02)

    def finish(self):
        self.session.echo()
        self.over = True
        self.thread.join(DEADLINE_S)
        assert self.failed is None, f"a bystander was not served: {self.failed}"
        assert self.calls > 0
        return f"{self.calls} calls of others, slowest {self.slowest:.2f} s"


def until(what, done, limit=DEADLINE_S):
    deadline = time.monotonic() + limit
    while not done():
        assert time.monotonic() < deadline, f"{what}: not within {limit} s"
        time.sleep(0.05)


def together(jobs):
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    return threads
