"""The pod's agents, each read from its context directory and again when a file changes.

docs/spec/contract.md "Layout". A directory that can't be parsed disables its agent and no other. A
malformed tool, or a context block that can't be placed, is left out. Each such problem is logged
once for each version of the files.

Only a directory that is not there means that there is no such agent. Any other failure to read (no
descriptor is left, a disk fails) says nothing about the agent: it is raised, and what was read
before stays.
"""

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
    PreambleMode,
    QuarantinedTool,
    StreamMode,
    Tool,
    read_manifest,
)
from claw_contract.metadata import Metadata
from claw_contract.names import is_agent_id
from claw_contract.secret import Secret, SecretRef
from claw_mediate.core.types import TurnLimits
from claw_mediate.file_cache import FileVersion, LookTimer, file_version, is_of_the_file, read_file
from claw_mediate.telemetry.event_log import EventLog

_METADATA = "metadata.json"
_TOOLS = "tools.json"
_FEEDS = "feeds.json"
_MEMORY = "memory.json"
_BLOCKS = "context-blocks.json"
_FILES = (_METADATA, _TOOLS, _FEEDS, _MEMORY, _BLOCKS)
_PLACEMENTS = ("before_feeds", "after_feeds")
_CADENCES = ("every_turn", "always")  # The original's word, and our synonym
_NO_TOOLS: tuple[Manifest, tuple[QuarantinedTool, ...]] = (Manifest(version=1), ())


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
    stream: StreamMode = "buffered"
    preamble: PreambleMode = "show"

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

        token = self.metadata.token
        if token is not None:
            secrets.append(token)
            half = token.reveal().partition(":")[2]  # without the agent's name
            if half:
                secrets.append(Secret(half))
        return tuple(secrets)


class FileDefect(NamedTuple):
    """A defect of an agent's files.

    A broken file disables the agent; a tool or context block is left out.
    """

    kind: Literal["file", "tool", "context block"]
    name: str
    reason: str


class _CachedAgent(NamedTuple):
    timer: LookTimer
    files: tuple[FileVersion, ...]
    agent: Agent | None
    problems: tuple[FileDefect, ...]


