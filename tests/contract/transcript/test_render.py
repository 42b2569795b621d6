"""The transcript of a turn: readable, complete, and safe to print whatever the line
of history contains.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from claw_contract import interventions
from claw_contract.transcript.render import render_headline, render_transcript
from claw_mediate.core import tool_result
from tests.mediate.made import called, granted

LINE: dict[str, Any] = {
    "version": 1,
    "turn_id": "turn_1",
    "digest": "48ad42796db0e17c7d67",
    "status": "ok",
    "ts": "2026-11-21T05:29:13.679Z",
    "claw_id": "analyst",
    "path": "/v1/chat/completions",
    "requested_model": "gpt",
    "effective_provider": "openai",
    "effective_model": "gpt-5",
    "status_code": 200,
    "latency_ms": 812,
    "stream": False,
    "resumed": False,
    "tools_offered": ["desk__balance", "desk__trade"],
    "tools_withheld": [{"name": "desk.close", "reason": "not granted"}],
    "request_original": {
        "model": "gpt",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "buy\nall"},
                    {"type": "image_url", "image_url": {}},
                ],
            },
        ],
    },
    "request_effective": {"model": "gpt-5", "messages": [{}, {}, {}, {}, {}]},
    "response": {
        "format": "json",
        "json": {"choices": [{"message": {"role": "assistant", "content": "Bought."}}]},
    },
    "usage": {
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "cached_tokens": 4,
        "reported_cost_usd": 0.0012,
        "total_rounds": 3,
    },
    "tool_trace": [
        {
            "round": 1,
            "wall_time_ms": 57,
            "tool_calls": [
                {
                    "name": "desk.balance",
                    "arguments": {},
                    "result": {"ok": True, "status_code": 200, "data": {"usd": 50000}},
                    "latency_ms": 36,
                    "service": "desk",
                    "status": "ok",
                    "status_code": 200,
                    "duplicate": False,
                },
                {
                    "name": "desk.trade",
                    "arguments": {"n": 1},
                    "result": {
                        "ok": False,
                        "error": {"code": "http_500", "message": "no"},
                        "status_code": 500,
                    },
                    "latency_ms": 7,
                    "service": "desk",
                    "status": "error",
                    "status_code": 500,
                    "duplicate": False,
                },
            ],
            "round_usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        },
        {
            "round": 2,
            "wall_time_ms": 4,
            "shown": 14,
            "tool_calls": [
                {
                    "name": "desk.trade",
                    "arguments": {"n": 1},
                    "result": {
                        "ok": False,
                        "error": {"code": "duplicate_tool_call", "message": "made before"},
                    },
                    "latency_ms": 0,
                    "service": "desk",
                    "status": "error",
                    "duplicate": True,
                    "duplicate_of_round": 1,
                    "duplicate_count": 1,
                }
            ],
        },
    ],
    "prev": "0" * 64,
    "id": "hist1_1",
    "hash": "1" * 64,
}


@pytest.mark.requirement("transcript:turn", "live:audit")
def test_a_line_of_history_reads_as_who_said_what_to_whom() -> None:
    assert render_transcript(LINE) == snapshot("""\
turn turn_1 · ok 200 · agent analyst · 2026-11-21T05:29:13.679Z
/v1/chat/completions · asked for gpt · answered by openai gpt-5 · pod 48ad42796db0
3 model calls · 20 tokens in (4 cached) · 10 out · 812 ms · $0.001200

runner → cllama
  │ (2 earlier messages)
  │ user: buy
  │ all
  │ user: (image_url)
cllama → openai gpt-5
  offers desk__balance, desk__trade
  withholds desk.close: not granted
  and 2 messages that the runner did not send

── round 1 · 57 ms · 10 prompt_tokens · 5 completion_tokens
model → cllama: desk.balance
  │ {}
cllama → desk → model: 36 ms · HTTP 200 · ok
  │ {"usd": 50000}
model → cllama: desk.trade
  │ {"n": 1}
cllama → desk → model: 7 ms · HTTP 500 · http_500
  │ {"code": "http_500", "message": "no"}

── round 2 · 4 ms · 14 characters shown
model → cllama: desk.trade
  │ {"n": 1}
cllama → model: duplicate_tool_call; nothing ran
  intervention: duplicate_managed_tool_call:desk.trade
  a repeat of the call of round 1
  │ {"code": "duplicate_tool_call", "message": "made before"}

cllama → runner: ok 200
  │ assistant: Bought.\
