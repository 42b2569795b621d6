"""Costly fixtures that are made once in a run, though pytest-xdist deals their
tests out among several processes.
"""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable

import pytest


def make_once[T](directories: pytest.TempPathFactory, name: str, make: Callable[[], T]) -> T:
    """Return what ``make`` returns, called by the first process that asks for this name.

    If it fails, the next one tries.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return make()
    made = (
        directories.getbasetemp().parent / f"{name}.pickle"
    )  # the processes' directories lie beside each other
    with made.with_suffix(".lock").open("w", encoding="utf-8") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not made.exists():
            made.write_bytes(pickle.dumps(make()))
        found: T = pickle.loads(made.read_bytes())
        return found
