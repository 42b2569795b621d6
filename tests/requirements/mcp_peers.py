"""MCP with parts that others wrote: servers, clients, and the official conformance suite."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "mcp:real-servers": Requirement(
        "docs/mcp.md",
        "Servers that people use are compiled by discovery, and called by a model, and through the broker by the official SDK.",
    ),
    "mcp:sdk-servers": Requirement(
        "docs/spec/mcp.md, Tools over MCP",
        "Servers of the official SDK, versions 1 and 2, with sessions or without, as JSON or SSE: a model gets their results.",
    ),
    "mcp:sdk-clients": Requirement(
        "docs/spec/mcp.md, The stdio wrapper and The broker",
        "Clients of the official SDK, versions 1 and 2, in both eras, list and call tools at the wrapper and at the broker.",
    ),
    "mcp:conformance": Requirement(
        "docs/spec/mcp.md, The stdio wrapper",
        "The wrapper passes every scenario of the official conformance suite that a server on stdio can pass.",
    ),
    "mcp:real-clients": Requirement(
        "docs/spec/mcp.md, The broker",
        "Claude Code, Codex and opencode connect to the broker with the configuration that is compiled, and call a tool.",
    ),
}
