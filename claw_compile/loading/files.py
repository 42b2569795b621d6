"""Files of the pod's directory, as the compile may read them.

Rules. Every path of a pod is relative to the pod file, and stays in its directory after symlinks.
Only regular files are opened (a FIFO would block the compile for ever), and none that is
unreasonably large. What can't be read is a diagnostic at the place that names the file.
"""

import os
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Result, Span, quote, start_of
from claw_compile.parsing.node import ScalarNode, Source, decode

MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Files:
    """The directory of a pod, and the diagnostics of reading it."""

    directory: Path
    diagnostics: list[Diagnostic]
    read: dict[str, bytes] = field(default_factory=dict)
    """The content of each file that was read, by its path in the directory."""

    @cached_property
    def root(self) -> Path:
        return Path(os.path.realpath(self.directory))

    def display_path(self, path: str) -> str:
        """Return a path as diagnostics print it: as the user would name it."""
        return str(self.directory / path)

    def read_named(self, path: ScalarNode, what: str) -> bytes | None:
        """Return the file that the pod names; when it can't be read, that is reported.

        Messages show the path as it is written: a variable in it may be a secret.
        """
        try:
            target = self.resolve_path(path.text)
        except ValueError:
            message = f"{what} {quote(path.shown)} is not a path"
            self.diagnostics.append(codes.UNREADABLE_FILE.at(path.span, message))
            return None
        if target is None:
            message = f"{what} {quote(path.shown)} leads out of the pod's directory"
            self.diagnostics.append(codes.PATH_ESCAPES_POD.at(path.span, message))
            return None

        data = read_file(target, path.span, f"{what} {quote(path.shown)}")
        self.diagnostics.extend(data.diagnostics)
        self._keep(target, data)
        return data.value

    def resolve_path(self, path: str) -> Path | None:
        """Return the absolute path of a path of the pod; None when it leaves the directory.

        Raise ``ValueError`` for a NUL.
        """
        target = Path(os.path.realpath(self.root / path))
        return target if target.is_relative_to(self.root) else None

    def read_if_present(self, path: str, what: str) -> Result[Source] | None:
        """Return a file that nobody names; None when it is not there."""
        shown_path = self.display_path(path)
        try:
            target = self.resolve_path(path)
            if not (self.root / path).exists():
                return None
        except (OSError, ValueError):
            # A name that is too long, or holds a NUL, is no file.
            return None

        at = start_of(shown_path)
        if target is None:
            message = f"{what} leads out of the pod's directory"
            return Result(None, (codes.PATH_ESCAPES_POD.at(at, message),))

        data = read_file(target, at, what)
        self._keep(target, data)
        if data.value is None:
            return Result(None, data.diagnostics)
        return decode(shown_path, data.value)

    def _keep(self, target: Path, data: Result[bytes]) -> None:
        if data.value is not None:
            self.read[target.relative_to(self.root).as_posix()] = data.value


def read_file(path: Path, at: Span, what: str) -> Result[bytes]:
    """Return the bytes of a regular file of reasonable size."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            pod_file = path / "claw-pod.yml"
            help_text = f"name the file: {pod_file}" if pod_file.is_file() else None
            return _unreadable(at, f"{what} is a directory", help_text)
        if not stat.S_ISREG(status.st_mode):
            return _unreadable(at, f"{what} is not a regular file")

        # One byte more than is allowed: a file may grow, and some have no size (/proc).
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return _unreadable(at, f"{what} does not exist")
    except OSError as error:
        return _unreadable(at, f"{what} can't be read: {error.strerror}")
    except ValueError:
        return _unreadable(at, f"{what} can't be read: not a path")

    if len(data) > MAX_BYTES:
        return _unreadable(at, f"{what} is larger than {MAX_BYTES} bytes")
    return Result(data)


def _unreadable(at: Span, message: str, help_text: str | None = None) -> Result[bytes]:
    return Result(None, (codes.UNREADABLE_FILE.at(at, message, help_text=help_text),))
