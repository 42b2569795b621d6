"""A workspace with tools, something outside of it, and what leads there."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from claw_contract.toolhost_file import PROTECTED, CallLimitsSection, LimitsSection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.memory import memory_tools
from claw_tools.files.tools import file_tools
from claw_tools.files.workspace import Workspace
from claw_tools.provider import CompositeToolProvider
from claw_tools.registry import ToolRegistry
from claw_tools.settings import Principal

DEFAULT_LIMITS = LimitsSection()
OWNER = 12_345
"""The user who owns the workspace, where the tests run as root."""
SECRET = "the secret that stands outside"


@dataclass(frozen=True)
class GuardedWorkspace:
    """A workspace ``ws`` beside the folders ``out`` and ``ws-evil``, in which
    nothing may be read or change.
    """

    home: Path
    workspace: Workspace
    registry: ToolRegistry

    @property
    def ws(self) -> Path:
        return self.home / "ws"

    @property
    def out(self) -> Path:
        return self.home / "out"

    async def call(self, name: str, **args: Any) -> Any:
        """Call a tool as a client does: with arguments as JSON, which the schema judges first."""
        return await self.registry.execute(self.registry.find(name), json.dumps(args))

    async def refused(self, name: str, **args: Any) -> ErrorCode:
        """Return the code of the error; its message must not tell where the workspace is."""
        with pytest.raises(ToolError) as refusal:
            await self.call(name, **args)
        assert str(self.home) not in refusal.value.message
        assert refusal.value.message.isprintable()
        return refusal.value.code

    async def tell(self, name: str, **args: Any) -> str:
        """Return all that a call tells its client, its error too."""
        try:
            return str(await self.call(name, **args))
        except ToolError as error:
            return f"{error.code}: {error.message}"

    def outside(self) -> dict[str, bytes]:
        """Return all that stands outside: what leads somewhere, and what files hold."""
        return {
            str(path): path.read_bytes() if path.is_file() else b""
            for folder in (self.home, self.out, self.home / "ws-evil")
            for path in sorted(folder.iterdir())
        }


@contextmanager
def opened(
    home: Path, limits: LimitsSection = DEFAULT_LIMITS, protected: Sequence[str] = PROTECTED
) -> Iterator[GuardedWorkspace]:
    """Make a guarded workspace in an empty folder."""
    for name in ("ws", "out", "ws-evil"):
        (home / name).mkdir(parents=True)
    for name in ("out", "ws-evil"):
        (home / name / "s").write_text(SECRET)
        (home / name).chmod(0o777)
        (home / name / "s").chmod(0o666)
    own(home / "ws")
    with guarded_at(home, limits, protected) as scene:
        yield scene


@contextmanager
def guarded_at(
    home: Path, limits: LimitsSection = DEFAULT_LIMITS, protected: Sequence[str] = PROTECTED
) -> Iterator[GuardedWorkspace]:
    """Open a guarded workspace that is there."""
    workspace = Workspace.open(home / "ws")
    try:
        yield GuardedWorkspace(home, workspace, registered(workspace, limits, protected))
    finally:
        workspace.close()


def registered(
    workspace: Workspace,
    limits: LimitsSection = DEFAULT_LIMITS,
    protected: Sequence[str] = PROTECTED,
) -> ToolRegistry:
    """Return a registry with the tools of a workspace."""
    principal = Principal(
        "tester",
        Path("unused"),
        ("*",),
        limits=CallLimitsSection(calls_per_minute=1 << 30, concurrent=1_000),
    )
    registry = ToolRegistry(principal, CompositeToolProvider())
    for tool in (
        *file_tools(workspace, limits, protected),
        *memory_tools(workspace, limits),
    ):
        registry.register(tool)
    return registry


def own(*paths: Path) -> None:
    """Give files to the workspace's owner, as far as this process may."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, OWNER, OWNER, follow_symlinks=False)


def write(path: Path, content: str | bytes = "inside") -> Path:
    """Write a file of the workspace's owner, and make its folders."""
    for folder in reversed(path.parents):
        if not folder.exists():
            folder.mkdir()
            own(folder)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    own(path)
    return path


def link(path: Path, target: str | Path) -> None:
    """Make a symlink of the workspace's owner."""
    path.symlink_to(target)
    own(path)


def bind(path: Path) -> socket.socket:
    """Make a socket in the file system, by a path that is short enough for one."""
    here = os.open(path.parent, os.O_PATH)
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)
    own(path)
    return bound
