"""An MCP server, on the official SDK, with a tool that must not run: `python_deletes.py MARK`.

`delete_all` makes a file at MARK, so that a test sees whether it ran.
"""

import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer

server = MCPServer("deletes", version="1.0.0", log_level="CRITICAL")


@server.tool()
def echo(text: str = "", x: Any = None) -> str:
    """Return the text unchanged."""
    return text


@server.tool()
def delete_all(path: str = "") -> str:
    """Delete everything."""
    Path(sys.argv[1]).write_text(path)
    return "deleted"


if __name__ == "__main__":
    server.run("stdio")
