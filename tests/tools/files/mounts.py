"""Mounts in a workspace, which only one thread sees."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from claw_tools.files.workspace import Workspace
from tests.not_tested import skip_for_kernel

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000


@contextmanager
def mounted(home: Path, *mounts: tuple[str, Path, str]) -> Iterator[Workspace]:
    """Yield a workspace with mounts, each of a source, a place and options, that
    only one thread's namespace has.
    """

    def mount() -> Workspace:
        os.unshare(os.CLONE_FS | os.CLONE_NEWNS)
        mount_one("none", Path("/"), "", MS_REC | MS_PRIVATE)
        for source, place, options in mounts:
            mount_one(source, place, options, 0 if source == "tmpfs" else MS_BIND)
        return Workspace.open(home)

    with ThreadPoolExecutor(1) as thread:
        try:
            workspace = thread.submit(mount).result()
        except OSError as error:
            skip_for_kernel("mounts", error.strerror)
        try:
            yield workspace
        finally:
            workspace.close()


def mount_one(source: str, place: Path, options: str, flags: int) -> None:
    names = [each.encode() for each in (source, str(place), source)]
    if ctypes.CDLL(None, use_errno=True).mount(*names, flags, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
