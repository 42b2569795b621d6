"""The pod's agents, each read from its context directory and again when a file changes
(docs/spec/contract.md "Layout").

A directory that can't be parsed disables its agent and no other. A malformed tool, or a context
block that can't be placed, is left out. Each such problem is logged once for each version of the
files.

Only a directory that is not there means that there is no such agent. Any other failure to read (no
descriptor is left, a disk fails) says nothing about the agent: it is raised, and what was read
before stays.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.context_files import ContextBlock, ContextBlocks, Feed, Feeds, Memory
from claw_contract.json_schema import find_schema_problem
from claw_contract.manifest import (
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    Manifest,
    QuarantinedTool,
    Tool,
    read_manifest,
)
from claw_contract.metadata import Metadata
from claw_contract.names import is_agent_id
from claw_contract.secret import Secret, SecretRef
from claw_mediate.core.types import TurnLimits
from claw_mediate.file_cache import FileVersion, file_version, read_file
from claw_mediate.telemetry.event_log import EventLog

_METADATA, _TOOLS = "metadata.json", "tools.json"
_FEEDS, _MEMORY, _BLOCKS = "feeds.json", "memory.json", "context-blocks.json"
_FILES = (_METADATA, _TOOLS, _FEEDS, _MEMORY, _BLOCKS)
_PLACEMENTS = ("before_feeds", "after_feeds")
_CADENCES = ("every_turn", "always")  # The original's word, and our synonym
_NO_TOOLS: tuple[Manifest, tuple[QuarantinedTool, ...]] = (Manifest(version=1), ())


_OF_THE_FILE = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENXIO,
        errno.EINVAL,
    }
)
"""Errors that are about a file itself, and disable its agent.

