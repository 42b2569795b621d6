"""read_file, write_file, edit_file and list_directory (docs/spec/tools-host.md "Files").

Rules. All of them work inside the workspace and on regular files only. A write is atomic, and
refused for a protected file.
"""

import functools
import heapq
import os
import re
import stat
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Final, override

from claw_contract.base import JsonObject
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.folder import TEMPORARY, Call
from claw_tools.files.pages import Lines, read_page
from claw_tools.files.paths import explain_errors
from claw_tools.files.protection import ProtectedFiles
from claw_tools.files.workspace import Workspace
from claw_tools.settings import FileSettings
from claw_tools.tool import READ_ONLY, Tool

_PATH: Final = {"type": "string", "description": "Path relative to the workspace"}
_MAX_LINES: Final = 1_000_000_000
_MAX_COUNTED: Final = 100  # Matches that edit_file counts before it says "at least"


def file_tools(workspace: Workspace, settings: FileSettings) -> list[Tool]:
    """Return the file tools of one principal."""
    return [tool(workspace, settings) for tool in (ReadFile, WriteFile, EditFile, ListDirectory)]


def parameters(required: JsonObject, optional: JsonObject | None = None) -> JsonObject:
    """Return the schema of an object with these properties, and no other."""
    properties = {**required, **(optional or {})}
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


class FileTool(Tool):
    """A tool whose work is done in a thread of its workspace."""

    max_seconds = 30.0

    def __init__(self, workspace: Workspace, settings: FileSettings) -> None:
        """Belong to the principal of this workspace."""
        self._workspace, self._settings = workspace, settings
        self._protected = ProtectedFiles(settings.protected)

    @override
    async def execute(self, args: JsonObject) -> Any:
        return await self._workspace.run(functools.partial(self.work, args))

    @abstractmethod
    def work(self, args: JsonObject, call: Call) -> JsonObject:
        """Return the result. Raise ``ToolError``."""

    def encode(self, content: str) -> bytes:
        """Return what a file shall hold. Raise ``ToolError`` if that is too much, or no Unicode."""
        try:
            encoded = content.encode()
        except UnicodeEncodeError:
            raise ToolError(
                ErrorCode.INVALID_ARGS, "the text holds half a surrogate pair, which no file can."
            ) from None
        if len(encoded) > self._settings.max_write:
            limit = self._settings.max_write
            raise ToolError(
                ErrorCode.INVALID_ARGS,
                f"the file would have {len(encoded)} bytes: at most {limit} are allowed.",
            )
        return encoded


class ReadFile(FileTool):
    """The tool ``read_file``."""

    name = "read_file"
    description = (
        "Read a text file of the workspace. A long file comes in pages: where next_offset is "
        "returned, call again with it as"
        " offset."
    )
    parameters = parameters(
        {"path": _PATH},
        {
            "offset": {
                "type": "integer",
                "minimum": 0,
                "maximum": _MAX_LINES,
                "description": "Lines to skip (default: 0)",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_LINES,
                "description": "Lines to return at most",
            },
        },
    )
    annotations = READ_ONLY

    @override
    def work(self, args: JsonObject, call: Call) -> JsonObject:
        room = min(self._settings.max_read, self._settings.max_page)
        asked = Lines(int(args.get("offset", 0)), int(args.get("limit", _MAX_LINES)), room)
        path = str(args["path"])
        with explain_errors(path), os.fdopen(self._workspace.open_file(path), "rb") as file:
            return read_page(file, asked, call)


class WriteFile(FileTool):
    """The tool ``write_file``."""

    name = "write_file"
    description = (
        "Write a text file of the workspace. It replaces what the file held, and makes "
        "folders that are missing."
    )
    parameters = parameters(
        {
            "path": _PATH,
            "content": {"type": "string", "description": "All that the file shall hold"},
        }
    )

    @override
    def work(self, args: JsonObject, call: Call) -> JsonObject:
        content = self.encode(args["content"])
        with self._workspace.open_place(
            args["path"], self._protected, call, make_folders=True
        ) as place:
            is_new = place.folder.find_file(place.name) is None
            place.folder.replace(place.name, content, call)
        return {"bytes": len(content), "created": is_new}


