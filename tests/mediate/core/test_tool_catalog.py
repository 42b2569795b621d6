"""The owner of each tool name, and managed tools beside native ones."""

from __future__ import annotations

import pytest

from claw_contract.names import hashed_alias
from claw_mediate.core.types import UnreadableArguments
from tests.mediate.made import catalog, granted
from tests.turns.desk import Desk, tool

GET, SET = granted("desk.get"), granted("desk.set", method="POST")


@pytest.mark.requirement("names:aliases")
def test_tools_are_offered_by_alias_in_manifest_order() -> None:
    assert [offered.alias for offered in catalog(SET, GET).offered] == ["desk__set", "desk__get"]


@pytest.mark.requirement("names:owner")
def test_alias_and_canonical_name_are_managed_the_runners_are_native_and_the_rest_unknown() -> None:
    names = catalog(GET, native=["shell"])
    owners = {
        name: names.make_call("c", name, "{}").owner
        for name in ("desk__get", "desk.get", "shell", "desk__typo", "")
    }
    assert owners == {
        "desk__get": "managed",
        "desk.get": "managed",
        "shell": "native",
        "desk__typo": "unknown",
        "": "unknown",
    }


@pytest.mark.requirement("names:native-wins")
@pytest.mark.parametrize("name", ["desk.get", "desk__get"])
def test_what_the_runner_declared_is_the_runners_by_that_name(name: str) -> None:
    names = catalog(GET, native=[name])
    assert names.make_call("c", name, "{}").owner == "native"
    assert names.make_call("c", names.offered[0].alias, "{}").tool is GET
    assert names.find_alias(name) is None


@pytest.mark.requirement("names:aliases")
def test_a_runner_that_takes_the_alias_leaves_the_hashed_one() -> None:
    assert catalog(GET, native=["desk__get"]).offered[0].alias == hashed_alias("desk.get")
    assert catalog(GET, native=["desk__get"]).find_alias("desk.get") == hashed_alias("desk.get")


@pytest.mark.requirement("names:room")
@pytest.mark.parametrize(("room", "offered"), [(2, 2), (1, 1), (0, 0), (-3, 0), (99, 2)])
def test_tools_without_room_are_left_out_from_the_end(room: int, offered: int) -> None:
    names = catalog(GET, SET, room=room)
    assert [one.alias for one in names.offered] == ["desk__get", "desk__set"][:offered]
    assert names.make_call("c", "desk.set", "{}").owner == (
        "managed" if offered == 2 else "unknown"
    )


def test_the_alias_is_told_for_canonical_names_only() -> None:
    names = catalog(GET, native=["shell"])
    assert [names.find_alias(name) for name in ("desk.get", "shell", "nobody")] == [
        "desk__get",
        None,
        None,
    ]


def test_a_call_keeps_what_could_not_be_read() -> None:
    call = catalog(GET).make_call("c", "desk__get", '{"a":')
    assert isinstance(call.arguments, UnreadableArguments)
    assert call.signature is None
    assert (call.canonical, call.service) == ("desk.get", "desk")


@pytest.mark.requirement("agents:reload")
async def test_what_is_offered_is_what_is_granted_now(gpt: Desk) -> None:
    told = []
    for granted_now in (
        [tool("balance"), tool("quote")],
        [tool("quote")],
        [tool("quote") | {"description": "New."}],
    ):
        gpt.grant(*granted_now)
        gpt.model_says("Hello!")
        await gpt.asks(f"Hi {len(told)}")
        tools = gpt.history()[-1]["request_effective"]["tools"]
        told.append(
            [(entry["function"]["name"], entry["function"]["description"]) for entry in tools]
        )
    assert told == [
        [("desk__balance", "balance of the desk"), ("desk__quote", "quote of the desk")],
        [("desk__quote", "quote of the desk")],
        [("desk__quote", "New.")],
    ]
