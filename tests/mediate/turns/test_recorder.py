"""What a turn's line of history says of its tools: withheld ones with the reason, and exact results."""

from __future__ import annotations

import pytest

from claw_contract.redaction.redactor import Redactor
from claw_mediate.core import tool_result
from claw_mediate.turns.recorder import call_record
from tests.mediate.made import called, granted
from tests.turns.desk import Desk, tool, with_tools


def withheld(desk: Desk) -> dict[str, str]:
    return {one["name"]: one["reason"] for one in desk.history()[-1]["tools_withheld"]}


@pytest.mark.requirement("history:withheld")
async def test_tools_without_room_and_tools_that_can_not_work_are_told_with_their_reasons(
    gpt: Desk,
) -> None:
    broken = tool("broken") | {"annotations": {"readOnly": "yes"}}
    gpt.grant(tool("balance"), broken, tool("quote"))
    gpt.model_says(("desk.balance", {}))
    gpt.model_says("Done.")
    await gpt.asks("Go", native=[f"own_{number}" for number in range(127)])
    told = withheld(gpt)
    assert told.pop("desk.broken").startswith("quarantined: annotations.readOnly: ")
    assert told == {"desk.quote": "over_limit"}
    assert gpt.history()[-1]["tools_offered"] == ["desk__balance"]


@pytest.mark.requirement("history:withheld")
async def test_a_turn_whose_model_was_shown_all_withholds_nothing(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert withheld(desk) == {}


@pytest.mark.requirement("history:results")
def test_a_result_is_recorded_in_one_line_of_its_exact_json() -> None:
    body = b'{"price": 1.50,\r\n "id": 9007199254740993}'
    read = called(granted(annotations={"readOnly": True}))
    result = tool_result.read_http_response(read, 200, body, len(body), 100)
    assert bytes(call_record(result, Redactor(()))["result"]) == (
        b'{"ok":true,"status_code":200,"data":{"price": 1.50,   "id": 9007199254740993}}'
    )


STREAM_MEMBERS = ("stream_mode", "ttft_ms", "upstream_ttft_ms", "held_ms", "shown_rounds")


@pytest.mark.buffered
@pytest.mark.requirement("live:observed")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_buffered_turn_says_so_where_its_runner_asked_for_a_stream(
    desk: Desk, stream: bool
) -> None:
    desk.stream = stream
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    (ended,) = desk.told("response")
    told = {name: ended[name] for name in STREAM_MEMBERS if name in ended}
    assert told == ({"stream_mode": "buffered"} if stream else {})
    assert "shown" not in desk.history()[-1]["tool_trace"][0]


@with_tools
@pytest.mark.requirement("live:observed")
async def test_a_live_turn_tells_its_times_and_what_each_round_showed(desk: Desk) -> None:
    streams_live(desk)
    desk.model_says(("desk.balance", {}))
    desk.model_says("I look it up.", ("desk.quote", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    (ended,) = desk.told("response")
    assert (ended["stream_mode"], ended["shown_rounds"]) == ("live", 2)
    assert 0 <= ended["upstream_ttft_ms"] <= ended["ttft_ms"]
    assert ended["held_ms"] >= 0
    shown = [past.get("shown") for past in desk.history()[-1]["tool_trace"]]
    assert shown == [None, len("I look it up.")]


@with_tools
@pytest.mark.requirement("live:observed")
async def test_a_live_turn_that_fails_keeps_the_text_that_it_showed(desk: Desk) -> None:
    streams_live(desk)
    desk.model_says("Let me look.", ("desk.balance", {}))
    desk.model_fails("provider_broke_off")
    await desk.asks("Go")
    line = desk.history()[-1]
    assert line["response"]["shown"] == "Let me look."
    assert line["tool_trace"][0]["shown"] == len("Let me look.")
    (ended,) = [event for event in desk.told("error") if "stream_mode" in event]
    assert (ended["stream_mode"], ended["shown_rounds"]) == ("live", 1)
    assert ended["ttft_ms"] >= 0


def streams_live(desk: Desk) -> None:
    desk.stream = True
    desk.live = True
    desk.grant(*desk.tools)
