"""The difference between two compiles: tools gained or lost, and files changed
(docs/spec/compile.md "Verbs", plan).

Rules. Both sides are trees of bytes, as they are emitted: what is compared is what the proxy would
read. What stands in the files is not shown, for some hold credentials.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from pydantic import ValidationError

from claw_contract.manifest import Effect, Tool, read_manifest

type Tree = Mapping[PurePosixPath, bytes]
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
        return "gained" if self.before is None else "lost" if self.after is None else "changed"

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
    return Changes(
        tuple(_tools(_granted_tools(before), _granted_tools(after))), tuple(_files(before, after))
    )


def _granted_tools(tree: Tree) -> dict[tuple[str, str], Tool]:
    """Return (agent, tool) → tool.

    A manifest that can't be read grants nothing: the proxy refuses such an agent.
    """
    tools: dict[tuple[str, str], Tool] = {}
    for path, content in tree.items():
        if path.parts[0] == "context" and path.parts[2:] == ("tools.json",):
            with contextlib.suppress(ValidationError):
                tools.update(
                    ((path.parts[1], tool.name), tool) for tool in read_manifest(content)[0].tools
                )
    return tools


def _tools(
    before: Mapping[tuple[str, str], Tool], after: Mapping[tuple[str, str], Tool]
) -> Iterator[ToolChange]:
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        what = _differences(old, new) if old is not None and new is not None else ()
        if old is None or new is None or what:
            yield ToolChange(*key, old.effect if old else None, new.effect if new else None, what)


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
        if before.get(path) != after.get(path):
            yield FileChange(
                path, "new" if path not in before else "gone" if path not in after else "changed"
            )
