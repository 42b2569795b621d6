"""The words that each round of a live turn has shown, drawn where they were shown."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from inline_snapshot import snapshot

from claw_contract.transcript.render import render_transcript
from claw_contract.transcript.shown import ShownSize, cut_answer
from tests.contract.transcript.test_render import LINE

pytestmark = pytest.mark.requirement("live:turn-view")

ROUNDS = [ShownSize(12, 8), ShownSize(0, 0), ShownSize(16, 0)]
CHAT = "Let me look.\n\nAnd once more.\n\nYou have 50."
BLOCKS: list[Any] = [
    {"type": "thinking", "thinking": "To look.", "signature": "s1"},
    {"type": "text", "text": "Let me look."},
    {"type": "server_tool_use", "name": "web_search", "input": {}},
    {"type": "text", "text": "And once "},
    {"type": "text", "text": "more...."},
    {"type": "text", "text": "You have 50."},
]
ITEMS: list[Any] = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "To look."}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Let me look."}],
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "And once more..."}],
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "You have 50."}],
    },
]


def chat(content: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content}}]}


def live_line(answer: Any, sizes: list[ShownSize]) -> dict[str, Any]:
    """Return a line of history of a turn with this answer, whose rounds have shown so much."""
    line = copy.deepcopy(LINE)
    line["response"] = {"format": "sse", "json": answer}
    line["tool_trace"] = [
        {"round": number, "wall_time_ms": 1, "shown": size.text, "shown_reasoning": size.reasoning}
        for number, size in enumerate(sizes, 1)
    ]
    return line


def drawn(line: dict[str, Any]) -> list[str]:
    """Return the lines of the transcript that say what the runner got, and the rounds."""
    said = render_transcript(line).split("\n── ", 1)[1].split("\n")
    return [each for each in said if each]


@pytest.mark.parametrize(
    "answer",
    [
        chat(CHAT),
        {"content": [*BLOCKS[:3], {"type": "text", "text": "And once more..."}, BLOCKS[5]]},
        {"output": ITEMS},
    ],
    ids=["chat", "anthropic", "responses"],
)
def test_each_round_says_what_it_showed_and_the_end_only_the_rest(answer: Any) -> None:
    told = drawn(live_line(answer, ROUNDS))
    words = [each for each in told if "(thinks)" not in each and "(server_tool_use)" not in each]
    assert [each.rstrip(".") for each in words] == [
        "round 1 · 1 ms · 20 characters shown",
        "  │ shown: Let me look",
        "── round 2 · 1 ms",
        "── round 3 · 1 ms · 16 characters shown",
        "  │ shown: And once more",
        "cllama → runner: ok 200",
        "  │ assistant: You have 50",
    ]
    if "choices" not in answer:
        assert told[1] == "  │ shown: (thinks) To look."


def test_several_blocks_of_one_round_and_what_stands_before_them_go_to_it() -> None:
    cut = cut_answer({"content": BLOCKS}, [ShownSize(12, 8), ShownSize(17)])
    assert cut.rounds == [[{"content": BLOCKS[:2]}], [{"content": BLOCKS[2:5]}]]
    assert cut.rest == {"content": BLOCKS[5:]}


@pytest.mark.parametrize(
    "answer",
    [
        chat("Short."),
        chat(None),
        chat([{"type": "text", "text": CHAT}]),
        {"choices": [7]},
        {"choices": []},
        {"content": BLOCKS[:1]},
        {"content": [{"type": "text", "text": "Longer than the round was."}, 7]},
        {"content": [{"type": "text", "text": ["no text"]}]},
        {"output": [{"type": "message", "content": "no list"}, None]},
        {"truncated": True, "original_bytes": 9, "head": "Let me look."},
        "Short.",
        7,
        None,
    ],
    ids=str,
)
def test_an_answer_that_is_not_what_was_shown_is_not_cut(answer: Any) -> None:
    assert cut_answer(answer, ROUNDS).rest == answer
    assert not any(cut_answer(answer, ROUNDS).rounds)
    assert render_transcript(live_line(answer, ROUNDS))


@pytest.mark.parametrize("odd", [-5, 1 << 70, "12", None, True])
def test_a_size_that_is_none_draws_nothing_of_the_round(odd: Any) -> None:
    line = live_line(chat(CHAT), [ShownSize(12)])
    line["tool_trace"][0]["shown"] = odd
    assert not any("shown: " in each for each in drawn(line))
    assert "  │ assistant: Let me look." in drawn(line)


def test_a_turn_that_failed_says_what_it_showed_and_then_its_error() -> None:
    line = live_line({"error": {"message": "it broke off"}}, [ShownSize(12)])
    line |= {"status": "error", "status_code": 502, "error": "provider_broke_off"}
    line["response"]["shown"] = "Let me look.\n\nYou ha\x1b[2J"
    assert drawn(line) == snapshot(
        [
            "round 1 · 1 ms · 12 characters shown",
            "  │ shown: Let me look.",
            "cllama → runner: error 502 provider_broke_off",
            "  │ shown: You ha\\x1b[2J",
            '  │ error: {"message": "it broke off"}',
        ]
    )


def test_what_a_failed_turn_showed_may_be_cut_by_history() -> None:
    line = live_line({"error": {"message": "it broke off"}}, [ShownSize(12)])
    line["response"]["shown"] = {"truncated": True, "original_bytes": 90_000, "head": "Let me"}
    assert drawn(line)[-2:] == snapshot(
        [
            "  │ shown: (the beginning of 90000 bytes) Let me",
            '  │ error: {"message": "it broke off"}',
        ]
    )
