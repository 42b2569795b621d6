"""A conversation with more hidden rounds than fit: older ones shrink to a line for each call, and
then go (spec section 7).
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.core.json_splice import element_spans
from claw_mediate.core.reinjection import MAX_REINJECTED_BYTES, fit_to_limit
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from tests.turns.desk import Desk, tool
from tests.turns.remembering import sent
from tests.turns.scripted import Thought

SIZES = st.lists(st.integers(1, 120), max_size=60)


def halved(messages: bytes) -> bytes:
    return messages[: max(len(messages) // 10, 1)]


def numbered(sizes: list[int]) -> dict[int, bytes]:
    return {number: bytes([number]) * size for number, size in enumerate(sizes)}


@pytest.mark.requirement("continuity:bounds")
@given(SIZES)
def test_however_long_a_conversation_is_what_is_reinjected_fits_and_the_latest_is_whole(
    sizes: list[int],
) -> None:
    hidden = numbered(sizes)
    kept = fit_to_limit(hidden, halved, 100)
    assert sum(map(len, kept.values())) <= 100
    assert all(
        messages in (hidden[index], halved(hidden[index])) for index, messages in kept.items()
    )
    if sizes and sizes[-1] <= 100:
        assert kept[len(sizes) - 1] == hidden[len(sizes) - 1]
    assert all(index < min(kept) for index in hidden.keys() - kept), "the oldest go"


@pytest.mark.requirement("continuity:bounds")
def test_what_fits_is_whole() -> None:
    assert fit_to_limit(numbered([50, 30, 20]), halved, 100) == numbered([50, 30, 20])


@pytest.mark.requirement("continuity:bounds")
def test_the_beginning_changes_once_in_a_long_while_and_not_with_every_request() -> None:
    """Prompt caches stay valid: for few of the requests, the hidden part is not the
    beginning of the next one's.
    """
    seen = [fit_to_limit(numbered([5] * number), halved, 100) for number in range(1, 250)]
    breaks = sum(
        any(later.get(index) != messages for index, messages in earlier.items())
        for earlier, later in pairwise(seen)
    )
    assert 0 < breaks <= 250 / 9


def hidden_round(dialect: Dialect, number: int, arguments: Any, told: Any) -> bytes:
    """Return a hidden round as the dialect stores it, with a thought."""
    content, call_id = json.dumps(told), f"call{number}"
    if dialect is OPENAI_CHAT:
        function = {"name": "desk__quote", "arguments": json.dumps(arguments)}
        call = {
            "id": call_id,
            "type": "function",
            "function": function,
            "extra_content": {"signature": "s"},
        }
        said = {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [call],
        }
        return b"%b,%b" % (
            dump(said),
            dump({"role": "tool", "tool_call_id": call_id, "content": content}),
        )
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    call = {"type": "tool_use", "id": call_id, "name": "desk__quote", "input": arguments}
    blocks = [thought, {"type": "text", "text": "Let me see."}, call]
    result = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    failed = {} if told["ok"] else {"is_error": True}
    return b"%b,%b" % (
        dump({"role": "assistant", "content": blocks}),
        dump({"role": "user", "content": [{**result, **failed}]}),
    )


def dump(document: Any) -> bytes:
    return json.dumps(document).encode()


@pytest.mark.requirement("continuity:bounds")
@pytest.mark.parametrize("dialect", [OPENAI_CHAT, ANTHROPIC_MESSAGES])
@pytest.mark.parametrize("arguments", [{"symbol": "X"}, {"note": "é" * 300}])
@pytest.mark.parametrize(
    "told",
    [
        {"ok": True, "status_code": 200, "data": "x" * 16_000},
        {
            "ok": False,
            "error": {"code": "timeout", "message": "m" * 2000, "details": {"d": 1}},
            "status_code": 504,
        },
        {"ok": True, "data": 1},
    ],
)
def test_a_call_that_shrinks_keeps_its_name_its_id_and_how_it_went(
    dialect: Dialect, arguments: dict[str, Any], told: dict[str, Any]
) -> None:
    messages = hidden_round(dialect, 1, arguments, told)
    short = dialect.summarize(messages)
    assert len(short) < 1000
    assert dialect.summarize(messages) == short, "the same bytes every time"
    assert [json.loads(b"[%b]" % short)[n]["role"] for n in (0, 1)] == [
        "assistant",
        "tool" if dialect is OPENAI_CHAT else "user",
    ]
    assert b"Let me see" not in short
    assert all(word in short for word in (b'"signature": "s"', b"call1", b"desk__quote"))
    assert (b"timeout" in short) is not told["ok"]
    assert len(element_spans(b"[%b]" % short)) == 2


@pytest.mark.requirement("continuity:bounds")
async def test_a_long_conversation_goes_on_within_the_bounds_and_stays_valid(desk: Desk) -> None:
    desk.grant(tool("quote"), max_tool_result_bytes=40_000)
    desk.service_answers("quote", {"text": "x" * 30_000})
    for number in range(24):
        desk.model_says(Thought("hm"), ("desk.quote", {"n": number}))
        desk.model_says(f"Answer {number}.")
        await desk.asks(f"Question {number}?")
    firsts = desk.model.raw[::2]
    assert max(map(len, firsts)) < MAX_REINJECTED_BYTES + 20_000
    last = desk.model.bodies[-2]
    assert desk.wire.called(last) == ["desk__quote"] * 23, "every call is still told of"
    told = [json.loads(content) for _, content in desk.wire.answers(last[desk.wire.TRANSCRIPT])]
    assert all(one["ok"] for one in told)
    assert "left_out" in told[0]
    assert told[-1]["data"] == {"text": "x" * 30_000}
    held = sum(
        later[: len(earlier) - 1] == earlier[:-1] for earlier, later in pairwise(map(sent, firsts))
    )
    assert held >= 18, "a provider's cache of the beginning holds, but for a few requests"
    events = desk.told("continuity")
    assert events[-1]["shortened"] > 0
    assert events[-1]["missed"]["over_bound"] == 0
