"""An MCP host that makes one call for each line of its input.

    python_steps.py MODE URL

Reads lines of JSON, each a [tool, arguments], and prints for each a line with what the tool answered:
`error` (whether it failed) and `data` (its structured content). Ends with its input.
"""

import asyncio
import json
import sys

from mcp import Client

LIMIT_S = 110


async def main() -> None:
    """Run the conversation."""
    mode, url = sys.argv[1:]
    async with asyncio.timeout(LIMIT_S), Client(url, mode=mode) as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, arguments = json.loads(line)
            result = await client.call_tool(name, arguments)
            print(json.dumps({"error": bool(result.is_error), "data": result.structured_content}), flush=True)


asyncio.run(main())
