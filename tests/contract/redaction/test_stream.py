"""A secret that comes in pieces, a few characters with each event, is in neither
the history nor its transcript.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.redaction.redactor import Redactor
from claw_contract.redaction.stream import redact_stream
from claw_contract.secret import DOTS, Secret
from claw_contract.transcript import text as said

SECRET = 's3cr3t/"value"-ä'
REDACTOR = Redactor([Secret(SECRET)])


def openai(piece: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": piece}}]}


def arguments(piece: str) -> dict[str, Any]:
    return {
        "choices": [{"delta": {"tool_calls": [{"index": 1, "function": {"arguments": piece}}]}}]
    }


def anthropic(piece: str) -> dict[str, Any]:
    return {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": piece},
    }


def stream(events: list[dict[str, Any]], *, escaped: bool) -> bytes:
    return b"".join(
        b"data: %b\n\n" % json.dumps(event, ensure_ascii=escaped).encode() for event in events
    )


def cut(text: str, places: list[int]) -> Iterator[str]:
    places = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return (text[start:end] for start, end in pairwise(places))


@pytest.mark.requirement("history:in-pieces")
@pytest.mark.parametrize("delta", [openai, arguments, anthropic])
@given(st.lists(st.integers(0, 100), max_size=8), st.booleans())
def test_however_it_is_cut_no_secret_is_left_when_it_is_put_together(
    delta: Any, places: list[int], escaped: bool
) -> None:
    pieces = cut(f"before {SECRET} after", places)
    whole = stream([{"id": "1"}, *map(delta, pieces), {"usage": {}}], escaped=escaped)
    clear = REDACTOR.document(redact_stream(REDACTOR.data(whole), REDACTOR))
    (told,) = said.response_lines(clear.decode())
    assert SECRET not in told
    assert told.startswith("assistant: before ")
    assert DOTS in told
    assert told.endswith(" after")
    assert clear.count(b"data: ") == whole.count(b"data: ")


@pytest.mark.requirement("history:in-pieces")
def test_a_stream_without_a_secret_stays_as_it_is_byte_for_byte() -> None:
    events = [*map(openai, ("s3cr3t", "/", "other", '"\n\\')), *map(anthropic, ("ä", "b"))]
    for whole in (
        stream(events, escaped=True),
        stream(events, escaped=False),
        b'"text": "\\q", "text": "\xff',
        b"",
    ):
        assert redact_stream(whole, REDACTOR) == whole


@pytest.mark.requirement("history:in-pieces")
def test_letters_that_are_hidden_are_read() -> None:
    whole = b'data: {"text": "s3cr3t\\u002f\\""}\n\ndata: {"text": "v\\u0061lue\\"-\\u00e4!"}\n\n'
    assert (
        redact_stream(whole, REDACTOR)
        == f'data: {{"text": "{DOTS}"}}\n\ndata: {{"text": "{DOTS}!"}}\n\n'.encode()
    )
