"""Write: the one phase that writes the disk (spec/contract.md "Layout", spec/compile.md "Verbs").

Rules. The whole tree is written beside its place and exchanged in one rename: who reads at any moment sees the old
tree or the new one. A kill leaves a hidden sibling, which the next write removes. Directories are 0700, files 0600. A
directory that the compiler did not make is never replaced.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, quoted, start_of
from claw_compile.output.emit import Tree
from claw_contract.secret import Secret

OURS = {"context", "agents"}
"""What a compiled tree has at its top."""
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def write(tree: Tree, directory: Path) -> tuple[Diagnostic, ...]:
    """Replace ``directory`` by ``tree``. A diagnostic, and the old tree untouched, when that can't be done."""
    at = start_of(str(directory))
    # A symlink stays one: what it points at is replaced.
    place = Path(os.path.realpath(directory))
    try:
        if (strange := _strange(place)) is not None:
            help_text = "choose a directory that is empty, or not there"
            return (codes.UNWRITABLE_OUTPUT.at(at, f"{quoted(strange)} in it is not ours", help_text=help_text),)
        place.parent.mkdir(parents=True, exist_ok=True)
        with _alone(place.parent):
            _replace(tree, place)
    except OSError as error:
        return (codes.UNWRITABLE_OUTPUT.at(at, f"the output can't be written: {error.strerror}"),)
    return ()


def create_master(path: Path) -> Secret:
    """A new master secret in a file that only its owner reads. Raises ``OSError``; an existing file is kept."""
    secret = Secret(secrets.token_hex(32))
    _create(path, f"{secret.reveal()}\n".encode())
    return secret


def replace_file(path: Path, content: bytes) -> tuple[Diagnostic, ...]:
    """Replace one file that is for everybody, in one rename; a symlink stays one."""
    place = Path(os.path.realpath(path))
    fresh = place.with_name(f".{place.name}.new-{secrets.token_hex(4)}")
    try:
        try:
            _create(fresh, content, 0o666)
            fresh.replace(place)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        return (codes.UNWRITABLE_OUTPUT.at(start_of(str(path)), f"it can't be written: {error.strerror}"),)
    return ()


def _strange(place: Path) -> str | None:
    """The first thing at ``place`` that keeps it from being replaced."""
    if not place.exists():
        return None
    if not place.is_dir():
        return place.name
    return next((name for name in sorted(path.name for path in place.iterdir()) if name not in OURS), None)


@contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """Two compiles at a time would remove each other's unfinished trees."""
    held = os.open(parent, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _replace(tree: Tree, place: Path) -> None:
    prefix = f".{place.name}.new-"
    for left_over in place.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_over)
    fresh = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
    try:
        for path, content in tree.items():
            target = fresh / path
            for part in reversed(path.parents):
                (fresh / part).mkdir(mode=0o700, exist_ok=True)
            _create(target, content)
        _swap(fresh, place)
    finally:
        # The old tree after the exchange, or the unfinished new one.
        if fresh.exists():
            shutil.rmtree(fresh)


def _create(path: Path, content: bytes, mode: int = 0o600) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _swap(fresh: Path, place: Path) -> None:
    if not place.exists():
        fresh.rename(place)
    elif not _exchange(fresh, place):
        # No atomic exchange on this system: for a moment there is no tree, and never half a one.
        old = Path(tempfile.mkdtemp(prefix=f".{place.name}.new-", dir=place.parent))
        place.rename(old)
        fresh.rename(place)
        shutil.rmtree(old)


def _exchange(one: Path, other: Path) -> bool:
    """Linux's renameat2 with RENAME_EXCHANGE: two directories change places in one step."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)
