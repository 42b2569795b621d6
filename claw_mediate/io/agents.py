"""The agents of the pod: context directory → ``Agent``, reloaded when a file changes (spec/contract.md "Layout").

A directory that does not parse fails that agent closed, with one log event, and no other agent. A tool whose entry is
malformed is left out, with one event, and the others work.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.manifest import (
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    HttpExecution,
    Manifest,
    Quarantined,
    Tool,
    read_manifest,
)
from claw_contract.metadata import Metadata
from claw_contract.names import is_agent_id
from claw_contract.secret import Secret, SecretRef
from claw_mediate.io.files import Identity, identity, read_at
from claw_mediate.io.log import EventLog
from claw_mediate.model import Limits
from claw_mediate.schema import schema_problem

_FILES = ("metadata.json", "tools.json")


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent as its context directory describes it. ``digest`` names the compile in every event."""

    id: str
    metadata: Metadata
    tools: tuple[Tool, ...]
    limits: Limits
    digest: str

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Values that must not leave the process on this agent's account."""
        found = [secret for tool in self.tools for secret in _secrets(tool.execution.auth)]
        return (*found, *([self.metadata.token] if self.metadata.token else []))


@dataclass(frozen=True, slots=True)
class _Loaded:
    files: tuple[Identity, ...]
    agent: Agent | None


class Agents:
    """The agents below one context root."""

    def __init__(self, root: Path, log: EventLog) -> None:
        self._root = root
        self._log = log
        self._cache: dict[str, _Loaded] = {}

    def find(self, agent_id: str) -> Agent | None:
        """The agent, as its files are now; None when there is no such agent, or its directory is broken."""
        if not is_agent_id(agent_id):
            return None
        try:
            directory = os.open(self._root / agent_id, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self._cache.pop(agent_id, None)
            return None
        try:
            files = tuple(identity(name, directory) for name in _FILES)
            cached = self._cache.get(agent_id)
            if cached is None or cached.files != files:
                cached = _Loaded(files, self._load(agent_id, directory, has_tools=files[1] is not None))
                self._cache[agent_id] = cached
        finally:
            os.close(directory)
        return cached.agent

    def ids(self) -> list[str]:
        """The names of all context directories, sound or not."""
        if not self._root.is_dir():
            return []
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_dir() and is_agent_id(entry.name))

    def _load(self, agent_id: str, directory: int, *, has_tools: bool) -> Agent | None:
        name = "metadata.json"
        try:
            metadata_bytes = read_at(name, directory)
            metadata = Metadata.model_validate_json(metadata_bytes)
            name = "tools.json"
            tools_bytes = read_at(name, directory) if has_tools else b""
            manifest, left_out = read_manifest(tools_bytes) if has_tools else (Manifest(version=1), ())
        except (OSError, ValidationError) as error:
            reason = error.strerror or "unreadable" if isinstance(error, OSError) else error_line(error)
            self._log.event("error", agent_id, error="agent_context_broken", file=name, reason=reason)
            return None
        digest = metadata.digest or hashlib.sha256(metadata_bytes + b"\0" + tools_bytes).hexdigest()
        tools = self._working(agent_id, manifest, left_out)
        self._log.event(
            "tool_manifest_loaded", agent_id, manifest_present=has_tools, tools_count=len(tools), digest=digest
        )
        return Agent(agent_id, metadata, tools, Limits.of(manifest.policy), digest)

    def _working(self, agent_id: str, manifest: Manifest, left_out: tuple[Quarantined, ...]) -> tuple[Tool, ...]:
        problems = {entry.name: entry.reason for entry in left_out}
        working: list[Tool] = []
        for tool in manifest.tools:
            if (problem := _problem(tool)) is not None:
                problems[tool.name] = problem
            else:
                working.append(tool)
        for name, reason in problems.items():
            self._log.event(
                "intervention", agent_id, intervention=f"managed_tool_quarantined:{name}", tool=name, reason=reason
            )
        return tuple(working)


def _problem(tool: Tool) -> str | None:
    if not isinstance(tool.execution, HttpExecution):
        return f"transport {tool.execution.transport!r} is not served by this version of the proxy"
    return schema_problem(tool.input_schema)


def _secrets(auth: Auth) -> list[Secret]:
    match auth:
        case BearerAuth(token=value) | HeaderAuth(token=value) | BasicAuth(password=value):
            return [] if isinstance(value, SecretRef) else [value]
        case _:
            return []
