"""An MCP host with a root of its own, for the gateway's tests.

    python_roots.py MODE URL ROOT FILE...

MODE is `auto`, `legacy` or a modern protocol version. Offers ROOT to the server, asks `server-filesystem` which
directories it may use and for each FILE, and prints one JSON object: `version`, `directories` and `files` (the text
of each, with `ERROR ` before it if the server refused).
"""

import asyncio
import json
import sys
from pathlib import Path

from mcp import Client
from mcp.types import ListRootsResult, Root

LIMIT_S = 50


async def call(client: Client, tool: str, arguments: dict) -> str:
    """Call a tool and return its text."""
    result = await client.call_tool(tool, arguments)
    text = "".join(getattr(part, "text", "") for part in result.content)
    return f"ERROR {text}" if result.is_error else text


async def main() -> None:
    """Run the conversation."""
    mode, url, root, *files = sys.argv[1:]

    async def list_roots(_context: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=Path(root).as_uri())])

    async with asyncio.timeout(LIMIT_S), Client(url, mode=mode, list_roots_callback=list_roots) as client:
        directories = await call(client, "list_allowed_directories", {})
        texts = [await call(client, "read_text_file", {"path": file}) for file in files]
        print(json.dumps({"version": client.protocol_version, "directories": directories, "files": texts}))


asyncio.run(main())
