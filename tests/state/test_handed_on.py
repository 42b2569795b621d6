"""The state that a mediator with new settings takes over from the old one in the same process."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_contract.metadata import Budget
from claw_mediate.state import State, open_state
from claw_mediate.telemetry.event_log import EventLog
from claw_state.continuity import Anchor
from claw_state.journal import RequestFingerprint
from claw_state.url import StoreError, parse_place

ASKED = RequestFingerprint("request", "earlier", "Buy", "")
LIMIT = Budget.model_validate({"window": "1h", "max_requests": 1})


def state(where: str, before: State | None = None) -> State:
    return open_state(parse_place(where), EventLog(lambda _: None), before)


async def close(state: State) -> None:
    for part in (state.store, state.journal, state.spending):
        await part.close()


@pytest.mark.requirement("reload:nothing-forgotten")
@pytest.mark.parametrize("file", ["", "state.db"])
async def test_a_new_mediator_takes_the_whole_state_over_and_no_running_turn(
    file: str, tmp_path: Path
) -> None:
    where = str(tmp_path / file) if file else ""
    old = state(where)
    assert await old.journal.begin("t1", "a", ASKED)
    await old.store.save("a", Anchor("key", ()), "", b"{}")
    assert await old.spending.count_request("a", LIMIT) is None
    new = state(where, old)
    past = await new.journal.find("a", ASKED)
    assert past is not None
    assert past.is_alive, "its write may be on its way"
    assert not await new.journal.begin("t2", "a", ASKED)
    await close(old)
    await close(old)
    assert [kept.messages for kept in await new.store.find("a", ["key"])] == [b"{}"]
    assert await new.spending.count_request("a", LIMIT) is not None
    await close(new)
    with pytest.raises(StoreError):
        await new.store.find("a", ["key"])


@pytest.mark.requirement("reload:nothing-forgotten")
async def test_another_state_is_another_one(tmp_path: Path) -> None:
    old = state("")
    await old.store.save("a", Anchor("key", ()), "", b"{}")
    new = state(str(tmp_path / "state.db"), old)
    assert await new.store.find("a", ["key"]) == []
    await close(old)
    await close(new)
