"""A small MCP server over stdio that speaks both eras, for the tests to talk to.

Every answer depends only on the request, except for `requestState`,
which the SDK seals with a fresh key in each process.
"""

from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

server = MCPServer("scrubjay-peer", version="1.0.0", instructions="Répète ce qu’on lui dit 🐦", log_level="ERROR")


class Seat(BaseModel):
    """What the user is asked before a booking."""

    row: int


def ask_seat(flight: str) -> Elicit[Seat]:
    """Ask the user for a seat: a request of its own (legacy) or `input_required` (modern)."""
    return Elicit(f"Which row on {flight}?", Seat)


@server.tool()
def echo(message: str) -> str:
    """Return the message unchanged."""
    return message


@server.tool()
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Report progress once per step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return f"counted to {steps}"


@server.tool()
def fail(reason: str) -> str:
    """Always fail."""
    raise ToolError(reason)


@server.tool()
def book(flight: str, seat: Annotated[Seat, Resolve(ask_seat)]) -> str:
    """Book a flight, asking the user for a seat."""
    return f"{flight}, row {seat.row}"


@server.resource("peer://greeting", mime_type="text/plain")
def greeting() -> str:
    """A greeting in several scripts."""
    return "héllo, γειά, 你好, 🐦"


@server.prompt()
def review(subject: str) -> str:
    """Ask for a review of the subject."""
    return f"Please review {subject}."


if __name__ == "__main__":
    server.run("stdio")