Any other one is about the machine, and passes.
"""


class UnreadableDirectoryError(Exception):
    """The context directories can't be read now: which agents there are is not known.

    The message is one sentence.
    """

    def __init__(self, error: OSError) -> None:
        reason = error.strerror or "unknown error"
        super().__init__(f"the agents' directories can't be read: {reason}")


class _BrokenFileError(Exception):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent as its context directory describes it.

    ``digest`` identifies the compilation in every event.

    ``tools`` are offered to the model with its requests; ``native_tools`` are served by the broker,
    and never offered.
    """

    id: str
    metadata: Metadata
    tools: tuple[Tool, ...]
    limits: TurnLimits
    digest: str
    feeds: tuple[Feed, ...] = ()
    memory: Memory | None = None
    blocks: tuple[ContextBlock, ...] = ()
    quarantined: tuple[QuarantinedTool, ...] = ()  # Tools of the manifest that can't be offered
    native_tools: tuple[Tool, ...] = ()

    @property
    def granted(self) -> tuple[Tool, ...]:
        """All tools, whatever their delivery."""
        return (*self.tools, *self.native_tools)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All secrets in the agent's files, the agent's token included."""
        secrets = [secret for tool in self.granted for secret in _secrets(tool.execution.auth)]
        secrets += [feed.auth for feed in self.feeds if isinstance(feed.auth, Secret)]
        if self.memory is not None and self.memory.auth is not None:
            secrets += _secrets(self.memory.auth)
        if (token := self.metadata.token) is not None:
            half = token.reveal().partition(":")[2]
            secrets += [token, *([Secret(half)] if half else [])]
        return tuple(secrets)


class Problem(NamedTuple):
    """A defect of an agent's files: a broken file disables the agent, a tool or
    context block is left out.
    """

    kind: Literal["file", "tool", "context block"]
    name: str
    reason: str


class _CachedAgent(NamedTuple):
    files: tuple[FileVersion, ...]
    agent: Agent | None
    problems: tuple[Problem, ...]


class AgentDirectory:
    """The agents of one context root."""

    def __init__(
        self,
        root: Path,
        log: EventLog | None = None,
        on_change: Callable[[str], None] = lambda _agent_id: None,
    ) -> None:
        """``on_change`` is called with the id of an agent whose files have changed
        since it was last found.
        """
        self._root = root
        self._log = log
        self._on_change = on_change
        self._cache: dict[str, _CachedAgent] = {}

    def find(self, agent_id: str) -> Agent | None:
        """Return the agent by its current files; None if there is no such agent or
        its directory is broken.

        Raise ``UnreadableDirectoryError`` if that can't be found out now.
        """
        if not is_agent_id(agent_id):
            return None
        while True:
            tree = _tree_version(self._root)
            try:
                directory = os.open(
                    f"{self._root}/{agent_id}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                )
            except OSError as error:
                if not isinstance(error, FileNotFoundError | NotADirectoryError):
                    raise UnreadableDirectoryError(error) from error
                if _tree_version(self._root) == tree:
                    if self._cache.pop(agent_id, None) is not None:
                        self._on_change(agent_id)
                    return None
                continue
            try:
                files = tuple(file_version(name, directory) for name in _FILES)
                cached = self._cache.get(agent_id)
                if cached is not None and cached.files == files:
                    return cached.agent
                present = {
                    name for name, version in zip(_FILES, files, strict=True) if version is not None
                }
                contents = {
                    name: _content(name, directory)
                    for name in _FILES
                    if name in present | {_METADATA}
                }
            finally:
                os.close(directory)
            # A tree that was replaced meanwhile may have been read while it was being removed.
            if _tree_version(self._root) == tree:
                agent, problems = _load(agent_id, contents)
                self._cache[agent_id] = _CachedAgent(files, agent, problems)
                if cached is not None and cached.agent != agent:
                    self._on_change(agent_id)
                self._log_load(agent_id, agent, problems, has_manifest=_TOOLS in contents)
                return agent

    def problems(self, agent_id: str) -> tuple[Problem, ...]:
        """Return what was wrong with the agent's files when ``find`` last read them."""
        cached = self._cache.get(agent_id)
        return cached.problems if cached is not None else ()

    def ids(self) -> list[str]:
        """Return the names of all context directories, sound or not.

        Raise ``UnreadableDirectoryError``.
        """
        try:
            entries = [*self._root.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise UnreadableDirectoryError(error) from error
        return sorted(entry.name for entry in entries if entry.is_dir() and is_agent_id(entry.name))

    def clear_cache(self) -> dict[str, Agent | None]:
        """Read every agent anew on its next use. Return the agents that were cached."""
        cached, self._cache = self._cache, {}
        return {agent_id: entry.agent for agent_id, entry in cached.items()}

    def _log_load(
        self,
        agent_id: str,
        agent: Agent | None,
        problems: tuple[Problem, ...],
        *,
        has_manifest: bool,
    ) -> None:
        if self._log is None:
            return
        for kind, name, reason in problems:
            if kind == "file":
                self._log.event(
                    "error", agent_id, error="agent_context_broken", file=name, reason=reason
                )
            elif kind == "tool":
                intervention = f"managed_tool_quarantined:{name}"
                self._log.event(
                    "intervention", agent, intervention=intervention, tool=name, reason=reason
                )
            else:
                self._log.event(
                    "intervention",
                    agent,
                    intervention=f"context_block_quarantined:{name}",
                    reason=reason,
                )
        if agent is not None:
            self._log.event(
                "tool_manifest_loaded",
                agent,
                manifest_present=has_manifest,
                tools_count=len(agent.granted),
                feeds_count=len(agent.feeds),
            )


def _load(
    agent_id: str, files: Mapping[str, bytes | OSError]
) -> tuple[Agent | None, tuple[Problem, ...]]:
    try:
        contents = {name: _readable(name, content) for name, content in files.items()}
        metadata = _parse(_METADATA, contents, Metadata.model_validate_json, None)
        manifest, malformed = _parse(_TOOLS, contents, read_manifest, _NO_TOOLS)
        feeds = _parse(_FEEDS, contents, Feeds.model_validate_json, Feeds(()))
        memory = _parse(_MEMORY, contents, Memory.model_validate_json, None)
        blocks = _parse(
            _BLOCKS, contents, ContextBlocks.model_validate_json, ContextBlocks(version=1)
        )
    except _BrokenFileError as error:
        return None, (Problem("file", error.name, str(error)),)
    assert metadata is not None
    digest = metadata.digest or hashlib.sha256(b"\0".join(contents.values())).hexdigest()
    tools, quarantined = _usable_tools(manifest, malformed)
    enabled = [block for block in blocks.blocks if block.enabled is not False]
    placed = tuple(block for block in enabled if _block_problem(block) is None)
    agent = Agent(
        id=agent_id,
        metadata=metadata,
        tools=tuple(tool for tool in tools if tool.delivery == "mediated"),
        limits=TurnLimits.from_policy(manifest.policy),
        digest=digest,
        feeds=feeds.root,
        memory=memory,
        blocks=placed,
        quarantined=quarantined,
        native_tools=tuple(tool for tool in tools if tool.delivery == "native"),
    )
    problems = [Problem("tool", tool.name, tool.reason) for tool in quarantined]
    problems += [
        Problem("context block", block.id, problem)
        for block in enabled
        if (problem := _block_problem(block)) is not None
    ]
    return agent, tuple(problems)


def _block_problem(block: ContextBlock) -> str | None:
    if block.cadence not in _CADENCES:
        return "unsupported_cadence"
    return None if block.placement in _PLACEMENTS else "unsupported_placement"


def _usable_tools(
    manifest: Manifest, malformed: tuple[QuarantinedTool, ...]
) -> tuple[tuple[Tool, ...], tuple[QuarantinedTool, ...]]:
    problems = {entry.name: entry.reason for entry in malformed}
    usable: list[Tool] = []
    for tool in manifest.tools:
        if (problem := _tool_problem(tool)) is not None:
            problems[tool.name] = problem
        else:
            usable.append(tool)
    return tuple(usable), tuple(
        QuarantinedTool(name=name, reason=reason) for name, reason in problems.items()
    )


def _tree_version(root: Path) -> tuple[int, int, int] | None:
    """Return the identity of the tree, which every compilation replaces; with
    ctime, as inode numbers are soon reused.
    """
    try:
        status = root.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _content(name: str, directory: int) -> bytes | OSError:
    try:
        return read_file(name, directory)
    except OSError as error:
        if error.errno not in _OF_THE_FILE:
            raise UnreadableDirectoryError(error) from error
        return error


def _readable(name: str, content: bytes | OSError) -> bytes:
    if isinstance(content, OSError):
        raise _BrokenFileError(name, content.strerror or "unreadable") from content
    return content


def _parse[T](
    name: str, contents: Mapping[str, bytes], parse: Callable[[bytes], T], absent: T
) -> T:
    if name not in contents:
        return absent
    try:
        return parse(contents[name])
    except ValidationError as error:
        raise _BrokenFileError(name, error_line(error)) from error


def _tool_problem(tool: Tool) -> str | None:
    return find_schema_problem(tool.input_schema)


def _secrets(auth: Auth) -> list[Secret]:
    match auth:
        case BearerAuth(token=value) | HeaderAuth(token=value) | BasicAuth(password=value):
            return [] if isinstance(value, SecretRef) else [value]
        case _:
            return []
