"""The tools in a line of history: withheld ones with the reason, and exact results."""

from __future__ import annotations

import pytest

from claw_contract.redaction.redactor import Redactor
from claw_mediate.core import tool_result
from claw_mediate.turns.history_lines import call_record
from tests.mediate.made import called, granted
from tests.turns.desk import Desk, tool


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
