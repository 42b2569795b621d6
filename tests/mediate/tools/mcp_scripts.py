"""What a scripted MCP server does with a request: any answer, a stream, or a broken connection."""

from __future__ import annotations

from tests.mcp.scripted_server import Exchange, Script


def says(
    body: bytes, status: int = 200, content_type: str = "application/json", *headers: str
) -> Script:
    async def say(exchange: Exchange) -> None:
        await exchange.respond(status, body, *headers, content_type=content_type)

    return say


def streams(*chunks: bytes, ends: bool = True) -> Script:
    async def say(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for chunk in chunks:
            await exchange.chunk(chunk.replace(b"ID", str(exchange.message["id"]).encode()))
        if ends:
            await exchange.end_stream()
        else:
            await exchange.until_left()

    return say


async def resets(exchange: Exchange) -> None:
    exchange.reset()
