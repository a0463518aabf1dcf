"""The small MCP server on the first HTTP transport (2024-11-05): one event stream at /sse.

Listens on a free port of loopback and prints it.
"""

import socket

import uvicorn

from python_server import server

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(server.sse_app(), log_level="error")
uvicorn.Server(config).run(sockets=[listener])
