"""The agents of the pod: context directory → ``Agent``, reloaded when a file changes (spec/contract.md "Layout").

A directory that does not parse fails that agent closed, with one log event, and no other agent. A tool whose entry is
malformed is left out, with one event, and the others work; so is a context block that can't be placed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.context_files import ContextBlock, ContextBlocks, Feed, Feeds, Memory
from claw_contract.manifest import (
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    HttpExecution,
    Manifest,
    QuarantinedTool,
    Tool,
    read_manifest,
)
from claw_contract.metadata import Metadata
from claw_contract.names import is_agent_id
from claw_contract.secret import Secret, SecretRef
from claw_mediate.core.json_schema import find_schema_problem
from claw_mediate.core.types import Limits
from claw_mediate.file_cache import Identity, identity, read_at
from claw_mediate.telemetry.event_log import EventLog

_METADATA, _TOOLS = "metadata.json", "tools.json"
_FEEDS, _MEMORY, _BLOCKS = "feeds.json", "memory.json", "context-blocks.json"
_FILES = (_METADATA, _TOOLS, _FEEDS, _MEMORY, _BLOCKS)
_PLACEMENTS = ("before_feeds", "after_feeds")
_CADENCES = ("every_turn", "always")
"""The original's word, and ours for the same."""


_NO_TOOLS: tuple[Manifest, tuple[QuarantinedTool, ...]] = (Manifest(version=1), ())


class _BrokenFileError(Exception):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent as its context directory describes it. ``digest`` names the compile in every event."""

    id: str
    metadata: Metadata
    tools: tuple[Tool, ...]
    limits: Limits
    digest: str
    feeds: tuple[Feed, ...] = ()
    memory: Memory | None = None
    blocks: tuple[ContextBlock, ...] = ()
    quarantined: tuple[QuarantinedTool, ...] = ()
    """Tools of the manifest that can't be offered."""

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Values that must not leave the process on this agent's account."""
        found = [secret for tool in self.tools for secret in _secrets(tool.execution.auth)]
        found += [feed.auth for feed in self.feeds if isinstance(feed.auth, Secret)]
        if self.memory is not None and self.memory.auth is not None:
            found += _secrets(self.memory.auth)
        if (token := self.metadata.token) is not None:
            half = token.reveal().partition(":")[2]
            found += [token, *([Secret(half)] if half else [])]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Loaded:
    files: tuple[Identity, ...]
    agent: Agent | None


