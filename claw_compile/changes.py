"""The difference between two compiles: tools gained or lost, and files changed.

Specification: docs/spec/compile.md "Verbs", plan.

Rules. Both sides are trees of bytes, as they are emitted: what is compared is what the proxy would
read. The content of files is not shown, because some hold credentials.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from pydantic import ValidationError

from claw_compile.output.emit import Tree
from claw_contract.manifest import Effect, Tool, read_manifest

type Kind = Literal["gained", "lost", "changed"]


@dataclass(frozen=True)
class ToolChange:
    """One tool of one agent.

    ``before`` and ``after`` are its effects; None where it is not granted.
    """

    agent: str
    tool: str
    before: Effect | None
    after: Effect | None
    what: tuple[str, ...] = ()  # The parts of it that changed, for a tool that stays

    @property
    def kind(self) -> Kind:
        if self.before is None:
            return "gained"
        if self.after is None:
            return "lost"
        return "changed"

    @property
    def gains_write(self) -> bool:
        """Return whether the agent may now change something that it could not change before."""
        return self.after not in {None, "read"} and self.before in {None, "read"}


@dataclass(frozen=True)
class FileChange:
    path: PurePosixPath
    kind: Literal["new", "gone", "changed"]


@dataclass(frozen=True)
class Changes:
    """Changed tools and files; false when the compile would write what is there."""

    tools: tuple[ToolChange, ...]
    files: tuple[FileChange, ...]

    def __bool__(self) -> bool:
        return bool(self.tools or self.files)


def changes(before: Tree, after: Tree) -> Changes:
    """Return what changes from one tree to the other; agents, tools and paths in their order."""
    tools = _tools(_granted_tools(before), _granted_tools(after))
    return Changes(tuple(tools), tuple(_files(before, after)))


def _granted_tools(tree: Tree) -> dict[tuple[str, str], Tool]:
    """Return (agent, tool) → tool.

    A manifest that can't be read grants nothing: the proxy refuses such an agent.
    """
    tools: dict[tuple[str, str], Tool] = {}
    for path, content in tree.items():
        is_manifest = path.parts[0] == "context" and path.parts[2:] == ("tools.json",)
        if not is_manifest:
            continue

        with contextlib.suppress(ValidationError):
            manifest, _ = read_manifest(content)
            for tool in manifest.tools:
                tools[path.parts[1], tool.name] = tool
    return tools


def _tools(
    before: Mapping[tuple[str, str], Tool], after: Mapping[tuple[str, str], Tool]
) -> Iterator[ToolChange]:
    for agent, tool in sorted({*before, *after}):
        old = before.get((agent, tool))
        new = after.get((agent, tool))
        what = _differences(old, new) if old is not None and new is not None else ()
        is_unchanged = old is not None and new is not None and not what
        if is_unchanged:
            continue

        old_effect = old.effect if old is not None else None
        new_effect = new.effect if new is not None else None
        yield ToolChange(agent, tool, old_effect, new_effect, what)


def _differences(old: Tool, new: Tool) -> tuple[str, ...]:
    parts = (
        ("description", old.description != new.description),
        ("schema", old.input_schema != new.input_schema),
        ("annotations", old.annotations != new.annotations),
        ("execution", old.execution != new.execution),
        ("delivery", old.delivery != new.delivery),
    )
    return tuple(name for name, differs in parts if differs)


def _files(before: Tree, after: Tree) -> Iterator[FileChange]:
    for path in sorted({*before, *after}):
        if path not in before:
            yield FileChange(path, "new")
        elif path not in after:
            yield FileChange(path, "gone")
        elif before[path] != after[path]:
            yield FileChange(path, "changed")