class AgentDirectory:
    """The agents of one context root."""

    def __init__(
        self,
        root: Path,
        log: EventLog | None = None,
        on_change: Callable[[str], None] = lambda _agent_id: None,
        look_seconds: float = 0.0,
    ) -> None:
        """``on_change`` is told the id of an agent whose files changed since it was last found.

        An agent's files are looked at once in ``look_seconds``; 0: whenever it is found.
        """
        self._root = root
        self._log = log
        self._on_change = on_change
        self._look_seconds = look_seconds
        self._cache: dict[str, _CachedAgent] = {}

    def find(self, agent_id: str) -> Agent | None:
        """Return the agent by its current files.

        Return None if there is no such agent, or its directory is broken. Raise
        ``UnreadableDirectoryError`` if that can't be found out now.
        """
        cached = self._cache.get(agent_id)
        if cached is not None and not cached.timer.is_due():
            return cached.agent

        if not is_agent_id(agent_id):
            return None

        # A compilation replaces the whole tree of directories. What was read meanwhile may be of a
        # tree that was just being removed, so it is read again.
        while True:
            tree = _tree_version(self._root)
            try:
                directory = os.open(
                    f"{self._root}/{agent_id}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                )
            except (FileNotFoundError, NotADirectoryError):
                if _tree_version(self._root) != tree:
                    continue

                if self._cache.pop(agent_id, None) is not None:
                    self._on_change(agent_id)
                return None
            except OSError as error:
                raise UnreadableDirectoryError(error) from error

            try:
                files = tuple(file_version(name, directory) for name in _FILES)
                if cached is not None and cached.files == files:
                    cached.timer.restart()
                    return cached.agent
                contents = _read_contents(directory, files)
            finally:
                os.close(directory)

            if _tree_version(self._root) == tree:
                return self._load(agent_id, files, contents)

    def _load(
        self, agent_id: str, files: tuple[FileVersion, ...], contents: Mapping[str, bytes | OSError]
    ) -> Agent | None:
        """Parse an agent's files, and note what became of it."""
        agent, problems = _parse_agent(agent_id, contents)
        cached = self._cache.get(agent_id)
        timer = LookTimer(self._look_seconds)
        timer.restart()
        self._cache[agent_id] = _CachedAgent(timer, files, agent, problems)

        if cached is not None and cached.agent != agent:
            self._on_change(agent_id)
        self._log_load(agent_id, agent, problems, has_manifest=_TOOLS in contents)
        return agent

    def problems(self, agent_id: str) -> tuple[FileDefect, ...]:
        """Return the defects of the agent's files, as ``find`` last read them."""
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

    def readable(self) -> list[Agent]:
        """Return the agents whose files can be read now."""
        try:
            return [*filter(None, map(self.find_readable, self.ids()))]
        except UnreadableDirectoryError:
            return []

    def find_readable(self, agent_id: str) -> Agent | None:
        """Return an agent, or None for one that can't be read now."""
        try:
            return self.find(agent_id)
        except UnreadableDirectoryError:
            return None

    def clear_cache(self) -> dict[str, Agent | None]:
        """Read every agent anew on its next use. Return the agents that were cached."""
        cached, self._cache = self._cache, {}
        return {agent_id: entry.agent for agent_id, entry in cached.items()}

    def _log_load(
        self,
        agent_id: str,
        agent: Agent | None,
        problems: tuple[FileDefect, ...],
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
                intervention = f"context_block_quarantined:{name}"
                self._log.event("intervention", agent, intervention=intervention, reason=reason)

        if agent is not None:
            self._log.event(
                "tool_manifest_loaded",
                agent,
                manifest_present=has_manifest,
                tools_count=len(agent.granted),
                feeds_count=len(agent.feeds),
            )


def _read_contents(directory: int, files: tuple[FileVersion, ...]) -> Mapping[str, bytes | OSError]:
    """Return the contents of an agent's files, or the errors of those that can't be read.

    An optional file that is not there is left out. Raise ``UnreadableDirectoryError``.
    """
    present = {_METADATA}  # Without it there is no agent, which its error says
    for name, version in zip(_FILES, files, strict=True):
        if version is not None:
            present.add(name)
    return {name: _content(name, directory) for name in _FILES if name in present}


def _parse_agent(
    agent_id: str, files: Mapping[str, bytes | OSError]
) -> tuple[Agent | None, tuple[FileDefect, ...]]:
    """Return the agent, or None if one of its files is broken, and all defects."""
    try:
        contents = {name: _readable(name, content) for name, content in files.items()}
        metadata = _parse(_METADATA, contents, Metadata.model_validate_json, None)
        manifest, malformed = _parse(_TOOLS, contents, read_manifest, _NO_TOOLS)
        feeds = _parse(_FEEDS, contents, Feeds.model_validate_json, Feeds(()))
        memory = _parse(_MEMORY, contents, Memory.model_validate_json, None)
        no_blocks = ContextBlocks(version=1)
        blocks = _parse(_BLOCKS, contents, ContextBlocks.model_validate_json, no_blocks)
    except _BrokenFileError as error:
        return None, (FileDefect("file", error.name, str(error)),)

    assert metadata is not None
    tools, quarantined = _usable_tools(manifest, malformed)
    placed, misplaced = _usable_blocks(blocks)
    agent = Agent(
        id=agent_id,
        metadata=metadata,
        tools=tuple(tool for tool in tools if tool.delivery == "mediated"),
        limits=TurnLimits.from_policy(manifest.policy),
        digest=metadata.digest or hashlib.sha256(b"\0".join(contents.values())).hexdigest(),
        feeds=feeds.root,
        memory=memory,
        blocks=placed,
        quarantined=quarantined,
        native_tools=tuple(tool for tool in tools if tool.delivery == "native"),
        stream=manifest.policy.stream,
        preamble=manifest.policy.preamble,
    )
    problems = [FileDefect("tool", tool.name, tool.reason) for tool in quarantined]
    return agent, (*problems, *misplaced)


def _usable_blocks(
    blocks: ContextBlocks,
) -> tuple[tuple[ContextBlock, ...], list[FileDefect]]:
    """Return the enabled context blocks that can be placed, and the defects of the others."""
    placed: list[ContextBlock] = []
    problems: list[FileDefect] = []
    for block in blocks.blocks:
        if block.enabled is False:
            continue

        problem = _block_problem(block)
        if problem is None:
            placed.append(block)
        else:
            problems.append(FileDefect("context block", block.id, problem))
    return tuple(placed), problems


def _block_problem(block: ContextBlock) -> str | None:
    if block.cadence not in _CADENCES:
        return "unsupported_cadence"
    return None if block.placement in _PLACEMENTS else "unsupported_placement"


def _usable_tools(
    manifest: Manifest, malformed: tuple[QuarantinedTool, ...]
) -> tuple[tuple[Tool, ...], tuple[QuarantinedTool, ...]]:
    """Return the tools that can be offered, and the others with their reasons."""
    reasons = {entry.name: entry.reason for entry in malformed}
    usable: list[Tool] = []
    for tool in manifest.tools:
        reason = find_schema_problem(tool.input_schema)
        if reason is None:
            usable.append(tool)
        else:
            reasons[tool.name] = reason

    quarantined = [QuarantinedTool(name=name, reason=reason) for name, reason in reasons.items()]
    return tuple(usable), tuple(quarantined)


def _tree_version(root: Path) -> tuple[int, int, int] | None:
    """Return the identity of the tree, which every compilation replaces.

    The time of its change is part of it, because inode numbers are soon used again.
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
        if not is_of_the_file(error):
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


def _secrets(auth: Auth) -> list[Secret]:
    match auth:
        case BearerAuth(token=value) | HeaderAuth(token=value) | BasicAuth(password=value):
            return [] if isinstance(value, SecretRef) else [value]
        case _:
            return []
