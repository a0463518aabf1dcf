"""The Python SDK's own everything-server, as its source distribution ships it, on either transport.

    python_everything.py stdio
    python_everything.py http PORT

`scripts/install-peers` puts the server into the directory of the virtual environment. By itself it only serves HTTP.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / ".venv/everything-server"))

from mcp_everything_server.server import main, mcp  # noqa: E402

if sys.argv[1] == "stdio":
    mcp.run(transport="stdio")
else:
    main(["--port", sys.argv[2], "--log-level", "WARNING"])
