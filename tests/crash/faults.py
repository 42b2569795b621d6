"""The points at which a process kills itself with SIGKILL: right before or after a step that
matters. The steps are real.

They are armed in a process of their own, which writes the name of its point to a file before it
dies.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from claw_mediate.providers.failover import ProviderFailover
from claw_mediate.telemetry.history import History
from claw_mediate.tools.executor import ToolExecutor
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.journal import SqliteJournal
from claw_state.sqlite.ownership import SqliteOwnershipStore
from claw_state.sqlite.wal import WriteAheadLog

_STEPS: dict[type, tuple[str, ...]] = {
    SqliteJournal: (
        "begin",
        "resume",
        "record_response",
        "record_intent",
        "record_result",
        "end",
        "mark_delivered",
    ),
    WriteAheadLog: ("flush",),
    SqliteContinuityStore: ("save",),
    History: ("append",),
    ToolExecutor: ("call",),
    ProviderFailover: ("post",),
}
WITHIN = (
    *(
        f"{when} {step}"
        for steps in _STEPS.values()
        for step in steps
        for when in ("before", "behind")
    ),
    "before a chunk",
    "behind a chunk",
)
"""The points at which a process kills itself."""
WITH_IDS = ("before save owned", "behind save owned")
"""Those of a process whose runner goes on by the ids of what the provider keeps."""
_MOST_STEPS = 150
"""A process that did not reach its point dies after so many steps."""


class KillPoint(NamedTuple):
    """The process kills itself when it passes ``point`` for the ``times``-th time."""

    point: str
    times: int


class PointCounter:
    """A counter of the points that this process passes. It kills the process at ``kill_point``."""

    def __init__(self, kill_point: KillPoint | None, died: Path) -> None:
        self._kill_point = kill_point
        self._died = died
        self._passed: Counter[str] = Counter()

    def passes(self, point: str) -> None:
        self._passed[point] += 1
        due = self._kill_point is not None and self._kill_point == (point, self._passed[point])
        if due or (self._kill_point is not None and self._passed.total() > _MOST_STEPS):
            with self._died.open("a", encoding="utf-8") as out:
                out.write(f"{point}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def arm(self) -> None:
        """Wrap every step of this process, so that it is counted."""
        for owner, names in _STEPS.items():
            for name in names:
                setattr(owner, name, self.around(name, getattr(owner, name)))
        save = self.around("save owned", SqliteOwnershipStore.save)
        SqliteOwnershipStore.save = save  # type: ignore[method-assign]

    def around(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def plain(*args: Any, **options: Any) -> Any:
            self.passes(f"before {name}")
            done = step(*args, **options)
            self.passes(f"behind {name}")
            return done

        @functools.wraps(step)
        async def awaited(*args: Any, **options: Any) -> Any:
            self.passes(f"before {name}")
            done = await step(*args, **options)
            self.passes(f"behind {name}")
            return done

        return awaited if inspect.iscoroutinefunction(step) else plain
