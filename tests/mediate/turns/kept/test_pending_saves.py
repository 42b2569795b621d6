"""Saves that run where nothing can be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from claw_mediate.turns.kept.pending_saves import PendingSaves


def run_eagerly(work: Callable[[], object]) -> None:
    """Run a coroutine on a loop like mitmproxy's."""

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        await work()  # type: ignore[misc]

    asyncio.run(main())


@pytest.mark.requirement("objects:saves-end")
def test_a_save_that_is_over_at_once_is_forgotten() -> None:
    saved: list[str] = []

    async def save() -> None:
        saved.append("file-1")

    async def work() -> None:
        pending: PendingSaves[str] = PendingSaves()
        pending.start(["file-1"], save())
        assert (saved, pending.places) == (["file-1"], [])
        await pending.finish()

    run_eagerly(work)


@pytest.mark.requirement("objects:saves-end")
def test_who_looks_for_a_place_waits_for_its_last_save() -> None:
    steps: list[str] = []

    async def work() -> None:
        pending: PendingSaves[str] = PendingSaves()
        may_go = asyncio.Event()

        async def save(name: str) -> None:
            await may_go.wait()
            steps.append(name)

        pending.start(["a", "b"], save("first"))
        pending.start(["b"], save("second"))
        assert pending.places == ["a", "b"]
        await pending.wait(["c"])
        assert steps == []
        may_go.set()
        await pending.wait(["b"])
        assert steps == ["first", "second"]
        await pending.finish()
        await asyncio.sleep(0)
        assert pending.places == []

    run_eagerly(work)
