"""Prints what Python parsers read in a stream of bytes, for the differential test of rules.

Frames of cases come in on standard input and frames of readings go out: a length (4 bytes, big endian) and that many
bytes, which are in turn cases or readings with a length before each. A reading is a JSON list of
[reader, [[method, name, id, path], ...]], with null for what a message does not have.
"""

import io
import json
import struct
import sys

try:
    from mcp_types import jsonrpc_message_adapter
except ImportError:
    from mcp.types import jsonrpc_message_adapter

DECODER = json.JSONDecoder()


def fact(value):
    """The value that a parser returns: a string unchanged, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except ValueError:
        return "?"


def facts(message):
    """The calls in a parsed message or batch."""
    if isinstance(message, list):
        return [fact for one in message for fact in facts(one)]
    if not isinstance(message, dict) or "method" not in message:
        return []
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    arguments = params.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    return [[fact(message.get("method")), fact(params.get("name")), fact(message.get("id")), fact(arguments.get("path"))]]


def loaded(pieces):
    read = []
    for piece in pieces:
        try:
            read += facts(json.loads(piece))
        except (ValueError, RecursionError):
            continue
    return read


def sdk(lines):
    """The official SDK: its own types on every line."""
    read = []
    for line in lines:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except (ValueError, RecursionError):
            continue
        read += facts(message.model_dump(by_alias=True, exclude_unset=True))
    return read


def values(text):
    """A parser that reads one value after the other, regardless of line ends."""
    read, at = [], 0
    while at < len(text):
        try:
            value, at = DECODER.raw_decode(text, at)
            read += facts(value)
        except (ValueError, RecursionError):
            at += 1
            while at < len(text) and not text[at - 1].isspace():
                at += 1
    return read


def reading(stream):
    text = stream.decode("utf-8", errors="replace")
    lines = list(io.TextIOWrapper(io.BytesIO(stream), encoding="utf-8", errors="replace"))
    return [
        ["python sdk", sdk(lines)],
        ["python text lines", loaded(lines)],
        ["python splitlines", loaded(text.splitlines())],
        ["python ignoring errors", loaded(stream.decode("utf-8", errors="ignore").splitlines())],
        ["python byte lines", loaded(stream.split(b"\n"))],
        ["python values", values(text)],
    ]


def read_exactly(source, count):
    data = source.read(count)
    return data if len(data) == count else None


def main():
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while (head := read_exactly(source, 4)) is not None:
        frame = source.read(struct.unpack(">I", head)[0])
        at, out = 0, []
        while at < len(frame):
            (length,) = struct.unpack_from(">I", frame, at)
            told = json.dumps(reading(frame[at + 4 : at + 4 + length])).encode()
            out.append(struct.pack(">I", len(told)) + told)
            at += 4 + length
        body = b"".join(out)
        sink.write(struct.pack(">I", len(body)) + body)
        sink.flush()


main()
