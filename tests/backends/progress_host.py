"""An MCP host for the progress toolset's tests: calls tools and prints each answer or error, whole.

    progress_host.py MODE COMMAND CALLS

MODE is `auto`, `legacy` or a modern protocol version; CALLS is a JSON array of [tool, arguments], in which
"$n.key" is replaced by a member of the n-th answer's data. Prints a JSON array of {text, data} or {code, message}.
"""

import asyncio
import json
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

LIMIT_S = 50


def filled(value, answers):
    """Insert the data of earlier answers."""
    if isinstance(value, str) and value.startswith("$"):
        number, key = value[1:].split(".")
        return answers[int(number)]["data"][key]
    if isinstance(value, list):
        return [filled(item, answers) for item in value]
    return value


async def main() -> None:
    """Run the conversation."""
    mode, command, calls = sys.argv[1:]
    server = stdio_client(StdioServerParameters(command=command, args=[]))
    async with asyncio.timeout(LIMIT_S), Client(server, mode=mode) as client:
        answers = []
        for name, arguments in json.loads(calls):
            arguments = {key: filled(value, answers) for key, value in arguments.items()}
            try:
                # Checks the data against the tool's output schema.
                result = await client.call_tool(name, arguments)
            except MCPError as error:
                answers.append({"code": error.error.code, "message": error.error.message})
            else:
                answers.append({"text": result.content[0].text, "data": result.structured_content})
        print(json.dumps(answers))


asyncio.run(main())