class EditFile(FileTool):
    """The tool ``edit_file``."""

    name = "edit_file"
    description = (
        "Replace old_text by new_text in a text file of the workspace. old_text must stand in it "
        "exactly once: give enough of"
        " what is around it. In a file whose lines all end with CRLF, line ends in both texts "
        "mean CRLF."
    )
    parameters = parameters(
        {
            "path": _PATH,
            "old_text": {
                "type": "string",
                "description": "Text that stands in the file exactly once",
            },
            "new_text": {"type": "string", "description": "Text that takes its place, literally"},
        }
    )

    @override
    def work(self, args: JsonObject, call: Call) -> JsonObject:
        old, new = args["old_text"], args["new_text"]
        if not old or old == new:
            problem = "is empty" if not old else "and new_text are the same"
            raise ToolError(
                ErrorCode.INVALID_ARGS, f"old_text {problem}: there is nothing to replace."
            )
        with self._workspace.open_place(args["path"], self._protected, call) as (folder, name):
            with os.fdopen(folder.open_file(name), "rb") as file:
                found = os.fstat(file.fileno())
                text = self._decode(file.read(self._settings.max_write + 1))
            content = self.encode(_replace_once(text, old, new))
            folder.replace(name, content, call, found)
        return {"bytes": len(content)}

    def _decode(self, content: bytes) -> str:
        if len(content) > self._settings.max_write:
            problem = (
                f"the file has more than {self._settings.max_write} bytes, which is the most "
                "that is edited."
            )
            raise ToolError(ErrorCode.EXECUTION_FAILED, problem)
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise ToolError(
                ErrorCode.EXECUTION_FAILED, "the file is not UTF-8, so it is not edited."
            ) from None


class ListDirectory(FileTool):
    """The tool ``list_directory``."""

    name = "list_directory"
    description = 'List what is in a folder of the workspace, by name; "." is the workspace itself.'
    parameters = parameters({"path": _PATH})
    annotations = READ_ONLY

    @override
    def work(self, args: JsonObject, call: Call) -> JsonObject:
        descriptor = self._workspace.open_folder(args["path"])
        try:
            with explain_errors(args["path"]), os.scandir(descriptor) as entries:
                counted = _EntryCounter(entries, call)
                first = heapq.nsmallest(
                    self._settings.max_entries, counted, key=lambda entry: entry.name
                )
                result: JsonObject = {"entries": [_describe(entry) for entry in first]}
        finally:
            os.close(descriptor)
        return (
            result
            if len(first) == counted.number
            else result | {"truncated": True, "original_entries": counted.number}
        )


class _EntryCounter:
    """The entries of a folder that a listing shows, and their number when all have been."""

    def __init__(self, entries: Iterator[os.DirEntry[str]], call: Call) -> None:
        self.number, self._entries, self._call = 0, entries, call

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        for entry in self._entries:
            self._call.check()
            if entry.name != TEMPORARY:
                self.number += 1
                yield entry


def _describe(entry: os.DirEntry[str]) -> JsonObject:
    """Return name and type of an entry, and the size of a file; of what a link
    leads to, nothing.
    """
    name = os.fsencode(entry.name).decode(errors="backslashreplace")
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return {"name": name, "type": "other"}  # It has gone meanwhile
    if stat.S_ISREG(status.st_mode):
        return {"name": name, "type": "file", "size": status.st_size}
    kind = (
        "folder"
        if stat.S_ISDIR(status.st_mode)
        else "link"
        if stat.S_ISLNK(status.st_mode)
        else "other"
    )
    return {"name": name, "type": kind}


def _replace_once(text: str, old: str, new: str) -> str:
    """Return the text with its one match replaced.

    Raise ``ToolError`` for none, and for several, overlapping ones too.
    """
    breaks = text.count("\n")
    if breaks and breaks == text.count("\r\n"):
        old, new = (re.sub(r"\r?\n", "\r\n", part) for part in (old, new))
    place, count = text.find(old), 0
    following = place
    while following >= 0 and count < _MAX_COUNTED:
        count += 1
        following = text.find(old, following + 1)
    if count == 0:
        raise ToolError(
            ErrorCode.INVALID_ARGS,
            "old_text does not stand in the file: read it, and copy the text exactly.",
        )
    if count > 1:
        number = f"at least {count}" if following >= 0 else count
        problem = f"old_text stands in the file {number} times: give more of what is around it."
        raise ToolError(ErrorCode.INVALID_ARGS, problem)
    return f"{text[:place]}{new}{text[place + len(old) :]}"
