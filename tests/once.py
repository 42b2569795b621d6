"""What one process of a run makes for all of them: pytest-xdist deals the tests of a costly fixture out among them."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable

import pytest


def once_a_run[T](directories: pytest.TempPathFactory, name: str, make: Callable[[], T]) -> T:
    """Return what ``make`` returned in the first process that came here; the others wait for it. Where it fails, each tries."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return make()
    made = directories.getbasetemp().parent / f"{name}.pickle"  # the processes' directories lie beside each other
    with made.with_suffix(".lock").open("w", encoding="utf-8") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not made.exists():
            made.write_bytes(pickle.dumps(make()))
        found: T = pickle.loads(made.read_bytes())
        return found
