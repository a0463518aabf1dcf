"""An MCP host for the gateway's tests: lists the tools, calls some of them, prints what it saw.

    python_host.py MODE URL CALLS
    python_host.py MODE COMMAND CALLS

MODE is `auto`, `legacy` or a modern protocol version; CALLS is a JSON array of [tool, arguments], or of
["read", URI] for a resource. Prints one JSON object: `version`, `tools` (their names) and `answers` (the text
of each call, with `ERROR ` before it if the tool failed).
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

LIMIT_S = 50


async def main() -> None:
    """Run the conversation."""
    mode, where, calls = sys.argv[1:]
    server = where if where.startswith("http") else stdio_client(StdioServerParameters(command=where, args=[]))
    async with asyncio.timeout(LIMIT_S), Client(server, mode=mode) as client:
        tools = await client.list_tools()
        answers = []
        for name, arguments in json.loads(calls):
            if isinstance(arguments, str):
                read = await client.read_resource(arguments)
                answers.append("".join(getattr(part, "text", "") for part in read.contents))
                continue
            result = await client.call_tool(name, arguments)
            text = "".join(getattr(part, "text", "") for part in result.content)
            answers.append(f"ERROR {text}" if result.is_error else text)
        names = [tool.name for tool in tools.tools]
        print(json.dumps({"version": client.protocol_version, "tools": names, "answers": answers}))


asyncio.run(main())
