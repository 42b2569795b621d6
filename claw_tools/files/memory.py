"""memory_read and memory_write: MEMORY.md in the root of the workspace.

Specification: docs/spec/tools-host.md "The tools".

Rules. It is a file like others. It is written atomically, under the lock of its folder, so that of
concurrent writers, in other processes too, none loses anything; a link in its place is not written.
A write that would make it too large is refused whole.
"""

import os
import re
from typing import Final, override

from claw_contract.base import JsonObject
from claw_contract.toolhost_file import LimitsSection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.folder import Cancellation, Folder
from claw_tools.files.protection import ProtectedFiles
from claw_tools.files.tools import FileTool, parameters
from claw_tools.files.workspace import Workspace
from claw_tools.tool import READ_ONLY, Tool

MEMORY: Final = "MEMORY.md"
_MAX_MATCHES: Final = 20
_BLANK_LINES: Final = re.compile(r"\n\s*\n")
_UNPROTECTED: Final = ProtectedFiles(())


def memory_tools(workspace: Workspace, limits: LimitsSection) -> list[Tool]:
    """Return the memory tools of one principal."""
    return [MemoryRead(workspace, limits), MemoryWrite(workspace, limits)]


class MemoryRead(FileTool):
    """The tool ``memory_read``."""

    name = "memory_read"
    description = (
        f"Read your notes ({MEMORY}), or the first {_MAX_MATCHES} paragraphs of them that "
        "hold every word of a query."
    )
    parameters = parameters(
        {},
        {
            "query": {
                "type": "string",
                "maxLength": 1_000,
                "description": "Words, in any case and order",
            }
        },
    )
    annotations = READ_ONLY

    @override
    def work(self, args: JsonObject, cancellation: Cancellation) -> JsonObject:
        limit = self._limits.memory_bytes
        content = self._read()
        text = content[:limit].decode(errors="replace")

        words = set(args.get("query", "").casefold().split())
        if not words:
            is_cut = len(content) > limit
            return {"content": text, "truncated": True} if is_cut else {"content": text}

        matches = [
            paragraph
            for paragraph in _paragraphs(text)
            if all(word in paragraph.casefold() for word in words)
        ]
        return {"matches": matches[:_MAX_MATCHES], "count": len(matches)}

    def _read(self) -> bytes:
        try:
            descriptor = self._workspace.open_file(MEMORY)
        except ToolError as error:
            if error.code is ErrorCode.FILE_NOT_FOUND:
                return b""
            raise
        return _read_notes(descriptor, self._limits.memory_bytes)


class MemoryWrite(FileTool):
    """The tool ``memory_write``."""

    name = "memory_write"
    description = f"Add a paragraph to your notes ({MEMORY}), or replace them all."
    parameters = parameters(
        {"content": {"type": "string", "description": "What to write"}},
        {
            "mode": {
                "type": "string",
                "enum": ["append", "overwrite"],
                "description": 'Default: "append"',
            }
        },
    )

    @override
    def work(self, args: JsonObject, cancellation: Cancellation) -> JsonObject:
        limit = self._limits.memory_bytes
        content = self.encode(args["content"])

        opened = self._workspace.open_for_writing(MEMORY, _UNPROTECTED, cancellation)
        with opened as (folder, name):
            if args.get("mode") != "overwrite":
                content = _append(_find_notes(folder, limit), content)
            if len(content) > limit:
                raise ToolError(
                    ErrorCode.MEMORY_FULL,
                    f"the notes would have {len(content)} bytes, and {limit} are allowed: "
                    "overwrite them with a summary.",
                )
            folder.replace(name, content, cancellation)
        return {"bytes": len(content)}


def _find_notes(folder: Folder, limit: int) -> bytes:
    try:
        descriptor = folder.open_file(MEMORY)
    except FileNotFoundError:
        return b""
    return _read_notes(descriptor, limit)


def _read_notes(descriptor: int, limit: int) -> bytes:
    """Return the notes, and at most one byte more than the limit.

    They are longer than it if another program wrote them.
    """
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit + 1)


def _append(notes: bytes, content: bytes) -> bytes:
    """Return the notes with a paragraph more."""
    before = notes.rstrip(b"\n")
    separator = b"\n\n" if before else b""
    ending = b"" if content.endswith(b"\n") else b"\n"
    return b"".join((before, separator, content, ending))


def _paragraphs(text: str) -> list[str]:
    return [part.strip("\n") for part in _BLANK_LINES.split(text) if part.strip()]
