"""The effects of a failing provider on a turn, and their records (docs/spec/mediation.md section 4,
the model's side).
"""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk

pytestmark = pytest.mark.both_forms


@pytest.mark.requirement("failure:upstream-error-passed-on")
async def test_a_providers_error_keeps_its_status_and_body(desk: Desk) -> None:
    desk.model_refuses(400, "context_length_exceeded", "the context is too long")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   status 400
cllama → runner   400 context_length_exceeded
""")
    assert desk.history()[-1]["status"] == "error"
    assert desk.logged_error() == "provider_http_400"


@pytest.mark.requirement("failure:history-of-failed-turns")
async def test_a_turn_that_fails_after_tools_ran_is_in_history_with_what_ran(desk: Desk) -> None:
    desk.model_says(("desk.trade", {"symbol": "NVDA"}))
    desk.model_fails("provider_broke_off")
    await desk.asks("Buy")
    entry = desk.history()[-1]
    assert (entry["status"], entry["status_code"]) == ("error", 502)
    assert [call["name"] for past in entry["tool_trace"] for call in past["tool_calls"]] == [
        "desk.trade"
    ]


@pytest.mark.requirement("failure:unreachable")
async def test_a_provider_that_cannot_be_reached_is_a_502(desk: Desk) -> None:
    desk.model_fails("provider_unreachable")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   unreachable: provider_unreachable
cllama → runner   502 provider_unreachable
""")


@pytest.mark.requirement("failure:bad-reply")
@pytest.mark.parametrize(
    "body",
    [
        *(b"<html>", b"[]", b"{}", b"\xff", b"{" * 5000),
        *(b'{"choices": []}', b'{"choices": [{"message": 3}]}', b'{"choices": {}}'),
        *(b'{"content": "text"}', b'{"content": [3]}', b'{"content": [[]]}'),
    ],
)
async def test_a_reply_that_is_no_completion_is_a_502(desk: Desk, body: bytes) -> None:
    desk.model_answers(body)
    await desk.asks("Go")
    assert desk.status == 502
    assert desk.history()[-1]["status"] == "error"


@pytest.mark.requirement("failure:upstream-error-passed-on")
async def test_an_error_in_a_later_round_is_passed_on_and_history_has_what_ran(
    desk: Desk,
) -> None:
    desk.model_says(("desk.trade", {}))
    desk.model_refuses(400, "too_long")
    assert await desk.asks("Buy") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade
cllama → service  desk.trade {}
cllama → model    desk.trade = {}
model  → cllama   status 400
cllama → runner   400 too_long
""")
    assert [
        call["name"] for past in desk.history()[-1]["tool_trace"] for call in past["tool_calls"]
    ] == ["desk.trade"]


@pytest.mark.requirement("history:every-dialect")
async def test_history_and_log_tell_a_turn_in_the_same_words_in_every_dialect(desk: Desk) -> None:
    desk.model_says(("shell", {}), ("desk.balance", {}))
    desk.model_says(
        "Look:", ("desk.balance", {}), ("desk.typo", {}), ("desk.trade", {"n": 1}), ("shell", {})
    )
    desk.model_says(("desk.trade", {"n": 1.0}))
    desk.model_says("Done.")
    await desk.asks("Go", native=["shell"])
    entry = desk.history()[-1]
    assert [
        [
            (call["name"], call["service"], call["arguments"], call["status"], call["duplicate"])
            for call in past["tool_calls"]
        ]
        for past in entry["tool_trace"]
    ] == snapshot(
        [
            [("shell", "", {}, "error", False), ("desk.balance", "desk", {}, "error", False)],
            [
                ("desk.balance", "desk", {}, "ok", False),
                ("desk__typo", "", {}, "error", False),
                ("desk.trade", "desk", {"n": 1}, "ok", False),
            ],
            [("desk.trade", "desk", {"n": 1.0}, "error", True)],
        ]
    )
    assert (entry["usage"], entry["tools_offered"], entry["status_code"]) == snapshot(
        (
            {
                "prompt_tokens": 40,
                "completion_tokens": 20,
                "cached_tokens": 0,
                "reported_cost_usd": None,
                "total_rounds": 4,
            },
            ["desk__balance", "desk__quote", "desk__trade"],
            200,
        )
    )
    told = [
        (event["type"], event["intervention"], event.get("name"), event.get("code"))
        for event in desk.events
    ]
    assert told == snapshot(
        [
            ("tool_manifest_loaded", None, None, None),
            ("request", None, None, None),
            ("tool_call", None, "desk.balance", "managed_tools_first"),
            ("intervention", "mixed_tool_order_internal_retry", None, None),
            ("tool_call", None, "desk.balance", None),
            ("tool_call", None, "desk__typo", "unknown_tool"),
            ("tool_call", None, "desk.trade", None),
            ("intervention", "unknown_tool_rejected:desk__typo", None, None),
            ("intervention", "managed_prefix_native_suffix_serialized", None, None),
            ("tool_call", None, "desk.trade", "duplicate_tool_call"),
            ("intervention", "duplicate_managed_tool_call:desk.trade", None, None),
            ("response", None, None, None),
        ]
    )