class _Read(NamedTuple):
    """An agent whose files are being read."""

    id: str
    digest: str


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
        while True:
            tree = _tree(self._root)
            try:
                directory = os.open(f"{self._root}/{agent_id}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                if _tree(self._root) == tree:
                    self._cache.pop(agent_id, None)
                    return None
                continue
            try:
                files = tuple(identity(name, directory) for name in _FILES)
                cached = self._cache.get(agent_id)
                if cached is not None and cached.files == files:
                    return cached.agent
                present = {name for name, file in zip(_FILES, files, strict=True) if file is not None}
                contents = {name: _content(name, directory) for name in _FILES if name in present | {_METADATA}}
            finally:
                os.close(directory)
            # A tree that was exchanged meanwhile may have been read while it was removed.
            if _tree(self._root) == tree:
                loaded = self._cache[agent_id] = _Loaded(files, self._load(agent_id, contents))
                return loaded.agent

    def ids(self) -> list[str]:
        """The names of all context directories, sound or not."""
        if not self._root.is_dir():
            return []
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_dir() and is_agent_id(entry.name))

    def forget(self) -> dict[str, Agent | None]:
        """Read every agent anew when it is asked for; returns those that were read last."""
        known, self._cache = self._cache, {}
        return {agent_id: loaded.agent for agent_id, loaded in known.items()}

    def _load(self, agent_id: str, read: Mapping[str, bytes | OSError]) -> Agent | None:
        try:
            contents = {name: _readable(name, content) for name, content in read.items()}
            metadata = _parsed(_METADATA, contents, Metadata.model_validate_json, None)
            manifest, left_out = _parsed(_TOOLS, contents, read_manifest, _NO_TOOLS)
            feeds = _parsed(_FEEDS, contents, Feeds.model_validate_json, Feeds(()))
            memory = _parsed(_MEMORY, contents, Memory.model_validate_json, None)
            blocks = _parsed(_BLOCKS, contents, ContextBlocks.model_validate_json, ContextBlocks(version=1))
        except _BrokenFileError as error:
            self._log.event("error", agent_id, error="agent_context_broken", file=error.name, reason=str(error))
            return None
        assert metadata is not None
        digest = metadata.digest or hashlib.sha256(b"\0".join(contents.values())).hexdigest()
        told = _Read(agent_id, digest)
        tools, quarantined = self._working(told, manifest, left_out)
        self._log.event(
            "tool_manifest_loaded",
            told,
            manifest_present=_TOOLS in contents,
            tools_count=len(tools),
            feeds_count=len(feeds.root),
        )
        placed = self._placed(told, blocks)
        return Agent(
            agent_id,
            metadata,
            tools,
            Limits.from_policy(manifest.policy),
            digest,
            feeds.root,
            memory,
            placed,
            quarantined,
        )

    def _placed(self, told: _Read, blocks: ContextBlocks) -> tuple[ContextBlock, ...]:
        """The blocks that are enabled, without those that can't be placed as they ask."""
        placed: list[ContextBlock] = []
        for block in blocks.blocks:
            if block.enabled is False:
                continue
            if block.cadence in _CADENCES and block.placement in _PLACEMENTS:
                placed.append(block)
                continue
            served = block.cadence in _CADENCES
            self._log.event(
                "intervention",
                told,
                intervention=f"context_block_quarantined:{block.id}",
                reason="unsupported_placement" if served else "unsupported_cadence",
            )
        return tuple(placed)

    def _working(
        self, told: _Read, manifest: Manifest, left_out: tuple[QuarantinedTool, ...]
    ) -> tuple[tuple[Tool, ...], tuple[QuarantinedTool, ...]]:
        problems = {entry.name: entry.reason for entry in left_out}
        working: list[Tool] = []
        for tool in manifest.tools:
            if (problem := _problem(tool)) is not None:
                problems[tool.name] = problem
            else:
                working.append(tool)
        for name, reason in problems.items():
            self._log.event(
                "intervention", told, intervention=f"managed_tool_quarantined:{name}", tool=name, reason=reason
            )
        return tuple(working), tuple(QuarantinedTool(name=name, reason=reason) for name, reason in problems.items())


def _tree(root: Path) -> tuple[int, int, int] | None:
    """Which tree the agents' directories are in; another one after the next compile. An inode's number is soon used again."""
    try:
        found = root.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _content(name: str, directory: int) -> bytes | OSError:
    try:
        return read_at(name, directory)
    except OSError as error:
        return error


def _readable(name: str, content: bytes | OSError) -> bytes:
    if isinstance(content, OSError):
        raise _BrokenFileError(name, content.strerror or "unreadable") from content
    return content


def _parsed[T](name: str, contents: Mapping[str, bytes], parse: Callable[[bytes], T], absent: T) -> T:
    if name not in contents:
        return absent
    try:
        return parse(contents[name])
    except ValidationError as error:
        raise _BrokenFileError(name, error_line(error)) from error


def _problem(tool: Tool) -> str | None:
    if not isinstance(tool.execution, HttpExecution):
        return f"transport {tool.execution.transport!r} is not served by this version of the proxy"
    return find_schema_problem(tool.input_schema)


def _secrets(auth: Auth) -> list[Secret]:
    match auth:
        case BearerAuth(token=value) | HeaderAuth(token=value) | BasicAuth(password=value):
            return [] if isinstance(value, SecretRef) else [value]
        case _:
            return []
