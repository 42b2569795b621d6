"""What really happened, read from where it was written: the manifests, the history, the model's own record, the database."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
from stage import within

type Json = dict[str, Any]

HISTORY_SECONDS = 10.0


def manifest_tools(runtime: Path) -> dict[str, list[str]]:
    """Agent → the canonical names of the tools that it was compiled with."""
    grants = {}
    for context in sorted((runtime / "context").iterdir()):
        manifest = context / "tools.json"
        tools = json.loads(manifest.read_text(encoding="utf-8"))["tools"] if manifest.exists() else []
        grants[context.name] = [tool["name"] for tool in tools]
    return grants


def withheld_tools(grants: dict[str, list[str]]) -> dict[str, list[str]]:
    """Agent → what another agent of the pod may call and it may not."""
    every = dict.fromkeys(tool for tools in grants.values() for tool in tools)
    return {agent: [tool for tool in every if tool not in tools] for agent, tools in grants.items()}


def agent_environment(runtime: Path, agent: str) -> dict[str, str]:
    """The env file that the compiler made for the agent's runner."""
    lines = (runtime / "agents" / agent / "env").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {key: value.strip("'\"") for key, _, value in pairs}


class History:
    """One agent's history.jsonl, read as it grows."""

    def __init__(self, directory: Path, agent: str) -> None:
        self._path = directory / agent / "history.jsonl"
        self.entries: list[Json] = []

    async def next_entries(self, count: int) -> list[Json]:
        """The entries of the next `count` requests. A line may be written a moment after the answer was handed over."""
        start = len(self.entries)
        async with within(HISTORY_SECONDS, f"{count} more lines in {self._path.name}"):
            while len(self.entries) < start + count:
                await asyncio.sleep(0.02)
                whole = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
                self.entries = [json.loads(line) for line in whole.split("\n")[:-1]]
        return self.entries[start:]


def calls(entries: list[Json]) -> Iterator[tuple[int, Json]]:
    """Every call that was hidden from the runner, with its round."""
    for entry in entries:
        for past in entry["tool_trace"]:
            for call in past["tool_calls"]:
                yield past["round"], call


def offered(entry: Json) -> list[str]:
    """The names of the tools in the request that the model was sent, as history holds it."""
    return [tool.get("function", tool)["name"] for tool in entry["request_effective"].get("tools", [])]


def interventions(log: str, entries: list[Json]) -> list[str]:
    """What the proxy did to these turns beyond running tools, by its own log."""
    turns = {entry["turn_id"] for entry in entries}
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{") and line.endswith("}")]
    return [e["intervention"] for e in events if e.get("type") == "intervention" and e.get("turn_id") in turns]


async def model_saw(url: str, key: str) -> list[Json]:
    """What the scripted model says it was sent."""
    async with httpx2.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {key}"}) as client:
        return list((await client.get(f"{url}/_seen")).raise_for_status().json())


def orders(database: Path) -> list[tuple[str, str, str, int, str]]:
    """Every order there is, straight from SQLite."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as db:
        return db.execute("SELECT claw_id, side, symbol, quantity, status FROM orders ORDER BY id").fetchall()
