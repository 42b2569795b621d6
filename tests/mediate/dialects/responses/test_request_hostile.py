"""Requests of Responses, made to exhaust the proxy or to be read in two ways."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.core.json_splice import JsonSpliceError
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.responses import DIALECT
from tests.mediate.made import catalog, granted
from tests.turns.desk import Desk
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning

CATALOG = catalog(granted("desk.get"), native=["shell"])
# Four times as many items may cost five times as much: some of the work is the same for all
# requests
LINEAR = 5
type Kind = Callable[[int], list[Body]]
KINDS: dict[str, Kind] = {
    "answers": lambda n: [message("Said.", f"msg_{n}")],
    "answers-and-unknown": lambda n: [message("Said.", f"msg_{n}"), {"type": "hologram", "n": n}],
    "calls": lambda n: [function_call(f"call_{n}", "shell", "{}")],
    "calls-and-outputs": lambda n: [
        function_call(f"call_{n}", "shell", "{}"),
        {"type": "function_call_output", "call_id": f"call_{n}", "output": "x"},
    ],
    "reasoning": lambda n: [reasoning(f"{n}")],
    "compactions": lambda n: [{"type": "compaction", "encrypted_content": f"{n}"}],
    "references": lambda n: [{"type": "item_reference", "id": f"msg_{n}"}],
    "late-tools": lambda n: [
        {"type": "tool_search_output", "tools": [{"type": "function", "name": f"f{n}"}]}
    ],
    "nothing": lambda _: [{}],
}


def made(kind: Kind, size: int) -> bytes:
    items = [item for n in range(size) for item in kind(n)]
    return json.dumps({"model": "gpt-test", "store": False, "input": items}).encode()


def rebuild(body: bytes) -> bytes:
    """Read all that is read of a request, and write what the provider would get."""
    view = DIALECT.read_request(body)
    assert view.evidence is not None
    return b"".join(DIALECT.build_request(view, CATALOG)(ToolUse.AS_REQUESTED))


def count_calls(body: bytes) -> int:
    """Return the number of calls that Python makes: unlike seconds, it is the same
    on every machine.
    """
    calls = 0

    def note(_frame: object, event: str, _about: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        rebuild(body)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.requirement("responses:bounded")
@pytest.mark.parametrize("name", KINDS)
def test_the_work_and_the_memory_for_items_of_any_kind_grow_as_their_number(name: str) -> None:
    small, large = made(KINDS[name], 100), made(KINDS[name], 400)
    assert count_calls(large) < LINEAR * count_calls(small)
    tracemalloc.start()
    rebuild(large)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400_000 + 20 * len(large)


async def post(desk: Desk, body: bytes) -> tuple[int, str]:
    """Return the status and the code of a refusal."""
    request = Request("POST", "/v1/responses", [("authorization", f"Bearer {desk.token}")], body)
    admitted = desk.mediator.admit(request)
    assert isinstance(admitted, Identity)
    exchange = await desk.mediator.exchange(admitted, request)
    assert isinstance(exchange, RunnerResponse)
    refusal = json.loads(b"".join([chunk async for chunk in exchange.chunks]))
    return exchange.status, refusal["error"]["code"]


@pytest.mark.requirement("responses:duplicates")
@pytest.mark.parametrize(
    "member", ["previous_response_id", "conversation", "store", "input", "tools", "background"]
)
async def test_a_repeated_member_that_is_read_is_refused(codex: Desk, member: str) -> None:
    twice = b'{"model": "gpt-test", "input": "Hi", "store": false, "%b": null, "%b": null, "input": "Hi", "store": false}'
    assert await post(codex, twice % (member.encode(), member.encode())) == (400, "invalid_request")


WORDS = [
    "type",
    "role",
    "content",
    "id",
    "call_id",
    "name",
    "arguments",
    "output",
    "tools",
    "namespace",
    "text",
]
MEMBERS = [
    "instructions",
    "tools",
    "tool_choice",
    "prompt",
    "client_metadata",
    "metadata",
    "stream",
    "unknown",
]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(["message", "function_call", "user"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=12,
)
ITEMS = st.dictionaries(st.sampled_from(WORDS), JUNK, max_size=4)


@pytest.mark.requirement("responses:any-request")
@settings(max_examples=40)
@given(st.lists(ITEMS, max_size=4), st.dictionaries(st.sampled_from(MEMBERS), JUNK, max_size=4))
def test_any_request_is_refused_or_sent_with_its_items_and_unknown_members_unchanged(
    items: list[Body], members: Body
) -> None:
    asked = {**members, "model": "gpt-test", "store": False, "input": items}
    with suppress(UnreadableRequestError, JsonSpliceError):
        rebuilt = json.loads(rebuild(json.dumps(asked).encode()))
        assert {**asked, "tools": [], "stream": False} == {**rebuilt, "tools": [], "stream": False}
