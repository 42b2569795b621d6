"""Reads that fail for a time, as with too many open files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest


def fail_reads(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, code: int = errno.EMFILE
) -> None:
    """Let ``read_file`` of a module fail until ``monkeypatch.undo``."""

    def fail(_name: str | Path, _dir_fd: int | None = None) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module, "read_file", fail)
