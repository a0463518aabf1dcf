"""An MCP host for the tests: one fixed conversation with the given server.

    python_client.py MODE LOGPREFIX -- COMMAND…

MODE is `auto`, `legacy` or a modern protocol version. What the host saw goes to
LOGPREFIX.jsonl, one line per step; the server's stderr goes to LOGPREFIX.stderr.
Steps are chosen by what the server lists, and are sent one after the other, so
that two runs against the same server send the same messages in the same order.
"""

import asyncio
import json
import sys
from typing import Any, TextIO

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult

STEP_TIMEOUT_S = 30

# Quotes, escapes, astral characters, and U+2028, which is a line break to some but not to JSON-RPC framing.
UNICODE = 'Zażółć "gęślą" \\jaźń\\ 鳥🐦 \u2028 \u0000 \t é\u0301 </script>'

# Longer than a pipe holds (64 KiB), so that one message takes several reads and writes.
LONG = "0123456789abcdef" * 16 * 1024

# Tried in order, each only if the server lists the tool: python_server.py, server-everything, or both.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"message": "hello"}),
    ("echo", {"message": UNICODE}),
    ("echo", {"message": LONG}),
    ("echo", {}),
    ("add", {"a": 1, "b": 2.50}),
    ("get-sum", {"a": 1, "b": 2.50}),
    ("get-structured-content", {"location": "Chicago"}),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ("get-resource-links", {"count": 2}),
    ("trigger-long-running-operation", {"duration": 0.02, "steps": 2}),
    ("trigger-elicitation-request", {}),
    ("count", {"steps": 3}),
    ("fail", {"reason": "as it should"}),
    ("book", {"flight": "SJ 42"}),
]

PROMPTS: list[tuple[str, dict[str, str]]] = [
    ("review", {"subject": "the wing"}),
    ("args-prompt", {"city": "Kraków"}),
]


async def answer_elicitation(_context: Any, params: Any) -> ElicitResult:
    """Answer the seat question; decline any other."""
    if "row" in params.requested_schema.get("properties", {}):
        return ElicitResult(action="accept", content={"row": 7})
    return ElicitResult(action="decline")


class Conversation:
    """Runs the steps and logs the outcome of each."""

    def __init__(self, client: Client, log: TextIO) -> None:
        self.client = client
        self.log = log

    async def step(self, name: str, sending: Any) -> Any:
        """Await one exchange and log its outcome; an error from the server is an outcome."""
        async with asyncio.timeout(STEP_TIMEOUT_S):
            try:
                result = await sending
                outcome = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
            except MCPError as error:
                result, outcome = None, {"error": error.error.model_dump(mode="json", exclude_unset=True)}
        self.write(name, outcome)
        return result

    def write(self, step: str, outcome: Any) -> None:
        """Append one line to the log."""
        self.log.write(json.dumps({"step": step, "outcome": outcome}) + "\n")

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Log one progress notification."""
        self.write("progress", [progress, total, message])

    async def run(self) -> None:
        """Run all steps."""
        client = self.client
        self.write("connected", {"protocolVersion": client.protocol_version})
        tools = await self.step("tools/list", client.list_tools())
        resources = await self.step("resources/list", client.list_resources())
        prompts = await self.step("prompts/list", client.list_prompts())
        listed = {tool.name for tool in tools.tools}
        for name, arguments in CALLS:
            if name in listed:
                call = client.call_tool(name, arguments, progress_callback=self.progress)
                await self.step(f"tools/call {name}", call)
        await self.step("tools/call missing", client.call_tool("no-such-tool", {}))
        if resources.resources:
            uri = str(resources.resources[0].uri)
            await self.step("resources/read", client.read_resource(uri))
        await self.step("resources/read missing", client.read_resource("peer://missing"))
        listed = {prompt.name for prompt in prompts.prompts}
        for name, values in PROMPTS:
            if name in listed:
                await self.step(f"prompts/get {name}", client.get_prompt(name, values))


async def main() -> None:
    """Parse the command line and run the conversation."""
    mode, prefix, dashes, command, *args = sys.argv[1:]
    if dashes != "--":
        raise SystemExit(__doc__)
    with (
        open(f"{prefix}.jsonl", "w", encoding="utf-8") as log,
        open(f"{prefix}.stderr", "w", encoding="utf-8") as stderr,
    ):
        transport = stdio_client(StdioServerParameters(command=command, args=args), errlog=stderr)
        async with Client(transport, mode=mode, elicitation_callback=answer_elicitation) as client:
            await Conversation(client, log).run()


asyncio.run(main())
