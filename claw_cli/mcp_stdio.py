"""``claw mcp-stdio [-- COMMAND ARGS]``: the wrapper of one stdio MCP server.

Specification: docs/spec/mcp.md "The stdio wrapper".
"""

import typer

from claw_cli.arguments import REST
from claw_cli.screen import fail
from claw_mcp.wrapper import main


def mcp_stdio(context: typer.Context) -> None:
    """Run a stdio MCP server, and serve it over HTTP at /mcp.

    ARGS are the server's command; without them it is CLAW_MCP_COMMAND with CLAW_MCP_ARGS.

    Exit 0 when it is stopped; 1 for settings that can't be used, 2 for wrong usage.
    """
    try:
        main(context.meta[REST])
    except ValueError as error:
        fail(str(error))
