"""Work on a large body is done in a thread, on a small one at once."""

from __future__ import annotations

import threading

import pytest

from claw_mediate.http.large_bodies import MAX_INLINE_BYTES, compute

pytestmark = pytest.mark.requirement("bodies:beside-the-loop")


@pytest.mark.parametrize(
    ("size", "is_inline"), [(0, True), (MAX_INLINE_BYTES, True), (MAX_INLINE_BYTES + 1, False)]
)
async def test_only_a_body_above_the_bound_is_worked_on_in_a_thread(
    size: int, is_inline: bool
) -> None:
    worker = await compute(size, threading.current_thread)
    assert (worker is threading.current_thread()) == is_inline


@pytest.mark.parametrize("size", [1, MAX_INLINE_BYTES + 1])
async def test_an_error_of_the_work_is_the_callers(size: int) -> None:
    def work() -> None:
        raise ValueError("unreadable")

    with pytest.raises(ValueError, match="unreadable"):
        await compute(size, work)
