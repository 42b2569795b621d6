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
from collections.abc import Iterable, Iterator
from typing import Any, Final, override

from claw_contract.base import JsonObject
from claw_contract.toolhost_file import LimitsSection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.folder import TEMPORARY, Cancellation
from claw_tools.files.pages import Lines, read_page
from claw_tools.files.paths import explain_errors
from claw_tools.files.protection import ProtectedFiles
from claw_tools.files.workspace import Workspace
from claw_tools.tool import READ_ONLY, Tool

_PATH: Final = {"type": "string", "description": "Path relative to the workspace"}
_MAX_LINES: Final = 1_000_000_000
_MAX_ENTRIES: Final = 1_000
_MAX_COUNTED: Final = 100  # Matches that edit_file counts before it says "at least"


def file_tools(workspace: Workspace, limits: LimitsSection, protected: Iterable[str]) -> list[Tool]:
    """Return the file tools of one principal; ``protected`` names files as ``ProtectedFiles``."""
    files = ProtectedFiles(protected)
    return [
        ReadFile(workspace, limits),
        WriteFile(workspace, limits, files),
        EditFile(workspace, limits, files),
        ListDirectory(workspace, limits),
    ]


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

    def __init__(self, workspace: Workspace, limits: LimitsSection) -> None:
        """Belong to the principal of this workspace."""
        self._workspace = workspace
        self._limits = limits

    @override
    async def execute(self, args: JsonObject) -> Any:
        return await self._workspace.run(functools.partial(self.work, args))

    @abstractmethod
    def work(self, args: JsonObject, cancellation: Cancellation) -> JsonObject:
        """Return the result. Raise ``ToolError``."""

    def encode(self, content: str) -> bytes:
        """Return the bytes of a file. Raise ``ToolError`` if they are too many, or no Unicode."""
        try:
            encoded = content.encode()
        except UnicodeEncodeError:
            raise ToolError(
                ErrorCode.INVALID_ARGS, "the text holds half a surrogate pair, which no file can."
            ) from None

        limit = self._limits.write_bytes
        if len(encoded) > limit:
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
        "returned, call again with it as offset."
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
    def work(self, args: JsonObject, cancellation: Cancellation) -> JsonObject:
        path = str(args["path"])
        # A sixteenth of the result is for the other members, so that no line of a page is cut
        max_page = self._limits.result_bytes * 15 // 16
        lines = Lines(
            offset=int(args.get("offset", 0)),
            limit=int(args.get("limit", _MAX_LINES)),
            room=min(self._limits.read_bytes, max_page),
        )
        with explain_errors(path), os.fdopen(self._workspace.open_file(path), "rb") as file:
            return read_page(file, lines, cancellation)


class WritingFileTool(FileTool):
    """A file tool that writes, but no protected file."""

    def __init__(
        self, workspace: Workspace, limits: LimitsSection, protected: ProtectedFiles
    ) -> None:
        """Belong to the principal of this workspace."""
        super().__init__(workspace, limits)
        self._protected = protected


class WriteFile(WritingFileTool):
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
    def work(self, args: JsonObject, cancellation: Cancellation) -> JsonObject:
        content = self.encode(args["content"])
        opened = self._workspace.open_for_writing(
            args["path"], self._protected, cancellation, make_folders=True
        )
        with opened as (folder, name):
            is_new = folder.find_file(name) is None
            folder.replace(name, content, cancellation)
        return {"bytes": len(content), "created": is_new}


class EditFile(WritingFileTool):
    """The tool ``edit_file``."""

    name = "edit_file"
    description = (
        "Replace old_text by new_text in a text file of the workspace. old_text must stand in it "
        "exactly once: give enough of what is around it. In a file whose lines all end with CRLF, "
        "line ends in both texts mean CRLF."
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
    def work(self, args: JsonObject, cancellation: Cancellation) -> JsonObject:
        path = args["path"]
        old_text = args["old_text"]
        new_text = args["new_text"]
        if not old_text or old_text == new_text:
            problem = "is empty" if not old_text else "and new_text are the same"
            raise ToolError(
                ErrorCode.INVALID_ARGS, f"old_text {problem}: there is nothing to replace."
            )

        opened = self._workspace.open_for_writing(path, self._protected, cancellation)
        with opened as (folder, name):
            with os.fdopen(folder.open_file(name), "rb") as file:
                status = os.fstat(file.fileno())
                text = self._decode(file.read(self._limits.write_bytes + 1))
            content = self.encode(_replace_once(text, old_text, new_text))
            folder.replace(name, content, cancellation, status)
        return {"bytes": len(content)}

    def _decode(self, content: bytes) -> str:
        limit = self._limits.write_bytes
        if len(content) > limit:
            raise ToolError(
                ErrorCode.EXECUTION_FAILED,
                f"the file has more than {limit} bytes, which is the most that is edited.",
            )

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
    def work(self, args: JsonObject, cancellation: Cancellation) -> JsonObject:
        path = args["path"]
        descriptor = self._workspace.open_folder(path)
        try:
            with explain_errors(path), os.scandir(descriptor) as entries:
                counter = _EntryCounter(entries, cancellation)
                first = heapq.nsmallest(_MAX_ENTRIES, counter, key=lambda entry: entry.name)
                listing: JsonObject = {"entries": [_describe(entry) for entry in first]}
        finally:
            os.close(descriptor)

        if len(first) < counter.number:
            listing |= {"truncated": True, "original_entries": counter.number}
        return listing


class _EntryCounter:
    """The entries of a folder that a listing shows; ``number`` counts those that were yielded."""

    def __init__(self, entries: Iterator[os.DirEntry[str]], cancellation: Cancellation) -> None:
        self.number = 0
        self._entries = entries
        self._cancellation = cancellation

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        for entry in self._entries:
            self._cancellation.check()
            if entry.name != TEMPORARY:
                self.number += 1
                yield entry


def _describe(entry: os.DirEntry[str]) -> JsonObject:
    """Return name and type of an entry, and the size of a file; a link is not followed."""
    name = os.fsencode(entry.name).decode(errors="backslashreplace")
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return {"name": name, "type": "other"}  # It has gone meanwhile

    if stat.S_ISREG(status.st_mode):
        return {"name": name, "type": "file", "size": status.st_size}
    if stat.S_ISDIR(status.st_mode):
        return {"name": name, "type": "folder"}
    if stat.S_ISLNK(status.st_mode):
        return {"name": name, "type": "link"}
    return {"name": name, "type": "other"}


def _replace_once(text: str, old: str, new: str) -> str:
    """Return the text with its one match replaced.

    Raise ``ToolError`` if there is none, or several; overlapping ones count.
    """
    breaks = text.count("\n")
    has_only_crlf = breaks > 0 and breaks == text.count("\r\n")
    if has_only_crlf:
        old = re.sub(r"\r?\n", "\r\n", old)
        new = re.sub(r"\r?\n", "\r\n", new)

    first = text.find(old)
    count = 0
    match = first
    while match >= 0 and count < _MAX_COUNTED:
        count += 1
        match = text.find(old, match + 1)

    if count == 0:
        raise ToolError(
            ErrorCode.INVALID_ARGS,
            "old_text does not stand in the file: read it, and copy the text exactly.",
        )
    if count > 1:
        number = f"at least {count}" if match >= 0 else count
        raise ToolError(
            ErrorCode.INVALID_ARGS,
            f"old_text stands in the file {number} times: give more of what is around it.",
        )
    return f"{text[:first]}{new}{text[first + len(old) :]}"
