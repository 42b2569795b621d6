"""memory_read and memory_write: MEMORY.md in the root of the workspace
(docs/spec/tools-host.md "The tools").

Rules. It is a file like others: it is written atomically, under the lock of its folder, so that of
concurrent writers, in other processes too, none loses anything; a link in its place is not written.
What would make it too large is refused whole.
"""

import os
import re
from typing import Final, override

from claw_contract.base import JsonObject
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.folder import Call, Folder
from claw_tools.files.protection import ProtectedFiles
from claw_tools.files.tools import FileTool, parameters
from claw_tools.files.workspace import Workspace
from claw_tools.settings import FileSettings
from claw_tools.tool import READ_ONLY, Tool

MEMORY: Final = "MEMORY.md"
_MAX_MATCHES: Final = 20
_BLANK_LINES: Final = re.compile(r"\n\s*\n")
_UNPROTECTED: Final = ProtectedFiles(())


def memory_tools(workspace: Workspace, settings: FileSettings) -> list[Tool]:
    """Return the memory tools of one principal."""
    return [MemoryRead(workspace, settings), MemoryWrite(workspace, settings)]


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
    def work(self, args: JsonObject, call: Call) -> JsonObject:
        content, limit = self._read(), self._settings.max_memory
        text = content[:limit].decode(errors="replace")
        words = set(args.get("query", "").casefold().split())
        if not words:
            return (
                {"content": text} if len(content) <= limit else {"content": text, "truncated": True}
            )
        matches = [
            each for each in _paragraphs(text) if all(word in each.casefold() for word in words)
        ]
        return {"matches": matches[:_MAX_MATCHES], "count": len(matches)}

    def _read(self) -> bytes:
        try:
            descriptor = self._workspace.open_file(MEMORY)
        except ToolError as error:
            if error.code is ErrorCode.FILE_NOT_FOUND:
                return b""
            raise
        return _read_notes(descriptor, self._settings.max_memory)


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
    def work(self, args: JsonObject, call: Call) -> JsonObject:
        limit, content = self._settings.max_memory, self.encode(args["content"])
        with self._workspace.open_place(MEMORY, _UNPROTECTED, call) as (folder, name):
            if args.get("mode") != "overwrite":
                content = _append(_find_notes(folder, limit), content)
            if len(content) > limit:
                problem = (
                    f"the notes would have {len(content)} bytes, and {limit} are allowed: "
                    "overwrite them with a summary."
                )
                raise ToolError(ErrorCode.MEMORY_FULL, problem)
            folder.replace(name, content, call)
        return {"bytes": len(content)}


def _find_notes(folder: Folder, limit: int) -> bytes:
    try:
        descriptor = folder.open_file(MEMORY)
    except FileNotFoundError:
        return b""
    return _read_notes(descriptor, limit)


def _read_notes(descriptor: int, limit: int) -> bytes:
    """Return the notes; one byte more than the limit of those that another program
    made too long.
    """
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit + 1)


def _append(notes: bytes, content: bytes) -> bytes:
    """Return the notes with a paragraph more."""
    before = notes.rstrip(b"\n")
    ending = b"" if content.endswith(b"\n") else b"\n"
    return b"".join((before, b"\n\n" if before else b"", content, ending))


def _paragraphs(text: str) -> list[str]:
    return [each.strip("\n") for each in _BLANK_LINES.split(text) if each.strip()]