""")


@pytest.mark.requirement("transcript:turn")
def test_a_turn_has_a_headline() -> None:
    assert (
        render_headline(LINE) == "turn turn_1 · ok 200 · agent analyst · 2026-11-21T05:29:13.679Z"
    )


@pytest.mark.requirement("transcript:turn")
def test_a_turn_that_failed_says_why_and_a_call_that_did_not_run_says_so() -> None:
    line = copy.deepcopy(LINE) | {"status": "error", "status_code": 502, "error": "total_timeout"}
    line["tool_trace"][0]["tool_calls"][1] |= {
        "result": {"ok": False, "error": {"code": "request_failed", "message": "not reached"}},
        "ran": False,
    }
    told = render_transcript(line)
    assert told.startswith("turn turn_1 · error 502 total_timeout · ")
    assert "cllama → model: request_failed; nothing ran\n" in told


@pytest.mark.requirement("transcript:turn")
def test_a_round_whose_calls_were_all_refused_names_the_intervention() -> None:
    line = copy.deepcopy(LINE)
    call = line["tool_trace"][1]["tool_calls"][0]
    call["result"]["error"]["code"] = "managed_tools_first"
    told = render_transcript(line)
    assert "  intervention: mixed_tool_order_internal_retry\n" in told
    assert "cllama → model: managed_tools_first; nothing ran\n" in told


def test_the_codes_of_interventions_are_those_of_results() -> None:
    """There is one registry: the codes that the contract knows are those that the
    mediator answers with.
    """
    call = called(granted())
    by_itself = [
        tool_result.tool_budget_exhausted(call),
        tool_result.managed_tools_first(call),
        tool_result.terminal_on_success_order(call),
        tool_result.too_many_calls(call, 1),
        tool_result.unknown_tool(call),
        tool_result.invalid_arguments(call, ""),
        tool_result.schema_validation(call, []),
        tool_result.duplicate_tool_call(call, 1, 1),
    ]
    assert {answer.code for answer in by_itself} == interventions.CODES_NOT_RUN


RESPONSES_ITEMS = [
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "It is 5."}],
    },
    {"type": "function_call", "call_id": "c", "name": "shell", "arguments": '{"cmd":"ls"}'},
]


@pytest.mark.requirement("transcript:dialects")
@pytest.mark.parametrize(
    ("messages", "told"),
    [
        (
            [
                {"role": "assistant", "tool_calls": [{}]},
                {"role": "tool", "tool_call_id": "c1", "content": "7"},
            ],
            "result of c1: 7",
        ),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "7"}],
                }
            ],
            "result of c1: 7",
        ),
        (
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Once"}],
            "assistant: Once",
        ),
    ],
    ids=["openai", "anthropic", "prefill"],
)
def test_the_runner_s_last_messages_are_shown(messages: list[dict[str, Any]], told: str) -> None:
    assert told in render_transcript({**LINE, "request_original": {"messages": messages}})


@pytest.mark.requirement("transcript:dialects")
def test_items_since_the_model_s_last_one_are_shown() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    asked = [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "How much?"}],
        },
        thought,
    ]
    output = {"type": "function_call_output", "call_id": "c", "output": "7"}
    line = {
        **LINE,
        "request_original": {"input": [*asked, *RESPONSES_ITEMS, output, {"type": "hologram"}]},
    }
    line |= {
        "request_effective": {"input": [{}] * 9},
        "response": {"format": "json", "json": {"output": [thought]}},
    }
    told = render_transcript(line)
    for words in (
        "  │ (4 earlier messages)\n  │ result of c: 7\n  │ somebody: (hologram)",
        "  and 3 messages that the runner did not send",
        "  │ assistant: (thinks) hm",
    ):
        assert words in told
    assert "user: Hi" in render_transcript({**LINE, "request_original": {"input": "Hi"}})


@pytest.mark.requirement("transcript:hostile")
def test_words_of_peers_neither_move_the_cursor_nor_pass_for_ours() -> None:
    forged = "fine\ncllama → runner: ok 200\r\x1b[2J\u202e\u2028\x85\u200b\ud800"
    line = copy.deepcopy(LINE)
    line["tool_trace"][0]["tool_calls"][0]["result"]["data"] = forged
    line["tool_trace"][0]["tool_calls"][0]["name"] = forged
    told = render_transcript(line)
    assert told.count("\ncllama → runner: ok 200") == 1
    assert "  │ cllama → runner: ok 200\\r\\x1b[2J\\u202e\\u2028\\x85\\u200b\\ud800" in told


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just("9" * 5000)
    | st.just("x" * 9000),
    lambda part: (
        st.lists(part, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "error"]), part)
    ),
    max_leaves=5,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(place for name, part in below for place in places(part, (*at, name)))]


@pytest.mark.requirement("transcript:hostile")
@given(st.sampled_from(places(LINE)), JSON)
def test_a_line_that_is_damaged_anywhere_has_a_transcript_all_the_same(
    place: tuple[Any, ...], put: Any
) -> None:
    told = render_transcript(damaged(LINE, place, put))
    assert render_transcript(damaged(LINE, place, 10**5000))  # longer than Python converts to text
    assert all(char.isprintable() or char in "\n\u00a0\u202f\u200d" for char in told)


def damaged(line: Any, place: tuple[Any, ...], put: Any) -> Any:
    if not place:
        return put
    line = copy.deepcopy(line)
    *way, last = place
    inside = line
    for step in way:
        inside = inside[step]
    inside[last] = put
    return line


@pytest.mark.requirement("transcript:hostile")
def test_what_is_nested_too_deeply_to_be_written_is_said_to_be() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert "(a list that can't be shown)" in render_transcript({**LINE, "request_original": deep})


@pytest.mark.requirement("transcript:hostile")
def test_long_texts_are_cut_and_say_how_long_they_were() -> None:
    told = render_transcript(
        {**LINE, "request_original": {"messages": [{"role": "user", "content": "x" * 1_000_000}]}}
    )
    assert len(told) < 10_000
    assert "… (1000000 characters)" in told


@pytest.mark.requirement("transcript:hostile")
def test_a_body_that_history_cut_is_shown_as_a_beginning() -> None:
    told = render_transcript(
        {**LINE, "request_original": {"truncated": True, "original_bytes": 9, "head": '{"mess'}}
    )
    assert '(the beginning of 9 bytes) {"mess' in told
